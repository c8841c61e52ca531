//! The parts of the course of terms, as the recorder completes them.
//!
//! Owns the phases and reasons that a trace may carry: a closed set, documented here. The recorder completes a phase, and `spans`
//! gives it its attributes. Names of attributes are in [`super::names`].
//! `tenure.reason` of a transition to leader is the [`AcquireReason`]; it is `resumed` if the elector that knew the reason has
//! ended. `tenure.reason` of a transition to standby is the [`Reason`] why the term ended.

use std::time::Duration;

use crate::{
    config::HookKind,
    election::{AcquireReason, ReleaseResult, trace::TraceContext},
    link::{Exit, Reason},
    request::{Operation, RequestError},
    role::Role,
    slot::Slot,
    time::{Instant, Now},
    words::worded,
};

/// What the main process leaves behind is killed within this time after its end.
const AT_ONCE: Duration = Duration::from_millis(50);

/// A part of the course of terms that is over.
#[derive(Clone, Debug, PartialEq)]
pub enum Recorded {
    /// The Lease names another term than before, or none: the history that `/` shows.
    HolderChanged {
        /// Which Lease.
        slot: Slot,
        /// The new holder; none: nobody has taken it.
        holder: Option<String>,
        /// leaseTransitions.
        term: i32,
        /// When the term began by the holder's wall clock, in microseconds. Without a holder, when that was observed by this wall
        /// clock.
        at: i64,
        /// The end of the last term, if there was one.
        before: Option<TermEnd>,
        /// How long the Lease is waited for, if it is held by nobody (law 14).
        nobody: Option<Duration>,
    },
    /// Another client took or changed the Lease first.
    CampaignLost(Box<Campaign>),
    /// This replica leads, or stands by again.
    Transitioned(Box<Transition>),
    /// A part of a term, outside its transitions, is over.
    WithinTerm(Box<TermPhase>),
    /// A lock or a task with `--once` waits for the Lease no longer.
    WaitedInVain {
        /// The span of the wait.
        context: TraceContext,
        /// The clocks at its end.
        anchor: Anchor,
        /// The wait, with the holder that it was for.
        wait: Phase,
    },
}

worded! {
    /// How a term ended, as far as the Lease shows it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum TermEnd {
        /// The holder gave it back.
        Released = "released",
        /// Its holder died, and the witness or `tenure confirm-dead` gave it back (law 20).
        Died = "died",
        /// Its duration was over when the next term began.
        Expired = "expired",
        /// The next term began before its duration was over. The change between them was not observed.
        Replaced = "replaced",
        /// The Lease was emptied.
        Cleared = "cleared",
        /// The Lease was deleted.
        Deleted = "deleted",
    }
}

/// A change of role.
#[derive(Clone, Debug, PartialEq)]
pub struct Transition {
    /// The role that the replica has now, or was to have.
    pub to: Role,
    /// The reason.
    pub reason: TransitionReason,
    /// The slot of the Lease.
    pub slot: Slot,
    /// leaseTransitions.
    pub term: i32,
    /// The fencing token of the term.
    pub token: String,
    /// The transition's own span.
    pub context: TraceContext,
    /// The transition before it.
    pub origin: Origin,
    /// When the Lease could be taken, or when the stop began.
    pub from: Instant,
    /// When the workload led, or when the Lease was given back.
    pub until: Instant,
    /// The clocks that tie all its instants to the wall clock.
    pub anchor: Anchor,
    /// The validity that the term had left when the workload led, or was proved gone.
    pub margin: Option<Margin>,
    /// The parts of the transition.
    pub phases: Vec<Phase>,
    /// How the workload's main process ended, if it did.
    pub exit: Option<Exit>,
    /// When the kernel's fuse had killed the workload, and when that was noticed, where that was after E.
    pub fused: Option<(Instant, Instant)>,
    /// How the Lease was given back, if it came to that.
    pub release: Option<ReleaseResult>,
    /// How far the transition came.
    pub outcome: Outcome,
}

/// How far a transition came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The workload leads, or is gone.
    Complete,
    /// To standby: the workload was demoted, and runs on.
    Demoted,
    /// To leader: the term ended before the workload led.
    NeverLed,
}

impl Transition {
    /// Returns how long the phase of this name took, if there was one.
    pub fn took(&self, name: &str) -> Option<Duration> {
        self.phase(name).map(|phase| phase.until.since(phase.from))
    }

    fn phase(&self, name: &str) -> Option<&Phase> {
        self.phases.iter().find(|phase| phase.kind.as_str() == name)
    }

    /// Returns how long the main process had to stop before SIGKILL ended it. None: it ended in another way.
    pub fn grace_before_kill(&self) -> Option<Duration> {
        let (stop, kill) = (self.phase("workload.stop")?, self.phase("workload.kill")?);
        let ended_by_kill = self.exit == Some(Exit::Signal(libc::SIGKILL)) && stop.from <= kill.from && kill.from <= stop.until;
        ended_by_kill.then(|| kill.from.since(stop.from))
    }

    /// Returns true if tenure's SIGKILL ended the term, and did not only meet what the main process left behind: that is killed at
    /// once. Another SIGKILL, as of the kernel when memory is short, comes before tenure's.
    pub fn is_killed(&self) -> bool {
        let (Some(kill), Some(proof)) = (self.phase("workload.kill"), self.phase("workload.proof")) else {
            return self.phase("workload.kill").is_some();
        };
        let exited = self.exit.is_some_and(|exit| exit != Exit::Signal(libc::SIGKILL) || proof.from <= kill.from);
        !(exited && kill.from.since(proof.from) < AT_ONCE)
    }
}

/// A campaign, until it is won or lost. Only one that another replica won is recorded: nothing in it claims leadership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Campaign {
    /// Why the Lease could be taken.
    pub reason: AcquireReason,
    /// The campaign's span.
    pub context: TraceContext,
    /// The transition before it.
    pub origin: Origin,
    /// The clocks when the campaign began.
    pub anchor: Anchor,
    /// When another replica had the Lease; before that, when the campaign began.
    pub until: Instant,
}

/// A part of a term, outside its transitions.
#[derive(Clone, Debug, PartialEq)]
pub struct TermPhase {
    /// The transition that began the term, or that ended it, after which `afterFollow` ran.
    pub context: TraceContext,
    /// leaseTransitions.
    pub term: i32,
    /// The clocks that tie it to the wall clock.
    pub anchor: Anchor,
    /// The part.
    pub phase: Phase,
}

/// A part of a transition, or of a term.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// The kind.
    pub kind: PhaseKind,
    /// Its beginning.
    pub from: Instant,
    /// Its end.
    pub until: Instant,
}

/// The kind of a phase.
#[derive(Clone, Debug, PartialEq)]
pub enum PhaseKind {
    /// The wait of a lock, or of a task with `--once`, until the Lease could be acquired. Begins before its transition.
    Wait {
        /// The last holder that it waited for.
        holder: Option<String>,
    },
    /// From the moment when the Lease could be acquired until it was held.
    Campaign,
    /// The write that acquired the Lease, from its send to its confirmation.
    Acquire,
    /// From the order to start until the workload runs, or is promoted. A restart counts from the end of the process before it.
    WorkloadStart {
        /// The process id.
        pid: i32,
        /// How the last process ended, if the workload is started again.
        after: Option<Exit>,
    },
    /// From the moment when the workload led until it was first ready, if a probe asks it and it was not ready before. May end
    /// later than its transition.
    WorkloadReady,
    /// From the start of a hook until no process of it was left.
    Hook {
        /// The kind.
        hook: HookKind,
        /// How the hook ended.
        exit: Exit,
    },
    /// From the stop signal until the main process was gone, or the workload was demoted. Begins with the workload's own end, if
    /// that came first.
    WorkloadStop,
    /// From the first SIGKILL until the processes that got it were gone.
    WorkloadKill,
    /// From the end of the main process until no process was left.
    WorkloadProof,
    /// From the proof until the Lease was released.
    Release(ReleaseResult),
    /// A renewal that failed.
    Renew {
        /// The operation that failed.
        operation: Operation,
        /// The validity that the term had left.
        margin: Margin,
        /// The reason.
        error: RequestError,
    },
}

impl PhaseKind {
    /// Returns the name of the phase's span.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Wait { .. } => "wait",
            Self::Campaign => "campaign",
            Self::Acquire => "acquire",
            Self::WorkloadStart { .. } => "workload.start",
            Self::WorkloadReady => "workload.ready",
            Self::Hook { .. } => "hook",
            Self::WorkloadStop => "workload.stop",
            Self::WorkloadKill => "workload.kill",
            Self::WorkloadProof => "workload.proof",
            Self::Release(_) => "release",
            Self::Renew { .. } => "renew",
        }
    }
}

impl Phase {
    pub(crate) fn new(kind: PhaseKind, from: Instant, until: Instant) -> Self {
        Self { kind, from, until: until.max(from) }
    }
}

/// Why a transition happened: `tenure.reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransitionReason {
    /// To leader: why the Lease could be taken.
    Acquired(AcquireReason),
    /// A new elector goes on with the term; the one that knew the reason has ended.
    Resumed,
    /// To standby: why the term ended.
    Ended(Reason),
}

impl TransitionReason {
    /// Returns the word in the span and the log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Acquired(reason) => reason.as_str(),
            Self::Resumed => "resumed",
            Self::Ended(reason) => reason.as_str(),
        }
    }
}

/// How a transition relates to what went before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// No earlier transition is known.
    None,
    /// A handover: the old leader's transition is its parent.
    Handover(Earlier),
    /// A span link: the old leader did not hand over, or this replica's own term ends.
    After(Earlier),
}

/// An earlier transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Earlier {
    /// The span of that transition.
    pub context: TraceContext,
    /// Another replica made it.
    pub remote: bool,
}

/// Seconds left; negative if it was too late.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Margin(pub f64);

impl Margin {
    pub(crate) fn until(end: Instant, at: Instant) -> Self {
        Self(end.since(at).as_secs_f64() - at.since(end).as_secs_f64())
    }

    /// None: it was too late.
    pub(super) fn left(self) -> Option<Duration> {
        Duration::try_from_secs_f64(self.0).ok()
    }
}

/// Ties the clock of deadlines to the wall clock. A whole transition has one, so that a step of the wall clock does not disorder its
/// parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor(pub Now);

impl Anchor {
    /// Returns a time for people, with milliseconds.
    pub fn shown(self, at: Instant) -> String {
        jiff::Timestamp::from_nanosecond(self.wall(at)).map_or_else(|_| String::new(), |at| format!("{at:.3}"))
    }

    /// Returns nanoseconds since 1970.
    pub fn wall(self, at: Instant) -> i128 {
        i128::from(self.0.wall) * 1000 + i128::from(at.as_nanos()) - i128::from(self.0.boot.as_nanos())
    }
}
