//! The commands that run a workload: `run`, `lock` and `task`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Task;

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
    pub const fn kind(&self) -> Option<&'static str> {
        match self {
            Self::Run => None,
            Self::Lock { .. } => Some("lock"),
            Self::Task(_) => Some("task"),
        }
    }

    /// How long to wait for a live holder. None: without a limit.
    pub fn wait_limit(&self) -> Option<WaitLimit> {
        match self {
            Self::Run => None,
            Self::Lock { wait_limit } => *wait_limit,
            Self::Task(task) => task.once.map(|code| WaitLimit { limit: Duration::ZERO, code }),
        }
    }

    /// Returns true if tenure ends with the command.
    pub const fn is_once(&self) -> bool {
        match self {
            Self::Run => false,
            Self::Lock { .. } => true,
            Self::Task(task) => task.once.is_some(),
        }
    }

    /// The task, if it is one.
    pub const fn task(&self) -> Option<&Task> {
        match self {
            Self::Run | Self::Lock { .. } => None,
            Self::Task(task) => Some(task),
        }
    }
}
