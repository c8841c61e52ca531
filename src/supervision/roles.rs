//! How a running workload is told its role, and what counts as its answer (`runs: always`); and the hooks around that, which every
//! leader has.
//!
//! A change of role is one sequence: the hook before, the signal, the hook after, the notification, each where it is configured; a
//! demotion has no hook before. No change begins before the last one is acknowledged. A notification counts only if it was read after the signal, from a socket that was marked before
//! it; a demotion's only with every hook and probe of the term dead (law 8). Any doubt about a promotion is its failure.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use super::{Action, Launch, RoleInput, Told, hooks::HookRun, workload::Policy};
use crate::{
    config::HookKind,
    link::{Exit, Reason},
    role::Role,
    time::Instant,
};

/// What is to be done, in order.
type Actions = VecDeque<Action>;

/// From one look at what is being frozen to the next.
const FREEZING: Duration = Duration::from_millis(1);
/// The same for what is frozen: init hears at once only when the main process is continued.
const LOOKING: Duration = Duration::from_millis(200);

/// The role of one incarnation of the workload.
#[derive(Clone, Debug)]
pub(crate) struct Roles {
    policy: Arc<Policy>,
    pid: i32,
    stage: Stage,
}

#[derive(Clone, Debug)]
enum Stage {
    Standby,
    /// One that is to be frozen, and is not ready.
    Warming,
    /// It is being frozen: looked at again at `next`, or being looked at; given up at `until`.
    Freezing {
        next: Option<Instant>,
        until: Instant,
    },
    /// It is frozen, and looked at again then.
    Frozen {
        look: Instant,
    },
    /// One that is told, by afterFollow, what it was.
    Following(HookRun),
    Leader(Launch),
    Changing(Change),
}

/// A role that it is being told.
#[derive(Clone, Debug)]
struct Change {
    to: Role,
    /// The term; a promotion's signal and the hook do not begin at `launch.not_after` or later.
    launch: Launch,
    /// Why the term ends, for the hook.
    reason: Option<Reason>,
    step: Step,
    /// Its notification came, or is not asked for.
    word: bool,
    /// No probe of the term runs.
    alone: bool,
    /// Without its acknowledgement by then the change has failed.
    until: Instant,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// The hook runs that comes before.
    Before(HookRun),
    /// The signal is being sent.
    Signal,
    /// The hook runs.
    Hook(HookRun),
    /// All was said; at most its notification is awaited.
    Answer,
}

/// What an input led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing yet.
    Pending,
    /// It leads, and has acknowledged that.
    Promoted,
    /// It has acknowledged that it does not lead: the proof if it runs always. Others are only prepared for their stop, and have
    /// until then.
    Demoted(Instant),
    /// It may lead or not.
    NotPromoted(Reason),
    /// It may lead on, until then at the longest.
    NotDemoted(Instant),
    /// It should be frozen, and is not.
    Unfrozen,
}

impl Change {
    const fn to(to: Role, launch: Launch, reason: Option<Reason>, until: Instant) -> Self {
        Self { to, launch, reason, step: Step::Signal, word: true, alone: true, until }
    }
}

impl Roles {
    /// What was started as a standby.
    pub(crate) fn standby(policy: Arc<Policy>, pid: i32) -> Self {
        let stage = if policy.frozen { Stage::Warming } else { Stage::Standby };
        Self { policy, pid, stage }
    }

    /// What was started as a leader: its environment has told it, so only the hook is left to run.
    pub(crate) fn leader(policy: Arc<Policy>, pid: i32, launch: Launch, now: Instant, out: &mut Actions) -> (Self, Outcome) {
        let change = Change::to(Role::Leader, launch, None, now + policy.promotion_patience());
        let mut roles = Self { policy, pid, stage: Stage::Changing(change) };
        let outcome = roles.signalled(now, out);
        (roles, outcome)
    }

    /// Whether it is a standby that can be promoted.
    pub(crate) fn is_standby(&self) -> bool {
        matches!(self.stage, Stage::Standby | Stage::Frozen { .. })
    }

    /// Whether it is to be frozen once it is ready.
    pub(crate) fn is_warming(&self) -> bool {
        matches!(self.stage, Stage::Warming)
    }

    /// Whether a signal would reach one that has not been continued by a Lead (law 8).
    pub(crate) fn is_frozen(&self) -> bool {
        match &self.stage {
            Stage::Warming | Stage::Freezing { .. } | Stage::Frozen { .. } => true,
            Stage::Changing(Change { to: Role::Leader, step: Step::Before(_) | Step::Signal, .. }) => self.policy.frozen,
            Stage::Standby | Stage::Following(_) | Stage::Leader(_) | Stage::Changing(_) => false,
        }
    }

    /// Whether it was stopped, and not continued since: its end is none of its own.
    pub(crate) fn stands_still(&self) -> bool {
        match &self.stage {
            Stage::Freezing { .. } | Stage::Frozen { .. } => true,
            Stage::Changing(Change { to: Role::Leader, step: Step::Before(_), .. }) => self.policy.frozen,
            Stage::Standby | Stage::Warming | Stage::Following(_) | Stage::Leader(_) | Stage::Changing(_) => false,
        }
    }

    /// Freezes what is warm, or has to lead.
    pub(crate) fn freeze(&mut self, now: Instant, out: &mut Actions) {
        self.stage = Stage::Freezing { next: None, until: now + self.policy.config.stop.kill_margin };
        out.push_back(Action::Freeze);
    }

    fn looked(&mut self, frozen: bool, now: Instant) -> Outcome {
        match &mut self.stage {
            Stage::Freezing { .. } | Stage::Frozen { .. } if frozen => self.stage = Stage::Frozen { look: now + LOOKING },
            Stage::Freezing { next, until } if now < *until => *next = Some(now + FREEZING),
            Stage::Freezing { .. } | Stage::Frozen { .. } => return Outcome::Unfrozen,
            Stage::Standby | Stage::Warming | Stage::Following(_) | Stage::Leader(_) | Stage::Changing(_) => {}
        }
        Outcome::Pending
    }

    /// Looks at what is frozen.
    fn look(&mut self, now: Instant, out: &mut Actions) {
        match &mut self.stage {
            Stage::Freezing { next, .. } => out.extend(next.take_if(|at| *at <= now).map(|_| Action::Freeze)),
            Stage::Frozen { look } if *look <= now => {
                *look = now + LOOKING;
                out.push_back(Action::LookFrozen);
            }
            Stage::Frozen { .. }
            | Stage::Standby
            | Stage::Warming
            | Stage::Following(_)
            | Stage::Leader(_)
            | Stage::Changing(_) => {}
        }
    }

    /// Which role's signal rewriting applies.
    pub(crate) fn role(&self) -> Role {
        match &self.stage {
            Stage::Standby | Stage::Warming | Stage::Freezing { .. } | Stage::Frozen { .. } | Stage::Following(_) => {
                Role::Standby
            }
            Stage::Leader(_) => Role::Leader,
            Stage::Changing(change) => change.to,
        }
    }

    /// Whether it leads, and its promotion is over.
    pub(crate) const fn is_leader(&self) -> bool {
        matches!(self.stage, Stage::Leader(_))
    }

    /// By when it has to have acknowledged its demotion, if it is being demoted.
    pub(crate) fn yields_by(&self) -> Option<Instant> {
        self.change().filter(|change| change.to == Role::Standby).map(|change| change.until)
    }

    /// What is being prepared for its stop may take until then.
    pub(crate) fn yield_later(&mut self, until: Instant) {
        if let Stage::Changing(change) = &mut self.stage
            && change.to == Role::Standby
        {
            change.until = change.until.max(until);
        }
    }

    /// Whether this is the hook's process.
    pub(crate) fn is_hook(&self, id: i32) -> bool {
        self.hook().is_some_and(|hook| hook.is(id))
    }

    fn change(&self) -> Option<&Change> {
        match &self.stage {
            Stage::Changing(change) => Some(change),
            Stage::Standby
            | Stage::Warming
            | Stage::Freezing { .. }
            | Stage::Frozen { .. }
            | Stage::Following(_)
            | Stage::Leader(_) => None,
        }
    }

    fn hook(&self) -> Option<&HookRun> {
        match &self.stage {
            Stage::Following(hook) | Stage::Changing(Change { step: Step::Before(hook) | Step::Hook(hook), .. }) => Some(hook),
            Stage::Changing(Change { step: Step::Signal | Step::Answer, .. })
            | Stage::Standby
            | Stage::Warming
            | Stage::Freezing { .. }
            | Stage::Frozen { .. }
            | Stage::Leader(_) => None,
        }
    }

    fn hook_mut(&mut self) -> Option<&mut HookRun> {
        match &mut self.stage {
            Stage::Following(hook) | Stage::Changing(Change { step: Step::Before(hook) | Step::Hook(hook), .. }) => Some(hook),
            Stage::Changing(Change { step: Step::Signal | Step::Answer, .. })
            | Stage::Standby
            | Stage::Warming
            | Stage::Freezing { .. }
            | Stage::Frozen { .. }
            | Stage::Leader(_) => None,
        }
    }

    /// Tells a standby that it leads.
    pub(crate) fn promote(&mut self, launch: Launch, now: Instant, out: &mut Actions) -> Outcome {
        let until = now + self.policy.promotion_patience();
        let told = Told { info: launch.info.clone(), ..Told::default() };
        let before = HookRun::start(HookKind::BeforeLead, &self.policy, told, launch.not_after, now, out);
        let change = Change::to(Role::Leader, launch, None, until);
        match before {
            Some(hook) => {
                self.stage = Stage::Changing(Change { step: Step::Before(hook), ..change });
                Outcome::Pending
            }
            None => self.tell(change, now, out),
        }
    }

    /// The term was extended: what has not been told yet has more time.
    pub(crate) fn extend(&mut self, launch: &Launch) {
        if let Stage::Changing(Change { to: Role::Leader, step: Step::Before(_), launch: old, .. }) = &mut self.stage {
            old.clone_from(launch);
        }
    }

    /// This hook runs beside a standby that has led.
    pub(crate) fn follow(&mut self, hook: HookRun) {
        self.stage = Stage::Following(hook);
    }

    /// It is to lead, and does not wait for afterFollow.
    pub(crate) fn hasten(&mut self, out: &mut Actions) {
        if let Stage::Following(hook) = &mut self.stage {
            hook.call_off(out);
        }
    }

    /// Tells a leader that it follows, which it has to acknowledge by `until`; its hook does not begin at `not_after` or later.
    /// None: it cannot be told, because it has not yet acknowledged that it leads. Unless it is `alone`, it follows once it is.
    pub(crate) fn demote(
        &mut self,
        reason: Reason,
        alone: bool,
        until: Instant,
        not_after: Instant,
        now: Instant,
        out: &mut Actions,
    ) -> Option<Outcome> {
        match &mut self.stage {
            Stage::Standby | Stage::Warming | Stage::Freezing { .. } | Stage::Frozen { .. } | Stage::Following(_) => {
                Some(Outcome::Demoted(until))
            }
            Stage::Leader(launch) => {
                let launch = Launch { not_after, ..launch.clone() };
                let change = Change { alone, ..Change::to(Role::Standby, launch, Some(reason), until) };
                Some(self.tell(change, now, out))
            }
            Stage::Changing(change) => match change.to {
                Role::Leader => None,
                Role::Standby => {
                    if reason.is_loss() {
                        change.until = until.min(change.until);
                    }
                    Some(Outcome::Pending)
                }
            },
        }
    }

    fn tell(&mut self, mut change: Change, now: Instant, out: &mut Actions) -> Outcome {
        let asks_for_word = self.policy.asks_for_word();
        let (role, not_after) = (change.to, change.launch.not_after);
        if self.policy.frozen && role == Role::Leader {
            self.stage = Stage::Changing(change);
            out.push_back(Action::Thaw { not_after });
            return Outcome::Pending;
        }
        let (signal, not_after) = match role {
            Role::Leader => (self.policy.signals.on_lead, Some(not_after)),
            Role::Standby => (self.policy.signals.on_follow, None),
        };
        change.word = !asks_for_word;
        self.stage = Stage::Changing(change);
        match signal {
            Some(signal) => out.push_back(Action::TellRole { pid: self.pid, role, signal, not_after }),
            None if asks_for_word => out.push_back(Action::MarkNotify),
            None => return self.signalled(now, out),
        }
        Outcome::Pending
    }

    /// The workload is stopped: there is no role left to tell it, nor for a hook to prepare.
    pub(crate) fn abandon(&mut self, out: &mut Actions) {
        if self.change().is_some_and(|change| change.step == Step::Signal) {
            out.push_back(Action::CallOff);
        } else if let Some(hook) = self.hook_mut() {
            hook.kill(out);
        }
    }

    /// Takes in the outcome of telling it, and what it answered.
    pub(crate) fn handle(&mut self, input: RoleInput, now: Instant, out: &mut Actions) -> Outcome {
        match input {
            RoleInput::HookForked { pid } => self.hook_mut().into_iter().for_each(|hook| hook.forked(pid)),
            RoleInput::HookNotForked => return self.hook_ended(None, now, out),
            RoleInput::Looked { frozen } => return self.looked(frozen, now),
            RoleInput::Stirred => {
                if let Stage::Frozen { look } = &mut self.stage {
                    *look = now;
                }
                self.look(now, out);
            }
            RoleInput::Signalled | RoleInput::NotSignalled | RoleInput::Notified(_) => {}
        }
        let Stage::Changing(change) = &mut self.stage else { return Outcome::Pending };
        let is_told = matches!(change.step, Step::Hook(_) | Step::Answer);
        match input {
            RoleInput::Signalled if change.step == Step::Signal => return self.signalled(now, out),
            RoleInput::NotSignalled if change.step == Step::Signal => return self.failed(Reason::NotAcknowledged),
            RoleInput::Notified(role) => change.word |= is_told && role == change.to,
            RoleInput::Signalled
            | RoleInput::NotSignalled
            | RoleInput::HookForked { .. }
            | RoleInput::HookNotForked
            | RoleInput::Looked { .. }
            | RoleInput::Stirred => {}
        }
        self.settle()
    }

    /// No probe of the term runs any more.
    pub(crate) fn left_alone(&mut self) -> Outcome {
        if let Stage::Changing(change) = &mut self.stage
            && !std::mem::replace(&mut change.alone, true)
        {
            return self.settle();
        }
        Outcome::Pending
    }

    /// The hook ended; none: it never began.
    pub(crate) fn hook_ended(&mut self, exit: Option<Exit>, now: Instant, out: &mut Actions) -> Outcome {
        let Some(succeeds) = self.hook().map(|hook| hook.succeeds(exit, &self.policy, out)) else { return Outcome::Pending };
        let Stage::Changing(change) = &mut self.stage else {
            self.stage = Stage::Standby;
            return Outcome::Pending;
        };
        if !succeeds {
            // What is frozen is known as that by its step: it is stopped now.
            return self.failed(Reason::HookFailed);
        }
        match std::mem::replace(&mut change.step, Step::Answer) {
            Step::Before(_) => {
                let until = now + self.policy.promotion_patience();
                let change = Change::to(Role::Leader, change.launch.clone(), None, until);
                self.tell(change, now, out)
            }
            Step::Hook(_) | Step::Signal | Step::Answer => self.settle(),
        }
    }

    pub(crate) fn due(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Standby | Stage::Warming | Stage::Leader(_) => None,
            Stage::Freezing { next, .. } => *next,
            Stage::Frozen { look } => Some(*look),
            Stage::Following(hook) => Some(hook.due()),
            Stage::Changing(change) => Some(change.until.or_earlier(self.hook().and_then(HookRun::kill_due))),
        }
    }

    /// Kills a hook whose time is up; its end is its failure. Gives up a change that was not acknowledged.
    pub(crate) fn handle_timeout(&mut self, now: Instant, out: &mut Actions) -> Outcome {
        self.look(now, out);
        let is_undying = self.hook_mut().is_some_and(|hook| hook.handle_timeout(now, out));
        if is_undying && let Stage::Following(_) = self.stage {
            // What it left is a standby's.
            self.stage = Stage::Standby;
        }
        let is_over = self.change().is_some_and(|change| change.until <= now);
        if is_over { self.failed(Reason::NotAcknowledged) } else { Outcome::Pending }
    }

    /// The signal, if there is one, was sent.
    fn signalled(&mut self, now: Instant, out: &mut Actions) -> Outcome {
        let Stage::Changing(change) = &mut self.stage else { return Outcome::Pending };
        if change.to == Role::Leader {
            change.until = now + self.policy.promotion_patience();
        }
        let kind = hook_of(change.to);
        let told = Told { info: change.launch.info.clone(), reason: change.reason, exit: None };
        let hook = HookRun::start(kind, &self.policy, told, change.launch.not_after, now, out);
        change.step = hook.map_or(Step::Answer, Step::Hook);
        self.settle()
    }

    fn failed(&self, reason: Reason) -> Outcome {
        match self.role() {
            Role::Leader => Outcome::NotPromoted(reason),
            Role::Standby => Outcome::NotDemoted(self.yields_by().unwrap_or(Instant::BOOT)),
        }
    }

    fn settle(&mut self) -> Outcome {
        let Stage::Changing(Change { to, launch, step: Step::Answer, word: true, alone: true, until, .. }) = &self.stage else {
            return Outcome::Pending;
        };
        let (stage, outcome) = match to {
            Role::Leader => (Stage::Leader(launch.clone()), Outcome::Promoted),
            Role::Standby => (Stage::Standby, Outcome::Demoted(*until)),
        };
        self.stage = stage;
        outcome
    }
}

const fn hook_of(role: Role) -> HookKind {
    match role {
        Role::Leader => HookKind::AfterLead,
        Role::Standby => HookKind::BeforeFollow,
    }
}
