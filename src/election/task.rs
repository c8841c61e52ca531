//! When the runs of a task are due: intervals, rests, schedules and fires (law 14).
//!
//! A time in the record is compared with a clock only here. The last run is proved dead by then, or its duration was waited for. So
//! a wrong clock shifts a run, and lets no two run at once. Of a schedule, the Lease records the last fire that a run was for, and
//! only a later one is due: so whatever the clocks show, no fire is run twice.

use std::time::Duration;

use super::{
    random::hash_of,
    record::{LeaseRecord, LeaseState},
    writes::{FIRE, NEXT_FIRE, RESTS, micros},
};
use crate::{
    config::{AfterCrash, Config, Missed, Schedule, Trigger},
    law::Timing,
    link::TermInfo,
    time::{Instant, Now},
};

/// In microseconds: the API has no shorter duration.
const SHORTEST_REST: i64 = 1_000_000;

/// The runs of a task, as far as one Lease shows them. Without a task there are none.
#[derive(Clone, Debug, Hash)]
pub(super) struct Runs {
    me: String,
    timing: Timing,
    trigger: Option<Trigger>,
    after_crash: AfterCrash,
    missed: Missed,
    /// By this much a run may begin after its fire, or after the one before was given back or crashed, without any fault of this
    /// replica's.
    tolerance: i64,
    /// The clocks when (uid, spec) was last read unchanged before the next run was due.
    observed_at: Now,
    /// The next fire of the schedule by the Lease, in microseconds of the wall clock.
    next_fire: Option<i64>,
}

/// How long a Lease rests after a run, by the wall clock in microseconds.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct Rest {
    began: i64,
    /// When the next run is due.
    due: i64,
    /// What ran for longer than an interval needs no rest, but the fire that it was for has to be written.
    least: i64,
}

impl Runs {
    pub(super) fn new(me: String, timing: Timing, config: &Config, priority_delay: Duration, trigger: Option<Trigger>) -> Self {
        let (after_crash, missed) = (config.task.after_crash, config.task.missed);
        let observed_at = Now { boot: Instant::BOOT, wall: 0 };
        // A holder that died, a read, an attempt; and another candidate that went first and did not come.
        let takeover = timing.takeable(Instant::BOOT, timing.duration).since(Instant::BOOT);
        let tolerance = takeover + (timing.renew_period + timing.attempt_timeout) * 2 + priority_delay;
        let tolerance = i64::try_from(tolerance.as_micros()).unwrap_or(i64::MAX);
        Self { me, timing, trigger, after_crash, missed, tolerance, observed_at, next_fire: None }
    }

    /// Returns how long after its begin a run that may have crashed is followed by the next.
    pub(super) fn wait_after_crash(&self) -> Option<Duration> {
        match self.trigger {
            Some(Trigger::Every(wait)) if self.after_crash == AfterCrash::Wait => Some(wait),
            Some(Trigger::Every(_) | Trigger::Schedule(_)) | None => None,
        }
    }

    /// Returns when a Lease that rests may be taken, as far as its rest is concerned. `since` is its first sight.
    pub(super) fn rested(&self, record: &LeaseRecord, wait: Duration, since: Instant) -> Instant {
        self.schedule().map_or_else(|| self.due(record.renew_time(), wait, since), |_| since)
    }

    /// Returns when `wait` has passed since `time` by the wall clock. At the latest when it has passed since (uid, spec) was
    /// first observed, so that a date in the future blocks nobody for ever.
    pub(super) fn due(&self, time: Option<&str>, wait: Duration, since: Instant) -> Instant {
        let wait_micros = i64::try_from(wait.as_micros()).unwrap_or(i64::MAX);
        let due = self.shown_at(time.and_then(micros).unwrap_or_default().saturating_add(wait_micros));
        due.min(self.timing.takeable(since, wait))
    }

    /// Returns when the next fire is due. None: whatever the clock shows, the schedule delays nothing.
    pub(super) fn fires_at(&self, record: &LeaseRecord, state: LeaseState, proved: Option<&LeaseRecord>) -> Option<Instant> {
        if self.is_to_be_repeated(record, state, proved) {
            return None;
        }
        let fire = self.next_fire?;
        Some(self.shown_at(fire))
    }

    /// Returns when the wall clock shows this time.
    fn shown_at(&self, wall: i64) -> Instant {
        let left = wall.saturating_sub(self.observed_at.wall);
        let span = Duration::from_micros(left.unsigned_abs());
        if left < 0 { self.observed_at.boot.before(span) } else { self.observed_at.boot + span }
    }

    /// Returns a delay that differs between replicas, so that not all write at once.
    pub(super) fn moment(&self, record: &LeaseRecord) -> Duration {
        let bytes = record.renew_time().unwrap_or_default().bytes().chain(self.me.bytes());
        self.timing.renew_period.mul_f64(f64::from(hash_of(bytes)) / f64::from(u32::MAX) / 4.0)
    }

    fn schedule(&self) -> Option<&Schedule> {
        self.trigger.as_ref()?.schedule()
    }

    /// Returns the next fire of the schedule by the Lease, in microseconds of the wall clock.
    pub(super) fn next_fire(&self) -> Option<i64> {
        self.next_fire.filter(|fire| *fire < i64::MAX)
    }

    /// Returns the fire that a run which begins at `wall` is for, and the one after it: the latest, as a single run makes up for
    /// all that were missed.
    pub(super) fn fires(
        &self,
        record: &LeaseRecord,
        state: LeaseState,
        proved: Option<&LeaseRecord>,
        wall: i64,
    ) -> [Option<i64>; 2] {
        let Some(schedule) = self.schedule() else { return [None; 2] };
        let recorded = record.annotation(FIRE).and_then(micros);
        let due = if self.is_to_be_repeated(record, state, proved) { recorded } else { self.next_fire };
        let fire = schedule.latest(last_fire(record), wall).or(due);
        [fire, schedule.next(fire.unwrap_or(wall))]
    }

    /// Returns true if the next fire was missed, and is to be skipped.
    pub(super) fn is_skipped(&self, wall: i64) -> bool {
        self.missed == Missed::Skip && self.next_fire.is_some_and(|fire| fire <= self.tolerated(wall))
    }

    /// Counts the wall clock's time from now on.
    pub(super) const fn set_clocks(&mut self, clocks: Now) {
        self.observed_at = clocks;
    }

    /// Takes in a version of the Lease. The first fire that is due by it is the end of all times if there is none.
    pub(super) fn observe(&mut self, record: &LeaseRecord) {
        let Some(schedule) = self.schedule() else { return };
        let last = last_fire(record);
        let after = match self.missed {
            Missed::Run => last,
            Missed::Skip => last.max(self.tolerated(self.observed_at.wall)),
        };
        self.next_fire = Some(schedule.next(after).unwrap_or(i64::MAX));
    }

    /// Returns the time until which fires are to be skipped.
    const fn tolerated(&self, wall: i64) -> i64 {
        wall.saturating_sub(self.tolerance)
    }

    /// Returns true if the recorded fire is still to be run: its run was given back undone, crashed and is to be made up for, or is
    /// the one of this replica's own acquisition.
    fn is_to_be_repeated(&self, record: &LeaseRecord, state: LeaseState, proved: Option<&LeaseRecord>) -> bool {
        // Whoever knows no schedule removes the next fire: its term is no run.
        let ended = record.renew_time().and_then(micros).unwrap_or_default();
        let is_missed = self.missed == Missed::Skip && ended <= self.tolerated(self.observed_at.wall);
        let is_of_a_run = record.annotation(NEXT_FIRE).is_some() && !is_missed;
        match state {
            // Whoever begins a run removes the mark of the rest before it: somebody has cleared a rest.
            LeaseState::Released => is_of_a_run && record.annotation(RESTS).is_none(),
            LeaseState::Held => {
                is_of_a_run && self.after_crash == AfterCrash::Run || proved.is_some_and(|proved| proved.says_the_same_as(record))
            }
            LeaseState::Resting | LeaseState::Nobody | LeaseState::Free => false,
        }
    }
}

impl Rest {
    /// Returns the rest after the run of this term, which `record` shows.
    pub(super) fn after(trigger: &Trigger, info: &TermInfo, record: Option<&LeaseRecord>) -> Option<Self> {
        let began = micros(&info.acquired_at)?;
        let (due, least) = match trigger {
            Trigger::Every(interval) => (began.saturating_add(i64::try_from(interval.as_micros()).ok()?), 0),
            Trigger::Schedule(schedule) => {
                let fire = record.and_then(|record| record.annotation(FIRE)).and_then(micros);
                (schedule.next(fire.unwrap_or(began)).unwrap_or(i64::MAX), SHORTEST_REST)
            }
        };
        Some(Self { began, due, least })
    }

    /// Returns the time until the next run by the wall clock, so that it is due at the same time for all replicas.
    pub(super) fn left(self, now: Now) -> Option<Duration> {
        let left = self.due.saturating_sub(now.wall.max(self.began)).max(self.least);
        u64::try_from(left).ok().filter(|left| *left > 0).map(Duration::from_micros)
    }
}

/// Returns the fire that the last run was for. The first fire of a schedule comes after the last run without one, or after the Lease
/// was made.
fn last_fire(record: &LeaseRecord) -> i64 {
    [record.annotation(FIRE), record.acquire_time(), record.created()].into_iter().flatten().find_map(micros).unwrap_or_default()
}
