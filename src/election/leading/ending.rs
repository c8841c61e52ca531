//! The end of a term: the stop, the proof, and then a release or back to following (law 4, 7, 8).

use super::{Ending, Leading, Proof, Stage};
use crate::{
    config::{OnFailure, Release, Trigger},
    election::{
        Event, ReleaseResult,
        core::Core,
        elector::Next,
        releasing::{ReleaseStep, Releasing},
        trace::TraceContext,
        writes::{FIRE, micros},
    },
    law::Deadlines,
    link::{Exit, Reason, Stop, Then, ToInit},
    time::Now,
};

/// In microseconds: the API has no shorter duration.
const SHORTEST_REST: i64 = 1_000_000;

impl Leading {
    /// Takes in that the Lease is no longer this term's. A planned stop becomes a loss, and nothing is released.
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

    /// Asks init to stop. `context` is the span of a stop that has already begun.
    pub(super) fn ask_to_stop(&mut self, core: &mut Core, reason: Reason, context: Option<TraceContext>, was_released: bool) {
        let context = context.unwrap_or_else(|| core.next_context(None));
        let request = core.next_step_down();
        self.stage = Stage::Stopping(Ending { reason, request, context, was_released });
        core.tell(ToInit::StepDown { term: self.term, request, reason, traceparent: context.to_string() });
        core.report(Event::Stopping { reason, context });
    }

    pub(super) fn stopped(&mut self, core: &mut Core, request: u64, stop: Stop, then: Then, now: Now) {
        if let Stage::Stopping(ending) = self.stage
            && ending.request == request
        {
            let rests = match (stop.exit, core.config.task.on_failure) {
                (None, _) => false,
                (Some(Exit::Code(0)), _) | (_, OnFailure::Rest) => true,
                (Some(_), OnFailure::Release) => ending.reason == Reason::Limit,
            };
            let rests = core.trigger.is_some() && rests;
            if !rests && then == Then::Follow {
                core.judge_term(&self.info, ending.reason, stop.exit, now);
            }
            self.stage = Stage::Proved(ending, Proof { then, rests, at: now.boot });
            self.deadlines = Deadlines::NEVER;
            core.report(Event::Proved(stop));
        }
    }

    /// Returns when the run after this term's is due, and how long the Lease rests at least, in microseconds. What ran for longer than
    /// an interval needs no rest, but the fire that it was for has to be written (law 14).
    fn next_run(&self, trigger: &Trigger) -> Option<[i64; 2]> {
        let began = micros(&self.info.acquired_at)?;
        match trigger {
            Trigger::Every(interval) => Some([began.saturating_add(i64::try_from(interval.as_micros()).ok()?), 0]),
            Trigger::Schedule(schedule) => {
                let fire = self.base.as_ref().and_then(|record| record.annotation(FIRE)).and_then(micros);
                Some([schedule.next(fire.unwrap_or(began)).unwrap_or(i64::MAX), SHORTEST_REST])
            }
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        match self.stage {
            Stage::Held => false,
            Stage::Stopping(ending) | Stage::Proved(ending, _) => ending.reason.is_loss(),
        }
    }

    /// Returns the phase after the proof, once no write is in flight.
    pub(super) fn finish(&mut self, core: &mut Core, now: Now) -> Option<Next> {
        let Stage::Proved(ending, proof) = self.stage else { return None };
        if core.requests.awaited_attempt().is_some() {
            return None;
        }
        if ending.reason.is_loss() {
            return Some(core.leave(self.term, proof.then, None));
        }
        if core.config.lease.release == Release::Keep && !proof.rests {
            core.report(Event::Released(ReleaseResult::Keep));
            // Other replicas take the Lease once it has expired. They go first for one more D, as after a release.
            let backoff = core.timing.takeable(now.boot, core.timing.duration.saturating_mul(2));
            return Some(core.leave(self.term, proof.then, Some(backoff)));
        }
        let releasing = Releasing {
            term: self.term,
            info: self.info.clone(),
            serial: self.serial + 1,
            context: ending.context,
            then: proof.then,
            next_run: core.trigger.as_ref().filter(|_| proof.rests).and_then(|trigger| self.next_run(trigger)),
            step: ReleaseStep::Void(None),
            until: proof.at + core.timing.release_limit(),
            due: now.boot,
            is_unknown: ending.was_released,
            has_conflicted: false,
        };
        Some(Next::Release(Box::new(Releasing::begin(core, releasing, self.base.take()))))
    }
}
