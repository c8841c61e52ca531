//! How a signal that the agent passes on reaches the workload, and the use of its health checks.

use super::{State, Wanted, Workload, WorkloadEvent};
use crate::{
    config::{KillMode, Signal},
    link::Reason,
    role::Role,
    supervision::{
        health::Asks,
        interface::{Action, Target},
        policy::Mode,
    },
    time::Instant,
};

impl Workload {
    /// Passes a signal on, rewritten for the role (`signals.rewrite`).
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

    /// Returns true if only a change of role may send this signal (law 8, 15).
    pub(crate) fn tells_a_role(&self, signal: Signal) -> bool {
        let signals = &self.policy.config.signals;
        self.policy.mode == Mode::Always && [signals.on_lead, signals.on_follow].contains(&Some(signal))
    }

    /// Passes a signal on as it is.
    pub(crate) fn pass(&mut self, signal: Signal) {
        if let Some(pid) = self.reachable() {
            self.actions.push_back(Action::Signal { target: self.target(pid), signal });
        } else if self.is_frozen() {
            self.actions.push_back(Action::Warn(format!("{} is not passed on to a frozen workload", signal.name())));
        }
    }

    /// Sends SIGCONT, so that a stopped workload receives the signal sent before.
    pub(crate) fn go_on(&mut self) {
        let Some(target) = self.reachable().map(|pid| self.target(pid)) else { return };
        self.actions.push_back(match self.policy.mode {
            Mode::Plain => Action::Continue { target },
            Mode::Leading | Mode::StandbyCommand | Mode::Frozen | Mode::Always => Action::Signal { target, signal: Signal::CONT },
        });
    }

    /// Pid of a main process that may get other signals than SIGKILL. A frozen one may not (law 8); nor one that is being killed,
    /// which may be frozen.
    fn reachable(&self) -> Option<i32> {
        if self.is_frozen() || self.is_being_killed() { None } else { self.main }
    }

    /// Returns the signal that the workload gets for this one; none if it gets nothing.
    pub(crate) fn rewritten(&self, signal: Signal) -> Option<Signal> {
        let is_told_so = self.policy.mode == Mode::Always && matches!(self.state, State::Demoting(_));
        let role = if is_told_so || self.policy.has_standby() && !self.leads { Role::Standby } else { Role::Leader };
        let rewrite = match role {
            Role::Leader => &self.policy.config.signals.rewrite.leader,
            Role::Standby => &self.policy.config.signals.rewrite.standby,
        };
        rewrite.get(&signal).copied().unwrap_or(Some(signal))
    }

    pub(super) fn target(&self, pid: i32) -> Target {
        match self.policy.config.workload.stop.kill_mode {
            KillMode::Mixed => Target::Main(pid),
            KillMode::Group => Target::Group(pid),
        }
    }

    /// The reason why the workload is not ready, if it is not.
    pub(crate) fn unready(&self) -> Option<&str> {
        if self.runs() {
            self.health.unready()
        } else if self.main.is_some() && self.is_stopping() {
            Some("it is being stopped")
        } else {
            Some("it does not run")
        }
    }

    /// Whom the probes of a workload that runs ask: a leader until S.
    pub(super) fn asks(&self, now: Instant) -> Asks {
        match &self.wanted {
            _ if matches!(self.state, State::Demoting(_)) => Asks::Nobody,
            Wanted::Leader(launch) if self.leads && now < launch.not_after => Asks::Leader(launch.clone()),
            Wanted::Down | Wanted::Standby | Wanted::Leader(_) if self.leads => Asks::Nobody,
            Wanted::Down | Wanted::Standby | Wanted::Leader(_) => Asks::Standby,
        }
    }

    /// Acts on the results of the health checks.
    pub(crate) fn check_health(&mut self, now: Instant) {
        if !self.runs() {
            return;
        }
        if !self.health.is_asking() {
            self.left_alone(now);
        }
        if self.wanted == Wanted::Standby {
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
            self.events.push_back(WorkloadEvent::Fails(reason));
        }
    }
}
