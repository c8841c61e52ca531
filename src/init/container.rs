//! The real [`Container`]: acts on the processes under init, and on its descriptors.

use std::{
    io::{self, ErrorKind},
    os::fd::AsFd,
};

use nix::errno::Errno;

use super::{event_loop::EventLoop, hook_output::HookOutput, processes::Workload};
use crate::{
    clock,
    config::Signal,
    exit,
    link::{InitialState, ToElector, ToInit},
    process::{
        Pid, kill,
        notify::Mark,
        reap,
        scan::{Scanner, children, is_any_stopped, is_stopped},
        signals::is_ignored,
        spawn::{self, Command, Input as Stdin, ProcessGroup, RoleSignal, Setup, SpawnError, Spawning},
    },
    role::Role,
    supervision::{
        Container, Dead, Ended, Heard, HelperKind, LinkBroken, NotSpawned, Order, Program, Scan, Started, Target, TermStatus,
    },
    time::Instant,
    wire::Broken,
    words::one_line,
};

impl Container for EventLoop {
    fn now(&self) -> Instant {
        clock::boot()
    }

    fn fuse_fired(&mut self) -> bool {
        self.fuses.take_fired()
    }

    fn lives(&mut self) -> bool {
        let electors = self.electors.pids();
        let is_gone = |scanner: &mut Scanner, pid| scanner.look(pid).is_none_or(|process| process.is_gone());
        let (Some(children), Some(scanner)) = (children(Pid::this()), self.prover.scanner()) else { return true };
        !children.into_iter().all(|pid| electors.contains(&pid) || is_gone(scanner, pid))
    }

    fn message(&mut self) -> Option<Result<ToInit, LinkBroken>> {
        match self.electors.receive() {
            Ok(message) => message.map(Ok),
            Err(broken) => {
                if !matches!(broken, Broken::Closed) {
                    // The elector is killed for that, and would read no line.
                    self.log.warn(&one_line(&broken));
                }
                Some(Err(LinkBroken))
            }
        }
    }

    fn signal(&mut self) -> Option<i32> {
        // No key would reach a frozen workload.
        let takes_keys = |workload: &&Workload| !self.freezes || workload.role == Some(Role::Leader);
        let main = self.processes.workload.as_ref().filter(takes_keys).map(|workload| workload.pid);
        // A failing signalfd counts as empty: SIGCHLD is not needed to reap.
        while let Ok(Some(received)) = self.signals.receive() {
            match self.foreground.filter(received, main) {
                Ok(None) => {}
                // Started by nohup, init goes on waiting without its terminal.
                Ok(Some(libc::SIGHUP)) if self.processes.main().is_none() && is_ignored(libc::SIGHUP) => {}
                Ok(signal) => return signal,
                Err(line) => self.warn(line.into()),
            }
        }
        None
    }

    fn dead(&mut self) -> Dead {
        match reap::peek() {
            Ok(child) => child.map_or(Dead::Nobody, |pid| Dead::Process(pid.as_raw())),
            Err(Errno::ECHILD) => Dead::Childless,
            Err(_) => Dead::Nobody,
        }
    }

    fn reap(&mut self, pid: i32) -> Option<Ended> {
        let pid = Pid::from_raw(pid);
        let exit = reap::take(pid)?;
        if self.processes.main() == Some(pid) {
            self.foreground.ended(pid, exit);
        }
        let started = self.electors.reaped(pid).or_else(|| self.processes.reaped(pid));
        if self.processes.teller.take_if(|teller| *teller == pid).is_some() && started == Some(Ok(())) {
            self.fuses.started();
        }
        Some(Ended { exit, started })
    }

    fn started(&mut self) -> Option<Started> {
        let started = self.processes.started()?;
        if started.is_ok() {
            self.fuses.started();
        }
        Some(started)
    }

    fn is_group_gone(&mut self, group: i32) -> bool {
        kill::is_group_gone(Pid::from_raw(group))
    }

    fn heard(&mut self) -> Option<Heard> {
        let main = self.processes.main()?;
        let (heard, lines) = self.notifications.next(main, self.prover.scanner().as_deref())?;
        lines.into_iter().for_each(|line| self.warn(line));
        Some(heard)
    }

    fn start_elector(&mut self, initial: InitialState) -> Result<i32, NotSpawned> {
        self.electors.start(initial).map(Pid::as_raw)
    }

    fn kill_elector(&mut self) {
        self.electors.kill();
    }

    fn close_link(&mut self) {
        self.electors.close();
    }

    fn send(&mut self, message: ToElector) {
        // Reading the link reports the error.
        self.electors.send(&message);
    }

    fn fork(&mut self, program: Program) -> Result<i32, NotSpawned> {
        let Program { helper, role, fused, .. } = program;
        let spawning = self.processes.programs.command(&program).and_then(|command| self.spawn(&command, &program));
        let spawning = spawning.map_err(|error| match helper {
            None => unspawned(&error, &format!("{}: ", self.processes.programs.name(role))),
            Some(_) => unspawned(&error, ""),
        })?;
        let pid = spawning.pid;
        if let Some(kind) = helper {
            self.processes.others.push(spawning);
            if let HelperKind::Hook(_) = kind {
                self.fuses.started();
            }
        } else {
            self.notifications.forget();
            self.processes.workload = Some(Workload { pid, role, starting: Some(spawning) });
            if fused {
                self.prover.prepare();
            }
        }
        Ok(pid.as_raw())
    }

    fn tell(&mut self, order: Order) -> Result<Option<i32>, String> {
        let child = self.tell_role(order)?;
        self.processes.teller = child.as_ref().map(|child| child.pid);
        self.processes.others.extend(child);
        Ok(self.processes.teller.map(Pid::as_raw))
    }

    fn kill(&mut self, target: Target, signal: Signal) -> bool {
        let target = self.foreground.sends(target, signal);
        !matches!(send(target, signal), Err(error) if error.kind() == ErrorKind::PermissionDenied)
    }

    fn wake(&mut self, target: Target) {
        let is_stopped = match target {
            Target::Main(pid) => is_stopped(Pid::from_raw(pid)),
            Target::Group(pid) => is_any_stopped(Pid::from_raw(pid)),
        };
        if is_stopped {
            // An error means that it is gone.
            let _ = send(target, Signal::CONT);
        }
    }

    fn frozen(&mut self, stop: bool) -> bool {
        self.stopped(stop).is_some()
    }

    fn scan(&mut self, kill: bool) -> Scan {
        self.prover.scan(&self.electors.pids(), kill)
    }

    fn kill_all(&mut self) {
        // ESRCH: nobody is left. There is no other failure for PID 1.
        let _ = kill::kill_everything();
    }

    fn follow_hard(&mut self, hard: Option<Instant>) {
        let followed = match self.fuses.follow(hard) {
            Ok(false) => return,
            Ok(true) => true,
            Err(error) => {
                self.tell_fuseless(&error);
                false
            }
        };
        let (Some(main), Some(_)) = (self.processes.main(), hard) else { return };
        let electors = self.electors.pids();
        let covered = self.fuses.cover(main).and_then(|()| self.fuses.search(|| self.prover.groups(Some(main), &electors)));
        match covered {
            Ok(true) if followed && self.fuses.failure.forget() => self.warn("the kernel fuse works again".into()),
            Ok(_) => {}
            Err(error) => self.tell_fuseless(&error),
        }
    }

    fn publish(&mut self, status: TermStatus) {
        if let Some(page) = &mut self.page {
            page.say(status, |at| clock::on_kernel_clock(at, clock::boottime()));
        }
    }

    fn say(&mut self, line: String) {
        self.warn(line);
    }

    fn last_words(&mut self, words: &str, code: u8) {
        self.log.termination_message(words, code);
    }

    #[expect(unsafe_code, reason = "exit would run what may wait")]
    fn die(&mut self) {
        // No destructors, no buffers, no waiting for other threads: the kernel kills the namespace now.
        // SAFETY: it takes a number and does not return.
        unsafe { libc::_exit(exit::INTERNAL.into()) }
    }
}

impl EventLoop {
    /// Forks the workload, a hook or a probe, with a fuse of its own if it may lead.
    fn spawn(&mut self, command: &Command, program: &Program) -> Result<Spawning, SpawnError> {
        let Program { helper, not_after, fused, .. } = *program;
        let fuse = if fused { self.fuses.spare() } else { Ok(None) };
        let fuse = fuse.map_err(|error| self.tell_fuseless(&error)).ok().flatten();
        let (group, input) = match helper {
            // No key would reach a frozen workload. It gets the terminal when it leads.
            None if self.freezes && !fused => (ProcessGroup::Own, Stdin::Inherited),
            None => (self.foreground.group(), Stdin::Inherited),
            Some(_) => (ProcessGroup::Own, Stdin::Null),
        };
        let is_its = |output: &&HookOutput| matches!(helper, Some(HelperKind::Hook(hook)) if output.is_of(hook));
        let hook_output = self.processes.hook_output.iter().find(is_its);
        let spawning = command.spawn(&Setup {
            inherited: self.processes.inherited,
            group,
            input,
            output: hook_output.map(HookOutput::writer),
            link: None,
            oom_score_adjust: self.processes.oom_score_adjust,
            not_after: Some(not_after).filter(|at| *at != Instant::NEVER),
            fuse: fuse.as_ref().map(AsFd::as_fd),
        })?;
        if let Some(fuse) = fuse {
            self.fuses.keep(fuse, spawning.pid);
        }
        Ok(spawning)
    }

    /// Tells the workload its role, by signal or NOTIFY_SOCKET (law 8, 15). Returns the child that does so, if one is needed. An
    /// error is the reason why it was not told.
    fn tell_role(&mut self, order: Order) -> Result<Option<Spawning>, String> {
        match order {
            Order::Mark(number) => {
                let marked = self.notifications.mark(number).map_or(Ok(()), Mark::set);
                marked.map(|()| None).map_err(|error| format!("NOTIFY_SOCKET cannot be marked: {error}"))
            }
            Order::Signal { pid, role, signal, not_after, mark, until_taken } => {
                let pid = Pid::from_raw(pid);
                let key = match role {
                    Role::Leader => "signals.onLead",
                    Role::Standby => "signals.onFollow",
                };
                // Without a handler the signal would end the main process, and the rest would run on as a leader's.
                if role == Role::Standby && !spawn::handles(pid, signal) {
                    return Err(format!("the workload does not handle {key} ({}) and is killed", signal.name()));
                }
                if not_after.is_none() && !until_taken {
                    let sent = kill::send(pid, signal);
                    return sent.map(|()| None).map_err(|error| format!("the workload cannot be told {key}: {error}"));
                }
                // A notification proves that the signal was received. Without one, the child waits for that.
                let mark = mark.and_then(|number| self.notifications.mark(number));
                let child = RoleSignal { pid, signal, not_after, mark, until_taken }.spawn();
                child.map(Some).map_err(|error| format!("the workload cannot be told {key}: {}", one_line(&error)))
            }
            Order::Resume { not_after } => {
                let pids = self.stopped(false).ok_or("the workload is not frozen any more, and does not lead")?;
                self.foreground.hand_over(self.processes.main());
                if let Some(workload) = &mut self.processes.workload {
                    workload.role = Some(Role::Leader);
                }
                let child = spawn::resume(&pids, not_after);
                child.map(Some).map_err(|error| format!("the workload cannot be continued: {}", one_line(&error)))
            }
        }
    }

    /// Returns the processes of a frozen workload, if they are stopped and the main one was never continued.
    pub(super) fn stopped(&mut self, stop: bool) -> Option<Vec<Pid>> {
        let main = self.processes.main()?;
        let stopped = self.prover.stopped(&self.electors.pids(), stop)?;
        (!reap::is_continued(main) && stopped.contains(&main)).then_some(stopped)
    }
}

fn unspawned(error: &SpawnError, name: &str) -> NotSpawned {
    let message = format!("{name}{}", one_line(error));
    match error {
        SpawnError::Nul(_) => NotSpawned::Failed { code: exit::CANNOT_EXECUTE, message },
        SpawnError::Unavailable(..) => NotSpawned::Unavailable { message },
    }
}

fn send(target: Target, signal: Signal) -> io::Result<()> {
    match target {
        Target::Main(pid) => kill::send(Pid::from_raw(pid), signal),
        Target::Group(pid) => kill::send_group(Pid::from_raw(pid), signal),
    }
}
