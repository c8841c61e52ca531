//! Signal masks as the kernel has them.
//!
//! Owns the two system calls that take one. musl's own sets leave out signal 34, which is glibc's SIGRTMIN: with them it would
//! end init, and be lost from the mask that a program was started with.

use std::{
    io,
    os::fd::{FromRawFd as _, OwnedFd},
};

use nix::{
    errno::Errno,
    sys::signalfd::{SfdFlags, SignalFd},
};

/// Signals, the first one in the lowest bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mask(u64);

impl Mask {
    /// Every signal but the two that glibc's threads use.
    pub const ALL: Self = Self(!0).without(32).without(33);

    /// No signal.
    pub const NONE: Self = Self(0);

    /// With this one, if there is such a signal.
    pub fn with(self, signal: i32) -> Self {
        Self(self.0 | if (1..=64).contains(&signal) { 1 << (signal - 1) } else { 0 })
    }

    /// Returns true if the signal is in the mask.
    pub const fn has(self, signal: i32) -> bool {
        self.0 >> (signal - 1) & 1 == 1
    }

    /// Without this one.
    pub const fn without(self, signal: i32) -> Self {
        Self(self.0 & !(1 << (signal - 1)))
    }

    /// Without all of these.
    pub const fn lacking(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Blocks exactly these, and returns what was blocked before. Async-signal-safe.
    ///
    /// # Errors
    /// Any error of rt_sigprocmask(2).
    #[expect(unsafe_code, reason = "the C library's call knows other masks")]
    pub fn set(self) -> nix::Result<Self> {
        let mut before = Self(0);
        // SAFETY: both are eight bytes, which the last argument says, and live until the call returns.
        let result =
            unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const self.0, &raw mut before.0, SIZE) };
        Errno::result(result).map(|_| before)
    }

    /// A signalfd for them, non-blocking and close-on-exec.
    ///
    /// # Errors
    /// Any error of signalfd(2).
    #[expect(unsafe_code, reason = "the C library's call knows other masks")]
    pub fn descriptor(self) -> io::Result<SignalFd> {
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        // SAFETY: as above; the descriptor is new, one of a signalfd, and nobody else's.
        unsafe {
            let made = Errno::result(libc::syscall(libc::SYS_signalfd4, -1, &raw const self.0, SIZE, flags.bits()))?;
            let made = i32::try_from(made).map_err(io::Error::other)?;
            Ok(SignalFd::from_owned_fd(OwnedFd::from_raw_fd(made)))
        }
    }
}

/// Bytes of a set of signals, as its system calls ask for them.
pub(super) const SIZE: usize = size_of::<u64>();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_is_what_was_there() {
        let mine = Mask::ALL.without(libc::SIGSEGV);
        let before = mine.set().unwrap();

        let there = before.set().unwrap();

        // The kernel blocks neither SIGKILL nor SIGSTOP.
        assert_eq!(there, mine.without(libc::SIGKILL).without(libc::SIGSTOP));
        assert_ne!(there, there.without(34), "which musl leaves out");
    }
}
