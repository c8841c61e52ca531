//! The workload and its hook as init's children.

use std::os::fd::{AsFd, BorrowedFd};

use super::{hooks::Hook, programs::Programs};
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
    /// Until it has ended as a whole.
    pub(super) hook: Option<Hook>,
    /// The workload may not be signalled, and that was logged.
    pub(super) refused: bool,
}

impl Processes {
    pub(super) const fn new(programs: Programs, inherited: Inherited, config: &Config) -> Self {
        let oom_score_adjust = config.workload.oom_score_adjust;
        Self { programs, inherited, oom_score_adjust, main: None, spawning: None, hook: None, refused: false }
    }

    /// Readable once the outcome of the workload's start is known.
    pub(super) fn spawning_fd(&self) -> Option<BorrowedFd<'_>> {
        self.spawning.as_ref().map(AsFd::as_fd)
    }

    /// The hook's main process, until that is reaped.
    pub(super) fn hook_main(&self) -> Option<Pid> {
        self.hook.as_ref().and_then(Hook::main)
    }

    /// When to look again whether all of a hook is gone.
    pub(super) fn look_again(&self) -> Option<Instant> {
        self.hook.as_ref().and_then(Hook::look_again)
    }

    /// Whether this is the process group of a hook that has not ended.
    pub(super) fn is_hook(&self, pid: i32) -> bool {
        self.hook.as_ref().is_some_and(|hook| hook.is(pid))
    }
}
