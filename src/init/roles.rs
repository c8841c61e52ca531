//! Tells a workload that runs everywhere its role: by signal, hook and NOTIFY_SOCKET (law 8, 15).

use std::os::fd::AsFd;

use super::{event_loop::EventLoop, hooks::Hook};
use crate::{
    clock,
    config::{HookKind, Signal},
    link::{Exit, Reason, TermInfo},
    process::{
        Pid, kill,
        notify::NotifySocket,
        reap,
        spawn::{self, Input as Stdin, Outcome, ProcessGroup, RoleSignal, Spawning},
    },
    role::Role,
    supervision::{Agent, Input, RoleInput},
    time::Instant,
    words::one_line,
};

/// How the workload is told by a signal, and where it answers.
pub(super) struct RoleMessenger {
    notify: Option<NotifySocket>,
    /// The child that sends the signal, until it is reaped.
    child: Option<Spawning>,
    /// A notification of this incarnation was dropped and that was logged: a flood of them is one line.
    rejected: bool,
}

impl RoleMessenger {
    pub(super) const fn new(notify: Option<NotifySocket>) -> Self {
        Self { notify, child: None, rejected: false }
    }

    /// The socket to read, unless a signal is on its way: what is said before it is for that child to discard.
    pub(super) fn listening(&self) -> Option<&NotifySocket> {
        self.notify.as_ref().filter(|_| self.child.is_none())
    }

    pub(super) const fn is_first_rejection(&mut self) -> bool {
        !std::mem::replace(&mut self.rejected, true)
    }

    /// This incarnation is gone.
    pub(super) fn forget(&mut self) {
        (self.child, self.rejected) = (None, false);
    }

    /// Kills the child, whatever it has done: nobody asks any more.
    pub(super) fn call_off(&mut self) {
        if let Some(child) = self.child.take() {
            // It may be gone already.
            let _ = kill::send(child.pid, kill::SIGKILL);
        }
    }
}

impl EventLoop {
    pub(super) fn drain_notify(&mut self, agent: &mut Agent) {
        let drained = self.roles.notify.as_ref().map_or(Ok(()), NotifySocket::drain);
        self.answer(agent, drained.map_err(|error| format!("NOTIFY_SOCKET cannot be emptied: {error}")));
    }

    pub(super) fn tell_role(&mut self, agent: &mut Agent, pid: i32, role: Role, signal: Signal, not_after: Option<Instant>) {
        let pid = Pid::from_raw(pid);
        // A dead process takes a signal too, and handles none: that it is reaped is the answer.
        if self.processes.main != Some(pid) || reap::is_dead(pid) {
            return;
        }
        let key = match role {
            Role::Leader => "signals.onLead",
            Role::Standby => "signals.onFollow",
        };
        // The remains of one that it ends would work on as a leader's.
        if role == Role::Standby && !spawn::handles(pid, signal) {
            return self.answer(agent, Err(format!("the workload does not handle {key} ({}) and is killed", signal.name())));
        }
        let notify = self.roles.notify.as_ref();
        if let (None, Some(socket)) = (not_after, notify) {
            let sent = socket.drain().and_then(|()| kill::send(pid, signal));
            return self.answer(agent, sent.map_err(|error| format!("the workload cannot be told {key}: {error}")));
        }
        // A notification is an answer to the signal; whoever is not asked for one must at least have it.
        let until_taken = notify.is_none();
        match (RoleSignal { pid, signal, not_after, notify: notify.map(AsFd::as_fd), until_taken }).spawn() {
            // Its end is the answer.
            Ok(child) => self.roles.child = Some(child),
            Err(error) => self.answer(agent, Err(format!("the workload cannot be told {key}: {}", one_line(&error)))),
        }
    }

    /// Takes in how a child that signalled has ended.
    pub(super) fn report_told(&mut self, agent: &mut Agent, pid: Pid, exit: Exit) {
        let Some(mut child) = self.roles.child.take_if(|child| child.pid == pid) else { return };
        let told = match child.outcome() {
            Some(Outcome::Done) if exit == Exit::Code(0) => {
                self.fuses.started();
                Ok(())
            }
            Some(Outcome::Failed(failure)) => Err(failure.to_string()),
            Some(Outcome::Late) => Err("it did not handle the signal in time".into()),
            Some(Outcome::Done) | None => Err("it may have been told, or not".into()),
        };
        self.answer(agent, told.map_err(|why| format!("the workload was not told its role: {why}")));
    }

    fn answer(&mut self, agent: &mut Agent, told: Result<(), String>) {
        let input = if told.is_ok() { RoleInput::Signalled } else { RoleInput::NotSignalled };
        agent.handle(Input::Role(input), clock::boot());
        if let Err(line) = told {
            self.warn(line);
        }
    }

    pub(super) fn hook(
        &mut self,
        agent: &mut Agent,
        hook: HookKind,
        info: Option<&TermInfo>,
        reason: Option<Reason>,
        not_after: Instant,
    ) {
        let command = self.processes.programs.hook(hook, info, reason);
        let mut fork = |command| self.fork(&command, ProcessGroup::Own, Stdin::Null, Some(not_after), true);
        let input = match command.and_then(|command| command.map(&mut fork).transpose()) {
            Ok(Some(spawning)) => {
                self.fuses.started();
                let pid = spawning.pid.as_raw();
                self.processes.hook = Some(Hook::new(hook, spawning));
                RoleInput::HookForked { pid }
            }
            Ok(None) => RoleInput::HookNotForked,
            Err(error) => {
                self.warn(format!("hooks.{} cannot be run: {}", hook.name(), one_line(&error)));
                RoleInput::HookNotForked
            }
        };
        agent.handle(Input::Role(input), clock::boot());
    }
}
