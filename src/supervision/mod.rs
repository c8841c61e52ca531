//! Decides what init does to the workload, and when the Lease may be given back.
//!
//! Owns two machines. [`Workload`](workload::Workload) tracks one process and its tree: the wanted state (down, standby, leading)
//! against the actual one (stopped, running, being stopped, waiting to be started again). [`Agent`] couples it to the link: it
//! holds the term and its deadlines, and answers the elector. Neither reads a clock, does IO or calls the kernel.
//!
//! The loop of init feeds the agent [`Input`]s with the time at which they were read, carries out every [`Action`] at once and in
//! order, and calls [`Agent::handle_timeout`] when [`Agent::poll_timeout`] has come. What the loop owes the agent:
//!
//! 1. Before every `handle_timeout` it drains the link, and feeds what it found (law 9). Only time acts on a deadline
//!    ([`Input::FuseFired`] says that the kernel has), so an extension that waited in the link while init did not run is taken in
//!    before the stop that it prevents.
//! 2. The immediate result of an action is fed at once, before any input but [`Input::Reaped`]: whether [`Action::Spawn`],
//!    [`Action::Hook`] and [`Action::StartElector`] forked, and the scan of [`Action::Prove`], [`Action::Sweep`],
//!    [`Action::KillAll`].
//! 3. After [`Action::KillElector`] it drains the link into the agent and closes it (law 10).

use crate::{
    config::{HookKind, ProbeKind, Signal},
    link::{Exit, Reason, TermInfo, ToElector, ToInit},
    notification::Notification,
    role::Role,
    time::Instant,
};

pub use self::agent::{Agent, AgentConfig};

mod agent;
mod electors;
mod escalation;
mod health;
mod hooks;
mod restarts;
mod roles;
mod term;
mod workload;

/// What arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// From the elector.
    Told(ToInit),
    /// The elector runs, its link is open and the InitialState is on its way.
    ElectorStarted,
    /// The elector could not be started.
    ElectorNotStarted,
    /// The elector was reaped; its link is drained and closed.
    ElectorEnded,
    /// The link broke: end of file, or a message that does not decode. What it held was fed before.
    LinkBroken,
    /// A signal to init, except SIGCHLD.
    Signal(i32),
    /// [`Action::Spawn`] forked: from now on the workload's main process may run.
    Forked {
        /// Its id, which is also its process group's.
        pid: i32,
    },
    /// The forked process runs the command.
    Spawned,
    /// It does not, and never will: it has ended or is about to.
    NotSpawned(NotSpawned),
    /// About the role of a workload that runs always.
    Role(RoleInput),
    /// A process of the workload said it; its role is a [`RoleInput`].
    Notified(Notification),
    /// The end of [`Action::Probe`]: all of it is gone, or it did not fork.
    Probed {
        /// Of which.
        kind: ProbeKind,
        /// When it was asked for.
        began: Instant,
        /// Why it failed; none: it did not.
        failure: Option<String>,
    },
    /// A child other than the elector was reaped; if it was a hook, its whole process group is gone.
    Reaped {
        /// Its id, invalid from now on.
        pid: i32,
        /// How it ended.
        exit: Exit,
    },
    /// Init has no child left: proof enough for a plain init that is not PID 1; fed only there.
    Childless,
    /// Answer to [`Action::Prove`], [`Action::Sweep`] and [`Action::KillAll`].
    Scanned(Scan),
    /// The kernel has killed a process group of the leader at H, while init did not run.
    FuseFired,
}

/// The outcome of telling a workload its role, and what it answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleInput {
    /// [`Action::TellRole`] has sent its signal, and where no notification is asked for the workload has taken it; or
    /// [`Action::Thaw`] has continued it.
    Signalled,
    /// It has not, or that cannot be told: it came too late, was killed, or a step of it failed.
    NotSignalled,
    /// [`Action::Hook`] forked; if its command cannot run, that shows in how the process ends.
    HookForked {
        /// Its id, which is also its process group's.
        pid: i32,
    },
    /// [`Action::Hook`] did not fork.
    HookNotForked,
    /// `X_TENURE_ROLE` from a process of the workload, said after it was asked (law 8).
    Notified(Role),
    /// Whether all of a frozen workload was stopped, every thread of it, all the time: answer to [`Action::Freeze`] and
    /// [`Action::LookFrozen`].
    Looked {
        /// Nobody has continued it either.
        frozen: bool,
    },
    /// SIGCHLD: a frozen workload may have been continued.
    Stirred,
}

/// What a scan of /proc found after the kill that it belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// Everything is gone and reaped: the proof of law 8.
    pub clean: bool,
    /// Those that are left; they may be thousands.
    pub left: Vec<i32>,
    /// Some of them may not be killed (EPERM).
    pub denied: bool,
    /// SIGKILL was sent to some process.
    pub killed: bool,
}

/// Why nothing was spawned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotSpawned {
    /// The deadline had passed when the child was about to exec (law 15).
    Late,
    /// It cannot be executed.
    Failed {
        /// 126 or 127.
        code: u8,
        /// One line: what, why.
        message: String,
    },
    /// The system has no process, descriptor or memory left for it now.
    Unavailable {
        /// One line: what, why.
        message: String,
    },
}

/// Where the replica stands, as its workload may read it at any time (law 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Leader from the start or the promotion on, until that is proved to be over.
    pub role: Role,
    /// leaseTransitions of the term; 0 without one.
    pub transitions: i32,
    /// The fencing token; 0 without a term, and if it is no number of 64 bits.
    pub token: u64,
    /// S: before it, nobody asks the workload to stop. The boot, which is long past, once it is asked.
    pub soft: Instant,
    /// H: nobody else leads before. The boot if that is not known.
    pub hard: Instant,
    /// How many renewals of the term were confirmed.
    pub renewals: u64,
}

impl Standing {
    /// Nothing of a leader runs.
    pub const NONE: Self =
        Self { role: Role::Standby, transitions: 0, token: 0, soft: Instant::BOOT, hard: Instant::BOOT, renewals: 0 };
}

/// Under which term a workload may lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// What it is told; none for a plain init.
    pub info: Option<TermInfo>,
    /// S: nothing is started, continued or promoted from here on (law 15).
    pub not_after: Instant,
}

/// What a program is told beside its role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Its term.
    pub info: Option<TermInfo>,
    /// Why that ended, for `TENURE_REASON`.
    pub reason: Option<Reason>,
    /// How the workload ended, for `TENURE_EXIT_CODE` and `TENURE_EXIT_SIGNAL`.
    pub exit: Option<Exit>,
}

/// Who gets a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// This process.
    Main(i32),
    /// This process group.
    Group(i32),
}

/// What the agent wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start an elector; its first message is [`Agent::initial_state`], as it is then.
    StartElector,
    /// SIGKILL the elector, drain its link, close it.
    KillElector,
    /// Send to the elector.
    Tell(ToElector),
    /// Start the workload in a process group of its own.
    Spawn {
        /// `TENURE_ROLE`; none for a plain init.
        role: Option<Role>,
        /// What it is told, and until when it may be started; a standby has neither.
        launch: Option<Launch>,
    },
    /// Send a signal.
    Signal {
        /// To whom.
        target: Target,
        /// Which.
        signal: Signal,
    },
    /// Send SIGCONT if it is stopped: without a Lease nobody gets a signal that did not come.
    Continue {
        /// Whom.
        target: Target,
    },
    /// Tell a running workload its role by a signal, from a forked child that marks NOTIFY_SOCKET and checks the clock last (law 8,
    /// 15). A promotion waits while the signal would end the process, as it would just after its start. No role that is said
    /// before the child has ended is fed before its [`RoleInput::Signalled`].
    TellRole {
        /// The main process.
        pid: i32,
        /// Which role.
        role: Role,
        /// By which signal.
        signal: Signal,
        /// It is not sent at this instant or later (law 15); none for a demotion.
        not_after: Option<Instant>,
    },
    /// SIGSTOP whatever of the workload is not stopped.
    Freeze,
    /// Look whether it still is.
    LookFrozen,
    /// Continue all of it, if it still is stopped, from a forked child that checks the clock last (law 15). Answered like
    /// [`Action::TellRole`].
    Thaw {
        /// It is not continued at this instant or later.
        not_after: Instant,
    },
    /// SIGKILL the child of [`Action::TellRole`] or [`Action::Thaw`], if there still is one: its workload is being stopped.
    CallOff,
    /// Start a hook in a process group of its own.
    Hook {
        /// Which.
        hook: HookKind,
        /// What it is told.
        told: Told,
        /// S for a promotion, H for a demotion: its forked child checks the clock last, as with [`Action::TellRole`] (law 15).
        not_after: Instant,
    },
    /// Start what asks the workload whether it is ready, or live, in a process group of its own.
    Probe {
        /// Which; only one of a kind runs at a time.
        kind: ProbeKind,
        /// Now; named when it has ended.
        began: Instant,
        /// As for [`Action::Spawn`]: until when it may be started; a standby's has no limit.
        launch: Option<Launch>,
    },
    /// SIGKILL its process group, if it was started and has not ended.
    KillProbe(ProbeKind),
    /// SIGKILL the process group of this hook.
    KillHook {
        /// Its id.
        pid: i32,
    },
    /// Mark NOTIFY_SOCKET, so that no role counts that was said before: in place of a signal, and answered like one.
    MarkNotify,
    /// Reap and scan.
    Prove,
    /// SIGKILL everything but init and the elector, reap and scan.
    Sweep,
    /// `kill(-1, SIGKILL)`, reap and scan. As PID 1 only.
    KillAll,
    /// End init at once; the kernel kills the namespace. As PID 1 only.
    Die,
    /// Log this as a warning.
    Warn(String),
    /// Log why nothing can be run, and write it to /dev/termination-log.
    TerminationMessage(String),
    /// End init with this code, its log flushed.
    Exit(u8),
}
