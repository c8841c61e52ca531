//! The end of a hook: of its main process, and of whatever that left in its process group (law 8: "with every hook of the term
//! dead"). What has left the group is out of reach here, as are the workload's own processes once it is demoted.

use std::time::Duration;

use super::event_loop::EventLoop;
use crate::{
    clock,
    config::HookKind,
    link::{Exit, ToElector},
    process::{
        Pid, kill,
        spawn::{Outcome, Spawning},
    },
    supervision::{Agent, Input},
    time::Instant,
};

/// Nearly everything that a hook leaves becomes init's child, whose end wakes it. The rest is polled this often.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A hook, until it has ended as a whole.
#[derive(Debug)]
pub(super) struct Hook {
    kind: HookKind,
    began: Instant,
    pid: Pid,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Its main process has not been reaped.
    Running(Spawning),
    /// It has; others of its group may be left.
    Leaving(Exit),
}

impl Hook {
    /// One that was forked just now.
    pub(super) fn new(kind: HookKind, spawning: Spawning) -> Self {
        Self { kind, began: clock::boot(), pid: spawning.pid, stage: Stage::Running(spawning) }
    }

    /// Its main process, until that is reaped.
    pub(super) fn main(&self) -> Option<Pid> {
        match self.stage {
            Stage::Running(_) => Some(self.pid),
            Stage::Leaving(_) => None,
        }
    }

    pub(super) fn is(&self, pid: i32) -> bool {
        self.pid.as_raw() == pid
    }

    /// When to look again whether all of it is gone.
    pub(super) fn look_again(&self) -> Option<Instant> {
        match self.stage {
            Stage::Running(_) => None,
            Stage::Leaving(_) => Some(clock::boot() + LOOK_AGAIN),
        }
    }
}

impl EventLoop {
    /// Whether what was reaped was the main process of the hook.
    pub(super) fn hook_main_ended(&mut self, pid: Pid, exit: Exit) -> bool {
        let Some(hook) = self.processes.hook.as_mut().filter(|hook| hook.main() == Some(pid)) else { return false };
        let kind = hook.kind;
        let stage = std::mem::replace(&mut hook.stage, Stage::Leaving(exit));
        if let Stage::Running(mut spawning) = stage
            && let Some(Outcome::Failed(failure)) = spawning.outcome()
        {
            self.warn(format!("hooks.{} cannot be run: {failure}", kind.name()));
        }
        true
    }

    /// Reports its end once nobody of its group is left.
    pub(super) fn end_hook(&mut self, agent: &mut Agent) {
        let is_over = |hook: &mut Hook| hook.main().is_none() && kill::is_group_gone(hook.pid);
        if let Some(Hook { kind, began, pid, stage: Stage::Leaving(exit) }) = self.processes.hook.take_if(is_over) {
            let ended = clock::boot();
            self.electors.send(&ToElector::Hooked { hook: kind, began, ended, exit });
            agent.handle(Input::Reaped { pid: pid.as_raw(), exit }, ended);
        }
    }
}
