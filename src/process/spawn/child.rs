//! The child between fork and execve: async-signal-safe system calls only, no allocation, no return.

use std::{
    ffi::{CStr, c_char},
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, RawFd},
};

use nix::{errno::Errno, unistd::Pid};

use super::{
    Failure, Outcome, Place, Step,
    disposition::{self, Fate, Receipt},
};
use crate::{
    config::Signal,
    link,
    process::{fuse, kill, notify, signals::Inherited},
    time::Instant,
};

/// Bytes of a report: step (0: late), errno.
pub(super) const REPORT: usize = 5;

/// What the child does, prepared by the parent.
pub(super) struct Plan<'a> {
    pub(super) place: Option<Place>,
    pub(super) directory: Option<BorrowedFd<'a>>,
    pub(super) null: Option<RawFd>,
    pub(super) link: Option<RawFd>,
    pub(super) score: Option<&'a [u8]>,
    pub(super) inherited: Option<Inherited>,
    pub(super) not_after: Option<Instant>,
    pub(super) fuse: Option<BorrowedFd<'a>>,
    pub(super) act: Act<'a>,
}

/// The last step.
pub(super) enum Act<'a> {
    Execute {
        program: &'a CStr,
        arguments: &'a [*const c_char],
        environment: &'a [*const c_char],
    },
    /// With a deadline, as soon as the process would survive it, which these files tell.
    Signal {
        handle: Option<BorrowedFd<'a>>,
        pid: Pid,
        signal: Signal,
        files: &'a disposition::Files,
        /// Drained before the signal.
        notify: Option<BorrowedFd<'a>>,
        /// It counts as sent only once the process has taken it.
        until_taken: bool,
    },
}

/// The status of a child whose signal was sent, but not taken.
const UNTAKEN: i32 = 1;
/// So many further looks at a process that blocks its signal tell that it does so for good.
const BLOCKED: u32 = 5;
/// Milliseconds between two looks at a process that would not survive its signal, or has not taken it: the first, and the
/// longest.
const PAUSES: (i32, i32) = (1, 16);

/// Carries out the plan, reports to `end` what prevented that, and exits.
pub(super) fn run(plan: &Plan<'_>, parent: Pid, end: RawFd) -> ! {
    match carry_out(plan, parent) {
        Ok(Outcome::Done) => exit(0),
        Ok(Outcome::Late) => tell(end, 0, 0),
        Ok(Outcome::Failed(failure)) | Err(failure) => tell(end, failure.step as u8, failure.errno as i32),
    }
}

pub(super) fn decode(report: [u8; REPORT]) -> Outcome {
    let [step, a, b, c, d] = report;
    let steps = [
        Step::DieWithInit,
        Step::Place,
        Step::Directory,
        Step::Input,
        Step::Link,
        Step::Signals,
        Step::Clock,
        Step::Execute,
        Step::Drain,
        Step::Signal,
    ];
    match steps.into_iter().find(|known| *known as u8 == step) {
        Some(step) => Outcome::Failed(Failure { step, errno: Errno::from_raw(i32::from_ne_bytes([a, b, c, d])) }),
        None => Outcome::Late,
    }
}

#[expect(unsafe_code, reason = "async-signal-safe system calls between fork and execve")]
fn carry_out(plan: &Plan<'_>, parent: Pid) -> Result<Outcome, Failure> {
    let check = |step, result: i32| Errno::result(result).map_err(|errno| Failure { step, errno });
    // SAFETY: the calls take numbers, or pointers to what the parent prepared and this child's own copy keeps alive.
    unsafe {
        check(Step::DieWithInit, libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
        // Init has died, and nobody reads this, or the child is in another PID namespace, where its end would not be init's.
        if libc::getppid() != parent.as_raw() {
            return Err(Failure { step: Step::DieWithInit, errno: Errno::ESRCH });
        }
        match plan.place {
            Some(Place::Group) => drop(check(Step::Place, libc::setpgid(0, 0))?),
            Some(Place::Foreground(terminal)) => {
                check(Step::Place, libc::setpgid(0, 0))?;
                // A terminal that has hung up since is no reason to fail.
                libc::tcsetpgrp(terminal.as_fd().as_raw_fd(), libc::getpid());
            }
            Some(Place::Session) => drop(check(Step::Place, libc::setsid())?),
            None => {}
        }
        if let Some(directory) = plan.directory {
            check(Step::Directory, libc::fchdir(directory.as_raw_fd()))?;
        }
        if let Some(fuse) = plan.fuse {
            // Init may be stopped before it could do this. An extra guard: without it two are left.
            let _ = fuse::own(fuse, Pid::from_raw(libc::getpid()));
        }
        if let Some(null) = plan.null {
            check(Step::Input, libc::dup2(null, libc::STDIN_FILENO))?;
        }
        close_on_execute();
        match plan.link {
            Some(link::FD) => drop(check(Step::Link, libc::fcntl(link::FD, libc::F_SETFD, 0))?),
            Some(link) => drop(check(Step::Link, libc::dup2(link, link::FD))?),
            None => {}
        }
        if let Some(score) = plan.score {
            let file = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
            libc::write(file, score.as_ptr().cast(), score.len());
        }
        if let Some(inherited) = plan.inherited {
            for (signal, ignored) in [(libc::SIGPIPE, inherited.ignores_pipe), (libc::SIGCHLD, inherited.ignores_child)] {
                let disposition = if ignored { libc::SIG_IGN } else { libc::SIG_DFL };
                if libc::signal(signal, disposition) == libc::SIG_ERR {
                    return Err(Failure { step: Step::Signals, errno: Errno::last() });
                }
            }
            inherited.mask.set().map_err(|errno| Failure { step: Step::Signals, errno })?;
        }
        match plan.act {
            Act::Execute { program, arguments, environment } => {
                if is_late(plan.not_after)? {
                    return Ok(Outcome::Late);
                }
                check(Step::Execute, libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr()))?;
            }
            Act::Signal { handle, pid, signal, files, notify, until_taken } => {
                if plan.not_after.is_some() {
                    await_handler(signal, files, notify, plan.not_after)?;
                }
                let until_taken = until_taken && files.are_there();
                if let Some(notify) = notify {
                    notify::drain(notify).map_err(|errno| Failure { step: Step::Drain, errno })?;
                }
                if is_late(plan.not_after)? {
                    return Ok(Outcome::Late);
                }
                let sent = match handle {
                    Some(handle) => kill::pidfd_send(handle, signal),
                    None => kill::kill(pid.as_raw(), signal),
                };
                sent.map_err(|errno| Failure { step: Step::Signal, errno })?;
                if until_taken && !is_taken(signal, files, plan.not_after)? {
                    exit(UNTAKEN);
                }
            }
        }
    }
    Ok(Outcome::Done)
}

/// Returns when the process would survive the signal, which two looks at one that blocks it count as, or when it is too late.
/// Meanwhile discards its notifications, which nobody else reads: the kernel queues ten, and a process that blocks on sending
/// more handles nothing.
fn await_handler(
    signal: Signal,
    files: &disposition::Files,
    notify: Option<BorrowedFd<'_>>,
    not_after: Option<Instant>,
) -> Result<(), Failure> {
    let (mut pause, longest) = PAUSES;
    let mut last = Fate::Ends;
    while !is_late(not_after)? {
        last = match (last, files.fate(signal)) {
            (_, Fate::Handles | Fate::Ignores) | (Fate::Blocks, Fate::Blocks) => return Ok(()),
            (_, fate) => fate,
        };
        if let Some(notify) = notify {
            // What is left is discarded by the drain before the signal.
            let _ = notify::drain(notify);
        }
        wait(pause);
        pause = (pause * 2).min(longest);
    }
    Ok(())
}

/// Waits for the process to take the signal; false if it is gone without that, or it is too late. Where the main thread has
/// ended, a promotion may have been taken, and a demotion may not.
fn is_taken(signal: Signal, files: &disposition::Files, not_after: Option<Instant>) -> Result<bool, Failure> {
    let (mut pause, longest) = PAUSES;
    let mut blocked = 0;
    loop {
        match files.receipt(signal) {
            // What was blocked while a process was made, and is ignored otherwise, was dropped.
            Receipt::Taken if not_after.is_none() => match files.fate(signal) {
                Fate::Ignores => return Ok(false),
                Fate::Blocks if blocked < BLOCKED => blocked += 1,
                Fate::Blocks | Fate::Handles | Fate::Ends => return Ok(true),
            },
            Receipt::Taken => return Ok(true),
            Receipt::Unclear if not_after.is_some() => return Ok(true),
            Receipt::Gone => return Ok(false),
            Receipt::Pending | Receipt::Unclear if is_late(not_after)? => return Ok(false),
            Receipt::Pending | Receipt::Unclear => {}
        }
        wait(pause);
        pause = (pause * 2).min(longest);
    }
}

#[expect(unsafe_code, reason = "async-signal-safe system call")]
fn wait(milliseconds: i32) {
    // SAFETY: no descriptors, and so no pointer that is read.
    unsafe { libc::poll(std::ptr::null_mut(), 0, milliseconds) };
}

#[expect(unsafe_code, reason = "async-signal-safe system call")]
fn is_late(not_after: Option<Instant>) -> Result<bool, Failure> {
    let Some(not_after) = not_after else { return Ok(false) };
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: now is a live local.
    let read = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    Errno::result(read).map_err(|errno| Failure { step: Step::Clock, errno })?;
    let nanos = now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec);
    Ok(is_over(not_after, Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))))
}

/// Nothing is done at `not_after` itself, either (law 15).
fn is_over(not_after: Instant, now: Instant) -> bool {
    not_after <= now
}

/// Marks every descriptor above standard error close-on-exec.
#[expect(unsafe_code, reason = "async-signal-safe system calls")]
fn close_on_execute() {
    const CLOSE_RANGE_CLOEXEC: u32 = 1 << 2;
    // The kernel's own bound on the limit (fs.nr_open), unless that was raised.
    const MOST_OPEN: i32 = 1 << 20;
    // SAFETY: the calls take numbers, and a local that is live.
    unsafe {
        if libc::syscall(libc::SYS_close_range, link::FD, u32::MAX, CLOSE_RANGE_CLOEXEC) == 0 {
            return;
        }
        // Refused, or older than Linux 5.11. Init itself opens with O_CLOEXEC; this is for what it was started with.
        let mut limit = libc::rlimit { rlim_cur: 1024, rlim_max: 1024 };
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        let end = i32::try_from(limit.rlim_cur).map_or(MOST_OPEN, |end| end.min(MOST_OPEN));
        for fd in link::FD..end {
            libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_too_late_at_the_deadline_and_not_one_tick_before() {
        let deadline = Instant::from_nanos(1_000);

        let late = [999, 1_000, 1_001].map(|now| is_over(deadline, Instant::from_nanos(now)));

        assert_eq!(late, [false, true, true]);
    }
}
