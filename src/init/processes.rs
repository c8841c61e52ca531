//! The workload, its hooks and its probes as init's children.

use std::os::fd::{AsFd, BorrowedFd};

use super::{helpers::Helper, prints::Prints, programs::Programs};
use crate::{
    config::Config,
    process::{Pid, signals::Inherited, spawn::Spawning},
    time::Instant,
};

/// What runs, and what it is started from.
pub(super) struct Processes {
    pub(super) programs: Programs,
    pub(super) inherited: Inherited,
    pub(super) oom_score_adjust: i16,
    /// The workload's main process, until it is reaped.
    pub(super) main: Option<Pid>,
    /// The same, while it is not known whether it runs its command.
    pub(super) spawning: Option<Spawning>,
    /// Each until it has ended as a whole.
    pub(super) helpers: Vec<Helper>,
    /// What hooks print.
    pub(super) prints: Vec<Prints>,
    /// The workload may not be signalled, and that was logged.
    pub(super) refused: bool,
}

impl Processes {
    pub(super) const fn new(programs: Programs, prints: Vec<Prints>, inherited: Inherited, config: &Config) -> Self {
        let oom_score_adjust = config.workload.oom_score_adjust;
        Self { programs, inherited, oom_score_adjust, main: None, spawning: None, helpers: Vec::new(), prints, refused: false }
    }

    /// Readable once the outcome of the workload's start is known.
    pub(super) fn spawning_fd(&self) -> Option<BorrowedFd<'_>> {
        self.spawning.as_ref().map(AsFd::as_fd)
    }

    /// The main processes of hooks and probes, each until it is reaped.
    pub(super) fn helper_mains(&self) -> impl Iterator<Item = Pid> {
        self.helpers.iter().filter_map(Helper::main)
    }

    /// When to look again whether all of a hook or probe is gone.
    pub(super) fn look_again(&self) -> Option<Instant> {
        self.helpers.iter().filter_map(Helper::look_again).min()
    }

    /// Whether this is the process group of a hook or probe that has not ended.
    pub(super) fn is_helper(&self, pid: i32) -> bool {
        self.helpers.iter().any(|helper| helper.is(pid))
    }
}
