//! The end of a term: from its cause to the proof, and on to a release or back to following (law 4, 7, 8).

use super::{Ending, Leading, Proof, Stage};
use crate::{
    config::{OnFailure, Release},
    election::{
        Event, ReleaseResult,
        core::Core,
        elector::Next,
        releasing::{Releasing, Step},
        trace::TraceContext,
    },
    law::Deadlines,
    link::{Exit, Reason, Stop, Then, ToInit},
    time::Now,
};

impl Leading {
    /// The Lease is no longer this term's: a planned stop becomes a loss, and nothing is released.
    pub(super) fn lose(&mut self, core: &mut Core, reason: Reason) {
        match &mut self.stage {
            Stage::Held => self.ask_to_stop(core, reason, None, false),
            Stage::Stopping(ending) if !ending.reason.is_loss() && !ending.was_released => {
                let context = ending.context;
                self.ask_to_stop(core, reason, Some(context), false);
            }
            Stage::Proved(ending, _) if !ending.was_released => ending.reason = reason,
            Stage::Stopping(_) | Stage::Proved(..) => {}
        }
    }

    /// Begins a planned stop, if none has begun.
    pub(super) fn end(&mut self, core: &mut Core, reason: Reason) {
        match self.stage {
            Stage::Held => self.ask_to_stop(core, reason, None, false),
            Stage::Stopping(_) | Stage::Proved(..) => {}
        }
    }

    /// Asks init to stop, in the trace span of a stop that has already begun, if there is one.
    pub(super) fn ask_to_stop(&mut self, core: &mut Core, reason: Reason, context: Option<TraceContext>, was_released: bool) {
        let context = context.unwrap_or_else(|| core.next_context(None));
        let request = core.next_step_down();
        self.stage = Stage::Stopping(Ending { reason, request, context, was_released });
        core.tell(ToInit::StepDown { term: self.term, request, reason, traceparent: context.to_string() });
        core.report_recorded(|recorder| recorder.stopping(reason, context));
        core.report(Event::Stopping { reason, context });
    }

    pub(super) fn stopped(&mut self, core: &mut Core, request: u64, stop: Stop, then: Then, now: Now) {
        if let Stage::Stopping(ending) = self.stage
            && ending.request == request
        {
            let rests = match (stop.exit, core.on_failure) {
                (None, _) => false,
                (Some(Exit::Code(0)), _) | (_, OnFailure::Rest) => true,
                (Some(_), OnFailure::Release) => ending.reason == Reason::Limit,
            };
            let interval = core.every.filter(|_| rests);
            self.stage = Stage::Proved(ending, Proof { then, interval, at: now.boot });
            self.deadlines = Deadlines::NEVER;
            core.recorder.proved(stop);
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        match self.stage {
            Stage::Held => false,
            Stage::Stopping(ending) | Stage::Proved(ending, _) => ending.reason.is_loss(),
        }
    }

    /// What follows the proof, once no write is in flight.
    pub(super) fn finish(&mut self, core: &mut Core, now: Now) -> Option<Next> {
        let Stage::Proved(ending, proof) = self.stage else { return None };
        if core.requests.awaited_attempt().is_some() {
            return None;
        }
        if ending.reason.is_loss() {
            return Some(core.leave(self.term, proof.then, None));
        }
        if core.release == Release::Keep && proof.interval.is_none() {
            core.recorder.released(ReleaseResult::Keep);
            // To others it is free only once it has run out; from there they go first for as long as after a release.
            let backoff = core.timing.takeable(now.boot, core.timing.duration.saturating_mul(2));
            return Some(core.leave(self.term, proof.then, Some(backoff)));
        }
        let releasing = Releasing {
            term: self.term,
            info: self.info.clone(),
            serial: self.serial + 1,
            context: ending.context,
            then: proof.then,
            interval: proof.interval,
            step: Step::Void(None),
            until: proof.at + core.timing.release_limit(),
            due: now.boot,
            is_unknown: ending.was_released,
            has_conflicted: false,
        };
        Some(Next::Release(Box::new(Releasing::begin(core, releasing, self.base.take()))))
    }
}
