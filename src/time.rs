//! Instants and spans of the one clock that the law uses: CLOCK_BOOTTIME.
//!
//! Owns the types. Never reads a clock: the edges (`crate::clock`) do that, and hand instants to the deciding rooms. BOOTTIME
//! keeps counting while the machine is suspended, so a leader finds its deadlines past on resume.

use std::{
    fmt,
    ops::{Add, AddAssign},
    time::Duration,
};

use serde::{Deserialize, Serialize};

/// A point on CLOCK_BOOTTIME in nanoseconds since boot; the same for every process of a machine.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Instant(u64);

impl Instant {
    /// The machine's boot.
    pub const BOOT: Self = Self(0);
    /// Later than every instant that a machine reaches.
    pub const NEVER: Self = Self(u64::MAX);

    /// The instant this many nanoseconds after boot.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since boot.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long this instant is after `earlier`; zero if it is not.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The earlier of this instant and the other, if there is one.
    #[must_use]
    pub fn or_earlier(self, other: Option<Self>) -> Self {
        other.map_or(self, |other| other.min(self))
    }

    /// This instant moved back, at most to the boot.
    #[must_use]
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(span)))
    }
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
    /// CLOCK_BOOTTIME, read before the input is handled.
    pub boot: Instant,
    /// Microseconds since 1970, read at about the same time.
    pub wall: i64,
}
