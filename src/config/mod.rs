//! The configuration: the keys that a user can set, their types, meanings and defaults.
//!
//! Owns the values, and how each is written as text. Pure. [`crate::loading`] makes them of a file, the environment and flags; names
//! of keys and the schema follow from these types. [`Config::timing`] makes the law's constants of the keys.

use std::{net::SocketAddr, time::Duration};

use scalars::Maybe;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{law::Timing, words::worded};

/// Defines a section of the configuration whose defaults stand beside its keys. A key without one has the default of its type.
macro_rules! section {
    (@default) => { Default::default() };
    (@default $default:expr) => { $default };
    ($(#[$of:meta])* pub struct $name:ident {
        $($(#[$on:meta])* pub $key:ident: $type:ty $(= $default:expr)?,)*
    }) => {
        $(#[$of])*
        pub struct $name {
            $($(#[$on])* pub $key: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: section!(@default $($default)?),)* }
            }
        }
    };
}

pub(crate) mod duration;
mod health;
mod lease;
mod preset;
mod roles;
mod scalars;
mod schedule;
mod service;
mod shared;
mod task;
mod workload;

pub use health::{Candidate, ExecProbe, FileProbe, HttpProbe, Probe, ProbeHandler, ProbeKind, Scheme, TcpProbe};
pub use lease::{ForeignRelease, LeaseConfig, Prefer, Release, can_stand, is_socket};
pub(crate) use lease::{LONGEST_NAME, LONGEST_SOCKET};
pub use preset::{Preset, WaitLimit};
pub use roles::{Hook, HookKind, Hooks, OnHookFailure, Rewrite, Signals, Standby};
pub use scalars::{Drift, Signal};
pub use schedule::{Cron, Schedule, Zone};
pub use service::{Events, Protocol, Service, ServicePort};
pub use shared::SharedConfig;
pub use task::{AfterCrash, Missed, OnFailure, Task, TaskConfig, Trigger};
pub(crate) use task::{interval, run_limit};
pub use workload::{Acknowledge, KillMode, NotifyAccess, OnExit, OnLoss, Restart, RestartPolicy, Runs, Stop, WorkloadConfig};

/// Everything that a user can set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Config {
    /// The Lease, and the times of the election.
    pub lease: LeaseConfig,
    /// The program that tenure runs.
    pub workload: WorkloadConfig,
    /// Keys of `tenure task` only.
    pub task: TaskConfig,
    /// A program for standbys.
    pub standby: Standby,
    /// Signals by which tenure tells a running workload its role, and changes to those that tenure forwards.
    pub signals: Signals,
    /// Programs that run around a change of role, without a shell. They have the environment of the workload and of the term; in
    /// beforeFollow, TRACEPARENT is that of the promotion. A stop kills those that still run.
    pub hooks: Hooks,
    /// Traffic to the leader: docs/traffic.md.
    pub service: Service,
    /// Kubernetes Events.
    pub events: Events,
    /// Probes and pages of tenure itself.
    pub http: Http,
    /// Log lines of tenure, on standard error.
    pub log: Log,
}

/// Probes and pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Http {
    /// The address and port for /livez, /readyz, /leader, /metrics and /status, such as 0.0.0.0:8080. /leader is 200 once the
    /// workload leads, and /readyz is 200 on standbys too. null: none.
    #[serde(with = "Maybe")]
    #[schemars(with = "Option<String>")]
    pub listen: Option<SocketAddr>,
    /// When /readyz is 200.
    pub ready: HttpReady,
}

/// When /readyz is 200.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum HttpReady {
    /// Once the Lease was read.
    #[default]
    Always,
    /// Once the Lease was read, and while the workload, if it runs here, is ready.
    Workload,
}

/// Log lines, on standard error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Log {
    /// The least severe lines that are shown. Flag: `--log-level`.
    pub level: LogLevel,
    /// The form of log lines. Flag: `--log-format`.
    pub format: LogFormat,
}

worded! {
    /// The least severe lines that are shown. Flag: `--log-level`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "camelCase")]
    pub enum LogLevel {
        /// Failures.
        Error = "ERROR",
        /// Failures, and signs of one.
        Warn = "WARN",
        /// Transitions, too.
        #[default]
        Info = "INFO",
        /// Requests, too.
        Debug = "DEBUG",
        /// Everything.
        Trace = "TRACE",
    }
}

/// The form of log lines. Flag: `--log-format`.
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

    /// How long a released Lease is left to others before it is deleted. Not at all where an absent one is no different to them.
    pub fn deletion_wait(&self) -> Duration {
        if self.lease.creation_wait == Some(Duration::ZERO) { Duration::ZERO } else { self.timing().deletion_wait() }
    }

    /// How long a release may take, with the deletion after it.
    pub fn release_limit(&self) -> Duration {
        let clear = self.timing().release_limit();
        match self.lease.release {
            Release::Clear | Release::Keep => clear,
            Release::Delete => clear + self.deletion_wait() + self.lease.attempt_timeout,
        }
    }
}
