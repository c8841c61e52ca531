//! Real time, and what the clocks of a node make of it.

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

/// The clocks of one node: BOOTTIME runs at a rate of its own, the wall clock says what it likes.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// BOOTTIME's millionths of a second in a real second.
    pub rate: u32,
    /// BOOTTIME at real time 0, in nanoseconds.
    pub boot: u64,
    /// The wall clock at real time 0, in microseconds since 1970.
    pub wall: i64,
}

impl Clock {
    /// What both clocks say at `real`.
    pub fn now(self, real: Ns) -> Now {
        let micros = i64::try_from(real / US).unwrap_or(i64::MAX);
        Now { boot: self.boot(real), wall: self.wall.saturating_add(micros) }
    }

    /// What BOOTTIME says at `real`.
    pub fn boot(self, real: Ns) -> Instant {
        let passed = u128::from(real) * u128::from(self.rate) / MILLION;
        Instant::from_nanos(self.boot.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX)))
    }

    /// The first real time at which BOOTTIME has reached `at`; never for an instant that is never.
    pub fn real(self, at: Instant) -> Ns {
        if at == Instant::NEVER {
            return Ns::MAX;
        }
        let wanted = u128::from(at.as_nanos().saturating_sub(self.boot)) * MILLION;
        u64::try_from(wanted.div_ceil(u128::from(self.rate))).unwrap_or(Ns::MAX)
    }
}
