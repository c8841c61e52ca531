//! The workload, its hooks and its probes as init's children.

use std::os::fd::{AsFd, BorrowedFd};

use super::{hook_output::HookOutput, programs::Programs};
use crate::{
    config::Config,
    process::{
        Pid,
        signals::Inherited,
        spawn::{Failure, Outcome, Spawning},
    },
    role::Role,
    supervision::{NotSpawned, Started},
};

/// The processes that run, and the commands and settings for new ones.
pub(super) struct Processes {
    pub(super) programs: Programs,
    pub(super) inherited: Inherited,
    pub(super) oom_score_adjust: i16,
    /// The main process, until it is reaped.
    pub(super) workload: Option<Workload>,
    /// The other children, each until it is reaped.
    pub(super) others: Vec<Spawning>,
    /// The child that tells the workload its role.
    pub(super) teller: Option<Pid>,
    /// The output of hooks.
    pub(super) hook_output: Vec<HookOutput>,
}

/// The workload's main process.
pub(super) struct Workload {
    pub(super) pid: Pid,
    pub(super) role: Option<Role>,
    /// The report of its start, until that is read.
    pub(super) starting: Option<Spawning>,
}

impl Processes {
    pub(super) const fn new(programs: Programs, hook_output: Vec<HookOutput>, inherited: Inherited, config: &Config) -> Self {
        let oom_score_adjust = config.workload.oom_score_adjust;
        Self { programs, inherited, oom_score_adjust, workload: None, others: Vec::new(), teller: None, hook_output }
    }

    /// The workload's main process, until it is reaped.
    pub(super) fn main(&self) -> Option<Pid> {
        self.workload.as_ref().map(|workload| workload.pid)
    }

    /// Readable once the outcome of the workload's start is known.
    pub(super) fn starting_fd(&self) -> Option<BorrowedFd<'_>> {
        self.workload.as_ref()?.starting.as_ref().map(AsFd::as_fd)
    }

    /// Returns the result of the workload's start, once, when it is known.
    pub(super) fn started(&mut self) -> Option<Started> {
        let workload = self.workload.as_mut()?;
        let outcome = workload.starting.as_mut()?.outcome()?;
        workload.starting = None;
        Some(started(outcome, |failure| format!("{}: {failure}", self.programs.name(workload.role))))
    }

    /// Forgets a reaped child; returns the result of its start.
    pub(super) fn reaped(&mut self, pid: Pid) -> Option<Started> {
        if self.main() == Some(pid) {
            let started = self.started();
            // A dead child without a report has run its command.
            let unknown = self.workload.take()?.starting.map(|_| Ok(()));
            return started.or(unknown);
        }
        let index = self.others.iter().position(|child| child.pid == pid)?;
        Some(match self.others.swap_remove(index).outcome()? {
            // As if it could not be forked.
            Outcome::Failed(failure) if failure.is_lack() => Err(NotSpawned::Unavailable { message: failure.to_string() }),
            outcome @ (Outcome::Done | Outcome::Late | Outcome::Failed(_)) => started(outcome, ToString::to_string),
        })
    }
}

/// Translates the report of a child. `words` describes a failure.
pub(super) fn started(outcome: Outcome, words: impl FnOnce(&Failure) -> String) -> Started {
    match outcome {
        Outcome::Done => Ok(()),
        Outcome::Late => Err(NotSpawned::Late),
        Outcome::Failed(failure) => Err(NotSpawned::Failed { code: failure.code(), message: words(&failure) }),
    }
}
