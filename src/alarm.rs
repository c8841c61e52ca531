//! A timer for who waits for an instant.
//!
//! The kernel's timers run on clocks that a time service may slew, so this one may fire early or late;
//! [`time::wait`](crate::time::wait) says by how much. Whoever waits looks at the clock when it fires. It counts while the machine is suspended, and
//! fires at once on resume if its time has passed. Other timers (tokio's, and poll's timeout) stop meanwhile.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    time::Duration,
};

use nix::sys::{
    time::TimeSpec,
    timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
};

use crate::{
    clock,
    time::{EXACT, Instant, wait},
};

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

    /// Fires after this wait. Replaces the previous setting.
    pub(crate) fn set(&self, wait: Duration) -> io::Result<()> {
        // Zero would disarm it.
        let wait = wait.max(Duration::from_nanos(1));
        self.0.set(Expiration::OneShot(TimeSpec::from_duration(wait)), TimerSetTimeFlags::empty())?;
        Ok(())
    }

    /// Fires when the clock may show `at`, and hardly later. Never for [`Instant::NEVER`].
    pub(crate) fn set_for(&self, at: Instant) -> io::Result<()> {
        self.set(wait(at.since(clock::boot()), EXACT))
    }

    /// Consumes an expiration; waits for one if the timer blocks.
    pub(crate) fn wait(&self) -> io::Result<()> {
        self.0.wait()?;
        Ok(())
    }
}

/// Waits until the clock shows `at`. Late where the machine is suspended meanwhile.
pub(crate) async fn sleep_until(at: Instant) {
    loop {
        let left = at.since(clock::boot());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(wait(left, EXACT)).await;
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

    /// Waits as everybody does: fires, and looks again. Returns how often.
    fn await_instant(alarm: &Alarm, at: Instant) -> u32 {
        let mut fired = 0;
        while clock::boot() < at {
            alarm.set_for(at).unwrap();
            alarm.wait().unwrap();
            fired += 1;
        }
        fired
    }

    #[test]
    fn an_instant_is_reached_after_a_few_looks_at_the_clock() {
        let alarm = Alarm::blocking().unwrap();

        let fired = [1_500, 5].map(|millis| await_instant(&alarm, clock::boot() + Duration::from_millis(millis)));

        assert!((3..8).contains(&fired[0]) && fired[1] < 4, "{fired:?}");
    }

    #[test]
    fn a_time_that_is_past_fires_at_once() {
        let alarm = Alarm::blocking().unwrap();

        alarm.set_for(Instant::BOOT).unwrap();

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
    fn one_that_waits_for_ever_does_not_fire() {
        let alarm = Alarm::nonblocking().unwrap();

        alarm.set_for(Instant::BOOT).unwrap();
        alarm.set_for(Instant::NEVER).unwrap();

        assert_eq!(alarm.wait().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
