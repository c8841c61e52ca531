//! Changes of role of a running workload: telling it, waiting for its acknowledgement, and the hooks around that. A frozen standby is
//! frozen here once it is ready, and continued when it is to lead.
//!
//! A promotion is beforeLead, the signal, afterLead, the notification. A demotion is the signal, beforeFollow, the notification.
//! Each step is there if it is configured. No change begins before the last one is acknowledged.
//!
//! A notification counts only if it was read after the signal, from a socket that was marked before the signal. A demotion is
//! acknowledged only once every hook and probe of the term is dead (law 8). A promotion with any doubt has failed.

use std::time::Duration;

use super::{State, StopReport, Wanted, Workload, WorkloadEvent};
use crate::{
    config::HookKind,
    link::{Exit, Reason, TermInfo},
    role::Role,
    supervision::{
        hooks::HookRun,
        interface::{Action, ProgramEnv, RoleInput},
        policy::Mode,
    },
    time::Instant,
};

/// Interval between two checks of a workload that is being frozen.
const FREEZING: Duration = Duration::from_millis(1);
/// Interval between two checks of a frozen workload. SIGCHLD tells at once only of the main process.
const LOOKING: Duration = Duration::from_millis(200);

/// A change of role that is under way.
#[derive(Clone, Debug, Hash)]
pub(super) struct Change {
    to: Role,
    /// The term.
    info: Option<TermInfo>,
    /// The signal of a promotion, and the hook, do not begin from this instant on (law 15).
    not_after: Instant,
    /// The reason of the term's end, for the hook.
    reason: Option<Reason>,
    step: Step,
    /// The notification has come, or is not needed.
    word: bool,
    /// No probe of the term runs.
    alone: bool,
    /// Time by which the change must be acknowledged.
    pub(super) until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// The signal is being sent.
    Signal,
    /// The hook runs.
    Hook,
    /// The signal was sent and the hook is over; the notification may be awaited.
    Answer,
}

impl Workload {
    fn change(&mut self) -> Option<&mut Change> {
        if let State::Promoting(change) | State::Demoting(change) = &mut self.state { Some(change) } else { None }
    }

    /// Returns true if the promotion's SIGCONT is still to come (`runs: frozen`).
    pub(super) fn is_to_be_resumed(&self) -> bool {
        self.waits_for_before_lead() || matches!(self.state, State::Promoting(Change { step: Step::Signal, .. }))
    }

    /// Returns true if beforeLead runs beside a standby.
    fn waits_for_before_lead(&self) -> bool {
        self.main.is_some() && matches!(self.state, State::BeforeLead)
    }

    /// Returns true if SIGSTOP has stopped the workload. If it ends now, somebody has killed it.
    pub(super) fn stands_still(&self) -> bool {
        let is_frozen = matches!(self.state, State::Freezing { .. } | State::Frozen { .. });
        is_frozen || self.policy.mode == Mode::Frozen && self.waits_for_before_lead()
    }

    /// Runs beforeLead, if it is configured: alone before a start, or beside a standby before its promotion.
    pub(super) fn run_before_lead(&mut self, now: Instant) -> bool {
        let Wanted::Leader(launch) = &self.wanted else { return false };
        let (told, not_after) = (ProgramEnv { info: launch.info.clone(), ..ProgramEnv::default() }, launch.not_after);
        let runs = self.run_hook(HookKind::BeforeLead, told, not_after, now);
        if runs {
            self.state = State::BeforeLead;
        }
        runs
    }

    /// Runs afterFollow, if it is configured and has not run for the last lead.
    pub(super) fn tell_it_follows(&mut self, now: Instant) {
        let may_run = self.is_down() || self.policy.mode == Mode::Always && self.runs();
        if self.wanted != Wanted::Standby || self.leads || !may_run {
            return;
        }
        let Some(led) = self.led.take() else { return };
        self.has_led = false;
        if self.run_hook(HookKind::AfterFollow, led, Instant::NEVER, now) {
            self.state = State::AfterFollow;
        }
    }

    /// Runs the hook, if it is configured. It does not begin from `not_after` on.
    fn run_hook(&mut self, kind: HookKind, told: ProgramEnv, not_after: Instant, now: Instant) -> bool {
        let kill_margin = self.policy.config.workload.stop.kill_margin;
        self.control = self.policy.hook(kind).map(|hook| HookRun::new(kind, now + hook.timeout, kill_margin));
        let runs = self.control.is_some();
        if runs {
            self.actions.push_back(Action::Hook { hook: kind, told, not_after });
        }
        runs
    }

    /// Tells a standby that it leads.
    pub(super) fn promote(&mut self, now: Instant) {
        let change = self.promotion(now);
        self.tell(change, now);
    }

    /// Promotes a workload that was started as leader. Its environment has told it, so only afterLead is left.
    pub(super) fn started_as_leader(&mut self, now: Instant) {
        self.state = State::Promoting(self.promotion(now));
        self.signalled(now);
    }

    fn promotion(&self, now: Instant) -> Change {
        let launch = self.launch();
        let (info, not_after) =
            (launch.and_then(|launch| launch.info.clone()), launch.map_or(Instant::BOOT, |launch| launch.not_after));
        let until = now + self.policy.promotion_limit();
        Change { to: Role::Leader, info, not_after, reason: None, step: Step::Signal, word: true, alone: true, until }
    }

    /// Tells a leader that it follows, to be acknowledged by `until`. Its hook does not begin from `not_after` on. Returns false
    /// if the workload cannot be told, because it has not yet acknowledged that it leads.
    pub(super) fn demote(&mut self, reason: Reason, info: &TermInfo, until: Instant, not_after: Instant, now: Instant) -> bool {
        let alone = self.policy.mode != Mode::Always || !self.health.is_asking();
        match &mut self.state {
            State::Leading => {
                self.report.began.get_or_insert(now);
                let (to, info, reason) = (Role::Standby, Some(info.clone()), Some(reason));
                self.tell(Change { to, info, not_after, reason, step: Step::Signal, word: true, alone, until }, now);
            }
            State::Demoting(change) => {
                if reason.is_loss() {
                    change.until = until.min(change.until);
                }
            }
            State::Standby | State::BeforeFreeze | State::Freezing { .. } | State::Frozen { .. } => self.demoted(until, now),
            State::AfterFollow if self.main.is_some() => self.demoted(until, now),
            State::BeforeLead
            | State::Promoting(_)
            | State::AfterFollow
            | State::Down
            | State::Waiting { .. }
            | State::Starting { .. }
            | State::Stopping { .. } => return false,
        }
        true
    }

    fn tell(&mut self, mut change: Change, now: Instant) {
        let (to, not_after) = (change.to, change.not_after);
        let resumes = self.policy.mode == Mode::Frozen && to == Role::Leader;
        let asks_for_word = self.policy.asks_for_word() && !resumes;
        change.word = !asks_for_word;
        let signals = &self.policy.config.signals;
        let (state, signal, limit) = match to {
            Role::Leader => (State::Promoting(change), signals.on_lead, Some(not_after)),
            Role::Standby => (State::Demoting(change), signals.on_follow, None),
        };
        self.state = state;
        match self.main.zip(signal) {
            _ if resumes => self.actions.push_back(Action::Resume { not_after }),
            Some((pid, signal)) => self.actions.push_back(Action::TellRole { pid, role: to, signal, not_after: limit }),
            None if asks_for_word => self.actions.push_back(Action::MarkNotify),
            None => self.signalled(now),
        }
    }

    /// Continues with the hook, after the signal (if there is one) was sent.
    fn signalled(&mut self, now: Instant) {
        let (limit, latest) = (now + self.policy.promotion_limit(), self.leads_until());
        let Some(change) = self.change() else { return };
        let kind = match change.to {
            Role::Leader => {
                change.until = limit;
                // The term may have been extended meanwhile.
                change.not_after = latest.unwrap_or(change.not_after);
                HookKind::AfterLead
            }
            Role::Standby => HookKind::BeforeFollow,
        };
        let (told, not_after) = (ProgramEnv { info: change.info.clone(), reason: change.reason, exit: None }, change.not_after);
        let runs = self.run_hook(kind, told, not_after, now);
        if let Some(change) = self.change() {
            change.step = if runs { Step::Hook } else { Step::Answer };
        }
        self.complete(now);
    }

    /// Takes the outcome of telling the workload its role, and its answer.
    pub(crate) fn role(&mut self, input: RoleInput, now: Instant) {
        let step = self.change().map(|change| change.step);
        match input {
            RoleInput::HookForked { pid } => match &mut self.control {
                Some(hook) => hook.pid = Some(pid),
                // A stop began meanwhile.
                None => self.actions.push_back(Action::KillHook { pid }),
            },
            RoleInput::HookNotForked => self.hook_ended(None, now),
            RoleInput::Looked { frozen } => self.looked(frozen, now),
            RoleInput::Continued => {
                if let State::Frozen { look } = &mut self.state {
                    *look = now;
                }
                self.look(now);
            }
            RoleInput::Signalled if step == Some(Step::Signal) => self.signalled(now),
            RoleInput::NotSignalled if step == Some(Step::Signal) => self.not_acknowledged(Reason::NotAcknowledged, now),
            RoleInput::Signalled | RoleInput::NotSignalled => {}
            RoleInput::Notified(role) => {
                let is_told = step.is_some_and(|step| step != Step::Signal);
                if let Some(change) = self.change() {
                    change.word |= is_told && role == change.to;
                }
                self.complete(now);
            }
        }
        if self.runs() {
            self.advance(now);
        }
    }

    /// Takes the end of the hook; none if it never began.
    pub(super) fn hook_ended(&mut self, exit: Option<Exit>, now: Instant) {
        let Some(hook) = self.control.take() else { return };
        let succeeds = hook.succeeds(exit, &self.policy, &mut self.actions);
        let may_start = self.may_start(now);
        match hook.kind {
            HookKind::BeforeLead if !succeeds => self.not_prepared(now),
            HookKind::BeforeLead if self.main.is_some() => self.promote(now),
            HookKind::BeforeLead if may_start => self.spawn(now),
            HookKind::BeforeLead => self.kill_tree(Some(now), now),
            HookKind::AfterFollow => self.followed(now),
            HookKind::AfterLead | HookKind::BeforeFollow if !succeeds => self.not_acknowledged(Reason::HookFailed, now),
            HookKind::AfterLead | HookKind::BeforeFollow => {
                if let Some(change) = self.change() {
                    change.step = Step::Answer;
                }
                self.complete(now);
            }
        }
    }

    /// Fails a lead because of beforeLead. The agent stops a standby; without one, processes that the hook left are killed here.
    fn not_prepared(&mut self, now: Instant) {
        self.wanted = Wanted::Down;
        self.events.push_back(WorkloadEvent::NotPromoted(Reason::HookFailed));
        if self.main.is_none() {
            self.kill_tree(None, now);
        }
    }

    /// Ends afterFollow. Processes that it left count as a standby's.
    fn followed(&mut self, now: Instant) {
        if self.main.is_some() {
            self.state = State::Standby;
        } else {
            self.kill_tree(None, now);
        }
    }

    /// Kills a hook whose time is up; the change fails when the hook ends. Fails a change that was not acknowledged in time.
    /// Returns a line for the log.
    pub(super) fn role_overdue(&mut self, now: Instant) -> Option<&'static str> {
        self.look(now);
        let is_undying = self.control.as_mut().is_some_and(|hook| hook.handle_timeout(now, &mut self.actions));
        if is_undying && matches!(self.state, State::BeforeLead) {
            self.not_prepared(now);
        } else if is_undying && matches!(self.state, State::AfterFollow) {
            self.control = None;
            self.followed(now);
        } else if is_undying && self.is_yielding() {
            // The rest of the grace is the program's.
            self.hook_ended(Some(Exit::Signal(libc::SIGKILL)), now);
        }
        let to = self.change().filter(|change| change.until <= now)?.to;
        self.not_acknowledged(Reason::NotAcknowledged, now);
        match to {
            Role::Leader => Some("the workload did not acknowledge its promotion in time and is stopped"),
            Role::Standby => (self.policy.mode == Mode::Always)
                .then_some("the workload did not acknowledge its demotion in time and is killed"),
        }
    }

    /// Records that no probe of the term runs any more.
    pub(super) fn left_alone(&mut self, now: Instant) {
        if self.change().is_some_and(|change| !std::mem::replace(&mut change.alone, true)) {
            self.complete(now);
        }
    }

    /// Completes the change, once every step of it is done.
    fn complete(&mut self, now: Instant) {
        let Some(&mut Change { to, step: Step::Answer, word: true, alone: true, until, .. }) = self.change() else { return };
        match to {
            Role::Leader => {
                self.state = State::Leading;
                if self.policy.mode == Mode::Frozen {
                    self.health.begin(now);
                }
                self.health.leads(true, now);
                self.events.extend(self.main.map(|pid| WorkloadEvent::Leads { pid }));
            }
            Role::Standby => {
                self.state = State::Standby;
                self.demoted(until, now);
            }
        }
    }

    /// Takes the acknowledgement of a demotion. With `runs: always` that is the proof. Other workloads are now prepared for their
    /// stop, and have until `until`.
    fn demoted(&mut self, until: Instant, now: Instant) {
        if self.policy.mode != Mode::Always {
            return self.ask_to_stop(None, until, now);
        }
        self.report.began.get_or_insert(now);
        self.leads = false;
        self.health.leads(false, now);
        self.yielded(now);
        self.report = StopReport::default();
    }

    /// Fails the change. The workload may lead or not, so it is stopped or killed.
    fn not_acknowledged(&mut self, reason: Reason, now: Instant) {
        let Some(&mut Change { to, until, .. }) = self.change() else { return };
        match to {
            Role::Leader => self.events.push_back(WorkloadEvent::NotPromoted(reason)),
            Role::Standby if self.policy.mode == Mode::Always => self.kill(now),
            Role::Standby => self.ask_to_stop(None, until, now),
        }
    }

    /// Gives up the change, because a stop begins; returns the time by which a demotion had to be acknowledged.
    pub(super) fn abandon_change(&mut self) -> Option<Instant> {
        let change = self.change().map(|change| (change.to, change.step, change.until));
        if let Some((_, Step::Signal, _)) = change {
            self.actions.push_back(Action::KillTeller);
        }
        if let Some(hook) = &mut self.control {
            hook.cut_short(&mut self.actions);
        }
        change.filter(|(to, ..)| *to == Role::Standby).map(|(.., until)| until)
    }

    /// Freezes a workload that is ready, or is to lead: only a Lead may let it run as leader (law 15).
    pub(super) fn freeze(&mut self, now: Instant) {
        let is_due = self.launch().is_some() || self.health.unready().is_none();
        if is_due && matches!(self.state, State::BeforeFreeze) {
            self.health.pause(now, &mut self.actions);
            self.state = State::Freezing { next: None, until: now + self.margin() };
            self.actions.push_back(Action::Freeze);
        }
    }

    fn looked(&mut self, frozen: bool, now: Instant) {
        if !matches!(self.state, State::Freezing { .. } | State::Frozen { .. }) {
            return;
        }
        if frozen {
            self.state = State::Frozen { look: now + LOOKING };
        } else if let State::Freezing { next, until } = &mut self.state
            && now < *until
        {
            *next = Some(now + FREEZING);
        } else {
            // Another one is started after a delay.
            let again_at = self.restarts.delayed(self.since, now);
            self.kill_tree(Some(again_at), now);
            let line =
                "the workload is not frozen, although it does not lead: it cannot be stopped, or was continued, and is killed";
            self.actions.push_back(Action::Warn(line.into()));
        }
    }

    /// Orders the check of a frozen workload that is due.
    fn look(&mut self, now: Instant) {
        if let State::Freezing { next, .. } = &mut self.state {
            self.actions.extend(next.take_if(|at| *at <= now).map(|_| Action::Freeze));
        } else if let State::Frozen { look } = &mut self.state
            && *look <= now
        {
            *look = now + LOOKING;
            self.actions.push_back(Action::LookFrozen);
        }
    }
}
