//! The election of one replica: a state machine without clock or IO.

use super::{
    Action, Event, Input,
    core::Core,
    following::{Candidacy, Following},
    leading::Leading,
    releasing::Releasing,
};
use crate::{
    config::HttpReady,
    law::Deadlines,
    link::{InitialState, LeaseBackoff, Term, ToElector, ToInit},
    slot::Slot,
    time::{Instant, Now},
};

/// Follows, campaigns, leads and releases, as the law says.
///
/// Deterministic: equal seeds and inputs give equal actions.
#[derive(Clone, Debug, Hash)]
pub struct Elector {
    core: Core,
    phase: Phase,
}

#[derive(Clone, Debug, Hash)]
enum Phase {
    Following(Following),
    Leading(Box<Leading>),
    Releasing(Box<Releasing>),
    Finished,
}

/// The phase that follows one that is over.
#[derive(Clone, Debug)]
pub(crate) enum Next {
    /// A term begins.
    Lead(Box<Leading>),
    /// The workload of the term is proved gone: give the Lease back.
    Release(Box<Releasing>),
    /// The term is over: follow again.
    Follow,
    /// Nothing is left to do: init may end.
    Finish,
}

/// The state of an election, for probes and telemetry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// A first read succeeded.
    pub ready: bool,
    /// The workload is ready, or `http.ready` does not ask for that.
    pub workload: bool,
    /// The term that is held, until the release begins.
    pub leading: Option<LeaderView>,
    /// For how long this replica leaves the Lease to the others.
    pub backoff: LeaseBackoff,
    /// The next fire of a task's schedule, in microseconds of the wall clock.
    pub next_fire: Option<i64>,
}

/// The term that this replica holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaderView {
    /// The number of the term.
    pub term: Term,
    /// When the last confirmed write was answered.
    pub confirmed: Instant,
    /// S, H and E.
    pub deadlines: Deadlines,
    /// A stop has begun.
    pub ending: bool,
}

impl Elector {
    /// Begins from the state that init hands to a new elector. A term in progress continues. `seed` feeds jitter and trace ids.
    #[must_use]
    pub fn new(initial: InitialState, seed: u64, now: Now) -> Self {
        Self::of_slot(initial, Slot::default(), seed, now)
    }

    /// The election for one of several Leases. `initial` names the Lease.
    pub(super) fn of_slot(initial: InitialState, slot: Slot, seed: u64, now: Now) -> Self {
        let mut core = Core::new(&initial, slot, seed, now);
        let phase = match initial.resume {
            Some(resume) => Phase::Leading(Box::new(Leading::resume(&mut core, resume, now))),
            None => Phase::Following(Following::default()),
        };
        let mut elector = Self { core, phase };
        elector.tick(now);
        elector
    }

    /// Takes in an input that arrived at `now`. A message of init is only noted, because more may wait in the link, such as the
    /// proof that disarms S and H. Once the link is drained, [`Self::handle_timeout`] acts (law 9).
    pub fn handle(&mut self, input: Input, now: Now) {
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
                    Phase::Following(following) => following.answered(&mut self.core, &asked, answer, now),
                    Phase::Leading(leading) => {
                        leading.answered(&mut self.core, &asked, answer, now);
                        None
                    }
                    Phase::Releasing(releasing) => releasing.answered(&mut self.core, &asked, answer, now),
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
        self.tick(now);
    }

    /// Returns the next action, in order.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.core.next_action()
    }

    /// Returns the next event, in order. It happened at the time of the call that it follows.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.core.next_event()
    }

    /// Returns when [`Elector::handle_timeout`] is due. An instant in the past means at once.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Following(following) => following.timeout(&self.core),
            Phase::Leading(leading) => leading.timeout(&self.core),
            Phase::Releasing(releasing) => releasing.timeout(&self.core),
            Phase::Finished => None,
        }
    }

    /// Returns the state for probes and telemetry.
    #[must_use]
    pub fn view(&self) -> View {
        let leading = match &self.phase {
            Phase::Leading(leading) => Some(LeaderView {
                term: leading.term,
                confirmed: leading.confirmed_at(),
                deadlines: leading.deadlines(),
                ending: leading.is_ending(),
            }),
            Phase::Following(_) | Phase::Releasing(_) | Phase::Finished => None,
        };
        let workload = self.core.is_workload_ready || self.core.config.http.ready == HttpReady::Always;
        View {
            ready: self.core.ready,
            workload,
            leading,
            backoff: self.core.lease_backoff,
            next_fire: self.core.observation.next_fire(),
        }
    }

    /// Returns the name of the Lease.
    pub(super) fn lease(&self) -> &str {
        &self.core.config.lease.name
    }

    pub(super) const fn slot(&self) -> Slot {
        self.core.slot
    }

    pub(super) const fn last_term(&self) -> Term {
        self.core.last_term
    }

    /// Returns whether this slot keeps the others from being written: it is held, or a write to it is not settled.
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

    /// Returns when this slot would be written, and with which priority among the slots.
    pub(super) fn candidacy(&self) -> Option<(Instant, Candidacy)> {
        match &self.phase {
            Phase::Following(following) => following.candidacy(&self.core),
            Phase::Leading(_) | Phase::Releasing(_) | Phase::Finished => None,
        }
    }

    /// Drops the read that it has asked for, before it is sent.
    pub(super) fn cancel_read(&mut self) {
        self.core.requests.forgo_answer();
    }

    /// Whether the last read or event said that the Lease is absent.
    pub(super) const fn finds_none(&self) -> bool {
        self.core.observation.is_absent()
    }

    /// Returns the instant before which a follower creates no Lease, because a creation was forbidden.
    pub(super) const fn creates_at(&self) -> Instant {
        match &self.phase {
            Phase::Following(following) => following.creates_at(),
            Phase::Leading(_) | Phase::Releasing(_) | Phase::Finished => Instant::BOOT,
        }
    }

    /// Sets whether a follower may write from now on, and from when on it may create a Lease. `last_term` is the last term that any
    /// slot began.
    pub(super) fn set_turn(&mut self, may_write: bool, last_term: Term, creates_at: Instant) {
        (self.core.may_write, self.core.last_term) = (may_write, last_term);
        if let Phase::Following(following) = &mut self.phase {
            following.create_at(creates_at);
        }
    }

    /// Reads the Lease as soon as possible.
    pub(super) fn look_again(&mut self, now: Now) {
        match &mut self.phase {
            Phase::Following(_) => self.core.backoff.want_read(),
            Phase::Leading(leading) => leading.look_again(now),
            Phase::Releasing(_) | Phase::Finished => {}
        }
        self.handle_timeout(now);
    }

    fn told(&mut self, message: ToElector, now: Now) {
        if message == ToElector::Shutdown {
            self.core.shutdown = true;
        }
        if let ToElector::Health { unready, status } = &message {
            if !std::mem::replace(&mut self.core.is_workload_ready, unready.is_none()) {
                self.core.ready_since = now.boot;
            }
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

    /// Lets the other replicas go first for so long, because of a term in another slot.
    pub(super) const fn back_off(&mut self, backoff: LeaseBackoff) {
        self.core.lease_backoff = backoff;
    }

    fn enter(&mut self, next: Option<Next>) {
        let Some(next) = next else { return };
        self.phase = match next {
            Next::Lead(leading) => Phase::Leading(leading),
            Next::Release(releasing) => Phase::Releasing(releasing),
            Next::Follow => Phase::Following(Following::default()),
            Next::Finish => {
                self.core.tell(ToInit::Done);
                Phase::Finished
            }
        };
    }
}
