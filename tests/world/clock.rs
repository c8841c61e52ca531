//! Real time, and how the clocks of a node show it.

use tenure::time::{Instant, Now};

/// Real time in nanoseconds since the simulation began.
pub type Ns = u64;

/// A microsecond.
pub const US: Ns = 1_000;
/// A millisecond.
pub const MS: Ns = 1_000 * US;
/// A second.
pub const S: Ns = 1_000 * MS;

const MILLION: u128 = 1_000_000;

/// The clocks of one node: BOOTTIME runs at its own rate, the wall clock may show anything.
#[derive(Clone, Copy, Debug, Hash)]
pub struct Clock {
    /// Microseconds of BOOTTIME in a real second.
    pub rate: u32,
    /// BOOTTIME at real time 0, in nanoseconds.
    pub boot: u64,
    /// The wall clock at real time 0, in microseconds since 1970.
    pub wall: i64,
}

impl Clock {
    /// Both clocks at `real`.
    pub fn now(self, real: Ns) -> Now {
        let micros = i64::try_from(real / US).unwrap_or(i64::MAX);
        Now { boot: self.boot(real), wall: self.wall.saturating_add(micros) }
    }

    /// BOOTTIME at `real`.
    pub fn boot(self, real: Ns) -> Instant {
        let passed = u128::from(real) * u128::from(self.rate) / MILLION;
        Instant::from_nanos(self.boot.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX)))
    }

    /// The first real time at which BOOTTIME has reached `at`; never if `at` is never.
    pub fn real(self, at: Instant) -> Ns {
        if at == Instant::NEVER {
            return Ns::MAX;
        }
        let wanted = u128::from(at.as_nanos().saturating_sub(self.boot)) * MILLION;
        u64::try_from(wanted.div_ceil(u128::from(self.rate))).unwrap_or(Ns::MAX)
    }
}
