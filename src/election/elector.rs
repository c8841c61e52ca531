//! The election of one replica: a state machine without clock or IO.
//!
//! All inputs come here. What concerns all phases is up to [`core`](super::core), the rest to the phase: following, leading or
//! releasing.

use super::{
    Action, Event, Input, RequestId,
    core::{Core, WatchEvent},
    following::Following,
    leading::{Leading, Over},
    record::LeaseRecord,
    releasing::Releasing,
};
use crate::{
    law::Deadlines,
    link::{InitialState, LeaseBackoff, Term, Then, ToElector, ToInit},
    request::{Answer, Watched},
    slot::Slot,
    time::{Instant, Now},
};

/// Of an absence that may be over.
const STALE: &str = "the answer came later than lease.duration after its request";

/// Follows, campaigns, leads and releases, as the law says: for one Lease, or for several of which it holds one at most (law 18).
///
/// Deterministic: equal seeds and inputs give equal actions.
#[derive(Clone, Debug, Hash)]
pub struct Elector {
    core: Core,
    phase: Phase,
}

/// The one phase in which this replica is, whatever the number of Leases: a second term cannot be written down (law 18).
#[derive(Clone, Debug, Hash)]
enum Phase {
    Following(Following),
    Leading(Box<Leading>),
    Releasing(Box<Releasing>),
    Finished,
}

/// The state of an election, for probes and telemetry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// A first read succeeded.
    pub ready: bool,
    /// The term that is held, until the release begins.
    pub leading: Option<LeaderView>,
    /// For how long this replica leaves the Lease to the others.
    pub backoff: LeaseBackoff,
    /// The next fire of a task's schedule, in microseconds of the wall clock.
    pub next_fire: Option<i64>,
    /// When the last renewal was seen; none: nobody is seen to hold the Lease.
    pub renewed: Option<Instant>,
    /// On a standby: when a Lease may be taken, unless its holder renews it. None: that is not known, or nobody may take it.
    pub free: Option<Instant>,
}

/// The term that this replica holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaderView {
    /// The number of the term.
    pub term: Term,
    /// When the last confirmed write was answered.
    pub confirmed: Instant,
    /// S, H and E; none once nothing of the term runs.
    pub deadlines: Option<Deadlines>,
    /// A stop has begun.
    pub ending: bool,
}

impl Elector {
    /// Begins from the state that init hands to a new elector. A term in progress continues. `seed` feeds jitter and trace ids.
    pub fn new(initial: InitialState, seed: u64, now: Now) -> Self {
        let mut core = Core::new(&initial, seed, now);
        let phase = match initial.resume {
            Some(resume) => {
                let mut one = core.one(resume.info.slot);
                Phase::Leading(Box::new(Leading::resume(&mut one, resume, now)))
            }
            None => Phase::Following(Following::default()),
        };
        let mut elector = Self { core, phase };
        elector.tick(now);
        elector
    }

    /// Takes in an input that arrived at `now`. A message of init moves no deadline to its end, because more may wait in the link, such
    /// as the proof that disarms S and H. Once the link is drained, [`Self::handle_timeout`] acts (law 9).
    pub fn handle(&mut self, input: Input, now: Now) {
        match input {
            Input::Told(message) => return self.told(message, now),
            Input::Watched(watched) => self.watched(watched, now),
            Input::Answered { id, answer } => self.answered(id, answer, now),
        }
        self.tick(now);
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Now) {
        self.tick(now);
    }

    /// Returns the next action, in order.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.core.common.next_action()
    }

    /// Returns the next event, in order. It happened at the time of the call that it follows.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.core.common.next_event()
    }

    /// Returns when [`Elector::handle_timeout`] is due. An instant in the past means at once.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Following(following) => following.timeout(&self.core),
            Phase::Leading(leading) => leading.timeout(&self.core.reader),
            Phase::Releasing(releasing) => Some(releasing.timeout(&self.core.reader)),
            Phase::Finished => None,
        }
    }

    /// Returns the state for probes and telemetry.
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
        let common = &self.core.common;
        View {
            ready: common.ready,
            leading,
            backoff: common.lease_backoff,
            next_fire: self.core.leases.iter().find_map(|lease| lease.observation.next_fire()),
            renewed: self.core.leases.iter().filter_map(|lease| lease.observation.renewed()).max(),
            free: if leading.is_some() { None } else { self.core.leases.iter().filter_map(|lease| lease.free_at()).min() },
        }
    }

    /// Returns true if the workload is ready, or not meant to run, as init said last.
    pub(super) const fn is_workload_ready(&self) -> bool {
        self.core.common.is_workload_ready
    }

    /// The core takes the version in, and the phase settles what it was waiting for. A leader judges the version at once; for a follower
    /// the tick that follows decides.
    fn watched(&mut self, watched: Watched, now: Now) {
        if let Some((slot, event)) = self.core.watched(watched, now) {
            self.saw(slot, event, now);
        }
    }

    fn saw(&mut self, slot: Slot, event: WatchEvent, now: Now) {
        match (&mut self.phase, event) {
            (Phase::Leading(leading), event) if leading.slot() == slot => leading.watched(&mut self.core.one(slot), event, now),
            (Phase::Releasing(releasing), _) if releasing.slot() == slot => releasing.watched(&self.core.one(slot), now),
            (_, WatchEvent::Missing) => self.core.reader.look_for(slot),
            (Phase::Following(following), WatchEvent::Changed(_) | WatchEvent::Deleted(_)) => {
                following.watched(&mut self.core.one(slot));
            }
            (_, WatchEvent::Changed(_) | WatchEvent::Deleted(_)) => self.core.one(slot).settle(),
        }
    }

    fn answered(&mut self, id: RequestId, answer: Answer, now: Now) {
        let Some(flight) = self.core.reader.answered(id) else {
            // Nobody waits for it any more, but whom it shows may run, as if the watch had brought it.
            if let Answer::Object(lease) = answer
                && let Some((slot, event)) = LeaseRecord::read(lease).and_then(|record| self.core.saw(record, now))
            {
                self.saw(slot, event, now);
            }
            return;
        };
        let (slot, asked) = (flight.slot, &flight.asked);
        let failed = self.core.common.expect_success(asked.operation);
        // This process, or the machine, slept meanwhile: the Lease may be there again, and held (law 16).
        let is_stale = answer == Answer::NotFound && asked.sent + self.core.common.timing.duration <= now.boot;
        let answer = if is_stale { Answer::Unknown { message: STALE.into(), retry_after: None } } else { answer };
        let next = match (&mut self.phase, slot) {
            (Phase::Following(following), Some(slot)) => {
                following.answered(&mut self.core, slot, asked, answer, now).map(Phase::Leading)
            }
            (Phase::Following(following), None) => following.listed(&mut self.core, asked, answer, now).map(Phase::Leading),
            (Phase::Leading(leading), Some(slot)) => {
                leading.answered(&mut self.core.one(slot), asked, answer, now);
                None
            }
            (Phase::Releasing(releasing), Some(slot)) => {
                releasing.answered(&mut self.core.one(slot), asked, answer, now).map(Phase::after)
            }
            (Phase::Leading(_) | Phase::Releasing(_), None) | (Phase::Finished, _) => None,
        };
        self.core.common.report_recovery(asked.operation, failed);
        if let Some(next) = next {
            self.enter(next);
        }
    }

    fn told(&mut self, message: ToElector, now: Now) {
        let common = &mut self.core.common;
        if message == ToElector::Shutdown {
            common.shutdown = true;
        }
        if let ToElector::Health { unready, status } = &message {
            if !std::mem::replace(&mut common.is_workload_ready, unready.is_none()) {
                common.ready_since = now.boot;
            }
            common.writer.status.clone_from(status);
        }
        match &mut self.phase {
            Phase::Following(_) | Phase::Finished => {}
            Phase::Leading(leading) => leading.told(&mut self.core.one(leading.slot()), message, now),
            Phase::Releasing(releasing) => releasing.told(&message),
        }
    }

    fn tick(&mut self, now: Now) {
        loop {
            let next = match &mut self.phase {
                Phase::Following(following) => following.tick(&mut self.core, now).then_some(Phase::Finished),
                Phase::Leading(leading) => match leading.tick(&mut self.core.one(leading.slot()), now) {
                    Some(Over::Release(releasing)) => Some(Phase::Releasing(releasing)),
                    Some(Over::Left(then)) => Some(Phase::after(then)),
                    None => None,
                },
                Phase::Releasing(releasing) => releasing.tick(&mut self.core.one(releasing.slot()), now).map(Phase::after),
                Phase::Finished => None,
            };
            let Some(next) = next else { return };
            self.enter(next);
        }
    }

    /// What was written before a term, to whichever Lease, proves no later one.
    fn enter(&mut self, next: Phase) {
        self.core.leases.iter_mut().for_each(|lease| lease.unanswered.forget_all());
        if matches!(next, Phase::Finished) {
            self.core.common.tell(ToInit::Done);
        }
        self.phase = next;
    }
}

impl Phase {
    /// The phase after a term.
    fn after(then: Then) -> Self {
        match then {
            Then::Follow => Self::Following(Following::default()),
            Then::Exit => Self::Finished,
        }
    }
}
