//! A planned stop waits a moment until the leader's address is withdrawn (law 19).

use super::Agent;
use crate::{config::Signal, law::WITHDRAWAL, link::Reason, supervision::term::ActiveTerm, time::Instant};

/// A stop that has been announced, and has not begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Withdrawal {
    /// The signal that asked for it; none: the elector did.
    signal: Option<Signal>,
    pub(super) until: Instant,
}

impl Agent {
    /// Whether the stop of a live term for this reason is put off; if so, it is announced.
    pub(super) fn withdraws_first(&mut self, reason: Reason, signal: Option<Signal>, now: Instant) -> bool {
        let is_published = self.config.config.service.endpoint_slice.is_some() && self.workload.leads();
        let can_be_heard = self.shutdown.is_none() && self.electors.is_greeted();
        if reason.is_loss() || !is_published || !can_be_heard || !self.term.as_ref().is_some_and(ActiveTerm::is_live) {
            return false;
        }
        self.withdrawal = Some(Withdrawal { signal, until: now + WITHDRAWAL });
        if signal.is_some() {
            self.begin_stop(reason, now);
        }
        true
    }

    /// The wait is over, for whatever reason.
    pub(super) fn stop_now(&mut self, now: Instant) {
        match self.withdrawal.take() {
            Some(Withdrawal { signal: Some(signal), .. }) => self.asked_to_end(signal, None, now),
            Some(Withdrawal { signal: None, .. }) => {}
            None => return,
        }
        self.give_way(now);
    }
}
