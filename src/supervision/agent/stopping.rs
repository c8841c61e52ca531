//! Deadlines, stops and what the workload reports (law 3, 7, 8).

use super::{Agent, ending::Ending};
use crate::{
    config::{OnExit, OnLoss},
    exit,
    link::{Reason, Stop, Then, ToElector},
    supervision::{Action, workload::Happened},
    time::Instant,
};

impl Agent {
    /// Acts on S and H as they pass (law 3).
    pub(super) fn enforce(&mut self, now: Instant) {
        let Some(held) = &mut self.held else { return };
        let deadlines = held.deadlines();
        if now >= deadlines.hard {
            self.expire(now);
        } else if now >= deadlines.soft && held.is_live() {
            held.stop(Reason::Expired);
            self.on_loss(Reason::Expired);
            self.give_way(now);
            self.tell_stopping(Reason::Expired, now);
        }
    }

    /// H has come.
    pub(super) fn expire(&mut self, now: Instant) {
        let Some(held) = self.held.as_mut().filter(|held| !held.is_spent()) else { return };
        held.spend();
        let hard = held.deadlines().hard;
        self.workload.hard(hard, now);
        self.workload.handle_timeout(now);
        self.flush(now);
        self.begin_stop(Reason::Expired, now);
    }

    /// Ends the term for a reason of init's own.
    pub(super) fn begin_stop(&mut self, reason: Reason, now: Instant) {
        let Some(held) = &mut self.held else { return };
        if held.stopping().is_some() {
            return;
        }
        held.stop(reason);
        self.on_loss(reason);
        self.flush(now);
        self.tell_stopping(reason, now);
    }

    pub(super) fn tell_stopping(&mut self, reason: Reason, at: Instant) {
        if let Some(term) = self.held.as_ref().map(|held| held.term) {
            self.tell(ToElector::Stopping { term, reason, at });
        }
    }

    /// Stops or demotes the leader, in the time that the reason leaves (law 7).
    pub(super) fn give_way(&mut self, now: Instant) {
        let Some(held) = &self.held else { return };
        let Some(reason) = held.stopping() else { return };
        let hard = held.deadlines().hard;
        let not_after = held.lasting(self.settings.config.timing(), self.not_before).hard;
        let stop = &self.settings.config.workload.stop;
        let kill_at = if reason.is_loss() { hard.min(now + stop.loss_grace) } else { now + stop.grace };
        // A standby keeps the time that it was given to end, and the Lease does not wait for that.
        if self.ending.is_some() && self.workload.leads() {
            self.workload.stop(None, kill_at, now);
        } else {
            self.workload.give_way(reason, kill_at, not_after, now);
        }
        self.flush(now);
    }

    pub(super) fn on_loss(&mut self, reason: Reason) {
        if reason.is_loss() && self.settings.config.workload.on_loss == OnLoss::Exit {
            self.ending.get_or_insert_with(|| Ending::with(Some(exit::LEADERSHIP_LOST)));
        }
    }

    pub(super) fn happened(&mut self, happened: Happened, now: Instant) {
        match happened {
            Happened::Leads { pid } => {
                if let Some(held) = &mut self.held {
                    held.started(pid, now);
                }
                self.tell_start();
            }
            // Past S the term is over, and this end is not an exit of its own: the second guard may have killed it while init
            // stood still.
            Happened::Ended(_) | Happened::Restarting(_) if self.is_past_soft(now) => self.begin_stop(Reason::Expired, now),
            Happened::Restarting(exit) => match self.held.as_ref().filter(|held| held.is_live()).map(|held| held.term) {
                Some(term) => self.tell(ToElector::Restarting { term, exit, at: now }),
                None => self.warn(format!("{} ended ({exit}) and is started again", self.what_runs())),
            },
            Happened::Ended(exit) => {
                if self.held.is_none() && !self.is_plain() {
                    self.warn(format!("{} ended ({exit})", self.what_runs()));
                }
                self.end_unless_it_follows(exit.code());
                self.begin_stop(Reason::Exited, now);
            }
            Happened::Interrupted => {
                self.ending.get_or_insert_with(|| Ending::with(None));
                self.begin_stop(Reason::Signal, now);
            }
            Happened::SpawnFailed { code, message } => {
                self.ending.get_or_insert_with(|| Ending::with(Some(code)));
                self.begin_stop(Reason::SpawnFailed, now);
                self.actions.push_back(Action::LastWords(message));
            }
            Happened::Unavailable { message } => {
                if self.is_past_soft(now) {
                    self.begin_stop(Reason::Expired, now);
                } else {
                    self.end_unless_it_follows(exit::INTERNAL);
                    self.begin_stop(Reason::SpawnFailed, now);
                }
                self.actions.push_back(Action::LastWords(message));
            }
            Happened::NotPromoted(reason) => {
                self.begin_stop(reason, now);
                self.give_way(now);
            }
            Happened::Yielded(stop) => self.yielded(stop),
            Happened::Unproved(pids) => {
                self.warn(if pids.is_empty() {
                    "what the workload left behind cannot be seen, and may still be running".into()
                } else {
                    format!("processes are left that SIGKILL does not remove: {pids:?}")
                });
                if let Some(term) = self.held.as_ref().map(|held| held.term) {
                    self.tell(ToElector::Unproved { term, pids });
                }
            }
        }
    }

    /// Whether a live term is past its S.
    fn is_past_soft(&self, now: Instant) -> bool {
        self.held.as_ref().is_some_and(|held| held.is_live() && now >= held.deadlines().soft)
    }

    fn end_unless_it_follows(&mut self, code: u8) {
        if self.held.is_none() || self.settings.config.workload.on_exit != OnExit::Follow {
            self.ending.get_or_insert_with(|| Ending::with(Some(code)));
        }
    }

    /// What ended without a term.
    fn what_runs(&self) -> &'static str {
        if self.is_plain() { "the workload" } else { "the standby" }
    }

    /// The proof; sent if a StepDown asked for it (law 8).
    pub(super) fn yielded(&mut self, stop: Stop) {
        let then = if self.ending.is_some() { Then::Exit } else { Then::Follow };
        let Some(held) = &mut self.held else { return };
        let term = held.term;
        let Some(request) = held.answer() else { return };
        if let Some(ending) = &mut self.ending {
            ending.told = true;
        }
        self.tell(ToElector::Stopped { term, request, stop, then });
    }
}
