//! Deadlines, stops and what the workload reports (law 3, 7, 8).

use super::Agent;
use crate::{
    config::{OnExit, OnLoss, Runs},
    exit,
    link::{Exit, Reason, Stop, Term, Then, ToElector},
    supervision::{Action, workload::Happened},
    time::Instant,
};

impl Agent {
    /// Acts on S and H as they pass (law 3).
    pub(super) fn enforce(&mut self, now: Instant) {
        let Some(term) = self.term.as_mut().filter(|term| term.due().is_some_and(|at| at <= now)) else { return };
        if now >= term.deadlines().hard {
            self.expire(now);
        } else {
            term.stop(Reason::Expired);
            self.on_loss(Reason::Expired);
            self.give_way(now);
            self.tell_stopping(Reason::Expired, now);
        }
    }

    /// When a task has run for as long as it may.
    pub(super) fn limit(&self) -> Option<Instant> {
        self.term.as_ref()?.spent(self.config.preset.task()?.limit)
    }

    /// Stops a task that has, for good if it is to run once: whatever it makes of the signal, it was not done.
    pub(super) fn limit_run(&mut self, now: Instant) {
        if self.limit().is_none_or(|at| now < at) {
            return;
        }
        if self.config.preset.is_once() {
            self.begin_shutdown(Some(Exit::Signal(self.config.config.workload.stop.signal.0).code()));
        }
        self.begin_stop(Reason::Limit, now);
        self.give_way(now);
    }

    /// H has come.
    pub(super) fn expire(&mut self, now: Instant) {
        self.begin_withheld(now);
        let Some(term) = self.term.as_mut().filter(|term| term.due().is_some()) else { return };
        let was_live = term.is_live() && term.stop(Reason::Expired);
        term.spend();
        let hard = term.deadlines().hard;
        self.workload.hard(hard, now);
        self.workload.handle_timeout(now);
        if was_live {
            self.announce_stop(Reason::Expired, now);
        }
    }

    /// Ends the term for a reason of init's own.
    pub(super) fn begin_stop(&mut self, reason: Reason, now: Instant) {
        if let Some(term) = self.term.as_mut().filter(|term| term.is_live()) {
            term.stop(reason);
            self.announce_stop(reason, now);
        }
    }

    /// What has to be done at once goes before the word about it (law 2).
    fn announce_stop(&mut self, reason: Reason, now: Instant) {
        self.on_loss(reason);
        self.flush(now);
        self.tell_stopping(reason, now);
    }

    fn tell_stopping(&mut self, reason: Reason, at: Instant) {
        if let Some(term) = self.term.as_ref().map(|term| term.term) {
            self.tell(ToElector::Stopping { term, reason, at });
        }
    }

    /// Stops or demotes the leader, in the time that the reason leaves (law 7).
    pub(super) fn give_way(&mut self, now: Instant) {
        self.begin_withheld(now);
        let Some(term) = &self.term else { return };
        let (Some(reason), hard) = (term.stopping(), term.deadlines().hard) else { return };
        let stop = &self.config.config.workload.stop;
        let kill_at = if reason.is_loss() { hard.min(now + stop.loss_grace) } else { now + stop.grace };
        // A standby keeps the time that it was given to end, and the Lease does not wait for that.
        if self.shutdown.is_some() && self.workload.leads() && self.config.config.workload.runs == Runs::Always {
            self.workload.stop(None, kill_at, now);
            if reason.is_loss() {
                self.workload.hasten(kill_at);
            }
        } else {
            self.workload.give_way(reason, &term.info, kill_at, hard, now);
        }
        self.flush(now);
    }

    /// What runs once does not campaign again, whoever took the Lease from it.
    pub(super) fn on_loss(&mut self, reason: Reason) {
        let is_lost = reason.is_loss() || self.config.preset.is_once();
        if is_lost && self.config.config.workload.on_loss == OnLoss::Exit && self.shutdown.is_none() {
            let since = self.term.as_ref().map(|term| format!(", held since {}", term.info.acquired_at)).unwrap_or_default();
            let why = format!("the Lease {} was lost ({}){since}", self.config.config.lease.name, reason.as_str());
            self.begin_shutdown(Some(exit::LEADERSHIP_LOST)).why = Some(why);
        }
    }

    pub(super) fn happened(&mut self, happened: Happened, now: Instant) {
        let has_ended = matches!(happened, Happened::Ended(_) | Happened::Restarting(_));
        if !self.workload.is_running() {
            self.status.clear();
        }
        match happened {
            Happened::Leads { pid } => {
                if let Some(term) = &mut self.term {
                    term.started(pid, now);
                }
                self.tell_start();
            }
            // It ended in the stop that was put off, which begins now.
            Happened::Ended(_) | Happened::Restarting(_) if self.withdrawal.is_some() => {}
            // Past S the term is over, and this end is not an exit of its own: the second guard may have killed it while init
            // stood still.
            Happened::Ended(_) | Happened::Restarting(_) if self.is_past_soft(now) => self.begin_stop(Reason::Expired, now),
            Happened::Restarting(exit) => match self.live_term() {
                Some(term) => self.tell(ToElector::Restarting { term, exit, at: now }),
                None => self.warn(format!("{} ended ({exit}) and is started again", self.what_runs())),
            },
            Happened::Ended(exit) => {
                if self.term.is_none() && !self.is_plain() {
                    self.warn(format!("{} ended ({exit})", self.what_runs()));
                }
                self.end_unless_it_follows(exit.code());
                self.begin_stop(Reason::Exited, now);
            }
            Happened::Interrupted => {
                self.begin_shutdown(None);
                self.begin_stop(Reason::Signal, now);
            }
            Happened::SpawnFailed { code, message } => {
                self.begin_shutdown(Some(code));
                self.begin_stop(Reason::SpawnFailed, now);
                self.actions.push_back(Action::TerminationMessage(message));
            }
            Happened::NotPromoted(reason) => {
                self.begin_stop(reason, now);
                self.give_way(now);
            }
            Happened::Fails(reason) => {
                self.begin_stop(reason, now);
                if reason == Reason::NotLive && !self.workload.prepares_to_follow() {
                    // One that hangs need not try to follow.
                    self.workload.stop(None, now + self.config.config.workload.stop.grace, now);
                }
                self.give_way(now);
            }
            Happened::Yielded(stop) => self.yielded(stop),
            Happened::Unproved(pids) => {
                self.warn(if pids.is_empty() {
                    "what the workload left behind cannot be seen, and may still be running".into()
                } else {
                    format!("processes are left that SIGKILL does not remove: {pids:?}")
                });
                if let Some(term) = self.term.as_ref().map(|term| term.term) {
                    self.tell(ToElector::Unproved { term, pids });
                }
            }
        }
        if has_ended {
            self.stop_now(now);
        }
    }

    fn live_term(&self) -> Option<Term> {
        self.term.as_ref().filter(|term| term.is_live()).map(|term| term.term)
    }

    /// Whether a live term is past its S.
    fn is_past_soft(&self, now: Instant) -> bool {
        self.term.as_ref().is_some_and(|term| term.is_live() && now >= term.deadlines().soft)
    }

    fn end_unless_it_follows(&mut self, code: u8) {
        if self.term.is_none() || self.config.config.workload.on_exit != OnExit::Follow {
            self.begin_shutdown(Some(code));
        }
    }

    /// What ended without a term.
    fn what_runs(&self) -> &'static str {
        if self.is_plain() { "the workload" } else { "the standby" }
    }

    /// The proof; sent if a StepDown asked for it (law 8).
    fn yielded(&mut self, stop: Stop) {
        let Some(active) = &mut self.term else { return };
        let term = active.term;
        let Some(request) = active.answer() else { return };
        let then = if let Some(shutdown) = &mut self.shutdown {
            shutdown.was_told();
            Then::Exit
        } else {
            Then::Follow
        };
        self.tell(ToElector::Stopped { term, request, stop, then });
    }
}
