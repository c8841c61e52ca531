//! The election of one replica: a state machine without clock or IO.

use super::{
    Action, Input,
    core::Core,
    following::{Candidacy, Following},
    leading::Leading,
    releasing::Releasing,
};
use crate::{
    law::Deadlines,
    link::{InitialState, Slot, Term, ToElector, ToInit},
    time::{Instant, Now},
};

/// Follows, campaigns, leads and releases, as the law says.
///
/// Deterministic: equal seeds and inputs give equal actions.
#[derive(Clone, Debug)]
pub struct Elector {
    core: Core,
    phase: Phase,
}

#[derive(Clone, Debug)]
enum Phase {
    Following(Following),
    Leading(Box<Leading>),
    Releasing(Box<Releasing>),
    Finished,
}

/// What follows a phase that is over.
#[derive(Clone, Debug)]
pub(crate) enum Next {
    /// A term begins.
    Lead(Box<Leading>),
    /// Its workload is proved gone, and the Lease is given back.
    Release(Box<Releasing>),
    /// It is over.
    Follow {
        /// Until then the others go first: it was given up voluntarily.
        backoff: Option<Instant>,
    },
    /// Nothing is left to do.
    Finish,
}

/// What probes and telemetry see of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// A first read succeeded.
    pub ready: bool,
    /// The workload is ready too, if it runs here and `http.ready` asks for that.
    pub workload: bool,
    /// The term that is held, until the release begins.
    pub leading: Option<Led>,
}

/// A term that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Led {
    /// Which.
    pub term: Term,
    /// When the last confirmed write was answered.
    pub confirmed: Instant,
    /// Until when it is valid.
    pub deadlines: Deadlines,
    /// It is ending.
    pub ending: bool,
}

impl Elector {
    /// The election as init hands it to a new elector; a term in progress continues. `seed` feeds jitter and trace ids.
    #[must_use]
    pub fn new(initial: InitialState, seed: u64, now: Now) -> Self {
        Self::of_slot(initial, Slot::default(), seed, now)
    }

    /// The election for one of several Leases, whose name `initial` tells.
    pub(super) fn of_slot(initial: InitialState, slot: Slot, seed: u64, now: Now) -> Self {
        let mut core = Core::new(&initial, slot, seed, now);
        let phase = match initial.resume {
            Some(resume) => Phase::Leading(Box::new(Leading::resume(&mut core, resume, now))),
            None => Phase::Following(Following::until(initial.backoff)),
        };
        let mut elector = Self { core, phase };
        elector.tick(now);
        elector
    }

    /// Takes in what arrived at `now`. What init said is only taken in: more may wait in the link, such as the proof that disarms
    /// S and H. Once it is drained, [`Self::handle_timeout`] acts on it (law 9).
    pub fn handle(&mut self, input: Input, now: Now) {
        self.core.recorder.turn(now);
        match input {
            Input::Told(message) => return self.told(message, now),
            Input::Watched(watched) => match &mut self.phase {
                Phase::Following(following) => following.watched(&mut self.core, watched, now),
                Phase::Leading(leading) => leading.watched(&mut self.core, watched, now),
                Phase::Releasing(releasing) => releasing.watched(&mut self.core, watched, now),
                Phase::Finished => {}
            },
            Input::Answered { id, answer } => {
                let Some(asked) = self.core.requests.answered(id) else { return };
                let operation = asked.operation;
                let failed = self.core.expect_success(operation);
                let next = match &mut self.phase {
                    Phase::Following(following) => following.answered(&mut self.core, asked, answer, now),
                    Phase::Leading(leading) => {
                        leading.answered(&mut self.core, asked, answer, now);
                        None
                    }
                    Phase::Releasing(releasing) => releasing.answered(&mut self.core, asked, answer, now),
                    Phase::Finished => None,
                };
                self.core.report_recovery(operation, failed);
                self.enter(next);
            }
        }
        self.tick(now);
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Now) {
        self.core.recorder.turn(now);
        self.tick(now);
    }

    /// The next thing to do, in order.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.core.next_action()
    }

    /// When [`Elector::handle_timeout`] is due; an instant in the past means at once.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Following(following) => following.timeout(&self.core),
            Phase::Leading(leading) => leading.timeout(&self.core),
            Phase::Releasing(releasing) => releasing.timeout(&self.core),
            Phase::Finished => None,
        }
    }

    /// What probes see.
    #[must_use]
    pub fn view(&self) -> View {
        let leading = match &self.phase {
            Phase::Leading(leading) => Some(Led {
                term: leading.term,
                confirmed: leading.confirmed_at(),
                deadlines: leading.deadlines(),
                ending: leading.is_ending(),
            }),
            Phase::Following(_) | Phase::Releasing(_) | Phase::Finished => None,
        };
        View { ready: self.core.ready, workload: self.core.is_fit || self.core.answers_unfit, leading }
    }

    /// The name of its Lease.
    pub(super) fn lease(&self) -> &str {
        &self.core.writer.name
    }

    pub(super) const fn slot(&self) -> Slot {
        self.core.slot
    }

    pub(super) const fn last_term(&self) -> Term {
        self.core.last_term
    }

    /// Whether no other slot may be written: this one is held, or a write to it is not settled.
    pub(super) fn is_busy(&self) -> bool {
        match &self.phase {
            Phase::Following(following) => following.may_hold(&self.core),
            Phase::Leading(_) | Phase::Releasing(_) => true,
            Phase::Finished => false,
        }
    }

    pub(super) const fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Finished)
    }

    /// When it would write, if it may.
    pub(super) fn candidacy(&self) -> Option<(Instant, Candidacy)> {
        match &self.phase {
            Phase::Following(following) => following.candidacy(&self.core),
            Phase::Leading(_) | Phase::Releasing(_) | Phase::Finished => None,
        }
    }

    /// A read that it wants is never sent.
    pub(super) fn forgo_read(&mut self) {
        self.core.requests.forgo_answer();
    }

    /// Whether it may write as a follower from now on; `last_term` is the last that any slot began.
    pub(super) const fn set_turn(&mut self, may_write: bool, last_term: Term) {
        (self.core.may_write, self.core.last_term) = (may_write, last_term);
    }

    /// Reads the Lease soon.
    pub(super) fn look_again(&mut self, now: Now) {
        match &mut self.phase {
            Phase::Following(_) => self.core.pacing.want_read(),
            Phase::Leading(leading) => leading.look_again(now),
            Phase::Releasing(_) | Phase::Finished => {}
        }
        self.handle_timeout(now);
    }

    fn told(&mut self, message: ToElector, now: Now) {
        self.core.report_recorded(|recorder| recorder.heard(&message));
        if message == ToElector::Shutdown {
            self.core.shutdown = true;
        }
        if let ToElector::Health { unready, status } = &message {
            self.core.is_fit = unready.is_none();
            self.core.writer.status.clone_from(status);
        }
        match &mut self.phase {
            Phase::Following(_) | Phase::Finished => {}
            Phase::Leading(leading) => leading.told(&mut self.core, message, now),
            Phase::Releasing(releasing) => releasing.told(&message),
        }
    }

    fn tick(&mut self, now: Now) {
        loop {
            let next = match &mut self.phase {
                Phase::Following(following) => following.tick(&mut self.core, now),
                Phase::Leading(leading) => leading.tick(&mut self.core, now),
                Phase::Releasing(releasing) => releasing.tick(&mut self.core, now),
                Phase::Finished => None,
            };
            if next.is_none() {
                return;
            }
            self.enter(next);
        }
    }

    /// The others go first until then: this replica gave up another slot voluntarily.
    pub(super) fn sit_out(&mut self, until: Instant) {
        match &mut self.phase {
            Phase::Following(following) => following.sit_out(until),
            Phase::Leading(_) | Phase::Releasing(_) | Phase::Finished => {}
        }
    }

    fn enter(&mut self, next: Option<Next>) {
        let Some(next) = next else { return };
        self.phase = match next {
            Next::Lead(leading) => Phase::Leading(leading),
            Next::Release(releasing) => Phase::Releasing(releasing),
            Next::Follow { backoff } => Phase::Following(Following::until(backoff)),
            Next::Finish => {
                self.core.tell(ToInit::Done);
                Phase::Finished
            }
        };
    }
}
