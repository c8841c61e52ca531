//! Whether this node's clock is corrected faster than the law assumes.

use nix::errno::Errno;

use super::Report;
use crate::config::Drift;

/// Kernel ticks of a clock that is not corrected: microseconds at 100 ticks a second.
const TICK: i64 = 10_000;
/// One tick more or less is this many parts per million.
const PER_TICK: i64 = 100;
/// `freq` counts parts per million in this many parts.
const FREQUENCY: i64 = 1 << 16;

pub(super) fn check(allowed: Drift, report: &mut Report) {
    report.section("clock");
    match slew() {
        Ok(slew) if slew > allowed.0 => report.note(&format!(
            "the kernel corrects this clock by {slew} parts per million, more than lease.clockDrift ({}) covers: raise it, or let the \
             time service step or slew more slowly",
            allowed.0
        )),
        Ok(slew) => report.good(&format!("corrected by {slew} parts per million, lease.clockDrift covers {}", allowed.0)),
        Err(errno) => report.note(&format!("how far it is corrected cannot be read here ({errno}); lease.clockDrift covers {} ppm", allowed.0)),
    }
}

/// By how many parts per million the kernel makes the clock run faster or slower.
#[allow(unsafe_code, reason = "nix has no adjtimex")]
fn slew() -> Result<u32, Errno> {
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
