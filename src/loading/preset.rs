//! Adapts a configuration for `lock` and `task`, which are `run` with other defaults and may share a replica's file.
//!
//! Owns which keys apply to these commands, which are fixed, and the name of their Lease.

use std::{mem, time::Duration};

use super::{
    keys::{self, Found},
    load::is_within,
    problem::{Origin, Problem},
    rules::{Validation, dashed},
    sources::Layer,
};
use crate::{
    cli::{self, ConfigFlags},
    config::{
        Config, LeaseConfig, OnExit, OnLoss, Preset, Release, Schedule, Task, TaskConfig, Trigger, WaitLimit, WorkloadConfig,
        duration,
    },
};

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
        layer.problems.retain(|Problem { path, origin, .. }| {
            let path = match origin {
                Origin::Variable(name) if path.is_empty() => &keys::path_of_variable(name),
                Origin::Default | Origin::File { .. } | Origin::Variable(_) | Origin::Flag(_) => path,
            };
            applies(path) || applies(&format!("{path}.")) || may_apply(path)
        });
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
        || ["workload.env", "workload.oomScoreAdjust"].into_iter().any(|key| is_within(path, key))
}

/// Sets the fixed keys, and judges the flags of `lock` and `task`.
pub(super) fn fix(flags: &ConfigFlags, config: &mut Config, validation: &mut Validation) -> Preset {
    give_name(flags, &mut config.lease, validation);
    let preset = match &flags.preset {
        cli::Preset::Run => return Preset::Run,
        cli::Preset::Lock(lock) => {
            config.workload.on_loss = OnLoss::Exit;
            Preset::Lock { wait_limit: wait_limit(lock) }
        }
        cli::Preset::Task(said) => Preset::Task(task(said, &config.task, &mut config.workload, validation)),
    };
    if preset.task().is_some() && config.lease.release != Release::Clear {
        validation.refuse(
            &["lease.release"],
            "the Lease of a task says when its next run is due, or that one was not done: write clear",
        );
    }
    if !mem::replace(&mut config.lease.enabled, true) {
        validation.refuse(&["lease.enabled"], "without leader election there is no lock: remove this");
    }
    preset
}

/// Lets a transaction begin at once, unless a wait is set.
pub(super) fn spare_wait(flags: &ConfigFlags, lease: &mut LeaseConfig) {
    if let cli::Preset::Lock(lock) = &flags.preset
        && lock.of_transaction
    {
        lease.creation_wait.get_or_insert(Duration::ZERO);
    }
}

/// Makes the Lease's name of the one that was typed. The kind is put before it, as in grelmicro: that of the command, or, for
/// commands such as `status`, the one that the typed name begins with.
fn give_name(flags: &ConfigFlags, lease: &mut LeaseConfig, validation: &mut Validation) {
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

/// Reads the command line beside the keys, and refuses impossible values.
fn task(said: &cli::Task, keys: &TaskConfig, workload: &mut WorkloadConfig, validation: &mut Validation) -> Task {
    let TaskConfig { schedule, time_zone, .. } = keys;
    (workload.on_exit, workload.on_loss) =
        if said.once { (OnExit::Exit, OnLoss::Exit) } else { (OnExit::Follow, OnLoss::Follow) };
    let limit = said.limit;
    let trigger = match (said.every, schedule) {
        (Some(every), None) => Trigger::Every(every),
        (None, Some(cron)) => {
            let schedule = Schedule { cron: cron.clone(), zone: time_zone.clone() };
            if let Some(limit) = limit {
                let shortest = Duration::from_micros(schedule.shortest().unsigned_abs());
                if limit > shortest {
                    let between = duration::format(shortest);
                    let message = format!("a run may take longer than the {between} between two fires of {cron:?}: shorten one");
                    validation.refuse(&["--limit", "task.schedule"], message);
                }
            }
            if !schedule.fires() {
                let message =
                    format!("the clocks of task.timeZone skip each fire of {cron:?} within four years: write another time");
                validation.refuse(&["task.schedule", "task.timeZone"], message);
            }
            Trigger::Schedule(schedule)
        }
        (Some(every), Some(_)) => {
            validation.refuse(&["task.schedule", "--every"], "--every says when the task is due too: remove one");
            Trigger::Every(every)
        }
        (None, None) => {
            validation
                .refuse(&["task.schedule"], "a task needs to know when it is due: write --every 1h or --schedule \"0 2 * * *\"");
            Trigger::Every(Duration::from_secs(1))
        }
    };
    Task { trigger, limit, once: said.once.then_some(said.conflict_exit_code) }
}
