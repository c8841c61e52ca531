//! The way down: asked, killed, proved dead; and what follows if it ended by itself (law 3, 7, 8).

use std::time::Duration;

use super::{Actual, Happened, Wanted, Workload};
use crate::{
    config::{OnExit, Signal},
    link::{Exit, Reason, Stop, TermInfo},
    supervision::{Action, Scan, Told, escalation::StopEscalation},
    time::Instant,
};

/// What is reported of a stop.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Account {
    pub(super) began: Option<Instant>,
    killed: Option<Instant>,
    pub(super) end: Option<(Instant, Exit)>,
    /// What was killed stood still.
    frozen: bool,
}

impl Account {
    pub(super) fn proved(self, proved: Instant) -> Stop {
        let (exited, exit) = self.end.unzip();
        Stop { began: self.began, killed: self.killed, exited, exit, proved }
    }
}

impl Workload {
    /// Nothing of a leader may run, and that is to be proved; nothing is started until it is wanted again. SIGKILL no later than
    /// `kill_at`; a demotion's hook begins before `not_after` or not at all. Each call ends in a [`Happened::Yielded`]: at once
    /// where only a standby is starting or ending, otherwise after a proof that is made from now on.
    pub(crate) fn give_way(&mut self, reason: Reason, info: &TermInfo, kill_at: Instant, not_after: Instant, now: Instant) {
        self.wanted = Wanted::Down;
        if self.has_led {
            self.led = Some(Told { info: Some(info.clone()), reason: Some(reason), exit: self.exit() });
        }
        let is_ending = matches!(self.actual, Actual::Starting { .. } | Actual::Stopping { .. });
        if !self.leads && (self.policy.has_standby() && is_ending || matches!(self.actual, Actual::Following { .. })) {
            // A standby that is starting or ending leads no more than one that runs; its remains are killed as before.
            self.yielded(now);
            return;
        }
        if !self.leads && (self.is_frozen() || self.policy.standby) && self.is_running() {
            self.account.began.get_or_insert(now);
            self.yielded(now);
            self.account = Account::default();
            return;
        }
        self.health.call_off(now, &mut self.actions);
        let alone = !self.policy.always || !self.health.is_asking();
        if let Actual::Running { roles, .. } = &mut self.actual
            && (self.policy.always || !reason.is_loss())
            && let Some(outcome) = roles.demote(reason, alone, kill_at, not_after, now, &mut self.actions)
        {
            self.account.began.get_or_insert(now);
            self.take(outcome, now);
        } else {
            self.descend(None, kill_at, now);
            if reason.is_loss() {
                self.hasten(kill_at);
            }
        }
    }

    /// A stop that is under way has no longer than this, whatever time it was given. One that is planned does without: it would only
    /// take back what the workload has asked for.
    pub(crate) fn hasten(&mut self, kill_at: Instant) {
        if let Actual::Stopping { escalation, .. } = &mut self.actual {
            escalation.squeeze(kill_at);
        }
    }

    /// Nothing is wanted. `signal` replaces the stop signal. SIGKILL no later than `kill_at`, unless a stop is under way.
    pub(crate) fn stop(&mut self, signal: Option<Signal>, kill_at: Instant, now: Instant) {
        self.wanted = Wanted::Down;
        self.descend(signal, kill_at, now);
    }

    /// H, which was at `hard`, has come.
    pub(crate) fn hard(&mut self, hard: Instant, now: Instant) {
        self.wanted = Wanted::Down;
        match self.actual {
            Actual::Running { .. } | Actual::Starting { .. } => self.kill(now),
            Actual::Stopped
            | Actual::Waiting { .. }
            | Actual::Preparing { .. }
            | Actual::Following { .. }
            | Actual::Stopping { .. } => self.descend(None, now, now),
        }
        self.hasten(now);
        if let Actual::Stopping { escalation, .. } = &mut self.actual {
            escalation.hard(hard, now);
        }
    }

    pub(crate) fn reaped(&mut self, pid: i32, exit: Exit, now: Instant) {
        let is_own = !self.is_frozen() && !self.account.frozen && !self.is_standby_command();
        match &mut self.actual {
            Actual::Running { pid: main, since, .. } if *main == pid => {
                let since = *since;
                self.ended(exit, since, now);
            }
            Actual::Running { roles, .. } if roles.is_hook(pid) => {
                let outcome = roles.hook_ended(Some(exit), now, &mut self.actions);
                self.take(outcome, now);
                self.advance(now);
            }
            Actual::Preparing { hook } | Actual::Following { hook } if hook.is(pid) => self.hook_ended(Some(exit), now),
            Actual::Stopping { main, escalation, .. } if *main == Some(pid) => {
                *main = None;
                // What is frozen is killed for want of anything gentler, and nobody asked a standby for its exit code.
                self.account.end = Some((now, exit)).filter(|_| is_own);
                escalation.main_ended(now);
            }
            Actual::Starting { pid: Some(main), .. } if *main == pid => self.ended(exit, now, now),
            Actual::Stopping { escalation, .. } => escalation.reaped(now),
            Actual::Running { .. }
            | Actual::Stopped
            | Actual::Waiting { .. }
            | Actual::Preparing { .. }
            | Actual::Following { .. }
            | Actual::Starting { .. } => {}
        }
    }

    /// A hook that runs alone has ended, or never began.
    pub(super) fn hook_ended(&mut self, exit: Option<Exit>, now: Instant) {
        match &self.actual {
            Actual::Preparing { hook } if !hook.succeeds(exit, &self.policy, &mut self.actions) => self.hook_failed(now),
            Actual::Preparing { .. } if self.may_start(now) => self.spawn(now),
            Actual::Preparing { .. } => self.actual = self.killing(None, Some(now), now),
            Actual::Following { hook } => {
                hook.succeeds(exit, &self.policy, &mut self.actions);
                self.actual = self.killing(None, None, now);
            }
            Actual::Stopped
            | Actual::Waiting { .. }
            | Actual::Starting { .. }
            | Actual::Running { .. }
            | Actual::Stopping { .. } => {}
        }
    }

    /// A hook that runs alone has failed: whatever is left of it is killed.
    pub(super) fn hook_failed(&mut self, now: Instant) {
        if let Actual::Preparing { .. } = self.actual {
            self.wanted = Wanted::Down;
            self.happened.push_back(Happened::NotPromoted(Reason::HookFailed));
        }
        self.actual = self.killing(None, None, now);
    }

    /// Init has no child, which is all that a plain init asks for.
    pub(crate) fn childless(&mut self, now: Instant) {
        if self.policy.plain {
            self.scanned(Scan { clean: true, ..Scan::default() }, now);
        }
    }

    pub(crate) fn scanned(&mut self, scan: Scan, now: Instant) {
        let Actual::Stopping { escalation, again_at, .. } = &mut self.actual else { return };
        if !escalation.scanned(scan, now) {
            return;
        }
        self.account.killed = self.account.killed.or_else(|| escalation.killed());
        if let Some(led) = self.led.as_mut().filter(|_| self.leads) {
            led.exit = self.account.end.map(|(_, exit)| exit);
        }
        self.actual = again_at.map_or(Actual::Stopped, |until| Actual::Waiting { until });
        self.leads = false;
        self.yielded(now);
        self.advance(now);
    }

    /// If a proof is asked for again, the first one is reported: nothing of a leader has run since.
    pub(super) fn yielded(&mut self, now: Instant) {
        let stop = *self.proved.get_or_insert_with(|| self.account.proved(now));
        self.happened.push_back(Happened::Yielded(stop));
    }

    /// The main process ended without being stopped.
    pub(super) fn ended(&mut self, exit: Exit, since: Instant, now: Instant) {
        let interrupted = self.policy.terminal && from_terminal(exit);
        if self.is_standby_command() && !interrupted {
            return self.standby_ended(exit, since, now);
        }
        self.account.began.get_or_insert(now);
        self.account.end = Some((now, exit));
        let asked = matches!(self.wanted, Wanted::Down);
        let again_at = if asked || interrupted { None } else { self.again(exit, since, now) };
        if !asked {
            if again_at.is_none() {
                self.wanted = Wanted::Down;
            }
            self.happened.push_back(match again_at {
                Some(_) => Happened::Restarting(exit),
                None if interrupted => Happened::Interrupted,
                None => Happened::Ended(exit),
            });
        }
        self.actual = self.killing(None, again_at, now);
    }

    /// It holds nothing that another replica could take, so it is started again without a limit, or left alone.
    fn standby_ended(&mut self, exit: Exit, since: Instant, now: Instant) {
        let (again_at, words) = match self.restarts.covers(exit) {
            true => (self.restarts.delayed(since, now), "started again"),
            false => (Instant::NEVER, "not started again before the next term, because workload.restart.policy is on-failure"),
        };
        if self.wanted == Wanted::Standby {
            self.actions.push_back(Action::Warn(format!("standby.command ended ({exit}) and is {words}")));
        }
        self.actual = self.killing(None, Some(again_at), now);
    }

    fn again(&mut self, exit: Exit, since: Instant, now: Instant) -> Option<Instant> {
        if matches!(&self.actual, Actual::Running { roles, .. } if roles.stands_still()) {
            // Where one is to lead, the Lease waits for the next one.
            let is_awaited = matches!(self.wanted, Wanted::Leader(_));
            return Some(if is_awaited { now } else { self.restarts.delayed(since, now) });
        }
        match self.policy.config.on_exit {
            OnExit::Exit => None,
            OnExit::Follow if self.leads => None,
            OnExit::Follow => Some(self.restarts.delayed(since, now)),
            OnExit::Restart if self.restarts.covers(exit) => {
                let next = self.restarts.next(since, now);
                if next.is_none() {
                    let line = format!("the workload ended ({exit}), and workload.restart has no restart left for it");
                    self.actions.push_back(Action::Warn(line));
                }
                next
            }
            OnExit::Restart => None,
        }
    }

    /// Asks it to stop; SIGKILL follows at `kill_at` at the latest.
    pub(super) fn descend(&mut self, signal: Option<Signal>, kill_at: Instant, now: Instant) {
        let is_frozen = self.is_frozen();
        match &mut self.actual {
            Actual::Stopped | Actual::Waiting { .. } | Actual::Preparing { .. } | Actual::Following { .. } => {
                self.actual = self.killing(None, None, now);
            }
            Actual::Stopping { again_at, .. } => *again_at = None,
            Actual::Running { .. } | Actual::Starting { pid: Some(_), .. } if is_frozen => self.kill(now),
            Actual::Running { .. } | Actual::Starting { pid: Some(_), .. } => {
                let Some(pid) = self.main() else { return };
                self.health.call_off(now, &mut self.actions);
                // What was being prepared for its stop keeps the time that it has.
                let kill_at = self.abandon_roles().unwrap_or(kill_at);
                self.account.began.get_or_insert(now);
                let signal = signal.unwrap_or(self.policy.config.stop.signal);
                self.actions.push_back(Action::Signal { target: self.target(pid), signal });
                self.go_on();
                let (mode, margin) = (self.policy.config.stop.kill_mode, self.margin());
                let escalation = StopEscalation::asking(self.policy.pid1, mode, margin, kill_at);
                self.actual = Actual::Stopping { main: Some(pid), escalation, again_at: None };
            }
            Actual::Starting { pid: None, kill_at: stop, .. } => *stop = Some(kill_at.or_earlier(*stop)),
        }
    }

    /// Kills without asking: its time is up.
    pub(super) fn kill(&mut self, now: Instant) {
        self.account.began.get_or_insert(now);
        self.account.frozen = self.is_frozen();
        let main = self.main();
        self.abandon_roles();
        self.actual = self.killing(main, None, now);
    }

    pub(super) fn killing(&self, main: Option<i32>, again_at: Option<Instant>, now: Instant) -> Actual {
        Actual::Stopping { main, escalation: StopEscalation::killing(self.policy.pid1, self.margin(), now), again_at }
    }

    /// It should be frozen and is not: another is tried after a while.
    pub(super) fn thawed(&mut self, now: Instant) {
        let Actual::Running { pid, since, .. } = self.actual else { return };
        let again_at = Some(self.restarts.delayed(since, now));
        self.actual = self.killing(Some(pid), again_at, now);
    }

    /// There is no role left to tell; returns by when a demotion had to be acknowledged.
    fn abandon_roles(&mut self) -> Option<Instant> {
        let Actual::Running { roles, .. } = &mut self.actual else { return None };
        roles.abandon(&mut self.actions);
        roles.yields_by()
    }

    pub(super) fn margin(&self) -> Duration {
        self.policy.config.stop.kill_margin
    }
}

/// Whether a process was ended by a terminal key: by the signal itself, or by a shell's exit code for it.
fn from_terminal(exit: Exit) -> bool {
    [libc::SIGINT, libc::SIGQUIT].into_iter().any(|signal| exit.code() == Exit::Signal(signal).code())
}
