//! The one timer of the loop: an absolute instant, and nothing armed twice.

use std::os::fd::{AsFd, BorrowedFd};

use nix::poll::PollTimeout;

use crate::{alarm::Alarm, clock, time::Instant};

/// Opened once something is to be waited for.
pub(super) struct Timer {
    alarm: Option<Alarm>,
    armed: Instant,
}

impl Timer {
    pub(super) const fn new() -> Self {
        Self { alarm: None, armed: Instant::NEVER }
    }

    /// Readable when its time has come.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.alarm.as_ref().map(AsFd::as_fd)
    }

    /// Sets it; returns how long poll may sleep beside it.
    pub(super) fn arm(&mut self, until: Instant) -> PollTimeout {
        if until == Instant::NEVER && self.alarm.is_none() {
            return PollTimeout::NONE;
        }
        let now = clock::boot();
        if until <= now {
            return PollTimeout::ZERO;
        }
        if self.alarm.is_none() {
            self.alarm = Alarm::nonblocking().ok();
        }
        let Some(alarm) = &self.alarm else { return coarse(until) };
        if self.armed <= now {
            // An expiry that was not read would end every poll at once.
            drop(alarm.wait());
            self.armed = Instant::NEVER;
        }
        if self.armed != until {
            if alarm.set(until).is_err() {
                return coarse(until);
            }
            self.armed = until;
        }
        PollTimeout::NONE
    }
}

/// Without a timer: poll's own timeout, which does not run during a suspend.
fn coarse(until: Instant) -> PollTimeout {
    let left = until.since(clock::boot()).as_millis().saturating_add(1);
    PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
}
