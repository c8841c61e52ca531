//! How a running workload is told its role, and what counts as its answer (`runs: always`).
//!
//! A change of role is one sequence: the signal, the hook, the notification, each where it is configured. No change begins before
//! the last one is acknowledged. A notification counts only if it was read after the signal, from a socket that was marked before
//! it; a demotion's only with every hook and probe of the term dead (law 8). Any doubt about a promotion is its failure.

use std::{collections::VecDeque, sync::Arc};

use super::{Action, Launch, RoleInput, workload::Policy};
use crate::{
    config::HookKind,
    link::{Exit, Reason},
    role::Role,
    time::Instant,
};

/// What is to be done, in order.
type Actions = VecDeque<Action>;

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
    /// The signal is being sent.
    Signal,
    /// The hook runs, with this id once it has forked. At `kill_at` it is killed; none if it was.
    Hook { pid: Option<i32>, kill_at: Option<Instant> },
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
    /// It has acknowledged that it does not lead: the proof.
    Demoted,
    /// It may lead or not.
    NotPromoted(Reason),
    /// It may lead on.
    NotDemoted,
}

impl Change {
    const fn to(to: Role, launch: Launch, reason: Option<Reason>, until: Instant) -> Self {
        Self { to, launch, reason, step: Step::Signal, word: true, alone: true, until }
    }
}

impl Roles {
    /// What was started as a standby.
    pub(crate) const fn standby(policy: Arc<Policy>, pid: i32) -> Self {
        Self { policy, pid, stage: Stage::Standby }
    }

    /// What was started as a leader: its environment has told it, so only the hook is left to run.
    pub(crate) fn leader(policy: Arc<Policy>, pid: i32, launch: Launch, now: Instant, out: &mut Actions) -> (Self, Outcome) {
        let change = Change::to(Role::Leader, launch, None, now + policy.promotion_patience());
        let mut roles = Self { policy, pid, stage: Stage::Changing(change) };
        let outcome = roles.signalled(now, out);
        (roles, outcome)
    }

    /// Whether it is a standby.
    pub(crate) fn is_standby(&self) -> bool {
        matches!(self.stage, Stage::Standby)
    }

    /// Which role's signal rewriting applies.
    pub(crate) fn role(&self) -> Role {
        match &self.stage {
            Stage::Standby => Role::Standby,
            Stage::Leader(_) => Role::Leader,
            Stage::Changing(change) => change.to,
        }
    }

    /// By when it has to have acknowledged its demotion, if it is being demoted.
    pub(crate) fn yields_by(&self) -> Option<Instant> {
        self.change().filter(|change| change.to == Role::Standby).map(|change| change.until)
    }

    /// Whether this is the hook's process.
    pub(crate) fn is_hook(&self, id: i32) -> bool {
        self.change().is_some_and(|change| matches!(change.step, Step::Hook { pid: Some(pid), .. } if pid == id))
    }

    fn change(&self) -> Option<&Change> {
        match &self.stage {
            Stage::Changing(change) => Some(change),
            Stage::Standby | Stage::Leader(_) => None,
        }
    }

    /// Tells a standby that it leads.
    pub(crate) fn promote(&mut self, launch: Launch, now: Instant, out: &mut Actions) -> Outcome {
        let until = now + self.policy.promotion_patience();
        self.tell(Change::to(Role::Leader, launch, None, until), now, out)
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
            Stage::Standby => Some(Outcome::Demoted),
            Stage::Leader(launch) => {
                let launch = Launch { not_after, ..launch.clone() };
                let change = Change { alone, ..Change::to(Role::Standby, launch, Some(reason), until) };
                Some(self.tell(change, now, out))
            }
            Stage::Changing(change) => match change.to {
                Role::Leader => None,
                Role::Standby => {
                    change.until = until.min(change.until);
                    Some(Outcome::Pending)
                }
            },
        }
    }

    fn tell(&mut self, mut change: Change, now: Instant, out: &mut Actions) -> Outcome {
        let asks_for_word = self.policy.asks_for_word();
        let (role, not_after) = (change.to, change.launch.not_after);
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
    pub(crate) fn abandon(&self, out: &mut Actions) {
        match self.change().map(|change| &change.step) {
            Some(Step::Signal) => out.push_back(Action::CallOff),
            Some(Step::Hook { pid: Some(pid), .. }) => out.push_back(Action::KillHook { pid: *pid }),
            Some(Step::Hook { pid: None, .. } | Step::Answer) | None => {}
        }
    }

    /// Takes in the outcome of telling it, and what it answered.
    pub(crate) fn handle(&mut self, input: RoleInput, now: Instant, out: &mut Actions) -> Outcome {
        let Stage::Changing(change) = &mut self.stage else { return Outcome::Pending };
        let is_told = change.step != Step::Signal;
        match input {
            RoleInput::Signalled if !is_told => return self.signalled(now, out),
            RoleInput::NotSignalled if !is_told => return self.failed(Reason::NotAcknowledged),
            RoleInput::Signalled | RoleInput::NotSignalled => {}
            RoleInput::HookForked { pid: forked } => {
                if let Step::Hook { pid, .. } = &mut change.step {
                    *pid = Some(forked);
                }
            }
            RoleInput::HookNotForked => return self.hook_ended(None, out),
            RoleInput::Notified(role) => change.word |= is_told && role == change.to,
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
    pub(crate) fn hook_ended(&mut self, exit: Option<Exit>, out: &mut Actions) -> Outcome {
        let Stage::Changing(change) = &mut self.stage else { return Outcome::Pending };
        let kind = hook_of(change.to);
        let step = std::mem::replace(&mut change.step, Step::Answer);
        let how = match exit {
            Some(Exit::Code(0)) => return self.settle(),
            None => "it could not be started".into(),
            Some(_) if matches!(step, Step::Hook { kill_at: None, .. }) => {
                format!("it was not over within hooks.{}.timeout, and was killed", kind.name())
            }
            Some(exit) => exit.to_string(),
        };
        let line = format!("hook {} failed: {how}", kind.name());
        out.push_back(Action::Warn(line));
        self.failed(Reason::HookFailed)
    }

    pub(crate) fn due(&self) -> Option<Instant> {
        let change = self.change()?;
        let kill_at = if let Step::Hook { kill_at, .. } = change.step { kill_at } else { None };
        Some(change.until.or_earlier(kill_at))
    }

    /// Kills a hook whose time is up; its end is its failure. Gives up a change that was not acknowledged.
    pub(crate) fn handle_timeout(&mut self, now: Instant, out: &mut Actions) -> Outcome {
        let Stage::Changing(change) = &mut self.stage else { return Outcome::Pending };
        if let Step::Hook { pid, kill_at } = &mut change.step
            && kill_at.take_if(|at| *at <= now).is_some()
        {
            out.extend(pid.map(|pid| Action::KillHook { pid }));
        }
        if now < change.until { Outcome::Pending } else { self.failed(Reason::NotAcknowledged) }
    }

    /// The signal, if there is one, was sent.
    fn signalled(&mut self, now: Instant, out: &mut Actions) -> Outcome {
        let Stage::Changing(change) = &mut self.stage else { return Outcome::Pending };
        if change.to == Role::Leader {
            change.until = now + self.policy.promotion_patience();
        }
        let kind = hook_of(change.to);
        change.step = match kind.of(&self.policy.hooks) {
            Some(hook) => {
                let Launch { info, not_after } = change.launch.clone();
                out.push_back(Action::Hook { hook: kind, info, reason: change.reason, not_after });
                Step::Hook { pid: None, kill_at: Some(now + hook.timeout) }
            }
            None => Step::Answer,
        };
        self.settle()
    }

    fn failed(&self, reason: Reason) -> Outcome {
        match self.role() {
            Role::Leader => Outcome::NotPromoted(reason),
            Role::Standby => Outcome::NotDemoted,
        }
    }

    fn settle(&mut self) -> Outcome {
        let Stage::Changing(Change { to, launch, step: Step::Answer, word: true, alone: true, .. }) = &self.stage else {
            return Outcome::Pending;
        };
        let (stage, outcome) = match to {
            Role::Leader => (Stage::Leader(launch.clone()), Outcome::Promoted),
            Role::Standby => (Stage::Standby, Outcome::Demoted),
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
