//! The phase in which the Lease is given back, after the proof that the workload is gone.
//!
//! Owns the release (law 8). Before its first byte E is void in init. Then one compare-and-swap clears the version that the term
//! last knew as its own. Only after a 409 or without an answer the Lease is read, and written again if it is still this term's.
//! Retries come no faster than a leader's, and end after two attempt timeouts. A Lease that is to be deleted is first cleared,
//! and left to the others for a while. Never writes to another's Lease, never creates one.
//!
//! When it is over, `One::leave` tells init that the term has ended, and the elector follows again, or has nothing left to do.

use std::time::Duration;

use super::{
    Event, ReleaseResult,
    asked::{Asked, NOT_WHAT_WAS_SENT, Verdict},
    core::One,
    reader::Reader,
    record::{LeaseRecord, LeaseState},
    task::Rest,
    trace::TraceContext,
    writes::{FIRE, LeaseWrite, STEP_DOWN_TO},
};
use crate::{
    config::Release,
    link::{Term, TermInfo, Then, ToElector, ToInit},
    request::{Answer, Refusal},
    slot::Slot,
    time::{Instant, Now},
};

#[derive(Clone, Debug, Hash)]
pub(crate) struct Releasing {
    pub(super) term: Term,
    pub(super) info: TermInfo,
    /// The next serial of the link.
    pub(super) serial: u64,
    /// The span of the stop.
    pub(super) context: TraceContext,
    pub(super) then: Then,
    /// The rest after the run of a task.
    pub(super) rest: Option<Rest>,
    pub(super) step: ReleaseStep,
    /// Gives up then: the followers wait for D.
    pub(super) until: Instant,
    pub(super) due: Instant,
    /// A release may have been sent, perhaps by a previous elector, and may be stored.
    pub(super) is_unknown: bool,
    /// The first conflict is usually this replica's own late renewal, and is retried at once. Later ones are retried after a
    /// pause.
    pub(super) has_conflicted: bool,
}

#[derive(Clone, Debug, Hash)]
pub(super) enum ReleaseStep {
    /// Waits until init has voided E. Then clears this version, which was last known as the term's.
    Void(Option<LeaseRecord>),
    Clear(LeaseRecord),
    /// Cleared, perhaps: the answer or a read tells.
    Settle,
    Delete(LeaseRecord),
}

impl Releasing {
    /// Returns the slot of the Lease.
    pub(crate) const fn slot(&self) -> Slot {
        self.info.slot
    }

    /// Begins `releasing` with the version that the term last proved, or saw as its own.
    pub(crate) fn begin(one: &mut One<'_>, mut releasing: Self, base: Option<LeaseRecord>) -> Self {
        // The answer to a read of the leader could come before the acknowledgement of init.
        one.reader.forgo_answer();
        one.common.tell(ToInit::Releasing { term: releasing.term, serial: releasing.serial });
        let base = base.filter(|record| releasing.is_this_terms(one, record));
        releasing.step = ReleaseStep::Void(base);
        releasing
    }

    pub(crate) fn tick(&mut self, one: &mut One<'_>, now: Now) -> Option<Then> {
        if now.boot >= self.until {
            one.reader.forgo_answer();
            let how = if matches!(self.step, ReleaseStep::Delete(_)) { ReleaseResult::Clear } else { ReleaseResult::Unknown };
            return Some(self.done(one, how, now));
        }
        if one.reader.is_awaiting() || now.boot < self.due {
            return None;
        }
        match &self.step {
            ReleaseStep::Void(_) => {}
            ReleaseStep::Clear(record) => {
                let time = one.common.next_time(now, record.renew_time());
                let write = match self.rest.and_then(|rest| rest.left(now)) {
                    Some(left) => one.common.writer.rest(record, left, &time, self.context),
                    None => one.common.writer.release(record, &time, self.context),
                };
                self.step = ReleaseStep::Settle;
                one.write(write, None, now);
            }
            ReleaseStep::Settle => one.get(now),
            ReleaseStep::Delete(record) => one.write(LeaseWrite::delete(record), None, now),
        }
        None
    }

    pub(crate) fn timeout(&self, reader: &Reader) -> Instant {
        let waits = reader.is_awaiting() || matches!(self.step, ReleaseStep::Void(_));
        if waits { self.until } else { self.due.min(self.until) }
    }

    pub(crate) fn told(&mut self, message: &ToElector) {
        if let (ToElector::Acknowledged { term, serial }, ReleaseStep::Void(base)) = (message, &mut self.step)
            && (*term, *serial) == (self.term, self.serial)
        {
            self.step = base.take().map_or(ReleaseStep::Settle, ReleaseStep::Clear);
        }
    }

    pub(crate) fn watched(&mut self, one: &One<'_>, now: Now) {
        // Another replica has taken the Lease, so the deletion need not wait: it will meet a conflict.
        if let ReleaseStep::Delete(record) = &self.step
            && one.lease.observation.is_past(record)
        {
            self.due = self.due.min(now.boot);
        }
    }

    pub(crate) fn answered(&mut self, one: &mut One<'_>, asked: &Asked, answer: Answer, now: Now) -> Option<Then> {
        let sent = asked.sent;
        let verdict = asked.judge(answer);
        let may_be_stored = matches!(verdict, Verdict::Proved(..) | Verdict::Other(..) | Verdict::Open(..));
        self.is_unknown |= asked.attempt.is_some() && may_be_stored;
        let (message, retry_after) = match verdict {
            Verdict::Read(record) => return self.read(one, record, now),
            Verdict::Proved(record, _) => return self.cleared(one, record, now),
            Verdict::Deleted => return Some(self.done(one, ReleaseResult::Delete, now)),
            Verdict::Absent => {
                one.observed_absence(now);
                let how =
                    if matches!(self.step, ReleaseStep::Delete(_)) { ReleaseResult::Delete } else { ReleaseResult::NotOurs };
                return Some(self.done(one, how, now));
            }
            Verdict::Conflict => {
                match self.step {
                    ReleaseStep::Delete(_) => return Some(self.done(one, ReleaseResult::Clear, now)),
                    ReleaseStep::Void(_) | ReleaseStep::Clear(_) | ReleaseStep::Settle
                        if std::mem::replace(&mut self.has_conflicted, true) =>
                    {
                        self.retry(one, sent, None, now);
                    }
                    ReleaseStep::Void(_) | ReleaseStep::Clear(_) | ReleaseStep::Settle => self.due = now.boot,
                }
                return None;
            }
            // The Lease is free already, and a Role without `delete` will not gain it.
            Verdict::Refused(Refusal::Forbidden, message) if matches!(self.step, ReleaseStep::Delete(_)) => {
                one.common.report_failure(asked.operation, sent, message);
                return Some(self.done(one, ReleaseResult::Clear, now));
            }
            Verdict::Refused(Refusal::Unauthorized, message) if one.reader.note_refused_credentials() => {
                one.common.report_failure(asked.operation, sent, message);
                self.due = now.boot;
                return None;
            }
            Verdict::Refused(refusal, message) => (message, refusal.retry_after()),
            Verdict::Other(..) => (NOT_WHAT_WAS_SENT.into(), None),
            Verdict::Open(message, retry_after) => (message, retry_after),
        };
        one.common.report_failure(asked.operation, sent, message);
        self.retry(one, sent, retry_after, now);
        None
    }

    /// Takes in a quorum read. The Lease is still this term's, or cleared by a write whose answer was lost, or another's.
    fn read(&mut self, one: &mut One<'_>, record: LeaseRecord, now: Now) -> Option<Then> {
        one.observed(record.clone(), now);
        if self.is_this_terms(one, &record) {
            if record.state() == LeaseState::Resting {
                return self.cleared(one, record, now);
            }
            self.step = ReleaseStep::Clear(record);
            None
        } else if self.is_unknown && self.is_of_this_term(&record) && record.holder().is_none() {
            self.cleared(one, record, now)
        } else {
            Some(self.done(one, ReleaseResult::NotOurs, now))
        }
    }

    fn cleared(&mut self, one: &mut One<'_>, record: LeaseRecord, now: Now) -> Option<Then> {
        one.observed(record.clone(), now);
        if record.state() == LeaseState::Resting {
            return Some(self.done(one, ReleaseResult::Rest, now));
        }
        // If this replica follows, or a candidate is named, one of them may take the Lease. After a deletion they would have to
        // wait (law 14).
        let is_wanted = self.then == Then::Follow || record.annotation(STEP_DOWN_TO).is_some();
        match one.common.config.lease.release {
            // With it, the fires that are due would be lost.
            Release::Delete if !is_wanted && !record.is_kept() && record.annotation(FIRE).is_none() => {
                self.step = ReleaseStep::Delete(record);
                self.due = now.boot + one.common.config.deletion_wait();
                self.until = self.due + one.common.timing.attempt_timeout;
                None
            }
            Release::Clear | Release::Delete | Release::Keep => Some(self.done(one, ReleaseResult::Clear, now)),
        }
    }

    /// Returns true if holder, uid, acquireTime and leaseTransitions are those of the term (law 8).
    fn is_this_terms(&self, one: &One<'_>, record: &LeaseRecord) -> bool {
        self.is_of_this_term(record)
            && record.is_held_by(&one.common.writer.identity)
            && record.acquire_time() == Some(self.info.acquired_at.as_str())
    }

    /// Returns true if no replica has acquired the Lease since this term did.
    fn is_of_this_term(&self, record: &LeaseRecord) -> bool {
        record.uid() == self.info.uid && record.transitions() == self.info.transitions
    }

    fn retry(&mut self, one: &mut One<'_>, sent: Instant, retry_after: Option<Duration>, now: Now) {
        self.due = one.common.leader_retry(sent, retry_after, self.until, now);
    }

    fn done(&self, one: &mut One<'_>, how: ReleaseResult, now: Now) -> Then {
        one.common.report(Event::Released(how));
        let backoff = match (self.rest, how) {
            (None, _) => Some(one.common.timing.takeable(now.boot, one.common.timing.duration)),
            // A replica that has done its run need not let the others go first.
            (Some(_), ReleaseResult::Rest) => None,
            // The Lease may not say that the run was done.
            (Some(rest), _) => rest.left(now).map(|left| now.boot + left),
        };
        one.leave(self.term, self.then, backoff)
    }
}
