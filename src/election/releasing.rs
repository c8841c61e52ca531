//! A phase of the election: the workload is proved gone, the Lease is given back.
//!
//! Owns the release (law 8): E is void in init before the first byte, the Lease is read afresh and must still be this term's, and
//! the write that clears it is retried until it is known to have succeeded, within two attempt timeouts and no faster than a
//! leader retries. Never writes to another's Lease, never creates one. The read may have been sent while the workload was still
//! ending: the write carries the version that it found, so nothing can have changed in between.

use std::time::Duration;

use super::{
    Answer, Event, Given, Refusal, Watched,
    core::{Asked, Core},
    elector::Phase,
    following::{Following, NOT_WHAT_WAS_SENT, UNREADABLE},
    leading::{Leading, leave},
    record::LeaseRecord,
    trace::TraceContext,
};
use crate::{
    config::Release,
    link::{Facts, Term, Then, ToElector, ToInit},
    time::{Instant, Now},
};

#[derive(Clone, Debug)]
pub(crate) struct Releasing {
    term: Term,
    facts: Facts,
    serial: u64,
    context: TraceContext,
    then: Then,
    step: Step,
    /// What was read since the stop began.
    fresh: Option<LeaseRecord>,
    /// Whatever is not done by then stays undone: the followers wait out D.
    until: Instant,
    due: Instant,
    /// A release may have been sent, and its outcome is unknown.
    unknown: bool,
    /// The first conflict is usually this replica's own late renewal and is retried at once; later ones are paced.
    conflicted: bool,
}

#[derive(Clone, Debug)]
enum Step {
    /// Until init has voided E.
    Void,
    Read,
    Clear,
    Delete(Box<LeaseRecord>),
}

impl Releasing {
    pub(crate) fn begin(
        core: &mut Core,
        leading: &Leading,
        context: TraceContext,
        proved: Instant,
        then: Then,
        now: Now,
    ) -> Self {
        let serial = leading.next_serial();
        core.tell(ToInit::Releasing { term: leading.term, serial });
        Self {
            term: leading.term,
            facts: leading.facts.clone(),
            serial,
            context,
            then,
            step: Step::Void,
            fresh: leading.fresh(),
            until: proved + core.timing.release_limit(),
            due: now.boot,
            unknown: leading.released,
            conflicted: false,
        }
    }

    pub(crate) fn tick(&mut self, core: &mut Core, now: Now) -> Option<Phase> {
        if now.boot >= self.until {
            core.forgo_answer();
            let how = if matches!(self.step, Step::Delete(_)) { Given::Clear } else { Given::Unknown };
            return Some(self.done(core, how, now));
        }
        if core.is_awaiting() || now.boot < self.due {
            return None;
        }
        match &self.step {
            Step::Void => {}
            Step::Read | Step::Clear => match self.fresh.take() {
                Some(record) => return self.read(core, record, now),
                None => core.get(now),
            },
            Step::Delete(record) => core.delete(record, now),
        }
        None
    }

    pub(crate) fn timeout(&self, core: &Core) -> Option<Instant> {
        match self.step {
            Step::Read | Step::Clear | Step::Delete(_) if !core.is_awaiting() => Some(self.due.min(self.until)),
            Step::Void | Step::Read | Step::Clear | Step::Delete(_) => Some(self.until),
        }
    }

    pub(crate) fn told(&mut self, message: &ToElector) {
        if let ToElector::Acknowledged { term, serial } = message
            && (*term, *serial) == (self.term, self.serial)
            && matches!(self.step, Step::Void)
        {
            self.step = Step::Read;
        }
    }

    pub(crate) fn watched(&mut self, core: &mut Core, watched: Watched, now: Now) {
        if core.watched(watched, now).is_some() {
            self.fresh = None;
        }
    }

    pub(crate) fn answered(&mut self, core: &mut Core, asked: Asked, answer: Answer, now: Now) -> Option<Phase> {
        match (asked.attempt, answer) {
            (None, Answer::Object(object)) => match LeaseRecord::read(object) {
                Some(record) => self.fresh = Some(record),
                None => {
                    core.report_failure(asked.operation, asked.sent, UNREADABLE.into());
                    self.retry(core, asked.sent, None, now);
                }
            },
            (Some(attempt), Answer::Object(object)) => match LeaseRecord::read(object) {
                Some(record) if attempt.is_proved_by(&record) => return self.cleared(core, record, now),
                Some(_) | None => {
                    core.report_failure(asked.operation, asked.sent, NOT_WHAT_WAS_SENT.into());
                    self.retry_unknown(core, asked.sent, None, now);
                }
            },
            (None, Answer::Deleted) => return Some(self.done(core, Given::Delete, now)),
            (_, Answer::NotFound) => {
                core.saw_absence(now);
                let how = if matches!(self.step, Step::Delete(_)) { Given::Delete } else { Given::NotOurs };
                return Some(self.done(core, how, now));
            }
            (_, Answer::Conflict) => match self.step {
                Step::Delete(_) => return Some(self.done(core, Given::Clear, now)),
                Step::Void | Step::Read | Step::Clear if std::mem::replace(&mut self.conflicted, true) => {
                    self.retry(core, asked.sent, None, now);
                }
                Step::Void | Step::Read | Step::Clear => self.due = now.boot,
            },
            (_, Answer::Refused { refusal, message }) => {
                core.report_failure(asked.operation, asked.sent, message);
                // It is free already, and a Role without `delete` will not gain it.
                if matches!((&self.step, &refusal), (Step::Delete(_), Refusal::Forbidden)) {
                    return Some(self.done(core, Given::Clear, now));
                }
                if refusal == Refusal::Unauthorized && core.are_first_refused() {
                    self.due = now.boot;
                } else {
                    self.retry(core, asked.sent, refusal.retry_after(), now);
                }
            }
            (None, Answer::Unknown { message, retry_after }) => {
                core.report_failure(asked.operation, asked.sent, message);
                self.retry(core, asked.sent, retry_after, now);
            }
            (Some(_), Answer::Unknown { message, retry_after }) => {
                core.report_failure(asked.operation, asked.sent, message);
                self.retry_unknown(core, asked.sent, retry_after, now);
            }
            (Some(_), Answer::Deleted) => {
                core.report_failure(asked.operation, asked.sent, NOT_WHAT_WAS_SENT.into());
                self.retry_unknown(core, asked.sent, None, now);
            }
        }
        None
    }

    /// The fresh read: this term's to clear, already cleared by a write whose answer was lost, or another's.
    fn read(&mut self, core: &mut Core, record: LeaseRecord, now: Now) -> Option<Phase> {
        core.saw(record.clone(), now);
        if !self.is_this_terms(core, &record) {
            let cleared = self.unknown && self.is_of_this_term(&record) && record.holder().is_none();
            return if cleared { self.cleared(core, record, now) } else { Some(self.done(core, Given::NotOurs, now)) };
        }
        let time = core.next_time(now, record.renew_time());
        let object = core.author.release(&record, &time, self.context);
        self.step = Step::Clear;
        core.replace(object, None, now);
        None
    }

    fn cleared(&mut self, core: &mut Core, record: LeaseRecord, now: Now) -> Option<Phase> {
        core.saw(record.clone(), now);
        match core.release {
            Release::Delete => {
                self.step = Step::Delete(Box::new(record));
                self.due = now.boot;
                None
            }
            Release::Clear | Release::Keep => Some(self.done(core, Given::Clear, now)),
        }
    }

    /// Holder, uid, acquireTime and leaseTransitions are those of the term (law 8).
    fn is_this_terms(&self, core: &Core, record: &LeaseRecord) -> bool {
        self.is_of_this_term(record)
            && record.is_held_by(&core.author.identity)
            && record.acquire_time() == Some(self.facts.acquired_at.as_str())
    }

    /// Nobody has acquired the Lease since this term did.
    fn is_of_this_term(&self, record: &LeaseRecord) -> bool {
        record.uid() == self.facts.uid && record.transitions() == self.facts.transitions
    }

    fn retry(&mut self, core: &mut Core, sent: Instant, retry_after: Option<Duration>, now: Now) {
        self.due = core.leader_retry(sent, retry_after, self.until, now);
    }

    fn retry_unknown(&mut self, core: &mut Core, sent: Instant, retry_after: Option<Duration>, now: Now) {
        self.unknown = true;
        self.retry(core, sent, retry_after, now);
    }

    fn done(&self, core: &mut Core, how: Given, now: Now) -> Phase {
        core.report(Event::Released { how });
        leave(core, self.term, self.then, Following::after_release(core.timing, now))
    }
}
