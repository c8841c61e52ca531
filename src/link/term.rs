//! What both sides know of a term: its info, what is confirmed of it, why and how it ended.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::{config::Signal, environment, law::Deadlines, time::Instant, words::worded};

/// A term of one init: rises with each acquisition, across its electors, and starts at 1.
///
/// It is not `leaseTransitions`, which belongs to the Lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Term(pub u64);

/// One of the `lease.slots` Leases, from 0 on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Slot(pub u8);

impl Slot {
    /// What is called `name` in the first slot has this name in this one.
    #[must_use]
    pub fn of(self, name: &str) -> String {
        if self.0 == 0 { name.to_owned() } else { format!("{name}-slot-{}", self.0) }
    }
}

/// What the workload is told of its term; constant within the term.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Adds the variables of these info to `env`; init knows the rest by itself.
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

/// The last record that a write of this term proved, as the next elector needs it (law 1, 6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirmed {
    /// The Lease's uid.
    pub uid: String,
    /// Its resourceVersion after that write.
    pub resource_version: String,
    /// Its exact `spec`, as JSON; empty if that is implausibly long.
    pub spec: String,
    /// The deadlines of that write.
    pub deadlines: Deadlines,
}

worded! {
    /// Why a term ends or a workload stops; the closed set behind `tenure.reason`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Reason {
        /// SIGTERM, SIGINT or SIGQUIT to init.
        Signal = "signal",
        /// The workload ended by itself, and its policy does not start it again.
        Exited = "exited",
        /// The command could not be executed, or could not be started because what ran before does not die.
        SpawnFailed = "spawn-failed",
        /// A run of a task took as long as it may (`task.limit`).
        Limit = "limit",
        /// A hook failed whose failure ends the term.
        HookFailed = "hook-failed",
        /// The role signal was not acknowledged in time (`runs: always`).
        NotAcknowledged = "not-acknowledged",
        /// It was not ready within `workload.startTimeout`.
        NotReady = "not-ready",
        /// It was not live.
        NotLive = "not-live",
        /// Somebody asked for it through the Lease.
        StepDown = "step-down",
        /// A coordinator prefers another holder.
        PreferredHolder = "preferred-holder",
        /// No renewal was confirmed before the soft deadline.
        Expired = "expired",
        /// The Lease names another holder.
        LostToHolder = "lost-to-holder",
        /// Somebody cleared the holder.
        LostCleared = "lost-cleared",
        /// The Lease was deleted.
        LostDeleted = "lost-deleted",
        /// The Lease was deleted and recreated.
        LostRecreated = "lost-recreated",
        /// A copy of this replica, such as a restored snapshot of its memory, renews the Lease too.
        LostToCopy = "lost-to-copy",
    }
}

impl Reason {
    /// Whether the Lease is no longer ours: the grace is then `lossGrace`, and nothing is released (law 4, 7).
    #[must_use]
    pub const fn is_loss(self) -> bool {
        match self {
            Self::Expired
            | Self::LostToHolder
            | Self::LostCleared
            | Self::LostDeleted
            | Self::LostRecreated
            | Self::LostToCopy => true,
            Self::Signal
            | Self::Exited
            | Self::SpawnFailed
            | Self::Limit
            | Self::HookFailed
            | Self::NotAcknowledged
            | Self::NotReady
            | Self::NotLive
            | Self::StepDown
            | Self::PreferredHolder => false,
        }
    }
}

/// How a workload process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    /// With this status.
    Code(u8),
    /// By this signal.
    Signal(i32),
}

impl Exit {
    /// tenure's exit code for it: the workload's own, or 128 plus the signal.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => u8::try_from(128_i32.saturating_add(signal)).unwrap_or(u8::MAX),
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// When the stop began: the first stop signal, or the workload's own end. None if nothing had run.
    pub began: Option<Instant>,
    /// When SIGKILL was first sent, if it was.
    pub killed: Option<Instant>,
    /// When the main process was reaped; `None` if it did not run, or lives on demoted.
    pub exited: Option<Instant>,
    /// How the main process ended; `None` if it did not run, or lives on demoted.
    pub exit: Option<Exit>,
    /// When the proof was complete for the first time; nothing of the term has run since.
    pub proved: Instant,
}

impl Stop {
    /// The same end where it was proved before anybody asked for it: nothing was running at `then`.
    #[must_use]
    pub const fn of_nothing(self, then: Instant) -> Self {
        Self { began: None, killed: None, exited: None, proved: then, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_with_the_name_of_its_signal() {
        assert_eq!(Exit::Code(3).to_string(), "exit code 3");
        assert_eq!(Exit::Signal(libc::SIGKILL).to_string(), "killed by SIGKILL");
    }
}
