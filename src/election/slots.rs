//! The election for several Leases, of which a replica holds one at most: an [`Elector`] for each, and their turns.
//!
//! Owns the order of the slots, and the reads and the watch that they share. One slot is written at a time: while one is held, or
//! a write to it is not settled, no other is written (law 18). Decides nothing about a Lease: each elector follows the law, and
//! waiting for its turn only delays it. With one slot everything passes through.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use serde_json::Value;

use super::{
    Action, Elector, Event, Input, Request, RequestId, View,
    random::Random,
    record::{LeaseRecord, later, metadata_of},
    writes::SLOTS,
};
use crate::{
    law::RETRY_PAUSE,
    link::{InitialState, Then, ToElector, ToInit},
    request::{Answer, Operation, Refusal, WatchEnd, Watched},
    slot::Slot,
    time::{Instant, Now},
};

/// The longest random wait before a slot is written, so that replicas which see the same do not all write the same slot.
const SPREAD: Duration = Duration::from_millis(50);
/// A forbidden list is tried again after this.
const LIST_AGAIN: Duration = Duration::from_secs(60);

/// The election of one replica for one of its slots.
#[derive(Clone, Debug, Hash)]
pub struct Slots {
    electors: Vec<Elector>,
    /// The name of slot 0.
    base: String,
    renew_period: Duration,
    /// The slot that wins a tie. It differs between replicas.
    first: usize,
    random: Random,
    /// The slot that was held last.
    held: usize,
    /// The slot that is written next, and when.
    plan: Option<(usize, Instant)>,
    reads: Reads,
    watch: SharedWatch,
    sent: u64,
    in_flight: Option<(RequestId, Flight)>,
    actions: VecDeque<Action>,
    events: VecDeque<Event>,
    said: Said,
}

/// Reads of followers that are not sent yet, or that the list will answer.
#[derive(Clone, Debug, Hash)]
struct Reads {
    wanted: Vec<(usize, RequestId)>,
    /// Reads of Leases that the list does not show: each is deleted, or has lost its label.
    by_name: VecDeque<(usize, RequestId)>,
    /// A slot that is absent by the last read of it, and in no list, stays absent. This one is read by its name all the same.
    doubted: usize,
    /// No list before this instant, because it is forbidden.
    list_at: Instant,
    by_name_at: Instant,
    /// No list before this instant, because the last one failed.
    not_before: Instant,
    failures: u32,
}

#[derive(Clone, Debug, Default, Hash)]
struct SharedWatch {
    is_running: bool,
    version: Option<String>,
}

#[derive(Clone, Copy, Debug, Hash)]
enum Flight {
    List,
    Of(usize, RequestId),
}

/// Reports that are made once for all slots.
#[derive(Clone, Debug, Default, Hash)]
struct Said {
    ready: bool,
    gave_up: bool,
    done: bool,
    list_forbidden: bool,
    more_slots: bool,
}

impl Slots {
    /// Begins from the state that init hands to a new elector. A term in progress continues. `seed` feeds jitter and trace ids.
    #[must_use]
    pub fn new(initial: InitialState, seed: u64, now: Now) -> Self {
        let lease = &initial.config.lease;
        let (count, base) = (lease.slots.max(1), lease.name.clone());
        let hash = initial.identity.bytes().fold(0_u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
        let mut random = Random::of(seed);
        let (renew_period, first) = (lease.renew_period, hash % u64::from(count));
        let held = initial.resume.as_ref().map_or(0, |resume| resume.info.slot.0.into());
        let electors = (0..count).map(|slot| {
            let mut initial = initial.clone();
            if count > 1 {
                initial.config.lease.name = initial.config.lease.name_of(Slot(slot));
                initial.config.lease.labels.insert(SLOTS.into(), base.clone());
            }
            initial.resume.take_if(|resume| resume.info.slot != Slot(slot));
            let seed = if count > 1 { random.number() } else { seed };
            Elector::of_slot(initial, Slot(slot), seed, now)
        });
        let mut slots = Self {
            electors: electors.collect(),
            base,
            renew_period,
            first: usize::try_from(first).unwrap_or_default(),
            random,
            held,
            plan: None,
            reads: Reads {
                wanted: Vec::new(),
                by_name: VecDeque::new(),
                doubted: 0,
                list_at: now.boot,
                by_name_at: now.boot,
                not_before: now.boot,
                failures: 0,
            },
            watch: SharedWatch::default(),
            sent: 0,
            in_flight: None,
            actions: VecDeque::new(),
            events: VecDeque::new(),
            said: Said::default(),
        };
        if slots.electors.len() > 1 {
            slots.take_turns(now);
        }
        slots
    }

    /// Takes in an input that arrived at `now`; see [`Elector::handle`].
    pub fn handle(&mut self, input: Input, now: Now) {
        if let [only] = &mut *self.electors {
            return only.handle(input, now);
        }
        match input {
            Input::Told(message @ (ToElector::Shutdown | ToElector::Health { .. })) => {
                self.electors.iter_mut().for_each(|elector| elector.handle(Input::Told(message.clone()), now));
                return;
            }
            Input::Told(message) => {
                // Init sends `Shutdown` to the slot that is held only, so the others are told here.
                if let ToElector::Stopped { then: Then::Exit, .. } = &message {
                    self.others().for_each(|elector| elector.handle(Input::Told(ToElector::Shutdown), now));
                }
                return self.electors[self.held].handle(Input::Told(message), now);
            }
            Input::Watched(watched) => self.watched(watched, now),
            Input::Answered { id, answer } => self.answered(id, answer, now),
        }
        self.take_turns(now);
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Now) {
        self.electors.iter_mut().for_each(|elector| elector.handle_timeout(now));
        if self.electors.len() > 1 {
            self.take_turns(now);
        }
    }

    /// Returns the next action, in order.
    pub fn poll_action(&mut self) -> Option<Action> {
        match &mut *self.electors {
            [only] => only.poll_action(),
            _ => self.actions.pop_front(),
        }
    }

    /// Returns the next event, in order. It happened at the time of the call that it follows.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.gather();
        self.events.pop_front()
    }

    /// Returns when [`Slots::handle_timeout`] is due. An instant in the past means at once.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let own = self.electors.iter().filter_map(Elector::poll_timeout).min();
        if self.electors.len() == 1 || self.in_flight.is_some() || self.busy().is_some() {
            return own;
        }
        let read = Some(self.reads.by_name_at).filter(|_| !self.reads.by_name.is_empty());
        let list = Some(self.reads.not_before).filter(|_| !self.reads.wanted.is_empty());
        let due = || self.electors.iter().filter_map(Elector::candidacy).map(|(at, _)| at).min();
        let write = self.plan.map(|(_, at)| at).or_else(due);
        [own, read, list, write].into_iter().flatten().min()
    }

    /// Returns the state for probes and telemetry.
    #[must_use]
    pub fn view(&self) -> View {
        let views = || self.electors.iter().map(Elector::view);
        View {
            ready: views().any(|view| view.ready),
            workload: views().all(|view| view.workload),
            leading: views().find_map(|view| view.leading),
            backoff: views().map(|view| view.backoff).max_by_key(|backoff| backoff.until).unwrap_or_default(),
            next_fire: views().find_map(|view| view.next_fire),
        }
    }

    fn report(&mut self, event: Event) {
        self.gather();
        self.events.push_back(event);
    }

    /// Takes the events of all electors over.
    fn gather(&mut self) {
        for elector in &mut self.electors {
            while let Some(event) = elector.poll_event() {
                if event != Event::Ready || !std::mem::replace(&mut self.said.ready, true) {
                    self.events.push_back(event);
                }
            }
        }
    }

    fn others(&mut self) -> impl Iterator<Item = &mut Elector> {
        let held = self.held;
        self.electors.iter_mut().enumerate().filter(move |(at, _)| *at != held).map(|(_, elector)| elector)
    }

    fn busy(&self) -> Option<usize> {
        self.electors.iter().position(Elector::is_busy)
    }

    /// Gives slots their turn until nothing is left to do at `now`.
    fn take_turns(&mut self, now: Now) {
        loop {
            self.collect();
            let busy = self.busy();
            self.seat(busy);
            if let Some(busy) = busy {
                (self.held, self.plan) = (busy, None);
                return;
            }
            // No read while a write is due: with many slots and slow answers, reads might be due without end.
            if self.plan.is_none_or(|(_, at)| at > now.boot) {
                self.read(now);
            }
            let Some(next) = self.next(now) else {
                if self.plan.take().is_some() {
                    continue;
                }
                return;
            };
            match self.plan {
                Some((planned, at)) if planned == next && at <= now.boot && self.in_flight.is_none() => {
                    self.plan = None;
                    self.seat(Some(next));
                    self.electors[next].cancel_read();
                    self.electors[next].handle_timeout(now);
                }
                Some((planned, _)) if planned == next => return,
                Some(_) | None => self.plan = Some((next, now.boot + self.random.part_of(SPREAD))),
            }
        }
    }

    /// Lets only this slot write.
    fn seat(&mut self, whose: Option<usize>) {
        let last_term = self.electors.iter().map(Elector::last_term).max().unwrap_or_default();
        // A right to create is one to all names.
        let creates_at = self.electors.iter().map(Elector::creates_at).max().unwrap_or(Instant::BOOT);
        for (at, elector) in self.electors.iter_mut().enumerate() {
            elector.set_turn(whose == Some(at), last_term, creates_at);
        }
    }

    /// Returns the slot that is to be written. A Lease that was given back comes first.
    fn next(&self, now: Now) -> Option<usize> {
        let count = self.electors.len();
        let due = self.electors.iter().enumerate().filter_map(|(at, elector)| {
            let (_, candidacy) = elector.candidacy().filter(|(due, _)| *due <= now.boot)?;
            Some((candidacy, (at + count - self.first) % count, at))
        });
        due.min().map(|(.., at)| at)
    }

    /// Takes the actions of all electors over.
    fn collect(&mut self) {
        for at in 0..self.electors.len() {
            while let Some(action) = self.electors[at].poll_action() {
                match action {
                    Action::Request { id, request: Request::Get, .. } if !self.electors[at].is_busy() => {
                        self.reads.wanted.push((at, id));
                    }
                    Action::Request { slot, id, request } => self.send(Flight::Of(at, id), slot, request),
                    Action::Watch { resource_version } => self.start_watch(resource_version),
                    Action::Tell(ToInit::Done) => {}
                    Action::Tell(ToInit::Ended { backoff, .. }) => {
                        self.others().for_each(|elector| elector.back_off(backoff.unwrap_or_default()));
                        self.actions.push_back(action);
                    }
                    // Another slot may still become free, unless this one keeps the others from being written.
                    Action::Tell(ToInit::GaveUp { .. }) => {
                        let is_finished = |(other, elector): (usize, &Elector)| other == at || elector.is_finished();
                        let is_last = self.electors[at].is_busy() || self.electors.iter().enumerate().all(is_finished);
                        if is_last && !std::mem::replace(&mut self.said.gave_up, true) {
                            self.actions.push_back(action);
                        }
                    }
                    Action::Tell(_) => self.actions.push_back(action),
                }
            }
        }
        if self.electors.iter().all(Elector::is_finished) && !std::mem::replace(&mut self.said.done, true) {
            self.actions.push_back(Action::Tell(ToInit::Done));
        }
    }

    fn send(&mut self, flight: Flight, slot: Slot, request: Request) {
        self.sent += 1;
        let id = RequestId(self.sent);
        self.in_flight = Some((id, flight));
        self.actions.push_back(Action::Request { slot, id, request });
    }

    /// Sends the next read that is due: one list for all slots, and a read by name for each Lease that the list does not show.
    fn read(&mut self, now: Now) {
        if self.in_flight.is_some() {
            return;
        }
        if now.boot < self.reads.list_at {
            self.reads.by_name.extend(self.reads.wanted.drain(..));
        }
        if now.boot >= self.reads.by_name_at
            && let Some((at, id)) = self.reads.by_name.pop_front()
        {
            // Without a list each slot is read by name. All slots together get as many reads as one would.
            let pause = if now.boot < self.reads.list_at { self.renew_period } else { Duration::ZERO };
            self.reads.by_name_at = now.boot + pause;
            let slot = self.electors[at].slot();
            return self.send(Flight::Of(at, id), slot, Request::Get);
        }
        if !self.reads.wanted.is_empty() && now.boot >= self.reads.not_before {
            self.electors.iter_mut().for_each(|elector| elector.look_again(now));
            self.collect();
            self.send(Flight::List, Slot::default(), Request::List);
        }
    }

    fn answered(&mut self, id: RequestId, answer: Answer, now: Now) {
        let Some((_, flight)) = self.in_flight.take_if(|(awaited, _)| *awaited == id) else { return };
        match (flight, answer) {
            (Flight::Of(at, id), answer @ Answer::Conflict) => {
                self.reads.doubted = at;
                self.electors[at].handle(Input::Answered { id, answer }, now);
            }
            (Flight::Of(at, id), answer) => self.electors[at].handle(Input::Answered { id, answer }, now),
            (Flight::List, Answer::Listed { objects, resource_version }) => self.listed(&objects, resource_version, now),
            (Flight::List, Answer::Refused { refusal: Refusal::Forbidden, message }) => {
                self.reads.list_at = now.boot + LIST_AGAIN;
                if !std::mem::replace(&mut self.said.list_forbidden, true) {
                    self.report(Event::Failed { operation: Operation::List, sent: now.boot, message });
                }
            }
            (Flight::List, answer @ (Answer::Refused { .. } | Answer::Unknown { .. })) => self.read_in_vain(&answer, now),
            (Flight::List, Answer::Object(_) | Answer::Deleted | Answer::NotFound | Answer::Conflict) => {
                self.read_in_vain(
                    &Answer::Unknown { message: "the answer is not a list of Leases".into(), retry_after: None },
                    now,
                );
            }
        }
    }

    fn listed(&mut self, objects: &[Arc<Value>], resource_version: String, now: Now) {
        if std::mem::take(&mut self.said.list_forbidden) {
            self.report(Event::Recovered { operation: Operation::List });
        }
        self.reads.failures = 0;
        let doubted = self.reads.doubted;
        self.reads.doubted = (doubted + 1) % self.electors.len();
        if !self.watch.is_running {
            self.watch.version = Some(resource_version);
        }
        for (at, id) in std::mem::take(&mut self.reads.wanted) {
            match objects.iter().find(|object| name(object) == Some(self.electors[at].lease())) {
                Some(object) => self.electors[at].handle(Input::Answered { id, answer: Answer::Object(Arc::clone(object)) }, now),
                None if self.electors[at].finds_none() && at != doubted => {
                    self.electors[at].handle(Input::Answered { id, answer: Answer::NotFound }, now);
                }
                // The Lease may only have lost its label.
                None => self.reads.by_name.push_back((at, id)),
            }
        }
        self.report_more_slots(objects);
    }

    /// Hands a failed list to all slots. They share one retry, as late as that of a single slot.
    fn read_in_vain(&mut self, answer: &Answer, now: Now) {
        self.reads.failures += 1;
        let pause = RETRY_PAUSE * 2_u32.saturating_pow(self.reads.failures);
        self.reads.not_before = now.boot + pause.min(self.renew_period);
        for (at, id) in std::mem::take(&mut self.reads.wanted) {
            self.electors[at].handle(Input::Answered { id, answer: answer.clone() }, now);
        }
    }

    fn start_watch(&mut self, resource_version: Option<String>) {
        if !std::mem::replace(&mut self.watch.is_running, true) {
            let resource_version = self.watch.version.clone().or(resource_version);
            self.actions.push_back(Action::Watch { resource_version });
        }
    }

    fn watched(&mut self, watched: Watched, now: Now) {
        match watched {
            Watched::Changed(object) => {
                self.heard(&object);
                if let Some(elector) = self.elector_of(&object) {
                    elector.handle(Input::Watched(Watched::Changed(object)), now);
                }
            }
            // The Lease may only have lost its label, so it is read.
            Watched::Deleted(object) => {
                self.heard(&object);
                if let Some(elector) = self.elector_of(&object) {
                    elector.look_again(now);
                }
            }
            Watched::Bookmark(version) => {
                self.brought(&version);
                for elector in &mut self.electors {
                    elector.handle(Input::Watched(Watched::Bookmark(version.clone())), now);
                }
            }
            Watched::Ended(end) => {
                self.watch.is_running = false;
                self.watch.version.take_if(|_| end != WatchEnd::Closed);
                for elector in &mut self.electors {
                    elector.handle(Input::Watched(Watched::Ended(end.clone())), now);
                }
            }
        }
    }

    fn heard(&mut self, object: &Value) {
        if let Some(version) = metadata_of(object, "resourceVersion").and_then(Value::as_str) {
            self.brought(version);
        }
    }

    /// Notes the version, unless a later one is known.
    fn brought(&mut self, version: &str) {
        if self.watch.version.as_ref().is_none_or(|known| later(version, known)) {
            self.watch.version = Some(version.to_owned());
        }
    }

    fn elector_of(&mut self, object: &Value) -> Option<&mut Elector> {
        let name = name(object)?;
        self.electors.iter_mut().find(|elector| elector.lease() == name)
    }

    /// Warns of slots beyond `lease.slots`: other replicas may have an older or a newer configuration.
    fn report_more_slots(&mut self, objects: &[Arc<Value>]) {
        let count = self.electors.len();
        let slot = |object: &Value| name(object)?.strip_prefix(&self.base)?.strip_prefix("-slot-")?.parse::<usize>().ok();
        let is_beyond = |object: &Arc<Value>| {
            let record = LeaseRecord::read(Arc::clone(object));
            slot(object).is_some_and(|slot| slot >= count) && record.is_some_and(|record| record.holder().is_some())
        };
        if objects.iter().any(is_beyond) && !std::mem::replace(&mut self.said.more_slots, true) {
            let message = format!("somebody holds a slot of {} beyond the {count} of this replica's lease.slots", self.base);
            self.report(Event::Odd { message });
        }
    }
}

fn name(object: &Value) -> Option<&str> {
    metadata_of(object, "name")?.as_str()
}
