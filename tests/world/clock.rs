//! Real time, and how the clocks of a node show it.

use std::time::Duration;

use tenure::time::{Instant, Now, wait};

/// Real time in nanoseconds since the simulation began.
pub type Ns = u64;

/// A microsecond.
pub const US: Ns = 1_000;
/// A millisecond.
pub const MS: Ns = 1_000 * US;
/// A second.
pub const S: Ns = 1_000 * MS;

const MILLION: u128 = 1_000_000;

/// The clocks of one node: the hardware's runs at its own rate, the kernel's are slewed, the wall clock may show anything.
#[derive(Clone, Copy, Debug, Hash)]
pub struct Clock {
    /// Microseconds of the hardware's clock in a real second.
    pub rate: u32,
    /// Microseconds of the kernel's clocks and timers in a second of the hardware's.
    pub kernel: u32,
    /// How long the node was suspended before real time 0, in nanoseconds.
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

    /// The instant at `real`.
    pub fn boot(self, real: Ns) -> Instant {
        let (raw, monotonic) = (part(real.into(), self.rate), self.monotonic(real));
        Instant::of(raw, monotonic, monotonic + Duration::from_nanos(self.boot))
    }

    /// CLOCK_MONOTONIC at `real`.
    pub fn monotonic(self, real: Ns) -> Duration {
        part(part(real.into(), self.rate).as_nanos(), self.kernel)
    }

    /// The first real time at which the clock has reached `at`; never if `at` is never.
    pub fn real(self, at: Instant) -> Ns {
        if at == Instant::NEVER {
            return Ns::MAX;
        }
        let wanted = u128::from(at.as_nanos().saturating_sub(self.boot)) * MILLION;
        let mut real = u64::try_from(wanted.div_ceil(u128::from(self.rate))).unwrap_or(Ns::MAX);
        while self.boot(real) < at && real < Ns::MAX {
            real = real.saturating_add(nanos(at.since(self.boot(real))));
        }
        real
    }

    /// How much real time passes until a timer of the kernel's fires that is set to this wait.
    pub fn timer(self, wait: Duration) -> Ns {
        let wait = wait.as_nanos().max(1).saturating_mul(MILLION * MILLION);
        u64::try_from(wait.div_ceil(u128::from(self.rate) * u128::from(self.kernel))).unwrap_or(Ns::MAX)
    }

    /// The real time at which somebody who waits for `at` by such timers from `real` on finds that it has come.
    pub fn wakes(self, at: Instant, whole: Duration, mut real: Ns) -> Ns {
        while self.boot(real) < at && real < Ns::MAX {
            real = real.saturating_add(self.timer(wait(at.since(self.boot(real)), whole)));
        }
        real
    }
}

fn part(nanos: u128, rate: u32) -> Duration {
    Duration::from_nanos(u64::try_from(nanos * u128::from(rate) / MILLION).unwrap_or(u64::MAX))
}

/// The span in nanoseconds.
pub fn nanos(span: Duration) -> Ns {
    u64::try_from(span.as_nanos()).unwrap_or(Ns::MAX)
}
