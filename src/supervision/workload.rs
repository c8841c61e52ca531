//! One workload: its wanted state against its actual one.
//!
//! Owns the main process, its restarts and its shutdown. Knows nothing of Leases, links and electors: the agent says what is
//! wanted, and until when something may be started; the workload reports what became of it.

use std::{collections::VecDeque, sync::Arc};

use crate::{
    config::{HookKind, Signal},
    exit,
    link::{Exit, Reason, Stop},
    role::Role,
    time::Instant,
};

use super::{
    Action, Launch, NotSpawned, Target, Told,
    escalation::{Step, StopEscalation},
    health::Health,
    hooks::HookRun,
    restarts::Restarts,
    roles::{Outcome, Roles},
};

mod policy;
mod stopping;
mod telling;

pub(crate) use policy::Policy;
use stopping::Account;

/// What happened to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    /// It leads: started as a leader, or promoted and acknowledged.
    Leads { pid: i32 },
    /// It ended by itself.
    Ended(Exit),
    /// The same, and it is started again without being asked.
    Restarting(Exit),
    /// It was ended from the terminal.
    Interrupted,
    /// It cannot be executed.
    SpawnFailed { code: u8, message: String },
    /// It was not promoted: its hook failed, it could not be told, or did not acknowledge it.
    NotPromoted(Reason),
    /// It runs, and is not ready in time, or not live.
    Fails(Reason),
    /// Nothing of a leader runs: it was proved dead, or acknowledged its demotion.
    Yielded(Stop),
    /// These processes do not die.
    Unproved(Vec<i32>),
}

/// The machine.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    policy: Arc<Policy>,
    wanted: Wanted,
    actual: Actual,
    /// Since the last proof something of a leader was started.
    leads: bool,
    restarts: Restarts,
    pub(crate) health: Health,
    /// The stop under way, or the last one.
    account: Account,
    /// The proof as it was reported, until something of a leader runs again.
    proved: Option<Stop>,
    /// Something of a leader has run in this term, and afterFollow was not told.
    has_led: bool,
    /// What led, and was given up, until afterFollow is told.
    led: Option<Told>,
    actions: VecDeque<Action>,
    happened: VecDeque<Happened>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    /// Nothing new is started; what runs is stopped, or ends by itself.
    Down,
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
    /// beforeLead runs: what it leaves may be a leader's.
    Preparing { hook: HookRun },
    /// afterFollow runs, and nothing else.
    Following { hook: HookRun },
    /// Asked for, with the launch if it is a leader's; `pid` once it forked, `kill_at` if it is to be stopped as soon as it has.
    /// Killed if its execve is not done by `late`.
    Starting { launch: Option<Launch>, pid: Option<i32>, kill_at: Option<Instant>, late: Option<Instant> },
    /// The main process runs, in a role.
    Running { pid: i32, since: Instant, roles: Roles },
    /// Being stopped, and then, if `again_at` is set, started again.
    Stopping { main: Option<i32>, escalation: StopEscalation, again_at: Option<Instant> },
}

impl Workload {
    pub(crate) fn new(policy: Policy) -> Self {
        let policy = Arc::new(policy);
        Self {
            restarts: Restarts::new(policy.config.restart.clone()),
            health: Health::new(Arc::clone(&policy)),
            policy,
            wanted: Wanted::Down,
            actual: Actual::Stopped,
            leads: false,
            account: Account::default(),
            proved: None,
            has_led: false,
            led: None,
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

    /// Whether it is being stopped.
    pub(crate) fn is_stopping(&self) -> bool {
        matches!(self.actual, Actual::Stopping { .. })
    }

    /// Whether any signal but SIGKILL could run a leader's code without a Lease (law 8).
    pub(crate) fn is_frozen(&self) -> bool {
        match &self.actual {
            Actual::Running { roles, .. } => roles.is_frozen(),
            Actual::Stopped
            | Actual::Waiting { .. }
            | Actual::Preparing { .. }
            | Actual::Following { .. }
            | Actual::Starting { .. }
            | Actual::Stopping { .. } => self.policy.frozen && !self.leads,
        }
    }

    /// Whether what runs, or is being started or stopped, is `standby.command`, which never leads.
    pub(crate) fn is_standby_command(&self) -> bool {
        self.policy.standby && !self.leads
    }

    /// Whether it is being prepared for its stop.
    pub(crate) fn is_yielding(&self) -> bool {
        !self.policy.always && matches!(&self.actual, Actual::Running { roles, .. } if roles.yields_by().is_some())
    }

    /// Whether it is to be prepared for a planned stop.
    pub(crate) fn prepares_to_follow(&self) -> bool {
        let hook = HookKind::BeforeFollow.of(&self.policy.hooks);
        !self.policy.always && hook.is_some() && self.leads && matches!(self.actual, Actual::Running { .. })
    }

    /// Whether there is something to do while following.
    pub(crate) fn stands_by(&self) -> bool {
        self.policy.has_standby() || HookKind::AfterFollow.of(&self.policy.hooks).is_some()
    }

    /// Whether only what its main process left behind is still to be killed.
    pub(crate) fn is_being_swept(&self) -> bool {
        matches!(&self.actual, Actual::Stopping { main: None, escalation, .. } if !escalation.asks())
    }

    /// Whether it is being killed, and no longer asked.
    pub(crate) fn is_being_killed(&self) -> bool {
        matches!(&self.actual, Actual::Stopping { escalation, .. } if !escalation.asks())
    }

    /// Whether SIGKILL was reported not to suffice.
    pub(crate) fn is_stuck(&self) -> bool {
        matches!(&self.actual, Actual::Stopping { escalation, .. } if escalation.is_stuck())
    }

    /// Whether a main process runs that signals can be forwarded to.
    pub(crate) fn is_running(&self) -> bool {
        self.main().is_some()
    }

    /// Whether it was started or promoted as the leader, and nobody has begun to end that.
    pub(crate) fn is_leading(&self) -> bool {
        matches!(&self.actual, Actual::Running { roles, .. } if roles.is_leader())
    }

    /// Whether kill(-1) is being repeated.
    pub(crate) fn kills_everything(&self) -> bool {
        matches!(&self.actual, Actual::Stopping { escalation, .. } if escalation.kills_everything())
    }

    /// Until when a leader may be started, if one is wanted.
    pub(crate) fn leads_until(&self) -> Option<Instant> {
        match &self.wanted {
            Wanted::Leader(launch) => Some(launch.not_after),
            Wanted::Down | Wanted::Standby => None,
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
        (self.has_led, self.led) = (false, None);
    }

    /// Clears what is reported of a stop.
    pub(crate) fn forget_stop(&mut self) {
        (self.account, self.proved) = (Account::default(), None);
    }

    /// A leader is wanted. Repeated with each extension: nothing is started at or after `launch.not_after` (law 15).
    pub(crate) fn lead(&mut self, launch: Launch, now: Instant) {
        if self.leads_until().is_none() {
            self.wait_no_longer(now);
        }
        self.wanted = Wanted::Leader(launch);
        self.advance(now);
    }

    /// A crashed standby is restarted without its delay, since the Lease is now held for it.
    fn wait_no_longer(&mut self, now: Instant) {
        match &mut self.actual {
            Actual::Waiting { until } | Actual::Stopping { again_at: Some(until), .. } => *until = now.min(*until),
            Actual::Running { roles, .. } => roles.hasten(&mut self.actions),
            // What it leaves is a follower's, and is to be gone before a leader's starts.
            Actual::Following { .. } => self.actual = self.killing(None, Some(now), now),
            Actual::Stopping { again_at: None, .. } | Actual::Stopped | Actual::Preparing { .. } | Actual::Starting { .. } => {}
        }
    }

    /// A standby is wanted.
    pub(crate) fn stand_by(&mut self, now: Instant) {
        self.wanted = Wanted::Standby;
        self.advance(now);
    }

    /// Nothing new is started.
    pub(crate) fn hold(&mut self) {
        self.wanted = Wanted::Down;
    }

    pub(crate) fn forked(&mut self, child: i32, now: Instant) {
        match &mut self.actual {
            Actual::Starting { pid, kill_at, .. } => {
                *pid = Some(child);
                if let Some(kill_at) = *kill_at {
                    self.descend(None, kill_at, now);
                }
            }
            Actual::Stopping { main, .. } => *main = Some(child),
            Actual::Stopped
            | Actual::Waiting { .. }
            | Actual::Preparing { .. }
            | Actual::Following { .. }
            | Actual::Running { .. } => {}
        }
    }

    pub(crate) fn spawned(&mut self, now: Instant) {
        let Actual::Starting { launch, pid: Some(pid), .. } = &self.actual else { return };
        let (launch, pid) = (launch.clone(), *pid);
        let policy = Arc::clone(&self.policy);
        let (roles, outcome) = match launch {
            Some(launch) => Roles::leader(policy, pid, launch, now, &mut self.actions),
            None => (Roles::standby(policy, pid), Outcome::Pending),
        };
        self.forget_stop();
        if !self.is_standby_command() {
            self.health.begin(now);
        }
        self.actual = Actual::Running { pid, since: now, roles };
        self.take(outcome, now);
        self.advance(now);
    }

    pub(crate) fn not_spawned(&mut self, why: NotSpawned, now: Instant) {
        if !matches!(self.actual, Actual::Starting { .. }) {
            return;
        }
        match why {
            NotSpawned::Late => self.not_begun(Some(now), now),
            NotSpawned::Failed { code, message } if self.is_standby_command() => {
                self.actions.push_back(Action::Warn(message));
                self.ended(Exit::Code(code), now, now);
            }
            NotSpawned::Failed { code, message } => {
                self.wanted = Wanted::Down;
                self.not_begun(None, now);
                self.happened.push_back(Happened::SpawnFailed { code, message });
            }
            // A crash, from which the next start may be spared.
            NotSpawned::Unavailable { message } => {
                self.actions.push_back(Action::Warn(message));
                self.ended(Exit::Code(exit::INTERNAL), now, now);
            }
        }
    }

    /// Nothing of the workload has run; of its beforeLead something may be left.
    fn not_begun(&mut self, again_at: Option<Instant>, now: Instant) {
        if self.leads && HookKind::BeforeLead.of(&self.policy.hooks).is_some() {
            self.actual = self.killing(None, again_at, now);
        } else {
            self.actual = again_at.map_or(Actual::Stopped, |until| Actual::Waiting { until });
            self.leads = false;
            self.has_led &= self.exit().is_some();
        }
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
            Actual::Preparing { hook } | Actual::Following { hook } => Some(hook.due()),
            // What is prepared for its stop is given up already, and nobody asks how it is.
            Actual::Running { roles, .. } if self.is_yielding() => roles.due(),
            Actual::Running { roles, .. } => roles.due().into_iter().chain(self.health.due()).min(),
            Actual::Stopping { escalation, .. } => escalation.due(),
            Actual::Starting { pid: Some(_), late, .. } => *late,
            Actual::Stopped | Actual::Starting { pid: None, .. } => None,
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        let mut said = None;
        if let Actual::Preparing { hook } | Actual::Following { hook } = &mut self.actual
            && hook.handle_timeout(now, &mut self.actions)
        {
            self.hook_failed(now);
        }
        if let Actual::Running { roles, .. } = &mut self.actual {
            let outcome = roles.handle_timeout(now, &mut self.actions);
            said = match outcome {
                Outcome::NotPromoted(_) => Some("the workload did not acknowledge its promotion in time and is stopped"),
                Outcome::NotDemoted(_) if self.policy.always => {
                    Some("the workload did not acknowledge its demotion in time and is killed")
                }
                Outcome::Pending | Outcome::Promoted | Outcome::Demoted(_) | Outcome::NotDemoted(_) | Outcome::Unfrozen => None,
            };
            self.take(outcome, now);
        }
        if let Actual::Running { .. } = self.actual {
            let may_ask = self.may_ask(now);
            self.health.handle_timeout(may_ask.as_ref(), now, &mut self.actions);
            let fault = self.health.overdue(now);
            self.fails(fault);
        }
        if let Actual::Starting { pid: Some(pid), late, .. } = &mut self.actual
            && late.take_if(|at| *at <= now).is_some()
        {
            // Its end counts as that of one that ran: a file system that hangs now may answer the next time.
            self.actions.push_back(Action::Signal { target: Target::Main(*pid), signal: Signal(libc::SIGKILL) });
            said = Some("the workload was not executed within lease.duration and is killed");
        }
        if let Actual::Stopping { escalation, .. } = &mut self.actual {
            while let Some(step) = escalation.step(now) {
                match step {
                    Step::Prove => self.actions.push_back(Action::Prove),
                    Step::Sweep => self.actions.push_back(Action::Sweep),
                    Step::KillAll => self.actions.push_back(Action::KillAll),
                    Step::Die => self.actions.push_back(Action::Die),
                    Step::Unproved(pids) => self.happened.push_back(Happened::Unproved(pids)),
                }
            }
        }
        // After the kill (law 2).
        self.actions.extend(said.map(|line| Action::Warn(line.into())));
        self.advance(now);
    }

    /// Starts or promotes what is wanted and permitted.
    pub(super) fn advance(&mut self, now: Instant) {
        self.follow(now);
        let (may_start, is_other) = (self.may_start(now), self.is_standby_command());
        match (&self.wanted, &mut self.actual) {
            (_, Actual::Stopped) if may_start => self.begin(now),
            (_, Actual::Waiting { until }) if may_start && *until <= now => self.begin(now),
            // Once its time has passed unused, only a later limit starts it.
            (_, Actual::Waiting { until }) => *until = now.max(*until),
            // Nothing of it may be left when the leader starts, which is no later than S.
            (Wanted::Leader(Launch { not_after, .. }), Actual::Running { .. } | Actual::Starting { .. }) if is_other => {
                let stop = &self.policy.config.stop;
                let by = not_after.before(stop.kill_margin).min(now + stop.loss_grace);
                if now < *not_after {
                    self.descend(None, by, now);
                }
            }
            // What stops is a standby, and the Lease waits for its successor.
            (Wanted::Leader(Launch { not_after, .. }), Actual::Stopping { escalation, .. })
                if !self.leads && now < *not_after =>
            {
                let stop = &self.policy.config.stop;
                escalation.squeeze(not_after.before(stop.kill_margin).min(now + stop.loss_grace));
            }
            (Wanted::Leader(launch), Actual::Running { roles, .. }) if now < launch.not_after && roles.is_standby() => {
                (self.leads, self.has_led) = (true, true);
                let outcome = roles.promote(launch.clone(), now, &mut self.actions);
                self.take(outcome, now);
            }
            (Wanted::Leader(launch), Actual::Running { roles, .. }) => {
                roles.extend(launch);
                self.freeze(now);
            }
            (Wanted::Standby, Actual::Running { .. }) => self.freeze(now),
            (Wanted::Down | Wanted::Standby | Wanted::Leader(_), _) => {}
        }
    }

    /// Freezes what is ready, or is to lead: nothing leads that was not continued by a Lead (law 15).
    pub(super) fn freeze(&mut self, now: Instant) {
        let is_due = matches!(self.wanted, Wanted::Leader(_)) || self.health.unready().is_none();
        if let Actual::Running { roles, .. } = &mut self.actual
            && roles.is_warming()
            && is_due
        {
            self.health.pause(now, &mut self.actions);
            roles.freeze(now, &mut self.actions);
        }
    }

    fn may_start(&self, at: Instant) -> bool {
        match &self.wanted {
            Wanted::Leader(launch) => at < launch.not_after,
            Wanted::Standby => self.policy.has_standby(),
            Wanted::Down => false,
        }
    }

    /// Runs afterFollow, if it is wanted and there is something that it was not told.
    fn follow(&mut self, now: Instant) {
        let roles = match &mut self.actual {
            _ if self.wanted != Wanted::Standby || self.leads => return,
            Actual::Stopped | Actual::Waiting { .. } => None,
            Actual::Running { roles, .. } if self.policy.always => Some(roles),
            Actual::Running { .. } => return,
            Actual::Preparing { .. } | Actual::Following { .. } | Actual::Starting { .. } | Actual::Stopping { .. } => return,
        };
        let Some(led) = self.led.take() else { return };
        self.has_led = false;
        let hook = HookRun::start(HookKind::AfterFollow, &self.policy, led, Instant::NEVER, now, &mut self.actions);
        match (hook, roles) {
            (Some(hook), Some(roles)) => roles.follow(hook),
            (Some(hook), None) => self.actual = Actual::Following { hook },
            (None, _) => {}
        }
    }

    /// Starts what is wanted; before a leader, its hook.
    fn begin(&mut self, now: Instant) {
        if let Wanted::Leader(launch) = &self.wanted {
            let told = Told { info: launch.info.clone(), ..Told::default() };
            let hook = HookRun::start(HookKind::BeforeLead, &self.policy, told, launch.not_after, now, &mut self.actions);
            if let Some(hook) = hook {
                (self.leads, self.has_led) = (true, true);
                self.actual = Actual::Preparing { hook };
                return;
            }
        }
        self.spawn(now);
    }

    fn spawn(&mut self, now: Instant) {
        let launch = match &self.wanted {
            Wanted::Leader(launch) => Some(launch.clone()),
            Wanted::Down | Wanted::Standby => None,
        };
        self.leads = launch.is_some();
        self.has_led |= self.leads;
        self.health.forget();
        let role = match (self.policy.plain, &launch) {
            (true, _) => None,
            (false, Some(_)) => Some(Role::Leader),
            (false, None) => Some(Role::Standby),
        };
        let late = (!self.policy.plain).then(|| now + self.policy.start_timeout);
        self.actual = Actual::Starting { launch: launch.clone(), pid: None, kill_at: None, late };
        self.actions.push_back(Action::Spawn { role, launch });
    }

    /// The main process, until it is reaped.
    pub(crate) fn main(&self) -> Option<i32> {
        match &self.actual {
            Actual::Running { pid, .. } => Some(*pid),
            Actual::Stopping { main: pid, .. } | Actual::Starting { pid, .. } => *pid,
            Actual::Stopped | Actual::Waiting { .. } | Actual::Preparing { .. } | Actual::Following { .. } => None,
        }
    }
}
