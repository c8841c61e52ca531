//! The child between fork and execve: async-signal-safe system calls only, no allocation, no return.

use std::{
    ffi::c_char,
    ops::Range,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, RawFd},
};

use nix::{
    errno::Errno,
    sys::resource::{Resource, getrlimit, setrlimit},
    unistd::Pid,
};

use super::{
    Command, Failure, Outcome, ProcessGroup, RoleSignal, Setup, Step,
    handling::{Handling, Receipt, StatusFiles},
};
use crate::{
    clock,
    config::Signal,
    law::is_over,
    link,
    process::{
        disposition::Disposition,
        fuse, kill,
        signals::Inherited,
        sockets::{self, Entry},
    },
    time::Instant,
};

/// Bytes of a report: step (counted from 1; 0: late), errno.
pub(super) const REPORT: usize = 5;

/// The status of a child whose signal was sent, but not taken.
const UNTAKEN: i32 = 1;
/// Milliseconds between two looks at a process that does not handle its signal yet, or has not taken it: the first, and the
/// longest.
const PAUSES: (i32, i32) = (1, 16);

/// Does the work, reports to `end` what prevented that, and exits.
pub(super) fn run(work: impl FnOnce() -> Result<Outcome, Failure>, parent: Pid, end: RawFd) -> ! {
    match die_with(parent).and_then(|()| work()) {
        Ok(Outcome::Done) => exit(0),
        Ok(Outcome::Late) => tell(end, 0, 0),
        Ok(Outcome::Failed(failure)) | Err(failure) => tell(end, failure.step as u8 + 1, failure.errno as i32),
    }
}

pub(super) fn decode(report: [u8; REPORT]) -> Outcome {
    let [step, a, b, c, d] = report;
    match Step::ALL.into_iter().find(|known| *known as u8 + 1 == step) {
        Some(step) => Outcome::Failed(Failure { step, errno: Errno::from_raw(i32::from_ne_bytes([a, b, c, d])) }),
        None => Outcome::Late,
    }
}

fn check(step: Step, result: i32) -> Result<(), Failure> {
    Errno::result(result).map(drop).map_err(|errno| Failure { step, errno })
}

#[expect(unsafe_code, reason = "async-signal-safe system calls between fork and execve")]
fn die_with(parent: Pid) -> Result<(), Failure> {
    // SAFETY: the calls take numbers.
    unsafe {
        check(Step::DieWithInit, libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
        // Init has died, and nobody reads this, or the child is in another PID namespace, where its end would not be init's.
        if libc::getppid() == parent.as_raw() { Ok(()) } else { Err(Failure { step: Step::DieWithInit, errno: Errno::ESRCH }) }
    }
}

/// Makes the child of the setup, and executes the command. `sockets` are the descriptors that it is handed, and the entry of its
/// environment that is to name this process.
#[expect(unsafe_code, reason = "async-signal-safe system calls between fork and execve")]
pub(super) fn execute(
    command: &Command,
    setup: &Setup<'_>,
    null: Option<RawFd>,
    score: Option<&[u8]>,
    arguments: &[*const c_char],
    environment: &[*const c_char],
    sockets: Option<&(Range<RawFd>, *mut Entry)>,
) -> Result<Outcome, Failure> {
    // SAFETY: the calls take numbers, or pointers to what the parent prepared and this child's own copy keeps alive.
    unsafe {
        match setup.group {
            ProcessGroup::Own => check(Step::Prepare, libc::setpgid(0, 0))?,
            ProcessGroup::Foreground(terminal) => {
                check(Step::Prepare, libc::setpgid(0, 0))?;
                // A terminal that has hung up since is no reason to fail.
                libc::tcsetpgrp(terminal.as_fd().as_raw_fd(), libc::getpid());
            }
            ProcessGroup::Session => check(Step::Prepare, libc::setsid())?,
        }
        if let Some(fuse) = setup.fuse {
            // Init may be stopped before it could do this. An extra guard: without it two are left.
            let _ = fuse::own(fuse, Pid::from_raw(libc::getpid()));
        }
        if let Some(null) = null {
            check(Step::Prepare, libc::dup2(null, libc::STDIN_FILENO))?;
        }
        if let Some(output) = setup.output {
            check(Step::Prepare, libc::dup2(output.as_raw_fd(), libc::STDOUT_FILENO))?;
            check(Step::Prepare, libc::dup2(output.as_raw_fd(), libc::STDERR_FILENO))?;
        }
        match setup.link.map(|link| link.as_raw_fd()) {
            Some(link::FD) => check(Step::Prepare, libc::fcntl(link::FD, libc::F_SETFD, 0))?,
            Some(link) => check(Step::Prepare, libc::dup2(link, link::FD))?,
            None => {}
        }
        if let Some(kept) = command.kept {
            check(Step::Prepare, libc::fcntl(kept, libc::F_SETFD, 0))?;
        }
        if let Some((numbers, entry)) = sockets {
            for number in numbers.clone() {
                check(Step::Prepare, libc::fcntl(number, libc::F_SETFD, 0))?;
            }
            **entry = sockets::entry(Pid::from_raw(libc::getpid()));
        }
        if let Some(score) = score {
            // The file belongs to root where the memory is closed to others.
            libc::prctl(libc::PR_SET_DUMPABLE, 1);
            let file = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
            libc::prctl(libc::PR_SET_DUMPABLE, 0);
            libc::write(file, score.as_ptr().cast(), score.len());
        }
        give_back(setup.inherited).map_err(|errno| Failure { step: Step::Prepare, errno })?;
        if is_late(setup.not_after) {
            return Ok(Outcome::Late);
        }
        check(Step::Execute, libc::execve(command.program.as_ptr(), arguments.as_ptr(), environment.as_ptr()))?;
    }
    Ok(Outcome::Done)
}

/// The state that tenure was started with.
fn give_back(inherited: Inherited) -> nix::Result<()> {
    if let Some(soft) = inherited.descriptors {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard)?;
    }
    let sent = (1..=64).filter(|signal| inherited.sent.has(*signal)).map(|signal| (signal, false));
    for (signal, ignored) in
        [(libc::SIGPIPE, inherited.ignores_pipe), (libc::SIGCHLD, inherited.ignores_child)].into_iter().chain(sent)
    {
        let disposition = if ignored { Disposition::IGNORED } else { Disposition::DEFAULT };
        disposition.set(signal)?;
    }
    inherited.mask.lacking(inherited.sent).set().map(drop)
}

pub(super) fn deliver(
    role_signal: &RoleSignal<'_>,
    handle: Option<BorrowedFd<'_>>,
    files: &StatusFiles,
) -> Result<Outcome, Failure> {
    let RoleSignal { pid, signal, not_after, mark, until_taken } = *role_signal;
    if not_after.is_some() {
        await_handler(signal, files, not_after);
    }
    if let Some(mark) = mark {
        mark.set().map_err(|errno| Failure { step: Step::Mark, errno })?;
    }
    if is_late(not_after) {
        return Ok(Outcome::Late);
    }
    let sent = match handle {
        Some(handle) => kill::pidfd_send(handle, signal),
        None => kill::kill(pid.as_raw(), signal),
    };
    sent.map_err(|errno| Failure { step: Step::Signal, errno })?;
    if until_taken && !is_taken(signal, files, not_after) {
        exit(UNTAKEN);
    }
    Ok(Outcome::Done)
}

pub(super) fn resume(pids: &[Pid], not_after: Instant) -> Result<Outcome, Failure> {
    let mut continued = false;
    for pid in pids {
        match is_late(Some(not_after)) {
            true if continued => exit(UNTAKEN),
            true => return Ok(Outcome::Late),
            false => {}
        }
        kill::kill(pid.as_raw(), Signal::CONT).map_err(|errno| Failure { step: Step::Signal, errno })?;
        continued = true;
    }
    Ok(Outcome::Done)
}

/// Returns when the process handles the signal, or it is too late.
fn await_handler(signal: Signal, files: &StatusFiles, not_after: Option<Instant>) {
    let (mut pause, _) = PAUSES;
    while !is_late(not_after) && files.handling(signal) != Handling::Yes {
        pause = wait(pause);
    }
}

/// Waits for the process to take the signal. Returns false if it is gone without that, or it is too late.
fn is_taken(signal: Signal, files: &StatusFiles, not_after: Option<Instant>) -> bool {
    let (mut pause, _) = PAUSES;
    loop {
        match files.receipt(signal) {
            Receipt::Taken => return true,
            Receipt::Gone => return false,
            Receipt::Pending if is_late(not_after) => return false,
            Receipt::Pending => pause = wait(pause),
        }
    }
}

/// Waits that many milliseconds; returns how many to wait next.
#[expect(unsafe_code, reason = "async-signal-safe system call")]
pub(super) fn wait(milliseconds: i32) -> i32 {
    // SAFETY: no descriptors, and so no pointer that is read.
    unsafe { libc::poll(std::ptr::null_mut(), 0, milliseconds) };
    let (_, longest) = PAUSES;
    (milliseconds * 2).min(longest)
}

fn is_late(not_after: Option<Instant>) -> bool {
    not_after.is_some_and(|not_after| is_over(not_after, clock::boot()))
}

/// Marks every descriptor above standard error close-on-exec. None is open from `open_end` on.
#[expect(unsafe_code, reason = "async-signal-safe system calls")]
pub(super) fn close_on_execute(open_end: Option<RawFd>) {
    // The kernel's own bound on the limit (fs.nr_open), unless that was raised.
    const MOST_OPEN: i32 = 1 << 20;
    if close_on_execute_from(link::FD) {
        return;
    }
    // Init itself opens with O_CLOEXEC; this is for what it was started with.
    let limit = || {
        let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((1024, 1024));
        i32::try_from(soft).map_or(MOST_OPEN, |end| end.min(MOST_OPEN))
    };
    for fd in link::FD..open_end.unwrap_or_else(limit) {
        // SAFETY: the call takes numbers.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

/// Marks every descriptor from `first` on close-on-exec. Returns false if the call is refused, or older than Linux 5.11.
#[expect(unsafe_code, reason = "async-signal-safe system call")]
pub(super) fn close_on_execute_from(first: RawFd) -> bool {
    const CLOSE_RANGE_CLOEXEC: u32 = 1 << 2;
    // SAFETY: the call takes numbers.
    unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, CLOSE_RANGE_CLOEXEC) == 0 }
}

#[expect(unsafe_code, reason = "async-signal-safe system calls")]
fn tell(end: RawFd, step: u8, errno: i32) -> ! {
    let [a, b, c, d] = errno.to_ne_bytes();
    let report = [step, a, b, c, d];
    // SAFETY: report is a live local; an empty pipe takes it whole.
    unsafe { libc::write(end, report.as_ptr().cast(), REPORT) };
    exit(126)
}

#[expect(unsafe_code, reason = "exit would run the parent's handlers")]
fn exit(code: i32) -> ! {
    // SAFETY: _exit takes a number and does not return.
    unsafe { libc::_exit(code) }
}
