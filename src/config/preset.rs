//! Adapts a configuration for `lock` and `task`, which are `run` with other defaults and may share a replica's file.
//!
//! Owns which keys apply to these commands, which are fixed, and the name of their Lease.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    Config, LeaseConfig, OnLoss, Task,
    keys::{self, Found},
    load::Problem,
    rules::{Validation, dashed},
    sources::Layer,
};
use crate::cli;

/// The command that runs the workload. Init and the elector know it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Preset {
    /// `tenure run`.
    #[default]
    Run,
    /// `tenure lock`: runs the command once, and ends.
    Lock {
        /// How long to wait for the lock. None: without a limit.
        wait_limit: Option<WaitLimit>,
    },
    /// `tenure task`: at most once per interval, or per fire.
    Task(Task),
}

/// How long to wait for a live holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitLimit {
    /// The time, counted from the start of init.
    pub limit: Duration,
    /// The exit code after that.
    pub code: u8,
}

impl Preset {
    /// The value of the label [`KIND`](crate::election::writes::KIND_LABEL) on a Lease that it creates.
    #[must_use]
    pub const fn kind(&self) -> Option<&'static str> {
        match self {
            Self::Run => None,
            Self::Lock { .. } => Some("lock"),
            Self::Task(_) => Some("task"),
        }
    }

    /// How long to wait for a live holder. None: without a limit.
    #[must_use]
    pub fn wait_limit(&self) -> Option<WaitLimit> {
        match self {
            Self::Run => None,
            Self::Lock { wait_limit } => *wait_limit,
            Self::Task(task) => task.once.map(|code| WaitLimit { limit: Duration::ZERO, code }),
        }
    }

    /// True if tenure ends with the command.
    #[must_use]
    pub const fn is_once(&self) -> bool {
        match self {
            Self::Run => false,
            Self::Lock { .. } => true,
            Self::Task(task) => task.once.is_some(),
        }
    }

    /// The task, if it is one.
    #[must_use]
    pub const fn task(&self) -> Option<&Task> {
        match self {
            Self::Run | Self::Lock { .. } => None,
            Self::Task(task) => Some(task),
        }
    }
}

/// Ignores the keys in file and environment that do not apply, because both may be a replica's. Refuses them in flags.
pub(super) fn narrow(preset: &cli::Preset, [file, environment, flags]: &mut [Layer; 3]) {
    if *preset == cli::Preset::Run {
        return;
    }
    let is_task = matches!(preset, cli::Preset::Task(_));
    let applies = |path: &str| applies(path) || is_task && path.starts_with("task.");
    // An unknown key may be a misspelt key that applies, unless its section does not.
    let may_apply = |path: &str| {
        let section = path.split('.').next().unwrap_or_default();
        let is_foreign = matches!(keys::find(section), Found::Section(_)) && !applies(&format!("{section}.any"));
        !is_foreign && !matches!(keys::find(path), Found::Key(_))
    };
    for layer in [file, environment] {
        layer.entries.retain(|entry| applies(&entry.key.path));
        layer.problems.retain(|Problem { path, .. }| applies(path) || applies(&format!("{path}.")) || may_apply(path));
    }
    // A task has no slots: each would rest by itself.
    let is_flag = |path: &str| ["lease.name", "workload.command"].contains(&path) || path == "lease.slots" && !is_task;
    let is_foreign = |path: &str| !applies(path) && !is_flag(path);
    let foreign = flags.entries.extract_if(.., |entry| is_foreign(&entry.key.path));
    let message = format!("this key does not apply to a {}: remove it", if is_task { "task" } else { "lock" });
    let refused = foreign.map(|entry| Problem { path: entry.key.path.clone(), origin: entry.origin, message: message.clone() });
    flags.problems.extend(refused);
}

/// A lock or a task does not announce itself: each would leave an entry behind.
fn applies(path: &str) -> bool {
    let section = ["lease.", "log.", "workload.stop."].iter().any(|section| path.starts_with(section));
    section && !["lease.name", "lease.slots", "lease.announce", "lease.preempt"].contains(&path)
        || ["workload.env", "workload.oomScoreAdjust"].contains(&path)
}

/// Sets the fixed keys, and judges the flags of `lock` and `task`.
pub(super) fn fix(flags: &cli::ConfigFlags, config: &mut Config, validation: &mut Validation) -> Preset {
    give_name(flags, &mut config.lease, validation);
    let preset = match &flags.preset {
        cli::Preset::Run => return Preset::Run,
        cli::Preset::Lock(lock) => {
            config.workload.on_loss = OnLoss::Exit;
            Preset::Lock { wait_limit: wait_limit(lock) }
        }
        cli::Preset::Task(said) => Preset::Task(Task::of(said, &config.task, &mut config.workload, validation)),
    };
    if !std::mem::replace(&mut config.lease.enabled, true) {
        validation.refuse(&["lease.enabled"], "without leader election there is no lock: remove this");
    }
    preset
}

/// Lets a transaction begin at once, unless a wait is set.
pub(super) fn spare_wait(flags: &cli::ConfigFlags, lease: &mut LeaseConfig) {
    if let cli::Preset::Lock(lock) = &flags.preset
        && lock.of_transaction
    {
        lease.creation_wait.get_or_insert(Duration::ZERO);
    }
}

/// Makes the Lease's name of the one that was typed. The kind is put before it, as in grelmicro: that of the command, or, for
/// commands such as `status`, the one that the typed name begins with.
fn give_name(flags: &cli::ConfigFlags, lease: &mut LeaseConfig, validation: &mut Validation) {
    let kinds = [("lock:", "lock:"), ("task:", "tasklock:")];
    let typed = flags.lease_argument.as_deref().and_then(|name| match flags.preset {
        cli::Preset::Run => kinds.iter().find_map(|(kind, before)| Some((*before, name.strip_prefix(kind)?))),
        cli::Preset::Lock(_) => Some(("lock:", name)),
        cli::Preset::Task(_) => Some(("tasklock:", name)),
    });
    let Some((before, name)) = typed else { return };
    lease.name = name.into();
    // The rules refuse that, like any other name without a valid character.
    if dashed(name).is_empty() {
        return;
    }
    let wanted = format!("{}{before}{name}", lease.prefix);
    lease.prefix.clear();
    lease.name = dashed(&wanted);
    if lease.name != wanted.replacen(':', "-", 1) {
        validation.note(format!("the Lease is called {}, for {wanted:?} cannot be the name of an object", lease.name));
    }
}

fn wait_limit(lock: &cli::Lock) -> Option<WaitLimit> {
    let limit = lock.timeout.or_else(|| lock.at_once.then_some(Duration::ZERO))?;
    Some(WaitLimit { limit, code: lock.conflict_exit_code })
}
