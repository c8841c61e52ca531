//! A bench: a replica's slots, a register of several Leases, an init that cooperates, and a clock that only the test moves.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};

use super::super::bench::{START, initial_state, mark, refused};
use crate::{
    apiserver::register::{Change, Preconditions, Register, StatusError},
    election::{Action, Event, Input, Request, RequestId, Slots, writes::SLOTS},
    link::{InitialState, Resume, Stop, Term, Then, ToElector, ToInit},
    request::{Answer, Refusal, Watched},
    slot::Slot,
    time::{Instant, Now},
};

const NAMESPACE: &str = "default/";
const CREATED: &str = "2026-01-01T00:00:00Z";
const WALL: i64 = 1_800_000_000_000_000;

pub(super) struct Bench {
    pub(super) slots: Slots,
    pub(super) now: Now,
    pub(super) register: Register,
    pub(super) told: Vec<ToInit>,
    pub(super) events: Vec<Event>,
    pub(super) sent: Vec<(Instant, Slot, Request)>,
    pub(super) awaited: Option<(Slot, RequestId, Request)>,
    pub(super) watches: Vec<Option<String>>,
    /// The server answers at once.
    pub(super) answers: bool,
}

/// Starts a replica of this name with so many slots.
pub(super) fn one_of(slots: u8, identity: &str) -> InitialState {
    let mut initial = InitialState { identity: identity.into(), ..initial_state() };
    initial.config.lease.slots = slots;
    initial
}

/// Starts a replica for which this slot wins ties.
pub(super) fn one_who_begins_at(slot: u8, slots: u8) -> InitialState {
    let begins = |identity: &String| {
        let mut bench = Bench::start(one_of(slots, identity), &vec![Some(mark()); slots.into()]);
        bench.run_until_a_write();
        bench.writes() == [Slot(slot)]
    };
    let identity = (0..100).map(|number| format!("me_{number}")).find(begins).expect("somebody begins there");
    one_of(slots, &identity)
}

impl Bench {
    /// Starts with Leases of these specs, as far as there are some.
    pub(super) fn start(initial: InitialState, specs: &[Option<Value>]) -> Self {
        let now = Now { boot: START, wall: WALL };
        let seed = initial.identity.bytes().map(u64::from).sum();
        let mut bench = Self {
            slots: Slots::new(initial, seed, now),
            now,
            register: Register::new(0),
            told: Vec::new(),
            events: Vec::new(),
            sent: Vec::new(),
            awaited: None,
            watches: Vec::new(),
            answers: true,
        };
        for (slot, spec) in (0..).zip(specs) {
            if let Some(spec) = spec {
                bench.put(slot, spec.clone());
            }
        }
        bench.drain();
        bench
    }

    /// A Lease with this spec, and the label.
    pub(super) fn put(&mut self, slot: u8, spec: Value) {
        self.register.remove(&key(slot));
        let name = name_of(slot);
        let metadata = json!({"name": name, "namespace": "default", "labels": {SLOTS: "lease"}, "annotations": {}});
        let bare = json!({"kind": "Lease", "metadata": metadata});
        self.register.create(&key(slot), bare.into(), CREATED).expect("an empty Lease is valid");
        self.edit(slot, |object| object["spec"] = spec);
    }

    /// Edits the Lease as another client.
    pub(super) fn edit(&mut self, slot: u8, edit: impl FnOnce(&mut Value)) {
        let mut object = self.object(slot);
        edit(&mut object);
        self.register.commit(&key(slot), object);
    }

    /// The same, and lets the watch deliver that.
    pub(super) fn see(&mut self, slot: u8, edit: impl FnOnce(&mut Value)) {
        self.edit(slot, edit);
        self.watch(Watched::Changed(self.object(slot).into()));
    }

    pub(super) fn object(&self, slot: u8) -> Value {
        self.register.get(&key(slot)).map(|object| Value::clone(object)).expect("there is a Lease")
    }

    pub(super) fn holder(&self, slot: u8) -> String {
        self.object(slot)["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }

    /// Takes the label of the Lease away. The watch calls it deleted.
    pub(super) fn unlabel(&mut self, slot: u8) {
        self.vanish(slot, |bench| bench.edit(slot, |object| object["metadata"]["labels"] = json!({})));
    }

    /// Deletes the Lease as another client.
    pub(super) fn delete(&mut self, slot: u8) {
        self.vanish(slot, |bench| bench.register.remove(&key(slot)));
    }

    fn vanish(&mut self, slot: u8, how: impl FnOnce(&mut Self)) {
        let version = self.register.version();
        how(self);
        let deleted = {
            let change = self.register.changes_since(version).expect("it is remembered").last().expect("it changed");
            assert!(change.before.is_some(), "slot {slot} was there");
            Change::deleted(change)
        };
        self.watch(Watched::Deleted(deleted.expect("there was a Lease").into()));
    }

    /// Lets `span` pass. Each thing that is due happens at its instant.
    pub(super) fn run(&mut self, span: Duration) {
        let target = self.now.boot + span;
        self.run_while(target, |_| true);
    }

    /// Lets the server answer from now on.
    pub(super) fn run_answered(&mut self, span: Duration) {
        self.answers = true;
        self.run(span);
    }

    /// Lets time pass until a write is sent, within a second.
    pub(super) fn run_until_a_write(&mut self) {
        let (target, before) = (self.now.boot + Duration::from_secs(1), self.writes().len());
        self.run_while(target, |bench| bench.writes().len() == before);
        assert_eq!(self.writes().len(), before + 1, "{:?}", self.sent);
    }

    fn run_while(&mut self, target: Instant, goes_on: impl Fn(&Self) -> bool) {
        for _ in 0..1_000_000 {
            if !goes_on(self) {
                return;
            }
            if self.answers && self.awaited.is_some() {
                self.serve();
                continue;
            }
            let next = self.slots.poll_timeout().unwrap_or(Instant::NEVER).max(self.now.boot);
            self.pass(next.min(target));
            if next > target {
                return;
            }
            self.slots.handle_timeout(self.now);
            self.drain();
        }
        panic!("the slots never rests: {:?}", self.slots);
    }

    fn pass(&mut self, to: Instant) {
        self.now.wall += i64::try_from(to.since(self.now.boot).as_micros()).unwrap();
        self.now.boot = to;
    }

    pub(super) fn serve(&mut self) {
        let (slot, _, request) = self.awaited.clone().expect("a request is awaited");
        let answer = self.apply(slot, &request);
        self.answer(answer);
    }

    pub(super) fn answer(&mut self, answer: Answer) {
        let (_, id, _) = self.awaited.take().expect("a request is awaited");
        self.slots.handle(Input::Answered { id, answer }, self.now);
        self.drain();
    }

    pub(super) fn apply(&mut self, slot: Slot, request: &Request) -> Answer {
        let key = key(slot.0);
        let done = match request {
            Request::List => {
                let is_labelled = |object: &&Arc<Value>| object["metadata"]["labels"][SLOTS] == "lease";
                let objects = self.register.list(NAMESPACE).filter(is_labelled).cloned().collect();
                return Answer::Listed { objects, resource_version: self.register.version().to_string() };
            }
            Request::Get => self.register.get(&key).cloned().ok_or(StatusError::NotFound),
            Request::Create(object) => self.register.create(&key, Arc::clone(object), CREATED),
            Request::Replace(object) => self.register.replace(&key, Arc::clone(object), CREATED),
            Request::Delete { uid, resource_version } => {
                let must = Preconditions { uid: Some(uid), resource_version: Some(resource_version) };
                return self.register.delete(&key, must, CREATED).map_or_else(refused, |_| Answer::Deleted);
            }
        };
        done.map_or_else(refused, Answer::Object)
    }

    pub(super) fn watch(&mut self, watched: Watched) {
        self.slots.handle(Input::Watched(watched), self.now);
        self.drain();
    }

    pub(super) fn tell(&mut self, message: ToElector) {
        self.slots.handle(Input::Told(message), self.now);
        self.slots.handle_timeout(self.now);
        self.drain();
    }

    /// Lets init prove the workload of the last StepDown gone.
    pub(super) fn prove(&mut self) {
        self.prove_then(Then::Follow);
    }

    pub(super) fn prove_then(&mut self, then: Then) {
        let step_down = self.told.iter().rev().find_map(|message| match message {
            ToInit::StepDown { term, request, .. } => Some((*term, *request)),
            _ => None,
        });
        let (term, request) = step_down.expect("a StepDown was told");
        let stop = Stop { began: None, killed: None, exited: None, exit: None, proved: self.now.boot };
        self.tell(ToElector::Stopped { term, request, stop, then });
    }

    fn drain(&mut self) {
        self.events.extend(std::iter::from_fn(|| self.slots.poll_event()));
        while let Some(action) = self.slots.poll_action() {
            match action {
                Action::Request { slot, id, request } => {
                    assert!(self.awaited.is_none(), "one request at a time: {:?} and {request:?}", self.awaited);
                    self.sent.push((self.now.boot, slot, request.clone()));
                    self.awaited = Some((slot, id, request));
                }
                Action::Watch { resource_version } => self.watches.push(resource_version),
                Action::Tell(message) => {
                    let serial = match &message {
                        ToInit::Lead { term, .. } => Some((*term, 0)),
                        ToInit::Extend { term, serial, .. } | ToInit::Releasing { term, serial } => Some((*term, *serial)),
                        _ => None,
                    };
                    self.told.push(message);
                    if let Some((term, serial)) = serial {
                        self.tell(ToElector::Acknowledged { term, serial });
                    }
                }
            }
        }
    }

    /// Returns the slot and the number of each term that init was told of.
    pub(super) fn terms(&self) -> Vec<(Slot, Term)> {
        let lead = |message: &ToInit| match message {
            ToInit::Lead { term, info, .. } => Some((info.slot, *term)),
            _ => None,
        };
        self.told.iter().filter_map(lead).collect()
    }

    /// Returns the part of the last term that the next elector is handed.
    pub(super) fn resume(&self) -> Option<Resume> {
        let ToInit::Lead { term, info, confirmed } = self.told.iter().rfind(|told| matches!(told, ToInit::Lead { .. }))? else {
            return None;
        };
        Some(Resume {
            term: *term,
            info: info.clone(),
            confirmed: confirmed.clone(),
            stopping: None,
            traceparent: String::new(),
            released: false,
            main: None,
            told: false,
        })
    }

    pub(super) fn dones(&self) -> usize {
        self.told.iter().filter(|message| **message == ToInit::Done).count()
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.told.iter().any(|message| matches!(message, ToInit::StepDown { .. }))
    }

    /// Returns the slots that were written, in order.
    pub(super) fn writes(&self) -> Vec<Slot> {
        let is_write = |request: &Request| !matches!(request, Request::Get | Request::List);
        self.sent.iter().filter(|(_, _, request)| is_write(request)).map(|(_, slot, _)| *slot).collect()
    }

    /// Returns the slots that were read by name, in order.
    pub(super) fn gets(&self) -> Vec<Slot> {
        self.sent.iter().filter(|(_, _, request)| *request == Request::Get).map(|(_, slot, _)| *slot).collect()
    }
}

pub(super) fn forbidden() -> Answer {
    Answer::Refused { refusal: Refusal::Forbidden, message: "403".into() }
}

fn name_of(slot: u8) -> String {
    if slot == 0 { "lease".into() } else { format!("lease-slot-{slot}") }
}

fn key(slot: u8) -> String {
    format!("{NAMESPACE}{}", name_of(slot))
}
