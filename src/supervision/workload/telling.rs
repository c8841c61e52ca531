//! What a running workload is told, and what it says: signals passed on, its role, the hooks around it (law 8, `always`).

use super::{Account, Actual, Happened, Wanted, Workload};
use crate::{
    config::{KillMode, Signal},
    link::Reason,
    role::Role,
    supervision::{Action, Launch, RoleInput, Target, roles::Outcome},
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

    /// Whether only a change of role may send it (law 8, 15).
    pub(crate) fn tells_a_role(&self, signal: Signal) -> bool {
        let signals = &self.policy.signals;
        self.policy.always && [signals.on_lead, signals.on_follow].contains(&Some(signal))
    }

    /// Passes it on as it is.
    pub(crate) fn pass(&mut self, signal: Signal) {
        if let Some(pid) = self.reachable() {
            self.actions.push_back(Action::Signal { target: self.target(pid), signal });
        } else if self.is_frozen() {
            self.actions.push_back(Action::Warn(format!("{} is not passed on to a frozen workload", signal.name())));
        }
    }

    /// Lets it receive the signal before, if it is stopped.
    pub(crate) fn go_on(&mut self) {
        let Some(target) = self.reachable().map(|pid| self.target(pid)) else { return };
        self.actions.push_back(match self.policy.plain {
            true => Action::Continue { target },
            false => Action::Signal { target, signal: Signal(libc::SIGCONT) },
        });
    }

    /// Who may get a signal other than SIGKILL: nobody that is frozen (law 8), and nobody that is to be killed, which may be frozen.
    fn reachable(&self) -> Option<i32> {
        self.main().filter(|_| !self.is_frozen() && !self.is_being_killed())
    }

    /// What the workload gets for this signal; none: nothing.
    pub(crate) fn rewritten(&self, signal: Signal) -> Option<Signal> {
        let role = if let Actual::Running { roles, .. } = &self.actual
            && self.policy.always
        {
            roles.role()
        } else if self.policy.has_standby() && !self.leads {
            Role::Standby
        } else {
            Role::Leader
        };
        let rewrite = match role {
            Role::Leader => &self.policy.signals.rewrite.leader,
            Role::Standby => &self.policy.signals.rewrite.standby,
        };
        rewrite.get(&signal).copied().unwrap_or(Some(signal))
    }

    /// The outcome of telling it its role, and what it answered.
    pub(crate) fn role(&mut self, input: RoleInput, now: Instant) {
        match (&mut self.actual, input) {
            (Actual::Running { roles, .. }, _) => {
                let outcome = roles.handle(input, now, &mut self.actions);
                self.take(outcome, now);
                self.advance(now);
            }
            (Actual::Preparing { hook } | Actual::Following { hook }, RoleInput::HookForked { pid }) => hook.forked(pid),
            (Actual::Preparing { .. } | Actual::Following { .. }, RoleInput::HookNotForked) => self.hook_ended(None, now),
            // The stop came between.
            (_, RoleInput::HookForked { pid }) => self.actions.push_back(Action::KillHook { pid }),
            (_, _) => {}
        }
    }

    /// Why it is not ready, if it is not.
    pub(crate) fn unready(&self) -> Option<&str> {
        match self.actual {
            Actual::Running { .. } => self.health.unready(),
            Actual::Stopping { main: Some(_), .. } => Some("it is being stopped"),
            Actual::Stopped
            | Actual::Waiting { .. }
            | Actual::Preparing { .. }
            | Actual::Following { .. }
            | Actual::Starting { .. }
            | Actual::Stopping { main: None, .. } => Some("it does not run"),
        }
    }

    /// As what it may be asked how it is: a leader under its launch, until S, or a standby. None while it is told that it follows.
    pub(super) fn may_ask(&self, now: Instant) -> Option<Option<Launch>> {
        let Actual::Running { roles, .. } = &self.actual else { return None };
        match &self.wanted {
            _ if roles.yields_by().is_some() => None,
            Wanted::Leader(launch) if self.leads => (now < launch.not_after).then(|| Some(launch.clone())),
            Wanted::Down | Wanted::Standby | Wanted::Leader(_) => (!self.leads).then_some(None),
        }
    }

    /// What follows from how it is, whatever brought that about.
    pub(crate) fn heed_health(&mut self, now: Instant) {
        let Actual::Running { roles, .. } = &mut self.actual else { return };
        if !self.health.is_asking() {
            let outcome = roles.left_alone();
            self.take(outcome, now);
        }
        if let Wanted::Standby = self.wanted {
            self.freeze(now);
        }
        let fault = self.health.fault();
        self.fails(fault);
    }

    pub(super) fn fails(&mut self, fault: Option<(Reason, String)>) {
        if !self.is_yielding()
            && let Some((reason, words)) = fault
        {
            self.actions.push_back(Action::Warn(words));
            self.happened.push_back(Happened::Fails(reason));
        }
    }

    /// What it is doing may take until then, unless the Lease waits for its end.
    pub(crate) fn take_longer(&mut self, until: Instant) {
        let is_awaited = matches!(self.wanted, Wanted::Leader(_)) && !self.leads;
        if let Actual::Stopping { escalation, .. } = &mut self.actual
            && !is_awaited
        {
            escalation.extend(until);
        } else if let Actual::Running { roles, .. } = &mut self.actual
            && !self.policy.always
        {
            roles.yield_later(until);
        }
    }

    pub(super) fn take(&mut self, outcome: Outcome, now: Instant) {
        let Actual::Running { pid, .. } = self.actual else { return };
        match outcome {
            Outcome::Pending => {}
            Outcome::Promoted => {
                if self.policy.frozen {
                    self.health.begin(now);
                }
                self.health.leads(true, now);
                self.happened.push_back(Happened::Leads { pid });
            }
            Outcome::Demoted(until) | Outcome::NotDemoted(until) if !self.policy.always => self.descend(None, until, now),
            Outcome::Demoted(_) => {
                self.leads = false;
                self.health.leads(false, now);
                self.yielded(now);
                self.account = Account::default();
            }
            Outcome::Unfrozen => {
                self.thawed(now);
                let line = "the workload is not frozen, although it does not lead: it cannot be stopped, or was continued, and is killed";
                self.actions.push_back(Action::Warn(line.into()));
            }
            Outcome::NotPromoted(reason) => self.happened.push_back(Happened::NotPromoted(reason)),
            Outcome::NotDemoted(_) => self.kill(now),
        }
    }

    pub(super) fn target(&self, pid: i32) -> Target {
        match self.policy.config.stop.kill_mode {
            KillMode::Mixed => Target::Main(pid),
            KillMode::Group => Target::Group(pid),
        }
    }
}
