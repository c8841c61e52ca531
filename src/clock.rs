//! Reads the clocks for the edges.
//!
//! Owns the only calls that read the kernel's clocks and the wall clock. The deciding rooms are given what it reads. A child between
//! fork and execve may call [`boot`] too.
#![allow(clippy::disallowed_methods, reason = "the room that reads the clocks")]

use std::time::Duration;

use jiff::Timestamp;
use nix::{
    errno::Errno,
    time::{ClockId, clock_gettime},
};

use crate::time::{Instant, Now};

/// The limit on the time between two readings that belong together, and on the attempts to read them so.
const TOGETHER: Duration = Duration::from_micros(10);
const ATTEMPTS: u32 = 100;

/// The hardware's clock, with the time for which the machine was suspended. Async-signal-safe.
///
/// # Panics
/// Never on Linux 2.6.39 or newer: the clocks exist and their times are not negative.
pub fn boot() -> Instant {
    // First: a suspend that comes between the readings counts then.
    let raw = read(ClockId::CLOCK_MONOTONIC_RAW);
    let (monotonic, boottime) = kernel();
    Instant::of(raw, monotonic, boottime)
}

/// CLOCK_MONOTONIC and CLOCK_BOOTTIME, which are slewed, at about the same time.
fn kernel() -> (Duration, Duration) {
    let mut best = (Duration::MAX, Duration::ZERO, Duration::ZERO);
    for _ in 0..ATTEMPTS {
        let (monotonic, boottime) = (monotonic(), boottime());
        best = best.min((self::monotonic().saturating_sub(monotonic), monotonic, boottime));
        if best.0 < TOGETHER {
            break;
        }
    }
    (best.1, best.2)
}

fn read(clock: ClockId) -> Duration {
    let read = clock_gettime(clock).unwrap_or_else(|errno| panic!("{clock}: {errno}"));
    let seconds = u64::try_from(read.tv_sec()).unwrap_or_default();
    let nanos = u32::try_from(read.tv_nsec()).unwrap_or_default();
    Duration::new(seconds, nanos)
}

/// CLOCK_MONOTONIC: what the kernel's own timeouts count.
pub(crate) fn monotonic() -> Duration {
    read(ClockId::CLOCK_MONOTONIC)
}

/// CLOCK_BOOTTIME: what programs compare the term page with.
pub fn boottime() -> Duration {
    read(ClockId::CLOCK_BOOTTIME)
}

/// How long the machine has been suspended since boot: CLOCK_MONOTONIC, and the kernel's timers with it, are behind by this much.
/// Inexact by at most the time between the reads of the two clocks.
pub fn slept() -> Duration {
    let (monotonic, boottime) = kernel();
    boottime.saturating_sub(monotonic)
}

/// What a kernel's clock that reads `now` will read at `at`.
pub fn on_kernel_clock(at: Instant, now: Duration) -> Duration {
    at.shown(boot(), now, slows())
}

/// The wall clock, for people.
pub fn timestamp() -> Timestamp {
    Timestamp::now()
}

/// Microseconds since 1970 on the wall clock; 0 if it is before that.
pub fn wall() -> i64 {
    timestamp().as_microsecond().max(0)
}

/// Both clocks, the hardware's first.
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

/// A larger correction than this many parts per million is no usual one: a time service slews.
const USUAL: i64 = 1_000;

/// Returns true if a time service makes the kernel's clocks run slower now. False where adjtimex(2) is refused.
#[expect(unsafe_code, reason = "nix has no adjtimex")]
fn slows() -> bool {
    // SAFETY: a timex of zeroes is a request that changes nothing, and the kernel writes no more than the struct.
    let timex = unsafe {
        let mut timex: libc::timex = std::mem::zeroed();
        if Errno::result(libc::adjtimex(&raw mut timex)).is_err() {
            return false;
        }
        timex
    };
    let nanos = if timex.status & libc::STA_NANO == 0 { 1_000 } else { 1 };
    let correction = in_a_second(timex.offset.saturating_mul(nanos), timex.constant);
    parts_per_million(timex.freq, timex.tick, correction) < -USUAL
}

/// How many of these nanoseconds the kernel's loop corrects within the next second: systemd-timesyncd corrects by it.
fn in_a_second(offset: i64, constant: i64) -> i64 {
    let shift = u32::try_from(constant.max(0)).unwrap_or(u32::MAX).saturating_add(SHIFT_PLL);
    1_i64.checked_shl(shift).filter(|part| *part > 0).map_or(0, |part| offset / part)
}

/// By how much the kernel's clocks run faster.
fn parts_per_million(frequency: i64, tick: i64, correction: i64) -> i64 {
    frequency / FREQUENCY + (tick - TICK).saturating_mul(PER_TICK) + correction / NANOS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hardware_s_clock_goes_on_and_agrees_with_the_others_while_nothing_is_slewed() {
        let (before, earlier) = (boot(), boottime());
        std::thread::sleep(Duration::from_millis(50));
        let (after, later) = (boot(), boottime());

        assert!(after > before && after.since(before).abs_diff(later - earlier) < Duration::from_millis(10));
        assert!(boottime().saturating_sub(monotonic()).abs_diff(slept()) < Duration::from_millis(10));
    }

    #[test]
    fn frequency_and_ticks_add_up_in_parts_per_million() {
        assert_eq!(parts_per_million(0, TICK, 0), 0);
        assert_eq!(parts_per_million(500 * FREQUENCY, TICK, 0), 500);
        assert_eq!(parts_per_million(-500 * FREQUENCY, TICK - 1, 0), -600);
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
