//! A CLOCK_BOOTTIME timer that fires at an absolute time.
//!
//! Other timers (tokio's, and poll's timeout) stop while the machine is suspended. This one keeps counting, and fires at once on
//! resume if its time has passed.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    time::Duration,
};

use nix::sys::{
    time::TimeSpec,
    timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
};

use crate::time::Instant;

/// The timer. One read of its descriptor consumes an expiration.
#[derive(Debug)]
pub(crate) struct Alarm(TimerFd);

impl Alarm {
    /// A timer whose [`Self::wait`] blocks.
    pub(crate) fn blocking() -> io::Result<Self> {
        let timer = TimerFd::new(ClockId::CLOCK_BOOTTIME, TimerFlags::TFD_CLOEXEC)?;
        Ok(Self(timer))
    }

    /// A timer for an event loop.
    pub(crate) fn nonblocking() -> io::Result<Self> {
        let timer = TimerFd::new(ClockId::CLOCK_BOOTTIME, TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK)?;
        Ok(Self(timer))
    }

    /// Fires at `at`, at once if that is past, and never for [`Instant::NEVER`]. Replaces the previous setting.
    pub(crate) fn set(&self, at: Instant) -> io::Result<()> {
        if at == Instant::NEVER {
            self.0.unset()?;
            return Ok(());
        }
        // Zero would disarm it.
        let at = Duration::from_nanos(at.as_nanos().max(1));
        self.0.set(Expiration::OneShot(TimeSpec::from_duration(at)), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
        Ok(())
    }

    /// Consumes an expiration; waits for one if the timer blocks.
    pub(crate) fn wait(&self) -> io::Result<()> {
        self.0.wait()?;
        Ok(())
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Alarm {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn it_fires_at_its_time_and_not_before() {
        let alarm = Alarm::blocking().unwrap();
        let at = clock::boot() + Duration::from_millis(20);

        alarm.set(at).unwrap();
        alarm.wait().unwrap();

        assert!(clock::boot() >= at);
    }

    #[test]
    fn a_time_that_is_past_fires_at_once() {
        let alarm = Alarm::blocking().unwrap();

        alarm.set(Instant::BOOT).unwrap();

        alarm.wait().unwrap();
    }

    #[test]
    fn it_counts_while_the_machine_is_suspended() {
        for alarm in [Alarm::blocking().unwrap(), Alarm::nonblocking().unwrap()] {
            let shown = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", alarm.as_raw_fd())).unwrap();

            assert!(shown.lines().any(|line| line == format!("clockid: {}", libc::CLOCK_BOOTTIME)), "{shown}");
        }
    }

    #[test]
    fn unset_it_does_not_fire() {
        let alarm = Alarm::nonblocking().unwrap();

        alarm.set(Instant::BOOT).unwrap();
        alarm.set(Instant::NEVER).unwrap();

        assert_eq!(alarm.wait().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
