//! Carries out what the agent wants done; what tells a running workload its role is in [`super::roles`].

use std::{
    io::{self, ErrorKind},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use nix::{fcntl::OFlag, sys::stat::Mode};

use super::{
    drive::Drive,
    elector::{Elector, Killed, StartError},
    hooks::Hook,
};
use crate::{
    clock,
    config::Signal,
    exit,
    link::{Exit, ToInit},
    process::{
        Pid,
        fuse::{Fuse, FuseError},
        kill,
        spawn::{self, Outcome, Place, Setup, SpawnError, Spawning},
    },
    role::Role,
    supervision::{Action, Agent, Input, Launch, NotSpawned, Scan, Target},
    time::Instant,
    words::one_line,
};

/// Children whose outcome is not yet known.
#[derive(Debug, Default)]
pub(super) struct Pending {
    workload: Option<Spawning>,
    pub(super) promotion: Option<Spawning>,
    pub(super) demotion: Option<Spawning>,
}

impl Pending {
    /// Readable once the workload's outcome is known. A promotion's shows when it ends.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.workload.as_ref().map(AsFd::as_fd)
    }

    /// Whether a promotion signal is being sent.
    pub(super) const fn promotes(&self) -> bool {
        self.promotion.is_some()
    }
}

impl Drive {
    /// Carries out the agent's actions, in order, until there are none.
    pub(super) fn carry_out(&mut self, agent: &mut Agent) {
        loop {
            let hard = agent.hard();
            if hard.is_some() {
                self.follow_hard(hard);
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
        let Some(main) = self.main.filter(|_| hard.is_some()) else { return };
        let electors = self.electors();
        let covered = self.fuses.cover(main).and_then(|()| self.fuses.search(|| self.prover.groups(Some(main), &electors)));
        match covered {
            Ok(true) if followed && self.fuses.has_recovered() => self.warn("the kernel fuse works again".into()),
            Ok(_) => {}
            Err(error) => self.tell_fuseless(&error),
        }
    }

    /// Adds fuses for the groups of what was started lately, and looks after those that nothing has moved.
    pub(super) fn tend_fuses(&mut self) {
        let (main, electors) = (self.main, self.electors());
        let searched = self.fuses.search_soon(|| self.prover.groups(main, &electors));
        if let Err(error) = searched.and_then(|()| self.fuses.look_after()) {
            self.tell_fuseless(&error);
        }
    }

    pub(super) fn spare_fuse(&mut self) -> Option<Fuse> {
        self.fuses.spare().unwrap_or_else(|error| {
            self.tell_fuseless(&error);
            None
        })
    }

    fn tell_fuseless(&mut self, why: &FuseError) {
        if self.fuses.is_first_failure() {
            let line = format!("there is no kernel fuse, so only init and the elector enforce the deadline: {}", one_line(why));
            self.warn(line);
        }
    }

    fn tell_refused(&mut self) {
        if !std::mem::replace(&mut self.refused, true) {
            let line = "the workload runs as a user that tenure may not signal, so it dies only with the container: run both as the \
                        same user, or give the container the capability KILL";
            self.warn(line.into());
        }
    }

    fn act(&mut self, agent: &mut Agent, action: Action) {
        match action {
            Action::StartElector => self.start_elector(agent),
            Action::KillElector => self.kill_elector(agent),
            Action::Tell(message) => drop(self.elector.as_mut().map(|elector| elector.send(&message))),
            Action::Spawn { role, launch } => self.spawn(agent, role, launch),
            Action::Signal { target, signal } if self.main == Some(named(target)) => {
                if matches!(send(target, signal), Err(error) if error.kind() == ErrorKind::PermissionDenied) {
                    self.tell_refused();
                }
            }
            // It ended meanwhile, and its id may be reused.
            Action::Signal { .. } => {}
            Action::Promote { pid, signal, not_after } if self.main == Some(Pid::from_raw(pid)) => {
                self.promote(agent, pid, signal, not_after);
            }
            // It ended meanwhile, and its id may be reused.
            Action::Promote { .. } => {}
            Action::CallOff => {
                if let Some(promotion) = &self.pending.promotion {
                    // It may be gone already.
                    let _ = send(Target::Main(promotion.pid.as_raw()), kill::SIGKILL);
                }
            }
            Action::Demote { pid, signal } => self.demote(agent, pid, signal),
            Action::Hook { hook, facts, reason, not_after } => self.hook(agent, hook, facts.as_ref(), reason, not_after),
            // Its id may be reused once it has ended.
            Action::KillHook { pid } if self.is_hook(pid) => drop(send(Target::Group(pid), kill::SIGKILL)),
            Action::KillHook { .. } => {}
            Action::DrainNotify => self.drain_notify(agent),
            Action::Prove => {
                self.reap(agent);
                let scan = self.prover.look(&self.electors());
                agent.handle(Input::Scanned(scan), clock::boot());
            }
            Action::Walk => self.walk(agent, false),
            Action::KillAll => {
                // ESRCH: nobody is left. There is no other failure for PID 1.
                let _ = kill::kill_everything();
                self.killed_all = !self.electors().is_empty();
                self.walk(agent, true);
            }
            Action::Die => die(),
            Action::Warn(line) => self.warn(line),
            Action::LastWords(words) => self.log.last_words(&words),
            Action::Exit(code) => {
                self.take_terminal_back();
                self.over = Some(code);
            }
        }
    }

    fn start_elector(&mut self, agent: &mut Agent) {
        let input = match Elector::start(agent.welcome(), self.inherited) {
            Ok(elector) => {
                self.killed_all = false;
                self.elector = Some(elector);
                Input::ElectorStarted
            }
            Err(error) => {
                let message = one_line(&error);
                if matches!(error, StartError::Welcome(_)) {
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
        let Some(elector) = &mut self.elector else { return };
        elector.kill();
        self.killed_electors.push(Killed { pid: elector.pid(), failure: elector.failure() });
        self.drain_link_first(agent);
        self.elector = None;
    }

    fn spawn(&mut self, agent: &mut Agent, role: Option<Role>, launch: Option<Launch>) {
        let facts = launch.as_ref().and_then(|launch| launch.facts.as_ref());
        let not_after = launch.as_ref().map(|launch| launch.not_after).filter(|at| *at != Instant::NEVER);
        // A standby needs none, and those of a term that is just over may still stand.
        let fuse = launch.as_ref().and_then(|_| self.spare_fuse());
        // Nothing else is started there, and init is not to keep a mount there busy.
        let home = self.once.then(leave_directory).flatten();
        let spawned = self.programs.workload(role, facts).and_then(|command| {
            command.spawn(&Setup {
                inherited: self.inherited,
                place: self.terminal.map_or(Place::Group, Place::Foreground),
                directory: home.as_ref().map(AsFd::as_fd),
                input: spawn::Input::Inherited,
                link: None,
                oom_score_adjust: self.oom_score_adjust,
                not_after,
                fuse: fuse.as_ref().map(AsFd::as_fd),
            })
        });
        let input = match spawned {
            Ok(spawning) => {
                self.main = Some(spawning.pid);
                if let Some(fuse) = fuse {
                    self.fuses.keep(fuse, spawning.pid);
                }
                let pid = spawning.pid.as_raw();
                self.pending.workload = Some(spawning);
                if launch.is_some() {
                    self.prover.prepare();
                }
                Input::Forked { pid }
            }
            Err(error) => {
                let message = format!("{}: {}", self.programs.name(), one_line(&error));
                Input::NotSpawned(match error {
                    SpawnError::Nul(_) => NotSpawned::Failed { code: exit::CANNOT_EXECUTE, message },
                    SpawnError::Pipe(_) | SpawnError::Null(_) | SpawnError::Fork(_) => NotSpawned::Unavailable { message },
                })
            }
        };
        agent.handle(input, clock::boot());
    }

    fn walk(&mut self, agent: &mut Agent, everything: bool) {
        self.reap(agent);
        // These are init's own children, not reaped yet: killing them needs no /proc, which may be hidden or need a descriptor.
        let mut killed = everything;
        for pid in [self.main, self.hook.as_ref().and_then(Hook::main)].into_iter().flatten() {
            let _ = (kill::send_group(pid, kill::SIGKILL), kill::send(pid, kill::SIGKILL));
            killed = true;
        }
        let scan = self.prover.walk(&self.electors());
        agent.handle(Input::Scanned(Scan { killed: scan.killed || killed, ..scan }), clock::boot());
    }

    /// Every elector that has not been reaped.
    fn electors(&self) -> Vec<Pid> {
        self.killed_electors.iter().map(|killed| killed.pid).chain(self.elector.as_ref().map(Elector::pid)).collect()
    }

    /// Takes in what became of children between fork and execve.
    pub(super) fn take_outcomes(&mut self, agent: &mut Agent) {
        if let Some(outcome) = self.pending.workload.as_mut().and_then(Spawning::outcome) {
            self.pending.workload = None;
            self.workload_outcome(agent, outcome);
            self.carry_out(agent);
        }
    }

    /// Takes in what a child reports of its start, before its end.
    pub(super) fn report_before_end(&mut self, agent: &mut Agent, pid: Pid, exit: Exit) {
        if let Some(mut spawning) = self.pending.workload.take_if(|spawning| spawning.pid == pid) {
            let outcome = spawning.outcome().unwrap_or(Outcome::Done);
            self.workload_outcome(agent, outcome);
        }
        self.report_told(agent, pid, exit);
    }

    fn workload_outcome(&mut self, agent: &mut Agent, outcome: Outcome) {
        let input = match outcome {
            Outcome::Done => {
                self.fuses.started();
                Input::Spawned
            }
            Outcome::Late => Input::NotSpawned(NotSpawned::Late),
            Outcome::Failed(failure) => {
                let message = format!("{}: {failure}", self.programs.name());
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

fn send(target: Target, signal: Signal) -> io::Result<()> {
    match target {
        Target::Main(pid) => kill::send(Pid::from_raw(pid), signal),
        Target::Group(pid) => kill::send_group(Pid::from_raw(pid), signal),
    }
}

/// Changes to the root directory; returns the one it left, none if it stays.
fn leave_directory() -> Option<OwnedFd> {
    let left = nix::fcntl::open(".", OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty()).ok()?;
    std::env::set_current_dir("/").ok()?;
    Some(left)
}

/// No destructors, no buffers, no waiting for other threads: the kernel kills the namespace now.
#[expect(unsafe_code, reason = "exit would run what may wait")]
fn die() -> ! {
    // SAFETY: it takes a number and does not return.
    unsafe { libc::_exit(exit::INTERNAL.into()) }
}
