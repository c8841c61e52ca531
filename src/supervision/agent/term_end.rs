//! The end of a term: its deadlines, and the stop that begins then (law 3, 7). The elector is told after the workload's signal, or
//! before it where the stop waits until the address is withdrawn (law 19).

use super::Agent;
use crate::{
    config::{OnLoss, Runs},
    exit,
    link::{Exit, Reason, ToElector},
    slot::Slot,
    supervision::interface::Action,
    time::Instant,
};

impl Agent {
    /// Acts on S and H as they pass (law 3).
    pub(super) fn enforce(&mut self, now: Instant) {
        let Some(term) = self.term.as_ref().filter(|term| term.due().is_some_and(|at| at <= now)) else { return };
        if now >= term.deadlines().hard {
            self.expire(now);
        } else {
            self.end_term(Reason::Expired, now);
            self.stop_or_demote(now);
        }
    }

    /// Time at which a task has reached its limit.
    pub(super) fn limit(&self) -> Option<Instant> {
        self.term.as_ref()?.limit_at(self.config.preset.task()?.limit)
    }

    /// Stops a task that has reached its limit. If it is to run once, init ends with the code of the stop signal, because the
    /// task was not done.
    pub(super) fn limit_run(&mut self, now: Instant) {
        if self.limit().is_none_or(|at| now < at) {
            return;
        }
        if self.config.preset.is_once() {
            self.begin_shutdown(Some(Exit::Signal(self.config.config.workload.stop.signal.0).code()));
        }
        self.end_term(Reason::Limit, now);
        self.stop_or_demote(now);
    }

    /// Takes the passing of H.
    pub(super) fn expire(&mut self, now: Instant) {
        self.begin_withheld(now);
        let Some(hard) = self.term.as_ref().filter(|term| term.due().is_some()).map(|term| term.deadlines().hard) else { return };
        self.end_term(Reason::Expired, now);
        if let Some(term) = &mut self.term {
            term.spend();
        }
        self.workload.hard(hard, now);
        self.workload.handle_timeout(now);
    }

    /// Takes what a kernel fuse has killed. The Lease is still held before H, so it can be released.
    pub(super) fn burnt(&mut self, left: bool, now: Instant) {
        match self.hard() {
            Some(hard) if now < hard => {
                self.end_term(Reason::Fuse, now);
                self.stop_or_demote(now);
            }
            Some(hard) => {
                // Until E nobody else leads, so it does not matter when it died.
                if !left && self.term.as_ref().is_some_and(|term| now >= term.deadlines().end) {
                    self.workload.fused(hard);
                }
                self.expire(now);
            }
            None => {}
        }
    }

    /// Begins the end of a live term, and tells the elector.
    pub(super) fn end_term(&mut self, reason: Reason, now: Instant) {
        if let Some(active) = self.term.as_mut().filter(|term| term.is_live()) {
            active.stop(reason);
            let term = active.term;
            self.on_loss(reason);
            if self.electors.is_alive() {
                self.words.push_back(Action::Tell(ToElector::Stopping { term, reason, at: now }));
            }
        }
    }

    /// Stops or demotes the leader, within the time that the reason leaves (law 7).
    pub(super) fn stop_or_demote(&mut self, now: Instant) {
        self.begin_withheld(now);
        let Some(term) = &self.term else { return };
        let (Some(reason), hard) = (term.stopping(), term.deadlines().hard) else { return };
        let stop = &self.config.config.workload.stop;
        let kill_at = if reason.is_loss() { hard.min(now + stop.loss_grace) } else { now + stop.grace };
        // A standby keeps the time that it has for its stop, and the Lease is not held for that.
        if self.shutdown.is_some() && self.workload.leads() && self.config.config.workload.runs == Runs::Always {
            self.workload.stop(None, kill_at, now);
            if reason.is_loss() {
                self.workload.shorten_stop(kill_at);
            }
        } else {
            self.workload.yield_lead(reason, &term.info, kill_at, hard, now);
        }
    }

    /// Ends init after a loss with `onLoss: exit`. A command that runs once does not campaign again after any stop.
    pub(super) fn on_loss(&mut self, reason: Reason) {
        let is_lost = reason.is_loss() || self.config.preset.is_once();
        if is_lost && self.config.config.workload.on_loss == OnLoss::Exit && self.shutdown.is_none() {
            let term = self.term.as_ref().map(|term| &term.info);
            let since = term.map(|info| format!(", held since {}", info.acquired_at)).unwrap_or_default();
            let lease = self.config.config.lease.name_of(term.map_or_else(Slot::default, |info| info.slot));
            let why = format!("the Lease {lease} was lost ({}){since}", reason.as_str());
            self.begin_shutdown(Some(exit::LEADERSHIP_LOST)).why = Some(why);
        }
    }
}
