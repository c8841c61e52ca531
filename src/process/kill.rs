//! Sends signals, SIGSTOP to a frozen standby, and SIGKILL until nobody is left.
//!
//! Owns every kill(2) of init and the elector, and the proof of death that permits a release (law 8). Never waits: a pass takes as
//! long as a scan, and its caller makes another when children were reaped or some time is over.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use nix::{errno::Errno, unistd::Pid};

use crate::{
    config::Signal,
    process::scan::{Process, ScanError, Scanner, Scope, Spare},
};

/// Signals one process. The caller knows that it has not been reaped.
///
/// # Errors
/// Any error of kill(2); EINVAL for a pid that names a group, everything, or PID 1.
pub fn send(pid: Pid, signal: Signal) -> io::Result<()> {
    if pid.as_raw() <= 1 {
        return Err(Errno::EINVAL.into());
    }
    Ok(kill(pid.as_raw(), signal)?)
}

/// Signals a process group, of which the leader or another member has not been reaped: "signal the group before reaping its
/// leader".
///
/// # Errors
/// Any error of kill(2); EINVAL for 0 and 1.
pub fn send_group(group: Pid, signal: Signal) -> io::Result<()> {
    if group.as_raw() <= 1 {
        return Err(Errno::EINVAL.into());
    }
    Ok(kill(-group.as_raw(), signal)?)
}

/// Returns true if this process group is empty, without even a zombie.
pub fn is_group_gone(group: Pid) -> bool {
    send_group(group, Signal(0)).is_err_and(|error| error.raw_os_error() == Some(libc::ESRCH))
}

/// `kill(-1, SIGKILL)`: every process of the PID namespace but init, the elector included, in one step of the kernel.
///
/// # Errors
/// EPERM unless called by PID 1: there it would kill the machine. ESRCH if nobody is left.
pub fn kill_everything() -> io::Result<()> {
    require_pid1()?;
    Ok(kill(-1, Signal::KILL)?)
}

/// The same by a child of PID 1: every process of the PID namespace that it may kill, but PID 1 and itself. The caller knows that
/// PID 1 is tenure's init: a child whose own init died has the machine's PID 1 for a parent.
///
/// # Errors
/// EPERM unless called by a child of PID 1: there it would kill the machine. ESRCH if nobody is left.
pub fn kill_everything_but_init() -> io::Result<()> {
    if Pid::parent().as_raw() != 1 {
        return Err(Errno::EPERM.into());
    }
    Ok(kill(-1, Signal::KILL)?)
}

/// Returns true if init is alone in its PID namespace, without even a zombie. Asks the kernel in one call, not /proc.
///
/// # Errors
/// EPERM unless called by PID 1.
pub fn is_alone() -> io::Result<bool> {
    require_pid1()?;
    // Signal 0 to everybody: ESRCH means that there is no one; processes that init may not signal count as present.
    match kill(-1, Signal(0)) {
        Ok(()) => Ok(false),
        Err(Errno::ESRCH) => Ok(true),
        Err(errno) => Err(errno.into()),
    }
}

/// The result of a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nobody is left; the proof of law 8.
    Proved,
    /// Somebody is left, or may be.
    Left(Left),
}

/// The reason why a pass was not clean.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// The targets, zombies included. None: some may have been missed, or /proc hides processes, so that only [`kill_everything`]
    /// leads to a proof.
    pub pids: Vec<Pid>,
    /// Some of them may not be killed: they belong to another user (EPERM), or a security module forbids it (EACCES).
    pub refused: bool,
}

/// SIGKILL to all that /proc shows, pass by pass until one is clean; for init, and for the elector's guard (which proves nothing:
/// init reaps).
#[derive(Debug)]
pub struct KillSweep {
    /// The scanner that finds the targets.
    pub scanner: Scanner,
}

impl KillSweep {
    /// Opens /proc.
    ///
    /// # Errors
    /// [`ScanError`].
    pub fn open() -> Result<Self, ScanError> {
        Ok(Self { scanner: Scanner::open()? })
    }

    /// Kills all of `scope` but `spare`, or proves that nobody is left to kill.
    ///
    /// The proof is two clean scans in one call; nobody is reaped during a call (see [`scan`](crate::process::scan)), and a
    /// zombie is not clean, so reap first. As PID 1 with no elector to spare, [`is_alone`] has to agree; for
    /// [`Scope::Descendants`] it is enough that init has no other child.
    ///
    /// # Errors
    /// If /proc cannot be listed: then nothing is proved, and PID 1 is left with [`kill_everything`]. EPERM for
    /// [`Scope::Namespace`] unless called by PID 1: on a plain host it would be the whole machine.
    pub fn pass(&mut self, scope: Scope<'_>, spare: Spare<'_>) -> io::Result<Verdict> {
        if scope == Scope::Namespace {
            require_pid1()?;
        }
        self.twice(scope, spare, Signal::KILL)
    }

    /// The same as [`KillSweep::pass`], without killing anything.
    ///
    /// # Errors
    /// As [`KillSweep::pass`].
    pub fn look(&mut self, scope: Scope<'_>, spare: Spare<'_>) -> io::Result<Verdict> {
        self.twice(scope, spare, Signal(0))
    }

    /// Sends SIGSTOP to all descendants of init but `spare`. Returns them once every thread of theirs is stopped, by two scans:
    /// what is stopped forks nobody, so [`Scanner::stopped`] need look at no others from then on.
    ///
    /// # Errors
    /// If /proc cannot be listed.
    pub fn freeze(&mut self, spare: Spare<'_>) -> io::Result<Option<Vec<Process>>> {
        let mut stopped = Vec::new();
        for _ in 0..2 {
            stopped.clear();
            let found = self.scanner.find(Scope::Descendants, spare)?;
            let mut is_clean = found.unclear == 0;
            for process in found.targets {
                if process.is_stopped() {
                    stopped.push(*process);
                } else if !process.is_gone() {
                    is_clean = false;
                    // A process that may not be stopped never looks stopped.
                    let _ = send_identified(found.scanner, process, Signal::STOP);
                }
            }
            if !is_clean {
                return Ok(None);
            }
        }
        Ok((!self.scanner.is_partial()).then_some(stopped))
    }

    /// SIGKILL to those of them that are there, without a scan.
    pub fn kill_known(&self, known: &[Process]) {
        for process in known {
            // An error means that it is gone.
            let _ = send_identified(&self.scanner, process, Signal::KILL);
        }
    }

    fn twice(&mut self, scope: Scope<'_>, spare: Spare<'_>, signal: Signal) -> io::Result<Verdict> {
        for _ in 0..2 {
            let (left, unclear) = self.once(scope, spare, signal)?;
            if scope == Scope::Descendants
                && left.pids.is_empty()
                && self.scanner.other_children(spare).is_some_and(|all| all.is_empty())
            {
                return Ok(Verdict::Proved);
            }
            if unclear > 0 || !left.pids.is_empty() {
                return Ok(Verdict::Left(left));
            }
        }
        let proved = match scope {
            Scope::Namespace if spare.electors.is_empty() => is_alone()?,
            Scope::Namespace | Scope::Descendants | Scope::Leftovers { .. } => !self.scanner.is_partial(),
        };
        Ok(if proved { Verdict::Proved } else { Verdict::Left(Left::default()) })
    }

    fn once(&mut self, scope: Scope<'_>, spare: Spare<'_>, signal: Signal) -> io::Result<(Left, usize)> {
        let found = self.scanner.find(scope, spare)?;
        let mut left = Left::default();
        for process in found.targets {
            let sent = match scope {
                // A pid that was freed and taken since the scan names somebody who is to die too, or a plugin, which is run again.
                Scope::Namespace => kill(process.pid.as_raw(), signal),
                Scope::Descendants | Scope::Leftovers { .. } => send_identified(found.scanner, process, signal),
            };
            left.pids.push(process.pid);
            left.refused |= matches!(sent, Err(Errno::EPERM | Errno::EACCES)) && process.state != b'Z';
        }
        let unclear = found.unclear;
        if scope == Scope::Descendants {
            // /proc hides a process that nobody may trace, from its own user too. The pid of a child is its own until it is reaped.
            let mut hidden = self.scanner.other_children(spare).unwrap_or_default();
            hidden.retain(|pid| !left.pids.contains(pid));
            for pid in hidden {
                left.refused |= matches!(kill(pid.as_raw(), signal), Err(Errno::EPERM | Errno::EACCES));
                left.pids.push(pid);
            }
        }
        Ok((left, unclear))
    }
}

/// Signals exactly this process: since the scan, its parent may have freed its pid, and a stranger taken it.
fn send_identified(scanner: &Scanner, process: &Process, signal: Signal) -> nix::Result<()> {
    let handle = pidfd_open(process.pid);
    if scanner.look(process.pid).is_none_or(|now| now.start != process.start) {
        return Err(Errno::ESRCH);
    }
    match handle.and_then(|handle| pidfd_send(handle.as_fd(), signal)) {
        Ok(()) => Ok(()),
        Err(Errno::ESRCH) => Err(Errno::ESRCH),
        Err(_) => kill(process.pid.as_raw(), signal),
    }
}

fn require_pid1() -> nix::Result<()> {
    if Pid::this().as_raw() == 1 { Ok(()) } else { Err(Errno::EPERM) }
}

/// kill(2); async-signal-safe.
#[expect(unsafe_code, reason = "nix's kill knows no real-time signals")]
pub(crate) fn kill(target: i32, signal: Signal) -> nix::Result<()> {
    // SAFETY: kill takes no pointers; who may be targeted is checked by the callers.
    Errno::result(unsafe { libc::kill(target, signal.0) }).map(drop)
}

/// A handle that names this process even after its pid was recycled.
#[expect(unsafe_code, reason = "nix does not wrap it")]
pub(crate) fn pidfd_open(pid: Pid) -> nix::Result<OwnedFd> {
    // SAFETY: no pointers; a result that is not negative is a new descriptor that nobody else owns.
    unsafe {
        let fd = Errno::result(libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0))?;
        Ok(OwnedFd::from_raw_fd(fd as i32))
    }
}

/// Signals the process of a handle; async-signal-safe.
#[expect(unsafe_code, reason = "nix does not wrap it")]
pub(crate) fn pidfd_send(handle: BorrowedFd<'_>, signal: Signal) -> nix::Result<()> {
    let no_info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: the descriptor is open, and a null siginfo means what kill(2) would send.
    let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, handle.as_raw_fd(), signal.0, no_info, 0) };
    Errno::result(sent).map(drop)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, ExitStatus};

    use super::*;

    #[test]
    fn a_pid_that_was_recycled_is_not_signalled() {
        use std::os::unix::process::ExitStatusExt as _;
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let scanner = Scanner::open().unwrap();
        let now = scanner.look(Pid::from_raw(child.id().cast_signed())).unwrap();
        let before = Process { start: now.start - 1, ..now };

        let to_another = send_identified(&scanner, &before, Signal(libc::SIGUSR1));
        let to_this_one = send_identified(&scanner, &now, Signal::KILL);

        assert_eq!((to_another, to_this_one), (Err(Errno::ESRCH), Ok(())));
        assert_eq!(child.wait().as_ref().ok().and_then(ExitStatus::signal), Some(libc::SIGKILL));
    }
}
