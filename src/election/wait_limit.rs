//! The limit of the wait for a live holder (`lock --try`, `lock --timeout`, `task --once`).
//!
//! Owns the decision to give up; where electors keep ending, init gives up by itself. The wall clock only tells whether a longer wait is
//! worth while. When the Lease is taken, the law decides (11, 14).

use std::time::Duration;

use super::{
    AcquireReason, Event,
    core::{Core, One},
    lease::Lease,
    names::NOBODY,
    observation::Eligibility,
    record::{LeaseRecord, LeaseState},
};
use crate::{
    config::{self, Preset, duration},
    exit,
    request::{Operation, RequestError},
    slot::Slot,
    time::{Instant, Now},
};

/// The exit code, and why, on one line.
pub(crate) type GivenUp = (u8, String);

/// The limit of the wait for a live holder.
#[derive(Clone, Debug, Hash)]
pub(crate) struct WaitLimit {
    until: Instant,
    /// As long as nothing was read: a run that is due is not lost with one answer.
    unread_until: Instant,
    code: u8,
    /// The limit has passed, and was acted on.
    is_over: bool,
    /// The Lease is waited for no longer.
    pub(super) has_given_up: bool,
    /// The number of changes when the Lease looked abandoned. If it has changed since then, its holder is alive.
    watched: Option<u64>,
    /// The number of changes at which the Lease could be taken but was not, and since when.
    in_vain: Option<(u64, Instant)>,
}

impl WaitLimit {
    /// The limit of this preset, with as much patience for a task as for a write that cannot be made: D.
    pub(crate) fn of(preset: &Preset, duration: Duration, began: Instant) -> Option<Self> {
        let config::WaitLimit { limit, code } = preset.wait_limit()?;
        let until = began + limit;
        let unread_until = if preset.task().is_some() { until + duration } else { until };
        Some(Self { until, unread_until, code, is_over: false, has_given_up: false, watched: None, in_vain: None })
    }

    /// Returns when the limit passes, unless that was acted on.
    pub(crate) fn due(&self) -> Option<Instant> {
        (!self.is_over).then_some(self.until)
    }
}

impl Core {
    /// Gives up if the limit has passed for every Lease, or for the one whose last write is not settled; returns why. Called only
    /// while no answer is awaited.
    pub(crate) fn give_up(&mut self, unsettled: Option<Slot>, now: Now) -> Option<GivenUp> {
        for slot in (0..self.count()).map(Slot) {
            let given_up = self.one(slot).give_up(unsettled == Some(slot), now);
            let is_last = unsettled == Some(slot) || self.leases.iter().all(Lease::has_given_up);
            if given_up.is_some() && is_last {
                return given_up;
            }
        }
        None
    }
}

impl One<'_> {
    /// Gives this Lease up if the limit has passed.
    fn give_up(&mut self, is_unsettled: bool, now: Now) -> Option<GivenUp> {
        let limit = self.lease.wait_limit.take_if(|limit| limit.until <= now.boot && !limit.has_given_up)?;
        let mut limit = WaitLimit { is_over: true, ..limit };
        let given_up = self.judge(&mut limit, is_unsettled, now);
        limit.has_given_up = given_up.is_some();
        self.lease.wait_limit = Some(limit);
        given_up
    }

    fn judge(&mut self, wait_limit: &mut WaitLimit, is_unsettled: bool, now: Now) -> Option<GivenUp> {
        let seen = &self.lease.eligibility();
        let changes = self.lease.observation.changes();
        let was_tried = wait_limit.in_vain.is_some_and(|(of, _)| of == changes);
        // A write that was denied before the Lease changed may be granted now.
        let write = match seen {
            Eligibility::Vacant { from: None, .. } => Some(Operation::Create),
            Eligibility::Vacant { from: Some(_), .. } | Eligibility::Open { .. } if was_tried => Some(Operation::Update),
            Eligibility::Unknown | Eligibility::Closed | Eligibility::Vacant { .. } | Eligibility::Open { .. } => None,
        };
        let (at, why) = match seen {
            Eligibility::Unknown => {
                let has_failed = now.boot < self.reader.retry_at();
                let is_forbidden = || self.common.failure(write).is_some_and(RequestError::is_forbidden);
                let is_vain = wait_limit.unread_until <= now.boot || is_forbidden();
                return (has_failed && is_vain).then(|| self.unavailable(write, now));
            }
            _ if is_unsettled => (now.boot, None),
            _ if self.common.failure(write).is_some_and(RequestError::is_forbidden) => return Some(self.unavailable(write, now)),
            Eligibility::Closed => return Some((wait_limit.code, self.not_acquired(None, now))),
            Eligibility::Vacant { .. } => (now.boot, None),
            // If renewTime is far in the future, the due time is wrong. Only a wait can tell whether the holder is alive.
            Eligibility::Open { due, why: AcquireReason::Due, from, .. }
                if now.boot < *due && from.ahead(now.wall) <= due.since(now.boot) =>
            {
                let left = Duration::from_secs(due.since(now.boot).as_secs());
                let message = format!("not due: {}; the next run is due in {}", last_run(from), duration::format(left));
                return Some((wait_limit.code, message));
            }
            // Only its own stagger and priority delay the run.
            Eligibility::Open { at, due, why: AcquireReason::Due, .. } if *due <= now.boot && now.boot < *at => return None,
            Eligibility::Open { at, why, .. } => (*at, Some(*why)),
        };
        if at <= now.boot {
            let since = wait_limit.in_vain.filter(|(of, _)| *of == changes).map_or(now.boot, |(_, since)| since);
            wait_limit.in_vain = Some((changes, since));
            return (now.boot >= since + self.common.timing.duration).then(|| self.unavailable(write, now));
        }
        let unknown = self.common.timing.duration;
        let looks_alive = |record: &LeaseRecord| record.looks_alive(unknown, now.wall);
        let lives = match wait_limit.watched {
            None => self.lease.observation.record().is_some_and(looks_alive),
            Some(watched) => watched != changes,
        };
        if why == Some(AcquireReason::Expired) && lives {
            return Some((wait_limit.code, self.not_acquired(None, now)));
        }
        if wait_limit.watched.replace(changes).is_none() {
            let wait = duration::measured(at.since(now.boot));
            let message = match why {
                None | Some(AcquireReason::Expired | AcquireReason::Due) => format!(
                    "the Lease looks abandoned, which only watching it can tell: unless somebody renews it, it is taken in {wait}"
                ),
                Some(AcquireReason::Released | AcquireReason::Died | AcquireReason::Nobody | AcquireReason::Cleared) => {
                    format!("nobody holds the Lease: unless somebody takes it, it is taken in {wait}")
                }
            };
            self.common.report(Event::Odd { message });
        }
        None
    }

    /// Returns the exit code and the words for a Lease that cannot be read, or could be taken but was not.
    fn unavailable(&self, write: Option<Operation>, now: Now) -> GivenUp {
        let why = self.common.failure(write);
        let code = if why.is_some_and(RequestError::is_denied) { exit::NOT_PERMITTED } else { exit::UNAVAILABLE };
        (code, self.not_acquired(Some(why.map_or_else(|| "it keeps changing".into(), RequestError::to_string)), now))
    }

    fn not_acquired(&self, why: Option<String>, now: Now) -> String {
        let record = self.lease.observation.record();
        let held = record.and_then(|record| {
            let (holder, since) = (record.holder()?, began(record));
            let age = record.age(now.wall).map_or_else(
                || "never".into(),
                |age| {
                    let seconds = u64::try_from(age / 1_000_000).unwrap_or_default();
                    format!("{} ago", duration::format(Duration::from_secs(seconds)))
                },
            );
            let rests = record.state() == LeaseState::Resting;
            Some(if rests { last_run(record) } else { format!("it is held by {holder} since {since}, renewed {age}") })
        });
        let odd = record.and_then(|record| record.warning(Some(&self.common.writer.identity))).map(str::to_owned);
        let parts: Vec<_> = [why, held, odd].into_iter().flatten().collect();
        format!("the Lease {} was not acquired: {}", self.common.config.lease.name_of(self.lease.slot), parts.join("; "))
    }
}

fn began(record: &LeaseRecord) -> &str {
    record.acquire_time().unwrap_or("a time unknown")
}

fn last_run(record: &LeaseRecord) -> String {
    match record.holder() {
        Some(holder) if holder != NOBODY => format!("the last run began at {}, by {holder}", began(record)),
        Some(_) | None => "the Lease names no run".into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_lease_that_is_given_back_or_nobodys_names_no_run() {
        let of = |holder: &str| {
            let metadata = json!({"name": "a", "uid": "u", "resourceVersion": "1"});
            let spec = json!({"holderIdentity": holder, "acquireTime": "2027-01-15T07:45:00.000000Z"});
            last_run(&LeaseRecord::read(json!({"metadata": metadata, "spec": spec}).into()).unwrap())
        };

        assert_eq!([of(""), of(NOBODY)], ["the Lease names no run", "the Lease names no run"]);
        assert_eq!(of("a_1"), "the last run began at 2027-01-15T07:45:00.000000Z, by a_1");
    }
}
