//! The stop of a workload: asked, then killed in the steps of the escalation, proved dead (law 3, 7, 8).
//! `super` takes the end of the main process, and orders the steps of the escalation.

use std::time::Duration;

use super::{State, Wanted, Workload, WorkloadEvent};
use crate::{
    config::Signal,
    link::{Exit, Reason, Stop, TermInfo},
    supervision::{
        escalation::StopEscalation,
        interface::{Action, ProgramEnv, Scan},
        policy::Mode,
    },
    time::Instant,
};

/// Times and result of a stop, for the report to the elector.
#[derive(Clone, Copy, Debug, Default, Hash)]
pub(super) struct StopReport {
    pub(super) began: Option<Instant>,
    killed: Option<Instant>,
    pub(super) end: Option<(Instant, Exit)>,
    fused: Option<Instant>,
    /// The workload was frozen when it was killed.
    pub(super) frozen: bool,
}

impl StopReport {
    fn proved(self, proved: Instant) -> Stop {
        let (exited, exit) = self.end.unzip();
        Stop { began: self.began, killed: self.killed, exited, exit, fused: self.fused, proved }
    }
}

impl Workload {
    /// Ends the lead, and proves that nothing of a leader runs: demotes or stops the workload, with SIGKILL no later than
    /// `kill_at`. The hook of a demotion does not begin from `not_after` on. Nothing is started until it is wanted again.
    ///
    /// Each call leads to a [`WorkloadEvent::Yielded`]: at once if only a standby is starting or ending, otherwise after a proof
    /// that is made from now on.
    pub(crate) fn yield_lead(&mut self, reason: Reason, info: &TermInfo, kill_at: Instant, not_after: Instant, now: Instant) {
        self.wanted = Wanted::Down;
        if self.has_led {
            self.led = Some(ProgramEnv { info: Some(info.clone()), reason: Some(reason), exit: self.exit() });
        }
        if !self.leads {
            let is_passing = self.stands_by() && (self.is_starting() || self.is_stopping());
            if is_passing || self.main.is_none() && matches!(self.state, State::AfterFollow) {
                // A standby that is starting or ending does not lead, nor does afterFollow, and its stop goes on.
                return self.yielded(now);
            }
            if self.main.is_some() && matches!(self.policy.mode, Mode::StandbyCommand | Mode::Frozen) {
                self.yielded(now);
                self.report = StopReport::default();
                return;
            }
        }
        self.health.cancel(now, &mut self.actions);
        let may_tell = self.policy.mode == Mode::Always || !reason.is_loss();
        if !(may_tell && self.demote(reason, info, kill_at, not_after, now)) {
            self.ask_to_stop(None, kill_at, now);
            if reason.is_loss() {
                self.shorten_stop(kill_at);
            }
        }
    }

    /// Moves the kill of a stop that is under way to `kill_at`, if that is earlier. Not called for a planned stop, whose time the
    /// workload may have extended.
    pub(crate) fn shorten_stop(&mut self, kill_at: Instant) {
        if let State::Stopping { escalation, .. } = &mut self.state {
            escalation.shorten(kill_at);
        }
    }

    /// Extends a stop or a preparation until `until`, unless the Lease is held for the successor of a standby.
    pub(crate) fn extend_stop(&mut self, until: Instant) {
        let is_awaited = self.launch().is_some() && !self.leads;
        if let State::Stopping { escalation, .. } = &mut self.state {
            if !is_awaited {
                escalation.extend(until);
            }
        } else if let State::Demoting(change) = &mut self.state
            && self.policy.mode != Mode::Always
        {
            change.until = change.until.max(until);
        }
    }

    /// Sets the wanted state to down, and asks the workload to stop. `signal` replaces the stop signal.
    pub(crate) fn stop(&mut self, signal: Option<Signal>, kill_at: Instant, now: Instant) {
        self.wanted = Wanted::Down;
        self.ask_to_stop(signal, kill_at, now);
    }

    /// Stops a standby that is not live, and starts another one after the delay of a crash.
    pub(crate) fn replace(&mut self, kill_at: Instant, now: Instant) {
        let next = self.restarts.delayed(self.since, now);
        self.stop(None, kill_at, now);
        if let State::Stopping { again_at, .. } = &mut self.state {
            *again_at = Some(next);
        }
    }

    /// Notes that the kernel's fuse had killed it by `at`.
    pub(crate) fn fused(&mut self, at: Instant) {
        self.report.fused = Some(at);
    }

    /// Takes the passing of H, which was at `hard`: kills everything.
    pub(crate) fn hard(&mut self, hard: Instant, now: Instant) {
        self.wanted = Wanted::Down;
        if self.runs() || self.is_starting() {
            self.kill(now);
        } else {
            self.ask_to_stop(None, now, now);
        }
        if let State::Stopping { escalation, .. } = &mut self.state {
            escalation.shorten(now);
            escalation.hard(hard, now);
        }
    }

    /// Takes the proof that suffices for a plain init: it has no child.
    pub(crate) fn childless(&mut self, now: Instant) {
        if self.policy.mode == Mode::Plain {
            self.scanned(Scan { clean: true, ..Scan::default() }, now);
        }
    }

    pub(crate) fn scanned(&mut self, scan: Scan, now: Instant) {
        let State::Stopping { escalation, again_at } = &mut self.state else { return };
        if !escalation.scanned(scan, now) {
            return;
        }
        self.report.killed = self.report.killed.or_else(|| escalation.killed());
        if self.leads
            && let Some(led) = &mut self.led
        {
            led.exit = self.report.end.map(|(_, exit)| exit);
        }
        self.state = again_at.map_or(State::Down, |until| State::Waiting { until });
        (self.main, self.leads) = (None, false);
        self.yielded(now);
        self.advance(now);
    }

    /// Reports the proof. If it is asked for again, reports the first one, because nothing of a leader has run since.
    pub(super) fn yielded(&mut self, now: Instant) {
        let stop = *self.proved.get_or_insert_with(|| self.report.proved(now));
        self.events.push_back(WorkloadEvent::Yielded(stop));
    }

    /// Sends the stop signal; SIGKILL follows at `kill_at`, unless a stop is under way.
    pub(super) fn ask_to_stop(&mut self, signal: Option<Signal>, kill_at: Instant, now: Instant) {
        let is_frozen = self.is_frozen();
        match (&mut self.state, self.main) {
            (State::Stopping { again_at, .. }, _) => *again_at = None,
            (State::Starting { kill_at: stop, .. }, None) => *stop = Some(kill_at.or_earlier(*stop)),
            (_, None) => self.kill_tree(None, now),
            (_, Some(_)) if is_frozen => self.kill(now),
            (_, Some(pid)) => {
                self.health.cancel(now, &mut self.actions);
                // A workload that was being prepared for its stop keeps the time that it has.
                let kill_at = self.abandon_change().unwrap_or(kill_at);
                self.report.began.get_or_insert(now);
                let signal = signal.unwrap_or(self.policy.config.workload.stop.signal);
                self.actions.push_back(Action::Signal { target: self.target(pid), signal });
                self.go_on();
                let (mode, margin) = (self.policy.config.workload.stop.kill_mode, self.margin());
                self.stop_by(StopEscalation::asking(self.policy.pid1, mode, margin, kill_at), None);
            }
        }
    }

    /// Kills the workload without asking.
    pub(super) fn kill(&mut self, now: Instant) {
        self.report.began.get_or_insert(now);
        self.report.frozen = self.is_frozen();
        self.abandon_change();
        self.kill_tree(None, now);
    }

    /// Kills the processes that are left.
    pub(super) fn kill_tree(&mut self, again_at: Option<Instant>, now: Instant) {
        self.stop_by(StopEscalation::killing(self.policy.pid1, self.margin(), now), again_at);
    }

    fn stop_by(&mut self, escalation: StopEscalation, again_at: Option<Instant>) {
        if let Some(mut hook) = self.control.take() {
            hook.cut_short(&mut self.actions);
        }
        self.state = State::Stopping { escalation, again_at };
    }

    pub(super) fn margin(&self) -> Duration {
        self.policy.config.workload.stop.kill_margin
    }
}
