//! The facts of a term that init and elector share: its info, its last confirmed record, why and how it ended.
//!
//! Owns the one table of reasons why a term ends: which of them is a loss, a failure, or asked for. Why init ends is in
//! [`crate::exit`].

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::{config::Signal, environment, law::Deadlines, slot::Slot, time::Instant, words::worded};

/// A term of one init: rises with each acquisition, across its electors, and starts at 1.
///
/// Not `leaseTransitions`, which belongs to the Lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Term(pub u64);

/// The facts of a term that the workload is told. Constant within the term.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct TermInfo {
    /// `TENURE_SLOT`: which Lease is held.
    pub slot: Slot,
    /// `TENURE_FENCING_TOKEN`: resourceVersion of the acquiring write.
    pub token: String,
    /// `TENURE_LEASE_UID`.
    pub uid: String,
    /// `TENURE_TERM`: leaseTransitions.
    pub transitions: i32,
    /// `TENURE_ACQUIRED_AT`: acquireTime as it stands in the record.
    pub acquired_at: String,
    /// `TRACEPARENT`: the transition's span; empty if there is none.
    pub traceparent: String,
}

impl TermInfo {
    /// Adds the variables of this info to `env`. Init adds the others.
    pub fn export(&self, env: &mut BTreeMap<String, String>) {
        env.insert(environment::SLOT.into(), self.slot.0.to_string());
        env.insert(environment::TERM.into(), self.transitions.to_string());
        env.insert(environment::FENCING_TOKEN.into(), self.token.clone());
        env.insert(environment::LEASE_UID.into(), self.uid.clone());
        env.insert(environment::ACQUIRED_AT.into(), self.acquired_at.clone());
        if !self.traceparent.is_empty() {
            env.insert(environment::TRACEPARENT.into(), self.traceparent.clone());
        }
    }
}

/// How long a replica leaves the Lease to the others after its own terms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct LeaseBackoff {
    /// No campaign before this instant.
    pub until: Instant,
    /// The terms in a row that failed. 0: the back-off ends as soon as another replica leads.
    pub failures: u32,
}

impl LeaseBackoff {
    /// Returns the end of a back-off that follows on failures, if it is still to come.
    pub fn after_failures(self, now: Instant) -> Option<Instant> {
        Some(self.until).filter(|until| self.failures > 0 && *until > now)
    }
}

/// The last record that a write of this term proved, as the next elector needs it (law 1, 6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct Confirmed {
    /// resourceVersion of that record.
    pub resource_version: String,
    /// Its `preferredHolder`, unless that is implausibly long.
    pub preferred_holder: Option<String>,
    /// The deadlines of that write.
    pub deadlines: Deadlines,
}

worded! {
    /// Why a term ends or a workload stops; the closed set behind `tenure.reason`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Reason {
        /// tenure got SIGTERM, SIGINT or SIGQUIT.
        Signal = "signal",
        /// The workload ended by itself, and `workload.onExit` does not start it again.
        Exited = "exited",
        /// The command could not be executed, or an earlier process that must be gone first did not die.
        SpawnFailed = "spawn-failed",
        /// A run of a task reached its limit (`--limit`).
        Limit = "limit",
        /// A hook failed, and its failure ends the term.
        HookFailed = "hook-failed",
        /// The workload did not acknowledge its role in time (`runs: always`).
        NotAcknowledged = "not-acknowledged",
        /// The workload was not ready within `workload.startTimeout`.
        NotReady = "not-ready",
        /// The workload was not live.
        NotLive = "not-live",
        /// The Lease asked the holder to step down.
        StepDown = "step-down",
        /// A coordinator prefers another holder (`preferredHolder`).
        PreferredHolder = "preferred-holder",
        /// A guard of the kernel has killed the workload too early: its connection over the loopback interface was reset, or does not answer.
        Fuse = "fuse",
        /// No renewal was confirmed before the stop deadline (S).
        Expired = "expired",
        /// The Lease names another holder.
        LostToHolder = "lost-to-holder",
        /// Somebody cleared the holder.
        LostCleared = "lost-cleared",
        /// The Lease was deleted.
        LostDeleted = "lost-deleted",
        /// The Lease was deleted and recreated.
        LostRecreated = "lost-recreated",
        /// A copy of this replica renews the Lease too, such as one from a snapshot of its memory, or somebody has set its renewTime to a
        /// later time.
        LostToCopy = "lost-to-copy",
    }
}

/// What a reason says of a term.
enum Nature {
    /// Somebody wanted the term to end.
    AskedFor,
    /// The workload ended by itself.
    Exited,
    /// The replica did not do what a leader does, and may be the cause.
    Failure,
    /// A run took too long.
    Limit,
    /// The Lease is lost.
    Loss,
}

impl Reason {
    /// The one table of reasons.
    const fn nature(self) -> Nature {
        match self {
            Self::Signal | Self::StepDown | Self::PreferredHolder => Nature::AskedFor,
            Self::Exited => Nature::Exited,
            Self::SpawnFailed | Self::HookFailed | Self::NotAcknowledged | Self::NotReady | Self::NotLive | Self::Fuse => {
                Nature::Failure
            }
            Self::Limit => Nature::Limit,
            Self::Expired
            | Self::LostToHolder
            | Self::LostCleared
            | Self::LostDeleted
            | Self::LostRecreated
            | Self::LostToCopy => Nature::Loss,
        }
    }

    /// Returns true if a term that ended so has failed, with this exit of its workload: the replica may be the cause.
    pub fn is_failure(self, exit: Option<Exit>) -> bool {
        match self.nature() {
            Nature::Failure => true,
            Nature::Exited => exit != Some(Exit::Code(0)),
            Nature::AskedFor | Nature::Limit | Nature::Loss => false,
        }
    }

    /// Returns true if the run of a task is done: it ended by itself with success, or took as long as it may.
    pub fn is_done(self, exit: Option<Exit>) -> bool {
        match self.nature() {
            Nature::Exited => exit == Some(Exit::Code(0)),
            Nature::Limit => exit.is_some(),
            Nature::AskedFor | Nature::Failure | Nature::Loss => false,
        }
    }

    /// Returns true if the Lease is lost: the grace is then `lossGrace`, and nothing is released (law 4, 7).
    pub const fn is_loss(self) -> bool {
        matches!(self.nature(), Nature::Loss)
    }

    /// Returns true if somebody wanted the term to end. Others are for somebody to look into.
    pub const fn is_asked_for(self) -> bool {
        matches!(self.nature(), Nature::AskedFor | Nature::Exited)
    }
}

/// How a workload process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub enum Exit {
    /// With this status.
    Code(u8),
    /// By this signal.
    Signal(i32),
}

impl Exit {
    /// tenure's exit code for it: the workload's own, or 128 plus the signal.
    pub fn code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => u8::try_from(128_i32.saturating_add(signal)).unwrap_or(u8::MAX),
        }
    }

    /// Returns the end as a predicate: "ended with exit code 3".
    pub fn predicate(self) -> String {
        match self {
            Self::Code(_) => format!("ended with {self}"),
            Self::Signal(_) => format!("was {self}"),
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "killed by {}", Signal(*signal).name()),
        }
    }
}

/// How the workload of a term came to be proved gone (or demoted, with `runs: always`); for traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct Stop {
    /// When the stop began: the first stop signal, or the workload's own end. None if nothing had run.
    pub began: Option<Instant>,
    /// When SIGKILL was first sent, if it was.
    pub killed: Option<Instant>,
    /// When the main process was reaped; `None` if it did not run, or lives on demoted.
    pub exited: Option<Instant>,
    /// How the main process ended; `None` if it did not run, or lives on demoted.
    pub exit: Option<Exit>,
    /// When the kernel's fuse fired, if init noticed it after E: it had not run since.
    pub fused: Option<Instant>,
    /// When the proof was complete for the first time; nothing of the term has run since.
    pub proved: Instant,
}

impl Stop {
    /// Returns the same stop as of `then`, when nothing was running any more: it was proved before the stop was asked for.
    pub const fn of_nothing(self, then: Instant) -> Self {
        Self { began: None, killed: None, exited: None, fused: None, proved: then, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_with_the_name_of_its_signal() {
        assert_eq!(Exit::Code(3).to_string(), "exit code 3");
        assert_eq!(Exit::Signal(libc::SIGKILL).to_string(), "killed by SIGKILL");
        assert_eq!(Exit::Code(3).predicate(), "ended with exit code 3");
        assert_eq!(Exit::Signal(libc::SIGKILL).predicate(), "was killed by SIGKILL");
    }
}
