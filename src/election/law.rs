//! The law of the deadlines: two workloads never run at once.
//!
//! Owns every formula that turns a send or a sight into a deadline. Reads no clock.
//!
//! ```text
//! a   holder's BOOTTIME just before the first byte of a write
//! o   follower's BOOTTIME just after it received the version that it watches
//! E = a + D * (1 - rho)     end of the holder's validity
//! H = E - killMargin        SIGKILL to everything
//! S = H - lossGrace         stop signal
//!     o + D * (1 + rho)     a follower may take
//! ```
//!
//! Proof. The write was committed at real time c, with a <= c because the commit follows the first byte. The holder's clock
//! runs at a rate of at least 1 - rho and at most 1 + rho, so that when it reads E at most D of real time has passed since a, and
//! everything is dead by real time c + D. A follower saw that version at o >= c. When its clock reads o + D * (1 + rho) at
//! least D of real time has passed since o. So the last process of the holder ends no later than c + D, and no follower begins
//! before c + D. Neither network delay, in either direction, nor any wall clock takes part.
//!
//! Three see to H: init, the elector's guard where init stands still, and the kernel's fuses where neither runs. A Lease is taken
//! and run on before o + D * (1 + rho) only where its holder gave it back, which it does once everything is proved dead, and whose
//! name then no longer stands beside it. One that is free in any other way is taken at once, and run on after the wait.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::Instant;

/// b: the pause before a retry.
pub const RETRY_PAUSE: Duration = Duration::from_millis(200);

const MILLION: u128 = 1_000_000;

/// The constants of a term (safety.md, symbols).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// D. The record has it in whole seconds, rounded up: only while a creation wait takes its place can it be less than
    /// the record says, and E counts on no more than this (law 14).
    pub duration: Duration,
    /// R.
    pub renew_period: Duration,
    /// T.
    pub attempt_timeout: Duration,
    /// rho in parts per million.
    pub drift: u32,
    /// G.
    pub loss_grace: Duration,
    /// k + w.
    pub kill_margin: Duration,
}

/// Until when a term is valid, all from the same send (safety.md, head).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deadlines {
    /// S: the stop signal goes out.
    pub soft: Instant,
    /// H: SIGKILL to everything.
    pub hard: Instant,
    /// E: the end of validity; by then every process is gone.
    pub end: Instant,
}

impl Timing {
    /// The same with another D: while a creation wait lasts, the term carries the wait as its duration (law 14).
    #[must_use]
    pub const fn with_duration(self, duration: Duration) -> Self {
        Self { duration, ..self }
    }

    /// D as the record carries it: whole seconds, never less than D.
    #[must_use]
    pub fn duration_seconds(self) -> i32 {
        let begun = u64::from(self.duration.subsec_nanos() > 0);
        i32::try_from(self.duration.as_secs().saturating_add(begun)).unwrap_or(i32::MAX)
    }

    /// S, H and E of a write sent at `a`.
    #[must_use]
    pub fn deadlines(self, a: Instant) -> Deadlines {
        let end = a + shorter(self.duration, self.drift);
        let hard = end.before(self.kill_margin);
        Deadlines { soft: hard.before(self.loss_grace), hard, end }
    }

    /// How many attempts fit between a renewal's due time and S: floor((S - R) / (T + b)); at least two are required.
    #[must_use]
    pub fn attempts(self) -> u32 {
        let soft = self.deadlines(Instant::BOOT).soft.since(Instant::BOOT);
        let room = soft.saturating_sub(self.renew_period);
        let attempt = self.attempt_timeout + RETRY_PAUSE;
        u32::try_from(room.as_nanos() / attempt.as_nanos().max(1)).unwrap_or(u32::MAX)
    }

    /// When a follower that saw a record of this `duration` at `o` may take it.
    #[must_use]
    pub fn takeable(self, o: Instant, duration: Duration) -> Instant {
        o + longer(duration, self.drift)
    }
}

impl Deadlines {
    /// The later of each: within one term validity only grows (law 1).
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { soft: self.soft.max(other.soft), hard: self.hard.max(other.hard), end: self.end.max(other.end) }
    }

    /// The earlier of each: only a release and the end of a wait move validity back (law 3).
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        Self { soft: self.soft.min(other.soft), hard: self.hard.min(other.hard), end: self.end.min(other.end) }
    }
}

/// `span * (1 - rho)`, rounded down: a holder counts less than it was given.
fn shorter(span: Duration, drift: u32) -> Duration {
    let part = span.as_nanos() * u128::from(drift);
    let lost = part.div_ceil(MILLION);
    from_nanos(span.as_nanos().saturating_sub(lost))
}

/// `span * (1 + rho)`, rounded up: a follower waits more than was given.
#[must_use]
pub fn longer(span: Duration, drift: u32) -> Duration {
    let part = span.as_nanos() * u128::from(drift);
    from_nanos(span.as_nanos() + part.div_ceil(MILLION))
}

/// `span / (1 + rho)`, rounded up: of what is recorded, [`longer`] is at least `span`.
#[must_use]
pub fn recorded(span: Duration, drift: u32) -> Duration {
    from_nanos((span.as_nanos() * MILLION).div_ceil(MILLION + u128::from(drift)))
}

fn from_nanos(nanos: u128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMING: Timing = Timing {
        duration: Duration::from_secs(15),
        renew_period: Duration::from_secs(3),
        attempt_timeout: Duration::from_secs(2),
        drift: 10_000,
        loss_grace: Duration::from_secs(4),
        kill_margin: Duration::from_secs(1),
    };

    #[test]
    fn the_default_timing_gives_the_numbers_of_the_law() {
        let deadlines = TIMING.deadlines(Instant::BOOT);

        assert_eq!(deadlines.end.since(Instant::BOOT), Duration::from_millis(14_850));
        assert_eq!(deadlines.hard.since(Instant::BOOT), Duration::from_millis(13_850));
        assert_eq!(deadlines.soft.since(Instant::BOOT), Duration::from_millis(9_850));
        assert_eq!(TIMING.takeable(Instant::BOOT, TIMING.duration).since(Instant::BOOT), Duration::from_millis(15_150));
        assert_eq!(TIMING.attempts(), 3);
    }

    #[test]
    fn a_holder_rounds_down_and_a_follower_up() {
        let timing = Timing { duration: Duration::from_nanos(1), drift: 1, ..TIMING };

        assert_eq!(timing.deadlines(Instant::from_nanos(10)).end, Instant::from_nanos(10));
        assert_eq!(timing.takeable(Instant::BOOT, timing.duration), Instant::from_nanos(2));
    }

    #[test]
    fn what_is_recorded_of_a_wait_is_waited_for_and_no_more() {
        let wait = |nanos| longer(Duration::from_nanos(nanos), 10_000);

        assert_eq!(recorded(wait(60_000_000_000), 10_000), Duration::from_secs(60));
        for nanos in [1, 99, 100, 101, 59_999_999_999] {
            let span = Duration::from_nanos(nanos);
            assert!(longer(recorded(span, 10_000), 10_000) >= span, "{span:?}");
        }
    }

    #[test]
    fn the_record_says_no_less_than_the_duration() {
        let seconds = |nanos| TIMING.with_duration(Duration::from_nanos(nanos)).duration_seconds();

        assert_eq!(seconds(20_000_000_000), 20);
        assert_eq!(seconds(20_000_000_001), 21);
    }

    #[test]
    fn no_duration_overflows() {
        let timing = TIMING.with_duration(Duration::from_secs(u64::from(u32::MAX)));

        assert!(timing.deadlines(Instant::NEVER).end > Instant::BOOT);
        assert_eq!(timing.takeable(Instant::NEVER, timing.duration), Instant::NEVER);
        assert_eq!(timing.with_duration(Duration::MAX).duration_seconds(), i32::MAX);
    }

    #[test]
    fn whatever_does_not_fit_leaves_no_attempts() {
        assert_eq!(TIMING.with_duration(Duration::from_secs(5)).attempts(), 0);
        assert_eq!(TIMING.with_duration(Duration::from_secs(12)).attempts(), 1);
    }

    #[test]
    fn the_later_and_the_earlier_are_taken_one_by_one() {
        let (a, b) = (TIMING.deadlines(Instant::BOOT), TIMING.deadlines(Instant::from_nanos(5)));

        assert_eq!(a.max(b), b);
        assert_eq!(a.min(b), a);
    }
}
