//! The keys of the wrapped process: when it runs, how it is stopped and started again.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{humane, scalars::Signal};

/// The wrapped process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    #[schemars(range(min = -1000, max = 1000))]
    pub oom_score_adjust: i16,
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
            oom_score_adjust: 100,
            on_exit: OnExit::Exit,
            on_loss: OnLoss::Follow,
            stop: Stop::default(),
            restart: Restart::default(),
        }
    }
}

/// When the workload runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Runs {
    /// While leading.
    #[default]
    Leading,
    /// Always; it is told its role.
    Always,
}

/// What counts as the workload's word that it took its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OnLoss {
    /// Campaign again in this process.
    #[default]
    Follow,
    /// Exit with 76.
    Exit,
}

/// How the workload is stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Stop {
    /// The stop signal.
    pub signal: Signal,
    /// From the stop signal to SIGKILL on a planned stop.
    #[serde(with = "humane")]
    #[schemars(with = "humane::Written")]
    pub grace: Duration,
    /// G: the same on a loss.
    #[serde(with = "humane")]
    #[schemars(with = "humane::Written")]
    pub loss_grace: Duration,
    /// Who gets the stop signal, and those that are forwarded.
    pub kill_mode: KillMode,
    /// k + w: from SIGKILL to every process gone, and the latest wake-up of init.
    #[serde(with = "humane")]
    #[schemars(with = "humane::Written")]
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

/// Who gets the stop signal (systemd's KillMode) and what is forwarded; SIGKILL always goes to every process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum KillMode {
    /// The main process.
    #[default]
    Mixed,
    /// Its process group.
    Group,
}

/// How the workload is started again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Restart {
    /// After which ends.
    pub policy: RestartPolicy,
    /// Before the first restart; doubles with each.
    #[serde(with = "humane")]
    #[schemars(with = "humane::Written")]
    pub delay: Duration,
    /// The longest delay.
    #[serde(with = "humane")]
    #[schemars(with = "humane::Written")]
    pub max_delay: Duration,
    /// This many restarts within `interval`; one more is an exit.
    #[schemars(range(min = 1))]
    pub burst: u32,
    /// See `burst`.
    #[serde(with = "humane")]
    #[schemars(with = "humane::Written")]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RestartPolicy {
    /// A status other than 0, or a signal.
    #[default]
    OnFailure,
    /// Any.
    Always,
}
