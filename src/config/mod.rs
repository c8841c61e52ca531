//! The configuration, validated: what the other rooms read.
//!
//! Owns the keys, their types and defaults. Where a value came from is `layers`' business, whether it makes sense `rules`'.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use serde::{Deserialize, Serialize};

use crate::election::law::Timing;

mod humane;
mod layers;

pub use layers::{Invalid, Loaded, load};

/// Everything that a user can set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Config {
    /// The Lease and the timing of the election.
    pub lease: Lease,
    /// The wrapped process.
    pub workload: Workload,
    /// Signals that tell a running workload its role.
    pub signals: Signals,
    /// Commands around a change of role.
    pub hooks: Hooks,
    /// Probes.
    pub http: Http,
    /// Log lines.
    pub log: Log,
}

/// The Lease and the timing of the election.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Lease {
    /// False: a plain init, nothing else.
    pub enabled: bool,
    /// Name of the Lease as it stands in the API, prefix included, once validated.
    pub name: String,
    /// Prepended to the name.
    pub prefix: String,
    /// Empty: the pod's, then the kubeconfig context's, then "default".
    pub namespace: String,
    /// Base of the identity. Empty: POD_NAME, then the hostname.
    pub identity: String,
    /// D, whole seconds.
    #[serde(with = "humane")]
    pub duration: Duration,
    /// R.
    #[serde(with = "humane")]
    pub renew_period: Duration,
    /// T, per request.
    #[serde(with = "humane")]
    pub attempt_timeout: Duration,
    /// rho.
    pub clock_drift: Drift,
    /// Added to `app.kubernetes.io/managed-by: tenure`.
    pub labels: BTreeMap<String, String>,
    /// Added to the Lease.
    pub annotations: BTreeMap<String, String>,
    /// What is written when a term ends.
    pub release: Release,
    /// Law 14; none is the default of the law.
    #[serde(with = "humane::option")]
    pub creation_wait: Option<Duration>,
}

impl Default for Lease {
    fn default() -> Self {
        Self {
            enabled: true,
            name: String::new(),
            prefix: String::new(),
            namespace: String::new(),
            identity: String::new(),
            duration: Duration::from_secs(15),
            renew_period: Duration::from_secs(3),
            attempt_timeout: Duration::from_secs(2),
            clock_drift: Drift::default(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            release: Release::Clear,
            creation_wait: None,
        }
    }
}

/// A bound on the error of a clock's rate, in parts per million; written as a percentage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Drift(pub u32);

impl Default for Drift {
    fn default() -> Self {
        Self(10_000)
    }
}

/// What is written when a term ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Release {
    /// Empty holder, duration 1: the release mark.
    #[default]
    Clear,
    /// Clear, then DELETE with uid and resourceVersion.
    Delete,
    /// No write.
    Keep,
}

/// The wrapped process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Workload {
    /// Program and arguments, no shell.
    pub command: Vec<String>,
    /// When it runs.
    pub runs: Runs,
    /// What proves that it took its role; required with `always`.
    pub acknowledge: Option<Acknowledge>,
    /// Added to its environment.
    pub env: BTreeMap<String, String>,
    /// Its oom_score_adj, so that the kernel takes it before its guard.
    pub oom_score_adj: i16,
    /// What its own end means.
    pub on_exit: OnExit,
    /// What the loss of the Lease means.
    pub on_loss: OnLoss,
    /// How it is stopped.
    pub stop: Stop,
    /// How it is started again, with `onExit: restart`.
    pub restart: Restart,
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            command: Vec::new(),
            runs: Runs::Leading,
            acknowledge: None,
            env: BTreeMap::new(),
            oom_score_adj: 100,
            on_exit: OnExit::Exit,
            on_loss: OnLoss::Follow,
            stop: Stop::default(),
            restart: Restart::default(),
        }
    }
}

/// When the workload runs (design 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Runs {
    /// While leading.
    #[default]
    Leading,
    /// Always; it is told its role.
    Always,
}

/// What counts as the workload's word that it took its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Acknowledge {
    /// The hook's exit 0: `afterLead` for the promotion, `beforeFollow` for the demotion.
    Hook,
    /// `X_TENURE_ROLE=leader` or `standby` on NOTIFY_SOCKET.
    Notify,
    /// The user states that the signal is enough.
    None,
}

/// What the workload's own end means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OnExit {
    /// Release and exit with its code.
    #[default]
    Exit,
    /// Release, sit out one D, campaign again.
    Follow,
    /// Start it again as `restart` says; what that does not cover is `exit`.
    Restart,
}

/// What the loss of the Lease means, once the workload is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OnLoss {
    /// Campaign again in this process.
    #[default]
    Follow,
    /// Exit with 76.
    Exit,
}

/// How the workload is stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Stop {
    /// The stop signal.
    pub signal: Signal,
    /// From the stop signal to SIGKILL on a planned stop.
    #[serde(with = "humane")]
    pub grace: Duration,
    /// G: the same on a loss.
    #[serde(with = "humane")]
    pub loss_grace: Duration,
    /// Who gets the stop signal.
    pub kill_mode: KillMode,
    /// k + w: from SIGKILL to every process gone, and the latest wake-up of init.
    #[serde(with = "humane")]
    pub kill_margin: Duration,
}

impl Default for Stop {
    fn default() -> Self {
        Self {
            signal: Signal(libc::SIGTERM),
            grace: Duration::from_secs(20),
            loss_grace: Duration::from_secs(4),
            kill_mode: KillMode::Mixed,
            kill_margin: Duration::from_secs(1),
        }
    }
}

/// A signal by its number; written by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signal(pub i32);

/// Who gets the stop signal (systemd's KillMode); SIGKILL always goes to every process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum KillMode {
    /// The main process.
    #[default]
    Mixed,
    /// Its process group.
    Group,
}

/// How the workload is started again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Restart {
    /// After which ends.
    pub policy: RestartPolicy,
    /// Before the first restart; doubles with each.
    #[serde(with = "humane")]
    pub delay: Duration,
    /// The longest delay.
    #[serde(with = "humane")]
    pub max_delay: Duration,
    /// This many restarts within `interval`; one more is an exit.
    pub burst: u32,
    /// See `burst`.
    #[serde(with = "humane")]
    pub interval: Duration,
}

impl Default for Restart {
    fn default() -> Self {
        Self {
            policy: RestartPolicy::OnFailure,
            delay: Duration::from_secs(1),
            max_delay: Duration::from_secs(60),
            burst: 5,
            interval: Duration::from_secs(60),
        }
    }
}

/// After which ends the workload is started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestartPolicy {
    /// A status other than 0, or a signal.
    #[default]
    OnFailure,
    /// Any.
    Always,
}

/// Signals that tell a running workload its role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Signals {
    /// On promotion.
    pub on_lead: Option<Signal>,
    /// On demotion.
    pub on_follow: Option<Signal>,
    /// Forwarded signals, by role: what arrives, what the workload gets (none: dropped).
    pub rewrite: Rewrite,
}

/// Rewriting of forwarded signals, per role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Rewrite {
    /// While leading.
    pub leader: BTreeMap<Signal, Option<Signal>>,
    /// While standing by (`runs: always`).
    pub standby: BTreeMap<Signal, Option<Signal>>,
}

/// Commands around a change of role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Hooks {
    /// After the workload was told that it leads; its exit 0 acknowledges the promotion.
    pub after_lead: Option<Hook>,
    /// Tells the workload that it follows; its exit 0 acknowledges the demotion.
    pub before_follow: Option<Hook>,
}

/// One command around a change of role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Hook {
    /// Program and arguments, no shell.
    pub command: Vec<String>,
    /// SIGKILL after this long.
    #[serde(with = "humane", default = "Hook::default_timeout")]
    pub timeout: Duration,
}

impl Hook {
    fn default_timeout() -> Duration {
        Duration::from_secs(10)
    }
}

/// Probes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Http {
    /// Where /livez, /readyz and /leader listen; nowhere unless set.
    pub listen: Option<SocketAddr>,
}

/// Log lines, on standard error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Log {
    /// The least severe lines shown.
    pub level: LogLevel,
    /// Their form.
    pub format: LogFormat,
}

/// The least severe lines shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LogLevel {
    /// Failures.
    Error,
    /// And what may become one.
    Warn,
    /// And transitions.
    #[default]
    Info,
    /// And requests.
    Debug,
    /// And everything.
    Trace,
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

impl Serialize for Signal {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return match nix::sys::signal::Signal::try_from(self.0) {
                Ok(signal) => serializer.serialize_str(signal.as_str()),
                Err(_) => serializer.serialize_str(&self.0.to_string()),
            };
        }
        serializer.serialize_i32(self.0)
    }
}

impl<'de> Deserialize<'de> for Signal {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return i32::deserialize(deserializer).map(Self);
        }
        let name = String::deserialize(deserializer)?;
        let full = if name.starts_with("SIG") { name.clone() } else { format!("SIG{name}") };
        let signal: nix::sys::signal::Signal = full
            .parse()
            .map_err(|_| serde::de::Error::custom(format!("{name:?} is not the name of a signal, such as SIGTERM")))?;
        Ok(Self(signal as i32))
    }
}
