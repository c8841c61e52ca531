//! What a follower has seen of the Lease, and when it may take it.
//!
//! Owns law 11, 13, 14 and 17 for the follower: the unbroken observation of one (uid, spec), the wait for the record's own
//! duration, what nobody has given back and is first held by nobody, the memory of who may still run although the record no longer
//! names it, and what must not be taken although it is free. A time in the record is compared with a clock only to tell when a task is
//! due whose last run is proved dead, or waited out like any holder: a wrong clock shifts a run, and lets no two run at once.

use std::time::Duration;

use super::{
    AcquireReason,
    record::{LeaseRecord, LeaseState, later},
    writes::{HOLDER, STEP_DOWN, STEP_DOWN_TO, micros},
};
use crate::{
    config::{ForeignRelease, LeaseConfig},
    law::Timing,
    link::LastSeen,
    time::{Instant, Now},
};

/// The basis and the prime of the hash FNV-1a.
const FNV: (u32, u32) = (0x811C_9DC5, 0x0100_0193);

/// By how much one priority goes before the next: longer than a watch and a write take.
const STEP: Duration = Duration::from_secs(1);

/// What was last seen of the Lease.
#[derive(Clone, Debug)]
pub(crate) struct Observation {
    me: String,
    timing: Timing,
    /// If the user has set it.
    creation_wait: Option<Duration>,
    foreign_release: ForeignRelease,
    /// From the start of a run whose replica crashed to the next.
    crash_wait: Option<Duration>,
    /// So long it is left to replicas of a higher priority.
    precedence: Duration,
    seen: Seen,
    /// The clocks when that was last confirmed, before it was due.
    seen_at: Now,
    /// uid of the Lease that was held when it was last seen held, unless that is known to be gone.
    held: Option<String>,
    /// The holder that was last seen, if one was, had its name in [`HOLDER`] too.
    was_named: bool,
    /// That of the Lease last seen, even if it is gone: watch events must be later.
    version: Option<String>,
    /// o: since when (uid, spec) has been unchanged, or the Lease absent.
    since: Instant,
    /// How often that has begun anew.
    sights: u64,
    /// The duration of the last held record that had one, or a longer one recorded since while nobody led: "last seen D". Own D, if
    /// there was none.
    last_duration: Duration,
    /// The latest renewTime that was seen. Nobody's next one has to differ from all that others may still be watching.
    latest_time: Option<String>,
    /// The memory: until then holders may run that the Lease does not name, whoever has held it since (law 14).
    not_before: Instant,
}

#[derive(Clone, Debug)]
enum Seen {
    Nothing,
    Absent,
    Lease(LeaseRecord),
}

/// What may be done about the Lease.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Eligibility {
    /// Nothing has been seen yet.
    Unknown,
    /// Not until something changes: it is paused, being deleted, or its coordinator's to give.
    Closed,
    /// It was not given back: it is first written as held by nobody for `duration` (law 14).
    Vacant {
        /// The record to replace; none: there is no Lease.
        from: Option<LeaseRecord>,
        /// The longest known.
        duration: Duration,
    },
    /// It may be taken at `at`.
    Open {
        /// When.
        at: Instant,
        /// Why it is free.
        why: AcquireReason,
        /// The record to replace.
        from: LeaseRecord,
    },
}

impl Observation {
    /// Nothing has been seen of the Lease by this elector, but what counts of what earlier ones saw.
    pub(crate) fn after(
        last_seen: LastSeen,
        me: String,
        timing: Timing,
        config: &LeaseConfig,
        crash_wait: Option<Duration>,
    ) -> Self {
        let LastSeen { duration, held, named, not_before } = last_seen;
        Self {
            me,
            timing,
            creation_wait: config.creation_wait,
            foreign_release: config.foreign_release,
            crash_wait,
            precedence: STEP * u32::from(config.priority.unsigned_abs()),
            seen: Seen::Nothing,
            seen_at: Now { boot: Instant::BOOT, wall: 0 },
            held,
            was_named: named,
            version: None,
            since: Instant::BOOT,
            sights: 0,
            last_duration: duration,
            latest_time: None,
            not_before,
        }
    }

    /// What counts of what was seen for the next elector, which may find the Lease gone.
    pub(crate) fn last_seen(&self) -> LastSeen {
        let (duration, held, named) = (self.last_duration, self.held.clone(), self.was_named);
        LastSeen { duration, held, named, not_before: self.not_before }
    }

    /// Takes in a version of the Lease from a reply, which is always believed (law 16).
    pub(crate) fn read(&mut self, record: LeaseRecord, clocks: Now) {
        let now = clocks.boot;
        self.note_time(&record);
        let (before, is_first_sight) = (self.longest(), !self.shows(&record));
        let is_another = self.held.as_ref().is_some_and(|uid| uid != record.uid());
        let state = self.state_of(&record);
        let recorded = record.duration().unwrap_or(self.last_duration);
        self.last_duration = match state {
            // A reply that the watch has overtaken tells of an earlier holder.
            LeaseState::Held if !self.is_past(&record) => recorded,
            LeaseState::Held | LeaseState::Nobody | LeaseState::Free => self.last_duration.max(recorded),
            LeaseState::Resting | LeaseState::Released => self.last_duration,
        };
        let was_displaced = match state {
            LeaseState::Nobody | LeaseState::Free => true,
            LeaseState::Held => record.annotation(HOLDER).is_some_and(|name| !record.is_held_by(name)),
            LeaseState::Resting | LeaseState::Released => false,
        };
        if is_first_sight {
            self.begin_sight(now);
        }
        if is_another || is_first_sight && was_displaced {
            self.remember(before.max(self.longest()), now);
        }
        if is_another || record.holder().is_some() {
            self.held = record.holder().map(|_| record.uid().to_owned());
        }
        if record.holder().is_some() {
            self.was_named = record.annotation(HOLDER).is_some();
        }
        self.version = Some(record.resource_version().to_owned());
        // A clock that is set meanwhile moves what is due, but not what has been.
        if is_first_sight || self.due_at().is_none_or(|due| now < due) {
            self.seen_at = clocks;
        }
        self.seen = Seen::Lease(record);
    }

    /// Takes in a version from the watch; false if it is no later than what was seen, of this Lease or of an earlier one that is
    /// gone (law 16). Such a one still tells for how long somebody may have it; and one of another Lease, that its holder may run.
    pub(crate) fn watched(&mut self, record: LeaseRecord, now: Now) -> bool {
        let is_news = self.version.as_ref().is_none_or(|version| later(record.resource_version(), version));
        if is_news {
            self.read(record, now);
        } else if record.holder().is_some() && record.state() != LeaseState::Resting {
            self.note_time(&record);
            self.last_duration = self.last_duration.max(record.duration().unwrap_or_default());
            if self.record().is_none_or(|seen| seen.uid() != record.uid()) {
                // It was gone before what is seen now was there.
                self.remember(record.duration().unwrap_or_else(|| self.longest()), self.since);
            }
        }
        is_news
    }

    /// The Lease does not exist.
    pub(crate) fn absent(&mut self, now: Instant) {
        if !matches!(self.seen, Seen::Absent) {
            self.begin_sight(now);
            (self.seen, self.held) = (Seen::Absent, None);
            self.remember(self.longest(), now);
        }
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
            Seen::Nothing | Seen::Absent => None,
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

    /// Which sight this is: another number means that (uid, spec) has changed since, if only for a moment.
    pub(crate) const fn sight(&self) -> u64 {
        self.sights
    }

    /// The latest renewTime that was seen.
    pub(crate) fn latest_time(&self) -> Option<&str> {
        self.latest_time.as_deref()
    }

    /// Whether somebody else leads.
    pub(crate) fn is_led_by_another(&self) -> bool {
        self.record().is_some_and(|record| record.state() == LeaseState::Held && !record.is_held_by(&self.me))
    }

    /// What the law allows. `proved` is an acquisition of this replica that is stored, but began no term: as long as the Lease says
    /// just that, it need not be waited for (law 12).
    pub(crate) fn eligibility(&self, proved: Option<&LeaseRecord>) -> Eligibility {
        let record = match &self.seen {
            Seen::Nothing => return Eligibility::Unknown,
            Seen::Absent => return Eligibility::Vacant { from: None, duration: self.longest() },
            Seen::Lease(record) => record,
        };
        let state = self.state_of(record);
        let is_mine = state == LeaseState::Held && record.is_held_by(&self.me);
        let is_for_another = record.strategy().is_some() && record.preferred_holder() != Some(self.me.as_str());
        if record.is_paused() && !is_mine || is_for_another || record.is_being_deleted() {
            return Eligibility::Closed;
        }
        let recorded = record.duration().unwrap_or_default();
        let candidate = record.annotation(STEP_DOWN_TO);
        let (at, why, candidate) = match state {
            LeaseState::Held if proved.is_some_and(|proved| proved.says_the_same_as(record)) => {
                (self.since, AcquireReason::Expired, Some(self.me.as_str()))
            }
            LeaseState::Resting => {
                let wait = record.duration().unwrap_or_else(|| self.longest());
                (self.due(record, record.renew_time(), wait), AcquireReason::Due, candidate)
            }
            LeaseState::Held => {
                let expired = self.timing.takeable(self.since, record.duration().unwrap_or_else(|| self.longest()));
                let due = self.crash_wait.map(|wait| self.due(record, record.acquire_time(), wait)).filter(|due| *due > expired);
                let was_asked = record.annotation(STEP_DOWN).is_some_and(|holder| record.is_held_by(holder));
                let (at, why) = due.map_or((expired, AcquireReason::Expired), |due| (due, AcquireReason::Due));
                (at, why, candidate.filter(|_| was_asked))
            }
            LeaseState::Nobody | LeaseState::Free if self.creation_wait == Some(Duration::ZERO) => {
                (self.since, AcquireReason::Cleared, candidate)
            }
            LeaseState::Nobody if self.creation_wait.is_some() || recorded >= self.longest() => {
                (self.timing.takeable(self.since, self.wait_for_nobody(recorded)), AcquireReason::Nobody, candidate)
            }
            LeaseState::Nobody | LeaseState::Free => {
                return Eligibility::Vacant { from: Some(record.clone()), duration: self.longest() };
            }
            LeaseState::Released => (self.since, AcquireReason::Released, candidate),
        };
        // The others leave it to a named candidate for one D (law 17).
        let at = match candidate {
            Some(candidate) if candidate == self.me => at,
            Some(_) => self.timing.takeable(at, self.timing.duration),
            None => at + self.precedence,
        };
        Eligibility::Open { at: at.max(self.not_before), why, from: record.clone() }
    }

    /// How long what is held by nobody is waited for, if this is the duration that it says.
    pub(crate) fn wait_for_nobody(&self, duration: Duration) -> Duration {
        self.creation_wait.unwrap_or(duration)
    }

    /// When the next run is due, before which nobody takes the Lease; none if nothing but its holder is waited for.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        match self.eligibility(None) {
            Eligibility::Open { at, why: AcquireReason::Due, .. } => Some(at),
            Eligibility::Unknown | Eligibility::Closed | Eligibility::Vacant { .. } | Eligibility::Open { .. } => None,
        }
    }

    /// When `wait` has passed since `time` by the wall clock, or since what is seen was first seen: no date in the future blocks
    /// anybody for ever. And a moment later, another one for each replica: not all come at once.
    fn due(&self, record: &LeaseRecord, time: Option<&str>, wait: Duration) -> Instant {
        let passed = self.seen_at.wall.saturating_sub(time.and_then(micros).unwrap_or_default());
        let left = i64::try_from(wait.as_micros()).unwrap_or(i64::MAX).saturating_sub(passed);
        let span = Duration::from_micros(left.unsigned_abs());
        let due = if left < 0 { self.seen_at.boot.before(span) } else { self.seen_at.boot + span };
        let bytes = record.renew_time().unwrap_or_default().bytes().chain(self.me.bytes());
        let hash = bytes.fold(FNV.0, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(FNV.1));
        let moment = self.timing.renew_period.mul_f64(f64::from(hash) / f64::from(u32::MAX) / 4.0);
        due.min(self.timing.takeable(self.since, wait)) + moment
    }

    fn note_time(&mut self, record: &LeaseRecord) {
        let time = record.renew_time().filter(|time| micros(time) > self.latest_time.as_deref().and_then(micros));
        self.latest_time = time.map(str::to_owned).or_else(|| self.latest_time.take());
    }

    const fn begin_sight(&mut self, now: Instant) {
        self.since = now;
        self.sights += 1;
    }

    /// The longest duration known.
    fn longest(&self) -> Duration {
        self.last_duration.max(self.timing.duration)
    }

    /// A mark that follows a hold of one second proves nothing: its duration may be that one's (law 14).
    fn state_of(&self, record: &LeaseRecord) -> LeaseState {
        let is_foreign = || !self.was_named && record.annotation(HOLDER).is_none();
        match record.state() {
            LeaseState::Free if self.foreign_release == ForeignRelease::Trust && is_foreign() => LeaseState::Released,
            LeaseState::Released if self.last_duration == Duration::from_secs(1) => LeaseState::Free,
            state @ (LeaseState::Held | LeaseState::Resting | LeaseState::Nobody | LeaseState::Released | LeaseState::Free) => {
                state
            }
        }
    }

    /// Somebody whom the Lease does not name may run for up to `duration`.
    fn remember(&mut self, duration: Duration, now: Instant) {
        let until = self.timing.takeable(now, self.wait_for_nobody(duration));
        self.not_before = self.not_before.max(until);
    }
}
