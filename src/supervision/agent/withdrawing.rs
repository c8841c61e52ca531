//! A planned stop waits a moment until the leader's address is withdrawn (law 19).
//!
//! Until it begins nothing of it is under way: a StepDown that asks for it is kept, so that no proof can answer it that was not made for
//! it (law 8).

use super::Agent;
use crate::{config::Signal, law::WITHDRAWAL, link::Reason, supervision::term::ActiveTerm, time::Instant};

/// A stop that has been announced, and has not begun.
#[derive(Clone, Debug)]
pub(super) struct Withdrawal {
    /// The signal that asked for it.
    signal: Option<Signal>,
    /// What the elector asks for.
    asked: Option<StepDown>,
    pub(super) until: Instant,
}

/// [`crate::link::ToInit::StepDown`] of the current term.
#[derive(Clone, Debug)]
pub(super) struct StepDown {
    pub(super) request: u64,
    pub(super) reason: Reason,
    pub(super) traceparent: String,
}

impl Agent {
    /// Whether the stop that this signal asks for is put off.
    pub(super) fn is_put_off(&mut self, signal: Signal, now: Instant) -> bool {
        let Some(until) = self.withdraws_until(now) else { return false };
        self.withdrawal = Some(Withdrawal { signal: Some(signal), asked: None, until });
        self.begin_stop(Reason::Signal, now);
        true
    }

    /// The elector asks for the end of the term.
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
        self.give_way(now);
    }

    /// The wait is over, for whatever reason.
    pub(super) fn stop_now(&mut self, now: Instant) {
        if self.begin_withheld(now) {
            self.give_way(now);
        }
    }

    /// What the elector that is gone has asked for is answered to nobody.
    pub(super) fn forget_asked(&mut self) {
        self.withdrawal.iter_mut().for_each(|withdrawal| withdrawal.asked = None);
    }

    /// Begins what was put off, up to the stop itself; whether there was anything.
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

    /// Until when a planned stop may wait: not at all unless somebody can withdraw what is published, and the workload leads. In its
    /// promotion it does not yet: that is called off at once.
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
