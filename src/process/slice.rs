//! A shorter time slice, so that a busy machine lets tenure run sooner after it wakes.
//!
//! Owns sched_setattr(2). Needs no privilege: EEVDF runs a task with a shorter slice earlier. Children get the default slice
//! again.

use std::io;

use libc::sched_attr;
use nix::errno::Errno;

/// The shortest that the kernel grants.
const SLICE_NANOS: u64 = 100_000;

/// Asks for the shortest slice for this process, unless its policy or nice value already favours it: what resets the slice of
/// children would reset that too.
///
/// # Errors
/// The call is refused (seccomp), or the kernel has no per-task slices (before 6.12).
pub fn shorten() -> io::Result<()> {
    let mut attributes = get()?;
    if attributes.sched_policy != libc::SCHED_OTHER as u32 || attributes.sched_nice < 0 {
        return Ok(());
    }
    attributes.sched_runtime = SLICE_NANOS;
    attributes.sched_flags |= libc::SCHED_FLAG_RESET_ON_FORK as u64;
    set(&attributes)?;
    if get()?.sched_runtime == SLICE_NANOS { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) }
}

#[expect(unsafe_code, reason = "nix does not wrap it")]
fn get() -> nix::Result<sched_attr> {
    // SAFETY: a struct of numbers, into which the kernel writes at most its size.
    unsafe {
        let mut attributes: sched_attr = std::mem::zeroed();
        let got = libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size_of::<sched_attr>(), 0);
        Errno::result(got).map(|_| attributes)
    }
}

#[expect(unsafe_code, reason = "nix does not wrap it")]
fn set(attributes: &sched_attr) -> nix::Result<()> {
    // SAFETY: the kernel reads the struct's own `size` bytes, as get() left it.
    Errno::result(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, std::ptr::from_ref(attributes), 0) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_slice_is_granted_or_refused_but_never_pretended() {
        let shortened = shorten();

        let attributes = get().expect("a kernel with sched_getattr");
        assert_eq!(shortened.is_ok(), attributes.sched_runtime == SLICE_NANOS, "{shortened:?}");
        let resets = attributes.sched_flags & libc::SCHED_FLAG_RESET_ON_FORK as u64 != 0;
        assert!(resets || shortened.is_err(), "children would keep it");
    }
}
