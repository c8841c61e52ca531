//! Starts a program in a forked child.
//!
//! Owns everything between fork and execve. Never waits for the child: it may be stopped (SIGSTOP to everybody) before its
//! execve, and init must keep its deadlines even then. Hence fork and not vfork, which would suspend init until then, and a pipe
//! for the child's report, which init polls ([`Spawning`]). Forking a process as small as init takes 0.1 ms.
//!
//! The child makes only system calls, on memory that was prepared before the fork. Its steps: die with init; close-on-exec; own
//! group, in the foreground of the terminal, or own session; fuse; standard streams; descriptors; oom_score_adj; the limit on
//! descriptors, the signal dispositions and the mask that tenure was started with; the deadline (law 15); execve.

use std::{
    ffi::{CString, NulError, OsStr, c_char},
    fmt,
    fs::File,
    io::{self, Read as _},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd as _, OwnedFd, RawFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    sync::OnceLock,
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl},
    unistd::{Pid, pipe2},
};

use crate::{
    config::Signal,
    exit, link,
    process::{
        kill,
        mask::Mask,
        notify::Mark,
        signals::Inherited,
        sockets::{self, Sockets},
        terminal::Terminal,
    },
    time::Instant,
    words::worded,
};

mod child;
mod handling;

use handling::{Handling, StatusFiles};

/// A program with its arguments and its whole environment, ready for execve.
#[derive(Clone, Debug)]
pub struct Command {
    program: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    /// A descriptor that it inherits, and that stays open, under its number.
    pub kept: Option<RawFd>,
    /// It inherits these, and is told that they are for it.
    pub sockets: Option<Sockets>,
}

/// The setup of a child.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// The signal state and the limit that it gets.
    pub inherited: Inherited,
    /// Its process group or session.
    pub group: ProcessGroup,
    /// Its standard input.
    pub input: Input,
    /// Its standard output and error; none for init's.
    pub output: Option<BorrowedFd<'a>>,
    /// Its descriptor 3. The execve closes every other one above 2, except those of [`Command::kept`] and [`Command::sockets`].
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
pub enum ProcessGroup {
    /// A new process group.
    Own,
    /// A new process group, in the foreground of the terminal.
    Foreground(Terminal),
    /// A new session, without a terminal.
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

/// The outcome of a child's work up to its execve.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The step that failed.
    pub step: Step,
    /// The error of that step.
    pub errno: Errno,
}

worded! {
    /// A step of a child, by the words for its failure.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Step {
        /// Asking to be killed when init dies.
        DieWithInit = "cannot bind the child to init's life",
        /// Any other step before the last one.
        Prepare = "cannot prepare the child",
        /// execve.
        Execute = "cannot execute",
        /// The mark on NOTIFY_SOCKET.
        Mark = "cannot mark NOTIFY_SOCKET",
        /// The signal of a role.
        Signal = "cannot signal",
    }
}

impl Failure {
    /// Returns true if no process, descriptor or memory was left for the step.
    pub const fn is_lack(&self) -> bool {
        matches!(self.errno, Errno::ENOMEM | Errno::EAGAIN | Errno::ENFILE | Errno::EMFILE)
    }

    /// The exit code for it: 127 if there is no such program (or interpreter), otherwise 126.
    pub const fn code(self) -> u8 {
        match (self.step, self.errno) {
            (Step::Execute, Errno::ENOENT | Errno::ENOTDIR) => exit::NOT_FOUND,
            _ => exit::CANNOT_EXECUTE,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hint = match (self.step, self.errno) {
            (Step::Execute, Errno::ENOENT) => " (the file, or the interpreter that its #! line or its program header names)",
            (Step::Execute, Errno::ENOEXEC) => " (neither a program for this machine nor a script with a #! line)",
            _ => "",
        };
        write!(f, "{}: {}{hint}", self.step.as_str(), self.errno.desc())
    }
}

/// No child was made.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// A string with a NUL byte.
    #[error("the command or its environment contains a NUL byte")]
    Nul(#[from] NulError),
    /// No process, or not what every child needs.
    #[error("{0}")]
    Unavailable(&'static str, #[source] io::Error),
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
            kept: None,
            sockets: None,
        })
    }

    /// Forks. Call it from the thread that lives as long as init: the child dies with the thread.
    ///
    /// # Errors
    /// [`SpawnError`]; there is no child then.
    pub fn spawn(&self, setup: &Setup<'_>) -> Result<Spawning, SpawnError> {
        let arguments = pointers(&self.arguments);
        let mut environment = pointers(&self.environment);
        let mut for_child = sockets::entry(Pid::from_raw(0));
        let sockets = self.sockets.as_ref().map(|sockets| {
            let entry = &raw mut for_child;
            environment.insert(0, entry.cast_const().cast());
            (sockets.numbers(), entry)
        });
        let null = match setup.input {
            Input::Inherited => None,
            Input::Null => {
                Some(File::open("/dev/null").map_err(|error| SpawnError::Unavailable("/dev/null cannot be opened", error))?)
            }
        };
        let score =
            oom_scores(setup.oom_score_adjust).filter(|(own, childs)| own != childs).map(|(_, childs)| childs.to_string());
        let (null, score) = (null.as_ref().map(AsRawFd::as_raw_fd), score.as_deref().map(str::as_bytes));
        let open_end = open_end();
        let spawning = fork(|| {
            child::close_on_execute(open_end);
            child::execute(self, setup, null, score, &arguments, &environment, sockets.as_ref())
        })?;
        if let ProcessGroup::Own | ProcessGroup::Foreground(_) = setup.group {
            // Parent and child both do it, so that the group exists whichever runs first. After the execve it fails, harmlessly.
            let _ = nix::unistd::setpgid(spawning.pid, spawning.pid);
        }
        Ok(spawning)
    }
}

/// A signal that tells a running workload its role.
#[derive(Clone, Copy, Debug)]
pub struct RoleSignal<'a> {
    /// A child that has not been reaped.
    pub pid: Pid,
    /// Which. Without a deadline, ask [`handles`] before.
    pub signal: Signal,
    /// For a promotion: it is sent as soon as the process handles it, and not at this time or later (law 15).
    pub not_after: Option<Instant>,
    /// Set just before, so that whatever is read after it was said after the signal, or while that was sent (law 8).
    pub mark: Option<Mark<'a>>,
    /// The child that sends the signal waits until the process has received it, so that no later signal can overtake it. It ends
    /// with another status than 0 if the process is gone or it is too late. (A process that is stopped, or dumps its core for
    /// minutes, does not receive a signal that was sent.)
    pub until_taken: bool,
}

impl RoleSignal<'_> {
    /// Sends it from a forked child.
    ///
    /// # Errors
    /// [`SpawnError`]; nothing was sent then.
    pub fn spawn(&self) -> Result<Spawning, SpawnError> {
        // If it is refused the pid must do: it is wrong only if the child is stopped while init reaps the process and its pid is
        // recycled.
        let handle = kill::pidfd_open(self.pid).ok();
        let files = StatusFiles::of(self.pid);
        fork(|| child::deliver(self, handle.as_ref().map(AsFd::as_fd), &files))
    }
}

/// Continues these stopped processes from a forked child that reads the clock before each, and ends with another status than 0 if
/// it came to some only (law 15).
///
/// # Errors
/// [`SpawnError`]; nobody was continued then.
pub fn resume(pids: &[Pid], not_after: Instant) -> Result<Spawning, SpawnError> {
    fork(|| child::resume(pids, not_after))
}

/// Returns true if a process may have a handler for a signal (`SigCgt` in /proc/PID/status), or block it (`SigBlk`) to read it
/// from a signalfd. Returns false if /proc cannot tell. Takes up to ten milliseconds if the signal is blocked.
pub fn handles(pid: Pid, signal: Signal) -> bool {
    StatusFiles::of(pid).handling(signal) != Handling::No
}

impl Spawning {
    /// Returns the outcome, once that is known; never blocks. After the child's death it is known.
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

/// Forks a child that does this work. The work allocates nothing, and makes only async-signal-safe calls.
#[expect(unsafe_code, reason = "fork")]
fn fork(work: impl FnOnce() -> Result<Outcome, Failure>) -> Result<Spawning, SpawnError> {
    let failed = |errno: Errno| SpawnError::Unavailable("no pipe for a child", errno.into());
    let no_process = |errno: Errno| SpawnError::Unavailable("no further process can be started", errno.into());
    let (report, end) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).map_err(failed)?;
    let end = above_link(end).map_err(failed)?;
    let parent = Pid::this();
    // No handler of ours may run in the child.
    let mask = Mask::ALL.set().map_err(no_process)?;
    // SAFETY: the child calls nothing but `child::run`, which does not return. Like the work, it makes only async-signal-safe calls.
    let forked = match unsafe { libc::fork() } {
        0 => child::run(work, parent, end.as_raw_fd()),
        result => Errno::result(result),
    };
    let _ = mask.set();
    let pid = forked.map_err(no_process)?;
    Ok(Spawning { pid: Pid::from_raw(pid), report: File::from(report) })
}

/// One above the highest descriptor that is open. None if /proc does not tell, or no child needs to know.
fn open_end() -> Option<RawFd> {
    static IS_NEEDED: OnceLock<bool> = OnceLock::new();
    if !IS_NEEDED.get_or_init(|| !child::close_on_execute_from(RawFd::MAX)) {
        return None;
    }
    let mut open = std::fs::read_dir("/proc/self/fd").ok()?;
    open.try_fold(link::FD, |end, entry| Some(end.max(entry.ok()?.file_name().to_str()?.parse::<RawFd>().ok()? + 1)))
}

/// The child's end of the pipe, moved out of the way of the link's descriptor.
#[expect(unsafe_code, reason = "fcntl returns the duplicate as a number")]
fn above_link(end: OwnedFd) -> nix::Result<OwnedFd> {
    let moved = fcntl(&end, FcntlArg::F_DUPFD_CLOEXEC(link::FD + 1))?;
    // SAFETY: fcntl just made it, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(moved) })
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect()
}

/// Our own oom_score_adj, and that of a child for whom `by` is added to it, as far as the kernel goes; `None` if ours cannot be
/// read.
pub fn oom_scores(by: i16) -> Option<(i32, i32)> {
    let own: i32 = std::fs::read_to_string("/proc/self/oom_score_adj").ok()?.trim().parse().ok()?;
    Some((own, own.saturating_add(by.into()).clamp(-1000, 1000)))
}
