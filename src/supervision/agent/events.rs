//! The events of the workload, its proof of death among them (law 8).

use super::Agent;
use crate::{
    config::OnExit,
    link::{Reason, Stop, Term, Then, ToElector},
    supervision::{interface::Action, workload::WorkloadEvent},
    time::Instant,
};

impl Agent {
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
                self.end_term(Reason::Expired, now)
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
                self.end_term(Reason::Exited, now);
            }
            WorkloadEvent::Interrupted => {
                self.begin_shutdown(None);
                self.end_term(Reason::Signal, now);
            }
            WorkloadEvent::SpawnFailed { code, message } => {
                self.begin_shutdown(Some(code));
                self.end_term(Reason::SpawnFailed, now);
                self.words.push_back(Action::TerminationMessage(message, code));
            }
            WorkloadEvent::NotPromoted(reason) => {
                self.end_term(reason, now);
                self.stop_or_demote(now);
            }
            WorkloadEvent::Fails(reason) => {
                self.end_term(reason, now);
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
                self.tell_unproved();
            }
        }
        if has_ended {
            self.end_withdrawal(now);
        }
    }

    pub(super) fn tell_unproved(&mut self) {
        if let Some(term) = self.term.as_ref().map(|term| term.term) {
            self.tell(ToElector::Unproved { term });
        }
    }

    fn live_term(&self) -> Option<Term> {
        self.term.as_ref().filter(|term| term.is_live()).map(|term| term.term)
    }

    /// Returns true if a live term is past its S.
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
