//! The loop around [`Turn`]: the events that wake init, and the work after each turn.

use std::{os::fd::AsFd, time::Duration};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{
    Prepared, elector::ElectorProcesses, foreground::Foreground, fuses::Fuses, hook_output::HookOutput, log::Log,
    notifications::Notifications, processes::Processes, proof::Prover,
};
use crate::{
    alarm::Alarm,
    clock,
    config::{Config, Runs},
    link::ToElector,
    process::{
        fuse::{Fuse, FuseError},
        signals::Signals,
    },
    supervision::Turn,
    term_page::TermPage,
    time::{EXACT, Instant, wait},
    words::one_line,
};

/// Everything that init holds, apart from the decisions.
pub(super) struct EventLoop {
    pub(super) electors: ElectorProcesses,
    pub(super) processes: Processes,
    pub(super) notifications: Notifications,
    pub(super) foreground: Foreground,
    pub(super) prover: Prover,
    pub(super) fuses: Fuses,
    pub(super) page: Option<TermPage>,
    pub(super) log: Log,
    pub(super) signals: Signals,
    /// The workload is frozen until it leads.
    pub(super) freezes: bool,
    alarm: Alarm,
}

impl EventLoop {
    pub(super) fn new(prepared: Prepared, config: &Config, pid1: bool, log: Log) -> Self {
        let Prepared { inherited, signals, alarm, programs, hook_output, page, notify, terminal } = prepared;
        Self {
            electors: ElectorProcesses::new(inherited),
            processes: Processes::new(programs, hook_output, inherited, config),
            notifications: Notifications::new(notify),
            foreground: Foreground::new(terminal, !config.lease.enabled, config.workload.runs == Runs::Frozen),
            prover: Prover::new(pid1),
            fuses: Fuses::new(fuse_advance(config)),
            page,
            log,
            signals,
            freezes: config.lease.enabled && config.workload.runs == Runs::Frozen,
            alarm,
        }
    }

    /// Runs until init ends; returns the exit code.
    pub(super) fn run(mut self, mut turn: Turn) -> u8 {
        loop {
            turn.run(&mut self);
            if turn.over().is_some() {
                self.foreground.take_back();
            }
            // After the deadlines, because it may continue the workload of a leader (law 15).
            let continued = if turn.agent().is_frozen() { None } else { self.processes.main() };
            if let Some(line) = self.foreground.resume(continued) {
                self.warn(line.into());
            }
            self.electors.flush();
            // Work that may take a while, after the turn.
            self.tend_fuses();
            self.log_prints(&turn);
            if let Some(code) = turn.over() {
                if let Some(line) = turn.agent().describe_end(code) {
                    self.log.info(&line);
                }
                self.foreground.end(code);
                return code;
            }
            self.wait(&turn);
        }
    }

    /// Checks the fuses, and adds some for new process groups.
    fn tend_fuses(&mut self) {
        let (main, electors) = (self.processes.main(), self.electors.pids());
        if let Err(error) = self.fuses.tend(|| self.prover.groups(main, &electors)) {
            self.tell_fuseless(&error);
        }
    }

    pub(super) fn tell_fuseless(&mut self, why: &FuseError) {
        if self.fuses.failure.say() {
            let line = format!("there is no kernel fuse, so only init and the elector enforce the deadline: {}", one_line(why));
            self.warn(line);
        }
    }

    /// Logs through the elector while there is one, so that all lines have one form.
    pub(super) fn warn(&mut self, line: String) {
        let message = ToElector::Warn(line);
        let is_sent = self.electors.send(&message);
        if let ToElector::Warn(line) = message
            && !is_sent
        {
            self.log.warn(&line);
        }
    }

    /// Sleeps until something happens, or until the next turn is due.
    fn wait(&mut self, turn: &Turn) {
        let now = clock::boot();
        let left = |due: Option<Instant>| due.unwrap_or(Instant::NEVER).since(now);
        // A look at the fuses may be late.
        let wait = wait(left(turn.due(now)), EXACT).min(wait(left(self.fuses.due()), Duration::MAX));
        let timeout = self.alarm.set(wait).map_or(PollTimeout::ZERO, |()| PollTimeout::NONE);
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(8);
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        fds.push(readable(self.signals.as_fd()));
        fds.extend(self.electors.poll_fd());
        let notify = if turn.listens() { self.notifications.socket() } else { None };
        let others = [Some(self.alarm.as_fd()), notify.map(AsFd::as_fd), self.processes.starting_fd()];
        let hook_output = self.processes.hook_output.iter().map(HookOutput::reader);
        fds.extend(others.into_iter().flatten().chain(hook_output).map(readable));
        // After an interruption, or a lack of kernel memory, the loop looks again.
        let _ = poll(&mut fds, timeout);
    }
}

/// Returns by how much the fuses are set before H. A kernel that does not answer yet counts as one whose fuses may be late.
fn fuse_advance(config: &Config) -> Duration {
    let is_exact = !config.lease.enabled || Fuse::arm(Instant::NEVER).is_ok_and(|fuse| fuse.is_steady());
    if is_exact { Duration::ZERO } else { config.timing().fuse_advance() }
}
