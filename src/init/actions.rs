//! Carries out what the agent wants done; what tells a running workload its role is in [`super::roles`].

use std::{
    io::{self, ErrorKind},
    os::fd::AsFd,
};

use super::{elector::StartError, event_loop::EventLoop, helpers::Task, prints::Prints};
use crate::{
    clock,
    config::Signal,
    exit,
    link::ToInit,
    process::{
        Pid,
        fuse::FuseError,
        kill,
        scan::{is_any_stopped, is_stopped},
        spawn::{Command, Input as Stdin, Outcome, ProcessGroup, Setup, SpawnError, Spawning},
    },
    role::Role,
    supervision::{Action, Agent, Input, Launch, NotSpawned, Scan, Target},
    time::Instant,
    words::one_line,
};

impl EventLoop {
    /// Carries out the agent's actions, in order, until there are none.
    pub(super) fn carry_out(&mut self, agent: &mut Agent) {
        loop {
            let hard = agent.hard();
            if hard.is_some() {
                self.follow_hard(hard);
            }
            // Before the signal that ends it, and no sooner than the fuses.
            if let Some(page) = &mut self.page {
                page.say(agent.standing());
            }
            let Some(action) = agent.poll_action() else {
                // An action may have ended the lead: the fuses stay until all are done.
                return self.follow_hard(hard);
            };
            self.act(agent, action);
            if self.over.is_some() {
                return;
            }
        }
    }

    /// Sets the fuses to H before anything that relies on it is started, promoted or acknowledged.
    fn follow_hard(&mut self, hard: Option<Instant>) {
        let followed = match self.fuses.follow(hard) {
            Ok(false) => return,
            Ok(true) => true,
            Err(error) => {
                self.tell_fuseless(&error);
                false
            }
        };
        let Some(main) = self.processes.main.filter(|_| hard.is_some()) else { return };
        let electors = self.electors.pids();
        let covered = self.fuses.cover(main).and_then(|()| self.fuses.search(|| self.prover.groups(Some(main), &electors)));
        match covered {
            Ok(true) if followed && self.fuses.has_recovered() => self.warn("the kernel fuse works again".into()),
            Ok(_) => {}
            Err(error) => self.tell_fuseless(&error),
        }
    }

    /// Adds fuses for the groups of what was started lately.
    pub(super) fn tend_fuses(&mut self) {
        let (main, electors) = (self.processes.main, self.electors.pids());
        if let Err(error) = self.fuses.search_soon(|| self.prover.groups(main, &electors)) {
            self.tell_fuseless(&error);
        }
    }

    /// Forks the workload, a hook or a probe, with a fuse of its own if it may lead.
    pub(super) fn fork(
        &mut self,
        command: &Command,
        task: Option<Task>,
        not_after: Option<Instant>,
        fused: bool,
    ) -> Result<Spawning, SpawnError> {
        let fuse = if fused { self.fuses.spare() } else { Ok(None) };
        let fuse = fuse.map_err(|error| self.tell_fuseless(&error)).ok().flatten();
        let (group, input) = match task {
            None => (self.foreground.group(), Stdin::Inherited),
            Some(_) => (ProcessGroup::Own, Stdin::Null),
        };
        let prints = self.processes.prints.iter().find(|prints| matches!(task, Some(Task::Hook(hook)) if prints.is_of(hook)));
        let spawning = command.spawn(&Setup {
            inherited: self.processes.inherited,
            group,
            input,
            output: prints.map(Prints::writer),
            link: None,
            oom_score_adjust: self.processes.oom_score_adjust,
            not_after,
            fuse: fuse.as_ref().map(AsFd::as_fd),
        })?;
        if let Some(fuse) = fuse {
            self.fuses.keep(fuse, spawning.pid);
        }
        Ok(spawning)
    }

    fn tell_fuseless(&mut self, why: &FuseError) {
        if self.fuses.is_first_failure() {
            let line = format!("there is no kernel fuse, so only init and the elector enforce the deadline: {}", one_line(why));
            self.warn(line);
        }
    }

    fn tell_refused(&mut self) {
        if !std::mem::replace(&mut self.processes.refused, true) {
            let line = "the workload runs as a user that tenure may not signal, so it dies only with the container: run both as the \
                        same user, or give the container the capability KILL";
            self.warn(line.into());
        }
    }

    fn act(&mut self, agent: &mut Agent, action: Action) {
        match action {
            Action::StartElector => self.start_elector(agent),
            Action::KillElector => self.kill_elector(agent),
            Action::Tell(message) => {
                // What cannot be sent shows when its link is read.
                self.electors.send(&message);
            }
            Action::Spawn { role, launch } => self.spawn(agent, role, launch),
            Action::Signal { target, signal } if self.processes.main == Some(named(target)) => {
                if matches!(send(target, signal), Err(error) if error.kind() == ErrorKind::PermissionDenied) {
                    self.tell_refused();
                }
            }
            Action::Continue { target } if self.processes.main == Some(named(target)) && awaits(target) => {
                drop(send(target, kill::SIGCONT));
            }
            // It ended meanwhile, and its id may be reused.
            Action::Signal { .. } | Action::Continue { .. } => {}
            Action::TellRole { pid, role, signal, not_after } => self.tell_role(agent, pid, role, signal, not_after),
            Action::Freeze => self.look_frozen(agent, true),
            Action::LookFrozen => self.look_frozen(agent, false),
            Action::Thaw { not_after } => self.thaw(agent, not_after),
            Action::CallOff => self.roles.call_off(),
            Action::Hook { hook, told, not_after } => self.hook(agent, hook, &told, not_after),
            Action::Probe { kind, began, launch } => self.probe(agent, kind, began, launch.as_ref()),
            Action::KillProbe(kind) => self.kill_probe(kind),
            // Its id may be reused once it has ended.
            Action::KillHook { pid } if self.processes.is_helper(pid) => drop(send(Target::Group(pid), kill::SIGKILL)),
            Action::KillHook { .. } => {}
            Action::MarkNotify => self.mark_notify(agent),
            Action::Prove => {
                self.reap(agent);
                let scan = self.prover.look(&self.electors.pids());
                agent.handle(Input::Scanned(scan), clock::boot());
            }
            Action::Sweep => self.sweep(agent, false),
            Action::KillAll => {
                // ESRCH: nobody is left. There is no other failure for PID 1.
                let _ = kill::kill_everything();
                self.sweep(agent, true);
            }
            Action::Die => die(),
            Action::Warn(line) => self.warn(line),
            Action::TerminationMessage(words) => self.log.termination_message(&words),
            Action::Exit(code) => {
                self.foreground.take_back();
                self.over = Some(code);
            }
        }
    }

    fn start_elector(&mut self, agent: &mut Agent) {
        let input = match self.electors.start(agent.initial_state()) {
            Ok(()) => Input::ElectorStarted,
            Err(error) => {
                let message = one_line(&error);
                if matches!(error, StartError::InitialState(_)) {
                    agent.handle(Input::Told(ToInit::Failed { code: exit::INVALID, message }), clock::boot());
                } else {
                    self.complain(message);
                }
                Input::ElectorNotStarted
            }
        };
        agent.handle(input, clock::boot());
    }

    /// No user code of it runs after the SIGKILL, so what is in the link now is all there will ever be (law 10).
    fn kill_elector(&mut self, agent: &mut Agent) {
        self.electors.kill();
        self.drain_link_first(agent);
        self.electors.close();
    }

    fn spawn(&mut self, agent: &mut Agent, role: Option<Role>, launch: Option<Launch>) {
        let info = launch.as_ref().and_then(|launch| launch.info.clone());
        let not_after = launch.as_ref().map(|launch| launch.not_after).filter(|at| *at != Instant::NEVER);
        // A standby needs no fuse, and those of a term that is just over may still stand.
        let fused = launch.is_some();
        let command = self.processes.programs.workload(role, info);
        let spawned = command.and_then(|command| self.fork(&command, None, not_after, fused));
        let input = match spawned {
            Ok(spawning) => {
                self.processes.main = Some(spawning.pid);
                let pid = spawning.pid.as_raw();
                self.processes.spawning = Some(spawning);
                if launch.is_some() {
                    self.prover.prepare();
                }
                Input::Forked { pid }
            }
            Err(error) => {
                let message = format!("{}: {}", self.processes.programs.name(role), one_line(&error));
                Input::NotSpawned(match error {
                    SpawnError::Nul(_) => NotSpawned::Failed { code: exit::CANNOT_EXECUTE, message },
                    SpawnError::Unavailable(..) => NotSpawned::Unavailable { message },
                })
            }
        };
        agent.handle(input, clock::boot());
    }

    fn sweep(&mut self, agent: &mut Agent, everything: bool) {
        // These are init's own children, not reaped yet: killing them needs no /proc, which may be hidden or need a descriptor, and
        // waits for no reaping.
        let mut killed = everything;
        for pid in self.processes.helper_mains().chain(self.processes.main) {
            let _ = (kill::send_group(pid, kill::SIGKILL), kill::send(pid, kill::SIGKILL));
            killed = true;
        }
        self.reap(agent);
        let scan = self.prover.sweep(&self.electors.pids());
        agent.handle(Input::Scanned(Scan { killed: scan.killed || killed, ..scan }), clock::boot());
    }

    /// Takes in what became of the workload between fork and execve.
    pub(super) fn take_outcome(&mut self, agent: &mut Agent) {
        if let Some(outcome) = self.processes.spawning.as_mut().and_then(Spawning::outcome) {
            self.processes.spawning = None;
            self.workload_outcome(agent, outcome);
            self.carry_out(agent);
        }
    }

    /// Takes in what the workload reports of its start, before its end.
    pub(super) fn report_before_end(&mut self, agent: &mut Agent, pid: Pid) {
        if let Some(mut spawning) = self.processes.spawning.take_if(|spawning| spawning.pid == pid) {
            let outcome = spawning.outcome().unwrap_or(Outcome::Done);
            self.workload_outcome(agent, outcome);
        }
    }

    fn workload_outcome(&mut self, agent: &mut Agent, outcome: Outcome) {
        let input = match outcome {
            Outcome::Done => {
                self.fuses.started();
                Input::Spawned
            }
            Outcome::Late => Input::NotSpawned(NotSpawned::Late),
            Outcome::Failed(failure) => {
                let message = format!("{}: {failure}", self.processes.programs.name(Some(agent.standing().role)));
                Input::NotSpawned(NotSpawned::Failed { code: failure.code(), message })
            }
        };
        agent.handle(input, clock::boot());
    }
}

const fn named(target: Target) -> Pid {
    let (Target::Main(pid) | Target::Group(pid)) = target;
    Pid::from_raw(pid)
}

/// Whether SIGCONT has to come before another signal is received.
fn awaits(target: Target) -> bool {
    match target {
        Target::Main(pid) => is_stopped(Pid::from_raw(pid)),
        Target::Group(pid) => is_any_stopped(Pid::from_raw(pid)),
    }
}

fn send(target: Target, signal: Signal) -> io::Result<()> {
    match target {
        Target::Main(pid) => kill::send(Pid::from_raw(pid), signal),
        Target::Group(pid) => kill::send_group(Pid::from_raw(pid), signal),
    }
}

/// No destructors, no buffers, no waiting for other threads: the kernel kills the namespace now.
#[expect(unsafe_code, reason = "exit would run what may wait")]
fn die() -> ! {
    // SAFETY: it takes a number and does not return.
    unsafe { libc::_exit(exit::INTERNAL.into()) }
}
