//! The loop: what wakes init, and in which order it acts.

use std::{os::fd::AsFd, time::Duration};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{
    Prepared, elector::ElectorProcesses, foreground::Foreground, fuses::Fuses, log::Log, prints::Prints, processes::Processes,
    proof::Prover, roles::RoleMessenger, timer::Timer,
};
use crate::{
    clock,
    config::Acknowledge,
    link::{Exit, ToElector},
    notification::Notification,
    process::{Pid, kill, notify::Heard, reap, signals::Signals},
    supervision::{Agent, AgentConfig, Input, RoleInput},
    term_page::TermPage,
    time::Instant,
    wire::Broken,
};

/// How much is taken in from one source before the deadlines are checked, so that no flood keeps init from them: so many messages
/// and signals, and as many dead orphans and notifications as there is time for.
const A_TURN: usize = 256;
const TIME_IN_A_TURN: Duration = Duration::from_millis(20);

/// Everything that init holds.
pub(super) struct EventLoop {
    pub(super) electors: ElectorProcesses,
    pub(super) processes: Processes,
    pub(super) roles: RoleMessenger,
    pub(super) foreground: Foreground,
    pub(super) prover: Prover,
    pub(super) fuses: Fuses,
    pub(super) page: Option<TermPage>,
    pub(super) log: Log,
    pub(super) over: Option<u8>,
    signals: Signals,
    timer: Timer,
    /// There may be more to reap, and no further SIGCHLD about it.
    more_to_reap: bool,
    /// ECHILD is proof enough.
    childless_is_proof: bool,
}

impl EventLoop {
    pub(super) fn new(prepared: Prepared, config: &AgentConfig, log: Log) -> Self {
        let Prepared { inherited, signals, timer, programs, prints, page, notify, terminal } = prepared;
        let guards = config.config.lease.enabled;
        Self {
            electors: ElectorProcesses::new(inherited),
            processes: Processes::new(programs, prints, inherited, &config.config),
            roles: RoleMessenger::new(notify, config.config.workload.acknowledge == Some(Acknowledge::Notify)),
            foreground: Foreground::new(terminal, !guards),
            prover: Prover::new(config.pid1),
            fuses: Fuses::new(),
            page,
            log,
            over: None,
            signals,
            timer,
            more_to_reap: false,
            childless_is_proof: !guards && !config.pid1,
        }
    }

    /// Runs until it is over; returns the exit code.
    pub(super) fn run(mut self, mut agent: Agent) -> u8 {
        loop {
            self.turn(&mut agent);
            self.log_prints();
            if let Some(code) = self.over {
                return code;
            }
            self.wait([agent.poll_timeout(), self.fuses.due()].into_iter().flatten().min());
        }
    }

    /// One turn. The link is drained last before the deadlines are checked (law 9), and first, because an end that init finds is
    /// judged by what the elector said before it. Only a fuse that has fired comes before: nothing that came too late undoes it.
    fn turn(&mut self, agent: &mut Agent) {
        self.heed_fuses(agent);
        self.drain_link(agent);
        if self.over.is_some() {
            return;
        }
        self.take_signals(agent);
        self.take_outcome(agent);
        self.take_notifications(agent);
        // Read before the link is drained, so that no deadline counts that passes only after that.
        let now = clock::boot();
        self.drain_link(agent);
        if agent.poll_timeout().is_some_and(|at| at <= now) {
            agent.handle_timeout(now);
            self.carry_out(agent);
        }
        // After the deadlines, because it may continue the workload of a leader (law 15).
        let main = self.processes.main.filter(|_| !agent.is_frozen());
        if let Some(line) = self.foreground.resume(main) {
            self.warn(line.into());
        }
        self.electors.flush();
        // Last: nothing of this turn waits for it.
        self.tend_fuses();
    }

    /// Hands something to the agent and carries out its actions.
    fn feed(&mut self, agent: &mut Agent, input: Input) {
        agent.handle(input, clock::boot());
        self.carry_out(agent);
    }

    fn heed_fuses(&mut self, agent: &mut Agent) {
        if self.fuses.take_fired() {
            agent.handle(Input::FuseFired, clock::boot());
        }
    }

    fn take_signals(&mut self, agent: &mut Agent) {
        for _ in 0..A_TURN {
            // A failing signalfd counts as empty: SIGCHLD is not needed to reap.
            let Ok(Some(received)) = self.signals.receive() else { break };
            if received.signal.0 == libc::SIGCHLD && agent.is_frozen() {
                self.feed(agent, Input::Role(RoleInput::Stirred));
            }
            match self.foreground.filter(received, self.processes.main) {
                Ok(Some(signal)) => self.feed(agent, Input::Signal(signal)),
                Ok(None) => {}
                Err(line) => self.warn(line.into()),
            }
        }
        self.reap(agent);
        self.carry_out(agent);
        if self.childless_is_proof && self.processes.main.is_none() && reap::is_childless() {
            self.feed(agent, Input::Childless);
        }
    }

    /// Reaps dead children and tells the agent; its actions are carried out here only after the elector ended.
    pub(super) fn reap(&mut self, agent: &mut Agent) {
        self.more_to_reap = !ends_in_time(clock::boot, || self.reap_one(agent));
        self.end_helpers(agent);
    }

    /// Whether there was one.
    fn reap_one(&mut self, agent: &mut Agent) -> bool {
        let before = |pid| {
            if self.processes.helper_mains().any(|helper| helper == pid) {
                // Ignored: others of its group may not be killed, and then the hook or probe does not end.
                let _ = kill::send_group(pid, kill::SIGKILL);
            }
        };
        let Some((pid, exit)) = reap::next(before) else { return false };
        if self.electors.is_current(pid) {
            self.drain_link_first(agent);
        }
        if let Some(how) = self.electors.reaped(pid, exit) {
            // Another one runs if it was stuck in the kernel and ended long after it was replaced.
            if !self.electors.is_running() {
                self.feed(agent, Input::ElectorEnded);
                self.complain(format!("the elector ended: {how}"));
            }
        } else if !self.helper_main_ended(pid, exit) {
            self.reaped(agent, pid, exit);
        }
        true
    }

    fn reaped(&mut self, agent: &mut Agent, pid: Pid, exit: Exit) {
        self.report_before_end(agent, pid);
        self.report_told(agent, pid, exit);
        if self.processes.main == Some(pid) {
            self.heed_fuses(agent);
            self.processes.main = None;
            self.roles.forget();
            self.foreground.take_back();
        }
        agent.handle(Input::Reaped { pid: pid.as_raw(), exit }, clock::boot());
    }

    /// Logs why there is no elector, once as long as none says anything: the next one is tried every second.
    pub(super) fn complain(&mut self, line: String) {
        if self.electors.is_news(&line) {
            self.log.warn(&line);
        }
    }

    /// Takes in what waits on the link, and carries out the agent's actions in between. No deadline is acted on here (law 9).
    fn drain_link(&mut self, agent: &mut Agent) {
        for _ in 0..A_TURN {
            let goes_on = self.take_message(agent);
            self.carry_out(agent);
            if !goes_on {
                return;
            }
        }
    }

    /// The same for a caller that acts once it is drained.
    pub(super) fn drain_link_first(&mut self, agent: &mut Agent) {
        for _ in 0..A_TURN {
            if !self.take_message(agent) {
                return;
            }
        }
    }

    /// Takes in one message; returns whether there may be another.
    fn take_message(&mut self, agent: &mut Agent) -> bool {
        match self.electors.receive() {
            Ok(Some(message)) => {
                agent.handle(Input::Told(message), clock::boot());
                true
            }
            Ok(None) => false,
            Err(broken) => {
                if !matches!(broken, Broken::Closed) {
                    self.warn(broken.to_string());
                }
                agent.handle(Input::LinkBroken, clock::boot());
                false
            }
        }
    }

    fn take_notifications(&mut self, agent: &mut Agent) {
        // Finding the sender takes longer the deeper its process is in the tree.
        ends_in_time(clock::boot, || self.take_notification(agent));
    }

    /// Whether there may be another.
    fn take_notification(&mut self, agent: &mut Agent) -> bool {
        let (Some(socket), Some(main)) = (self.roles.listening(), self.processes.main) else { return false };
        match socket.receive(main, self.prover.scanner().as_deref()) {
            Ok(Some(Ok(Heard::Said(said)))) => {
                for said in said {
                    if let Notification::Refused(why) = said
                        && self.roles.is_first_rejection(why)
                    {
                        self.warn(why.into());
                    }
                    self.roles.heard(said).into_iter().for_each(|input| self.feed(agent, input));
                }
            }
            Ok(Some(Ok(Heard::Marked(number)))) => self.roles.marked(number),
            Ok(Some(Err(rejected))) if self.roles.is_first_rejection(rejected.kind()) => self.warn(rejected.to_string()),
            Ok(Some(Err(_))) => {}
            Ok(None) | Err(_) => return false,
        }
        true
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

    /// Sleeps until something happens, or `until` at the latest.
    fn wait(&mut self, until: Option<Instant>) {
        let until = [until, self.processes.look_again()].into_iter().flatten().min().unwrap_or(Instant::NEVER);
        let timeout = if self.more_to_reap { PollTimeout::ZERO } else { self.timer.arm(until) };
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(8);
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        fds.push(readable(self.signals.as_fd()));
        fds.extend(self.electors.poll_fd());
        let notify = self.roles.listening().filter(|_| self.processes.main.is_some());
        let others = [Some(self.timer.as_fd()), notify.map(AsFd::as_fd), self.processes.spawning_fd()];
        let prints = self.processes.prints.iter().map(Prints::reader);
        fds.extend(others.into_iter().flatten().chain(prints).map(readable));
        // An interruption, or a lack of kernel memory: look again.
        let _ = poll(&mut fds, timeout);
    }
}

/// Takes step after step until one finds nothing to do, or the time in a turn is over; whether nothing is left.
fn ends_in_time(now: impl Fn() -> Instant, mut step: impl FnMut() -> bool) -> bool {
    let enough = now() + TIME_IN_A_TURN;
    while step() {
        if now() >= enough {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// How many steps of this length are taken of so many, and whether that was all.
    fn taken(length: Duration, steps: u32) -> (u32, bool) {
        let (now, taken) = (Cell::new(Instant::BOOT), Cell::new(0));
        let step = || {
            now.set(now.get() + length);
            taken.set(taken.get() + 1);
            taken.get() < steps
        };
        let all = ends_in_time(|| now.get(), step);
        (taken.get(), all)
    }

    #[test]
    fn the_deadlines_wait_for_no_number_of_dead_orphans_however_long_each_takes_to_reap() {
        assert_eq!(taken(Duration::from_micros(1), 10_000), (10_000, true));
        assert_eq!(taken(Duration::from_millis(1), 10_000), (20, false));
        assert_eq!(taken(Duration::from_secs(1), 10_000), (1, false));
    }
}
