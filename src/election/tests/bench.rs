//! A bench: an elector, a register with compare-and-swap, an init that cooperates, and a clock that only the test moves.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};

use crate::{
    apiserver::register::{self, Preconditions, StatusError},
    config::{Config, LeaseConfig},
    election::{
        Action, Elector, Event, Input, Request, RequestId,
        guard_deadline::GuardDeadline,
        record::later,
        writes::{SLOTS, Sent},
    },
    link::{Exit, InitialState, LastSeen, Reason, Resume, Stop, Term, Then, ToElector, ToInit},
    request::{Answer, Refusal, Watched},
    slot::Slot,
    time::{Instant, Now},
};

pub(super) const ME: &str = "me_0123";
pub(super) const START: Instant = Instant::from_nanos(1_000_000_000_000);
pub(super) const WALL: i64 = 1_800_000_000_000_000;

pub(super) struct Bench {
    pub(super) elector: Elector,
    pub(super) now: Now,
    pub(super) register: Register,
    pub(super) told: Vec<ToInit>,
    /// The observations that init was told for the next elector.
    pub(super) saw: Vec<(Slot, LastSeen)>,
    pub(super) events: Vec<Event>,
    /// Every request with the time at which it was asked for.
    pub(super) sent: Vec<(Instant, Request)>,
    /// The Lease of each of them.
    pub(super) slots: Vec<Slot>,
    pub(super) awaited: Option<(RequestId, Request)>,
    pub(super) watches: Vec<Option<String>>,
    armed: GuardDeadline,
    /// Init acknowledges at once every message about a term that it knows.
    pub(super) acknowledges: bool,
    knows_a_term: bool,
    /// The server answers at once.
    pub(super) answers: bool,
}

/// The Leases as a server keeps them.
pub(super) struct Register(register::Register);

const NAMESPACE: &str = "default/";
const FIRST: Slot = Slot(0);
const CREATED: &str = "2026-01-01T00:00:00Z";

pub(super) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) const TICK: Duration = Duration::from_nanos(1);

/// D with the follower's share of drift: 15.15 s for 15 s.
pub(super) fn plus(duration: u64) -> Duration {
    Duration::from_millis(duration * 1010)
}

pub(super) fn initial_state() -> InitialState {
    let lease = LeaseConfig { name: "lease".into(), namespace: "default".into(), ..LeaseConfig::default() };
    InitialState::first(Config { lease, ..Config::default() }, ME.into())
}

impl Bench {
    pub(super) fn new() -> Self {
        Self::start(initial_state(), Register::default())
    }

    /// Starts with a Lease of this spec.
    pub(super) fn with(spec: Value) -> Self {
        Self::start(initial_state(), Register::holding(spec))
    }

    /// Starts with a leader of one millisecond, after a release mark.
    pub(super) fn leading() -> Self {
        Self::leading_with(initial_state())
    }

    pub(super) fn leading_with(initial: InitialState) -> Self {
        let mut bench = Self::start(initial, Register::holding(mark()));
        bench.run(Duration::from_millis(1));
        assert!(bench.leads().is_some(), "the bench leads");
        bench
    }

    pub(super) fn start(initial: InitialState, register: Register) -> Self {
        Self::start_at(Now { boot: START, wall: WALL }, initial, register)
    }

    pub(super) fn start_at(now: Now, initial: InitialState, register: Register) -> Self {
        let seed = if initial.config.lease.slots > 1 { initial.identity.bytes().map(u64::from).sum() } else { 7 };
        let mut armed = GuardDeadline::disarmed();
        if let Some(resume) = &initial.resume {
            armed.arm(resume.term, resume.confirmed.deadlines.hard);
        }
        let mut bench = Self {
            knows_a_term: initial.resume.is_some(),
            // The seeds of replicas of several Leases differ.
            elector: Elector::new(initial, seed, now),
            now,
            register,
            told: Vec::new(),
            saw: Vec::new(),
            events: Vec::new(),
            sent: Vec::new(),
            slots: Vec::new(),
            awaited: None,
            watches: Vec::new(),
            armed,
            acknowledges: true,
            answers: true,
        };
        bench.drain();
        bench
    }

    /// Lets `span` pass. Each thing that is due happens at its instant.
    pub(super) fn run(&mut self, span: Duration) {
        self.run_while(span, |_| true);
    }

    /// Lets time pass until a write is sent, within a second.
    pub(super) fn run_until_a_write(&mut self) {
        let before = self.writes().len();
        self.run_while(seconds(1), |bench| bench.writes().len() == before);
        assert_eq!(self.writes().len(), before + 1, "{:?}", self.sent);
    }

    fn run_while(&mut self, span: Duration, goes_on: impl Fn(&Self) -> bool) {
        let target = self.now.boot + span;
        for _ in 0..1_000_000 {
            if !goes_on(self) {
                return;
            }
            if self.answers && self.awaited.is_some() {
                self.serve();
                continue;
            }
            let next = self.elector.poll_timeout().unwrap_or(Instant::NEVER).max(self.now.boot);
            if next > target {
                self.pass(target);
                return;
            }
            self.pass(next);
            let before = self.elector.clone();
            self.elector.handle_timeout(self.now);
            self.drain();
            let stuck = self.elector.poll_timeout().is_some_and(|at| at <= self.now.boot) && self.awaited.is_none();
            assert!(!stuck || format!("{before:?}") != format!("{:?}", self.elector), "a timeout that does nothing: {before:?}");
        }
        panic!("the machine never rests");
    }

    /// Lets the server answer from now on.
    pub(super) fn run_answered(&mut self, span: Duration) {
        self.answers = true;
        self.run(span);
    }

    /// Moves the clock without waking the elector: a gap.
    pub(super) fn pass(&mut self, to: Instant) {
        let span = to.since(self.now.boot);
        self.now.wall += i64::try_from(span.as_micros()).unwrap();
        self.now.boot = to;
    }

    pub(super) fn serve(&mut self) {
        let (id, request) = self.awaited.take().expect("a request is awaited");
        let answer = self.register.apply_to(self.slot(), &request);
        self.reply(id, answer);
    }

    /// Commits the awaited request, and loses the reply.
    pub(super) fn serve_silently(&mut self) {
        let (id, request) = self.awaited.take().expect("a request is awaited");
        self.register.apply_to(self.slot(), &request);
        self.reply(id, lost());
    }

    /// Returns the Lease of the last request.
    pub(super) fn slot(&self) -> Slot {
        *self.slots.last().expect("something was sent")
    }

    pub(super) fn answer(&mut self, answer: Answer) {
        let (id, _) = self.awaited.take().expect("a request is awaited");
        self.reply(id, answer);
    }

    pub(super) fn reply(&mut self, id: RequestId, answer: Answer) {
        self.input(Input::Answered { id, answer });
    }

    pub(super) fn watch(&mut self, watched: Watched) {
        self.input(Input::Watched(watched));
    }

    /// Lets the watch deliver the register's current state.
    pub(super) fn watch_register(&mut self) {
        let object = self.register.object().expect("there is a Lease");
        self.watch(Watched::Changed(object.into()));
    }

    /// Edits the Lease as another client, and lets the watch deliver that.
    pub(super) fn see(&mut self, edit: impl FnOnce(&mut Value)) {
        self.register.edit(edit);
        self.watch_register();
    }

    pub(super) fn tell(&mut self, message: ToElector) {
        self.tell_all([message]);
    }

    /// Delivers all these messages in one drain of the link.
    pub(super) fn tell_all(&mut self, messages: impl IntoIterator<Item = ToElector>) {
        for message in messages {
            self.armed.told(&message);
            self.elector.handle(Input::Told(message), self.now);
        }
        self.elector.handle_timeout(self.now);
        self.drain();
    }

    /// Lets init prove the workload of the last StepDown gone.
    pub(super) fn prove(&mut self, then: Then) {
        self.prove_ended(None, then);
    }

    /// The same, with the exit of its main process.
    pub(super) fn prove_ended(&mut self, exit: Option<Exit>, then: Then) {
        let (term, request) = self.step_down().expect("a StepDown was told");
        let stop = Stop { began: None, killed: None, exited: None, exit, fused: None, proved: self.now.boot };
        self.tell(ToElector::Stopped { term, request, stop, then });
    }

    pub(super) fn stopping(&mut self, reason: Reason) {
        let term = self.leads().expect("a term was begun");
        self.tell(ToElector::Stopping { term, reason, at: self.now.boot });
    }

    /// Lets init begin a stop, and prove it at once.
    pub(super) fn stop(&mut self, reason: Reason, then: Then) {
        self.stopping(reason);
        self.prove(then);
    }

    fn input(&mut self, input: Input) {
        self.elector.handle(input, self.now);
        self.drain();
    }

    fn drain(&mut self) {
        self.events.extend(std::iter::from_fn(|| self.elector.poll_event()));
        while let Some(action) = self.elector.poll_action() {
            match action {
                Action::Request { slot, id, request } => {
                    assert!(self.awaited.is_none(), "one request at a time");
                    self.sent.push((self.now.boot, request.clone()));
                    self.slots.push(slot);
                    self.awaited = Some((id, request));
                }
                Action::Watch { resource_version } => self.watches.push(resource_version),
                Action::Tell(ToInit::Observed { slot, last_seen }) => self.saw.push((slot, last_seen)),
                Action::Tell(message) => {
                    self.armed.telling(&message);
                    self.knows_a_term |= matches!(message, ToInit::Lead { .. });
                    let acknowledged = acknowledgement(&message).filter(|_| self.acknowledges && self.knows_a_term);
                    self.told.push(message);
                    if let Some(message) = acknowledged {
                        self.elector.handle(Input::Told(message), self.now);
                        self.elector.handle_timeout(self.now);
                    }
                }
            }
        }
    }

    /// Returns true if the second guard kills.
    pub(super) fn guarding(&self) -> bool {
        self.now.boot >= self.armed.hard()
    }

    /// Returns the last term that init was told of.
    pub(super) fn leads(&self) -> Option<Term> {
        self.told.iter().rev().find_map(|message| match message {
            ToInit::Lead { term, .. } => Some(*term),
            _ => None,
        })
    }

    pub(super) fn step_down(&self) -> Option<(Term, u64)> {
        self.told.iter().rev().find_map(|message| match message {
            ToInit::StepDown { term, request, .. } => Some((*term, *request)),
            _ => None,
        })
    }

    pub(super) fn step_down_reason(&self) -> Option<Reason> {
        self.told.iter().rev().find_map(|message| match message {
            ToInit::StepDown { reason, .. } => Some(*reason),
            _ => None,
        })
    }

    /// Returns the state that the next elector would be handed, from the messages to init.
    pub(super) fn resume(&self) -> Resume {
        let mut resume = None;
        for message in &self.told {
            match message.clone() {
                ToInit::Lead { term, info, confirmed } => {
                    resume = Some(Resume {
                        term,
                        info,
                        confirmed,
                        stopping: None,
                        traceparent: String::new(),
                        released: false,
                        main: None,
                        told: false,
                    });
                }
                ToInit::Extend { confirmed, .. } => resume.as_mut().expect("led").confirmed = confirmed,
                _ => {}
            }
        }
        resume.expect("led")
    }

    pub(super) fn writes(&self) -> Vec<&Sent> {
        self.sent.iter().filter_map(|(_, request)| written(request)).collect()
    }

    pub(super) fn awaits_a_write(&self) -> bool {
        matches!(self.awaited, Some((_, Request::Write(_))))
    }

    pub(super) fn gets(&self) -> usize {
        self.sent.iter().filter(|(_, request)| *request == Request::Get).count()
    }

    /// Returns the body of the last write.
    pub(super) fn body(&self) -> Value {
        let body = self.writes().into_iter().rev().find_map(|write| match write {
            Sent::Create(object) | Sent::Replace(object) => Some(Value::clone(object)),
            Sent::Delete { .. } => None,
        });
        body.expect("something was written")
    }

    pub(super) fn last_sent(&self) -> Instant {
        self.sent.last().expect("something was sent").0
    }

    pub(super) fn is_done(&self) -> bool {
        self.told.contains(&ToInit::Done)
    }
}

impl Default for Register {
    fn default() -> Self {
        Self(register::Register::new(0))
    }
}

impl Register {
    pub(super) fn holding(spec: Value) -> Self {
        Self::of(&[Some(spec)])
    }

    /// Holds Leases of these specs, as far as there are some.
    pub(super) fn of(specs: &[Option<Value>]) -> Self {
        let mut register = Self::default();
        for (slot, spec) in (0..).map(Slot).zip(specs) {
            if let Some(spec) = spec {
                register.put_in(slot, spec.clone());
            }
        }
        register
    }

    pub(super) fn version(&self) -> u64 {
        self.0.version()
    }

    pub(super) fn object(&self) -> Option<Value> {
        self.object_of(FIRST)
    }

    pub(super) fn object_of(&self, slot: Slot) -> Option<Value> {
        self.0.get(&key(slot)).map(|object| Value::clone(object))
    }

    /// Stores a new Lease with this spec in place of any other.
    pub(super) fn put(&mut self, spec: Value) {
        self.put_in(FIRST, spec);
    }

    pub(super) fn put_in(&mut self, slot: Slot, spec: Value) {
        self.0.remove(&key(slot));
        let metadata = json!({"name": slot.of("lease"), "namespace": "default", "labels": {SLOTS: "lease"}});
        self.0
            .create(&key(slot), json!({"kind": "Lease", "metadata": metadata}).into(), CREATED)
            .expect("an empty Lease is valid");
        self.edit_in(slot, |object| object["spec"] = spec);
    }

    /// Edits the Lease as another client, valid or not.
    pub(super) fn edit(&mut self, edit: impl FnOnce(&mut Value)) {
        self.edit_in(FIRST, edit);
    }

    pub(super) fn edit_in(&mut self, slot: Slot, edit: impl FnOnce(&mut Value)) {
        let mut object = self.object_of(slot).expect("there is a Lease");
        edit(&mut object);
        self.0.commit(&key(slot), object);
    }

    /// Deletes the Lease. Returns the event that the watch would deliver.
    pub(super) fn delete(&mut self) -> Watched {
        self.vanish(FIRST, |register| register.0.remove(&key(FIRST)))
    }

    /// Lets the Lease vanish from the watch. Returns the event that tells of it.
    pub(super) fn vanish(&mut self, slot: Slot, how: impl FnOnce(&mut Self)) -> Watched {
        let version = self.0.version();
        how(self);
        let mut changes = self.0.changes_since(version).expect("it is remembered");
        let change = changes.next().filter(|change| change.before.is_some());
        Watched::Deleted(change.and_then(register::Change::deleted).unwrap_or_else(|| panic!("{slot:?} was there")).into())
    }

    pub(super) fn remove(&mut self, slot: Slot) {
        self.0.remove(&key(slot));
    }

    pub(super) fn spec(&self) -> &Value {
        &self.0.get(&key(FIRST)).expect("there is a Lease")["spec"]
    }

    pub(super) fn apply(&mut self, request: &Request) -> Answer {
        self.apply_to(FIRST, request)
    }

    pub(super) fn apply_to(&mut self, slot: Slot, request: &Request) -> Answer {
        let key = key(slot);
        let answer = match request {
            Request::List => {
                let is_labelled = |object: &&Arc<Value>| object["metadata"]["labels"][SLOTS] == "lease";
                let objects = self.0.list(NAMESPACE).filter(is_labelled).cloned().collect();
                return Answer::Listed { objects, resource_version: self.0.version().to_string() };
            }
            Request::Get => self.0.get(&key).cloned().ok_or(StatusError::NotFound),
            Request::Write(write) => return self.write_to(slot, write.sent()),
        };
        answer.map_or_else(refused, Answer::Object)
    }

    pub(super) fn write_to(&mut self, slot: Slot, write: &Sent) -> Answer {
        let key = key(slot);
        let answer = match write {
            Sent::Create(object) => {
                assert_eq!((object["metadata"].get("uid"), object["metadata"].get("resourceVersion")), (None, None));
                self.0.create(&key, Arc::clone(object), CREATED)
            }
            Sent::Replace(object) => self.0.replace(&key, Arc::clone(object), CREATED),
            Sent::Delete { uid, resource_version } => {
                let must = Preconditions { uid: Some(uid), resource_version: Some(resource_version) };
                return self.0.delete(&key, must, CREATED).map_or_else(refused, |_| Answer::Deleted);
            }
        };
        answer.map_or_else(refused, Answer::Object)
    }
}

/// Returns what a write sends; none: it is a read.
pub(super) const fn written(request: &Request) -> Option<&Sent> {
    match request {
        Request::Get | Request::List => None,
        Request::Write(write) => Some(write.sent()),
    }
}

fn key(slot: Slot) -> String {
    format!("{NAMESPACE}{}", slot.of("lease"))
}

pub(super) fn refused(error: StatusError) -> Answer {
    match error {
        StatusError::NotFound => Answer::NotFound,
        StatusError::AlreadyExists | StatusError::Conflict(_) => Answer::Conflict,
        StatusError::Invalid { rule, .. } => Answer::Refused { refusal: Refusal::Invalid, message: rule.into() },
        StatusError::Expired => unreachable!("no watch is asked for"),
    }
}

fn acknowledgement(message: &ToInit) -> Option<ToElector> {
    match message {
        ToInit::Lead { term, .. } => Some(ToElector::Acknowledged { term: *term, serial: 0 }),
        ToInit::Extend { term, serial, .. } | ToInit::Releasing { term, serial } => {
            Some(ToElector::Acknowledged { term: *term, serial: *serial })
        }
        _ => None,
    }
}

/// The release mark.
pub(super) fn mark() -> Value {
    let time = "2026-01-01T00:00:00.000000Z";
    json!({"holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": time, "renewTime": time, "leaseTransitions": 4})
}

/// Held by `holder` for `duration` seconds.
pub(super) fn held(holder: &str, duration: i64) -> Value {
    let time = "2026-01-01T00:00:00.000000Z";
    json!({"holderIdentity": holder, "leaseDurationSeconds": duration, "acquireTime": time, "renewTime": time, "leaseTransitions": 4})
}

pub(super) fn lost() -> Answer {
    Answer::Unknown { message: "timed out".into(), retry_after: None }
}

pub(super) fn rose(before: &Value, after: &Value) -> bool {
    let version = |object: &Value| object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    later(&version(after), &version(before))
}

/// Asserts that there is no write before `span`, and one at `span`.
pub(super) fn takes_exactly_after(bench: &mut Bench, span: Duration) {
    bench.run(span - TICK);
    assert_eq!(bench.writes(), Vec::<&Sent>::new(), "a write before {span:?}");
    bench.run(TICK);
    assert_eq!(bench.writes().len(), 1, "no write at {span:?}");
}
