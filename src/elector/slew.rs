//! Watches the correction of this node's clock rate. The law holds only if `lease.clockDrift` covers it.

use std::time::Duration;

use crate::{clock, config::Drift, time::Instant};

/// About how often a time service changes its correction.
const EVERY: Duration = Duration::from_secs(60);

/// Logs when the correction exceeds `lease.clockDrift`, and when it no longer does.
pub(super) struct Slew {
    /// rho in parts per million.
    allowed: u32,
    exceeds: bool,
    due: Instant,
}

impl Slew {
    pub(super) const fn new(allowed: u32) -> Self {
        Self { allowed, exceeds: false, due: Instant::BOOT }
    }

    /// Reads the correction, if that is due, and logs a change.
    pub(super) fn look(&mut self, now: Instant) {
        if now < self.due {
            return;
        }
        self.due = now + EVERY;
        let Ok(slew) = clock::slew() else { return };
        match self.judge(slew) {
            Some(true) => tracing::warn!(
                correction = %Drift(slew),
                "the kernel corrects this clock by more than lease.clockDrift covers, so that two workloads may run at once: raise \
                 it, or let the time service slew more slowly"
            ),
            Some(false) => {
                tracing::info!(correction = %Drift(slew), "lease.clockDrift covers the correction of this clock again")
            }
            None => {}
        }
    }

    /// Returns true if the correction exceeds the allowed one, if that has changed.
    fn judge(&mut self, slew: u32) -> Option<bool> {
        let exceeds = slew > self.allowed;
        (std::mem::replace(&mut self.exceeds, exceeds) != exceeds).then_some(exceeds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_is_told_once() {
        let mut slew = Slew::new(10_000);

        let told = [0, 10_000, 10_001, 83_333, 500, 0].map(|parts| slew.judge(parts));

        assert_eq!(told, [None, None, Some(true), None, Some(false), None]);
    }
}
