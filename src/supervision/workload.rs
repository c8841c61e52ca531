//! The workload: its wanted state against its actual one.
//!
//! Owns the main process and the control process (a hook around a change of role), named as in systemd, with the restarts and the
//! stop. Knows no Lease, link or elector. The agent sets the wanted state and the time until which a leader may be started; the
//! workload reports [`WorkloadEvent`]s.

use std::{collections::VecDeque, sync::Arc};

use crate::{
    config::{HookKind, Signal},
    link::{Exit, Reason, Stop},
    role::Role,
    time::Instant,
};

use super::{
    escalation::{Step, StopEscalation},
    health::HealthChecks,
    hooks::HookRun,
    interface::{Action, Launch, ProgramEnv, Target},
    policy::{Mode, Policy},
    restarts::Restarts,
};

mod roles;
mod signals;
mod starting;
mod stopping;

use roles::Change;
use stopping::StopReport;

/// An event of the workload, for the agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WorkloadEvent {
    /// The workload leads: it was started as leader, or has acknowledged its promotion.
    Leads { pid: i32 },
    /// The workload ended by itself.
    Ended(Exit),
    /// The workload ended by itself, and is restarted by the policy.
    Restarting(Exit),
    /// A key of the terminal ended the workload.
    Interrupted,
    /// The command cannot be executed.
    SpawnFailed { code: u8, message: String },
    /// The promotion failed: a hook failed, or the workload was not told or did not acknowledge.
    NotPromoted(Reason),
    /// The workload runs, but is not ready in time, or not live.
    Fails(Reason),
    /// Nothing of a leader runs: it was proved dead, or has acknowledged its demotion.
    Yielded(Stop),
    /// SIGKILL does not remove these processes.
    Unproved(Vec<i32>),
}

/// The state machine of the workload.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Workload {
    policy: Arc<Policy>,
    wanted: Wanted,
    state: State,
    /// Pid of the main process, from its fork until it is reaped.
    main: Option<i32>,
    /// Time of the main process's execve.
    since: Instant,
    /// The control process: the hook that the current state waits for.
    control: Option<HookRun>,
    /// Something of a leader was started since the last proof.
    leads: bool,
    restarts: Restarts,
    pub(crate) health: HealthChecks,
    /// Times of the current stop, or of the last one.
    report: StopReport,
    /// The proof that was reported, until something of a leader runs again.
    proved: Option<Stop>,
    /// Something of a leader has run in this term, and afterFollow has not run for it.
    has_led: bool,
    /// Environment for afterFollow, until that runs.
    led: Option<ProgramEnv>,
    actions: VecDeque<Action>,
    events: VecDeque<WorkloadEvent>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Wanted {
    /// Nothing new is started. A running workload is stopped, or ends by itself.
    Down,
    /// A standby is to run.
    Standby,
    /// A leader is to run.
    Leader(Launch),
}

/// The actual state, from a start to the proof that nothing is left. A main process runs in the states from `Standby` to
/// `Demoting`, and in `BeforeLead` and `AfterFollow` if the hook runs beside one.
#[derive(Clone, Debug, Hash)]
enum State {
    /// Nothing runs, and that is proved.
    Down,
    /// Nothing runs; the restart is due at `until`.
    Waiting { until: Instant },
    /// beforeLead runs. Processes that it leaves count as a leader's.
    BeforeLead,
    /// The fork was ordered, and its execve is awaited until `late`. With `kill_at`, the process is stopped as soon as it has
    /// forked, and killed then.
    Starting { role: Role, kill_at: Option<Instant>, late: Option<Instant> },
    /// The workload runs as standby.
    Standby,
    /// The workload runs, and is frozen as soon as it is ready.
    BeforeFreeze,
    /// The workload is being frozen: checked again at `next` (none while a check runs), and killed if that fails until `until`.
    Freezing { next: Option<Instant>, until: Instant },
    /// The workload is frozen (stopped by SIGSTOP), and checked again at `look`.
    Frozen { look: Instant },
    /// The workload is being told that it leads.
    Promoting(Change),
    /// The workload leads.
    Leading,
    /// The workload is being told that it follows, or prepared for its stop by beforeFollow.
    Demoting(Change),
    /// afterFollow runs.
    AfterFollow,
    /// The workload is being stopped, and restarted at `again_at` if that is set.
    Stopping { escalation: StopEscalation, again_at: Option<Instant> },
}

impl Workload {
    pub(crate) fn new(policy: Policy) -> Self {
        let policy = Arc::new(policy);
        Self {
            restarts: Restarts::new(policy.config.workload.restart.clone()),
            health: HealthChecks::new(Arc::clone(&policy), Instant::BOOT),
            policy,
            wanted: Wanted::Down,
            state: State::Down,
            main: None,
            since: Instant::BOOT,
            control: None,
            leads: false,
            report: StopReport::default(),
            proved: None,
            has_led: false,
            led: None,
            actions: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Returns true if anything of a leader may run. S and H are enforced while it may (law 3).
    pub(crate) fn leads(&self) -> bool {
        self.leads
    }

    /// Returns true if nothing runs, by proof.
    pub(crate) fn is_down(&self) -> bool {
        matches!(self.state, State::Down | State::Waiting { .. })
    }

    /// Returns true if a stop is under way.
    pub(crate) fn is_stopping(&self) -> bool {
        self.escalation().is_some()
    }

    /// Returns true if the workload is or will be frozen: any signal but SIGKILL could then run a leader's code without a Lease
    /// (law 8).
    pub(crate) fn is_frozen(&self) -> bool {
        self.policy.mode == Mode::Frozen && (!self.leads || self.is_to_be_resumed())
    }

    /// Returns true if the current process is `standby.command`, which never leads.
    pub(crate) fn is_standby_command(&self) -> bool {
        self.policy.mode == Mode::StandbyCommand && !self.leads
    }

    /// Returns true if beforeFollow prepares the workload for its stop.
    pub(crate) fn is_yielding(&self) -> bool {
        self.policy.mode != Mode::Always && matches!(self.state, State::Demoting(_))
    }

    /// Returns true if beforeFollow must run before a planned stop.
    pub(crate) fn prepares_to_follow(&self) -> bool {
        let hook = self.policy.hook(HookKind::BeforeFollow);
        self.policy.mode != Mode::Always && hook.is_some() && self.leads && self.runs()
    }

    /// Returns true if a standby or afterFollow runs while this replica follows.
    pub(crate) fn stands_by(&self) -> bool {
        self.policy.has_standby() || self.policy.hook(HookKind::AfterFollow).is_some()
    }

    /// Returns true if the main process is gone, and only the rest is being killed.
    pub(crate) fn is_being_swept(&self) -> bool {
        self.main.is_none() && self.is_being_killed()
    }

    /// Returns true if the workload is being killed, no longer asked to stop.
    pub(crate) fn is_being_killed(&self) -> bool {
        self.escalation().is_some_and(|escalation| !escalation.asks())
    }

    /// Returns true if [`WorkloadEvent::Unproved`] was reported for this stop.
    pub(crate) fn is_stuck(&self) -> bool {
        self.escalation().is_some_and(StopEscalation::is_stuck)
    }

    /// Returns true if kill(-1) is being repeated.
    pub(crate) fn kills_everything(&self) -> bool {
        self.escalation().is_some_and(StopEscalation::kills_everything)
    }

    fn escalation(&self) -> Option<&StopEscalation> {
        if let State::Stopping { escalation, .. } = &self.state { Some(escalation) } else { None }
    }

    /// Pid of the main process.
    pub(crate) fn main(&self) -> Option<i32> {
        self.main
    }

    /// Returns true if the main process has done its execve, and no stop has begun.
    fn runs(&self) -> bool {
        self.main.is_some() && !matches!(self.state, State::Starting { .. } | State::Stopping { .. })
    }

    /// Returns true if the workload leads, and no stop or demotion has begun.
    pub(crate) fn is_leading(&self) -> bool {
        matches!(self.state, State::Leading)
    }

    /// Time until which a leader may be started, if one is wanted.
    pub(crate) fn leads_until(&self) -> Option<Instant> {
        self.launch().map(|launch| launch.not_after)
    }

    fn launch(&self) -> Option<&Launch> {
        match &self.wanted {
            Wanted::Leader(launch) => Some(launch),
            Wanted::Down | Wanted::Standby => None,
        }
    }

    /// The last exit of the main process; none if none ended since the term began.
    pub(crate) fn exit(&self) -> Option<Exit> {
        self.report.end.map(|(_, exit)| exit)
    }

    /// Forgets the restarts and the stop of the last term.
    pub(crate) fn forget_last_term(&mut self) {
        self.restarts.reset();
        self.forget_stop();
        (self.has_led, self.led) = (false, None);
    }

    /// Clears the report of the last stop.
    pub(crate) fn forget_stop(&mut self) {
        (self.report, self.proved) = (StopReport::default(), None);
    }

    /// Sets the wanted state to leader. Called again with each extension, which moves `launch.not_after` (law 15).
    pub(crate) fn lead(&mut self, launch: Launch, now: Instant) {
        if self.leads_until().is_none() {
            self.wait_no_longer(now);
        }
        self.wanted = Wanted::Leader(launch);
        self.advance(now);
    }

    /// Ends the waits of a standby, because the Lease is held now: the delay of a restart, and afterFollow.
    fn wait_no_longer(&mut self, now: Instant) {
        if let State::Waiting { until } | State::Stopping { again_at: Some(until), .. } = &mut self.state {
            *until = now.min(*until);
        } else if let (State::AfterFollow, Some(hook)) = (&self.state, &mut self.control) {
            hook.cancel(&mut self.actions);
            if self.main.is_none() {
                // Processes that afterFollow leaves must be gone before a leader starts.
                self.kill_tree(Some(now), now);
            }
        }
    }

    /// Sets the wanted state to standby.
    pub(crate) fn stand_by(&mut self, now: Instant) {
        self.wanted = Wanted::Standby;
        self.advance(now);
    }

    /// Sets the wanted state to down: nothing new is started.
    pub(crate) fn hold(&mut self) {
        self.wanted = Wanted::Down;
    }

    /// Takes the next step towards the wanted state, if the deadlines permit it.
    fn advance(&mut self, now: Instant) {
        self.tell_it_follows(now);
        let may_start = self.may_start(now);
        let is_other = self.is_standby_command() && (self.runs() || self.is_starting());
        match (&self.wanted, &mut self.state) {
            (_, State::Down) if may_start => self.begin(now),
            (_, State::Waiting { until }) if may_start && *until <= now => self.begin(now),
            // A restart that was not permitted when it was due starts only under a later limit.
            (_, State::Waiting { until }) => *until = now.max(*until),
            // A standby is being stopped, and the Lease is held for its successor.
            (Wanted::Leader(Launch { not_after, .. }), State::Stopping { escalation, .. }) => {
                if !self.leads && now < *not_after {
                    escalation.shorten(self.policy.standby_ends_by(*not_after, now));
                }
            }
            // The standby must be gone before the leader starts, which is before S.
            (Wanted::Leader(Launch { not_after, .. }), _) if is_other => {
                if now < *not_after {
                    self.ask_to_stop(None, self.policy.standby_ends_by(*not_after, now), now);
                }
            }
            (Wanted::Leader(launch), State::Standby | State::Frozen { .. }) if now < launch.not_after => {
                (self.leads, self.has_led) = (true, true);
                if !self.run_before_lead(now) {
                    self.promote(now);
                }
            }
            (Wanted::Leader(_) | Wanted::Standby, _) => self.freeze(now),
            (Wanted::Down, _) => {}
        }
    }

    fn is_starting(&self) -> bool {
        matches!(self.state, State::Starting { .. })
    }

    fn may_start(&self, at: Instant) -> bool {
        match &self.wanted {
            Wanted::Leader(launch) => at < launch.not_after,
            Wanted::Standby => self.policy.has_standby(),
            Wanted::Down => false,
        }
    }

    pub(crate) fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    pub(crate) fn poll_event(&mut self) -> Option<WorkloadEvent> {
        self.events.pop_front()
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let hook = self.control.as_ref();
        let own = match &self.state {
            State::Waiting { until } => Some(*until).filter(|until| self.may_start(*until)),
            State::Starting { late, .. } if self.main.is_some() => *late,
            State::BeforeLead | State::AfterFollow => hook.map(HookRun::due),
            State::Freezing { next, .. } => *next,
            State::Frozen { look } => Some(*look),
            State::Demoting(change) if self.is_yielding() => Some(change.until.or_earlier(hook.map(HookRun::due))),
            State::Promoting(change) | State::Demoting(change) => Some(change.until.or_earlier(hook.and_then(HookRun::kill_due))),
            State::Stopping { escalation, .. } => escalation.due(),
            State::Down | State::Starting { .. } | State::Standby | State::BeforeFreeze | State::Leading => None,
        };
        // The health of a workload that is prepared for its stop does not matter.
        let health = if self.runs() && !self.is_yielding() { self.health.due() } else { None };
        [own, health].into_iter().flatten().min()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        let mut said = self.role_overdue(now);
        if self.runs() {
            let asks = self.asks(now);
            self.health.handle_timeout(&asks, now, &mut self.actions);
            let fault = self.health.overdue(now);
            self.fails(fault);
        }
        if let (State::Starting { late, .. }, Some(pid)) = (&mut self.state, self.main)
            && late.take_if(|at| *at <= now).is_some()
        {
            // The kill counts as a crash, so the start is tried again: the file system that hangs may answer by then.
            self.actions.push_back(Action::Signal { target: Target::Main(pid), signal: Signal::KILL });
            said = Some("the workload was not executed within lease.duration and is killed");
        }
        if let State::Stopping { escalation, .. } = &mut self.state {
            while let Some(step) = escalation.step(now) {
                match step {
                    Step::Prove => self.actions.push_back(Action::Prove),
                    Step::Sweep => self.actions.push_back(Action::Sweep),
                    Step::KillAll => self.actions.push_back(Action::KillAll),
                    Step::Die => self.actions.push_back(Action::Die),
                    Step::Unproved(pids) => self.events.push_back(WorkloadEvent::Unproved(pids)),
                }
            }
        }
        // After the kill (law 2).
        self.actions.extend(said.map(|line| Action::Warn(line.into())));
        self.advance(now);
    }

    pub(crate) fn reaped(&mut self, pid: i32, exit: Exit, now: Instant) {
        let is_own = !self.is_frozen() && !self.report.frozen && !self.is_standby_command();
        if self.main == Some(pid) {
            if let State::Stopping { escalation, .. } = &mut self.state {
                self.main = None;
                // The exit code counts only if the workload was asked to stop: a frozen one can only be killed, and nobody asked a
                // standby for its exit code.
                self.report.end = is_own.then_some((now, exit));
                escalation.main_ended(now);
            } else {
                let since = if self.is_starting() { now } else { self.since };
                self.ended(exit, since, now);
            }
        } else if self.control.as_ref().is_some_and(|hook| hook.pid == Some(pid)) {
            self.hook_ended(Some(exit), now);
            self.advance(now);
        } else if let State::Stopping { escalation, .. } = &mut self.state {
            escalation.reaped(now);
        }
    }
}
