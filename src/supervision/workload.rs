//! One workload: what is wanted of it against what it is.
//!
//! Owns the main process, its restarts and its way down. Knows nothing of Leases, links and electors: the agent says what is
//! wanted, and until when something may be started; the workload reports what became of it.

use std::{collections::VecDeque, time::Duration};

use crate::{
    config::{self, KillMode, OnExit, Runs, Signal},
    link::{Exit, Reason, Stop},
    time::Instant,
};

use super::{
    Action, Launch, NotSpawned, Role, Scan, Target,
    ladder::{Ladder, Step},
    restarts::Restarts,
    roles::{Manner, Outcome, Roles},
};

/// What the settings say of it.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    /// Init is PID 1.
    pub(crate) pid1: bool,
    /// Without a Lease: it has no role.
    pub(crate) plain: bool,
    /// The terminal was handed over: its keys reach the workload, not init.
    pub(crate) terminal: bool,
    pub(crate) config: config::Workload,
    pub(crate) rewrite: config::Rewrite,
    /// How a running workload is told its role; none unless it runs always.
    pub(crate) manner: Option<Manner>,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    /// It leads: started as a leader, or promoted and acknowledged.
    Leads { pid: i32 },
    /// It ended by itself; `again` if it is started again without being asked.
    Ended { exit: Exit, again: bool },
    /// It was ended from the terminal.
    Interrupted,
    /// It cannot be executed.
    SpawnFailed { code: u8, message: String },
    /// It was not promoted: its hook failed, it could not be told, or did not acknowledge it.
    NotPromoted(Reason),
    /// Nothing of a leader runs: proved dead, or demoted by its own word.
    Yielded(Stop),
    /// These do not die.
    Unproved(Vec<i32>),
}

/// The machine.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    policy: Policy,
    wanted: Wanted,
    actual: Actual,
    /// Since the last proof something of a leader was started.
    leads: bool,
    restarts: Restarts,
    /// The stop under way, or the last one.
    account: Account,
    actions: VecDeque<Action>,
    happened: VecDeque<Happened>,
}

/// What is reported of a stop.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    began: Option<Instant>,
    killed: Option<Instant>,
    end: Option<(Instant, Exit)>,
}

impl Account {
    fn proved(self, proved: Instant) -> Stop {
        let (exited, exit) = self.end.unzip();
        Stop { began: self.began, killed: self.killed, exited, exit, proved }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    /// Nothing runs.
    Down,
    /// Nothing new is started.
    Hold,
    /// A standby runs.
    Standby,
    /// A leader runs.
    Leader(Launch),
}

#[derive(Clone, Debug)]
enum Actual {
    /// Nothing was started since the last proof.
    Stopped,
    /// To be started again.
    Waiting { until: Instant },
    /// Asked for, with the launch of a leader; `pid` once it forked, `kill_at` if it is to be stopped as soon as it has.
    Starting { launch: Option<Launch>, pid: Option<i32>, kill_at: Option<Instant> },
    /// The main process runs.
    Running { pid: i32, since: Instant, roles: Roles, yield_by: Option<Instant> },
    /// On its way down.
    Ending { main: Option<i32>, ladder: Ladder, again_at: Option<Instant> },
}

impl Workload {
    pub(crate) fn new(policy: Policy) -> Self {
        Self {
            restarts: Restarts::new(policy.config.restart.clone()),
            policy,
            wanted: Wanted::Hold,
            actual: Actual::Stopped,
            leads: false,
            account: Account::default(),
            actions: VecDeque::new(),
            happened: VecDeque::new(),
        }
    }

    /// Whether anything of a leader may run: S and H are armed for this (law 3).
    pub(crate) fn leads(&self) -> bool {
        self.leads
    }

    /// Whether nothing runs, and that is proved.
    pub(crate) fn is_down(&self) -> bool {
        matches!(self.actual, Actual::Stopped | Actual::Waiting { .. })
    }

    /// Whether it is on its way down.
    pub(crate) fn is_ending(&self) -> bool {
        matches!(self.actual, Actual::Ending { .. })
    }

    /// Whether only what its main process left behind is still to be killed.
    pub(crate) fn is_being_swept(&self) -> bool {
        matches!(&self.actual, Actual::Ending { main: None, ladder, .. } if !ladder.asks())
    }

    /// Whether a main process runs that signals can be forwarded to.
    pub(crate) fn is_running(&self) -> bool {
        self.main().is_some()
    }

    /// Whether kill(-1) is being repeated.
    pub(crate) fn kills_everything(&self) -> bool {
        matches!(&self.actual, Actual::Ending { ladder, .. } if ladder.kills_everything())
    }

    /// Until when a leader may be started, if one is wanted.
    pub(crate) fn leads_until(&self) -> Option<Instant> {
        match &self.wanted {
            Wanted::Leader(launch) => Some(launch.not_after),
            Wanted::Down | Wanted::Hold | Wanted::Standby => None,
        }
    }

    /// How the main process last ended; none if none ran since the term began.
    pub(crate) fn exit(&self) -> Option<Exit> {
        self.account.end.map(|(_, exit)| exit)
    }

    /// Forgets the restarts and the stop of the last term.
    pub(crate) fn begin_term(&mut self) {
        self.restarts.reset();
        self.forget_stop();
    }

    /// What is reported of a stop begins anew.
    pub(crate) fn forget_stop(&mut self) {
        self.account = Account::default();
    }

    /// A leader is wanted. Repeated with each extension: nothing is started at or after `launch.not_after` (law 15).
    pub(crate) fn lead(&mut self, launch: Launch, now: Instant) {
        self.wanted = Wanted::Leader(launch);
        self.advance(now);
    }

    /// A standby is wanted.
    pub(crate) fn stand_by(&mut self, now: Instant) {
        self.wanted = Wanted::Standby;
        self.advance(now);
    }

    /// Nothing of a leader is wanted, proved; nothing is started before the next word. SIGKILL no later than `kill_at`.
    /// Each call ends in a [`Happened::Yielded`] whose proof was made after it.
    pub(crate) fn give_way(&mut self, reason: Reason, kill_at: Instant, now: Instant) {
        self.wanted = Wanted::Hold;
        let Actual::Running { roles, yield_by, .. } = &mut self.actual else {
            self.descend(None, kill_at, now);
            return;
        };
        let Some(manner) = &self.policy.manner else {
            self.descend(None, kill_at, now);
            return;
        };
        let Some(outcome) = roles.demote(reason, manner, now, &mut self.actions) else {
            self.descend(None, kill_at, now);
            return;
        };
        if outcome == Outcome::Pending {
            *yield_by = Some(yield_by.map_or(kill_at, |at| at.min(kill_at)));
            self.account.began.get_or_insert(now);
        }
        self.take(outcome, now);
    }

    /// Nothing new is started.
    pub(crate) fn hold(&mut self) {
        self.wanted = Wanted::Hold;
    }

    /// Nothing is wanted. `signal` takes the place of the stop signal. SIGKILL no later than `kill_at`.
    pub(crate) fn stop(&mut self, signal: Option<Signal>, kill_at: Instant, now: Instant) {
        self.wanted = Wanted::Down;
        self.descend(signal, kill_at, now);
    }

    /// H, which was at `hard`, has come.
    pub(crate) fn hard(&mut self, hard: Instant, now: Instant) {
        if matches!(self.wanted, Wanted::Standby | Wanted::Leader(_)) {
            self.wanted = Wanted::Hold;
        }
        match self.actual {
            Actual::Running { .. } | Actual::Starting { .. } => self.kill(now),
            Actual::Stopped | Actual::Waiting { .. } | Actual::Ending { .. } => self.descend(None, now, now),
        }
        if let Actual::Ending { ladder, .. } = &mut self.actual {
            ladder.hard(hard, now);
        }
    }

    /// Passes a signal on, rewritten for the role.
    pub(crate) fn forward(&mut self, signal: Signal) {
        if let (Some(pid), Some(signal)) = (self.main(), self.rewritten(signal)) {
            self.actions.push_back(Action::Signal { target: self.target(pid), signal });
        }
    }

    /// What the workload gets for this signal; none: nothing.
    pub(crate) fn rewritten(&self, signal: Signal) -> Option<Signal> {
        let role = match &self.actual {
            Actual::Running { roles, .. } if self.policy.manner.is_some() => roles.role(),
            Actual::Running { .. }
            | Actual::Ending { .. }
            | Actual::Stopped
            | Actual::Waiting { .. }
            | Actual::Starting { .. } => Role::Leader,
        };
        let rewrite = match role {
            Role::Leader => &self.policy.rewrite.leader,
            Role::Standby => &self.policy.rewrite.standby,
        };
        rewrite.get(&signal).copied().unwrap_or(Some(signal))
    }

    pub(crate) fn forked(&mut self, child: i32, now: Instant) {
        match &mut self.actual {
            Actual::Starting { pid, kill_at, .. } => {
                *pid = Some(child);
                if let Some(kill_at) = *kill_at {
                    self.descend(None, kill_at, now);
                }
            }
            Actual::Ending { main, .. } => *main = Some(child),
            Actual::Stopped | Actual::Waiting { .. } | Actual::Running { .. } => {}
        }
    }

    pub(crate) fn spawned(&mut self, now: Instant) {
        let Actual::Starting { launch, pid: Some(pid), .. } = &self.actual else { return };
        let (launch, pid) = (launch.clone(), *pid);
        let (roles, outcome) = match (launch, &self.policy.manner) {
            (Some(launch), Some(manner)) => Roles::leader(pid, launch, manner, now, &mut self.actions),
            (Some(_), None) => (Roles::standby(pid), Outcome::Promoted),
            (None, _) => (Roles::standby(pid), Outcome::Pending),
        };
        self.forget_stop();
        self.actual = Actual::Running { pid, since: now, roles, yield_by: None };
        self.take(outcome, now);
        self.advance(now);
    }

    pub(crate) fn not_spawned(&mut self, why: NotSpawned, now: Instant) {
        if !matches!(self.actual, Actual::Starting { .. }) {
            return;
        }
        self.leads = false;
        match why {
            NotSpawned::Late => self.actual = Actual::Waiting { until: now },
            NotSpawned::Failed { code, message } => {
                self.actual = Actual::Stopped;
                self.wanted = Wanted::Hold;
                self.happened.push_back(Happened::SpawnFailed { code, message });
            }
        }
    }

    pub(crate) fn promoted(&mut self, now: Instant) {
        if let (Actual::Running { roles, .. }, Some(manner)) = (&mut self.actual, &self.policy.manner) {
            let outcome = roles.promoted(manner, now, &mut self.actions);
            self.take_news(outcome, now);
        }
    }

    pub(crate) fn not_promoted(&mut self, now: Instant) {
        if let Actual::Running { roles, .. } = &mut self.actual {
            let outcome = roles.not_promoted();
            self.take_news(outcome, now);
        }
    }

    pub(crate) fn hook_forked(&mut self, pid: i32) {
        if let Actual::Running { roles, .. } = &mut self.actual {
            roles.hook_started(pid);
        }
    }

    pub(crate) fn hook_not_forked(&mut self, now: Instant) {
        self.hook_ended(None, now);
    }

    pub(crate) fn notified(&mut self, role: Role, now: Instant) {
        if let (Actual::Running { roles, .. }, Some(manner)) = (&mut self.actual, &self.policy.manner) {
            let outcome = roles.notified(role, manner);
            self.take_news(outcome, now);
        }
    }

    pub(crate) fn reaped(&mut self, pid: i32, exit: Exit, now: Instant) {
        match &mut self.actual {
            Actual::Running { pid: main, since, .. } if *main == pid => {
                let since = *since;
                self.ended(exit, since, now);
            }
            Actual::Running { roles, .. } if roles.is_hook(pid) => self.hook_ended(Some(exit), now),
            Actual::Ending { main, ladder, .. } if *main == Some(pid) => {
                *main = None;
                self.account.end = Some((now, exit));
                ladder.main_ended(now);
            }
            Actual::Starting { pid: Some(main), .. } if *main == pid => self.ended(exit, now, now),
            Actual::Ending { ladder, .. } => ladder.reaped(now),
            Actual::Running { .. } | Actual::Stopped | Actual::Waiting { .. } | Actual::Starting { .. } => {}
        }
    }

    /// Init has no child, and that is all that a plain init asks for.
    pub(crate) fn childless(&mut self, now: Instant) {
        if self.policy.plain {
            self.scanned(Scan { clean: true, ..Scan::default() }, now);
        }
    }

    pub(crate) fn scanned(&mut self, scan: Scan, now: Instant) {
        let Actual::Ending { ladder, again_at, .. } = &mut self.actual else { return };
        if !ladder.scanned(scan, now) {
            return;
        }
        self.account.killed = self.account.killed.or_else(|| ladder.killed());
        self.actual = again_at.map_or(Actual::Stopped, |until| Actual::Waiting { until });
        self.leads = false;
        self.happened.push_back(Happened::Yielded(self.account.proved(now)));
        self.advance(now);
    }

    pub(crate) fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    pub(crate) fn poll_happened(&mut self) -> Option<Happened> {
        self.happened.pop_front()
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match &self.actual {
            Actual::Waiting { until } => self.may_start(*until).then_some(*until),
            Actual::Running { roles, yield_by, .. } => [roles.due(), *yield_by].into_iter().flatten().min(),
            Actual::Ending { ladder, .. } => ladder.due(),
            Actual::Stopped | Actual::Starting { .. } => None,
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if let Actual::Running { roles, yield_by, .. } = &mut self.actual {
            if yield_by.is_some_and(|at| at <= now) {
                let line = "the workload did not acknowledge its demotion in time and is killed".into();
                self.actions.push_back(Action::Log { warning: true, line });
                self.kill(now);
            } else {
                let outcome = roles.handle_timeout(now, &mut self.actions);
                self.take_news(outcome, now);
            }
        }
        if let Actual::Ending { ladder, .. } = &mut self.actual {
            while let Some(step) = ladder.step(now) {
                match step {
                    Step::Prove => self.actions.push_back(Action::Prove),
                    Step::Walk => self.actions.push_back(Action::Walk),
                    Step::KillAll => self.actions.push_back(Action::KillAll),
                    Step::Die => self.actions.push_back(Action::Die),
                    Step::Unproved(pids) => self.happened.push_back(Happened::Unproved(pids)),
                }
            }
        }
        self.advance(now);
    }

    /// Starts or promotes what is wanted and may be.
    fn advance(&mut self, now: Instant) {
        let may_start = self.may_start(now);
        match (&self.wanted, &mut self.actual) {
            (_, Actual::Stopped) if may_start => self.spawn(),
            (_, Actual::Waiting { until }) if may_start && *until <= now => self.spawn(),
            (Wanted::Leader(launch), Actual::Running { roles, .. }) if now < launch.not_after && roles.is_standby() => {
                let Some(manner) = &self.policy.manner else { return };
                self.leads = true;
                let outcome = roles.promote(launch.clone(), manner, now, &mut self.actions);
                self.take_news(outcome, now);
            }
            (Wanted::Down | Wanted::Hold | Wanted::Standby | Wanted::Leader(_), _) => {}
        }
    }

    fn may_start(&self, at: Instant) -> bool {
        match &self.wanted {
            Wanted::Leader(launch) => at < launch.not_after,
            Wanted::Standby => true,
            Wanted::Down | Wanted::Hold => false,
        }
    }

    fn spawn(&mut self) {
        let launch = match &self.wanted {
            Wanted::Leader(launch) => Some(launch.clone()),
            Wanted::Down | Wanted::Hold | Wanted::Standby => None,
        };
        self.leads = launch.is_some();
        let role = match (self.policy.plain, &launch) {
            (true, _) => None,
            (false, Some(_)) => Some(Role::Leader),
            (false, None) => Some(Role::Standby),
        };
        self.actual = Actual::Starting { launch: launch.clone(), pid: None, kill_at: None };
        self.actions.push_back(Action::Spawn { role, launch });
    }

    /// The main process ended without being stopped.
    fn ended(&mut self, exit: Exit, since: Instant, now: Instant) {
        self.account.began.get_or_insert(now);
        self.account.end = Some((now, exit));
        let asked = matches!(self.wanted, Wanted::Hold | Wanted::Down);
        let interrupted = self.policy.terminal && from_terminal(exit);
        let again_at = if asked || interrupted { None } else { self.again(exit, since, now) };
        if !asked {
            let again = again_at.is_some();
            if !again {
                self.wanted = Wanted::Hold;
            }
            self.happened.push_back(if interrupted { Happened::Interrupted } else { Happened::Ended { exit, again } });
        }
        self.actual = Actual::Ending { main: None, ladder: Ladder::killing(self.policy.pid1, self.margin(), now), again_at };
    }

    fn again(&mut self, exit: Exit, since: Instant, now: Instant) -> Option<Instant> {
        match self.policy.config.on_exit {
            OnExit::Exit => None,
            OnExit::Follow if self.leads => None,
            OnExit::Follow => Some(self.restarts.delayed(since, now)),
            OnExit::Restart if self.restarts.covers(exit) => self.restarts.next(since, now),
            OnExit::Restart => None,
        }
    }

    /// On the way down, at the latest from `kill_at` on by SIGKILL.
    fn descend(&mut self, signal: Option<Signal>, kill_at: Instant, now: Instant) {
        match &mut self.actual {
            Actual::Stopped | Actual::Waiting { .. } => {
                self.actual =
                    Actual::Ending { main: None, ladder: Ladder::killing(self.policy.pid1, self.margin(), now), again_at: None };
            }
            Actual::Ending { ladder, again_at, .. } => {
                *again_at = None;
                ladder.squeeze(kill_at);
            }
            Actual::Running { .. } | Actual::Starting { pid: Some(_), .. } => {
                let Some(pid) = self.main() else { return };
                let kill_at = self.yield_by().map_or(kill_at, |at| at.min(kill_at));
                self.account.began.get_or_insert(now);
                for signal in [signal.unwrap_or(self.policy.config.stop.signal), Signal(libc::SIGCONT)] {
                    self.actions.push_back(Action::Signal { target: self.target(pid), signal });
                }
                let (mode, margin) = (self.policy.config.stop.kill_mode, self.margin());
                let ladder = Ladder::asking(self.policy.pid1, mode, margin, kill_at);
                self.actual = Actual::Ending { main: Some(pid), ladder, again_at: None };
            }
            Actual::Starting { pid: None, kill_at: stop, .. } => *stop = Some(stop.map_or(kill_at, |at| at.min(kill_at))),
        }
    }

    /// Without asking: its time was used up.
    fn kill(&mut self, now: Instant) {
        self.account.began.get_or_insert(now);
        let main = self.main();
        self.actual = Actual::Ending { main, ladder: Ladder::killing(self.policy.pid1, self.margin(), now), again_at: None };
    }

    fn hook_ended(&mut self, exit: Option<Exit>, now: Instant) {
        if let (Actual::Running { roles, .. }, Some(manner)) = (&mut self.actual, &self.policy.manner) {
            let outcome = roles.hook_ended(exit, manner, now, &mut self.actions);
            self.take_news(outcome, now);
        }
    }

    /// As [`Self::take`], for news that are no answer to a question: a standby that is a standby is none.
    fn take_news(&mut self, outcome: Outcome, now: Instant) {
        let yielding = matches!(self.actual, Actual::Running { yield_by: Some(_), .. });
        if outcome != Outcome::Demoted || yielding {
            self.take(outcome, now);
        }
    }

    fn take(&mut self, outcome: Outcome, now: Instant) {
        let Actual::Running { pid, yield_by, .. } = &mut self.actual else { return };
        match outcome {
            Outcome::Pending => {}
            Outcome::Promoted => self.happened.push_back(Happened::Leads { pid: *pid }),
            Outcome::Demoted => {
                *yield_by = None;
                self.leads = false;
                let account = std::mem::take(&mut self.account);
                self.happened.push_back(Happened::Yielded(account.proved(now)));
            }
            Outcome::Failed(_) if yield_by.is_some() => self.kill(now),
            Outcome::Failed(reason) => self.happened.push_back(Happened::NotPromoted(reason)),
        }
    }

    fn main(&self) -> Option<i32> {
        match &self.actual {
            Actual::Running { pid, .. } => Some(*pid),
            Actual::Ending { main: pid, .. } | Actual::Starting { pid, .. } => *pid,
            Actual::Stopped | Actual::Waiting { .. } => None,
        }
    }

    fn yield_by(&self) -> Option<Instant> {
        match self.actual {
            Actual::Running { yield_by, .. } => yield_by,
            Actual::Stopped | Actual::Waiting { .. } | Actual::Starting { .. } | Actual::Ending { .. } => None,
        }
    }

    fn target(&self, pid: i32) -> Target {
        match self.policy.config.stop.kill_mode {
            KillMode::Mixed => Target::Main(pid),
            KillMode::Group => Target::Group(pid),
        }
    }

    fn margin(&self) -> Duration {
        self.policy.config.stop.kill_margin
    }
}

/// Whether a process ended by one of the terminal's keys, by the signal or by a shell's word for it.
fn from_terminal(exit: Exit) -> bool {
    [libc::SIGINT, libc::SIGQUIT].into_iter().any(|signal| exit.code() == Exit::Signal(signal).code())
}

/// How long a promotion may take: as long as a crash would leave the Lease without a leader, or as the hook may that brings it
/// about.
fn promotion_patience(config: &config::Config) -> Duration {
    let hook = config.hooks.after_lead.as_ref().map_or(Duration::ZERO, |hook| hook.timeout);
    config.lease.duration.max(hook)
}

impl Policy {
    pub(crate) fn of(config: &config::Config, pid1: bool, terminal: bool) -> Self {
        let manner = match config.workload.runs {
            Runs::Leading => None,
            Runs::Always => Some(Manner {
                acknowledge: config.workload.acknowledge.unwrap_or(config::Acknowledge::None),
                signals: config.signals.clone(),
                hooks: config.hooks.clone(),
                patience: promotion_patience(config),
            }),
        };
        let plain = !config.lease.enabled;
        let manner = manner.filter(|_| !plain);
        let (config, rewrite) = (config.workload.clone(), config.signals.rewrite.clone());
        Self { pid1, plain, terminal, config, rewrite, manner }
    }
}
