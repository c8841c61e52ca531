//! The one timer of the loop: an absolute instant, and nothing armed twice.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use nix::poll::PollTimeout;

use crate::{alarm::Alarm, clock, time::Instant};

/// Readable when its time has come.
pub(super) struct Timer {
    alarm: Alarm,
    armed: Instant,
}

impl Timer {
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self { alarm: Alarm::nonblocking()?, armed: Instant::NEVER })
    }

    /// Sets it; returns how long poll may sleep beside it.
    pub(super) fn arm(&mut self, until: Instant) -> PollTimeout {
        let now = clock::boot();
        if until <= now {
            return PollTimeout::ZERO;
        }
        if self.armed <= now {
            // An expiry that was not read would end every poll at once.
            let _ = self.alarm.wait();
            self.armed = Instant::NEVER;
        }
        if self.armed != until {
            if self.alarm.set(until).is_err() {
                return PollTimeout::ZERO;
            }
            self.armed = until;
        }
        PollTimeout::NONE
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.alarm.as_fd()
    }
}
