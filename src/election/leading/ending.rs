//! The end of a term: the stop, the proof, and then a release or back to following (law 4, 7, 8). Decides whether the Lease of a task
//! rests after its run.

use std::time::Duration;

use super::{Ending, Leading, Over, Proof, Stage};
use crate::{
    config::{OnFailure, Release, Trigger},
    election::{
        Event, ReleaseResult,
        common::Common,
        core::One,
        pace::doubled,
        releasing::{ReleaseStep, Releasing},
        task::Rest,
        trace::TraceContext,
        writes::micros,
    },
    law::Deadlines,
    link::{LeaseBackoff, Reason, Stop, TermInfo, Then, ToInit},
    time::Now,
};

/// The longest time for which a replica leaves the Lease to the others after a term that failed, as the kubelet's longest back-off.
const LONGEST_LEFT: Duration = Duration::from_secs(300);
/// A term of this length makes the failures before it forgotten, as the kubelet forgets them.
const FORGIVING: Duration = Duration::from_secs(600);

impl Leading {
    /// Takes in that the Lease is no longer this term's. A planned stop becomes a loss, and nothing is released.
    pub(super) fn lose(&mut self, one: &mut One<'_>, reason: Reason) {
        match &mut self.stage {
            Stage::Held => self.ask_to_stop(one, reason, None, false),
            Stage::Stopping(ending) if !ending.reason.is_loss() && !ending.was_released => {
                let context = ending.context;
                self.ask_to_stop(one, reason, Some(context), false);
            }
            Stage::Dead(ending, _) if !ending.was_released => ending.reason = reason,
            Stage::Stopping(_) | Stage::Dead(..) => {}
        }
    }

    /// Begins a planned stop, if none has begun.
    pub(super) fn end(&mut self, one: &mut One<'_>, reason: Reason) {
        if !self.is_ending() {
            self.ask_to_stop(one, reason, None, false);
        }
    }

    /// Asks init to stop. `context` is the span of a stop that has already begun.
    pub(super) fn ask_to_stop(&mut self, one: &mut One<'_>, reason: Reason, context: Option<TraceContext>, was_released: bool) {
        let context = context.unwrap_or_else(|| one.common.next_context(None));
        let request = one.common.next_step_down();
        self.stage = Stage::Stopping(Ending { reason, request, context, was_released });
        one.common.tell(ToInit::StepDown { term: self.term, request, reason, traceparent: context.to_string() });
        one.common.report(Event::Stopping { reason, context });
    }

    pub(super) fn stopped(&mut self, one: &mut One<'_>, request: u64, stop: Stop, then: Then, now: Now) {
        if let Stage::Stopping(ending) = self.stage
            && ending.request == request
        {
            // What somebody wanted to end is given back undone, whatever its exit code.
            let is_failed = stop.exit.is_some() && ending.reason.is_failure(stop.exit);
            let may_rest = is_failed && one.common.config.task.on_failure == OnFailure::Rest;
            let rests = one.common.trigger.is_some() && (may_rest || ending.reason.is_done(stop.exit));
            if ending.reason.is_done(stop.exit) {
                one.common.lease_backoff.failures = 0;
            } else if !rests && then == Then::Follow {
                judge_term(one.common, &self.info, ending.reason, stop, now);
            }
            self.stage = Stage::Dead(ending, Proof { then, rests, at: now.boot });
            self.deadlines = Deadlines::NEVER;
            one.common.report(Event::Proved(stop));
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        match self.stage {
            Stage::Held => false,
            Stage::Stopping(ending) | Stage::Dead(ending, _) => ending.reason.is_loss(),
        }
    }

    /// Returns the phase after the proof, once no write is in flight.
    pub(super) fn finish(&mut self, one: &mut One<'_>, now: Now) -> Option<Over> {
        let Stage::Dead(ending, proof) = self.stage else { return None };
        if one.reader.awaited_attempt().is_some() {
            return None;
        }
        if ending.reason.is_loss() {
            return Some(Over::Left(one.leave(self.term, proof.then, None)));
        }
        if one.common.config.lease.release == Release::Keep && !proof.rests {
            one.common.report(Event::Released(ReleaseResult::Keep));
            // Other replicas take the Lease once it has expired. They go first for one more D, as after a release.
            let backoff = one.common.timing.takeable(now.boot, one.common.timing.duration.saturating_mul(2));
            return Some(Over::Left(one.leave(self.term, proof.then, Some(backoff))));
        }
        let rest = |trigger: &Trigger| Rest::after(trigger, &self.info, self.base.as_ref());
        let releasing = Releasing {
            term: self.term,
            info: self.info.clone(),
            serial: self.serial + 1,
            context: ending.context,
            then: proof.then,
            rest: if proof.rests { one.common.trigger.as_ref().and_then(rest) } else { None },
            step: ReleaseStep::Void(None),
            until: proof.at + one.common.timing.release_limit(),
            due: now.boot,
            is_unknown: ending.was_released,
            has_conflicted: false,
        };
        Some(Over::Release(Box::new(Releasing::begin(one, releasing, self.base.take()))))
    }
}

/// Takes in how a term ended. If it failed, the other replicas go first for twice as long as after the failure before: D at
/// first, five minutes at most, and no longer than the interval of a task.
fn judge_term(common: &mut Common, info: &TermInfo, reason: Reason, stop: Stop, now: Now) {
    let began = micros(&info.acquired_at).unwrap_or(now.wall);
    let forgiving = i64::try_from(FORGIVING.as_micros()).unwrap_or(i64::MAX);
    let before = if now.wall.saturating_sub(began) < forgiving { common.lease_backoff.failures } else { 0 };
    if !reason.is_failure(stop.exit) {
        common.lease_backoff.failures = before;
        return;
    }
    // An elector that was frozen after it had read its clock learns of a proof that is later than that.
    let proved = now.boot.max(stop.proved);
    let first = common.timing.takeable(proved, common.timing.duration).since(proved);
    let longest = match common.trigger {
        Some(Trigger::Every(interval)) => interval.min(LONGEST_LEFT),
        Some(Trigger::Schedule(_)) | None => LONGEST_LEFT,
    };
    let until = proved + doubled(first, before, longest.max(first));
    common.lease_backoff = LeaseBackoff { until, failures: before.saturating_add(1) };
    common.report(Event::BacksOff(common.lease_backoff));
}
