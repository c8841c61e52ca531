//! The keys of a task, which runs at most once per interval, or per fire of its schedule.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Cron, Schedule, Zone, duration};

/// The longest duration in the API, in seconds, plus one.
const TOO_LONG: u64 = 1 << 31;

/// A task, with `tenure task` only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct TaskConfig {
    /// When the task is due, in place of --every: five fields of cron, such as `0 2 * * *` (minute, hour, day of month, month, day
    /// of week). null: none.
    #[schemars(with = "Option<String>")]
    pub schedule: Option<Cron>,
    /// The time zone of the schedule, such as `Europe/Berlin`. The zones are part of tenure.
    #[schemars(with = "String")]
    pub time_zone: Zone,
    /// Decides what becomes of a fire of the schedule that no replica could run at its time.
    pub missed: Missed,
    /// When the next run is due after one whose replica crashed.
    pub after_crash: AfterCrash,
    /// Decides what tenure writes after a run that failed.
    pub on_failure: OnFailure,
}

/// Decides what becomes of a fire of the schedule that no replica could run at its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Hash)]
#[serde(rename_all = "camelCase")]
pub enum Missed {
    /// A run makes up for it as soon as one can begin. A single run makes up for several.
    #[default]
    Run,
    /// No run does, once it is later than a takeover, `lease.priority` and a candidate that does not come explain. A run that was given
    /// back undone is not repeated later than that either.
    Skip,
}

/// When the next run is due after one whose replica crashed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Hash)]
#[serde(rename_all = "camelCase")]
pub enum AfterCrash {
    /// One interval after that run began, or at the next fire of the schedule.
    #[default]
    Wait,
    /// As soon as every process of that run is dead.
    Run,
}

/// Decides what tenure writes after a run that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OnFailure {
    /// That the Lease rests until the next run is due, as after any run.
    #[default]
    Rest,
    /// That the Lease is free. Another replica may run the task at once; this one leaves it to the others for one
    /// `lease.duration`, and for twice as long after each further failure, up to the interval or five minutes.
    Release,
}

/// When a task is due.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trigger {
    /// An interval after the last run began.
    Every(Duration),
    /// At each fire of a schedule.
    Schedule(Schedule),
}

impl Trigger {
    /// The schedule, if it is one.
    pub const fn schedule(&self) -> Option<&Schedule> {
        match self {
            Self::Every(_) => None,
            Self::Schedule(schedule) => Some(schedule),
        }
    }
}

/// How a task runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// When it is due.
    pub trigger: Trigger,
    /// How long a run may take.
    pub limit: Option<Duration>,
    /// Set if tenure ends after one run. The exit code if the Lease is held, or no run is due.
    pub once: Option<u8>,
}

/// Reads the interval of a task.
pub(crate) fn interval(written: &str) -> Result<Duration, String> {
    Some(run_limit(written)?)
        .filter(|span| span.subsec_nanos() == 0)
        .ok_or_else(|| format!("{written:?} is not a whole number of seconds: write one such as 1h"))
}

/// Reads the longest time that a run may take.
pub(crate) fn run_limit(written: &str) -> Result<Duration, String> {
    let most = TOO_LONG - 1;
    Some(duration::parse(written)?)
        .filter(|span| (1..TOO_LONG).contains(&span.as_secs()))
        .ok_or_else(|| format!("{written:?} is not a duration from 1s to {most}s: write one such as 1h"))
}
