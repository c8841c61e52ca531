//! The single reaper.
//!
//! Owns waitpid: no other part of tenure's init waits for a child, so every exit status arrives here, those of orphans too.
//! What an end means is decided in `supervision::turn::children`.

use std::mem::MaybeUninit;

use nix::{errno::Errno, unistd::Pid};

use crate::{config::Signal, link::Exit};

/// A dead child that was not reaped yet; it stays. Until its pid is freed its process group can be signalled safely.
///
/// Ask until there is none after every SIGCHLD, and after every wake-up: SIGCHLDs coalesce.
///
/// # Errors
/// ECHILD: init has no child at all, dead or alive. Any other: a seccomp profile denies waitid(2).
pub fn peek() -> nix::Result<Option<Pid>> {
    Ok(waitid(None, libc::WEXITED | libc::WNOWAIT)?.map(|changed| changed.pid))
}

/// Reaps this child, if it is dead.
#[must_use]
pub fn take(child: Pid) -> Option<Exit> {
    let dead = waitid(Some(child), libc::WEXITED).ok()??;
    Some(match dead.code {
        libc::CLD_EXITED => Exit::Code(u8::try_from(dead.status).unwrap_or(u8::MAX)),
        _ => Exit::Signal(dead.status),
    })
}

/// The signal that stopped this child since it was last asked. It is not reaped.
#[must_use]
pub fn stopped_by(child: Pid) -> Option<Signal> {
    waitid(Some(child), libc::WSTOPPED).ok().flatten().map(|changed| Signal(changed.status))
}

/// Returns true if this child was continued since the last call.
#[must_use]
pub fn is_continued(child: Pid) -> bool {
    matches!(waitid(Some(child), libc::WCONTINUED), Ok(Some(_)))
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
