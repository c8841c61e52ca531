//! Starts a program in a forked child.
//!
//! Owns everything between fork and execve. Never waits for the child: it may be stopped (SIGSTOP to everybody) before its
//! execve, and init must keep its deadlines even then. Hence fork and not vfork, which would suspend init until then, and a pipe
//! for the child's report, which init polls ([`Spawning`]). Forking a process as small as init takes 0.1 ms.
//!
//! The child makes only system calls, on memory that was prepared before the fork. Its steps: die with init; own group or
//! session; terminal; standard input; descriptors; oom_score_adj; the signal dispositions and the mask that tenure was started
//! with; the deadline (law 15); execve.

use std::{
    ffi::{CString, NulError, OsStr, c_char},
    fs::File,
    io::{self, Read as _},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    time::Duration,
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl},
    unistd::{Pid, pipe2},
};

use crate::{
    config::Signal,
    exit, link,
    process::{kill, mask::Mask, signals::Inherited, terminal::Terminal},
    time::Instant,
};

mod child;
mod disposition;

pub use disposition::Fate;

/// A program with its arguments and its whole environment, ready for execve.
#[derive(Clone, Debug)]
pub struct Command {
    program: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

/// How a child is set up.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// The signal state that it gets.
    pub inherited: Inherited,
    /// Its process group or session.
    pub place: Place,
    /// The directory in which it starts; none: init's.
    pub directory: Option<BorrowedFd<'a>>,
    /// Its standard input.
    pub input: Input,
    /// What becomes its descriptor 3. Every other one above 2 is closed by the execve.
    pub link: Option<BorrowedFd<'a>>,
    /// Added to oom_score_adj, at most to 1000; if /proc forbids it, the child runs without.
    pub oom_score_adjust: i16,
    /// After this the child exits instead of calling execve: [`Outcome::Late`] (law 15).
    pub not_after: Option<Instant>,
    /// Kills the child's group when its time comes; a [`Fuse`](crate::process::fuse::Fuse) without a group.
    pub fuse: Option<BorrowedFd<'a>>,
}

/// The process group or session of a child.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// It leads a process group of its own.
    Group,
    /// The same, in the foreground of the terminal.
    Foreground(Terminal),
    /// It leads a session of its own, without a terminal.
    Session,
}

/// Standard input of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Init's.
    Inherited,
    /// /dev/null.
    Null,
}

/// A child between fork and execve.
///
/// Readable ([`AsFd`]) once [`Spawning::outcome`] is known.
#[derive(Debug)]
pub struct Spawning {
    /// The child, to be signalled and reaped like any other; its group exists already, its session may not.
    pub pid: Pid,
    report: File,
}

/// What became of a child before or at its execve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The program runs (or the signal is sent), unless something killed the child before: then the reaper says so.
    Done,
    /// The deadline had passed: nothing of the program ran.
    Late,
    /// A step failed: nothing of the program ran.
    Failed(Failure),
}

/// Which step of a child failed, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{step}: {}", errno.desc())]
pub struct Failure {
    /// The step.
    pub step: Step,
    /// The error.
    pub errno: Errno,
}

impl Failure {
    /// The exit code for it: 127 if there is no such program (or interpreter), otherwise 126.
    #[must_use]
    pub const fn code(self) -> u8 {
        match (self.step, self.errno) {
            (Step::Execute, Errno::ENOENT | Errno::ENOTDIR) => exit::NOT_FOUND,
            _ => exit::CANNOT_EXECUTE,
        }
    }
}

/// A step of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// Asking to be killed when init dies.
    DieWithInit = 1,
    /// A process group or a session of its own.
    Place,
    /// Its directory.
    Directory,
    /// Standard input.
    Input,
    /// Descriptor 3.
    Link,
    /// Mask and dispositions.
    Signals,
    /// Reading the clock.
    Clock,
    /// execve.
    Execute,
    /// Emptying NOTIFY_SOCKET.
    Drain,
    /// The signal of [`promote`] or [`demote`].
    Signal,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::DieWithInit => "cannot bind the child to init's life",
            Self::Place => "cannot make a process group or session",
            Self::Directory => "cannot start in the directory of init",
            Self::Input => "cannot set standard input",
            Self::Link => "cannot hand over the link",
            Self::Signals => "cannot restore the signals",
            Self::Clock => "cannot read the clock",
            Self::Execute => "cannot execute",
            Self::Drain => "cannot empty NOTIFY_SOCKET",
            Self::Signal => "cannot signal",
        })
    }
}

/// No child was made.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// A string with a NUL byte.
    #[error("the command or its environment contains a NUL byte")]
    Nul(#[from] NulError),
    /// No pipe for its report.
    #[error("no pipe for a child")]
    Pipe(#[source] io::Error),
    /// No /dev/null.
    #[error("/dev/null cannot be opened")]
    Null(#[source] io::Error),
    /// No process.
    #[error("no further process can be started")]
    Fork(#[source] io::Error),
}

impl Command {
    /// `program` is the file (see [`resolve`](crate::process::resolve)); `arguments` begin with the name of the program.
    ///
    /// # Errors
    /// [`SpawnError::Nul`].
    pub fn new<N: AsRef<OsStr>, V: AsRef<OsStr>>(
        program: &Path,
        arguments: &[String],
        environment: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, SpawnError> {
        let entry = |(name, value): (N, V)| {
            let mut entry = name.as_ref().as_bytes().to_vec();
            entry.push(b'=');
            entry.extend_from_slice(value.as_ref().as_bytes());
            CString::new(entry)
        };
        Ok(Self {
            program: CString::new(program.as_os_str().as_bytes())?,
            arguments: arguments.iter().map(|argument| CString::new(argument.as_str())).collect::<Result<_, _>>()?,
            environment: environment.into_iter().map(entry).collect::<Result<_, _>>()?,
        })
    }

    /// Forks. Call it from the thread that lives as long as init: the child dies with the thread.
    ///
    /// # Errors
    /// [`SpawnError`]; there is no child then.
    pub fn spawn(&self, setup: &Setup<'_>) -> Result<Spawning, SpawnError> {
        let arguments = pointers(&self.arguments);
        let environment = pointers(&self.environment);
        let null = match setup.input {
            Input::Inherited => None,
            Input::Null => Some(File::open("/dev/null").map_err(SpawnError::Null)?),
        };
        let score =
            oom_scores(setup.oom_score_adjust).filter(|(own, childs)| own != childs).map(|(_, childs)| childs.to_string());
        let spawning = fork(&child::Plan {
            place: Some(setup.place),
            directory: setup.directory,
            null: null.as_ref().map(AsRawFd::as_raw_fd),
            link: setup.link.map(|link| link.as_raw_fd()),
            score: score.as_deref().map(str::as_bytes),
            inherited: Some(setup.inherited),
            not_after: setup.not_after,
            fuse: setup.fuse,
            act: child::Act::Execute { program: &self.program, arguments: &arguments, environment: &environment },
        })?;
        if let Place::Group | Place::Foreground(_) = setup.place {
            // Both sides do it, so that the group exists whichever is first. It fails harmlessly after the execve.
            let _ = nix::unistd::setpgid(spawning.pid, spawning.pid);
        }
        Ok(spawning)
    }
}

/// Promotes a running workload by a signal from a forked child, which exits without sending it after `not_after` (law 15). `pid`
/// is a child that has not been reaped. The forked child waits while the signal would end or stop that process because it has not
/// set up its handling yet. Then it drains `notify`, so that whatever is read there later was said after the signal (law 8);
/// nobody else reads it before. Where it is to be `taken` it ends only when the process has taken the signal, so that no other
/// can overtake it, and with another status than 0 if that does not happen before `not_after`.
///
/// # Errors
/// [`SpawnError`]; nothing was sent then.
pub fn promote(
    pid: Pid,
    signal: Signal,
    not_after: Instant,
    notify: Option<BorrowedFd<'_>>,
    taken: bool,
) -> Result<Spawning, SpawnError> {
    tell(pid, signal, Some(not_after), notify, taken)
}

/// Demotes a running workload by a signal from a forked child, which ends once the process has taken it, and with another status
/// than 0 once that is gone. One that is stopped, or dumps its core for minutes, can be sent a signal without ever being told of
/// its role (law 8). Ask [`fate`] before whether it handles the signal.
///
/// # Errors
/// [`SpawnError`]; nothing was sent then.
pub fn demote(pid: Pid, signal: Signal) -> Result<Spawning, SpawnError> {
    tell(pid, signal, None, None, true)
}

fn tell(
    pid: Pid,
    signal: Signal,
    not_after: Option<Instant>,
    notify: Option<BorrowedFd<'_>>,
    until_taken: bool,
) -> Result<Spawning, SpawnError> {
    // If it is refused the pid must do: it is wrong only if the child is stopped while init reaps the process and its pid is
    // recycled.
    let handle = kill::pidfd_open(pid).ok();
    fork(&child::Plan {
        place: None,
        directory: None,
        null: None,
        link: None,
        score: None,
        inherited: None,
        not_after,
        fuse: None,
        act: child::Act::Signal {
            handle: handle.as_ref().map(AsFd::as_fd),
            pid,
            signal,
            files: &disposition::Files::of(pid),
            notify,
            until_taken,
        },
    })
}

/// What a signal would do to a process, as far as /proc tells. Takes a few milliseconds unless the process handles or ignores it.
#[must_use]
pub fn fate(pid: Pid, signal: Signal) -> Fate {
    const LOOKS: usize = 3;
    let files = disposition::Files::of(pid);
    let mut worst = Fate::Blocks;
    for look in 1..=LOOKS {
        match files.fate(signal) {
            fate @ (Fate::Handles | Fate::Ignores) => return fate,
            // Perhaps only for a moment: while it begins to wait for the signal, or was interrupted there.
            Fate::Ends => worst = Fate::Ends,
            // While it creates a process.
            Fate::Blocks => {}
        }
        if look < LOOKS {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    worst
}

impl Spawning {
    /// What became of it, once that is known; never blocks. After the child's death it is known.
    pub fn outcome(&mut self) -> Option<Outcome> {
        let mut report = [0; child::REPORT];
        match self.report.read(&mut report) {
            Ok(child::REPORT) => Some(child::decode(report)),
            Ok(_) => Some(Outcome::Done),
            Err(_) => None,
        }
    }
}

impl AsFd for Spawning {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.report.as_fd()
    }
}

#[expect(unsafe_code, reason = "fork")]
fn fork(plan: &child::Plan<'_>) -> Result<Spawning, SpawnError> {
    let failed = |errno: Errno| SpawnError::Pipe(errno.into());
    let (report, end) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).map_err(failed)?;
    let end = above_link(end).map_err(failed)?;
    let parent = Pid::this();
    // No handler of ours may run in the child.
    let mask = Mask::ALL.set().map_err(|errno| SpawnError::Fork(errno.into()))?;
    // SAFETY: the child calls nothing but `child::run`, which makes only async-signal-safe calls and does not return.
    let forked = match unsafe { libc::fork() } {
        0 => child::run(plan, parent, end.as_raw_fd()),
        result => Errno::result(result),
    };
    let _ = mask.set();
    let pid = forked.map_err(|errno| SpawnError::Fork(errno.into()))?;
    Ok(Spawning { pid: Pid::from_raw(pid), report: File::from(report) })
}

/// The child's end of the pipe, moved out of the way of the link's descriptor.
fn above_link(end: OwnedFd) -> nix::Result<OwnedFd> {
    if end.as_raw_fd() > link::FD {
        return Ok(end);
    }
    owned(fcntl(&end, FcntlArg::F_DUPFD_CLOEXEC(link::FD + 1))?)
}

#[expect(unsafe_code, reason = "fcntl returns the duplicate as a number")]
fn owned(fd: RawFd) -> nix::Result<OwnedFd> {
    use std::os::fd::FromRawFd as _;
    // SAFETY: fcntl just made it, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect()
}

/// Our own oom_score_adj, and that of a child for whom `by` is added to it, as far as the kernel goes; `None` if ours cannot be
/// read.
#[must_use]
pub fn oom_scores(by: i16) -> Option<(i32, i32)> {
    let own: i32 = std::fs::read_to_string("/proc/self/oom_score_adj").ok()?.trim().parse().ok()?;
    Some((own, own.saturating_add(by.into()).clamp(-1000, 1000)))
}
