//! How a running workload is told its role, and what counts as its answer (`runs: always`).
//!
//! No role signal goes out before the one before it is acknowledged. A word counts only if it was read after the signal, from a
//! socket that was drained before it; a demotion's only with every hook of the term dead (law 8).

use std::time::Duration;

use super::{Action, Launch};
use crate::{
    config::{Acknowledge, HookKind, Hooks, Signals},
    link::{Exit, Reason},
    role::Role,
    time::Instant,
};

/// What the settings say of it.
#[derive(Clone, Debug)]
pub(crate) struct Manner {
    pub(crate) acknowledge: Acknowledge,
    pub(crate) signals: Signals,
    pub(crate) hooks: Hooks,
    /// For a promotion's signal to be sent, and again for the workload's word on it. A leader that is silent for longer holds the
    /// Lease to less use than one that crashed.
    pub(crate) patience: Duration,
    /// From SIGKILL to the end of everything.
    pub(crate) margin: Duration,
}

impl Manner {
    /// When a promotion has failed whose signal, if there is one, was sent at `now`.
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
    pid: i32,
    stage: Stage,
    /// Its word came, or is not asked for.
    word: bool,
    /// When a promotion without that word, without its signal, or with a hook that does not even die has failed.
    give_up: Option<Instant>,
    hook: Option<Running>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    Standby,
    /// The signal is on its way, for no longer than until this.
    Signalled(Launch, Instant),
    Promoting(Launch),
    Leader(Launch),
    /// To be demoted as soon as the promotion's hook is dead.
    Waning(Launch, Reason),
    /// Until the signal was sent, if there is one, with what the hook will be told.
    Demoting(Option<(Launch, Reason)>),
}

#[derive(Clone, Debug)]
struct Running {
    kind: HookKind,
    pid: Option<i32>,
    kill_at: Option<Instant>,
}

/// What a piece of news meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing yet.
    Pending,
    /// It leads, and said so.
    Promoted,
    /// It does not lead, and said so: the proof.
    Demoted,
    /// It was not told, or did not take it.
    Failed(Reason),
}

impl Roles {
    /// What was started as a standby.
    pub(crate) fn standby(pid: i32) -> Self {
        Self { pid, stage: Stage::Standby, word: true, give_up: None, hook: None }
    }

    /// What was started as a leader: it was told before it ran, so only the hook is left to tell it more.
    pub(crate) fn leader(
        pid: i32,
        launch: Launch,
        manner: &Manner,
        now: Instant,
        out: &mut impl Extend<Action>,
    ) -> (Self, Outcome) {
        let mut roles = Self { stage: Stage::Promoting(launch.clone()), ..Self::standby(pid) };
        roles.run(HookKind::AfterLead, manner, &launch, None, now, out);
        roles.give_up = manner.gives_up(true, now);
        let outcome = roles.settle(manner);
        (roles, outcome)
    }

    /// Whether it is a standby by its own word.
    pub(crate) fn is_standby(&self) -> bool {
        self.stage == Stage::Standby && self.hook.is_none()
    }

    /// Which role's rewriting of signals holds.
    pub(crate) fn role(&self) -> Role {
        match self.stage {
            Stage::Standby | Stage::Demoting(_) => Role::Standby,
            Stage::Signalled(..) | Stage::Promoting(_) | Stage::Leader(_) | Stage::Waning(..) => Role::Leader,
        }
    }

    /// Tells a standby that it leads.
    pub(crate) fn promote(&mut self, launch: Launch, manner: &Manner, now: Instant, out: &mut impl Extend<Action>) -> Outcome {
        self.word = manner.acknowledge != Acknowledge::Notify;
        let until = now + manner.patience;
        let not_after = launch.not_after.min(until);
        self.stage = Stage::Signalled(launch, until);
        self.give_up = Some(until + manner.margin);
        let Some(signal) = manner.signals.on_lead else {
            out.extend([Action::DrainNotify]);
            return self.promoted(manner, now, out);
        };
        out.extend([Action::Promote { pid: self.pid, signal, not_after }]);
        Outcome::Pending
    }

    /// S has moved (law 15). Where it has moved back, as at the end of a wait, a signal that is on its way could come after it.
    pub(crate) fn follow_soft(&mut self, soft: Instant, out: &mut impl Extend<Action>) {
        match &mut self.stage {
            Stage::Signalled(launch, _) | Stage::Promoting(launch) => {
                let is_earlier = soft < std::mem::replace(&mut launch.not_after, soft);
                if is_earlier {
                    self.call_off(out);
                }
            }
            Stage::Standby | Stage::Leader(_) | Stage::Waning(..) | Stage::Demoting(_) => {}
        }
    }

    /// A signal that promotes and is on its way does not go out any more.
    pub(crate) fn call_off(&self, out: &mut impl Extend<Action>) {
        match self.stage {
            Stage::Signalled(..) => out.extend([Action::CallOff]),
            Stage::Standby | Stage::Promoting(_) | Stage::Leader(_) | Stage::Waning(..) | Stage::Demoting(_) => {}
        }
    }

    /// The signal that promotes was not sent before S as it was then. It is tried again where S has moved on since.
    pub(crate) fn promotion_late(&mut self, manner: &Manner, now: Instant, out: &mut impl Extend<Action>) -> Outcome {
        if self.promotes_again(manner, now, out) || !matches!(self.stage, Stage::Signalled(..)) {
            return Outcome::Pending;
        }
        let line = "the workload was not promoted: it did not handle signals.onLead in time".into();
        out.extend([Action::Warn(line)]);
        self.not_promoted()
    }

    /// Nobody knows whether the signal that promotes was sent. It is sent again where there is time; where there is none it may
    /// lead, and is no standby until it has died.
    pub(crate) fn promotion_killed(&self, manner: &Manner, now: Instant, out: &mut impl Extend<Action>) {
        self.promotes_again(manner, now, out);
    }

    fn promotes_again(&self, manner: &Manner, now: Instant, out: &mut impl Extend<Action>) -> bool {
        let (Stage::Signalled(launch, until), Some(signal)) = (&self.stage, manner.signals.on_lead) else { return false };
        let not_after = launch.not_after.min(*until);
        let in_time = now < not_after;
        if in_time {
            out.extend([Action::Promote { pid: self.pid, signal, not_after }]);
        }
        in_time
    }

    /// The signal that promotes was sent.
    pub(crate) fn promoted(&mut self, manner: &Manner, now: Instant, out: &mut impl Extend<Action>) -> Outcome {
        let Stage::Signalled(launch, _) = &self.stage else { return Outcome::Pending };
        let launch = launch.clone();
        self.stage = Stage::Promoting(launch.clone());
        self.give_up = manner.gives_up(self.word, now);
        self.run(HookKind::AfterLead, manner, &launch, None, now, out);
        self.settle(manner)
    }

    /// The signal that promotes was not sent, and will not be: it was told nothing, and is the standby that it was.
    pub(crate) fn not_promoted(&mut self) -> Outcome {
        if !matches!(self.stage, Stage::Signalled(..)) {
            return Outcome::Pending;
        }
        (self.stage, self.give_up) = (Stage::Standby, None);
        Outcome::Failed(Reason::NotAcknowledged)
    }

    /// The signal that demotes was sent.
    pub(crate) fn demoted(&mut self, manner: &Manner, now: Instant, out: &mut impl Extend<Action>) -> Outcome {
        let Stage::Demoting(untold) = &mut self.stage else { return Outcome::Pending };
        if let Some((launch, reason)) = untold.take() {
            self.run(HookKind::BeforeFollow, manner, &launch, Some(reason), now, out);
        }
        self.settle(manner)
    }

    /// The signal that demotes cannot be sent.
    pub(crate) fn not_demoted(&self) -> Outcome {
        match self.stage {
            Stage::Demoting(Some(_)) => Outcome::Failed(Reason::NotAcknowledged),
            Stage::Standby
            | Stage::Signalled(..)
            | Stage::Promoting(_)
            | Stage::Leader(_)
            | Stage::Waning(..)
            | Stage::Demoting(None) => Outcome::Pending,
        }
    }

    /// Tells a leader that it follows, by a hook that does not begin at H or later. None: it cannot be told, because it has not
    /// yet acknowledged that it leads.
    pub(crate) fn demote(
        &mut self,
        reason: Reason,
        hard: Instant,
        manner: &Manner,
        now: Instant,
        out: &mut impl Extend<Action>,
    ) -> Option<Outcome> {
        match &self.stage {
            Stage::Signalled(..) | Stage::Promoting(_) => None,
            Stage::Standby | Stage::Waning(..) | Stage::Demoting(_) => Some(self.settle(manner)),
            Stage::Leader(launch) => {
                self.stage = Stage::Waning(Launch { not_after: hard, ..launch.clone() }, reason);
                if let Some(hook) = &mut self.hook {
                    hook.kill_at = None;
                    out.extend(hook.pid.map(|pid| Action::KillHook { pid }));
                    return Some(Outcome::Pending);
                }
                Some(self.wane(manner, now, out))
            }
        }
    }

    /// The word of the workload itself.
    pub(crate) fn notified(&mut self, role: Role, manner: &Manner) -> Outcome {
        let expected = match self.stage {
            Stage::Promoting(_) => role == Role::Leader,
            Stage::Demoting(_) => role == Role::Standby,
            Stage::Signalled(..) | Stage::Standby | Stage::Leader(_) | Stage::Waning(..) => return Outcome::Pending,
        };
        self.word |= expected;
        self.settle(manner)
    }

    /// Words of before the question may be left, and a late one cannot be told from an early one: none counts.
    pub(crate) fn not_drained(&self) -> Outcome {
        match self.stage {
            Stage::Promoting(_) | Stage::Demoting(_) if !self.word => Outcome::Failed(Reason::NotAcknowledged),
            Stage::Standby
            | Stage::Signalled(..)
            | Stage::Promoting(_)
            | Stage::Leader(_)
            | Stage::Waning(..)
            | Stage::Demoting(_) => Outcome::Pending,
        }
    }

    pub(crate) fn hook_started(&mut self, pid: i32, out: &mut impl Extend<Action>) {
        let Some(hook) = &mut self.hook else { return };
        hook.pid = Some(pid);
        if matches!(self.stage, Stage::Waning(..)) {
            out.extend([Action::KillHook { pid }]);
        }
    }

    /// Whether this is the hook's process.
    pub(crate) fn is_hook(&self, pid: i32) -> bool {
        self.hook.as_ref().is_some_and(|hook| hook.pid == Some(pid))
    }

    /// The hook ended; none: it never began.
    pub(crate) fn hook_ended(
        &mut self,
        exit: Option<Exit>,
        manner: &Manner,
        now: Instant,
        out: &mut impl Extend<Action>,
    ) -> Outcome {
        let Some(hook) = self.hook.take() else { return Outcome::Pending };
        if matches!(self.stage, Stage::Waning(..)) {
            return self.wane(manner, now, out);
        }
        if exit != Some(Exit::Code(0)) {
            let how = exit.map_or_else(|| "it could not be started".into(), |exit| exit.to_string());
            let line = format!("hook {} failed: {how}", hook.kind.name());
            out.extend([Action::Warn(line)]);
            let decisive = match hook.kind {
                HookKind::AfterLead => manner.acknowledge == Acknowledge::Hook,
                HookKind::BeforeFollow => true,
            };
            if decisive {
                return Outcome::Failed(Reason::HookFailed);
            }
        }
        self.settle(manner)
    }

    pub(crate) fn due(&self) -> Option<Instant> {
        let hook = self.hook.as_ref().and_then(|hook| hook.kill_at);
        [hook, self.give_up].into_iter().flatten().min()
    }

    /// Kills a hook whose time is over; its end is its failure. Gives a promotion up that was not taken.
    pub(crate) fn handle_timeout(&mut self, now: Instant, out: &mut impl Extend<Action>) -> Outcome {
        if let Some(hook) = &mut self.hook
            && hook.kill_at.take_if(|at| *at <= now).is_some()
        {
            out.extend(hook.pid.map(|pid| Action::KillHook { pid }));
        }
        if self.give_up.take_if(|at| *at <= now).is_none() {
            return Outcome::Pending;
        }
        let line = "the workload did not acknowledge its promotion in time".into();
        out.extend([Action::Warn(line)]);
        Outcome::Failed(Reason::NotAcknowledged)
    }

    /// Every hook of the promotion is dead: now it can be told.
    fn wane(&mut self, manner: &Manner, now: Instant, out: &mut impl Extend<Action>) -> Outcome {
        let Stage::Waning(launch, reason) = &self.stage else { return Outcome::Pending };
        self.stage = Stage::Demoting(Some((launch.clone(), *reason)));
        self.word = manner.acknowledge != Acknowledge::Notify;
        out.extend([Action::DrainNotify]);
        let Some(signal) = manner.signals.on_follow else { return self.demoted(manner, now, out) };
        out.extend([Action::Demote { pid: self.pid, signal }]);
        Outcome::Pending
    }

    fn run(
        &mut self,
        kind: HookKind,
        manner: &Manner,
        launch: &Launch,
        reason: Option<Reason>,
        now: Instant,
        out: &mut impl Extend<Action>,
    ) {
        let Some(hook) = kind.of(&manner.hooks) else { return };
        self.hook = Some(Running { kind, pid: None, kill_at: Some(now + hook.timeout) });
        out.extend([Action::Hook { hook: kind, facts: launch.facts.clone(), reason, not_after: launch.not_after }]);
    }

    fn settle(&mut self, manner: &Manner) -> Outcome {
        let hook_done = self.hook.is_none();
        match &self.stage {
            Stage::Promoting(launch) if self.word && (hook_done || manner.acknowledge != Acknowledge::Hook) => {
                (self.stage, self.give_up) = (Stage::Leader(launch.clone()), None);
                Outcome::Promoted
            }
            Stage::Demoting(None) if self.word && hook_done => {
                self.stage = Stage::Standby;
                Outcome::Demoted
            }
            Stage::Standby => Outcome::Demoted,
            Stage::Signalled(..) | Stage::Promoting(_) | Stage::Leader(_) | Stage::Waning(..) | Stage::Demoting(_) => {
                Outcome::Pending
            }
        }
    }
}
