//! What the elector says, and what it may not say.

use super::Agent;
use crate::{
    law::Timing,
    link::{Confirmed, Facts, Reason, Term, ToElector, ToInit, VERSION},
    supervision::{Action, held::Held},
    time::Instant,
};

impl Agent {
    pub(super) fn told(&mut self, message: ToInit, now: Instant) {
        match message {
            ToInit::Hello { version: VERSION } => self.electors.greeted(),
            ToInit::Hello { version } => self.breach(format_args!("speaks version {version} of the link"), now),
            ToInit::Lead { term, facts, timing, confirmed, not_before } => {
                self.not_before = self.not_before.max(not_before);
                if self.are_own_constants(timing, not_before.is_some()) {
                    self.lead(term, facts, timing, confirmed, now);
                } else {
                    self.breach(format_args!("began a term with other constants than this replica's"), now);
                }
            }
            ToInit::Extend { term, serial, confirmed } => {
                if self.held(term).is_some_and(|held| held.extend(confirmed, now)) {
                    self.tell(ToElector::Acknowledged { term, serial });
                }
            }
            ToInit::Shorten { timing, .. } if !self.are_own_constants(timing, false) => {
                self.breach(format_args!("ended a creation wait with other constants than this replica's"), now);
            }
            // What began by then goes by the deadlines that an end in time leaves (law 15).
            ToInit::Shorten { .. } if self.not_before.is_some_and(|end| now < end) => {
                self.breach(format_args!("ended a creation wait that is not over"), now);
            }
            ToInit::Shorten { term, serial, timing, deadlines } => {
                if let Some(held) = self.held(term) {
                    held.shorten(timing, deadlines);
                    self.tell(ToElector::Acknowledged { term, serial });
                }
            }
            ToInit::StepDown { term, request, reason, traceparent } => {
                let Some(held) = self.held(term) else { return };
                held.request(request, traceparent);
                held.stop(reason);
                self.on_loss(reason);
                self.give_way(now);
            }
            ToInit::Releasing { term, serial } => {
                let Some(held) = self.held(term) else { return };
                if held.release() {
                    self.tell(ToElector::Acknowledged { term, serial });
                } else {
                    self.breach(format_args!("announced a release without a proof"), now);
                }
            }
            ToInit::Ended { term } => {
                let own = self.settings.config.timing();
                let Some(held) = self.held(term) else { return };
                let is_live = held.is_live();
                let sit_out = held.sit_out(own, now);
                if is_live || self.leads() {
                    self.breach(format_args!("ended a term whose workload is not proved gone"), now);
                } else {
                    self.sit_out = sit_out.or(self.sit_out);
                    self.held = None;
                    if self.ending.is_none() {
                        self.workload.forget_stop();
                    }
                }
            }
            ToInit::Saw(last_seen) => self.last_seen = Some(last_seen),
            ToInit::Beat => self.tell(ToElector::Beat),
            ToInit::Done => {
                let leads = self.leads();
                // A live term may be between two runs of its workload.
                self.held.take_if(|held| !leads && !held.is_live());
                if let Some(ending) = &mut self.ending {
                    ending.done();
                }
            }
            ToInit::Failed { code, message } => {
                self.actions.push_back(Action::LastWords(message));
                self.failed = Some(code);
            }
        }
    }

    pub(super) fn lead(&mut self, term: Term, facts: Facts, timing: Timing, confirmed: Confirmed, now: Instant) {
        let free = self.held.as_ref().is_none_or(|held| held.is_answered() && !self.workload.leads());
        if term <= self.last_term || !free {
            self.breach(format_args!("began a term while another one is not over"), now);
            return;
        }
        let Some(held) = Held::new(term, facts, timing, confirmed, now) else {
            self.breach(format_args!("began a term that is valid for longer than its Lease"), now);
            return;
        };
        self.last_term = term;
        self.held = Some(held);
        self.workload.begin_term();
        self.tell(ToElector::Acknowledged { term, serial: 0 });
        if self.ending.is_some() {
            self.begin_stop(Reason::Signal, now);
        }
    }

    /// Every elector was handed D, rho, G and killMargin by this init (law 1). Only a creation wait lengthens D (law 14).
    fn are_own_constants(&self, timing: Timing, waits: bool) -> bool {
        let own = self.settings.config.timing();
        timing.with_duration(own.duration) == own && (waits || timing.duration <= own.duration)
    }

    pub(super) fn held(&mut self, term: Term) -> Option<&mut Held> {
        self.held.as_mut().filter(|held| held.term == term)
    }

    /// The elector broke the protocol. It is replaced; what it said is not acted on.
    pub(super) fn breach(&mut self, what: std::fmt::Arguments<'_>, now: Instant) {
        self.warn(format!("the elector {what}"));
        self.give_elector_up(now);
    }

    pub(super) fn give_elector_up(&mut self, now: Instant) {
        if self.electors.give_up(now) {
            self.actions.push_back(Action::KillElector);
        }
    }
}
