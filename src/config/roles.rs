//! The keys about roles: what runs in which, and how a running workload is told its own by signals and hooks.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{duration::Span, scalars::Signal};
use crate::words::worded;

/// A program for standbys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Standby {
    /// The program that runs while this replica follows, with `runs: leading`, and its arguments, without a shell. It is stopped
    /// (SIGKILL after `lossGrace`) and proved gone before the workload is started, and is started again after the term. If it
    /// fails, it is started again after the delays of `workload.restart`, without a limit. If it ends with 0, it rests until the
    /// next term is over, unless `restart.policy` is always.
    pub command: Vec<String>,
}

/// Signals that tell a running workload its role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Signals {
    /// The signal that tells the workload that it leads, with `runs: always`. It is not sent before the workload handles it.
    pub on_lead: Option<Signal>,
    /// The signal that tells the workload that it follows, with `runs: always`.
    pub on_follow: Option<Signal>,
    /// Which signal the workload gets in place of one that arrives, such as `SIGHUP: SIGUSR1`. null: none.
    pub rewrite: Rewrite,
}

/// Rewriting of forwarded signals, per role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Rewrite {
    /// While this replica leads.
    pub leader: BTreeMap<Signal, Option<Signal>>,
    /// While this replica follows, with `runs: always` or `standby.command`.
    pub standby: BTreeMap<Signal, Option<Signal>>,
}

/// Commands around a change of role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Hooks {
    /// Runs once the Lease is held, each time before the workload is started, continued or told that it leads.
    pub before_lead: Hook,
    /// Runs once the workload was started, which may not be ready yet. With `runs: always` it tells the workload that it leads,
    /// and exit 0 acknowledges that.
    pub after_lead: Hook,
    /// Runs before the stop signal of a planned stop, and is a part of its grace. With `runs: always` it tells the workload that
    /// it follows, and exit 0 acknowledges that.
    pub before_follow: Hook,
    /// Runs once no process of a leader is left, unless tenure ends. It is told why (TENURE_REASON), and how the workload ended
    /// (TENURE_EXIT_CODE, TENURE_EXIT_SIGNAL). The next term does not wait for it, and it has nothing to abort.
    pub after_follow: Hook,
}

worded! {
    /// Which command around a change of role.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum HookKind {
        /// `hooks.beforeLead`.
        BeforeLead = "beforeLead",
        /// `hooks.afterLead`.
        AfterLead = "afterLead",
        /// `hooks.beforeFollow`.
        BeforeFollow = "beforeFollow",
        /// `hooks.afterFollow`.
        AfterFollow = "afterFollow",
    }
}

impl HookKind {
    /// Its command; none if nothing is said of it.
    pub fn of(self, hooks: &Hooks) -> Option<&Hook> {
        let hook = match self {
            Self::BeforeLead => &hooks.before_lead,
            Self::AfterLead => &hooks.after_lead,
            Self::BeforeFollow => &hooks.before_follow,
            Self::AfterFollow => &hooks.after_follow,
        };
        Some(hook).filter(|hook| **hook != Hook::default())
    }
}

section! {
    /// A program that runs around a change of role. No hook if the command is empty.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(default, deny_unknown_fields, rename_all = "camelCase")]
    pub struct Hook {
        /// The program and its arguments, without a shell. Empty: no hook.
        pub command: Vec<String>,
        /// The time after which the hook is killed by SIGKILL.
        #[serde(with = "Span")]
        pub timeout: Duration = Duration::from_secs(10),
        /// Decides what follows a failure: an exit code other than 0, a signal, or the timeout.
        pub on_failure: OnHookFailure,
    }
}

/// Decides what follows a failure: an exit code other than 0, a signal, or the timeout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OnHookFailure {
    /// A replica that was to lead hands over (reason hook-failed). With `runs: always`, a workload that was to follow is killed.
    /// Otherwise the stop goes on.
    #[default]
    Abort,
    /// Only a log line.
    Ignore,
}
