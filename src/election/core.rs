//! The parts that all phases of an election share: the Leases, the reader, and what is common to all Leases.
//!
//! Owns when a follower tries again after a failure (law 5, 16). A Retry-After is heeded for R, or for a minute where no Lease
//! may be taken. News of the watch ends that wait.
//!
//! An event of the watch goes to the reader (`reader::watch`), which owns the watch itself, then to the Lease (`one`), whose
//! observation takes it in, then to the phase.

use std::time::Duration;

use serde_json::Value;

use super::{
    common::Common,
    lease::Lease,
    observation::{Eligibility, Observation},
    pace::doubled,
    reader::Reader,
    record::{LeaseRecord, metadata_of},
    wait_limit::WaitLimit,
};
use crate::{
    law::RETRY_PAUSE,
    link::{InitialState, LastSeen},
    request::{Operation, Refusal, RequestError, Watched},
    slot::Slot,
    time::{Instant, Now},
};

mod one;

/// The longest Retry-After that is honoured while no Lease was read yet, or none may be taken.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Hash)]
pub(crate) struct Core {
    /// In the order of their slots.
    pub(crate) leases: Vec<Lease>,
    pub(crate) reader: Reader,
    pub(crate) common: Common,
    /// The Lease that is written first among equals. It differs between replicas.
    pub(super) first: u8,
    /// Somebody was seen to hold a slot that this replica does not have.
    pub(super) has_told_of_more: bool,
}

/// One Lease, beside what is common to all.
pub(crate) struct One<'c> {
    pub(crate) lease: &'c mut Lease,
    pub(crate) reader: &'c mut Reader,
    pub(crate) common: &'c mut Common,
}

/// An event of the watch that says something new of a Lease.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum WatchEvent {
    Changed(LeaseRecord),
    Deleted(LeaseRecord),
    /// The watch of several Leases shows this one no longer: it is deleted, or has only lost its label.
    Missing,
}

impl Core {
    pub(crate) fn new(initial: &InitialState, seed: u64, now: Now) -> Self {
        let common = Common::new(initial, seed, now);
        let lease = |slot| {
            let nothing =
                || LastSeen { duration: common.config.lease.duration, held: None, named: false, not_before: Instant::BOOT };
            let last_seen = initial.last_seen.get(&slot).cloned().unwrap_or_else(nothing);
            let (me, trigger) = (initial.identity.clone(), common.trigger.clone());
            let observation = Observation::after(last_seen, me, common.timing, &common.config, trigger);
            Lease::new(slot, observation, WaitLimit::of(&initial.preset, common.timing.duration, initial.began))
        };
        let count = common.config.lease.slots.max(1);
        let hash = initial.identity.bytes().fold(0_u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
        let first = u8::try_from(hash % u64::from(count)).unwrap_or_default();
        let leases = (0..count).map(|slot| lease(Slot(slot))).collect();
        Self { leases, reader: Reader::new(now), common, first, has_told_of_more: false }
    }

    /// Returns the number of Leases.
    pub(crate) fn count(&self) -> u8 {
        self.common.config.lease.slots.max(1)
    }

    pub(crate) fn one(&mut self, slot: Slot) -> One<'_> {
        One { lease: &mut self.leases[usize::from(slot.0)], reader: &mut self.reader, common: &mut self.common }
    }

    /// Returns the slot of a Lease, by its name.
    pub(crate) fn slot_of(&self, object: &Value) -> Option<Slot> {
        if self.count() == 1 {
            return Some(Slot::default());
        }
        let name = metadata_of(object, "name")?.as_str()?;
        self.leases.iter().map(|lease| lease.slot).find(|slot| self.common.config.lease.name_of(*slot) == name)
    }

    /// Takes in an event of the watch. Returns what it says of which Lease.
    pub(crate) fn watched(&mut self, watched: Watched, now: Now) -> Option<(Slot, WatchEvent)> {
        self.reader.watched(&mut self.common, &watched, now);
        let (object, is_there) = match watched {
            Watched::Changed(object) => (object, true),
            Watched::Deleted(object) => (object, false),
            Watched::Bookmark(version) => {
                self.reader.watch.brought(&version);
                return None;
            }
            Watched::Ended(_) => return None,
        };
        let record = LeaseRecord::read(object)?;
        self.reader.watch.brought(record.resource_version());
        if is_there {
            return self.saw(record, now);
        }
        let slot = self.slot_of(record.object())?;
        if self.count() > 1 {
            return Some((slot, WatchEvent::Missing));
        }
        Some((slot, self.one(slot).saw_deleted(record, now)))
    }

    /// Takes in a version that nobody waits for. Returns what it says of which Lease.
    pub(crate) fn saw(&mut self, record: LeaseRecord, now: Now) -> Option<(Slot, WatchEvent)> {
        let slot = self.slot_of(record.object())?;
        Some((slot, self.one(slot).saw(record, now)?))
    }

    /// Returns when a follower reads, if the watch brings nothing.
    pub(crate) fn next_read(&self) -> Instant {
        let period = self.common.timing.renew_period;
        if self.reader.is_wanted() {
            return self.reader.retry_at();
        }
        let next_read = |lease: &Lease| {
            if lease.observation.is_unknown() {
                return self.reader.retry_at();
            }
            self.reader.next_read(lease.heard, lease.observation.quiet(), period)
        };
        let next = || self.leases.iter().map(next_read).min();
        self.reader.next_by_name(period).or_else(next).unwrap_or_default()
    }

    /// Notes that a follower's request was refused. One whose credentials were refused is tried again at once, once.
    pub(crate) fn refused(&mut self, operation: Operation, refusal: Refusal, message: RequestError, now: Now) {
        if refusal != Refusal::Unauthorized || !self.reader.note_refused_credentials() {
            return self.failed(operation, message, refusal.retry_after(), now);
        }
        self.reader.retry_now(now.boot);
        self.common.report_failure(operation, now.boot, message);
    }

    /// Notes a failed request, and when a follower tries again. If a Lease may be taken, now or later, a Retry-After delays it by R
    /// at most: a renewal must be observed within R to keep the takeover in time (law 16).
    pub(crate) fn failed(&mut self, operation: Operation, message: RequestError, retry_after: Option<Duration>, now: Now) {
        let period = self.common.timing.renew_period;
        let pause = doubled(RETRY_PAUSE, self.reader.retry.times, period.max(RETRY_PAUSE));
        let soon = now.boot + self.common.jittered(pause).min(period);
        let may_be_taken = |lease: &Lease| match lease.observation.eligibility(None) {
            Eligibility::Open { .. } | Eligibility::Vacant { .. } => true,
            Eligibility::Unknown | Eligibility::Closed => false,
        };
        let longest = if self.leases.iter().any(may_be_taken) { period } else { LONGEST_PAUSE };
        self.reader.failed(soon.max(now.boot + retry_after.unwrap_or_default().min(longest)));
        if operation == Operation::Get && self.count() > 1 {
            // A list comes first, after about that pause: together they keep the pace of one Lease.
            self.reader.failed_by_name(now.boot + period.saturating_sub(RETRY_PAUSE));
        }
        self.common.report_failure(operation, now.boot, message);
    }
}
