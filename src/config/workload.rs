//! The keys of the wrapped process: when it runs, how it is stopped and started again.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Candidate, Probe,
    duration::Span,
    scalars::{Maybe, Signal},
};

section! {
    /// The wrapped process.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(default, deny_unknown_fields, rename_all = "camelCase")]
    pub struct WorkloadConfig {
        /// The program and its arguments, without a shell. They may also stand after `--` on the command line.
        pub command: Vec<String>,
        /// When the workload runs.
        pub runs: Runs,
        /// The proof that the workload took its role. It is required with `runs: always`.
        pub acknowledge: Option<Acknowledge>,
        /// When the workload is ready. Set one of notify, exec, http, tcp and file; otherwise nothing is asked.
        pub readiness: Probe,
        /// When the workload is live, with the same keys. If it is not, a leader hands over (reason not-live), and a standby is
        /// started again. With notify it has to say WATCHDOG=1 once in failureThreshold times period, which it is told as
        /// WATCHDOG_USEC.
        pub liveness: Probe,
        /// The time in which a leader has to get ready after its start or promotion. If it does not, it hands over (reason
        /// not-ready). Until it is ready it is not asked whether it is live, as with a startupProbe. EXTEND_TIMEOUT_USEC on
        /// NOTIFY_SOCKET gives it longer. null: no limit.
        #[serde(with = "Maybe")]
        #[schemars(with = "Option<Span>")]
        pub start_timeout: Option<Duration>,
        /// Which standbys campaign, with `runs: always` or `frozen`.
        pub candidate: Candidate,
        /// With `candidate: ready`, the time after which a standby that is not ready acquires a Lease that no ready one took.
        #[serde(with = "Span")]
        pub unready_after: Duration = Duration::from_secs(60),
        /// Whose messages on NOTIFY_SOCKET count.
        pub notify_access: NotifyAccess,
        /// Variables that are added to the workload's environment.
        pub env: BTreeMap<String, String>,
        /// A number from -1000 to 1000 that is added to tenure's own OOM score; the sum is at most 1000. Above 0 the kernel kills the
        /// workload before tenure. Below 0 it has no effect without CAP_SYS_RESOURCE, and it has none where the kernel kills the whole
        /// container (memory.oom.group, which kubelet 1.28 and later set on cgroup v2).
        #[schemars(range(min = -1000, max = 1000))]
        pub oom_score_adjust: i16 = 100,
        /// Decides what tenure does when the workload ends by itself.
        pub on_exit: OnExit,
        /// Decides what tenure does when the Lease is lost.
        pub on_loss: OnLoss,
        /// How the workload is stopped.
        pub stop: Stop,
        /// How the workload is started again, with `onExit: restart`. The delays also apply to `standby.command`, to a frozen
        /// workload that ends, and, with `onExit: follow` and `runs: always`, to a standby that fails.
        pub restart: Restart,
    }
}

impl WorkloadConfig {
    /// Returns true if the workload is given a NOTIFY_SOCKET.
    pub fn notifies(&self) -> bool {
        self.acknowledge == Some(Acknowledge::Notify) || self.readiness.notify || self.liveness.notify
    }
}

/// Whose messages on NOTIFY_SOCKET count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum NotifyAccess {
    /// Those of the main process and its descendants.
    #[default]
    All,
    /// Those of the main process.
    Main,
}

/// When the workload runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Runs {
    /// While this replica leads.
    #[default]
    Leading,
    /// On every replica. It is told its role, and has to acknowledge it.
    Always,
    /// On every replica. Once it is ready, SIGSTOP stops all of it, until this replica leads.
    Frozen,
}

/// The proof that the workload took its role. It is required with `runs: always`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Acknowledge {
    /// Exit 0 of both hooks, `afterLead` for the promotion and `beforeFollow` for the demotion.
    Hook,
    /// X_TENURE_ROLE=leader or X_TENURE_ROLE=standby on NOTIFY_SOCKET. The promotion has one `lease.duration`, or the hook's
    /// timeout.
    Notify,
    /// That it takes the signal. Nobody checks what it does then. A workload that is stopped, dumps core, ignores the signal or
    /// has lost its main thread does not take it.
    None,
}

/// Decides what tenure does when the workload ends by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OnExit {
    /// Release the Lease, and exit with the workload's code.
    #[default]
    Exit,
    /// Release the Lease, leave it to the others for one `lease.duration` (after failures for up to five minutes), and then
    /// campaign again.
    Follow,
    /// Start the workload again, as `restart` says. What that does not cover is `exit`.
    Restart,
}

/// Decides what tenure does when the Lease is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OnLoss {
    /// Stop the workload, and campaign again.
    #[default]
    Follow,
    /// Stop the workload, and exit with 76.
    Exit,
}

section! {
    /// How the workload is stopped.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(default, deny_unknown_fields, rename_all = "camelCase")]
    pub struct Stop {
        /// The stop signal: any signal that can be caught. tenure sends SIGCONT with it; without a Lease, only to a workload that is
        /// stopped.
        pub signal: Signal = Signal::TERM,
        /// The time from the stop signal to SIGKILL in a planned stop. The pod's terminationGracePeriodSeconds has to be longer:
        /// `tenure check` says by how much.
        #[serde(with = "Span")]
        pub grace: Duration = Duration::from_secs(20),
        /// The time from the stop signal to SIGKILL when the Lease is lost. The kill deadline (H) is this long after the stop deadline
        /// (S).
        #[serde(with = "Span")]
        pub loss_grace: Duration = Duration::from_secs(4),
        /// Who gets the stop signal, and the signals that tenure forwards; a key of the terminal is for the whole group. SIGKILL always goes
        /// to every process, and at once to those that are left when the main process ends by itself.
        pub kill_mode: KillMode,
        /// The time from SIGKILL until every process is gone, on a busy machine: at least 100ms. Set 2s under a tight CPU limit.
        #[serde(with = "Span")]
        pub kill_margin: Duration = Duration::from_secs(1),
    }
}

/// Who gets the stop signal, and the signals that tenure forwards; a key of the terminal is for the whole group. SIGKILL always goes
/// to every process, and at once to those that are left when the main process ends by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Hash)]
#[serde(rename_all = "camelCase")]
pub enum KillMode {
    /// The main process.
    #[default]
    Mixed,
    /// Its process group, until the main process has ended. The rest then has the time that is left of the grace.
    Group,
}

section! {
    /// How the workload is started again.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Hash)]
    #[serde(default, deny_unknown_fields, rename_all = "camelCase")]
    pub struct Restart {
        /// After which ends the workload is started again.
        pub policy: RestartPolicy,
        /// The time before the first restart. It doubles with each. It must not be 0s if a standby is started again without a limit.
        #[serde(with = "Span")]
        pub delay: Duration = Duration::from_secs(1),
        /// The longest delay.
        #[serde(with = "Span")]
        pub max_delay: Duration = Duration::from_secs(60),
        /// The number of restarts within the interval. After that the next end counts as `onExit: exit`.
        #[schemars(range(min = 1))]
        pub burst: u32 = 5,
        /// The time in which restarts are counted.
        #[serde(with = "Span")]
        pub interval: Duration = Duration::from_secs(60),
    }
}

/// After which ends the workload is started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Hash)]
#[serde(rename_all = "kebab-case")]
pub enum RestartPolicy {
    /// A status other than 0, or a signal.
    #[default]
    OnFailure,
    /// Any.
    Always,
}
