//! What the elector says, and what it may not say.

use super::{Agent, shutdown::Shutdown, withdrawing::StepDown};
use crate::{
    link::{Confirmed, Reason, Term, TermInfo, ToElector, ToInit},
    supervision::{Action, term::ActiveTerm},
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
                    self.stop_now(now);
                }
            }
            ToInit::Releasing { term, serial } => {
                let Some(named) = self.named(term) else { return };
                if named.release() {
                    self.tell(ToElector::Acknowledged { term, serial });
                } else {
                    self.breach(format_args!("announced a release without a proof"), now);
                }
            }
            ToInit::Ended { term, backoff } => self.ended(term, backoff, now),
            ToInit::Saw { slot, last_seen } => {
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
            ToInit::GaveUp { .. } if self.term.is_some() => self.breach(format_args!("gave up within a term"), now),
            ToInit::GaveUp { code, message } => {
                if self.shutdown.is_none() {
                    self.begin_shutdown(Some(code)).why = Some(message);
                }
            }
            ToInit::Failed { code, message } => {
                self.actions.push_back(Action::TerminationMessage(message));
                self.failed = Some(code);
            }
        }
    }

    fn lead(&mut self, term: Term, info: TermInfo, confirmed: Confirmed, now: Instant) {
        let free = self.term.as_ref().is_none_or(ActiveTerm::is_answered) && !self.workload.leads();
        if term <= self.last_term || !free {
            self.breach(format_args!("began a term while another one is not over"), now);
            return;
        }
        let Some(active) = ActiveTerm::new(term, info, confirmed, self.timing.deadlines(now)) else {
            self.breach(format_args!("began a term that is valid for longer than its Lease"), now);
            return;
        };
        self.last_term = term;
        self.term = Some(active);
        self.workload.begin_term();
        self.tell(ToElector::Acknowledged { term, serial: 0 });
        if self.shutdown.is_some() {
            self.begin_stop(Reason::Signal, now);
        }
    }

    fn ended(&mut self, term: Term, backoff: Option<Instant>, now: Instant) {
        let leads = self.leads();
        let Some(named) = self.named(term) else { return };
        if leads || named.is_live() {
            self.breach(format_args!("ended a term whose workload is not proved gone"), now);
            return;
        }
        self.backoff = backoff.or(self.backoff);
        self.term = None;
        if self.shutdown.is_none() {
            self.workload.forget_stop();
        }
    }

    /// The active term, if it is the one that a message names (law 8).
    fn named(&mut self, term: Term) -> Option<&mut ActiveTerm> {
        self.term.as_mut().filter(|active| active.term == term)
    }

    /// The elector broke the protocol. It is replaced; what it said is not acted on.
    fn breach(&mut self, what: std::fmt::Arguments<'_>, now: Instant) {
        self.warn(format!("the elector {what}"));
        self.give_elector_up(now);
    }

    pub(super) fn give_elector_up(&mut self, now: Instant) {
        if self.electors.give_up(now) {
            self.actions.push_back(Action::KillElector);
        }
    }

    /// Init ends with this code, unless it ends already; none: the workload's own.
    pub(super) fn begin_shutdown(&mut self, code: Option<u8>) -> &mut Shutdown {
        self.shutdown.get_or_insert_with(|| Shutdown::with(code))
    }
}
