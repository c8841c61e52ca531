//! A follower's observation of the Lease, and when it may take the Lease.
//!
//! Owns law 11, 13, 14 and 17 for the follower: the wait for the record's duration while (uid, spec) does not change; the hold of
//! nobody for a Lease that was not given back; the memory of holders that may still run although the record no longer names them;
//! and the cases in which a free Lease must not be taken. When the next run of a task is due is up to [`super::task`],
//! which compares times on the Lease with the clock, as nothing here does. What a log says of a Lease is reported in `core::one`.

use std::time::Duration;

use super::{
    AcquireReason,
    record::{LeaseRecord, LeaseState, later},
    task::Runs,
    writes::{HOLDER, OBITUARY, STEP_DOWN, STEP_DOWN_TO, micros},
};
use crate::{
    config::{Config, ForeignRelease, Trigger},
    law::Timing,
    link::LastSeen,
    time::{Instant, Now},
};

/// The delay from one priority to the next: longer than a watch event and a write take.
const STEP: Duration = Duration::from_secs(1);

/// The last observation of the Lease.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Observation {
    me: String,
    timing: Timing,
    /// `lease.creationWait`; none: not set.
    creation_wait: Option<Duration>,
    foreign_release: ForeignRelease,
    runs: Runs,
    /// The Lease is left to replicas of a higher priority for so long.
    priority_delay: Duration,
    observed: Observed,
    /// uid of the Lease that was last observed held, unless that Lease is known to be gone.
    held: Option<String>,
    /// The last observed holder had its name in [`HOLDER`] too, and was not seen to give the Lease back.
    was_named: bool,
    /// The version last observed, even if that Lease is gone: watch events must be later.
    version: Option<String>,
    /// The greatest version ever observed. What it has shown of holders is unlearned by a later one only.
    greatest: Option<LeaseRecord>,
    /// o, client-go's observedTime: since when (uid, spec) has been unchanged, or the Lease absent.
    since: Instant,
    /// Since when the Lease has named this holder, in this term of its.
    led_since: Instant,
    /// How often (uid, spec) has changed.
    changes: u64,
    /// The "last seen D" of law 11: the duration of the last held record that had one, or a longer one recorded since by a Lease
    /// without a leader. Own D, if there was none.
    last_duration: Duration,
    /// The latest renewTime observed. The next write for nobody must differ from all records that other replicas may still be
    /// waiting for.
    latest_time: Option<String>,
    /// The memory of law 14: until then holders may run that the Lease no longer names.
    not_before: Instant,
}

#[derive(Clone, Debug, Hash)]
enum Observed {
    Nothing,
    Absent,
    Lease(LeaseRecord),
}

/// The actions on the Lease that the law allows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Eligibility {
    /// The Lease has not been read yet.
    Unknown,
    /// Must not be taken until something changes: it is paused, being deleted, or its coordinator has not appointed this replica.
    Closed,
    /// Was not given back: it must first be written as held by nobody for `duration` (law 14).
    Vacant {
        /// The record to replace. None: there is no Lease.
        from: Option<LeaseRecord>,
        /// The longest duration known.
        duration: Duration,
    },
    /// May be taken at `at`.
    Open {
        /// The instant from which this replica takes it.
        at: Instant,
        /// When it is free, or the next run is due. Then other replicas may go first.
        due: Instant,
        /// Why it is free.
        why: AcquireReason,
        /// The record to replace.
        from: LeaseRecord,
    },
}

impl Observation {
    /// Begins without a read of the Lease, with the part of earlier electors' observations that still counts.
    pub(crate) fn after(last_seen: LastSeen, me: String, timing: Timing, config: &Config, trigger: Option<Trigger>) -> Self {
        let lease = &config.lease;
        let LastSeen { duration, held, named, not_before } = last_seen;
        let priority_delay = STEP * u32::from(lease.priority.unsigned_abs());
        Self {
            runs: Runs::new(me.clone(), timing, config, priority_delay, trigger),
            me,
            timing,
            creation_wait: lease.creation_wait,
            foreign_release: lease.foreign_release,
            priority_delay,
            observed: Observed::Nothing,
            held,
            was_named: named,
            version: None,
            greatest: None,
            since: Instant::BOOT,
            led_since: Instant::BOOT,
            changes: 0,
            last_duration: duration,
            latest_time: None,
            not_before,
        }
    }

    /// Returns the part of the observation that counts for the next elector, which may find the Lease gone.
    pub(crate) fn last_seen(&self) -> LastSeen {
        let (duration, held, named) = (self.last_duration, self.held.clone(), self.was_named);
        LastSeen { duration, held, named, not_before: self.not_before }
    }

    /// Takes in a version of the Lease from a reply, which is always believed (law 16).
    pub(crate) fn read(&mut self, record: LeaseRecord, clocks: Now) {
        let now = clocks.boot;
        self.note_time(&record);
        // A reply that the watch has overtaken, and what a watch then shows again, give nothing back that was held since.
        let is_past =
            self.greatest.as_ref().is_some_and(|greatest| later(greatest.resource_version(), record.resource_version()));
        let (before, has_changed) = (self.longest(), !self.shows(&record));
        let is_another = self.held.as_ref().is_some_and(|uid| uid != record.uid());
        let is_same_term = self.record().is_some_and(|seen| seen.is_of_the_term_of(&record));
        // After a late reply the last record seen is not the one that this one may continue.
        let continues = is_same_term && self.greatest.as_ref().is_none_or(|greatest| greatest.is_of_the_term_of(&record));
        let state = self.state_of(&record);
        let recorded = record.duration().unwrap_or(self.last_duration);
        self.last_duration = match state {
            LeaseState::Held if !is_past => recorded,
            // How long a Lease rests is nobody's hold, also when its holder is cleared by hand.
            LeaseState::Free if record.is_cleared_rest() => self.last_duration,
            LeaseState::Held | LeaseState::Nobody | LeaseState::Free => self.last_duration.max(recorded),
            LeaseState::Resting | LeaseState::Released => self.last_duration,
        };
        let was_displaced = match state {
            LeaseState::Nobody | LeaseState::Free => true,
            LeaseState::Held => match record.annotation(HOLDER) {
                Some(name) => !record.is_held_by(name),
                None => self.was_named && !continues,
            },
            LeaseState::Resting | LeaseState::Released => false,
        };
        if has_changed {
            self.begin_anew(now);
        }
        if !is_same_term {
            self.led_since = now;
        }
        // Where versions have fallen (a restored store), each later read is of the past, and names no other holder.
        if has_changed && (is_another || was_displaced) {
            self.remember(before.max(self.longest()), now);
        }
        if is_another && !is_past || record.holder().is_some() {
            self.held = record.holder().map(|_| record.uid().to_owned());
        }
        let is_named = match record.holder() {
            Some(_) if state == LeaseState::Resting => false,
            Some(_) => record.annotation(HOLDER).is_some() || self.was_named && continues,
            None => self.was_named && state != LeaseState::Released,
        };
        self.was_named = is_named || self.was_named && is_past;
        self.note_version(&record);
        // If a clock is set, a run that is not due yet moves. A run that was already due stays due, unless it is to be skipped.
        if has_changed || self.runs.is_skipped(clocks.wall) || self.due_at().is_none_or(|due| now < due) {
            self.runs.set_clocks(clocks);
        }
        self.runs.observe(&record);
        self.observed = Observed::Lease(record);
    }

    /// Returns true if the fire that is due was missed while every request was refused, and is to be skipped: the next read does that.
    pub(crate) fn is_skipped(&self, wall: i64) -> bool {
        self.runs.is_skipped(wall)
    }

    /// Takes in a version from the watch. Returns false if it is no later than the last observed version, of this Lease or of an
    /// earlier one that is gone, or if no reply has shown this Lease yet: an earlier elector may have observed a later one (law 16).
    /// Such a version still tells for how long its holder may run; one of another uid that its holder may run at all; and one before a
    /// reply whom that reply has to show.
    pub(crate) fn watched(&mut self, record: LeaseRecord, now: Now) -> bool {
        let is_later = || self.version.as_ref().is_none_or(|version| later(record.resource_version(), version));
        let is_news = !self.is_unknown() && is_later();
        if is_news {
            self.read(record, now);
        } else if record.holder().is_some() && record.state() != LeaseState::Resting {
            self.note_time(&record);
            self.last_duration = self.last_duration.max(record.duration().unwrap_or_default());
            if self.is_unknown() {
                // The first reply tells whether it has given the Lease back.
                self.held.get_or_insert_with(|| record.uid().to_owned());
                self.was_named |= record.annotation(HOLDER).is_some();
            } else if self.record().is_none_or(|seen| seen.uid() != record.uid()) {
                // That Lease was gone before the current one was created.
                self.remember(record.duration().unwrap_or_else(|| self.longest()), self.since);
            }
        }
        is_news
    }

    /// Takes in that the Lease does not exist.
    pub(crate) fn absent(&mut self, now: Instant) {
        if !matches!(self.observed, Observed::Absent) {
            self.begin_anew(now);
            (self.observed, self.held) = (Observed::Absent, None);
            self.remember(self.longest(), now);
        }
    }

    /// Takes in a deletion event. Returns false if it is about another uid, or older than the last observation.
    pub(crate) fn deleted(&mut self, record: &LeaseRecord, now: Instant) -> bool {
        let current = matches!(&self.observed, Observed::Lease(seen)
            if seen.uid() == record.uid() && !later(seen.resource_version(), record.resource_version()));
        if current {
            self.note_version(record);
            self.absent(now);
        }
        current
    }

    fn note_version(&mut self, record: &LeaseRecord) {
        let version = record.resource_version();
        if self.greatest.as_ref().is_none_or(|greatest| later(version, greatest.resource_version())) {
            self.greatest = Some(record.clone());
        }
        self.version = Some(version.to_owned());
    }

    /// Returns true if the Lease was not observed yet.
    pub(crate) const fn is_unknown(&self) -> bool {
        matches!(self.observed, Observed::Nothing)
    }

    /// Returns true if the Lease was absent when it was last observed.
    pub(crate) const fn is_absent(&self) -> bool {
        matches!(self.observed, Observed::Absent)
    }

    /// Returns the version last observed.
    pub(crate) const fn record(&self) -> Option<&LeaseRecord> {
        if let Observed::Lease(record) = &self.observed { Some(record) } else { None }
    }

    /// Returns when the last renewal was seen. None: nobody is seen to hold the Lease.
    pub(crate) fn renewed(&self) -> Option<Instant> {
        let is_held = self.record().is_some_and(|record| record.state() == LeaseState::Held);
        is_held.then_some(self.since)
    }

    /// Returns true if uid and spec of `record` are those last observed.
    pub(crate) fn shows(&self, record: &LeaseRecord) -> bool {
        self.record().is_some_and(|seen| seen.says_the_same_as(record))
    }

    /// Returns true if a later version than `record` was observed.
    pub(crate) fn is_past(&self, record: &LeaseRecord) -> bool {
        self.version.as_ref().is_some_and(|version| later(version, record.resource_version()))
    }

    /// Returns how often (uid, spec) has changed, so that a caller can tell whether it has changed meanwhile, if only for a
    /// moment.
    pub(crate) const fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the latest renewTime observed.
    pub(crate) fn latest_time(&self) -> Option<&str> {
        self.latest_time.as_deref()
    }

    /// Returns true if another replica holds the Lease.
    pub(crate) fn is_led_by_another(&self) -> bool {
        self.record().is_some_and(|record| record.state() == LeaseState::Held && !record.is_held_by(&self.me))
    }

    /// Returns when the holder of the observed `record` counts as dead, unless that changes (law 11).
    fn expires_at(&self, record: &LeaseRecord) -> Instant {
        self.timing.takeable(self.since, record.duration().unwrap_or_else(|| self.longest()))
    }

    /// Returns true if `record` was observed so long ago that its holder counts as dead.
    pub(crate) fn has_expired(&self, record: &LeaseRecord, now: Instant) -> bool {
        record.state() == LeaseState::Held && self.shows(record) && self.expires_at(record) <= now
    }

    /// Returns when this replica may ask a holder of a lower priority to hand over: once it has led for `after`, and not before a
    /// standby of a yet higher priority.
    pub(crate) fn preempts_at(&self, priority: i8, after: Duration) -> Option<Instant> {
        if !self.is_led_by_another() {
            return None;
        }
        let holders = self.record()?.preemptible_priority()?;
        if holders >= priority {
            return None;
        }
        Some(self.led_since + after + self.priority_delay)
    }

    /// Returns what the law allows. `proved` is an acquiring write of this replica that is stored, but began no term. As long as
    /// the Lease is unchanged since that write, it need not be waited for (law 12).
    pub(crate) fn eligibility(&self, proved: Option<&LeaseRecord>) -> Eligibility {
        let record = match &self.observed {
            Observed::Nothing => return Eligibility::Unknown,
            Observed::Absent => return Eligibility::Vacant { from: None, duration: self.longest() },
            Observed::Lease(record) => record,
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
                (self.runs.rested(record, wait, self.since), AcquireReason::Due, candidate)
            }
            LeaseState::Held => {
                let expired = self.expires_at(record);
                let due = self.runs.wait_after_crash().map(|wait| self.runs.due(record.acquire_time(), wait, self.since));
                let due = due.filter(|due| *due > expired);
                let was_asked = record.annotation(STEP_DOWN).is_some_and(|holder| record.is_held_by(holder));
                let (at, why) = due.map_or((expired, AcquireReason::Expired), |due| (due, AcquireReason::Due));
                (at, why, if was_asked { candidate } else { None })
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
            LeaseState::Released if record.annotation(OBITUARY).is_some() => (self.since, AcquireReason::Died, candidate),
            LeaseState::Released => (self.since, AcquireReason::Released, candidate),
        };
        let fires = self.runs.fires_at(record, state, proved);
        let (due, why) = fires.filter(|fires| *fires > at).map_or((at, why), |fires| (fires, AcquireReason::Due));
        let moment = if why == AcquireReason::Due { self.runs.moment(record) } else { Duration::ZERO };
        let at = due.max(fires.unwrap_or(due) + moment);
        // A named candidate goes first for as long as it needs (law 17).
        let at = match candidate {
            Some(candidate) if candidate == self.me => at,
            Some(_) => at + self.timing.candidate_wait().max(self.priority_delay),
            None => at + self.priority_delay,
        };
        Eligibility::Open { at: at.max(self.not_before), due, why, from: record.clone() }
    }

    /// Returns how long a Lease that nobody holds for `duration` is waited for.
    pub(crate) fn wait_for_nobody(&self, duration: Duration) -> Duration {
        self.creation_wait.unwrap_or(duration)
    }

    /// Returns when the next run of a task is due. None if only a holder is waited for.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        let Eligibility::Open { at, why: AcquireReason::Due, .. } = self.eligibility(None) else { return None };
        Some(at)
    }

    /// Returns the two ends of the quiet time of a task's Lease: from the end of a run until the next one is due.
    pub(crate) fn quiet(&self) -> Option<[Instant; 2]> {
        let due = self.due_at()?;
        let record = self.record().filter(|record| record.state() == LeaseState::Held);
        let since = record.map_or(Instant::BOOT, |record| self.expires_at(record));
        Some([since, due])
    }

    /// Returns the next fire of the schedule by the Lease, in microseconds of the wall clock.
    pub(crate) fn next_fire(&self) -> Option<i64> {
        self.runs.next_fire()
    }

    /// Returns the fire that a run which begins at `wall` is for, and the one after it.
    pub(crate) fn fires(&self, record: &LeaseRecord, proved: Option<&LeaseRecord>, wall: i64) -> [Option<i64>; 2] {
        self.runs.fires(record, self.state_of(record), proved, wall)
    }

    fn note_time(&mut self, record: &LeaseRecord) {
        let time = record.renew_time().filter(|time| micros(time) > self.latest_time.as_deref().and_then(micros));
        self.latest_time = time.map(str::to_owned).or_else(|| self.latest_time.take());
    }

    const fn begin_anew(&mut self, now: Instant) {
        self.since = now;
        self.changes += 1;
    }

    /// Returns the longest duration known.
    fn longest(&self) -> Duration {
        self.last_duration.max(self.timing.duration)
    }

    /// Returns the state of the record. A release mark after a hold of one second proves nothing: its duration may be that of the
    /// hold (law 14).
    fn state_of(&self, record: &LeaseRecord) -> LeaseState {
        let is_foreign = || !self.was_named && record.annotation(HOLDER).is_none();
        match record.state() {
            LeaseState::Free if self.foreign_release == ForeignRelease::Trust && is_foreign() => LeaseState::Released,
            LeaseState::Released if self.last_duration == Duration::from_secs(1) => LeaseState::Free,
            LeaseState::Held | LeaseState::Resting | LeaseState::Nobody | LeaseState::Released | LeaseState::Free => {
                record.state()
            }
        }
    }

    /// Remembers that a holder which the Lease does not name may run for up to `duration`.
    fn remember(&mut self, duration: Duration, now: Instant) {
        let until = self.timing.takeable(now, self.wait_for_nobody(duration));
        self.not_before = self.not_before.max(until);
    }
}
