//! Requests to end the lead or init: what each signal to init means, and a StepDown of the elector. A signal that asks for no
//! stop is passed on as it came.
//!
//! A planned stop waits a moment until the leader's address is withdrawn (law 19). Nothing of the stop is under way before it
//! begins: `stop_or_demote` (in [`term_end`](super::term_end)) begins what was put off, once, and so calls back into this file. A
//! StepDown that asks for it is kept until then, so that only a proof made after it can answer it (law 8).

use super::{
    Agent,
    shutdown::{Shutdown, Urgency},
};
use crate::{
    config::{OnExit, Signal},
    law::WITHDRAWAL,
    link::{Exit, Reason},
    supervision::term::ActiveTerm,
    time::Instant,
};

/// A stop that was announced and has not begun.
#[derive(Clone, Debug, Hash)]
pub(super) struct Withdrawal {
    /// The signal that asked for the stop.
    signal: Option<Signal>,
    /// The StepDown that asked for the stop.
    asked: Option<StepDown>,
    pub(super) until: Instant,
}

/// A [`crate::link::ToInit::StepDown`] of the current term.
#[derive(Clone, Debug, Hash)]
pub(super) struct StepDown {
    pub(super) request: u64,
    pub(super) reason: Reason,
    pub(super) traceparent: String,
}

/// A stop that a signal asks for: by this signal in place of the stop signal, if there is one.
struct SignalledStop(Option<Signal>);

impl Agent {
    /// Takes a signal to init.
    pub(super) fn signalled(&mut self, signal: Signal, now: Instant) {
        if self.signalled_stop(signal).is_some() {
            // A second signal ends the wait of the first.
            self.end_withdrawal(now);
        }
        self.flush(now);
        match self.signalled_stop(signal) {
            Some(_) if self.put_off(signal, now) => {}
            Some(SignalledStop(passed)) => self.asked_to_end(signal, passed, now),
            None => self.workload.forward(signal),
        }
    }

    /// Returns the stop that a signal asks for. None: it asks for none, and is only passed on.
    fn signalled_stop(&self, signal: Signal) -> Option<SignalledStop> {
        let runs = self.workload.main().is_some();
        match signal.0 {
            libc::SIGTERM => Some(SignalledStop(None)),
            libc::SIGINT | libc::SIGQUIT if !runs => Some(SignalledStop(None)),
            // The terminal is gone, so nobody waits for the command.
            libc::SIGHUP if !runs && self.config.preset.is_once() => Some(SignalledStop(None)),
            // The program may handle it and run on, as a JVM does with QUIT. If the program ends, init ends too.
            libc::SIGINT | libc::SIGQUIT if self.is_plain() && self.config.config.workload.on_exit != OnExit::Restart => None,
            libc::SIGINT | libc::SIGQUIT => {
                let passed = self.workload.rewritten(signal)?;
                Some(SignalledStop(Some(passed).filter(|signal| !self.workload.tells_a_role(*signal))))
            }
            _ => None,
        }
    }

    /// Puts off the stop that this signal asks for. Returns false if it begins at once.
    fn put_off(&mut self, signal: Signal, now: Instant) -> bool {
        let Some(until) = self.withdraws_until(now) else { return false };
        self.withdrawal = Some(Withdrawal { signal: Some(signal), asked: None, until });
        self.end_term(Reason::Signal, now);
        true
    }

    /// Takes a StepDown: the elector asks for the end of the term.
    pub(super) fn step_down(&mut self, asked: StepDown, now: Instant) {
        let reason = asked.reason;
        if !reason.is_loss() {
            if let Some(withdrawal) = &mut self.withdrawal {
                withdrawal.asked = Some(asked);
                return;
            }
            if let (Some(until), Some(term)) = (self.withdraws_until(now), &mut self.term) {
                term.stop(reason);
                self.withdrawal = Some(Withdrawal { signal: None, asked: Some(asked), until });
                return self.on_loss(reason);
            }
        }
        self.begin_withheld(now);
        if let Some(term) = &mut self.term {
            term.step_down(asked.request, reason, asked.traceparent);
        }
        self.on_loss(reason);
        self.stop_or_demote(now);
    }

    /// Time until which a planned stop waits. None if no address is published, no elector can withdraw it, or the workload does
    /// not lead yet: a promotion is cancelled at once.
    fn withdraws_until(&self, now: Instant) -> Option<Instant> {
        let is_published = self.config.config.service.endpoint_slice.is_some();
        let can_be_heard = self.shutdown.is_none() && self.electors.is_greeted();
        let term = self
            .term
            .as_ref()
            .filter(|term| is_published && self.workload.is_leading() && can_be_heard && ActiveTerm::is_live(term))?;
        Some((now + WITHDRAWAL).min(term.deadlines().soft))
    }

    /// Ends the wait, and begins the stop that was put off.
    pub(super) fn end_withdrawal(&mut self, now: Instant) {
        if self.withdrawal.is_some() {
            self.stop_or_demote(now);
        }
    }

    /// Begins what was put off; the caller stops or demotes the leader.
    pub(super) fn begin_withheld(&mut self, now: Instant) {
        let Some(Withdrawal { signal, asked, .. }) = self.withdrawal.take() else { return };
        if let (Some(term), Some(StepDown { request, reason, traceparent })) = (&mut self.term, asked) {
            term.step_down(request, reason, traceparent);
        }
        if let Some((signal, SignalledStop(passed))) = signal.and_then(|signal| Some((signal, self.signalled_stop(signal)?))) {
            self.asked_to_end(signal, passed, now);
        }
    }

    /// Forgets the StepDown of an elector that is gone.
    pub(super) fn forget_asked(&mut self) {
        if let Some(withdrawal) = &mut self.withdrawal {
            withdrawal.asked = None;
        }
    }

    /// Begins or shortens a stop. The first TERM gives `grace`, the second `lossGrace`, the third kills at once, and the fourth
    /// does not wait for the release either. A `signal` that is passed on begins a stop, but never shortens one.
    fn asked_to_end(&mut self, by: Signal, signal: Option<Signal>, now: Instant) {
        // The exit code of a standby that waits for its restart does not count.
        let nothing_runs = self.workload.is_down() && self.term.is_none() && !self.is_plain();
        // A script must not take the exit code for that of its command.
        let is_awaited = self.config.preset.is_once() || self.is_plain();
        let code_of_nothing = if is_awaited { Exit::Signal(by.0).code() } else { 0 };
        let shutdown = self.shutdown.get_or_insert_with(|| Shutdown::asked(code_of_nothing, nothing_runs));
        shutdown.asked_by.get_or_insert(by);
        if signal.is_none() {
            shutdown.urgency = shutdown.urgency.more();
        }
        let stop = &self.config.config.workload.stop;
        let (hastens, kill_at) = (shutdown.is_hastened(), shutdown.urgency.kill_at(stop, now));
        match (self.workload.is_stopping(), signal) {
            (true, Some(signal)) => self.workload.pass(signal),
            (true, None) if std::mem::take(&mut shutdown.passed) => {
                self.workload.pass(stop.signal);
                self.workload.go_on();
            }
            (true, None) => {}
            (false, signal) => shutdown.passed = signal.is_some(),
        }
        if self.workload.is_down() {
            self.workload.hold();
        } else if shutdown.urgency == Urgency::Asked && signal.is_none() && self.workload.prepares_to_follow() {
            self.end_term(Reason::Signal, now);
            self.stop_or_demote(now);
        } else {
            self.workload.stop(signal, kill_at, now);
            if hastens {
                self.workload.shorten_stop(kill_at);
            }
        }
        self.end_term(Reason::Signal, now);
    }
}
