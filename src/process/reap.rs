//! The single reaper.
//!
//! Owns waitpid: no other part of tenure's init waits for a child, so every exit status arrives here, those of orphans too.

use std::mem::MaybeUninit;

use nix::{errno::Errno, unistd::Pid};

use crate::{config::Signal, link::Exit};

/// Reaps one dead child, if there is one. Before its pid is freed, `before` is called with it: the last moment to signal its
/// process group ("signal the group before reaping its leader").
///
/// Call it until `None` after every SIGCHLD, and after every wake-up: SIGCHLDs coalesce.
pub fn next(before: impl FnOnce(Pid)) -> Option<(Pid, Exit)> {
    let pid = peek()?;
    before(pid);
    let exit = reap(pid)?;
    Some((pid, exit))
}

/// A dead child that was not reaped yet. It stays.
#[must_use]
pub fn peek() -> Option<Pid> {
    let changed = waitid(libc::P_ALL, 0, libc::WEXITED | libc::WNOWAIT);
    changed.ok().flatten().map(|(pid, _)| pid)
}

/// Whether this child is dead, and not reaped yet. It stays.
#[must_use]
pub fn is_dead(child: Pid) -> bool {
    let Ok(id) = child.as_raw().try_into() else { return false };
    matches!(waitid(libc::P_PID, id, libc::WEXITED | libc::WNOWAIT), Ok(Some(_)))
}

/// The signal that stopped this child since it was last asked. It is not reaped.
#[must_use]
pub fn stopped_by(child: Pid) -> Option<Signal> {
    let id = child.as_raw().try_into().ok()?;
    let (_, signal) = waitid(libc::P_PID, id, libc::WSTOPPED).ok()??;
    Some(Signal(signal))
}

/// Whether init has no child at all, dead or alive.
#[must_use]
pub fn is_childless() -> bool {
    waitid(libc::P_ALL, 0, libc::WEXITED | libc::WNOWAIT) == Err(Errno::ECHILD)
}

/// The child that changed as asked, and its status; `None` if none has. Never waits.
#[expect(unsafe_code, reason = "nix's waitid fails on children that a real-time signal killed")]
fn waitid(kind: libc::idtype_t, id: libc::id_t, changes: i32) -> nix::Result<Option<(Pid, i32)>> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    loop {
        // SAFETY: info is a zeroed siginfo_t of our own, which waitid leaves alone or fills for a child that changed.
        let (result, pid, status) = unsafe {
            let result = libc::waitid(kind, id, info.as_mut_ptr(), changes | libc::WNOHANG);
            let info = info.assume_init_ref();
            (result, info.si_pid(), info.si_status())
        };
        match Errno::result(result) {
            Ok(_) => return Ok((pid > 0).then(|| (Pid::from_raw(pid), status))),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

#[expect(unsafe_code, reason = "nix's waitpid loses children that a real-time signal killed")]
fn reap(pid: Pid) -> Option<Exit> {
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
