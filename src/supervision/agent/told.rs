//! Messages from the elector, and the check that they keep the protocol.

use super::{Agent, requests::StepDown, shutdown::Shutdown};
use crate::{
    link::{Confirmed, LeaseBackoff, Reason, Term, TermInfo, ToElector, ToInit},
    supervision::{interface::Action, term::ActiveTerm},
    time::Instant,
};

impl Agent {
    pub(super) fn told(&mut self, message: ToInit, now: Instant) {
        let latest = self.timing.deadlines(now);
        match message {
            ToInit::Hello => self.electors.greeted(),
            ToInit::Lead { term, info, confirmed } => self.lead(term, info, confirmed, now),
            ToInit::Extend { term, serial, confirmed } => {
                if self.named(term).is_some_and(|term| term.extend(confirmed, latest)) {
                    self.tell(ToElector::Acknowledged { term, serial });
                }
            }
            ToInit::StepDown { term, request, reason, traceparent } => {
                if self.named(term).is_some() {
                    self.step_down(StepDown { request, reason, traceparent }, now);
                }
            }
            ToInit::Withdrawn { term } => {
                if self.named(term).is_some() {
                    self.end_withdrawal(now);
                }
            }
            ToInit::Releasing { term, serial } => {
                let Some(named) = self.named(term) else { return };
                if named.release() {
                    self.tell(ToElector::Acknowledged { term, serial });
                } else {
                    self.protocol_error(format_args!("announced a release without a proof"), now);
                }
            }
            ToInit::Ended { term, backoff } => self.ended(term, backoff, now),
            ToInit::Observed { slot, last_seen } => {
                self.last_seen.insert(slot, last_seen);
            }
            ToInit::Probed { kind, began, failure } => self.workload.health.answered(kind, began, failure, now),
            ToInit::Heartbeat => self.tell(ToElector::Heartbeat),
            ToInit::Done => {
                let leads = self.leads();
                // A live term may be between two runs of its workload.
                self.term.take_if(|term| !leads && !term.is_live());
                if let Some(shutdown) = &mut self.shutdown {
                    shutdown.done();
                }
            }
            ToInit::GaveUp { .. } if self.term.is_some() => self.protocol_error(format_args!("gave up within a term"), now),
            ToInit::GaveUp { code, message } => {
                if self.shutdown.is_none() {
                    self.begin_shutdown(Some(code)).why = Some(message);
                }
            }
            ToInit::Failed { code, message } => {
                self.actions.push_back(Action::TerminationMessage(message, code));
                self.failed = Some(code);
            }
        }
    }

    fn lead(&mut self, term: Term, info: TermInfo, confirmed: Confirmed, now: Instant) {
        let free = self.term.as_ref().is_none_or(ActiveTerm::is_answered) && !self.workload.leads();
        if term <= self.last_term || !free {
            self.protocol_error(format_args!("began a term while another one is not over"), now);
            return;
        }
        let Some(active) = ActiveTerm::new(term, info, confirmed, self.timing.deadlines(now)) else {
            self.protocol_error(format_args!("began a term that is valid for longer than its Lease"), now);
            return;
        };
        self.last_term = term;
        self.term = Some(active);
        self.workload.forget_last_term();
        self.tell(ToElector::Acknowledged { term, serial: 0 });
        if self.shutdown.is_some() {
            self.end_term(Reason::Signal, now);
        }
    }

    fn ended(&mut self, term: Term, backoff: Option<LeaseBackoff>, now: Instant) {
        let leads = self.leads();
        let Some(named) = self.named(term) else { return };
        if leads || named.is_live() {
            self.protocol_error(format_args!("ended a term whose workload is not proved gone"), now);
            return;
        }
        self.backoff = backoff;
        self.term = None;
        if self.shutdown.is_none() {
            self.workload.forget_stop();
        }
    }

    /// Returns the active term, if a message names it (law 8).
    fn named(&mut self, term: Term) -> Option<&mut ActiveTerm> {
        self.term.as_mut().filter(|active| active.term == term)
    }

    /// Replaces an elector that broke the protocol. Its message has no effect.
    fn protocol_error(&mut self, what: std::fmt::Arguments<'_>, now: Instant) {
        self.give_elector_up(now);
        // After that, because it would read no line.
        self.warn(format!("the elector {what}, and is killed"));
    }

    pub(super) fn give_elector_up(&mut self, now: Instant) {
        if self.electors.give_up(now) {
            self.actions.push_back(Action::KillElector);
        }
    }

    /// Begins the end of init with this code (none: the workload's own), unless it has begun.
    pub(super) fn begin_shutdown(&mut self, code: Option<u8>) -> &mut Shutdown {
        self.shutdown.get_or_insert_with(|| Shutdown::with(code))
    }
}
