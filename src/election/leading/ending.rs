//! The end of a term: from its cause to the proof, and on to a release or back to following (law 4, 7, 8).

use super::Leading;
use crate::{
    config::Release,
    election::{Event, Given, core::Core, elector::Phase, following::Following, releasing::Releasing, trace::TraceContext},
    link::{Reason, Stop, Term, Then, ToInit},
    time::{Instant, Now},
};

/// The end of a term, from its cause to the proof.
#[derive(Clone, Debug)]
pub(crate) struct Ending {
    pub(super) reason: Reason,
    request: u64,
    pub(crate) context: TraceContext,
    /// What was proved, what follows, and when that was known here.
    pub(super) proof: Option<(Stop, Then, Instant)>,
}

impl Leading {
    pub(super) fn lose(&mut self, core: &mut Core, reason: Reason) {
        if !self.released && !self.is_lost() {
            self.end(core, reason);
        }
    }

    /// Asks init to stop, and again if a planned stop becomes a loss.
    pub(super) fn end(&mut self, core: &mut Core, reason: Reason) {
        let context = self.ending.as_ref().map(|ending| ending.context);
        self.end_in(core, reason, context);
    }

    /// The same, in the trace span of a stop that has already begun.
    pub(super) fn end_in(&mut self, core: &mut Core, reason: Reason, context: Option<TraceContext>) {
        let context = context.unwrap_or_else(|| core.next_context(None));
        let request = core.next_step_down();
        self.ending = Some(Ending { reason, request, context, proof: None });
        self.want_reread(core);
        if self.announced {
            core.tell(ToInit::StepDown { term: self.term, request, reason, traceparent: context.to_string() });
        }
        core.report(Event::Stopping { reason, context });
    }

    /// Wants a fresh read for the release that may follow.
    pub(super) fn want_reread(&mut self, core: &Core) {
        self.reread_wanted = self.ending.is_some() && self.goes_on() && self.announced && core.release != Release::Keep;
    }

    pub(super) fn stopped(&mut self, core: &mut Core, request: u64, stop: Stop, then: Then, now: Now) {
        let Some(ending) = self.ending.as_mut().filter(|ending| ending.request == request) else { return };
        ending.proof = Some((stop, then, now.boot));
        self.proved = true;
        core.report(Event::Proved(stop));
        self.due = now.boot;
    }

    pub(super) fn is_lost(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.reason.is_loss())
    }

    /// Neither lost nor proved dead: renewals still count (law 4, 7, 8).
    pub(super) fn goes_on(&self) -> bool {
        !self.is_lost() && !self.is_proved()
    }

    pub(super) fn is_proved(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.proof.is_some())
    }

    /// The phase after the proof, once no write is in flight.
    pub(super) fn finish(&mut self, core: &mut Core, now: Now) -> Option<Phase> {
        let ending = self.ending.as_ref()?;
        if core.awaited_attempt().is_some() {
            return None;
        }
        let keeps = ending.reason.is_loss() || core.release == Release::Keep || self.is_waiting(core, now);
        if let (true, false, Some((_, then, proved))) = (self.announced, keeps, ending.proof) {
            return Some(Phase::Releasing(Box::new(Releasing::begin(core, self, ending.context, proved, then, now))));
        }
        if core.is_awaiting() {
            return None;
        }
        if !self.announced {
            core.unknown.clear();
            return Some(Phase::Following(Following::default()));
        }
        let (_, then, _) = ending.proof?;
        if !ending.reason.is_loss() {
            core.report(Event::Released { how: Given::Keep });
        }
        let following = if ending.reason.is_loss() { Following::default() } else { Following::after_release(self.timing, now) };
        Some(leave(core, self.term, then, following))
    }
}

/// Tells init that `term` is over, and follows or finishes.
pub(crate) fn leave(core: &mut Core, term: Term, then: Then, following: Following) -> Phase {
    core.unknown.clear();
    core.tell(ToInit::Ended { term });
    core.report(Event::Following);
    match then {
        Then::Follow => Phase::Following(following),
        Then::Exit => {
            core.tell(ToInit::Done);
            Phase::Finished
        }
    }
}
