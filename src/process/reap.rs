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
    let dead = waitid(Some(pid), libc::WEXITED).ok()??;
    let exit = match dead.code {
        libc::CLD_EXITED => Exit::Code(u8::try_from(dead.status).unwrap_or(u8::MAX)),
        _ => Exit::Signal(dead.status),
    };
    Some((pid, exit))
}

/// A dead child that was not reaped yet. It stays.
#[must_use]
pub fn peek() -> Option<Pid> {
    waitid(None, libc::WEXITED | libc::WNOWAIT).ok().flatten().map(|changed| changed.pid)
}

/// Whether this child is dead, and not reaped yet. It stays.
#[must_use]
pub fn is_dead(child: Pid) -> bool {
    matches!(waitid(Some(child), libc::WEXITED | libc::WNOWAIT), Ok(Some(_)))
}

/// The signal that stopped this child since it was last asked. It is not reaped.
#[must_use]
pub fn stopped_by(child: Pid) -> Option<Signal> {
    waitid(Some(child), libc::WSTOPPED).ok().flatten().map(|changed| Signal(changed.status))
}

/// Whether this child was continued since it was last asked.
#[must_use]
pub fn is_continued(child: Pid) -> bool {
    matches!(waitid(Some(child), libc::WCONTINUED), Ok(Some(_)))
}

/// Whether init has no child at all, dead or alive.
#[must_use]
pub fn is_childless() -> bool {
    matches!(waitid(None, libc::WEXITED | libc::WNOWAIT), Err(Errno::ECHILD))
}

/// A child that changed, and how.
struct Changed {
    pid: Pid,
    code: i32,
    status: i32,
}

/// This or any child that changed as asked; `None` if none has. Never waits.
#[expect(unsafe_code, reason = "nix's waitid fails on children that a real-time signal killed")]
fn waitid(child: Option<Pid>, changes: i32) -> nix::Result<Option<Changed>> {
    let (kind, id) = child.map_or((libc::P_ALL, 0), |child| (libc::P_PID, child.as_raw().cast_unsigned()));
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    loop {
        // SAFETY: info is a zeroed siginfo_t of our own, which waitid leaves alone or fills for a child that changed.
        let (result, changed) = unsafe {
            let result = libc::waitid(kind, id, info.as_mut_ptr(), changes | libc::WNOHANG);
            let info = info.assume_init_ref();
            (result, Changed { pid: Pid::from_raw(info.si_pid()), code: info.si_code, status: info.si_status() })
        };
        match Errno::result(result) {
            Ok(_) => return Ok((changed.pid.as_raw() > 0).then_some(changed)),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}
