//! The single reaper.
//!
//! Owns waitpid: no other part of tenure's init waits for a child, so every exit status arrives here, the orphans' too.

use std::mem::MaybeUninit;

use nix::{errno::Errno, unistd::Pid};

use crate::{config::Signal, link::Exit};

/// Reaps one dead child, if there is one. Before its pid is freed, `before` hears of it: the last moment to signal its process
/// group ("signal the group before reaping its leader").
///
/// To be called until None after every SIGCHLD, and after every wake-up: SIGCHLDs coalesce.
pub fn next(before: impl FnOnce(Pid)) -> Option<(Pid, Exit)> {
    let pid = peek()?;
    before(pid);
    let exit = bury(pid)?;
    Some((pid, exit))
}

/// A dead child that was not reaped yet. It stays.
#[must_use]
#[allow(unsafe_code, reason = "nix's waitid fails on children that a real-time signal killed")]
pub fn peek() -> Option<Pid> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    loop {
        // SAFETY: info is a zeroed siginfo_t of our own, which waitid leaves alone or fills for a dead child.
        let (result, pid) = unsafe {
            let result = libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), flags);
            (result, info.assume_init_ref().si_pid())
        };
        match Errno::result(result) {
            Ok(_) => return (pid > 0).then(|| Pid::from_raw(pid)),
            Err(Errno::EINTR) => {}
            Err(_) => return None,
        }
    }
}

/// Whether this child is dead, and not reaped yet. It stays.
#[must_use]
#[allow(unsafe_code, reason = "as for peek")]
pub fn is_dead(child: Pid) -> bool {
    let Ok(id) = child.as_raw().try_into() else { return false };
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: as in peek.
    let (result, pid) = unsafe {
        let result = libc::waitid(libc::P_PID, id, info.as_mut_ptr(), flags);
        (result, info.assume_init_ref().si_pid())
    };
    result == 0 && pid == child.as_raw()
}

/// The signal that stopped this child since it was last asked. It is not reaped.
#[must_use]
#[allow(unsafe_code, reason = "as for peek")]
pub fn stopped_by(child: Pid) -> Option<Signal> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let id = child.as_raw().try_into().ok()?;
    // SAFETY: as in peek; the kernel fills the status of a child that stopped.
    let (result, pid, signal) = unsafe {
        let result = libc::waitid(libc::P_PID, id, info.as_mut_ptr(), libc::WSTOPPED | libc::WNOHANG);
        let info = info.assume_init_ref();
        (result, info.si_pid(), info.si_status())
    };
    (result == 0 && pid == child.as_raw()).then_some(Signal(signal))
}

/// Whether init has no child at all, dead or alive.
#[must_use]
#[allow(unsafe_code, reason = "as for peek")]
pub fn is_childless() -> bool {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: as in peek.
    let result = unsafe { libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), flags) };
    Errno::result(result) == Err(Errno::ECHILD)
}

#[allow(unsafe_code, reason = "nix's waitpid loses children that a real-time signal killed")]
fn bury(pid: Pid) -> Option<Exit> {
    let mut status = 0;
    loop {
        // SAFETY: status is a live local.
        let result = unsafe { libc::waitpid(pid.as_raw(), &raw mut status, libc::WNOHANG) };
        match Errno::result(result) {
            Ok(0) => return None,
            Ok(_) if libc::WIFSIGNALED(status) => return Some(Exit::Signal(libc::WTERMSIG(status))),
            Ok(_) => return Some(Exit::Code(u8::try_from(libc::WEXITSTATUS(status)).unwrap_or(u8::MAX))),
            Err(Errno::EINTR) => {}
            Err(_) => return None,
        }
    }
}
