//! The loop: what wakes init, and in which order it acts.

use std::{os::fd::AsFd, time::Duration};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{
    Prepared,
    actions::Pending,
    elector::{Elector, Killed},
    fuses::Fuses,
    hooks::Hook,
    log::Log,
    programs::Programs,
    proof::Prover,
};
use crate::{
    alarm::Alarm,
    clock,
    config::{Acknowledge, OnExit},
    link::{Exit, ToElector},
    process::{
        Pid, kill,
        notify::NotifySocket,
        reap,
        signals::{Inherited, Received, Signals},
        terminal::Terminal,
    },
    supervision::{Agent, Input, RoleInput, Settings},
    time::Instant,
    wire::Broken,
};

mod foreground;

/// How much is taken in from one source before the deadlines are checked: no flood of messages, signals or notifications keeps
/// init from them.
const A_TURN: usize = 256;
/// The same of dead orphans. They are more, because each turn of a stop looks through /proc, where those not reaped still are.
const REAPED_A_TURN: usize = 2048;
/// How long NOTIFY_SOCKET is read in one turn: finding the sender takes longer the deeper its process is in the tree.
const LISTENING: Duration = Duration::from_millis(20);

/// Everything that init holds.
pub(super) struct Drive {
    pub(super) inherited: Inherited,
    pub(super) programs: Programs,
    pub(super) oom_score_adjust: i16,
    pub(super) notify: Option<NotifySocket>,
    /// That a demotion's signal was taken is its acknowledgement.
    pub(super) trusts_signals: bool,
    pub(super) terminal: Option<Terminal>,
    pub(super) prover: Prover,
    pub(super) fuses: Fuses,
    pub(super) elector: Option<Elector>,
    pub(super) killed_electors: Vec<Killed>,
    /// What was last said of an elector's end, or of one that could not begin; empty once one has spoken.
    complaint: String,
    /// The workload's main process.
    pub(super) main: Option<Pid>,
    pub(super) pending: Pending,
    /// Until it has ended as a whole.
    pub(super) hook: Option<Hook>,
    pub(super) over: Option<u8>,
    pub(super) log: Log,
    signals: Signals,
    /// There may be more to reap, and no further SIGCHLD about it.
    more_to_reap: bool,
    /// A child changed its state; it may have been suspended.
    changed: bool,
    /// Without a Lease nobody has to guard the workload: init is suspended with it.
    suspends: bool,
    /// The workload is started once.
    pub(super) once: bool,
    /// Init got this SIGTSTP, SIGTTIN or SIGTTOU and passed it on.
    told_to_stop: Option<Received>,
    /// The workload may not be signalled, and that was logged.
    pub(super) refused: bool,
    /// SIGKILL went to everything, the elector included.
    pub(super) killed_all: bool,
    /// A notification of this incarnation was dropped and that was logged: a flood of them is one line.
    rejected: bool,
    alarm: Option<Alarm>,
    armed: Instant,
    /// ECHILD is proof enough.
    childless_is_proof: bool,
}

impl Drive {
    pub(super) fn new(prepared: Prepared, settings: &Settings, log: Log) -> Self {
        let Prepared { inherited, signals, programs, notify, terminal } = prepared;
        let guards = settings.config.lease.enabled;
        Self {
            inherited,
            programs,
            oom_score_adjust: settings.config.workload.oom_score_adjust,
            notify,
            trusts_signals: settings.config.workload.acknowledge == Some(Acknowledge::None),
            terminal,
            prover: Prover::new(settings.pid1),
            fuses: Fuses::new(),
            elector: None,
            killed_electors: Vec::new(),
            complaint: String::new(),
            main: None,
            pending: Pending::default(),
            hook: None,
            over: None,
            log,
            signals,
            more_to_reap: false,
            changed: false,
            suspends: !guards,
            once: !guards && settings.config.workload.on_exit != OnExit::Restart,
            told_to_stop: None,
            refused: false,
            killed_all: false,
            rejected: false,
            alarm: None,
            armed: Instant::NEVER,
            childless_is_proof: !guards && !settings.pid1,
        }
    }

    /// Runs until it is over; returns the exit code.
    pub(super) fn run(mut self, mut agent: Agent) -> u8 {
        loop {
            self.turn(&mut agent);
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
        self.take_outcomes(agent);
        self.take_notices(agent);
        // Read before the link is drained, so that no deadline counts that passes only after that.
        let now = clock::boot();
        self.drain_link(agent);
        if agent.poll_timeout().is_some_and(|at| at <= now) {
            agent.handle_timeout(now);
            self.carry_out(agent);
        }
        self.resume_suspended();
        if let Some(elector) = &mut self.elector {
            elector.flush();
        }
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
            match received.signal.0 {
                libc::SIGCHLD => self.changed = true,
                // They mean init's own use of the terminal; from people they mean what the workload takes them for.
                libc::SIGTTIN | libc::SIGTTOU if received.from_kernel => {}
                // Ctrl-Z in a terminal that was not handed over.
                libc::SIGTSTP if received.from_kernel && !self.suspends => self.warn(foreground::UNSUSPENDED.into()),
                signal => {
                    match signal {
                        libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => {
                            self.told_to_stop = Some(received).filter(|_| self.suspends);
                        }
                        libc::SIGCONT => {
                            self.told_to_stop = None;
                            self.hand_terminal_over();
                        }
                        _ => {}
                    }
                    self.feed(agent, Input::Signal(signal));
                }
            }
        }
        self.reap(agent);
        self.carry_out(agent);
        if self.childless_is_proof && self.main.is_none() && reap::is_childless() {
            self.feed(agent, Input::Childless);
        }
    }

    /// Reaps dead children and tells the agent; its actions are carried out here only after the elector ended.
    pub(super) fn reap(&mut self, agent: &mut Agent) {
        self.more_to_reap = true;
        for _ in 0..REAPED_A_TURN {
            let hook = self.hook.as_ref().and_then(Hook::main);
            let before = |pid| {
                if hook == Some(pid) {
                    // Ignored: others of its group may not be killed, and then the hook does not end.
                    let _ = kill::send_group(pid, kill::SIGKILL);
                }
            };
            let Some((pid, exit)) = reap::next(before) else {
                self.more_to_reap = false;
                break;
            };
            self.reaped(agent, pid, exit);
        }
        self.end_hook(agent);
    }

    fn reaped(&mut self, agent: &mut Agent, pid: Pid, exit: Exit) {
        if self.elector.as_ref().is_some_and(|elector| elector.pid() == pid) {
            self.drain_link_first(agent);
            let failure = self.elector.take().and_then(|mut elector| elector.failure());
            self.elector_ended(agent, failure.unwrap_or_else(|| exit.to_string()));
            return;
        }
        if let Some(index) = self.killed_electors.iter().position(|killed| killed.pid == pid) {
            let Killed { failure, .. } = self.killed_electors.swap_remove(index);
            // One that was stuck in the kernel may end long after the next one began.
            if self.elector.is_none() {
                self.elector_ended(agent, failure.unwrap_or_else(|| exit.to_string()));
            }
            return;
        }
        if self.hook_main_ended(pid, exit) {
            return;
        }
        self.report_before_end(agent, pid, exit);
        if self.main == Some(pid) {
            self.heed_fuses(agent);
            self.main = None;
            self.rejected = false;
            self.take_terminal_back();
        }
        agent.handle(Input::Reaped { pid: pid.as_raw(), exit }, clock::boot());
    }

    fn elector_ended(&mut self, agent: &mut Agent, how: String) {
        agent.handle(Input::ElectorEnded, clock::boot());
        self.carry_out(agent);
        let how = if std::mem::take(&mut self.killed_all) { "killed with everything else".into() } else { how };
        self.complain(format!("the elector ended: {how}"));
    }

    /// Logs why there is no elector, once as long as none says anything: the next one is tried every second.
    pub(super) fn complain(&mut self, line: String) {
        if line != self.complaint {
            self.log.warn(&line);
            self.complaint = line;
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
        let Some(elector) = &mut self.elector else { return false };
        match elector.receive() {
            Ok(Some(message)) => {
                self.complaint.clear();
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

    fn take_notices(&mut self, agent: &mut Agent) {
        let enough = clock::boot() + LISTENING;
        for _ in 0..A_TURN {
            let (Some(socket), Some(main)) = (listening(&self.notify, &self.pending), self.main) else { return };
            if clock::boot() >= enough {
                return;
            }
            match socket.receive(main, self.prover.scanner().as_deref()) {
                Ok(Some(Ok(None))) => {}
                Ok(Some(Ok(Some(role)))) => self.feed(agent, Input::Role(RoleInput::Notified(role))),
                Ok(Some(Err(rejected))) => {
                    if !std::mem::replace(&mut self.rejected, true) {
                        self.warn(rejected.to_string());
                    }
                }
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Logs through the elector while there is one, so that all lines have one form.
    pub(super) fn warn(&mut self, line: String) {
        let message = ToElector::Warn(line);
        let is_sent = self.elector.as_mut().is_some_and(|elector| elector.send(&message));
        if let ToElector::Warn(line) = message
            && !is_sent
        {
            self.log.warn(&line);
        }
    }

    /// Sleeps until something happens, or `until` at the latest.
    fn wait(&mut self, until: Option<Instant>) {
        let look = self.hook.as_ref().and_then(Hook::look_again);
        let until = [until, look].into_iter().flatten().min().unwrap_or(Instant::NEVER);
        let timeout = self.arm(until);
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(8);
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        fds.push(readable(self.signals.as_fd()));
        if let Some(elector) = &self.elector {
            let room = if elector.is_clogged() { PollFlags::POLLOUT } else { PollFlags::empty() };
            fds.push(PollFd::new(elector.as_fd(), PollFlags::POLLIN | room));
        }
        let notify = listening(&self.notify, &self.pending).filter(|_| self.main.is_some());
        let others = [self.alarm.as_ref().map(AsFd::as_fd), notify.map(AsFd::as_fd), self.pending.fd()];
        fds.extend(others.into_iter().flatten().map(readable));
        // An interruption, or a lack of kernel memory: look again.
        let _ = poll(&mut fds, timeout);
    }

    /// Sets the timer; returns how long poll may sleep beside it.
    fn arm(&mut self, until: Instant) -> PollTimeout {
        if until == Instant::NEVER && self.alarm.is_none() && !self.more_to_reap {
            return PollTimeout::NONE;
        }
        if self.more_to_reap || until <= clock::boot() {
            return PollTimeout::ZERO;
        }
        if self.alarm.is_none() {
            self.alarm = Alarm::nonblocking().ok();
        }
        let Some(alarm) = &self.alarm else { return coarse(until) };
        if self.armed <= clock::boot() {
            // An expiry that was not read would end every poll at once.
            drop(alarm.wait());
            self.armed = Instant::NEVER;
        }
        if self.armed != until {
            if alarm.set(until).is_err() {
                return coarse(until);
            }
            self.armed = until;
        }
        PollTimeout::NONE
    }
}

/// The socket to read, unless a promotion is under way: what is said before its signal is for that child to discard.
fn listening<'a>(notify: &'a Option<NotifySocket>, pending: &Pending) -> Option<&'a NotifySocket> {
    notify.as_ref().filter(|_| !pending.promotes())
}

/// Without a timer: poll's own timeout, which does not run during a suspend.
fn coarse(until: Instant) -> PollTimeout {
    let left = until.since(clock::boot()).as_millis().saturating_add(1);
    PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
}
