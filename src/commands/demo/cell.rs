//! A PID namespace of its own for a replica, as a container would have.
//!
//! Owns two faces of this binary: the outer one makes the namespace and waits, the inner one is its PID 1 until it becomes the
//! replica. Where namespaces are not allowed, the replica is a process among others. Both die with whoever started them.

use std::{
    convert::Infallible,
    fs, io,
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    process::{Command, ExitStatus, Stdio},
};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    sys::{prctl::set_pdeathsig, signal::Signal},
    unistd::{getegid, geteuid},
};

use crate::{cli::Cell, console::complain, exit};

/// Whether this user may create PID namespaces here.
pub(super) fn is_possible() -> io::Result<bool> {
    let mut probe = Command::new(std::env::current_exe()?);
    probe.args(["demo", "cell"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(probe.status()?.success())
}

/// The outer face; returns the replica's exit code.
pub(super) fn outer(cell: &Cell) -> u8 {
    match contain(cell) {
        Ok(status) => code(status),
        Err(error) => {
            complain(&format!("the demo's cell fails: {error}"));
            exit::INTERNAL
        }
    }
}

fn contain(cell: &Cell) -> io::Result<ExitStatus> {
    if cell.plain {
        set_pdeathsig(Signal::SIGKILL)?;
        match become_replica(cell)? {}
    }
    enter()?;
    // Not earlier: entering a user namespace clears it.
    set_pdeathsig(Signal::SIGKILL)?;
    Command::new(std::env::current_exe()?).args(["demo", "inner", "--"]).args(&cell.arguments).status()
}

/// The inner face, PID 1; returns the exit code if it cannot become the replica.
pub(super) fn inner(cell: &Cell) -> u8 {
    let prepared = set_pdeathsig(Signal::SIGKILL).and_then(|()| mount_proc());
    let became = match prepared {
        Ok(()) if cell.arguments.is_empty() => return 0,
        Ok(()) => become_replica(cell),
        Err(errno) => Err(errno.into()),
    };
    match became {
        Ok(never) => match never {},
        Err(error) => {
            complain(&format!("the demo's replica does not start: {error}"));
            exit::INTERNAL
        }
    }
}

fn become_replica(cell: &Cell) -> io::Result<Infallible> {
    Err(Command::new(std::env::current_exe()?).arg("run").args(&cell.arguments).exec())
}

/// Makes the next child PID 1 of a new namespace. Without the privilege for that, a new user namespace grants it.
fn enter() -> io::Result<()> {
    let flags = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS;
    if unshare(flags).is_ok() {
        return Ok(());
    }
    let (user, group) = (geteuid(), getegid());
    unshare(flags | CloneFlags::CLONE_NEWUSER)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1"))
}

fn mount_proc() -> nix::Result<()> {
    const NOTHING: Option<&str> = None;
    mount(NOTHING, "/", NOTHING, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NOTHING)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), flags, NOTHING)
}

fn code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    u8::try_from(code).unwrap_or(u8::MAX)
}
