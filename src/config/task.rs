//! A task that runs at most once per interval: its keys, and what its command line says.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{OnExit, OnLoss, WorkloadConfig, humane, rules::Judgement};
use crate::cli;

/// The API's longest duration, in seconds, and one.
const TOO_LONG: u64 = 1 << 31;

/// A task, with `tenure task` only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct TaskConfig {
    /// When the next run is due after one whose replica crashed.
    pub after_crash: AfterCrash,
    /// What is written after a run that failed.
    pub on_failure: OnFailure,
}

/// When the next run is due after one whose replica crashed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum AfterCrash {
    /// One interval after that one began.
    #[default]
    Wait,
    /// As soon as whatever ran is dead for certain.
    Run,
}

/// What is written after a run that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OnFailure {
    /// That the Lease rests until the interval is over, as after any run.
    #[default]
    Rest,
    /// That it is free: another replica may run the task at once, this one sits out one duration.
    Release,
}

/// How a task runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// The interval.
    pub every: Duration,
    /// How long a run may take.
    pub limit: Option<Duration>,
    /// One run, and then it is over; with this exit code if the Lease is held, or the run not due.
    pub once: Option<u8>,
}

impl Task {
    /// What the command line says; what of it cannot be is refused.
    pub(super) fn of(said: &cli::Task, workload: &mut WorkloadConfig, judgement: &mut Judgement) -> Self {
        (workload.on_exit, workload.on_loss) =
            if said.once { (OnExit::Exit, OnLoss::Exit) } else { (OnExit::Follow, OnLoss::Follow) };
        let mut span = |flag: &str, written: &str| {
            let span = humane::parse(written).unwrap_or_else(|message| {
                judgement.refuse(&[flag], message);
                Duration::from_secs(1)
            });
            if span.as_secs() == 0 || span.as_secs() >= TOO_LONG || flag == "--every" && span.subsec_nanos() > 0 {
                judgement.refuse(&[flag], format!("{written:?} is not between 1s and {}s in whole seconds", TOO_LONG - 1));
            }
            span
        };
        Self {
            every: span("--every", &said.every),
            limit: said.limit.as_ref().map(|limit| span("--limit", limit)),
            once: said.once.then_some(said.conflict_exit_code),
        }
    }
}
