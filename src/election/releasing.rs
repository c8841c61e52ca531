//! A phase of the election: the workload is proved gone, the Lease is given back.
//!
//! Owns the release (law 8): E is void in init before the first byte; then the version that the term last knew as its own is
//! cleared by compare-and-swap. Only after a 409 or without an answer the Lease is read, and written again where it is still this
//! term's: until the release is known to have succeeded, within two attempt timeouts, and no faster than a leader retries. Never
//! writes to another's Lease, never creates one.

use std::time::Duration;

use super::{
    Answer, Refusal, ReleaseResult, Watched,
    core::{Asked, Core},
    elector::Next,
    following::{NOT_WHAT_WAS_SENT, UNREADABLE},
    record::{LeaseRecord, LeaseState},
    trace::TraceContext,
    writes::micros,
};
use crate::{
    config::Release,
    link::{Term, TermInfo, Then, ToElector, ToInit},
    time::{Instant, Now},
};

#[derive(Clone, Debug)]
pub(crate) struct Releasing {
    pub(super) term: Term,
    pub(super) info: TermInfo,
    /// The next one of the link.
    pub(super) serial: u64,
    /// The span of the stop.
    pub(super) context: TraceContext,
    pub(super) then: Then,
    /// The interval of a task that ran: the Lease rests until it is over.
    pub(super) interval: Option<Duration>,
    pub(super) step: Step,
    /// Whatever is not done by then stays undone: the followers wait out D.
    pub(super) until: Instant,
    pub(super) due: Instant,
    /// A release may have been sent, perhaps by a previous elector, and its outcome is unknown.
    pub(super) is_unknown: bool,
    /// The first conflict is usually this replica's own late renewal and is retried at once; later ones are paced.
    pub(super) has_conflicted: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Until init has voided E; then the version that was last known as this term's is cleared.
    Void(Option<LeaseRecord>),
    Clear(LeaseRecord),
    /// Cleared, perhaps: the answer tells, or a read.
    Settle,
    Delete(LeaseRecord),
}

impl Releasing {
    /// Begins `releasing` with the version that the term last proved, or saw as its own.
    pub(crate) fn begin(core: &mut Core, mut releasing: Self, base: Option<LeaseRecord>) -> Self {
        // A read that the leader sent: its answer would come before init's.
        core.requests.forgo_answer();
        core.tell(ToInit::Releasing { term: releasing.term, serial: releasing.serial });
        let base = base.filter(|record| releasing.is_this_terms(core, record));
        releasing.step = Step::Void(base);
        releasing
    }

    pub(crate) fn tick(&mut self, core: &mut Core, now: Now) -> Option<Next> {
        if now.boot >= self.until {
            core.requests.forgo_answer();
            let how = if matches!(self.step, Step::Delete(_)) { ReleaseResult::Clear } else { ReleaseResult::Unknown };
            return Some(self.done(core, how, now));
        }
        if core.requests.is_awaiting() || now.boot < self.due {
            return None;
        }
        match &self.step {
            Step::Void(_) => {}
            Step::Clear(record) => {
                let time = core.next_time(now, record.renew_time());
                let object = match self.left(now) {
                    Some(left) => core.writer.rest(record, left, &time, self.context),
                    None => core.writer.release(record, &time, self.context),
                };
                self.step = Step::Settle;
                core.replace(object, None, now);
            }
            Step::Settle => core.get(now),
            Step::Delete(record) => core.delete(record, now),
        }
        None
    }

    pub(crate) fn timeout(&self, core: &Core) -> Option<Instant> {
        match self.step {
            Step::Clear(_) | Step::Settle | Step::Delete(_) if !core.requests.is_awaiting() => Some(self.due.min(self.until)),
            Step::Void(_) | Step::Clear(_) | Step::Settle | Step::Delete(_) => Some(self.until),
        }
    }

    pub(crate) fn told(&mut self, message: &ToElector) {
        if let (ToElector::Acknowledged { term, serial }, Step::Void(base)) = (message, &mut self.step)
            && (*term, *serial) == (self.term, self.serial)
        {
            self.step = base.take().map_or(Step::Settle, Step::Clear);
        }
    }

    pub(crate) fn watched(&self, core: &mut Core, watched: Watched, now: Now) {
        core.watched(watched, now);
    }

    pub(crate) fn answered(&mut self, core: &mut Core, asked: Asked, answer: Answer, now: Now) -> Option<Next> {
        let Asked { attempt, operation, sent } = asked;
        self.is_unknown |= attempt.is_some() && matches!(answer, Answer::Object(_) | Answer::Unknown { .. } | Answer::Deleted);
        match (attempt, answer) {
            (attempt, Answer::Object(object)) => match (LeaseRecord::read(object), attempt) {
                (Some(record), None) => return self.read(core, record, now),
                (Some(record), Some(attempt)) if attempt.is_proved_by(&record) => return self.cleared(core, record, now),
                (Some(_), Some(_)) => self.failed(core, operation, NOT_WHAT_WAS_SENT, sent, now),
                (None, _) => self.failed(core, operation, UNREADABLE, sent, now),
            },
            (None, Answer::Deleted) => return Some(self.done(core, ReleaseResult::Delete, now)),
            (_, Answer::Listed { .. }) | (Some(_), Answer::Deleted) => self.failed(core, operation, NOT_WHAT_WAS_SENT, sent, now),
            (_, Answer::NotFound) => {
                core.saw_absence(now);
                let how = if matches!(self.step, Step::Delete(_)) { ReleaseResult::Delete } else { ReleaseResult::NotOurs };
                return Some(self.done(core, how, now));
            }
            (_, Answer::Conflict) => match self.step {
                Step::Delete(_) => return Some(self.done(core, ReleaseResult::Clear, now)),
                Step::Void(_) | Step::Clear(_) | Step::Settle if std::mem::replace(&mut self.has_conflicted, true) => {
                    self.retry(core, sent, None, now);
                }
                Step::Void(_) | Step::Clear(_) | Step::Settle => self.due = now.boot,
            },
            (_, Answer::Refused { refusal, message }) => {
                core.report_failure(operation, sent, message);
                // It is free already, and a Role without `delete` will not gain it.
                if matches!((&self.step, &refusal), (Step::Delete(_), Refusal::Forbidden)) {
                    return Some(self.done(core, ReleaseResult::Clear, now));
                }
                if refusal == Refusal::Unauthorized && core.pacing.are_first_refused() {
                    self.due = now.boot;
                } else {
                    self.retry(core, sent, refusal.retry_after(), now);
                }
            }
            (_, Answer::Unknown { message, retry_after }) => {
                core.report_failure(operation, sent, message);
                self.retry(core, sent, retry_after, now);
            }
        }
        None
    }

    /// A quorum read: this term's to clear, already cleared by a write whose answer was lost, or another's.
    fn read(&mut self, core: &mut Core, record: LeaseRecord, now: Now) -> Option<Next> {
        core.saw(record.clone(), now);
        if self.is_this_terms(core, &record) {
            if record.state() == LeaseState::Resting {
                return self.cleared(core, record, now);
            }
            self.step = Step::Clear(record);
            None
        } else if self.is_unknown && self.is_of_this_term(&record) && record.holder().is_none() {
            self.cleared(core, record, now)
        } else {
            Some(self.done(core, ReleaseResult::NotOurs, now))
        }
    }

    fn cleared(&mut self, core: &mut Core, record: LeaseRecord, now: Now) -> Option<Next> {
        core.saw(record.clone(), now);
        if record.state() == LeaseState::Resting {
            return Some(self.done(core, ReleaseResult::Rest, now));
        }
        match core.release {
            Release::Delete => {
                self.step = Step::Delete(record);
                self.due = now.boot;
                None
            }
            Release::Clear | Release::Keep => Some(self.done(core, ReleaseResult::Clear, now)),
        }
    }

    /// What is left of the interval, by the wall clock: it ends at the same time for everybody.
    fn left(&self, now: Now) -> Option<Duration> {
        let passed = now.wall.saturating_sub(micros(&self.info.acquired_at)?);
        let passed = Duration::from_micros(u64::try_from(passed).unwrap_or_default());
        self.interval?.checked_sub(passed).filter(|left| !left.is_zero())
    }

    /// Holder, uid, acquireTime and leaseTransitions are those of the term (law 8).
    fn is_this_terms(&self, core: &Core, record: &LeaseRecord) -> bool {
        self.is_of_this_term(record)
            && record.is_held_by(&core.writer.identity)
            && record.acquire_time() == Some(self.info.acquired_at.as_str())
    }

    /// Nobody has acquired the Lease since this term did.
    fn is_of_this_term(&self, record: &LeaseRecord) -> bool {
        record.uid() == self.info.uid && record.transitions() == self.info.transitions
    }

    fn failed(&mut self, core: &mut Core, operation: super::Operation, message: &str, sent: Instant, now: Now) {
        core.report_failure(operation, sent, message.into());
        self.retry(core, sent, None, now);
    }

    fn retry(&mut self, core: &mut Core, sent: Instant, retry_after: Option<Duration>, now: Now) {
        self.due = core.leader_retry(sent, retry_after, self.until, now);
    }

    fn done(&self, core: &mut Core, how: ReleaseResult, now: Now) -> Next {
        core.recorder.released(how);
        // Whoever has done its run need not let the others go first.
        let backoff = core.timing.takeable(now.boot, core.timing.duration);
        core.leave(self.term, self.then, Some(backoff).filter(|_| self.interval.is_none()))
    }
}
