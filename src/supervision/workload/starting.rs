//! The start of a workload, and the restart after a failure or an end.

use super::{State, Wanted, Workload, WorkloadEvent};
use crate::{
    config::{HookKind, OnExit},
    exit,
    link::Exit,
    role::Role,
    supervision::{
        interface::{Action, NotSpawned},
        policy::Mode,
    },
    time::Instant,
};

impl Workload {
    /// Starts the workload, or beforeLead if a leader is wanted.
    pub(super) fn begin(&mut self, now: Instant) {
        if self.run_before_lead(now) {
            (self.leads, self.has_led) = (true, true);
        } else {
            self.spawn(now);
        }
    }

    pub(super) fn spawn(&mut self, now: Instant) {
        let launch = self.launch().cloned();
        self.leads = launch.is_some();
        self.has_led |= self.leads;
        self.health.forget(now);
        let role = if self.leads { Role::Leader } else { Role::Standby };
        let late = (self.policy.mode != Mode::Plain).then(|| now + self.policy.start_timeout());
        self.state = State::Starting { role, kill_at: None, late };
        self.actions.push_back(Action::Spawn { role: (self.policy.mode != Mode::Plain).then_some(role), launch });
    }

    pub(crate) fn forked(&mut self, pid: i32, now: Instant) {
        if let State::Starting { kill_at, .. } = self.state {
            self.main = Some(pid);
            if let Some(kill_at) = kill_at {
                self.ask_to_stop(None, kill_at, now);
            }
        } else if self.is_stopping() {
            self.main = Some(pid);
        }
    }

    pub(crate) fn spawned(&mut self, now: Instant) {
        let (&State::Starting { role, .. }, Some(_)) = (&self.state, self.main) else { return };
        self.since = now;
        self.forget_stop();
        if !self.is_standby_command() {
            self.health.begin(now);
        }
        match role {
            Role::Leader => self.started_as_leader(now),
            Role::Standby if self.policy.mode == Mode::Frozen => self.state = State::BeforeFreeze,
            Role::Standby => self.state = State::Standby,
        }
        self.advance(now);
    }

    pub(crate) fn not_spawned(&mut self, why: NotSpawned, now: Instant) {
        if !self.is_starting() {
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
                self.events.push_back(WorkloadEvent::SpawnFailed { code, message });
            }
            // Counts as a crash: it may use up the restarts.
            NotSpawned::Unavailable { message } => {
                self.actions.push_back(Action::Warn(message));
                self.ended(Exit::Code(exit::INTERNAL), now, now);
            }
        }
    }

    /// Ends a start of which nothing has run. Processes of beforeLead may be left.
    fn not_begun(&mut self, again_at: Option<Instant>, now: Instant) {
        self.main = None;
        if self.leads && self.policy.hook(HookKind::BeforeLead).is_some() {
            self.kill_tree(again_at, now);
        } else {
            self.state = again_at.map_or(State::Down, |until| State::Waiting { until });
            self.leads = false;
            self.has_led &= self.exit().is_some();
        }
    }

    /// Takes the end of a main process that was not stopped.
    pub(super) fn ended(&mut self, exit: Exit, since: Instant, now: Instant) {
        let interrupted = self.policy.terminal && from_terminal(exit);
        let again_at = if self.is_standby_command() && !interrupted {
            Some(self.standby_ended(exit, since, now))
        } else {
            self.report.began.get_or_insert(now);
            self.report.end = Some((now, exit));
            self.ended_by_itself(exit, interrupted, since, now)
        };
        self.main = None;
        self.kill_tree(again_at, now);
    }

    /// Reports an end that nobody asked for; returns the time of the restart, if there is one.
    fn ended_by_itself(&mut self, exit: Exit, interrupted: bool, since: Instant, now: Instant) -> Option<Instant> {
        if self.wanted == Wanted::Down {
            return None;
        }
        let again_at = if interrupted { None } else { self.again(exit, since, now) };
        if again_at.is_none() {
            self.wanted = Wanted::Down;
        }
        self.events.push_back(match again_at {
            Some(_) => WorkloadEvent::Restarting(exit),
            None if interrupted => WorkloadEvent::Interrupted,
            None => WorkloadEvent::Ended(exit),
        });
        again_at
    }

    /// Restarts `standby.command` without a limit, because it holds nothing that another replica could take.
    fn standby_ended(&mut self, exit: Exit, since: Instant, now: Instant) -> Instant {
        let (again_at, words) = match self.restarts.covers(exit) {
            true => (self.restarts.delayed(since, now), "started again"),
            false => (Instant::NEVER, "not started again before the next term, because workload.restart.policy is on-failure"),
        };
        if self.wanted == Wanted::Standby {
            self.actions.push_back(Action::Warn(format!("standby.command ended ({exit}) and is {words}")));
        }
        again_at
    }

    fn again(&mut self, exit: Exit, since: Instant, now: Instant) -> Option<Instant> {
        if self.stands_still() {
            // If a leader is wanted, the Lease is held for the next one.
            return Some(if self.launch().is_some() { now } else { self.restarts.delayed(since, now) });
        }
        match self.policy.config.workload.on_exit {
            OnExit::Exit => None,
            OnExit::Follow if self.leads => None,
            OnExit::Follow => Some(self.restarts.delayed(since, now)),
            OnExit::Restart if self.restarts.covers(exit) => {
                let next = self.restarts.next(since, now);
                if next.is_none() {
                    let line = "the program is not started again: it has used up its restarts (workload.restart)";
                    self.actions.push_back(Action::Warn(line.into()));
                }
                next
            }
            OnExit::Restart => None,
        }
    }
}

/// Returns true if a key of the terminal ended a process: by the signal itself, or by a shell's exit code for it.
fn from_terminal(exit: Exit) -> bool {
    [libc::SIGINT, libc::SIGQUIT].into_iter().any(|signal| exit.code() == Exit::Signal(signal).code())
}
