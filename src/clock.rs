//! Reads the clocks for the edges.
//!
//! Owns the only calls that read CLOCK_BOOTTIME and the wall clock, except the one in a forked child, where only
//! async-signal-safe functions may be called. The deciding rooms are given what it reads.
#![allow(clippy::disallowed_methods, reason = "the room that reads the clocks")]

use std::time::Duration;

use jiff::Timestamp;
use nix::{
    errno::Errno,
    time::{ClockId, clock_gettime},
};

use crate::time::{Instant, Now};

/// CLOCK_BOOTTIME.
///
/// # Panics
/// Never on Linux 2.6.39 or newer: the clock exists and its time is not negative.
#[must_use]
pub fn boot() -> Instant {
    read(ClockId::CLOCK_BOOTTIME)
}

fn read(clock: ClockId) -> Instant {
    let read = clock_gettime(clock).unwrap_or_else(|errno| panic!("{clock}: {errno}"));
    let seconds = u64::try_from(read.tv_sec()).unwrap_or_default();
    let nanos = u32::try_from(read.tv_nsec()).unwrap_or_default();
    Instant::BOOT + Duration::new(seconds, nanos)
}

/// How long the machine has been suspended since boot: CLOCK_MONOTONIC, and the kernel's timers with it, are behind by this much.
/// Inexact by at least the time between the reads of the two clocks.
///
/// # Panics
/// As [`boot`].
#[must_use]
pub fn slept() -> Duration {
    let awake = read(ClockId::CLOCK_MONOTONIC);
    boot().since(awake)
}

/// The wall clock, for people.
#[must_use]
pub fn timestamp() -> Timestamp {
    Timestamp::now()
}

/// Microseconds since 1970 on the wall clock; 0 if it is before that.
#[must_use]
pub fn wall() -> i64 {
    timestamp().as_microsecond().max(0)
}

/// Both clocks, BOOTTIME first.
#[must_use]
pub fn now() -> Now {
    Now { boot: boot(), wall: wall() }
}

/// `tick` of a clock that is not adjusted: microseconds at 100 ticks a second.
const TICK: i64 = 10_000;
/// One microsecond more or less per tick is this many parts per million.
const PER_TICK: i64 = 100;
/// `freq` is in parts per million, scaled by this.
const FREQUENCY: i64 = 1 << 16;

/// By how many parts per million the kernel makes CLOCK_BOOTTIME run faster or slower.
///
/// # Errors
/// Any error of adjtimex(2).
#[expect(unsafe_code, reason = "nix has no adjtimex")]
pub fn slew() -> Result<u32, Errno> {
    // SAFETY: a timex of zeroes is a request that changes nothing, and the kernel writes no more than the struct.
    let timex = unsafe {
        let mut timex: libc::timex = std::mem::zeroed();
        Errno::result(libc::adjtimex(&raw mut timex))?;
        timex
    };
    Ok(parts_per_million(timex.freq, timex.tick))
}

fn parts_per_million(frequency: i64, tick: i64) -> u32 {
    let parts = frequency / FREQUENCY + (tick - TICK).saturating_mul(PER_TICK);
    u32::try_from(parts.unsigned_abs()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequency_and_ticks_add_up_in_parts_per_million() {
        assert_eq!(parts_per_million(0, TICK), 0);
        assert_eq!(parts_per_million(500 * FREQUENCY, TICK), 500);
        assert_eq!(parts_per_million(-500 * FREQUENCY, TICK - 1), 600);
        assert_eq!(parts_per_million(0, 11_000), 100_000);
    }
}
