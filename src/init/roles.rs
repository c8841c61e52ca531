//! Tells a workload that runs everywhere its role: by signal, hook and NOTIFY_SOCKET (law 8, 15).

use std::{io, os::fd::AsFd};

use super::{event_loop::EventLoop, helpers::Task};
use crate::{
    clock,
    config::{HookKind, Signal},
    link::Exit,
    notification::Notification,
    process::{
        Pid, kill,
        notify::{Mark, NotifySocket},
        reap,
        spawn::{self, Outcome, RoleSignal, Spawning},
    },
    role::Role,
    supervision::{Agent, Input, RoleInput, Told},
    time::Instant,
    words::one_line,
};

/// How the workload is told by a signal, and where it answers.
pub(super) struct RoleMessenger {
    notify: Option<NotifySocket>,
    /// The workload answers there when it is told its role.
    answers: bool,
    /// The child that sends the signal, until it is reaped.
    child: Option<Spawning>,
    /// The number of the last mark, and whether it is still to be read: every role before it was said before the question.
    marks: u64,
    is_unmarked: bool,
    /// Kinds of notifications of this incarnation that were dropped, which was logged: a flood of one is one line.
    rejected: Vec<&'static str>,
}

impl RoleMessenger {
    pub(super) fn new(notify: Option<NotifySocket>, answers: bool) -> Self {
        // Anybody can send a mark, and nobody can guess one.
        Self { notify, answers, child: None, marks: fastrand::u64(..), is_unmarked: false, rejected: Vec::new() }
    }

    /// The socket to read, unless an answer may be next whose question is not known to have been asked.
    pub(super) fn listening(&self) -> Option<&NotifySocket> {
        self.notify.as_ref().filter(|_| self.child.is_none() || self.is_unmarked || !self.answers)
    }

    pub(super) fn is_first_rejection(&mut self, kind: &'static str) -> bool {
        let is_first = !self.rejected.contains(&kind);
        if is_first {
            self.rejected.push(kind);
        }
        is_first
    }

    /// This mark was read.
    pub(super) const fn marked(&mut self, number: u64) {
        self.is_unmarked &= number != self.marks;
    }

    /// What is fed of what was read.
    pub(super) fn heard(&mut self, said: Notification) -> Option<Input> {
        let Notification::Role(role) = said else { return Some(Input::Notified(said)) };
        (!self.is_unmarked).then_some(Input::Role(RoleInput::Notified(role)))
    }

    /// This incarnation is gone.
    pub(super) fn forget(&mut self) {
        (self.child, self.is_unmarked, self.rejected) = (None, false, Vec::new());
    }

    /// Kills the child, whatever it has done: nobody asks any more.
    pub(super) fn call_off(&mut self) {
        if let Some(child) = self.child.take() {
            // It may be gone already.
            let _ = kill::send(child.pid, kill::SIGKILL);
        }
    }

    /// The next mark, to be set as the last thing before the workload is asked.
    fn mark(&mut self) -> Option<Mark<'_>> {
        self.marks = self.marks.wrapping_add(1);
        self.is_unmarked = self.answers;
        self.notify.as_ref().filter(|_| self.answers).map(|socket| Mark { socket: socket.as_fd(), number: self.marks })
    }

    fn set_mark(&mut self) -> io::Result<()> {
        Ok(self.mark().map_or(Ok(()), Mark::set)?)
    }
}

impl EventLoop {
    pub(super) fn mark_notify(&mut self, agent: &mut Agent) {
        let marked = self.roles.set_mark();
        self.answer(agent, marked.map_err(|error| format!("NOTIFY_SOCKET cannot be marked: {error}")));
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
        let until_taken = !self.roles.answers;
        if not_after.is_none() && !until_taken {
            let sent = self.roles.set_mark().and_then(|()| kill::send(pid, signal));
            return self.answer(agent, sent.map_err(|error| format!("the workload cannot be told {key}: {error}")));
        }
        // A notification is an answer to the signal; whoever is not asked for one must at least have it.
        let mark = self.roles.mark();
        match (RoleSignal { pid, signal, not_after, mark, until_taken }).spawn() {
            // Its end is the answer.
            Ok(child) => self.roles.child = Some(child),
            Err(error) => self.answer(agent, Err(format!("the workload cannot be told {key}: {}", one_line(&error)))),
        }
    }

    /// Looks at a frozen workload, and stops what is not, if it is to `stop`.
    pub(super) fn look_frozen(&mut self, agent: &mut Agent, stop: bool) {
        self.reap(agent);
        let frozen = self.frozen(stop).is_some();
        agent.handle(Input::Role(RoleInput::Looked { frozen }), clock::boot());
    }

    /// Its processes, if they are stopped and the main one was never continued.
    fn frozen(&mut self, stop: bool) -> Option<Vec<Pid>> {
        let main = self.processes.main?;
        let stopped = self.prover.stopped(&self.electors.pids(), stop)?;
        (!reap::is_continued(main) && stopped.contains(&main)).then_some(stopped)
    }

    /// Continues a frozen workload, which leads from then on.
    pub(super) fn thaw(&mut self, agent: &mut Agent, not_after: Instant) {
        let Some(pids) = self.frozen(false) else {
            return self.answer(agent, Err("the workload is not frozen any more, and does not lead".into()));
        };
        match spawn::thaw(&pids, not_after) {
            // Its end is the answer.
            Ok(child) => self.roles.child = Some(child),
            Err(error) => self.answer(agent, Err(format!("the workload cannot be continued: {}", one_line(&error)))),
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

    pub(super) fn hook(&mut self, agent: &mut Agent, hook: HookKind, told: &Told, not_after: Instant) {
        // What follows needs no fuse, and those of a term that is just over may still stand.
        let (role, fused) = match hook {
            HookKind::BeforeLead | HookKind::AfterLead => (Role::Leader, true),
            HookKind::BeforeFollow => (Role::Standby, true),
            HookKind::AfterFollow => (Role::Standby, false),
        };
        let command = self.processes.programs.helper(hook.as_str(), role, told);
        let not_after = Some(not_after).filter(|at| *at != Instant::NEVER);
        let input = match self.help(Task::Hook(hook), command, not_after, fused) {
            Ok(Some(pid)) => {
                self.fuses.started();
                RoleInput::HookForked { pid }
            }
            Ok(None) => RoleInput::HookNotForked,
            Err(error) => {
                self.warn(format!("hooks.{} cannot be run: {}", hook.as_str(), one_line(&error)));
                RoleInput::HookNotForked
            }
        };
        agent.handle(Input::Role(input), clock::boot());
    }
}
