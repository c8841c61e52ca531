//! The configuration, validated: what the other rooms read.
//!
//! Owns the keys, their types and defaults (`lease`, `workload`, `roles`, `scalars`): the only list of them, from which the names of
//! keys and the schema follow. Further, where values come from (`document`, `keys`, `sources`, `load`) and whether they make sense
//! together (`rules`). It is read once, at start; nothing reads it again.
//!
//! Layers: defaults, then one file, then `TENURE_` variables with two underscores together in their name, then flags. Each value
//! is judged by the type that it ends in, alone and with its origin, so that everything that is wrong is said at once, with file
//! and line, variable or flag. Only then figment merges the layers: maps entry by entry, everything else as a whole.
//!
//! As text (a variable, `--set`) a value is what it is in a file without quotes, except that text stays text (`007`), and `null`
//! stands for none where a key may be null. An empty variable is an empty text: fine where the file may say `""`, refused elsewhere.

use std::net::SocketAddr;

use scalars::Listen;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{law::Timing, words::worded};

mod document;
mod effective;
mod health;
pub(crate) mod humane;
mod keys;
mod lease;
mod load;
mod preset;
mod roles;
mod rules;
mod scalars;
mod schema;
mod service;
mod sources;
mod task;
#[cfg(test)]
mod tests;
mod workload;

pub use health::{Candidate, ExecProbe, FileProbe, HttpProbe, Means, Probe, ProbeKind, Scheme, TcpProbe};
pub use lease::{ForeignRelease, LeaseConfig, Release};
#[cfg(any(test, fuzzing))]
pub(crate) use load::load_text;
pub use load::{Invalid, Loaded, Origin, Problem, load};
pub use preset::{Patience, Preset};
pub use roles::{Hook, HookKind, Hooks, OnHookFailure, Rewrite, Signals, Standby};
pub use rules::{Purpose, can_stand};
pub use scalars::{Drift, Signal};
pub use schema::{DEFAULTS, schema};
pub use service::{Events, Protocol, Service, ServicePort};
pub use task::{AfterCrash, OnFailure, Task, TaskConfig};
pub use workload::{Acknowledge, KillMode, NotifyAccess, OnExit, OnLoss, Restart, RestartPolicy, Runs, Stop, WorkloadConfig};

/// Everything that a user can set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Config {
    /// The Lease and the timing of the election.
    pub lease: LeaseConfig,
    /// The wrapped process.
    pub workload: WorkloadConfig,
    /// A task, with `tenure task` only.
    pub task: TaskConfig,
    /// What runs while this replica follows.
    pub standby: Standby,
    /// Signals that tell a running workload its role.
    pub signals: Signals,
    /// Commands around a change of role.
    pub hooks: Hooks,
    /// Traffic to the leader.
    pub service: Service,
    /// Kubernetes Events.
    pub events: Events,
    /// Probes and pages.
    pub http: Http,
    /// Log lines.
    pub log: Log,
}

/// Probes and pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Http {
    /// Where the probes and pages listen; nowhere unless set.
    #[serde(with = "Listen")]
    #[schemars(with = "Option<String>")]
    pub listen: Option<SocketAddr>,
    /// When /readyz is.
    pub ready: HttpReady,
}

/// When /readyz is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum HttpReady {
    /// Once the Lease was read.
    #[default]
    Always,
    /// And while the workload, if it runs here, is ready.
    Workload,
}

/// Log lines, on standard error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Log {
    /// The least severe lines shown.
    pub level: LogLevel,
    /// Their form.
    pub format: LogFormat,
}

worded! {
    /// The least severe lines shown.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "camelCase")]
    pub enum LogLevel {
        /// Failures.
        Error = "ERROR",
        /// And what may become one.
        Warn = "WARN",
        /// And transitions.
        #[default]
        Info = "INFO",
        /// And requests.
        Debug = "DEBUG",
        /// And everything.
        Trace = "TRACE",
    }
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line, with trace ids.
    Json,
}

impl Config {
    /// The constants of the law for this configuration.
    #[must_use]
    pub const fn timing(&self) -> Timing {
        Timing {
            duration: self.lease.duration,
            renew_period: self.lease.renew_period,
            attempt_timeout: self.lease.attempt_timeout,
            drift: self.lease.clock_drift.0,
            loss_grace: self.workload.stop.loss_grace,
            kill_margin: self.workload.stop.kill_margin,
        }
    }
}
