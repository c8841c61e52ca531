//! Several slots: the shipping pools of a few replicas, above a register that hides Leases from a list, loses answers and is edited.
//!
//! Init is not the shipping one here, but the law's: what runs ends at H at the latest. Never two in one slot, never more than
//! there are slots, never two in one replica; and in the end as many run as may.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    sync::Arc,
    time::Duration,
};

use fastrand::Rng;
use serde_json::Value;
use tenure::{
    apiserver::register::{Preconditions, Register, StatusError},
    config::{Config, LeaseConfig},
    election::{Action, Answer, Input, Pool, Refusal, Request, RequestId, WatchEnd, Watched, writes::STEP_DOWN},
    law::Deadlines,
    link::{InitialState, LastSeen, Reason, Slot, Stop, Term, Then, ToElector, ToInit},
    time::{Instant, Now},
};

const LABEL: &str = "tenure.dev/slots";
const NAME: &str = "pool";
const CREATED: &str = "2026-01-01T00:00:00Z";
const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;
const STORM: u64 = 90 * S;
const CALM: u64 = 40 * S;
const WORLDS: u64 = 12;

#[test]
fn no_slot_has_two_and_no_pool_more_than_its_slots() {
    let (first, worlds) = (number("FROM").unwrap_or(0), number("TENURE_SLOTS_WORLDS").unwrap_or(WORLDS));
    let (mut terms, mut strikes) = (0, BTreeMap::new());
    for seed in first..first + worlds {
        let mut world = World::new(seed);
        world.run();
        terms += world.terms;
        world.strikes.iter().for_each(|(fault, times)| *strikes.entry(*fault).or_insert(0) += times);
    }
    eprintln!("slots: {worlds} worlds, {terms} terms, {strikes:?}");
    assert!(worlds < WORLDS || Fault::ALL.iter().all(|fault| strikes.contains_key(fault)), "{strikes:?}");
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Unlabel,
    Delete,
    StepDown,
    Cut,
    Crash,
    Resize,
    NewElector,
    NoList,
}

impl Fault {
    const ALL: [Self; 8] =
        [Self::Unlabel, Self::Delete, Self::StepDown, Self::Cut, Self::Crash, Self::Resize, Self::NewElector, Self::NoList];
}

/// What happens to one life of one elector.
#[derive(Clone, Debug)]
enum Happens {
    Arrives(Slot, RequestId, Request),
    Answers(RequestId, Answer),
    Watches(u64, Watched),
    Proves(Term, u64),
    Exits(Term),
}

struct Replica {
    identity: String,
    pool: Pool,
    /// Which elector; what was meant for an earlier one is lost.
    life: u64,
    slots: u8,
    /// Of CLOCK_BOOTTIME to real time, in parts per million, and how far ahead it is.
    rate: u64,
    ahead: u64,
    /// Until then nothing of it arrives.
    cut: u64,
    /// The number of its watch, and when its last event arrives.
    watch: Option<(u64, u64)>,
    watches: u64,
    term: Option<Held>,
    last_term: Term,
    last_seen: BTreeMap<Slot, LastSeen>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    term: Term,
    slot: Slot,
    deadlines: Deadlines,
    runs: bool,
    lost: bool,
}

struct World {
    seed: u64,
    story: bool,
    rng: Rng,
    now: u64,
    register: Register,
    replicas: Vec<Replica>,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, (usize, u64, Happens)>,
    number: u64,
    lists_refused_until: u64,
    terms: u64,
    /// So many ran at once when it was calm again.
    most: usize,
    strikes: BTreeMap<Fault, u64>,
}

impl Replica {
    fn at(&self, now: u64) -> Now {
        let boot = self.ahead + (u128::from(now) * u128::from(self.rate) / 1_000_000) as u64;
        Now { boot: Instant::from_nanos(boot), wall: 1_800_000_000_000_000 + (boot / 1_000).cast_signed() }
    }

    /// The first real time at which its clock shows this.
    fn real(&self, at: Instant) -> u64 {
        let span = u128::from(at.as_nanos().saturating_sub(self.ahead));
        u64::try_from((span * 1_000_000).div_ceil(u128::from(self.rate))).unwrap_or(u64::MAX)
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let slots = rng.u8(2..=3);
        let mut world = Self {
            seed,
            story: number("SLOTS_STORY").is_some(),
            now: S,
            register: Register::new(7),
            replicas: Vec::new(),
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            number: 0,
            lists_refused_until: 0,
            terms: 0,
            most: 0,
            strikes: BTreeMap::new(),
            rng,
        };
        for _ in 0..world.rng.u8(slots + 1..=slots + 2) {
            let replica = world.born(slots, 0);
            world.replicas.push(replica);
        }
        world
    }

    fn born(&mut self, slots: u8, life: u64) -> Replica {
        self.number += 1;
        let (rate, ahead) = (self.rng.u64(990_500..=1_009_500), self.rng.u64(S..1_000 * S));
        let identity = format!("replica-{}", self.number);
        let mut replica = Replica {
            pool: Pool::new(initial(&identity, slots), self.rng.u64(..), Now { boot: Instant::BOOT, wall: 0 }),
            identity,
            life,
            slots,
            rate,
            ahead,
            cut: 0,
            watch: None,
            watches: 0,
            term: None,
            last_term: Term(0),
            last_seen: BTreeMap::new(),
        };
        let now = replica.at(self.now);
        replica.pool = Pool::new(initial(&replica.identity, slots), self.rng.u64(..), now);
        replica
    }

    fn run(&mut self) {
        let mut next_fault = self.now + self.rng.u64(S..5 * S);
        for at in 0..self.replicas.len() {
            self.carry_out(at);
        }
        loop {
            let event = self.queue.peek().map_or(u64::MAX, |Reverse((at, _))| *at);
            let due = (0..self.replicas.len()).map(|at| (self.due(at), at)).min().expect("there are replicas");
            let fault = if self.now < STORM { next_fault } else { u64::MAX };
            let next = event.min(due.0).min(fault).max(self.now);
            if next > STORM + CALM {
                break;
            }
            self.now = next;
            if next > STORM + CALM / 2 {
                self.most = self.most.max(self.running().count());
            }
            if next == fault.max(self.now) && fault <= event.min(due.0) {
                self.strike();
                next_fault = self.now + self.rng.u64(S / 2..6 * S);
            } else if event <= due.0 {
                let Reverse((_, number)) = self.queue.pop().expect("an event is due");
                let (at, life, happens) = self.events.remove(&number).expect("it was queued");
                if self.replicas[at].life == life {
                    self.happen(at, happens);
                }
            } else {
                self.wake(due.1);
            }
        }
        // Who may hold the most does not leave the others the slots that they know.
        let fewest = self.replicas.iter().map(|replica| usize::from(replica.slots)).min().unwrap_or(0);
        let wanted = fewest.min(self.replicas.len());
        assert!(self.most >= wanted, "SEED {}: {} of {wanted} ran in the end", self.seed, self.most);
    }

    fn running(&self) -> impl Iterator<Item = Slot> {
        self.replicas.iter().filter_map(|replica| replica.term.filter(|held| held.runs).map(|held| held.slot))
    }

    /// When a replica has something to do by itself.
    fn due(&self, at: usize) -> u64 {
        let replica = &self.replicas[at];
        let own = replica.pool.poll_timeout().filter(|due| *due != Instant::NEVER);
        let deadline =
            replica.term.filter(|held| held.runs).map(|held| if held.lost { held.deadlines.hard } else { held.deadlines.soft });
        own.into_iter().chain(deadline).map(|due| replica.real(due)).min().unwrap_or(u64::MAX).max(self.now)
    }

    fn wake(&mut self, at: usize) {
        let now = self.replicas[at].at(self.now);
        if let Some(held) = self.replicas[at].term.as_mut().filter(|held| held.runs) {
            if now.boot >= held.deadlines.hard {
                held.runs = false;
            } else if now.boot >= held.deadlines.soft && !held.lost {
                held.lost = true;
                let message = ToElector::Stopping { term: held.term, reason: Reason::Expired, at: now.boot };
                self.tell(at, message);
            }
        }
        self.replicas[at].pool.handle_timeout(now);
        self.carry_out(at);
    }

    fn happen(&mut self, at: usize, happens: Happens) {
        let now = self.replicas[at].at(self.now);
        if self.story {
            let text = format!("{happens:?}");
            eprintln!("{:9.3} {at}   <- {}", self.now as f64 / S as f64, &text[..text.len().min(200)]);
        }
        match happens {
            Happens::Arrives(slot, id, request) => {
                if self.loses() || self.replicas[at].cut > self.now {
                    return;
                }
                let before = self.register.version();
                let answer = self.serve(at, slot, &request);
                self.publish(before);
                if !self.loses() {
                    let at_time = self.now + self.rng.u64(MS..120 * MS);
                    self.later(at_time, at, Happens::Answers(id, answer));
                }
            }
            Happens::Answers(id, answer) if self.replicas[at].cut <= self.now || matches!(answer, Answer::Unknown { .. }) => {
                self.replicas[at].pool.handle(Input::Answered { id, answer }, now);
            }
            Happens::Watches(number, watched) if self.replicas[at].watch.is_some_and(|(running, _)| running == number) => {
                if matches!(watched, Watched::Ended(_)) {
                    self.replicas[at].watch = None;
                }
                if self.replicas[at].cut <= self.now {
                    self.replicas[at].pool.handle(Input::Watched(watched), now);
                }
            }
            Happens::Proves(term, request) => {
                if let Some(held) = self.replicas[at].term.as_mut().filter(|held| held.term == term) {
                    held.runs = false;
                    let stop = Stop { began: None, killed: None, exited: None, exit: None, proved: now.boot };
                    self.tell(at, ToElector::Stopped { term, request, stop, then: Then::Follow });
                    self.replicas[at].pool.handle_timeout(now);
                }
            }
            Happens::Exits(term) => {
                if self.now < STORM && self.replicas[at].term.is_some_and(|held| held.term == term && held.runs && !held.lost) {
                    self.tell(at, ToElector::Stopping { term, reason: Reason::Exited, at: now.boot });
                    self.replicas[at].pool.handle_timeout(now);
                }
            }
            Happens::Answers(..) | Happens::Watches(..) => {}
        }
        self.carry_out(at);
    }

    fn loses(&mut self) -> bool {
        self.now < STORM && self.rng.f64() < 0.04
    }

    fn tell(&mut self, at: usize, message: ToElector) {
        let now = self.replicas[at].at(self.now);
        self.replicas[at].pool.handle(Input::Told(message), now);
    }

    fn later(&mut self, when: u64, at: usize, happens: Happens) {
        self.number += 1;
        self.queue.push(Reverse((when, self.number)));
        self.events.insert(self.number, (at, self.replicas[at].life, happens));
    }

    fn carry_out(&mut self, at: usize) {
        while let Some(action) = self.replicas[at].pool.poll_action() {
            if self.story {
                let text = format!("{action:?}");
                eprintln!(
                    "{:9.3} {at} {}: {}",
                    self.now as f64 / S as f64,
                    self.replicas[at].identity,
                    &text[..text.len().min(300)]
                );
            }
            match action {
                Action::Request { slot, id, request } => {
                    let sent = self.now + self.rng.u64(MS..120 * MS);
                    self.later(sent, at, Happens::Arrives(slot, id, request));
                    let timeout = self.replicas[at].at(self.now).boot + Duration::from_millis(500);
                    let silence = Answer::Unknown { message: "timed out".into(), retry_after: None };
                    self.later(self.replicas[at].real(timeout), at, Happens::Answers(id, silence));
                }
                Action::Watch { resource_version } => self.watch(at, resource_version),
                Action::Tell(message) => self.told(at, message),
                Action::Report(_) => {}
            }
        }
    }

    /// Init, as the law has it.
    fn told(&mut self, at: usize, message: ToInit) {
        let now = self.replicas[at].at(self.now);
        match message {
            ToInit::Lead { term, info, confirmed, .. } => {
                let replica = &mut self.replicas[at];
                assert!(replica.term.is_none() && term > replica.last_term, "SEED {}: a term within a term", self.seed);
                let runs = now.boot < confirmed.deadlines.soft;
                let held = Held { term, slot: info.slot, deadlines: confirmed.deadlines, runs: false, lost: !runs };
                (replica.term, replica.last_term) = (Some(held), term);
                if runs {
                    let most = self.replicas.iter().map(|replica| usize::from(replica.slots)).max().unwrap_or(0);
                    let running: Vec<Slot> = self.running().collect();
                    assert!(!running.contains(&info.slot), "SEED {}: two in {:?}, {} s", self.seed, info.slot, self.now / S);
                    assert!(running.len() < most, "SEED {}: more than {most} run", self.seed);
                    self.replicas[at].term = Some(Held { runs, ..held });
                    self.terms += 1;
                    let end = self.now + self.rng.u64(S..40 * S);
                    self.later(end, at, Happens::Exits(term));
                }
                self.tell(at, ToElector::Acknowledged { term, serial: 0 });
            }
            ToInit::Extend { term, serial, confirmed } => {
                if let Some(held) = self.replicas[at].term.as_mut().filter(|held| held.term == term && !held.lost) {
                    held.deadlines = confirmed.deadlines;
                    self.tell(at, ToElector::Acknowledged { term, serial });
                }
            }
            ToInit::StepDown { term, request, .. } => {
                let hard = self.replicas[at].term.map_or(now.boot, |held| held.deadlines.hard);
                let hard = self.replicas[at].real(hard);
                let when = (self.now + self.rng.u64(MS..S)).min(hard).max(self.now);
                self.later(when, at, Happens::Proves(term, request));
            }
            ToInit::Releasing { term, serial } => {
                assert!(self.replicas[at].term.is_none_or(|held| !held.runs), "SEED {}: a release before its proof", self.seed);
                self.tell(at, ToElector::Acknowledged { term, serial });
            }
            ToInit::Ended { .. } => self.replicas[at].term = None,
            ToInit::Saw { slot, last_seen } => {
                self.replicas[at].last_seen.insert(slot, last_seen);
            }
            ToInit::Hello
            | ToInit::Withdrawn { .. }
            | ToInit::Probed { .. }
            | ToInit::Heartbeat
            | ToInit::Done
            | ToInit::GaveUp { .. }
            | ToInit::Failed { .. } => {}
        }
        let now = self.replicas[at].at(self.now);
        self.replicas[at].pool.handle_timeout(now);
    }

    fn serve(&mut self, at: usize, slot: Slot, request: &Request) -> Answer {
        let key = key_of(&name_of(slot));
        let done = match request {
            Request::List if self.lists_refused_until > self.now => {
                return Answer::Refused { refusal: Refusal::Forbidden, message: "403".into() };
            }
            Request::List => {
                let objects = self.register.list("default/").filter(|object| is_labelled(object)).cloned().collect();
                return Answer::Listed { objects, resource_version: self.register.version().to_string() };
            }
            Request::Get => self.register.get(&key).cloned().ok_or(StatusError::NotFound),
            Request::Create(object) => self.register.create(&key, Arc::clone(object), CREATED),
            Request::Replace(object) => {
                assert_eq!(object["metadata"]["name"], name_of(slot), "SEED {}", self.seed);
                self.register.replace(&key, Arc::clone(object), CREATED)
            }
            Request::Delete { uid, resource_version } => {
                let must = Preconditions { uid: Some(uid), resource_version: Some(resource_version) };
                return self.register.delete(&key, must, CREATED).map_or_else(refused, |_| Answer::Deleted);
            }
        };
        let _ = at;
        done.map_or_else(refused, Answer::Object)
    }

    fn watch(&mut self, at: usize, version: Option<String>) {
        self.replicas[at].watches += 1;
        let number = self.replicas[at].watches;
        self.replicas[at].watch = Some((number, self.now));
        let from = version.and_then(|version| version.parse().ok()).unwrap_or_else(|| self.register.version());
        self.feed(at, from);
        let end = self.now + self.rng.u64(S..60 * S);
        let how = if self.rng.bool() { WatchEnd::Closed } else { WatchEnd::Failed("reset".into()) };
        self.later(end, at, Happens::Watches(number, Watched::Ended(how)));
    }

    fn publish(&mut self, before: u64) {
        for at in 0..self.replicas.len() {
            self.feed(at, before);
        }
    }

    /// The label decides what a watch shows: one that goes is a DELETED event.
    fn feed(&mut self, at: usize, from: u64) {
        let Some((number, last)) = self.replicas[at].watch else { return };
        let Ok(changes) = self.register.changes_since(from) else { return };
        let events: Vec<Watched> = changes
            .filter_map(|change| match (&change.before, &change.after) {
                (_, Some(after)) if is_labelled(after) => Some(Watched::Changed(Arc::clone(after))),
                (Some(before), _) if is_labelled(before) => change.deleted().map(|object| Watched::Deleted(object.into())),
                (_, _) => None,
            })
            .collect();
        let mut when = last.max(self.now);
        for watched in events {
            when += self.rng.u64(MS..200 * MS);
            self.later(when, at, Happens::Watches(number, watched));
        }
        self.replicas[at].watch = Some((number, when));
    }

    fn strike(&mut self) {
        let fault = Fault::ALL[self.rng.usize(..Fault::ALL.len())];
        let at = self.rng.usize(..self.replicas.len());
        let slot = Slot(self.rng.u8(..self.replicas[at].slots));
        let key = key_of(&name_of(slot));
        let before = self.register.version();
        let lease = self.register.get(&key).map(|lease| Value::clone(lease));
        match (fault, lease) {
            (Fault::Unlabel, Some(mut lease)) => {
                lease["metadata"]["labels"] = Value::Null;
                self.register.commit(&key, lease);
            }
            (Fault::Delete, Some(_)) => self.register.remove(&key),
            (Fault::StepDown, Some(mut lease)) => {
                lease["metadata"]["annotations"][STEP_DOWN] = lease["spec"]["holderIdentity"].clone();
                self.register.commit(&key, lease);
            }
            (Fault::Unlabel | Fault::Delete | Fault::StepDown, None) => return,
            (Fault::Cut, _) => self.replicas[at].cut = self.now + self.rng.u64(S..15 * S),
            (Fault::Crash, _) => self.reborn(at, self.replicas[at].slots),
            // A rollout that changes lease.slots.
            (Fault::Resize, _) => {
                let slots = self.rng.u8(2..=4);
                self.reborn(at, slots);
            }
            (Fault::NewElector, _) if self.replicas[at].term.is_none() => {
                let replica = &mut self.replicas[at];
                let now = replica.at(self.now);
                let state = InitialState {
                    generation: 2,
                    last_term: replica.last_term,
                    last_seen: replica.last_seen.clone(),
                    ..initial(&replica.identity, replica.slots)
                };
                (replica.life, replica.watch) = (replica.life + 1, None);
                replica.pool = Pool::new(state, self.rng.u64(..), now);
                self.carry_out(at);
            }
            (Fault::NewElector, _) => return,
            (Fault::NoList, _) => self.lists_refused_until = self.now + self.rng.u64(S..10 * S),
        }
        if self.story {
            eprintln!("{:9.3} FAULT {fault:?} {at} {slot:?}", self.now as f64 / S as f64);
        }
        *self.strikes.entry(fault).or_default() += 1;
        self.publish(before);
    }

    fn reborn(&mut self, at: usize, slots: u8) {
        let life = self.replicas[at].life + 1;
        self.replicas[at] = self.born(slots, life);
        self.carry_out(at);
    }
}

fn initial(identity: &str, slots: u8) -> InitialState {
    let mut config = Config {
        lease: LeaseConfig { name: NAME.into(), namespace: "default".into(), slots, ..LeaseConfig::default() },
        ..Config::default()
    };
    config.lease.duration = Duration::from_secs(5);
    config.lease.renew_period = Duration::from_secs(1);
    config.lease.attempt_timeout = Duration::from_millis(500);
    config.workload.stop.loss_grace = Duration::from_secs(1);
    config.workload.stop.kill_margin = Duration::from_millis(500);
    InitialState::first(config, identity.into())
}

fn name_of(slot: Slot) -> String {
    if slot.0 == 0 { NAME.into() } else { format!("{NAME}-slot-{}", slot.0) }
}

fn key_of(name: &str) -> String {
    format!("default/{name}")
}

fn is_labelled(object: &Value) -> bool {
    object["metadata"]["labels"][LABEL] == NAME
}

fn refused(error: StatusError) -> Answer {
    match error {
        StatusError::NotFound => Answer::NotFound,
        StatusError::AlreadyExists | StatusError::Conflict(_) => Answer::Conflict,
        StatusError::Invalid { rule, .. } => Answer::Refused { refusal: Refusal::Invalid, message: rule.into() },
        StatusError::Expired => unreachable!("no watch is asked for"),
    }
}
