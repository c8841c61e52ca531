//! What a command that is `run` with other defaults makes of a configuration that it may share with a replica.
//!
//! Owns which keys apply to it, what is fixed, and the name of its Lease.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    Config, LeaseConfig, OnLoss, Task, humane,
    keys::{self, Found},
    load::Problem,
    rules::{Judgement, dashed},
    sources::Layer,
};
use crate::cli;

/// Which command runs the workload; init and elector are told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Preset {
    /// `tenure run`.
    #[default]
    Run,
    /// `tenure lock`: once, and then it is over.
    Lock {
        /// None: for ever.
        patience: Option<Patience>,
    },
    /// `tenure task`: at most once per interval.
    Task(Task),
}

/// How long a holder that lives is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Patience {
    /// From the start of init.
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

    /// How long a holder that lives is waited for; none: for ever.
    #[must_use]
    pub fn patience(&self) -> Option<Patience> {
        match self {
            Self::Run => None,
            Self::Lock { patience } => *patience,
            Self::Task(task) => task.once.map(|code| Patience { limit: Duration::ZERO, code }),
        }
    }

    /// Whether it ends with its command.
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

/// Takes out of file and environment, which may be a replica's, what does not apply. In flags it is refused.
pub(super) fn narrow(preset: &cli::Preset, [file, environment, flags]: &mut [Layer; 3]) {
    if *preset == cli::Preset::Run {
        return;
    }
    let is_task = matches!(preset, cli::Preset::Task(_));
    let applies = |path: &str| applies(path) || is_task && path.starts_with("task.");
    // What is no key may be meant for one that applies, unless it stands among those that do not.
    let may_apply = |path: &str| {
        let section = path.split('.').next().unwrap_or_default();
        let is_foreign = matches!(keys::find(section), Found::Section(_)) && !applies(&format!("{section}.any"));
        !is_foreign && !matches!(keys::find(path), Found::Key(_))
    };
    for layer in [file, environment] {
        layer.entries.retain(|entry| applies(&entry.key.path));
        layer.problems.retain(|Problem { path, .. }| applies(path) || applies(&format!("{path}.")) || may_apply(path));
    }
    // Each slot of a task would rest by itself.
    let is_flag = |path: &str| ["lease.name", "workload.command"].contains(&path) || path == "lease.slots" && !is_task;
    let is_foreign = |path: &str| !applies(path) && !is_flag(path);
    let foreign = flags.entries.extract_if(.., |entry| is_foreign(&entry.key.path));
    let message = format!("does not apply to a {}: remove it", if is_task { "task" } else { "lock" });
    let refused = foreign.map(|entry| Problem { path: entry.key.path.clone(), origin: entry.origin, message: message.clone() });
    flags.problems.extend(refused);
}

fn applies(path: &str) -> bool {
    let section = ["lease.", "log.", "workload.stop."].iter().any(|section| path.starts_with(section));
    section && !["lease.name", "lease.slots"].contains(&path) || ["workload.env", "workload.oomScoreAdjust"].contains(&path)
}

/// Sets what is fixed, and judges what is this command's own.
pub(super) fn fix(flags: &cli::ConfigFlags, config: &mut Config, judgement: &mut Judgement) -> Preset {
    give_name(flags, &mut config.lease, judgement);
    let preset = match &flags.preset {
        cli::Preset::Run => return Preset::Run,
        cli::Preset::Lock(lock) => {
            config.workload.on_loss = OnLoss::Exit;
            Preset::Lock { patience: patience(lock, judgement) }
        }
        cli::Preset::Task(said) => Preset::Task(Task::of(said, &mut config.workload, judgement)),
    };
    if !std::mem::replace(&mut config.lease.enabled, true) {
        judgement.refuse(&["lease.enabled"], "without leader election there is no lock: remove it");
    }
    preset
}

/// The name that was typed, with the kind before it, as grelmicro has it. Where the command does not tell the kind, the name does.
fn give_name(flags: &cli::ConfigFlags, lease: &mut LeaseConfig, judgement: &mut Judgement) {
    let kinds = [("lock:", "lock:"), ("task:", "tasklock:")];
    let typed = flags.lease_argument.as_deref().and_then(|name| match flags.preset {
        cli::Preset::Run => kinds.iter().find_map(|(kind, before)| Some((*before, name.strip_prefix(kind)?))),
        cli::Preset::Lock(_) => Some(("lock:", name)),
        cli::Preset::Task(_) => Some(("tasklock:", name)),
    });
    let Some((before, name)) = typed else { return };
    lease.name = name.into();
    // That is refused like any other name of which nothing is left.
    if dashed(name).is_empty() {
        return;
    }
    let wanted = format!("{}{before}{name}", lease.prefix);
    lease.prefix.clear();
    lease.name = dashed(&wanted);
    if lease.name != wanted.replacen(':', "-", 1) {
        judgement.note(format!("the Lease is called {}, for {wanted:?} cannot be the name of an object", lease.name));
    }
}

fn patience(lock: &cli::Lock, judgement: &mut Judgement) -> Option<Patience> {
    let limit = match lock.timeout.as_deref().map(humane::parse) {
        Some(Ok(limit)) => limit,
        Some(Err(message)) => {
            judgement.refuse(&["--timeout"], message);
            return None;
        }
        None if lock.at_once => Duration::ZERO,
        None => return None,
    };
    Some(Patience { limit, code: lock.conflict_exit_code })
}
