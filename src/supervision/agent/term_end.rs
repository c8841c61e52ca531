//! Deadlines and stops of a term, and the events of the workload (law 3, 7, 8).

use super::Agent;
use crate::{
    config::{OnExit, OnLoss, Runs},
    exit,
    link::{Exit, Reason, Stop, Term, Then, ToElector},
    supervision::{Action, term::ActiveTerm, workload::WorkloadEvent},
    time::Instant,
};

impl Agent {
    /// Acts on S and H as they pass (law 3).
    pub(super) fn enforce(&mut self, now: Instant) {
        let Some(term) = self.term.as_ref().filter(|term| term.due().is_some_and(|at| at <= now)) else { return };
        if now >= term.deadlines().hard {
            self.expire(now);
        } else {
            self.begin_stop(Reason::Expired, now);
            self.stop_or_demote(now);
        }
    }

    /// Time at which a task has reached its limit.
    pub(super) fn limit(&self) -> Option<Instant> {
        self.term.as_ref()?.spent(self.config.preset.task()?.limit)
    }

    /// Stops a task that has reached its limit. If it is to run once, init ends with the code of the stop signal, because the
    /// task was not done.
    pub(super) fn limit_run(&mut self, now: Instant) {
        if self.limit().is_none_or(|at| now < at) {
            return;
        }
        if self.config.preset.is_once() {
            self.begin_shutdown(Some(Exit::Signal(self.config.config.workload.stop.signal.0).code()));
        }
        self.begin_stop(Reason::Limit, now);
        self.stop_or_demote(now);
    }

    /// Takes the passing of H.
    pub(super) fn expire(&mut self, now: Instant) {
        self.begin_withheld(now);
        let Some(hard) = self.term.as_ref().filter(|term| term.due().is_some()).map(|term| term.deadlines().hard) else { return };
        self.begin_stop(Reason::Expired, now);
        self.term.iter_mut().for_each(ActiveTerm::spend);
        self.workload.hard(hard, now);
        self.workload.handle_timeout(now);
    }

    /// Takes what a kernel fuse has killed. The Lease is still held before H, so it can be released.
    pub(super) fn burnt(&mut self, now: Instant) {
        match self.hard() {
            Some(hard) if now < hard => {
                self.begin_stop(Reason::Fuse, now);
                self.stop_or_demote(now);
            }
            Some(_) => self.expire(now),
            None => {}
        }
    }

    /// Begins the end of a live term, and tells the elector.
    pub(super) fn begin_stop(&mut self, reason: Reason, now: Instant) {
        if let Some(active) = self.term.as_mut().filter(|term| term.is_live()) {
            active.stop(reason);
            let term = active.term;
            self.on_loss(reason);
            if self.electors.is_alive() {
                self.words.push_back(Action::Tell(ToElector::Stopping { term, reason, at: now }));
            }
        }
    }

    /// Stops or demotes the leader, within the time that the reason leaves (law 7).
    pub(super) fn stop_or_demote(&mut self, now: Instant) {
        self.begin_withheld(now);
        let Some(term) = &self.term else { return };
        let (Some(reason), hard) = (term.stopping(), term.deadlines().hard) else { return };
        let stop = &self.config.config.workload.stop;
        let kill_at = if reason.is_loss() { hard.min(now + stop.loss_grace) } else { now + stop.grace };
        // A standby keeps the time that it has for its stop, and the Lease is not held for that.
        if self.shutdown.is_some() && self.workload.leads() && self.config.config.workload.runs == Runs::Always {
            self.workload.stop(None, kill_at, now);
            if reason.is_loss() {
                self.workload.shorten_stop(kill_at);
            }
        } else {
            self.workload.yield_lease(reason, &term.info, kill_at, hard, now);
        }
    }

    /// Ends init after a loss with `onLoss: exit`. A command that runs once does not campaign again after any stop.
    pub(super) fn on_loss(&mut self, reason: Reason) {
        let is_lost = reason.is_loss() || self.config.preset.is_once();
        if is_lost && self.config.config.workload.on_loss == OnLoss::Exit && self.shutdown.is_none() {
            let since = self.term.as_ref().map(|term| format!(", held since {}", term.info.acquired_at)).unwrap_or_default();
            let why = format!("the Lease {} was lost ({}){since}", self.config.config.lease.name, reason.as_str());
            self.begin_shutdown(Some(exit::LEADERSHIP_LOST)).why = Some(why);
        }
    }

    pub(super) fn happened(&mut self, event: WorkloadEvent, now: Instant) {
        let has_ended = matches!(event, WorkloadEvent::Ended(_) | WorkloadEvent::Restarting(_));
        if self.workload.main().is_none() {
            self.status.clear();
        }
        match event {
            WorkloadEvent::Leads { pid } => {
                if let Some(term) = &mut self.term {
                    term.started(pid, now);
                }
                self.tell_start();
            }
            // The workload ended before the stop that was put off, which begins now.
            WorkloadEvent::Ended(_) | WorkloadEvent::Restarting(_) if self.withdrawal.is_some() => {}
            // After S the term is over, and this end does not count as an exit: the elector's guard may have killed the workload
            // while init did not run.
            WorkloadEvent::Ended(_) | WorkloadEvent::Restarting(_) if self.is_past_soft(now) => {
                self.begin_stop(Reason::Expired, now)
            }
            WorkloadEvent::Restarting(exit) => match self.live_term() {
                Some(term) => self.tell(ToElector::Restarting { term, exit, at: now }),
                None => self.warn(format!("{} ended ({exit}) and is started again", self.what_runs())),
            },
            WorkloadEvent::Ended(exit) => {
                if self.term.is_none() && !self.is_plain() {
                    self.warn(format!("{} ended ({exit})", self.what_runs()));
                }
                self.end_unless_it_follows(exit.code());
                self.begin_stop(Reason::Exited, now);
            }
            WorkloadEvent::Interrupted => {
                self.begin_shutdown(None);
                self.begin_stop(Reason::Signal, now);
            }
            WorkloadEvent::SpawnFailed { code, message } => {
                self.begin_shutdown(Some(code));
                self.begin_stop(Reason::SpawnFailed, now);
                self.words.push_back(Action::TerminationMessage(message));
            }
            WorkloadEvent::NotPromoted(reason) => {
                self.begin_stop(reason, now);
                self.stop_or_demote(now);
            }
            WorkloadEvent::Fails(reason) => {
                self.begin_stop(reason, now);
                if reason == Reason::NotLive && self.term.is_none() {
                    self.workload.replace(now + self.config.config.workload.stop.grace, now);
                } else if reason == Reason::NotLive && !self.workload.prepares_to_follow() {
                    // A workload that hangs is stopped, not demoted.
                    self.workload.stop(None, now + self.config.config.workload.stop.grace, now);
                }
                self.stop_or_demote(now);
            }
            WorkloadEvent::Yielded(stop) => self.yielded(stop),
            WorkloadEvent::Unproved(pids) => {
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

    /// Tells whether a live term is past its S.
    fn is_past_soft(&self, now: Instant) -> bool {
        self.term.as_ref().is_some_and(|term| term.is_live() && now >= term.deadlines().soft)
    }

    fn end_unless_it_follows(&mut self, code: u8) {
        if self.term.is_none() || self.config.config.workload.on_exit != OnExit::Follow {
            self.begin_shutdown(Some(code));
        }
    }

    /// Names the workload in a line about an end without a term.
    fn what_runs(&self) -> &'static str {
        if self.is_plain() { "the workload" } else { "the standby" }
    }

    /// Takes the proof, and sends it if a StepDown has asked for it (law 8).
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
