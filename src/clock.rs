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
/// So many nanoseconds in a second are one part per million.
const NANOS: i64 = 1_000;
/// The kernel's: of an offset, it corrects 2 to the power of minus this and of minus `constant` in a second.
const SHIFT_PLL: u32 = 2;

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
    let nanos = if timex.status & libc::STA_NANO == 0 { 1_000 } else { 1 };
    let correction = in_a_second(timex.offset.saturating_mul(nanos), timex.constant);
    Ok(parts_per_million(timex.freq, timex.tick, correction))
}

/// How many of these nanoseconds the kernel's loop corrects within the next second: systemd-timesyncd corrects by it.
fn in_a_second(offset: i64, constant: i64) -> i64 {
    let shift = u32::try_from(constant.max(0)).unwrap_or(u32::MAX).saturating_add(SHIFT_PLL);
    1_i64.checked_shl(shift).filter(|part| *part > 0).map_or(0, |part| offset / part)
}

fn parts_per_million(frequency: i64, tick: i64, correction: i64) -> u32 {
    let parts = frequency / FREQUENCY + (tick - TICK).saturating_mul(PER_TICK) + correction / NANOS;
    u32::try_from(parts.unsigned_abs()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequency_and_ticks_add_up_in_parts_per_million() {
        assert_eq!(parts_per_million(0, TICK, 0), 0);
        assert_eq!(parts_per_million(500 * FREQUENCY, TICK, 0), 500);
        assert_eq!(parts_per_million(-500 * FREQUENCY, TICK - 1, 0), 600);
        assert_eq!(parts_per_million(0, 11_000, 0), 100_000);
        assert_eq!(parts_per_million(-500 * FREQUENCY, TICK, 50_000_000), 49_500);
    }

    #[test]
    fn an_offset_is_corrected_by_a_part_that_halves_with_each_step_of_the_constant() {
        let offset = 400_000_000;
        assert_eq!([0, 1, 6].map(|constant| in_a_second(offset, constant)), [100_000_000, 50_000_000, 1_562_500]);
        assert_eq!(in_a_second(-offset, 1), -50_000_000);
        assert_eq!([61, 62, 1 << 40].map(|constant| in_a_second(i64::MAX, constant)), [0; 3]);
    }
}
