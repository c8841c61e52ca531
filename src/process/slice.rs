//! A shorter time slice, so that a busy machine lets tenure run sooner after it wakes.
//!
//! Owns sched_setattr(2). Needs no privilege: EEVDF runs a task with a shorter slice earlier. Children get the default slice
//! again.

use std::io;

/// The shortest that the kernel grants.
const SLICE_NANOS: u64 = 100_000;

/// sched_attr of sched_setattr(2), in its first version.
#[repr(C)]
#[derive(Debug, Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

const SIZE: u32 = size_of::<Attributes>() as u32;

/// Asks for the shortest slice for this process, unless its policy or nice value already favours it: what resets the slice of
/// children would reset that too.
///
/// # Errors
/// It is refused (seccomp), or the kernel has no per-task slices (before 6.12).
pub fn shorten() -> io::Result<()> {
    let mut attributes = get()?;
    if attributes.policy != libc::SCHED_OTHER as u32 || attributes.nice < 0 {
        return Ok(());
    }
    attributes.runtime = SLICE_NANOS;
    attributes.flags |= libc::SCHED_FLAG_RESET_ON_FORK as u64;
    set(&attributes)?;
    if get()?.runtime == SLICE_NANOS { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) }
}

#[expect(unsafe_code, reason = "nix does not wrap it")]
fn get() -> io::Result<Attributes> {
    let mut attributes = Attributes::default();
    // SAFETY: the kernel writes at most SIZE bytes to our own struct, which has no invalid values.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, SIZE, 0) };
    if got == 0 { Ok(attributes) } else { Err(io::Error::last_os_error()) }
}

#[expect(unsafe_code, reason = "nix does not wrap it")]
fn set(attributes: &Attributes) -> io::Result<()> {
    // SAFETY: the kernel reads the struct's own `size` bytes, as get() left it.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, std::ptr::from_ref(attributes), 0) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_short_slice_is_granted_or_refused_but_never_pretended() {
        // A thread of its own: it keeps the slice.
        let granted = std::thread::spawn(granted).join().unwrap();

        let shortened = shorten();

        let Attributes { runtime, flags, .. } = get().expect("a kernel with sched_getattr");
        assert_eq!(shortened.is_ok(), runtime == SLICE_NANOS, "{shortened:?} {runtime}");
        if matches!(granted, Ok(SLICE_NANOS)) {
            assert!(shortened.is_ok() && flags & libc::SCHED_FLAG_RESET_ON_FORK as u64 != 0, "{shortened:?} {flags:x}");
        } else {
            let said = format!("NOT RUN: whether the slice is short where the kernel grants that (Linux 6.12): {granted:?}\n");
            // Unlike a macro's, such a line is shown although the test passes.
            io::stderr().write_all(said.as_bytes()).unwrap();
        }
    }

    /// The slice that this thread has once it has asked for a short one.
    fn granted() -> io::Result<u64> {
        set(&Attributes { runtime: SLICE_NANOS, ..get()? })?;
        Ok(get()?.runtime)
    }
}
