//! What there is to tell of changes of leadership, once they are over.
//!
//! Owns the names and words that a trace may carry; they are a closed set, documented here. `tenure.reason` of a transition to
//! leader is why the Lease could be taken, an [`AcquireReason`]; `resumed` if the elector that knew has ended since. Of a
//! transition to standby it is why the term ended: a [`Reason`].

use std::time::Duration;

use super::{AcquireReason, Operation, ReleaseResult, RequestError, trace::TraceContext};
use crate::{
    config::HookKind,
    link::{Exit, Reason, Slot},
    role::Role,
    time::{Instant, Now},
};

/// A change of role.
#[derive(Clone, Debug, PartialEq)]
pub struct Transition {
    /// What the replica is now, or was to be.
    pub to: Role,
    /// Why.
    pub reason: TransitionReason,
    /// Of several Leases, which.
    pub slot: Slot,
    /// leaseTransitions.
    pub term: i32,
    /// The fencing token of the term.
    pub token: String,
    /// Its own span.
    pub context: TraceContext,
    /// What went before it.
    pub origin: Origin,
    /// From the moment when the Lease could be taken, or when the stop began.
    pub from: Instant,
    /// Until the workload led, or the Lease was given back.
    pub until: Instant,
    /// Ties the whole of it to the wall clock.
    pub anchor: Anchor,
    /// What was left of the term's validity when the workload led, or was proved gone.
    pub margin: Option<Margin>,
    /// Its parts.
    pub phases: Vec<Phase>,
    /// How the workload's main process ended, if it did.
    pub exit: Option<Exit>,
    /// How the Lease was given back, if it came to that.
    pub release: Option<ReleaseResult>,
    /// How far it came.
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
    /// How long the phase of this name took, if there was one.
    #[must_use]
    pub fn took(&self, name: &str) -> Option<Duration> {
        self.phases.iter().find(|phase| phase.kind.as_str() == name).map(|phase| phase.until.since(phase.from))
    }
}

/// A campaign that another replica won: nothing in it claims leadership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostCampaign {
    /// Why the Lease could be taken.
    pub reason: AcquireReason,
    /// Its span.
    pub context: TraceContext,
    /// What went before it.
    pub origin: Origin,
    /// Its beginning, tied to the wall clock.
    pub anchor: Anchor,
    /// When another replica had the Lease.
    pub until: Instant,
}

/// Something within a term, outside its transitions.
#[derive(Clone, Debug, PartialEq)]
pub struct TermPhase {
    /// The transition that began the term.
    pub context: TraceContext,
    /// leaseTransitions.
    pub term: i32,
    /// Ties it to the wall clock.
    pub anchor: Anchor,
    /// What it is.
    pub phase: Phase,
}

/// A part of a transition, or of a term.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Which.
    pub kind: PhaseKind,
    /// Its beginning.
    pub from: Instant,
    /// Its end.
    pub until: Instant,
}

/// What a phase is.
#[derive(Clone, Debug, PartialEq)]
pub enum PhaseKind {
    /// What runs once waited for the Lease, before it could be taken.
    Wait {
        /// For whom, last.
        holder: Option<String>,
    },
    /// From the moment when the Lease could be taken until it was held.
    Campaign,
    /// The write that took the Lease, from its send to the proof.
    Acquire,
    /// From init's order to start, or the end of the process before it, until the workload runs, or was promoted.
    WorkloadStart {
        /// The process.
        pid: i32,
        /// How the one before it ended, if it is started again.
        after: Option<Exit>,
    },
    /// From when the workload led until it was first ready, where that is asked and it was not ready already. Its span may outlast
    /// that of its transition.
    WorkloadReady,
    /// From the start of a hook until nothing of it was left.
    Hook {
        /// Which.
        hook: HookKind,
        /// How it ended.
        exit: Exit,
    },
    /// From the stop signal, or the workload's own end, until its main process was gone, or it was demoted.
    WorkloadStop,
    /// From the first SIGKILL until what it was sent to was gone.
    WorkloadKill,
    /// From the end of the main process until no process was left.
    WorkloadProof,
    /// From the proof until the Lease was given back.
    Release(ReleaseResult),
    /// A renewal that failed.
    Renew {
        /// The request that failed.
        operation: Operation,
        /// What was left of the term's validity.
        margin: Margin,
        /// Why.
        error: RequestError,
    },
}

impl PhaseKind {
    /// The name of its span.
    #[must_use]
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
    /// To leader: the elector that knew why has ended since.
    Resumed,
    /// To standby: why the term ended.
    Ended(Reason),
}

impl TransitionReason {
    /// The word in the span and the log.
    #[must_use]
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
    /// To nothing that is known.
    None,
    /// A handover: the old leader's transition is its parent.
    Handover(Earlier),
    /// The old leader did not hand over, or it is this replica's own term that ends: a span link.
    After(Earlier),
}

/// An earlier transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Earlier {
    /// Its span.
    pub context: TraceContext,
    /// It was another replica's.
    pub remote: bool,
}

/// Seconds left; negative if it was too late.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Margin(pub f64);

impl Margin {
    pub(crate) fn until(end: Instant, at: Instant) -> Self {
        Self(end.since(at).as_secs_f64() - at.since(end).as_secs_f64())
    }
}

/// Ties CLOCK_BOOTTIME to the wall clock; one for a whole transition, so that a step of the wall clock does not disorder its
/// parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor(pub Now);

impl Anchor {
    /// Nanoseconds since 1970.
    #[must_use]
    pub fn wall(self, at: Instant) -> i128 {
        i128::from(self.0.wall) * 1000 + i128::from(at.as_nanos()) - i128::from(self.0.boot.as_nanos())
    }
}
