//! The keys about roles: what runs in which, and how a running workload is told its own by signals and hooks.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{humane::Span, scalars::Signal};
use crate::words::worded;

/// What runs while this replica follows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Standby {
    /// Program and arguments, no shell, with `runs: leading`; proved gone before the workload is started.
    pub command: Vec<String>,
}

/// Signals that tell a running workload its role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Signals {
    /// With `runs: always`, tells the workload that it leads; not sent before the workload handles it.
    pub on_lead: Option<Signal>,
    /// With `runs: always`, tells it that it follows.
    pub on_follow: Option<Signal>,
    /// Forwarded signals: what arrives, and what the workload gets (null: nothing).
    pub rewrite: Rewrite,
}

/// Rewriting of forwarded signals, per role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Rewrite {
    /// While leading.
    pub leader: BTreeMap<Signal, Option<Signal>>,
    /// While standing by, with `runs: always` or `standby.command`.
    pub standby: BTreeMap<Signal, Option<Signal>>,
}

/// Commands around a change of role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Hooks {
    /// Under the Lease, before the workload is started, continued or told that it leads.
    pub before_lead: Hook,
    /// Once it runs, or was told; with `runs: always` tells it that it leads, and exit 0 acknowledges that.
    pub after_lead: Hook,
    /// Before the stop signal of a planned stop; with `runs: always` tells it that it follows, and exit 0 acknowledges that.
    pub before_follow: Hook,
    /// Once nothing of a leader runs any more, and that is proved.
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
    #[must_use]
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

/// One command around a change of role; none where the command is empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Hook {
    /// Program and arguments, no shell.
    pub command: Vec<String>,
    /// SIGKILL after this long.
    #[serde(with = "Span")]
    pub timeout: Duration,
    /// What its failure means.
    pub on_failure: OnHookFailure,
}

/// What the failure of a hook means: another exit code than 0, a signal, its timeout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OnHookFailure {
    /// The change of role has failed: who was to lead hands over; with `runs: always`, who was to follow is killed. Nothing else
    /// can be aborted: the stop goes on.
    #[default]
    Abort,
    /// It is logged.
    Ignore,
}

impl Default for Hook {
    fn default() -> Self {
        Self { command: Vec::new(), timeout: Duration::from_secs(10), on_failure: OnHookFailure::Abort }
    }
}
