//! What there is to report of an election, once it is over: the facts behind spans and log lines.
//!
//! Owns the names and words that a trace may carry; they are a closed set, documented here.
//!
//! `tenure.reason` of a transition to leader is why the Lease could be taken: `absent`, `released`, `cleared` or `expired`;
//! `resumed` if the elector that knew has ended since. Of a transition to standby it is why the term ended: one of [`Reason`].

use std::time::Duration;

use opentelemetry::KeyValue;

use crate::{
    election::{Vacancy, trace::TraceContext},
    link::{Exit, Reason},
    role::Role,
    time::{Instant, Now},
};

/// What a span describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// The whole of a transition.
    Transition,
    /// From the moment when the Lease could be taken until it was held, or another replica had it.
    Campaign,
    /// The write that took the Lease, from its send to the answer.
    Acquire,
    /// From init's order to start (or the end of the creation wait) until the workload runs, or was promoted.
    WorkloadStart,
    /// From the start of a hook until nothing of it was left.
    Hook,
    /// From the stop signal, or the workload's own end, until its main process was gone, or it was demoted.
    WorkloadStop,
    /// From the first SIGKILL until what it was sent to was gone.
    WorkloadKill,
    /// From the end of the main process until no process was left.
    WorkloadProof,
    /// From the proof until the Lease was given back.
    Release,
    /// A renewal that failed.
    Renew,
}

impl Name {
    /// The name of the span.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Transition => "transition",
            Self::Campaign => "campaign",
            Self::Acquire => "acquire",
            Self::WorkloadStart => "workload.start",
            Self::Hook => "hook",
            Self::WorkloadStop => "workload.stop",
            Self::WorkloadKill => "workload.kill",
            Self::WorkloadProof => "workload.proof",
            Self::Release => "release",
            Self::Renew => "renew",
        }
    }
}

/// Why a transition happened: `tenure.reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// To leader: why the Lease could be taken.
    Vacancy(Vacancy),
    /// To leader: the elector that knew has ended since.
    Resumed,
    /// To standby: why the term ended.
    End(Reason),
}

impl Cause {
    /// The word in the span and the log.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Vacancy(vacancy) => vacancy.as_str(),
            Self::Resumed => "resumed",
            Self::End(reason) => reason.as_str(),
        }
    }
}

/// Something that is over.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    Transition(Box<Transition>),
    /// A campaign that another replica won: nothing in it claims leadership.
    Lost(Campaign),
    /// Within a term, outside its transitions: a renewal that failed, a workload that was started again.
    During {
        parent: TraceContext,
        anchor: Anchor,
        term: i32,
        phase: Phase,
    },
}

impl Outcome {
    /// The trace that it belongs to.
    pub(crate) const fn trace_id(&self) -> u128 {
        match self {
            Self::Transition(transition) => transition.context.trace_id,
            Self::Lost(campaign) => campaign.context.trace_id,
            Self::During { parent, .. } => parent.trace_id,
        }
    }
}

/// A change of role.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Transition {
    pub(crate) to: Role,
    pub(crate) reason: Cause,
    /// leaseTransitions.
    pub(crate) term: Option<i32>,
    /// The fencing token of the term.
    pub(crate) token: Option<String>,
    pub(crate) context: TraceContext,
    pub(crate) origin: Origin,
    pub(crate) from: Instant,
    pub(crate) until: Instant,
    pub(crate) anchor: Anchor,
    /// What was left of the term's validity when the workload ran, or was proved gone.
    pub(crate) margin: Option<Margin>,
    pub(crate) phases: Vec<Phase>,
    /// How the workload's main process ended, if it did.
    pub(crate) exit: Option<Exit>,
    /// The process, and how the Lease was given back, where that is known.
    pub(crate) facts: Vec<KeyValue>,
    /// The workload was demoted, and runs on.
    pub(crate) demoted: bool,
    /// Why it is not what it was meant to be.
    pub(crate) error: Option<&'static str>,
}

impl Transition {
    /// How long the phase of this name took, if there was one.
    pub(crate) fn took(&self, name: Name) -> Option<Duration> {
        self.phases.iter().find(|phase| phase.name == name).map(|phase| phase.until.since(phase.from))
    }
}

/// A campaign, won or lost.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Campaign {
    pub(crate) reason: Cause,
    pub(crate) context: TraceContext,
    pub(crate) origin: Origin,
    pub(crate) from: Instant,
    pub(crate) until: Instant,
    pub(crate) anchor: Anchor,
}

/// A part of a transition, or of a term.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Phase {
    pub(crate) name: Name,
    pub(crate) from: Instant,
    pub(crate) until: Instant,
    pub(crate) facts: Vec<KeyValue>,
    pub(crate) error: Option<String>,
}

impl Phase {
    pub(crate) fn new(name: Name, from: Instant, until: Instant) -> Self {
        Self { name, from, until: until.max(from), facts: Vec::new(), error: None }
    }

    pub(crate) fn with(mut self, fact: KeyValue) -> Self {
        self.facts.push(fact);
        self
    }
}

/// How a transition relates to what went before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// To nothing that is known.
    None,
    /// A handover: the old leader's transition is its parent.
    Handover(Earlier),
    /// The old leader did not hand over, or it is this replica's own term that ends: a span link.
    After(Earlier),
}

/// An earlier transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Earlier {
    pub(crate) context: TraceContext,
    /// It was another replica's.
    pub(crate) remote: bool,
}

/// Time left; negative if it was too late.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Margin(pub(crate) f64);

impl Margin {
    pub(crate) fn until(end: Instant, at: Instant) -> Self {
        Self(end.since(at).as_secs_f64() - at.since(end).as_secs_f64())
    }
}

/// Ties CLOCK_BOOTTIME to the wall clock; one for a whole transition, so that a step of the wall clock does not disorder its
/// parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Anchor(Now);

impl Anchor {
    pub(crate) const fn new(now: Now) -> Self {
        Self(now)
    }

    /// Nanoseconds since 1970.
    pub(crate) fn wall(self, at: Instant) -> i128 {
        i128::from(self.0.wall) * 1000 + i128::from(at.as_nanos()) - i128::from(self.0.boot.as_nanos())
    }
}

/// Which process, as an attribute.
pub(crate) fn pid_fact(pid: i32) -> KeyValue {
    KeyValue::new("process.pid", i64::from(pid))
}

/// How a process ended, as an attribute.
pub(crate) fn exit_fact(exit: Exit) -> KeyValue {
    match exit {
        Exit::Code(code) => KeyValue::new("process.exit.code", i64::from(code)),
        Exit::Signal(signal) => KeyValue::new("tenure.exit_signal", i64::from(signal)),
    }
}
