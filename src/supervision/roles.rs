//! How a running workload is told its role, and what counts as its answer (`runs: always`).
//!
//! No role signal is sent before the previous one is acknowledged. A notification counts only if it was read after the signal,
//! from a socket that was drained before it; a demotion's only with every hook of the term dead (law 8).

use std::{collections::VecDeque, sync::Arc, time::Duration};

use super::{Action, Launch, RoleInput};
use crate::{
    config::{Acknowledge, HookKind, Hooks, Signals},
    link::{Exit, Reason},
    role::Role,
    time::Instant,
};

/// What the settings say about roles.
#[derive(Clone, Debug)]
pub(crate) struct RolePolicy {
    pub(crate) acknowledge: Acknowledge,
    pub(crate) signals: Signals,
    pub(crate) hooks: Hooks,
    /// How long a promotion's signal may take to be sent, and then the workload to acknowledge it. A leader that is silent for
    /// longer is of less use than one that crashed.
    pub(crate) patience: Duration,
    /// From SIGKILL until everything is dead.
    pub(crate) margin: Duration,
}

impl RolePolicy {
    /// When a promotion has failed whose signal, if any, was sent at `now`.
    fn gives_up(&self, word: bool, now: Instant) -> Option<Instant> {
        match self.acknowledge {
            Acknowledge::Hook => self.hooks.after_lead.as_ref().map(|hook| now + hook.timeout + self.margin),
            Acknowledge::Notify | Acknowledge::None => (!word).then_some(now + self.patience),
        }
    }
}

/// The role of one incarnation of the workload.
#[derive(Clone, Debug)]
pub(crate) struct Roles {
    policy: Arc<RolePolicy>,
    pid: i32,
    stage: Stage,
    /// Its notification came, or is not asked for.
    word: bool,
    /// When a promotion has failed for want of that notification, of its signal, or of the end of a hook that does not even die.
    give_up: Option<Instant>,
    hook: Option<Running>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    Standby,
    /// The signal is being sent, until this instant at most.
    Signalled {
        launch: Launch,
        until: Instant,
        /// An attempt was killed, and may have sent it.
        told: bool,
    },
    Promoting(Launch),
    Leader(Launch),
    /// To be demoted as soon as the promotion's hook is dead.
    AwaitingHook(Launch, Reason),
    /// Until the signal, if any, was sent, with what the hook will be told.
    Demoting(Option<(Launch, Reason)>),
}

#[derive(Clone, Debug)]
struct Running {
    kind: HookKind,
    pid: Option<i32>,
    kill_at: Option<Instant>,
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
    /// It could not be told, or did not acknowledge it.
    Failed(Reason),
}

impl Roles {
    /// What was started as a standby.
    pub(crate) const fn standby(policy: Arc<RolePolicy>, pid: i32) -> Self {
        Self { policy, pid, stage: Stage::Standby, word: true, give_up: None, hook: None }
    }

    /// What was started as a leader: its environment has told it, so only the hook is left to run.
    pub(crate) fn leader(
        policy: Arc<RolePolicy>,
        pid: i32,
        launch: Launch,
        now: Instant,
        out: &mut VecDeque<Action>,
    ) -> (Self, Outcome) {
        let mut roles = Self { stage: Stage::Promoting(launch.clone()), ..Self::standby(policy, pid) };
        roles.run(HookKind::AfterLead, &launch, None, now, out);
        roles.give_up = roles.policy.gives_up(true, now);
        let outcome = roles.settle();
        (roles, outcome)
    }

    /// Takes in the outcome of telling it, and what it answered.
    pub(crate) fn handle(&mut self, input: RoleInput, now: Instant, out: &mut VecDeque<Action>) -> Outcome {
        match input {
            RoleInput::Promoted => self.promoted(now, out),
            RoleInput::PromotionLate => self.promotion_late(now, out),
            RoleInput::PromotionKilled => self.promotion_killed(now, out),
            RoleInput::NotPromoted => self.not_promoted(),
            RoleInput::Demoted => self.demoted(now, out),
            RoleInput::NotDemoted => self.not_demoted(),
            RoleInput::NotDrained => self.not_drained(),
            RoleInput::HookForked { pid } => self.hook_forked(pid, out),
            RoleInput::HookNotForked => self.hook_ended(None, now, out),
            RoleInput::Notified(role) => self.notified(role),
        }
    }

    /// Whether it is a standby, and no hook runs.
    pub(crate) fn is_standby(&self) -> bool {
        self.stage == Stage::Standby && self.hook.is_none()
    }

    /// Which role's signal rewriting applies.
    pub(crate) fn role(&self) -> Role {
        match self.stage {
            Stage::Standby | Stage::Demoting(_) => Role::Standby,
            Stage::Signalled { .. } | Stage::Promoting(_) | Stage::Leader(_) | Stage::AwaitingHook(..) => Role::Leader,
        }
    }

    /// Tells a standby that it leads.
    pub(crate) fn promote(&mut self, launch: Launch, now: Instant, out: &mut VecDeque<Action>) -> Outcome {
        self.word = self.policy.acknowledge != Acknowledge::Notify;
        let until = now + self.policy.patience;
        let not_after = launch.not_after.min(until);
        self.stage = Stage::Signalled { launch, until, told: false };
        self.give_up = Some(until + self.policy.margin);
        let Some(signal) = self.policy.signals.on_lead else {
            out.push_back(Action::DrainNotify);
            return self.promoted(now, out);
        };
        out.push_back(Action::Promote { pid: self.pid, signal, not_after });
        Outcome::Pending
    }

    /// S has moved on: what is not begun yet, or is tried again, goes by it.
    pub(crate) fn follow_soft(&mut self, soft: Instant) {
        match &mut self.stage {
            Stage::Signalled { launch, .. } | Stage::Promoting(launch) => launch.not_after = soft,
            Stage::Standby | Stage::Leader(_) | Stage::AwaitingHook(..) | Stage::Demoting(_) => {}
        }
    }

    /// The workload is stopped: there is no role left to tell it, nor for a hook to prepare.
    pub(crate) fn abandon(&self, out: &mut VecDeque<Action>) {
        match self.stage {
            Stage::Signalled { .. } => out.push_back(Action::CallOff),
            Stage::Standby | Stage::Promoting(_) | Stage::Leader(_) | Stage::AwaitingHook(..) | Stage::Demoting(_) => {}
        }
        out.extend(self.hook.as_ref().and_then(|hook| hook.pid).map(|pid| Action::KillHook { pid }));
    }

    /// The promotion signal was not sent before S as it was then. It is tried again if S has moved on since.
    fn promotion_late(&mut self, now: Instant, out: &mut VecDeque<Action>) -> Outcome {
        if self.promotes_again(now, out) || !matches!(self.stage, Stage::Signalled { .. }) {
            return Outcome::Pending;
        }
        let line = "the workload did not handle signals.onLead in time".into();
        out.push_back(Action::Warn(line));
        self.not_promoted()
    }

    /// It is unknown whether the promotion signal was sent. It is sent again if there is time; if not, the workload may lead, and
    /// is no standby until it has died.
    fn promotion_killed(&mut self, now: Instant, out: &mut VecDeque<Action>) -> Outcome {
        if let Stage::Signalled { told, .. } = &mut self.stage {
            *told = true;
        }
        self.promotes_again(now, out);
        Outcome::Pending
    }

    fn promotes_again(&self, now: Instant, out: &mut VecDeque<Action>) -> bool {
        let (Stage::Signalled { launch, until, .. }, Some(signal)) = (&self.stage, self.policy.signals.on_lead) else {
            return false;
        };
        let not_after = launch.not_after.min(*until);
        let in_time = now < not_after;
        if in_time {
            out.push_back(Action::Promote { pid: self.pid, signal, not_after });
        }
        in_time
    }

    /// The promotion signal was sent.
    fn promoted(&mut self, now: Instant, out: &mut VecDeque<Action>) -> Outcome {
        let Stage::Signalled { launch, .. } = &self.stage else { return Outcome::Pending };
        let launch = launch.clone();
        self.stage = Stage::Promoting(launch.clone());
        self.give_up = self.policy.gives_up(self.word, now);
        self.run(HookKind::AfterLead, &launch, None, now, out);
        self.settle()
    }

    /// This attempt did not send the promotion signal, and there will be no other. If none before it can have sent it either, the
    /// workload was told nothing, and is still a standby.
    fn not_promoted(&mut self) -> Outcome {
        let Stage::Signalled { told, .. } = self.stage else { return Outcome::Pending };
        if !told {
            (self.stage, self.give_up) = (Stage::Standby, None);
        }
        Outcome::Failed(Reason::NotAcknowledged)
    }

    /// The demotion signal was sent.
    fn demoted(&mut self, now: Instant, out: &mut VecDeque<Action>) -> Outcome {
        let Stage::Demoting(untold) = &mut self.stage else { return Outcome::Pending };
        if let Some((launch, reason)) = untold.take() {
            self.run(HookKind::BeforeFollow, &launch, Some(reason), now, out);
        }
        self.settle()
    }

    /// The demotion signal cannot be sent.
    fn not_demoted(&self) -> Outcome {
        match self.stage {
            Stage::Demoting(Some(_)) => Outcome::Failed(Reason::NotAcknowledged),
            Stage::Standby
            | Stage::Signalled { .. }
            | Stage::Promoting(_)
            | Stage::Leader(_)
            | Stage::AwaitingHook(..)
            | Stage::Demoting(None) => Outcome::Pending,
        }
    }

    /// Tells a leader that it follows; its hook does not begin at `not_after` or later. None: it cannot be told, because it has not
    /// yet acknowledged that it leads.
    pub(crate) fn demote(
        &mut self,
        reason: Reason,
        not_after: Instant,
        now: Instant,
        out: &mut VecDeque<Action>,
    ) -> Option<Outcome> {
        match &self.stage {
            Stage::Signalled { .. } | Stage::Promoting(_) => None,
            Stage::Standby | Stage::AwaitingHook(..) | Stage::Demoting(_) => Some(self.settle()),
            Stage::Leader(launch) => {
                self.stage = Stage::AwaitingHook(Launch { not_after, ..launch.clone() }, reason);
                if let Some(hook) = &mut self.hook {
                    hook.kill_at = None;
                    out.extend(hook.pid.map(|pid| Action::KillHook { pid }));
                    return Some(Outcome::Pending);
                }
                Some(self.begin_demotion(now, out))
            }
        }
    }

    /// A notification from the workload itself.
    fn notified(&mut self, role: Role) -> Outcome {
        let expected = match self.stage {
            Stage::Promoting(_) => role == Role::Leader,
            Stage::Demoting(_) => role == Role::Standby,
            Stage::Signalled { .. } | Stage::Standby | Stage::Leader(_) | Stage::AwaitingHook(..) => return Outcome::Pending,
        };
        self.word |= expected;
        self.settle()
    }

    /// Notifications from before the signal may be left, and cannot be told from later ones: none counts.
    fn not_drained(&self) -> Outcome {
        match self.stage {
            Stage::Promoting(_) | Stage::Demoting(_) if !self.word => Outcome::Failed(Reason::NotAcknowledged),
            Stage::Standby
            | Stage::Signalled { .. }
            | Stage::Promoting(_)
            | Stage::Leader(_)
            | Stage::AwaitingHook(..)
            | Stage::Demoting(_) => Outcome::Pending,
        }
    }

    fn hook_forked(&mut self, pid: i32, out: &mut VecDeque<Action>) -> Outcome {
        if let Some(hook) = &mut self.hook {
            hook.pid = Some(pid);
            if matches!(self.stage, Stage::AwaitingHook(..)) {
                out.push_back(Action::KillHook { pid });
            }
        }
        Outcome::Pending
    }

    /// Whether this is the hook's process.
    pub(crate) fn is_hook(&self, pid: i32) -> bool {
        self.hook.as_ref().is_some_and(|hook| hook.pid == Some(pid))
    }

    /// The hook ended; none: it never began.
    pub(crate) fn hook_ended(&mut self, exit: Option<Exit>, now: Instant, out: &mut VecDeque<Action>) -> Outcome {
        let Some(hook) = self.hook.take() else { return Outcome::Pending };
        if matches!(self.stage, Stage::AwaitingHook(..)) {
            return self.begin_demotion(now, out);
        }
        if exit != Some(Exit::Code(0)) {
            let how = match exit {
                None => "it could not be started".into(),
                Some(_) if hook.kill_at.is_none() => {
                    format!("it was not over within hooks.{}.timeout, and was killed", hook.kind.name())
                }
                Some(exit) => exit.to_string(),
            };
            let line = format!("hook {} failed: {how}", hook.kind.name());
            out.push_back(Action::Warn(line));
            let decisive = match hook.kind {
                HookKind::AfterLead => self.policy.acknowledge == Acknowledge::Hook,
                HookKind::BeforeFollow => true,
            };
            if decisive {
                return Outcome::Failed(Reason::HookFailed);
            }
        }
        self.settle()
    }

    pub(crate) fn due(&self) -> Option<Instant> {
        let hook = self.hook.as_ref().and_then(|hook| hook.kill_at);
        [hook, self.give_up].into_iter().flatten().min()
    }

    /// Kills a hook whose time is up; its end is its failure. Gives up a promotion that was not acknowledged.
    pub(crate) fn handle_timeout(&mut self, now: Instant, out: &mut VecDeque<Action>) -> Outcome {
        if let Some(hook) = &mut self.hook
            && hook.kill_at.take_if(|at| *at <= now).is_some()
        {
            out.extend(hook.pid.map(|pid| Action::KillHook { pid }));
        }
        if self.give_up.take_if(|at| *at <= now).is_none() {
            return Outcome::Pending;
        }
        let line = "the workload did not acknowledge its promotion in time".into();
        out.push_back(Action::Warn(line));
        Outcome::Failed(Reason::NotAcknowledged)
    }

    /// Every hook of the promotion is dead: now it can be told.
    fn begin_demotion(&mut self, now: Instant, out: &mut VecDeque<Action>) -> Outcome {
        let Stage::AwaitingHook(launch, reason) = &self.stage else { return Outcome::Pending };
        self.stage = Stage::Demoting(Some((launch.clone(), *reason)));
        self.word = self.policy.acknowledge != Acknowledge::Notify;
        out.push_back(Action::DrainNotify);
        let Some(signal) = self.policy.signals.on_follow else { return self.demoted(now, out) };
        out.push_back(Action::Demote { pid: self.pid, signal });
        Outcome::Pending
    }

    fn run(&mut self, kind: HookKind, launch: &Launch, reason: Option<Reason>, now: Instant, out: &mut VecDeque<Action>) {
        let Some(hook) = kind.of(&self.policy.hooks) else { return };
        self.hook = Some(Running { kind, pid: None, kill_at: Some(now + hook.timeout) });
        out.push_back(Action::Hook { hook: kind, facts: launch.facts.clone(), reason, not_after: launch.not_after });
    }

    fn settle(&mut self) -> Outcome {
        let hook_done = self.hook.is_none();
        match &self.stage {
            Stage::Promoting(launch) if self.word && (hook_done || self.policy.acknowledge != Acknowledge::Hook) => {
                (self.stage, self.give_up) = (Stage::Leader(launch.clone()), None);
                Outcome::Promoted
            }
            Stage::Demoting(None) if self.word && hook_done => {
                self.stage = Stage::Standby;
                Outcome::Demoted
            }
            Stage::Standby => Outcome::Demoted,
            Stage::Signalled { .. } | Stage::Promoting(_) | Stage::Leader(_) | Stage::AwaitingHook(..) | Stage::Demoting(_) => {
                Outcome::Pending
            }
        }
    }
}
