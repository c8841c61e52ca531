//! What runs beside the workload, hooks and probes; and their end: of the main process, and of whatever that left in its process
//! group (law 8: "with every hook and probe of the term dead"). What has left the group is out of reach here, as are the
//! workload's own processes once it is demoted.

use std::time::Duration;

use super::event_loop::EventLoop;
use crate::{
    clock,
    config::{HookKind, ProbeKind},
    link::{Exit, ToElector},
    process::{
        Pid, kill,
        spawn::{Command, Outcome, SpawnError, Spawning},
    },
    role::Role,
    supervision::{Agent, Input, Launch, Told},
    time::Instant,
    words::one_line,
};

/// Nearly everything that a helper leaves becomes init's child, whose end wakes it. The rest is polled this often.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A hook or a probe, until it has ended as a whole.
#[derive(Debug)]
pub(super) struct Helper {
    task: Task,
    began: Instant,
    pid: Pid,
    stage: Stage,
}

/// What it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Hook(HookKind),
    /// Which was asked for then.
    Probe(ProbeKind, Instant),
}

#[derive(Debug)]
enum Stage {
    /// Its main process has not been reaped.
    Running(Spawning),
    /// It has; others of its group may be left.
    Leaving(Exit),
}

impl Helper {
    /// Its main process, until that is reaped.
    pub(super) fn main(&self) -> Option<Pid> {
        match self.stage {
            Stage::Running(_) => Some(self.pid),
            Stage::Leaving(_) => None,
        }
    }

    pub(super) fn is_of(&self, hook: HookKind) -> bool {
        self.task == Task::Hook(hook)
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

    /// Whether nobody of its group is left.
    fn is_over(&mut self) -> bool {
        self.main().is_none() && kill::is_group_gone(self.pid)
    }
}

impl EventLoop {
    /// Whether what was reaped was the main process of one.
    pub(super) fn helper_main_ended(&mut self, pid: Pid, exit: Exit) -> bool {
        let Some(helper) = self.processes.helpers.iter_mut().find(|helper| helper.main() == Some(pid)) else { return false };
        let task = helper.task;
        let stage = std::mem::replace(&mut helper.stage, Stage::Leaving(exit));
        if let (Stage::Running(mut spawning), Task::Hook(hook)) = (stage, task)
            && let Some(Outcome::Failed(failure)) = spawning.outcome()
        {
            self.warn(format!("hooks.{} cannot be run: {failure}", hook.as_str()));
        }
        true
    }

    /// Reports the end of each once nobody of its group is left.
    pub(super) fn end_helpers(&mut self, agent: &mut Agent) {
        while let Some(over) = self.processes.helpers.iter_mut().position(Helper::is_over) {
            let Helper { task, began, pid, stage } = self.processes.helpers.swap_remove(over);
            let (Stage::Leaving(exit), ended) = (stage, clock::boot()) else { continue };
            let input = match task {
                Task::Hook(hook) => {
                    self.electors.send(&ToElector::Hooked { hook, began, ended, exit });
                    Input::Reaped { pid: pid.as_raw(), exit }
                }
                Task::Probe(kind, began) => {
                    Input::Probed { kind, began, failure: (exit != Exit::Code(0)).then(|| exit.to_string()) }
                }
            };
            agent.handle(input, ended);
        }
    }

    /// Forks one; returns its id, or none if it is not set.
    pub(super) fn help(
        &mut self,
        task: Task,
        command: Result<Option<Command>, SpawnError>,
        not_after: Option<Instant>,
        fused: bool,
    ) -> Result<Option<i32>, SpawnError> {
        let Some(command) = command? else { return Ok(None) };
        let spawning = self.fork(&command, Some(task), not_after, fused)?;
        let (pid, began) = (spawning.pid, clock::boot());
        self.processes.helpers.push(Helper { task, began, pid, stage: Stage::Running(spawning) });
        Ok(Some(pid.as_raw()))
    }

    /// Starts a program that asks the workload how it is.
    pub(super) fn probe(&mut self, agent: &mut Agent, kind: ProbeKind, began: Instant, launch: Option<&Launch>) {
        let role = if launch.is_some() { Role::Leader } else { Role::Standby };
        let told = Told { info: launch.and_then(|launch| launch.info.clone()), ..Told::default() };
        let command = self.processes.programs.helper(kind.as_str(), role, &told);
        let not_after = launch.map(|launch| launch.not_after);
        if let Err(error) = self.help(Task::Probe(kind, began), command, not_after, launch.is_some()) {
            agent.handle(Input::Probed { kind, began, failure: Some(one_line(&error)) }, clock::boot());
        }
    }

    pub(super) fn kill_probe(&self, kind: ProbeKind) {
        let is_it = |helper: &&Helper| matches!(helper.task, Task::Probe(of, _) if of == kind);
        for helper in self.processes.helpers.iter().filter(is_it) {
            // Its id stays its own until all of its group is gone.
            let _ = kill::send_group(helper.pid, kill::SIGKILL);
        }
    }
}
