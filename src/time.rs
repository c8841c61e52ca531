//! Instants and spans of the one clock that the law uses: the hardware's, which no time service slews.
//!
//! Owns the types, and the formulas between this clock and the kernel's timers, which are slewed. Never reads a clock: the edges
//! (`crate::clock`) do that, and hand instants to the deciding rooms. The clock keeps counting while the machine is suspended, so a
//! leader finds its deadlines past on resume.

use std::{
    fmt,
    ops::{Add, AddAssign},
    time::Duration,
};

use serde::{Deserialize, Serialize};

/// A point on the hardware's clock in nanoseconds since boot; the same for every process of a machine.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Instant(u64);

impl Instant {
    /// The machine's boot.
    pub const BOOT: Self = Self(0);
    /// Later than every instant that a machine reaches.
    pub const NEVER: Self = Self(u64::MAX);

    /// The instant this many nanoseconds after boot.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The instant at which a kernel's three clocks read this, the first of them first. CLOCK_MONOTONIC_RAW is the hardware's. The
    /// others differ by the time for which the machine was suspended, which the first one lacks.
    pub fn of(raw: Duration, monotonic: Duration, boottime: Duration) -> Self {
        Self::BOOT + (raw + boottime.saturating_sub(monotonic))
    }

    /// What a kernel's clock will show at this instant, if it shows `now` at `exact`. What is past stays past for as long. A tenth of
    /// what is left is taken off a clock that is slowed, which would be late.
    pub fn shown(self, exact: Self, now: Duration, slows: bool) -> Duration {
        let left = self.since(exact);
        (now + if slows { early(left) } else { left }).saturating_sub(exact.since(self))
    }

    /// Nanoseconds since boot.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long this instant is after `earlier`; zero if it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The earlier of this instant and the other, if there is one.
    pub fn or_earlier(self, other: Option<Self>) -> Self {
        other.map_or(self, |other| other.min(self))
    }

    /// This instant moved back, at most to the boot.
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(span)))
    }
}

/// The longest wait that a kernel timer is set to whole, where an instant is not to be missed.
pub const EXACT: Duration = Duration::from_millis(10);

/// How long to set a kernel timer to, if this is left until an instant. Whoever waits looks again when the timer fires.
///
/// A time service slows kernel timers by 9 % at most. Nine tenths are waited for first, if more than `whole` is left. What is waited
/// for whole may be late by those 9 %. The small extra covers corrections that are usual, which would cost one more wake-up.
pub fn wait(left: Duration, whole: Duration) -> Duration {
    if left > whole { early(left) } else { left + left / 1_000 }
}

/// Nine tenths: a clock that is slowed by 9 % does not take longer for them than the hardware's for the whole.
fn early(left: Duration) -> Duration {
    left / 10 * 9
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Saturates at [`Instant::NEVER`]: a Lease may carry a duration of 68 years.
impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos(span)))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NEVER {
            return f.write_str("never");
        }
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// The clock readings that a deciding room gets with every input.
///
/// Only `boot` decides whether two workloads may run at once; `wall` is written into records, and tells when a task is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Now {
    /// The hardware's clock, read before the input is handled.
    pub boot: Instant,
    /// Microseconds since 1970, read at about the same time.
    pub wall: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_service_moves_an_instant_and_a_suspend_counts() {
        let of = |raw, monotonic, boottime| Instant::of(seconds(raw), seconds(monotonic), seconds(boottime));

        assert_eq!([of(100, 108, 108), of(100, 92, 92)], [Instant::BOOT + seconds(100); 2]);
        assert_eq!(of(100, 108, 608), Instant::BOOT + seconds(600));
    }

    #[test]
    fn who_waits_by_a_slewed_timer_is_never_a_noticeable_part_late() {
        for (rate, whole, late) in [(91, EXACT, 1), (100, EXACT, 0), (109, EXACT, 0), (91, seconds(3), 300)] {
            let (mut left, mut overtime) = (seconds(60), Duration::ZERO);
            while !left.is_zero() {
                let took = (wait(left, whole) * 100 / rate).max(Duration::from_micros(1));
                (left, overtime) = (left.saturating_sub(took), took.saturating_sub(left));
            }
            assert!(overtime <= Duration::from_millis(late) + Duration::from_micros(20), "{rate}: {overtime:?}");
        }
    }

    #[test]
    fn the_kernel_is_told_an_instant_on_its_own_clock_and_earlier_while_that_is_slowed() {
        let (exact, now) = (Instant::from_nanos(1_000), Duration::from_nanos(50_000));
        let shown = |nanos, slows| Instant::from_nanos(nanos).shown(exact, now, slows).as_nanos();

        assert_eq!([shown(1_200, false), shown(1_200, true)], [50_200, 50_180]);
        assert_eq!([shown(400, false), shown(400, true)], [49_400, 49_400]);
        assert!(shown(u64::MAX, true) > u128::from(u64::MAX / 10 * 9));
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }
}
