//! What the agent is told, what it orders, and what the workload may read of the term.

use crate::{
    config::{HookKind, ProbeKind, Signal},
    link::{Exit, Reason, TermInfo, ToElector, ToInit},
    notification::Notification,
    role::Role,
    time::Instant,
};

/// Something that has happened, for the agent to react to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A message from the elector.
    Told(ToInit),
    /// An elector runs, its link is open, and the InitialState is on its way.
    ElectorStarted,
    /// The elector was reaped, and its link is drained and closed; or it could not be started.
    ElectorEnded,
    /// The link is broken: end of file, or a message that does not decode. All messages before that were fed already.
    LinkBroken,
    /// A signal to init, except SIGCHLD.
    Signal(i32),
    /// [`Action::Spawn`] has forked: from now on the workload's main process may run.
    Forked {
        /// Its pid, which is also the number of its process group.
        pid: i32,
    },
    /// The execve of the forked process has succeeded.
    Spawned,
    /// The execve has failed: the process has ended or is about to.
    NotSpawned(NotSpawned),
    /// Something about the role of a running workload.
    Role(RoleInput),
    /// A notification from a process of the workload; a role comes as [`RoleInput::Notified`].
    Notified(Notification),
    /// The end of [`Action::Probe`]: its whole process group is gone, or its command cannot be run.
    Probed {
        /// The probe.
        kind: ProbeKind,
        /// The time of the action.
        began: Instant,
        /// The reason of a failure; none after a success.
        failure: Option<String>,
    },
    /// [`Action::Probe`] ran nothing: the system has no process, descriptor or memory left, which says nothing about the workload.
    ProbeNotForked {
        /// The probe.
        kind: ProbeKind,
        /// The time of the action.
        began: Instant,
    },
    /// A child other than the elector was reaped. If it was a hook, its whole process group is gone.
    Reaped {
        /// Its pid, which may name another process from now on.
        pid: i32,
        /// Its exit code or signal.
        exit: Exit,
    },
    /// Init has no child left. Fed only to a plain init that is not PID 1, for which that is proof enough.
    Childless,
    /// Answer to [`Action::Prove`], [`Action::Sweep`] and [`Action::KillAll`].
    Scanned(Scan),
    /// A kernel fuse has killed a process group of the leader: at H, while init did not run, or earlier, where the loopback
    /// interface does not answer.
    FuseFired {
        /// Something of the workload may live on.
        left: bool,
    },
}

/// The outcome of telling a workload its role, and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleInput {
    /// [`Action::TellRole`] has sent its signal (and, unless a notification acknowledges it, the workload has received it), or
    /// [`Action::Resume`] has continued the workload.
    Signalled,
    /// The child of that action came too late, was killed, or failed at a step. The workload may know its role or not.
    NotSignalled,
    /// [`Action::Hook`] has forked. If its command cannot run, the end of the process says so.
    HookForked {
        /// Its pid, which is also the number of its process group.
        pid: i32,
    },
    /// [`Action::Hook`] did not fork.
    HookNotForked,
    /// `X_TENURE_ROLE` from a process of the workload, sent after the workload was asked (law 8).
    Notified(Role),
    /// The answer to [`Action::Freeze`] and [`Action::LookFrozen`].
    Looked {
        /// Every thread of the workload is stopped, and nobody has continued one.
        frozen: bool,
    },
    /// SIGCHLD: a frozen workload may have been continued.
    Continued,
}

/// The result of a scan of /proc, made after a kill or for a proof.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scan {
    /// Everything is gone and reaped. This is the proof of law 8.
    pub clean: bool,
    /// Processes that are left. There may be thousands.
    pub left: Vec<i32>,
    /// Some of them may not be killed (EPERM).
    pub denied: bool,
    /// SIGKILL was sent to at least one process.
    pub killed: bool,
}

/// A reason why nothing was spawned.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NotSpawned {
    /// The deadline had passed just before the execve (law 15).
    Late,
    /// The program cannot be executed.
    Failed {
        /// Exit code: 126 or 127.
        code: u8,
        /// One line for the log: the step, and the error.
        message: String,
    },
    /// The system has no process, descriptor or memory left for now.
    Unavailable {
        /// One line for the log: the step, and the error.
        message: String,
    },
}

/// The term as the workload may read it at any time, on the page of `TENURE_TERM_FD` (law 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TermStatus {
    /// Leader from its start or promotion until the proof that nothing of a leader runs.
    pub role: Role,
    /// leaseTransitions of the term; 0 without one.
    pub transitions: i32,
    /// The fencing token; 0 without a term, or if the token is no number of 64 bits.
    pub token: u64,
    /// S: nobody asks the workload to stop before it. Set to the boot, which is long past, once the workload is asked.
    pub soft: Instant,
    /// H: nobody else leads before it. Set to the boot if that is not known.
    pub hard: Instant,
    /// Count of the confirmed renewals of the term.
    pub renewals: u64,
}

impl TermStatus {
    /// The status while nothing of a leader runs.
    pub const NONE: Self =
        Self { role: Role::Standby, transitions: 0, token: 0, soft: Instant::BOOT, hard: Instant::BOOT, renewals: 0 };
}

/// The permission to lead: a term, and its soft deadline.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Launch {
    /// The term that the workload is told; none for a plain init.
    pub info: Option<TermInfo>,
    /// S: nothing is started, continued or promoted from here on (law 15).
    pub not_after: Instant,
}

/// The environment that a program gets beside its role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ProgramEnv {
    /// The term.
    pub info: Option<TermInfo>,
    /// The reason why the term ended, for `TENURE_REASON`.
    pub reason: Option<Reason>,
    /// The end of the workload, for `TENURE_EXIT_CODE` and `TENURE_EXIT_SIGNAL`.
    pub exit: Option<Exit>,
}

/// The receiver of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// This process.
    Main(i32),
    /// This process group.
    Group(i32),
}

/// An order of the agent, for `Turn` to carry out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Start an elector. Its first message is `Agent::initial_state`, read at that moment.
    StartElector,
    /// SIGKILL the elector, drain its link, and close it.
    KillElector,
    /// Send to the elector.
    Tell(ToElector),
    /// Start the workload in a new process group.
    Spawn {
        /// `TENURE_ROLE`; none for a plain init.
        role: Option<Role>,
        /// The term, and the time from which it is not started; none for a standby.
        launch: Option<Launch>,
    },
    /// Send a signal.
    Signal {
        /// The receiver.
        target: Target,
        /// The signal.
        signal: Signal,
    },
    /// Send SIGCONT, if the process is stopped: a plain init sends no signal that it did not get itself.
    Continue {
        /// The receiver.
        target: Target,
    },
    /// Tell a running workload its role by a signal. A forked child marks NOTIFY_SOCKET, checks the clock, and sends it (law 8,
    /// 15). A promotion waits until the process has a handler, because without one the signal would end it. No role that the
    /// workload notifies is fed before [`RoleInput::Signalled`].
    TellRole {
        /// The main process.
        pid: i32,
        /// The new role.
        role: Role,
        /// The signal that stands for it.
        signal: Signal,
        /// The signal is not sent from this instant on (law 15); none for a demotion.
        not_after: Option<Instant>,
    },
    /// SIGSTOP every process of the workload that is not stopped.
    Freeze,
    /// Check that the workload is still stopped.
    LookFrozen,
    /// Send SIGCONT to all processes of a frozen workload, from a forked child that checks the clock before (law 15). Answered like
    /// [`Action::TellRole`].
    Resume {
        /// No process is continued from this instant on.
        not_after: Instant,
    },
    /// SIGKILL the child of [`Action::TellRole`] or [`Action::Resume`], if it still runs, because the workload is being stopped.
    KillTeller,
    /// Start a hook in a new process group.
    Hook {
        /// The hook.
        hook: HookKind,
        /// Its environment.
        told: ProgramEnv,
        /// S for a promotion, H for a demotion. The forked child checks the clock just before its execve (law 15).
        not_after: Instant,
    },
    /// Start an exec probe in a new process group.
    Probe {
        /// The probe. Only one of a kind runs at a time.
        kind: ProbeKind,
        /// The current time, by which [`Input::Probed`] names this run.
        began: Instant,
        /// The permission as for [`Action::Spawn`]; none for a standby, whose probes have no deadline.
        launch: Option<Launch>,
    },
    /// SIGKILL the process group of this probe, if it still runs.
    KillProbe(ProbeKind),
    /// SIGKILL the process group of this hook.
    KillHook {
        /// Its pid.
        pid: i32,
    },
    /// Mark NOTIFY_SOCKET, so that only roles notified from now on count. Takes the place of a signal, and is answered like one.
    MarkNotify,
    /// Reap and scan, without killing.
    Prove,
    /// SIGKILL everything but init and the elector, reap and scan.
    Sweep,
    /// `kill(-1, SIGKILL)`, reap and scan. As PID 1 only.
    KillAll,
    /// End init at once, so that the kernel kills the PID namespace. As PID 1 only.
    Die,
    /// Log this as a warning.
    Warn(String),
    /// Log why init ends, and write it to /dev/termination-log.
    TerminationMessage(String, u8),
    /// End init with this exit code.
    Exit(u8),
}
