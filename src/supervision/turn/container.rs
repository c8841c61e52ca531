//! The world that a turn acts on: init's processes, descriptors and clock, or those of a simulation or the model.
//!
//! Owns the questions and orders of [`Turn`](super::Turn), and decides nothing.

use crate::{
    config::{HookKind, ProbeKind, Signal},
    link::{Exit, InitialState, ToElector, ToInit},
    notification::Heard,
    role::Role,
    supervision::interface::{Launch, NotSpawned, ProgramEnv, Scan, Target, TermStatus},
    time::Instant,
};

/// Everything outside of the decisions: processes, descriptors, the clock. An implementation decides nothing about the term, and waits
/// no longer than the head of `init` says.
pub trait Container {
    /// The hardware's clock.
    fn now(&self) -> Instant;
    /// Returns true if a kernel fuse has fired since the last call.
    fn fuse_fired(&mut self) -> bool;
    /// Returns true if a child of init lives that is no elector.
    fn lives(&mut self) -> bool;
    /// The next message from the elector, if one waits.
    fn message(&mut self) -> Option<Result<ToInit, LinkBroken>>;
    /// The next signal to init, if one is pending.
    fn signal(&mut self) -> Option<i32>;
    /// Finds a dead child, without reaping it.
    fn dead(&mut self) -> Dead;
    /// Reaps this child. From then on the kernel may give its pid to another process.
    fn reap(&mut self, pid: i32) -> Option<Ended>;
    /// Tells once whether the workload's execve succeeded; none while that is not known.
    fn started(&mut self) -> Option<Started>;
    /// Returns true if this process group is empty.
    fn is_group_gone(&mut self, group: i32) -> bool;
    /// The next datagram on NOTIFY_SOCKET.
    fn heard(&mut self) -> Option<Heard>;
    /// Starts an elector with `initial` as the first message in its link; returns its pid.
    ///
    /// # Errors
    /// [`NotSpawned::Failed`] if no elector will ever start.
    fn start_elector(&mut self, initial: InitialState) -> Result<i32, NotSpawned>;
    /// Sends SIGKILL to the elector. The link stays open.
    fn kill_elector(&mut self);
    /// Closes the link.
    fn close_link(&mut self);
    /// Sends the elector a message, or queues it until the socket has room.
    fn send(&mut self, message: ToElector);
    /// Forks a program into a new process group; returns its pid.
    ///
    /// # Errors
    /// No child was made.
    fn fork(&mut self, program: Program) -> Result<i32, NotSpawned>;
    /// Tells the workload its role. If a forked child does that, returns the child's pid: how it ends is the answer.
    ///
    /// # Errors
    /// Why it was not told.
    fn tell(&mut self, order: Order) -> Result<Option<i32>, String>;
    /// Sends a signal. Returns false on EPERM.
    fn kill(&mut self, target: Target, signal: Signal) -> bool;
    /// Sends SIGCONT, if the process is stopped.
    fn wake(&mut self, target: Target);
    /// Returns true if every process of a frozen workload is stopped and was never continued. With `stop`, stops the others.
    fn frozen(&mut self, stop: bool) -> bool;
    /// Scans for processes of the workload. With `kill`, kills them.
    fn scan(&mut self, kill: bool) -> Scan;
    /// `kill(-1, SIGKILL)`.
    fn kill_all(&mut self);
    /// Sets the kernel fuses to H, or removes them.
    fn follow_hard(&mut self, hard: Option<Instant>);
    /// Writes this to the page that the workload can read.
    fn publish(&mut self, status: TermStatus);
    /// Logs this as a warning.
    fn say(&mut self, line: String);
    /// Logs why init ends, and writes it to /dev/termination-log.
    fn last_words(&mut self, words: &str, code: u8);
    /// Ends init at once, without cleaning up.
    fn die(&mut self);
}

/// The link is broken: see [`Input::LinkBroken`](crate::supervision::Input::LinkBroken).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkBroken;

/// The answer to a search for dead children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dead {
    /// This child is dead.
    Process(i32),
    /// No child is dead.
    Nobody,
    /// Init has no child at all.
    Childless,
}

/// The result of a forked child's work: its execve, or the signal that it was forked to send.
pub type Started = Result<(), NotSpawned>;

/// The end of a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its exit code or signal.
    pub exit: Exit,
    /// The result of its start; none if that is unknown, or [`Container::started`] has told it.
    pub started: Option<Started>,
}

/// A program that runs beside the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HelperKind {
    /// A hook.
    Hook(HookKind),
    /// An exec probe.
    Probe(ProbeKind),
}

impl HelperKind {
    /// The key of its command in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hook(hook) => hook.as_str(),
            Self::Probe(probe) => probe.as_str(),
        }
    }
}

/// A program to fork.
#[derive(Clone, Debug)]
pub struct Program {
    /// A hook or a probe; none: the workload.
    pub helper: Option<HelperKind>,
    /// Its role; none for a plain init.
    pub role: Option<Role>,
    /// The rest of its environment.
    pub told: ProgramEnv,
    /// The child checks the clock just before its execve, and gives up from this instant on (law 15).
    pub not_after: Instant,
    /// It may be a leader's: a kernel fuse kills it at H.
    pub fused: bool,
}

impl Program {
    /// The workload or a probe, as a leader if there is a `launch`.
    pub(super) fn of(helper: Option<HelperKind>, role: Option<Role>, launch: Option<Launch>) -> Self {
        let fused = launch.is_some();
        let (info, not_after) = launch.map_or((None, Instant::NEVER), |launch| (launch.info, launch.not_after));
        Self { helper, role, told: ProgramEnv { info, ..ProgramEnv::default() }, not_after, fused }
    }
}

/// A way to tell the workload its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// A mark on NOTIFY_SOCKET: notifications that are read after it were sent after it.
    Mark(u64),
    /// A signal: see [`Action::TellRole`](crate::supervision::Action::TellRole).
    Signal {
        /// Pid of the main process.
        pid: i32,
        /// The new role.
        role: Role,
        /// The signal that stands for it.
        signal: Signal,
        /// The signal is not sent from this instant on.
        not_after: Option<Instant>,
        /// A mark that the child sets just before the signal.
        mark: Option<u64>,
        /// The child waits until the workload has received the signal.
        until_taken: bool,
    },
    /// SIGCONT to all processes of a frozen workload.
    Resume {
        /// No process is continued from this instant on.
        not_after: Instant,
    },
}
