//! Reads the clocks for the edges.
//!
//! Owns the only calls that read CLOCK_BOOTTIME and the wall clock, but for the one in a forked child, where only what is
//! async-signal-safe may be called. The deciding rooms are handed what it reads.
#![allow(clippy::disallowed_methods, reason = "the room that reads the clocks")]

use std::time::Duration;

use jiff::Timestamp;
use nix::time::{ClockId, clock_gettime};

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

/// How long the machine has slept since it was booted: by so much CLOCK_MONOTONIC, and the kernel's timers with it, stand behind.
/// Two readings differ by the time between two calls at least.
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

/// Microseconds since 1970 on the wall clock; 0 if it stands before that.
#[must_use]
pub fn wall() -> i64 {
    timestamp().as_microsecond().max(0)
}

/// Both clocks, BOOTTIME first.
#[must_use]
pub fn now() -> Now {
    Now { boot: boot(), wall: wall() }
}
