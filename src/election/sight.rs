//! What a follower has seen of the Lease, and when it may take it.
//!
//! Owns law 11, 13, 14 and 17 for the follower: the unbroken observation of one (uid, spec), the wait for the record's own
//! duration, who may still run although the record no longer names it, what is free, and what must not be taken although it is
//! free. No time in the record is compared with a clock.

use std::time::Duration;

use super::{
    Vacancy,
    record::{LeaseRecord, Standing, later},
    writes::{HOLDER, STEP_DOWN, STEP_DOWN_TO},
};
use crate::{config::OnStrategy, law::Timing, link::LastSeen, time::Instant};

/// What was last seen of the Lease.
#[derive(Clone, Debug)]
pub(crate) struct Sight {
    me: String,
    timing: Timing,
    /// If the user has set it.
    creation_wait: Option<Duration>,
    seen: Seen,
    /// That of the Lease last seen, even if it is gone: watch events must be later.
    version: Option<String>,
    /// o: since when (uid, spec) has been unchanged, or the Lease absent.
    since: Instant,
    /// The duration of the last held record that had one, or a longer one in a free record after it: "last seen D". D, if there was
    /// none.
    last_duration: Duration,
    /// The last held record had a duration of one second: a release mark after it proves nothing (law 14).
    held_for_a_second: bool,
    robbed: Option<Robbed>,
    /// Until when holders may run that lost the Lease without giving it back, whoever has held it since.
    displaced_until: Option<Instant>,
}

/// A tenure that lost the Lease to somebody who did not wait for it, as client-go's late release lets the next client-go do.
#[derive(Clone, Debug)]
struct Robbed {
    reign: Reign,
    /// The longest duration seen of a holder before.
    duration: Duration,
}

/// One period in which somebody, or nobody, holds a Lease that bears the mark of another.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reign {
    marked: String,
    holder: Option<String>,
    transitions: i32,
    acquired: Option<String>,
}

#[derive(Clone, Debug)]
enum Seen {
    Nothing {
        /// uid of the Lease that an earlier elector has last seen, held.
        held: Option<String>,
    },
    Absent {
        /// The candidate of the step-down request on the Lease that is gone.
        promised: Option<String>,
    },
    Lease(LeaseRecord),
}

/// What may be done about the Lease.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Prospect {
    /// Nothing has been seen yet.
    Unknown,
    /// Not until something changes: it is paused, being deleted, or its coordinator's to give.
    Closed,
    /// It may be taken at `at`.
    Open {
        /// When.
        at: Instant,
        /// Why it is free.
        why: Vacancy,
        /// The record to replace; none: there is no Lease.
        from: Option<Box<LeaseRecord>>,
        /// How long the workload waits after the acquisition; none: it runs at once (law 14).
        wait: Option<Duration>,
    },
}

impl Sight {
    /// Nothing has been seen of the Lease by this elector, but what counts of what earlier ones saw.
    pub(crate) fn after(last_seen: LastSeen, me: String, timing: Timing, creation_wait: Option<Duration>) -> Self {
        let LastSeen { duration, held, displaced_until } = last_seen;
        Self {
            me,
            timing,
            creation_wait,
            seen: Seen::Nothing { held },
            version: None,
            since: Instant::BOOT,
            last_duration: duration,
            held_for_a_second: duration == Duration::from_secs(1),
            robbed: None,
            displaced_until,
        }
    }

    /// What counts of what was seen for the next elector, which may find the Lease gone.
    pub(crate) fn last_seen(&self) -> LastSeen {
        LastSeen { duration: self.last_duration, held: self.held().map(str::to_owned), displaced_until: self.displaced_until }
    }

    /// uid of the Lease if it was held when it was last seen, be it by an earlier elector.
    fn held(&self) -> Option<&str> {
        match &self.seen {
            Seen::Nothing { held } => held.as_deref(),
            Seen::Absent { .. } => None,
            Seen::Lease(record) => (record.standing() == Standing::Held).then(|| record.uid()),
        }
    }

    /// Until when nothing may start, because holders may run that the Lease no longer names. A wait that the user sets replaces
    /// that: see [`Self::prospect`].
    pub(crate) fn held_back_until(&self) -> Option<Instant> {
        self.displaced_until.filter(|_| self.creation_wait.is_none())
    }

    /// Takes in a version of the Lease from a reply, which is always believed (law 16).
    pub(crate) fn read(&mut self, record: LeaseRecord, now: Instant) {
        if !self.shows(&record) {
            self.since = now;
        }
        let standing = record.standing();
        let displaces = match standing {
            // Whoever held it before anything of it was seen may have lost it so.
            Standing::Free => self.held().is_some() || matches!(self.seen, Seen::Nothing { .. }),
            Standing::Held | Standing::Released => self.held().is_some_and(|uid| uid != record.uid()),
        };
        let before = self.last_duration;
        self.robbed = Reign::of(&record).map(|reign| match self.robbed.take() {
            Some(robbed) if robbed.reign.goes_on_in(&reign) => Robbed { reign, ..robbed },
            robbed => {
                let known = robbed.filter(|robbed| robbed.reign.marked == reign.marked).map(|robbed| robbed.duration);
                let was_seen = self.record().is_some_and(|seen| seen.is_held_by(&reign.marked));
                let unknown = self.creation_wait.filter(|_| known.is_none() && !was_seen);
                let known = known.max(unknown).unwrap_or_default();
                let duration = before.max(known).max(record.duration().unwrap_or_default());
                if reign.marked != self.me {
                    self.displace(duration, now);
                }
                Robbed { reign, duration }
            }
        });
        // A reply that the watch has overtaken tells of an earlier holder.
        let least = if self.is_past(&record) { before } else { Duration::ZERO };
        match standing {
            Standing::Held => {
                self.held_for_a_second = record.duration() == Some(Duration::from_secs(1));
                self.last_duration = record.duration().unwrap_or(before).max(least);
            }
            Standing::Free => self.last_duration = before.max(record.duration().unwrap_or_default()),
            Standing::Released => {}
        }
        if displaces {
            self.displace(if standing == Standing::Free { self.last_duration } else { before }, now);
        }
        self.version = Some(record.resource_version().to_owned());
        self.seen = Seen::Lease(record);
    }

    /// Takes in a version from the watch; false if it is no later than what was seen, of this Lease or of an earlier one that is
    /// gone (law 16).
    pub(crate) fn watched(&mut self, record: LeaseRecord, now: Instant) -> bool {
        let is_news = self.version.as_ref().is_none_or(|version| later(record.resource_version(), version));
        if is_news {
            self.read(record, now);
        }
        is_news
    }

    /// The Lease does not exist.
    pub(crate) fn absent(&mut self, now: Instant) {
        let (promised, may_run) = match &self.seen {
            Seen::Absent { .. } => return,
            Seen::Lease(record) => (record.annotation(STEP_DOWN_TO).map(str::to_owned), record.standing() == Standing::Held),
            Seen::Nothing { .. } => (None, true),
        };
        if may_run {
            self.displace(self.last_duration, now);
        }
        self.since = now;
        self.seen = Seen::Absent { promised };
    }

    /// Somebody who held the Lease for `duration` has lost it without giving it back, and may run on.
    fn displace(&mut self, duration: Duration, now: Instant) {
        let until = self.timing.takeable(now, duration.max(self.timing.duration));
        self.displaced_until = self.displaced_until.max(Some(until));
    }

    /// The watch says that this Lease was deleted; false if it is not the one last seen, or the event is older.
    pub(crate) fn deleted(&mut self, record: &LeaseRecord, now: Instant) -> bool {
        let current = matches!(&self.seen, Seen::Lease(seen)
            if seen.uid() == record.uid() && !later(seen.resource_version(), record.resource_version()));
        if current {
            self.version = Some(record.resource_version().to_owned());
            self.absent(now);
        }
        current
    }

    /// The version last seen.
    pub(crate) const fn record(&self) -> Option<&LeaseRecord> {
        match &self.seen {
            Seen::Lease(record) => Some(record),
            Seen::Nothing { .. } | Seen::Absent { .. } => None,
        }
    }

    /// Whether (uid, spec) of `record` is what was last seen.
    pub(crate) fn shows(&self, record: &LeaseRecord) -> bool {
        self.record().is_some_and(|seen| seen.says_the_same_as(record))
    }

    /// Whether something later than `record` was seen, which a reply then does not know of.
    pub(crate) fn is_past(&self, record: &LeaseRecord) -> bool {
        self.version.as_ref().is_some_and(|version| later(version, record.resource_version()))
    }

    /// o: the start of the unbroken observation.
    pub(crate) const fn since(&self) -> Instant {
        self.since
    }

    /// When it may be taken, according to the law.
    pub(crate) fn prospect(&self, on_strategy: OnStrategy) -> Prospect {
        let (me, timing, creation_wait) = (self.me.as_str(), self.timing, self.creation_wait);
        let longest = self.last_duration.max(timing.duration);
        // By default the displaced are waited for as long as they may run, which is not this room's: see `Core::hold_back`.
        let wait_at = |at| creation_wait.filter(|_| self.displaced_until > Some(at));
        let record = match &self.seen {
            Seen::Nothing { .. } => return Prospect::Unknown,
            Seen::Absent { promised } => {
                let at = after_candidate(self.since, promised.as_deref(), me, timing);
                return Prospect::Open { at, why: Vacancy::Absent, from: None, wait: Some(creation_wait.unwrap_or(longest)) };
            }
            Seen::Lease(record) => record,
        };
        let paused = record.is_paused() && !record.is_held_by(me);
        let refused = match on_strategy {
            OnStrategy::Refuse => is_for_another(record, me),
            OnStrategy::Compete => false,
        };
        if paused || refused || record.is_being_deleted() {
            return Prospect::Closed;
        }
        let from = Some(Box::new(record.clone()));
        let standing = match record.standing() {
            Standing::Released if self.held_for_a_second => Standing::Free,
            standing @ (Standing::Held | Standing::Released | Standing::Free) => standing,
        };
        match standing {
            Standing::Held => {
                let expired = timing.takeable(self.since, record.duration().unwrap_or(longest));
                let asked = record.annotation(STEP_DOWN).is_some_and(|holder| record.is_held_by(holder));
                let promised = record.annotation(STEP_DOWN_TO).filter(|_| asked);
                // The holder that is gone is nobody to wait for.
                let is_awaited = |preferred: &&str| record.strategy().is_some() && !record.is_held_by(preferred);
                let preferred = record.preferred_holder().filter(is_awaited);
                let at = after_candidate(expired, preferred.or(promised), me, timing);
                Prospect::Open { at, why: Vacancy::Expired, from, wait: wait_at(at) }
            }
            Standing::Released => {
                let at = self.unclaimed(record);
                Prospect::Open { at, why: Vacancy::Released, from, wait: wait_at(at) }
            }
            Standing::Free => {
                let wait = Some(creation_wait.unwrap_or(longest));
                Prospect::Open { at: self.unclaimed(record), why: Vacancy::Cleared, from, wait }
            }
        }
    }

    /// When a free Lease may be taken: at once, or after one D where it is meant for somebody else (law 17, strategy).
    fn unclaimed(&self, record: &LeaseRecord) -> Instant {
        if is_for_another(record, &self.me) {
            return self.timing.takeable(self.since, self.timing.duration);
        }
        after_candidate(self.since, record.annotation(STEP_DOWN_TO), &self.me, self.timing)
    }
}

impl Reign {
    /// None if the mark is the holder's own, or missing.
    fn of(record: &LeaseRecord) -> Option<Self> {
        let marked = record.annotation(HOLDER).filter(|marked| !record.is_held_by(marked))?.to_owned();
        let (holder, acquired) = (record.holder().map(str::to_owned), record.acquire_time().map(str::to_owned));
        Some(Self { marked, holder, transitions: record.transitions(), acquired })
    }

    /// Whether nobody can have led between the two: they are the same, or `later` is what the holder left.
    fn goes_on_in(&self, later: &Self) -> bool {
        self == later || later.holder.is_none() && (&self.marked, self.transitions) == (&later.marked, later.transitions)
    }
}

/// When `me` may take what is free from `at` on and promised to a candidate: the others give that one a D (law 17).
fn after_candidate(at: Instant, promised: Option<&str>, me: &str, timing: Timing) -> Instant {
    if promised.is_some_and(|candidate| candidate != me) { timing.takeable(at, timing.duration) } else { at }
}

/// Whether a coordinator appoints the holder, and it is not `me`.
fn is_for_another(record: &LeaseRecord, me: &str) -> bool {
    record.strategy().is_some() && record.preferred_holder() != Some(me)
}
