//! A planned stop waits a moment until the leader's address is withdrawn (law 19).
//!
//! Nothing of the stop is under way before it begins. A StepDown that asks for it is kept until then, so that only a proof made
//! after it can answer it (law 8).

use super::Agent;
use crate::{config::Signal, law::WITHDRAWAL, link::Reason, supervision::term::ActiveTerm, time::Instant};

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

impl Agent {
    /// Puts off the stop that this signal asks for; false if it begins at once.
    pub(super) fn put_off(&mut self, signal: Signal, now: Instant) -> bool {
        let Some(until) = self.withdraws_until(now) else { return false };
        self.withdrawal = Some(Withdrawal { signal: Some(signal), asked: None, until });
        self.begin_stop(Reason::Signal, now);
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

    /// Ends the wait, and begins the stop that was put off.
    pub(super) fn stop_now(&mut self, now: Instant) {
        if self.begin_withheld(now) {
            self.stop_or_demote(now);
        }
    }

    /// Forgets the StepDown of an elector that is gone.
    pub(super) fn forget_asked(&mut self) {
        self.withdrawal.iter_mut().for_each(|withdrawal| withdrawal.asked = None);
    }

    /// Takes back the delay of a stop; the caller begins the stop itself. False if none was put off.
    pub(super) fn begin_withheld(&mut self, now: Instant) -> bool {
        let Some(Withdrawal { signal, asked, .. }) = self.withdrawal.take() else { return false };
        if let (Some(term), Some(StepDown { request, reason, traceparent })) = (&mut self.term, asked) {
            term.step_down(request, reason, traceparent);
        }
        if let Some(signal) = signal {
            self.asked_to_end(signal, None, now);
        }
        true
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
}
