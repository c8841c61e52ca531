//! What a running workload is told, and what it says: signals passed on, its role, the hooks around it (law 8, `always`).

use super::{Account, Actual, Happened, Workload};
use crate::{
    config::{KillMode, Signal},
    link::Exit,
    role::Role,
    supervision::{Action, Target, roles::Outcome},
    time::Instant,
};

impl Workload {
    /// Passes a signal on, rewritten for the role.
    pub(crate) fn forward(&mut self, signal: Signal) {
        match self.rewritten(signal) {
            Some(signal) if self.tells_a_role(signal) => {
                let line = format!("{} would tell the workload a role: it is not passed on from outside", signal.name());
                self.actions.push_back(Action::Warn(line));
            }
            Some(signal) => self.pass(signal),
            None => {}
        }
    }

    /// Whether only a change of role sends it (law 8, 15).
    pub(crate) fn tells_a_role(&self, signal: Signal) -> bool {
        let signals = self.policy.manner.as_ref().map(|manner| [manner.signals.on_lead, manner.signals.on_follow]);
        signals.is_some_and(|signals| signals.contains(&Some(signal)))
    }

    /// Passes it on as it is.
    pub(crate) fn pass(&mut self, signal: Signal) {
        if let Some(pid) = self.main() {
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

    pub(crate) fn promoted(&mut self, now: Instant) {
        if let (Actual::Running { roles, .. }, Some(manner)) = (&mut self.actual, &self.policy.manner) {
            let outcome = roles.promoted(manner, now, &mut self.actions);
            self.take_news(outcome, now);
        }
    }

    pub(crate) fn promotion_late(&mut self, now: Instant) {
        if let (Actual::Running { roles, .. }, Some(manner)) = (&mut self.actual, &self.policy.manner) {
            let outcome = roles.promotion_late(manner, now, &mut self.actions);
            self.take_news(outcome, now);
        }
    }

    pub(crate) fn promotion_killed(&mut self, now: Instant) {
        if let (Actual::Running { roles, .. }, Some(manner)) = (&mut self.actual, &self.policy.manner) {
            roles.promotion_killed(manner, now, &mut self.actions);
        }
    }

    pub(crate) fn not_promoted(&mut self, now: Instant) {
        if let Actual::Running { roles, .. } = &mut self.actual {
            let outcome = roles.not_promoted();
            self.take_news(outcome, now);
        }
    }

    pub(crate) fn demoted(&mut self, now: Instant) {
        if let (Actual::Running { roles, .. }, Some(manner)) = (&mut self.actual, &self.policy.manner) {
            let outcome = roles.demoted(manner, now, &mut self.actions);
            self.take_news(outcome, now);
        }
    }

    pub(crate) fn not_demoted(&mut self, now: Instant) {
        if let Actual::Running { roles, .. } = &mut self.actual {
            let outcome = roles.not_demoted();
            self.take_news(outcome, now);
        }
    }

    pub(crate) fn not_drained(&mut self, now: Instant) {
        if let Actual::Running { roles, .. } = &mut self.actual {
            let outcome = roles.not_drained();
            self.take_news(outcome, now);
        }
    }

    pub(crate) fn hook_forked(&mut self, pid: i32) {
        if let Actual::Running { roles, .. } = &mut self.actual {
            roles.hook_started(pid, &mut self.actions);
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

    pub(super) fn hook_ended(&mut self, exit: Option<Exit>, now: Instant) {
        if let (Actual::Running { roles, .. }, Some(manner)) = (&mut self.actual, &self.policy.manner) {
            let outcome = roles.hook_ended(exit, manner, now, &mut self.actions);
            self.take_news(outcome, now);
        }
    }

    /// As [`Self::take`], for news that are no answer to a question: a standby that is a standby is none.
    pub(super) fn take_news(&mut self, outcome: Outcome, now: Instant) {
        let yielding = matches!(self.actual, Actual::Running { yield_by: Some(_), .. });
        if outcome != Outcome::Demoted || yielding {
            self.take(outcome, now);
        }
    }

    pub(super) fn take(&mut self, outcome: Outcome, now: Instant) {
        let Actual::Running { pid, yield_by, .. } = &mut self.actual else { return };
        match outcome {
            Outcome::Pending => {}
            Outcome::Promoted => self.happened.push_back(Happened::Leads { pid: *pid }),
            Outcome::Demoted => {
                *yield_by = None;
                self.leads = false;
                self.yielded(now);
                self.account = Account::default();
            }
            Outcome::Failed(_) if yield_by.is_some() => self.kill(now),
            Outcome::Failed(reason) => self.happened.push_back(Happened::NotPromoted(reason)),
        }
    }

    pub(super) fn target(&self, pid: i32) -> Target {
        match self.policy.config.stop.kill_mode {
            KillMode::Mixed => Target::Main(pid),
            KillMode::Group => Target::Group(pid),
        }
    }
}
