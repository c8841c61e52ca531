//! Dispositions of signals as the kernel has them.
//!
//! Owns the system call that reads and sets one. musl's own refuses signal 34, which is glibc's SIGRTMIN: with it no child would
//! start of a tenure that sends this signal.

use std::ptr;

use nix::errno::Errno;

use super::mask;

/// What a signal does to this process, in the shape of the kernel. (A C library's call puts its own shape into this one.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Disposition {
    handler: libc::sighandler_t,
    flags: libc::c_ulong,
    restorer: usize,
    mask: u64,
}

impl Disposition {
    /// The kernel's own.
    pub const DEFAULT: Self = Self { handler: libc::SIG_DFL, flags: 0, restorer: 0, mask: 0 };

    /// Dropped as it arrives.
    pub const IGNORED: Self = Self { handler: libc::SIG_IGN, ..Self::DEFAULT };

    /// Returns true if the signal is dropped.
    pub const fn ignores(self) -> bool {
        self.handler == libc::SIG_IGN
    }

    /// The signal's at present. Async-signal-safe.
    ///
    /// # Errors
    /// EINVAL if there is no such signal.
    #[expect(unsafe_code, reason = "the C library's call knows fewer signals")]
    pub fn of(signal: i32) -> nix::Result<Self> {
        let mut found = Self::DEFAULT;
        // SAFETY: with a null new disposition the call only fills the old one, which is ours and as large as the kernel's.
        let result = unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, ptr::null::<Self>(), &raw mut found, mask::SIZE) };
        Errno::result(result).map(|_| found)
    }

    /// Makes it the signal's. Async-signal-safe.
    ///
    /// # Errors
    /// EINVAL if there is no such signal, or it cannot be caught.
    #[expect(unsafe_code, reason = "the C library's call knows fewer signals")]
    pub fn set(self, signal: i32) -> nix::Result<()> {
        // SAFETY: it is the default, ignores, or was read from the kernel, so that a handler may run, and knows how to return.
        let result =
            unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, &raw const self, ptr::null_mut::<Self>(), mask::SIZE) };
        Errno::result(result).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Signal;

    #[test]
    fn each_real_time_signal_has_one_those_too_that_a_c_library_keeps_to_itself() {
        // musl keeps three, glibc the first two of them.
        for signal in 32..=*Signal::REAL_TIME.end() {
            let before = Disposition::of(signal).unwrap();

            Disposition::IGNORED.set(signal).unwrap();

            assert_eq!(Disposition::of(signal).map(Disposition::ignores), Ok(true), "{signal}");
            before.set(signal).unwrap();
            assert_eq!(Disposition::of(signal), Ok(before), "{signal}");
        }
        assert_eq!(Disposition::DEFAULT.set(libc::SIGKILL), Err(Errno::EINVAL));
    }
}
