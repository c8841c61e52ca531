//! The keys of the wrapped process: when it runs, how it is stopped and started again.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Candidate, Probe,
    humane::{MaybeSpan, Span},
    scalars::Signal,
};

/// The wrapped process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct WorkloadConfig {
    /// Program and arguments, no shell; or after -- on the command line.
    pub command: Vec<String>,
    /// When it runs.
    pub runs: Runs,
    /// With `runs: always`, and required there: what proves that it took its role.
    pub acknowledge: Option<Acknowledge>,
    /// When it is ready.
    pub readiness: Probe,
    /// When it is live: a leader that is not hands over.
    pub liveness: Probe,
    /// A leader that is not ready within this long hands over.
    #[serde(with = "MaybeSpan")]
    #[schemars(with = "Option<String>")]
    pub start_timeout: Option<Duration>,
    /// With `runs: always` or `frozen`, which standbys campaign.
    pub candidate: Candidate,
    /// With `candidate: ready`: a Lease that nobody took for this long is taken by one that is not ready.
    #[serde(with = "Span")]
    pub unready_after: Duration,
    /// Who of it is believed on NOTIFY_SOCKET.
    pub notify_access: NotifyAccess,
    /// Added to its environment.
    pub env: BTreeMap<String, String>,
    /// -1000 to 1000, added to tenure's own score, of at most 1000; above 0, so that the kernel takes the workload before its
    /// guard; no use where it kills the whole container (memory.oom.group, which kubelet 1.28 and later set on cgroup v2).
    #[schemars(range(min = -1000, max = 1000))]
    pub oom_score_adjust: i16,
    /// What happens when it ends by itself.
    pub on_exit: OnExit,
    /// What happens when the Lease is lost.
    pub on_loss: OnLoss,
    /// How it is stopped.
    pub stop: Stop,
    /// How it is started again, with `onExit: restart`; with `follow`, the delays pace a standby of `runs: always` that fails.
    pub restart: Restart,
}

impl Default for WorkloadConfig {
    fn default() -> Self {
        Self {
            command: Vec::new(),
            runs: Runs::Leading,
            acknowledge: None,
            readiness: Probe::default(),
            liveness: Probe::default(),
            start_timeout: None,
            candidate: Candidate::Any,
            unready_after: Duration::from_secs(60),
            notify_access: NotifyAccess::All,
            env: BTreeMap::new(),
            oom_score_adjust: 100,
            on_exit: OnExit::Exit,
            on_loss: OnLoss::Follow,
            stop: Stop::default(),
            restart: Restart::default(),
        }
    }
}

impl WorkloadConfig {
    /// Whether it is given a NOTIFY_SOCKET.
    #[must_use]
    pub fn notifies(&self) -> bool {
        self.acknowledge == Some(Acknowledge::Notify) || self.readiness.notify || self.liveness.notify
    }
}

/// Whose notifications count (systemd's NotifyAccess).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum NotifyAccess {
    /// Those of the main process and of its descendants.
    #[default]
    All,
    /// Those of the main process alone.
    Main,
}

/// When the workload runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Runs {
    /// While this replica leads.
    #[default]
    Leading,
    /// On every replica, told its role.
    Always,
    /// On every replica, stopped by SIGSTOP once it is ready, until it leads.
    Frozen,
}

/// What counts as the workload's word that it took its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Acknowledge {
    /// The hook's exit 0: `afterLead` for the promotion, `beforeFollow` for the demotion.
    Hook,
    /// `X_TENURE_ROLE=leader` or `standby` on NOTIFY_SOCKET, the former within one `lease.duration` or the hook's timeout.
    Notify,
    /// It is enough that the workload takes the signal, and nobody checks what it does then.
    None,
}

/// What happens when the workload ends by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OnExit {
    /// Release, exit with its code.
    #[default]
    Exit,
    /// Release, sit out one duration, campaign again.
    Follow,
    /// Start it again as `restart` says; what that does not cover is `exit`.
    Restart,
}

/// What happens when the Lease is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OnLoss {
    /// Stop it, campaign again.
    #[default]
    Follow,
    /// Stop it, exit with 76.
    Exit,
}

/// How the workload is stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Stop {
    /// Any that can be caught; SIGCONT goes with it (without a Lease, where it is stopped).
    pub signal: Signal,
    /// From the stop signal to SIGKILL when the stop is planned.
    #[serde(with = "Span")]
    pub grace: Duration,
    /// From the stop signal to SIGKILL when the Lease is lost; part of its duration.
    #[serde(with = "Span")]
    pub loss_grace: Duration,
    /// Who gets the stop signal and what is forwarded; SIGKILL always goes to all.
    pub kill_mode: KillMode,
    /// From SIGKILL until every process is gone, on a busy machine; 2s under a tight CPU limit.
    #[serde(with = "Span")]
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
    /// Before the first restart; doubles with each. Not 0 where nothing else limits them: `onExit: follow` with `runs: always`.
    #[serde(with = "Span")]
    pub delay: Duration,
    /// The longest delay.
    #[serde(with = "Span")]
    pub max_delay: Duration,
    /// This many restarts within the interval; one more is `exit`.
    #[schemars(range(min = 1))]
    pub burst: u32,
    /// In which restarts are counted.
    #[serde(with = "Span")]
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
    /// Any end.
    Always,
}
