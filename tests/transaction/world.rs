//! A world in virtual time: an API server, drivers over a network that loses and delays, people who edit.
//!
//! Everything that happens follows from the seed.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    future::poll_fn,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use serde_json::Value;
use tenure::{
    request::{Answer, Refusal, RequestError},
    time::Instant,
    transaction::{
        self, Change, ChangeType, Event, Kind, MARK, Outcome, Phase, Place, Request, Server, Settings, Target, Verb, drive,
    },
};
use tenure_world::{clock::S, engine::Engine};

use crate::{
    judge::{Judge, Party, journal},
    server::{Cluster, Effect, mark, version},
};

/// How long an answer is waited for.
const SILENCE: u64 = 10 * S;
/// More requests than any driver needs.
const MOST_REQUESTS: u32 = 5_000;

type Slot = Rc<RefCell<Option<Answer>>>;
type Running = Pin<Box<dyn Future<Output = Outcome>>>;

/// What a driver does.
#[derive(Clone, Debug)]
pub enum Job {
    Apply(Vec<Change>),
    Recover,
    /// Overwrites what others have changed.
    Force,
    Forget,
    Promote(Vec<Change>),
    Demote,
}

/// What goes wrong with a driver, each with its probability at every request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub crash: f64,
    pub freeze: f64,
    pub lost: f64,
    pub unanswered: f64,
    pub late: f64,
}

#[derive(Debug)]
pub enum Happening {
    Start(usize),
    Wake(usize, bool),
    Silence(usize, Slot),
    Serve {
        driver: usize,
        request: Request,
        slot: Option<Slot>,
    },
    Edit,
    /// A controller edits a field of its own.
    Control,
    /// A backup makes an object anew, with its mark.
    Copy,
    Status,
    Strip,
    Recreate,
    Delete,
    Create,
    LoseJournal,
}

pub struct Driver {
    pub party: Party,
    pub job: Job,
    pub faults: Faults,
    pub settings: Settings,
    pub running: Option<Running>,
    pub outcome: Option<Outcome>,
    pub requests: u32,
    /// The targets whose change the server refuses.
    pub refused: Vec<String>,
    /// The instants of a signal and of the end of the term.
    pub signal: u64,
    pub until: u64,
    /// The verbs that the server denies it on targets, and whether it may read Leases. It is too busy for `changes`, and
    /// a webhook answers with a conflict where a field goes back to its `managers`.
    pub denied: &'static [&'static str],
    /// A write of the journal that the control holds back.
    pub held_back: Option<Request>,
    /// Dies once this request was carried out, before its answer comes.
    pub dies_at: Option<u32>,
    /// Does not hear the answer to this request.
    pub unheard_at: Option<u32>,
    /// Dies with its first change of a target under way, which is kept here.
    pub dies_late: bool,
    pub kept: Option<Request>,
}

pub struct World {
    pub e: Engine<Happening, Judge, &'static str>,
    pub cluster: Cluster,
    pub drivers: Vec<Driver>,
    pub origin: BTreeMap<String, Value>,
    pub revert: f64,
    /// The control: a journal is stored after the change that it should undo.
    pub is_late_journal: bool,
    /// The driver and the user of each write to a target.
    pub users: Vec<(usize, String)>,
    /// Until then the server is too busy for any request.
    pub busy_until: u64,
    /// Until then it denies every request, as one that has just started.
    pub denies_until: u64,
}

pub type Shared = Rc<RefCell<World>>;

/// The surroundings of one driver.
struct Surroundings {
    world: Shared,
    driver: usize,
}

impl Server for Surroundings {
    fn send(&self, request: Request, acting_as: Option<&str>) -> impl Future<Output = Answer> {
        if matches!(request, Request::Write(..)) {
            self.world.borrow_mut().users.push((self.driver, acting_as.unwrap_or_default().to_owned()));
        }
        let slot = self.world.borrow_mut().dispatch(self.driver, request);
        poll_fn(move |_| slot.borrow_mut().take().map_or(Poll::Pending, Poll::Ready))
    }

    fn wait(&self, span: Duration) -> impl Future<Output = ()> {
        let mut world = self.world.borrow_mut();
        let until = world.e.now + u64::try_from(span.as_nanos()).unwrap();
        let driver = self.driver;
        let after = until - world.e.now;
        world.e.after(after, Happening::Wake(driver, false));
        drop(world);
        let world = self.world.clone();
        poll_fn(move |_| if world.borrow().e.now >= until { Poll::Ready(()) } else { Poll::Pending })
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.world.borrow().e.now)
    }

    fn is_stopped(&self) -> bool {
        let world = self.world.borrow();
        let driver = &world.drivers[self.driver];
        world.e.now >= driver.signal || world.e.now >= driver.until
    }

    fn report(&self, event: Event) {
        let mut world = self.world.borrow_mut();
        let driver = self.driver;
        world.e.note("driver", || format!("{driver} {event:?}"));
    }
}

impl World {
    pub fn new(seed: u64, is_late_journal: bool, tells: bool) -> Self {
        Self {
            e: Engine::new(seed, tells),
            cluster: Cluster::default(),
            drivers: Vec::new(),
            origin: BTreeMap::new(),
            revert: 0.35,
            is_late_journal,
            users: Vec::new(),
            busy_until: 0,
            denies_until: 0,
        }
    }

    pub fn within(&mut self, seconds: u64) -> u64 {
        self.e.rng.u64(0..=seconds * S)
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.e.rng.usize(0..from.len())]
    }

    pub fn plant(&mut self, name: &str, data: Value) {
        self.cluster.plant(name, data);
        let object = self.cluster.objects[name].clone();
        self.e.judge.planted(name, &object);
    }

    /// Sends a request into the network.
    fn dispatch(&mut self, driver: usize, request: Request) -> Slot {
        let slot = Slot::default();
        let lag = self.e.rng.u64(S / 1_000..S / 50);
        self.drivers[driver].requests += 1;
        if self.drivers[driver].dies_at == Some(self.drivers[driver].requests) {
            self.drivers[driver].faults.crash = 1.0;
            self.e.after(0, Happening::Serve { driver, request, slot: None });
            self.e.after(1, Happening::Wake(driver, true));
            return slot;
        }
        if self.drivers[driver].dies_late && matches!(request, Request::Write(..)) {
            self.drivers[driver].kept = Some(request);
            self.drivers[driver].faults.crash = 1.0;
            self.e.after(0, Happening::Wake(driver, true));
            return slot;
        }
        let Faults { lost, mut unanswered, late, .. } = self.drivers[driver].faults;
        if self.drivers[driver].unheard_at == Some(self.drivers[driver].requests) {
            unanswered = 1.0;
        }
        let dice = self.e.rng.f64();
        if dice >= lost + unanswered + late {
            self.e.after(lag, Happening::Serve { driver, request, slot: Some(slot.clone()) });
            return slot;
        }
        self.e.after(SILENCE, Happening::Silence(driver, slot.clone()));
        if dice >= lost + unanswered {
            self.e.count("late");
            let after = SILENCE + self.within(40);
            self.e.after(after, Happening::Serve { driver, request, slot: None });
        } else if dice >= lost {
            self.e.count("unanswered");
            self.e.after(lag, Happening::Serve { driver, request, slot: None });
        }
        slot
    }

    pub fn serve(&mut self, driver: usize, request: Request, slot: Option<Slot>) {
        let (mut answer, mut effect) = self.cluster.judge(&request);
        if let Request::Write(target, Verb::Merge(patch), _) = &request
            && patch["metadata"]["annotations"][MARK].is_string()
            && patch.get("data").is_some()
            && self.drivers[driver].refused.contains(&target.name)
        {
            answer = refused(422, "refused");
            effect = Effect::Nothing;
        }
        let verb = verb(&request);
        let denied = self.drivers[driver].denied;
        if verb.is_some_and(|verb| denied.contains(&verb)) || self.e.now < self.denies_until {
            answer = refused(403, "denied");
            effect = Effect::Nothing;
        }
        let is_shed = denied.contains(&"changes") && matches!(&request, Request::Write(..));
        if is_shed || self.e.now < self.busy_until {
            let refusal = Refusal::TooManyRequests { retry_after: Some(Duration::from_secs(5)) };
            answer = Answer::Refused { refusal, message: RequestError { status: Some(429), words: "busy".into() } };
            effect = Effect::Nothing;
        }
        let is_stored = |name| self.cluster.journals.get(name).is_some_and(|secret| !secret["data"].is_null());
        let conflict = match &request {
            Request::Plan(..) => "plans",
            Request::Lease(_, Some(_)) => "leases",
            Request::Write(_, Verb::Create(_), _) => "creates",
            Request::Write(_, Verb::Merge(patch), _) if patch["metadata"]["managedFields"].is_array() => "managers",
            Request::Write(_, Verb::Merge(patch), _)
                if patch.get("data").is_none() && patch["metadata"]["annotations"].get(MARK).is_some_and(Value::is_null) =>
            {
                "marks"
            }
            Request::Journal(place, Verb::Replace(_)) if is_stored(&place.name) => "journals",
            Request::Look(_) | Request::Write(..) | Request::Journal(..) | Request::Lease(..) | Request::Review(..) => "",
        };
        if denied.contains(&conflict) {
            answer = Answer::Conflict;
            effect = Effect::Nothing;
        }
        if let Effect::Object { name, next } = &effect {
            let undo: &[&str] = match (name.as_str(), next) {
                ("C0", Some(_)) if !self.cluster.objects.contains_key("C0") => &["delete", "patch"],
                ("D0", None) => &["create", "patch"],
                _ => &[],
            };
            if undo.iter().any(|verb| denied.contains(verb)) {
                self.e.judge.violations.push(format!("T7 a change that its driver may not undo: driver {driver}"));
            }
        }
        self.e.note("server", || match &request {
            Request::Look(target) => format!("driver {driver} looks at {}: {}", target.name, told(&answer)),
            Request::Journal(place, Verb::Get) => format!("driver {driver} reads {}", place.name),
            Request::Lease(place, None) => format!("driver {driver} reads Lease {}", place.name),
            request @ (Request::Plan(..)
            | Request::Write(..)
            | Request::Journal(..)
            | Request::Lease(..)
            | Request::Review(..)) => {
                format!("driver {driver} {request:?} -> {}{}", told(&answer), if slot.is_some() { "" } else { ", unheard" })
            }
        });
        if self.is_late_journal && self.hold_back(driver, &request) {
            effect = Effect::Nothing;
        }
        let mut party = self.drivers[driver].party.clone();
        self.e.judge.write(&self.cluster, &mut party, &effect);
        self.drivers[driver].party = party;
        if !matches!(effect, Effect::Nothing) {
            self.e.count("writes");
        }
        self.cluster.apply(effect);
        if let Some(slot) = slot {
            *slot.borrow_mut() = Some(answer);
            let lag = self.e.rng.u64(S / 1_000..S / 50);
            self.e.after(lag, Happening::Wake(driver, true));
        }
    }

    /// The control: answers the first write of a prepared journal, and stores it with the next write only.
    fn hold_back(&mut self, driver: usize, request: &Request) -> bool {
        if let Request::Journal(_, Verb::Create(secret) | Verb::Replace(secret)) = request
            && journal(secret).is_some_and(|journal| journal.phase == Phase::Prepared)
        {
            self.drivers[driver].held_back = Some(request.clone());
            return true;
        }
        false
    }

    pub fn add(&mut self, journal: &str, token: u64, job: Job, faults: Faults) -> usize {
        let number = self.drivers.len();
        let mut lease = self.cluster.lease(journal);
        lease["metadata"]["resourceVersion"] = self.cluster.new_version();
        lease["spec"]["holderIdentity"] = format!("driver {number}").into();
        self.cluster.leases.insert(journal.into(), lease);
        let limit = self.pick(&[20, 60, 300]);
        let settings = Settings {
            lease: Place { namespace: "ns".into(), name: journal.into() },
            token: token.to_string(),
            by: format!("driver {number}"),
            flags: format!("--lease {journal}"),
            acting_as: Some(format!("user {number}")),
            limit: Duration::from_secs(limit),
            started: Instant::from_nanos(0),
            began: String::new(),
            seed: self.e.rng.u64(..),
        };
        let party = Party {
            number,
            journal: journal.into(),
            claims: BTreeMap::new(),
            id: String::new(),
            forces: matches!(job, Job::Force),
        };
        self.drivers.push(Driver {
            party,
            job,
            faults,
            settings,
            running: None,
            outcome: None,
            requests: 0,
            refused: Vec::new(),
            signal: u64::MAX,
            until: u64::MAX,
            denied: &[],
            held_back: None,
            dies_at: None,
            unheard_at: None,
            dies_late: false,
            kept: None,
        });
        number
    }
}

/// The verb that a request needs on its target; on Leases of others, `lease`, and on the journal, `store`.
fn verb(request: &Request) -> Option<&'static str> {
    match request {
        Request::Look(_) => Some("get"),
        Request::Plan(_, write) | Request::Write(_, write, _) => Some(match write {
            Verb::Apply(_) | Verb::Merge(_) => "patch",
            Verb::Create(_) => "create",
            Verb::Delete(_) => "delete",
            Verb::Get | Verb::List | Verb::Replace(_) => unreachable!("{request:?}"),
        }),
        Request::Review(_, verb) => Some(verb),
        Request::Lease(_, None) => Some("lease"),
        Request::Journal(_, Verb::Replace(_)) => Some("store"),
        Request::Lease(_, Some(_)) | Request::Journal(..) => None,
    }
}

fn refused(status: u16, words: &str) -> Answer {
    let refusal = if status == 403 { Refusal::Forbidden } else { Refusal::Invalid };
    Answer::Refused { refusal, message: RequestError { status: Some(status), words: words.into() } }
}

fn told(answer: &Answer) -> String {
    match answer {
        Answer::Object(object) => format!("{} at {} {:?}", object["data"], version(object), mark(object)),
        Answer::NotFound => "404".into(),
        Answer::Conflict => "409".into(),
        Answer::Refused { .. } => "422".into(),
        Answer::Unknown { .. } | Answer::Deleted | Answer::Listed { .. } => "?".into(),
    }
}

pub fn target(name: &str) -> Target {
    let (api_version, kind, resource) = ("v1".into(), "ConfigMap".into(), "configmaps".into());
    Target { api_version, kind, resource, namespace: Some("ns".into()), name: name.into() }
}

pub fn change(name: &str, verb: ChangeType, content: Value) -> Change {
    Change { target: target(name), verb, content, require: None }
}

/// Lets everything happen that happens until then.
pub fn drain(world: &Shared, until: u64) {
    loop {
        let Some(next) = world.borrow_mut().e.next_until(until) else { return };
        let mut borrowed = world.borrow_mut();
        match next {
            Happening::Start(driver) => {
                drop(borrowed);
                start(world, driver);
                wake(world, driver);
            }
            Happening::Wake(driver, may_fail) => {
                let faults = borrowed.drivers[driver].faults;
                let runs = borrowed.drivers[driver].running.is_some();
                if runs && borrowed.e.chance(faults.crash) {
                    borrowed.e.count("killed");
                    borrowed.e.note("driver", || format!("{driver} is killed"));
                    borrowed.drivers[driver].running = None;
                } else if runs && may_fail && borrowed.e.chance(faults.freeze) {
                    borrowed.e.count("frozen");
                    let after = borrowed.within(60);
                    borrowed.e.after(after, Happening::Wake(driver, false));
                } else {
                    drop(borrowed);
                    wake(world, driver);
                }
            }
            Happening::Silence(driver, slot) => {
                *slot.borrow_mut() = Some(Answer::Unknown { message: "silence".into(), retry_after: None });
                borrowed.e.after(0, Happening::Wake(driver, true));
            }
            Happening::Serve { driver, request, slot } => {
                let late = borrowed.drivers[driver].held_back.take_if(|_| matches!(request, Request::Write(..)));
                borrowed.serve(driver, request, slot);
                if let Some(late) = late {
                    borrowed.is_late_journal = false;
                    borrowed.serve(driver, late, None);
                    borrowed.is_late_journal = true;
                }
            }
            Happening::Edit => borrowed.edit(),
            Happening::Control => borrowed.control(),
            Happening::Copy => borrowed.copy(),
            Happening::Status => borrowed.status(),
            Happening::Strip => borrowed.strip(),
            Happening::Recreate => borrowed.recreate(),
            Happening::Delete => borrowed.delete(),
            Happening::Create => borrowed.create(),
            Happening::LoseJournal => borrowed.lose_journal(),
        }
    }
}

fn start(world: &Shared, driver: usize) {
    let server = Surroundings { world: world.clone(), driver };
    let (job, settings) = {
        let world = world.borrow();
        let driver = &world.drivers[driver];
        let began = jiff::Timestamp::from_nanosecond(world.e.now.into()).unwrap().to_string();
        (driver.job.clone(), Settings { began, started: Instant::from_nanos(world.e.now), ..driver.settings.clone() })
    };
    let running: Running = Box::pin(async move {
        let job = match &job {
            Job::Apply(changes) => transaction::Job::Make(Kind::Transaction, changes),
            Job::Recover => transaction::Job::Undo { kind: None, force: false },
            Job::Force => transaction::Job::Undo { kind: None, force: true },
            Job::Forget => transaction::Job::Forget,
            Job::Promote(changes) => transaction::Job::Make(Kind::Promotion, changes),
            Job::Demote => transaction::Job::Undo { kind: Some(Kind::Promotion), force: false },
        };
        drive(&server, settings, job).await
    });
    world.borrow_mut().drivers[driver].running = Some(running);
}

/// Lets a driver run on until it waits again.
fn wake(world: &Shared, driver: usize) {
    let Some(mut running) = world.borrow_mut().drivers[driver].running.take() else { return };
    let poll = running.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    let mut world = world.borrow_mut();
    if let Poll::Ready(outcome) = poll {
        world.e.note("driver", || format!("{driver} ends: {outcome}"));
        world.e.count(outcome.as_str());
        world.drivers[driver].outcome = Some(outcome);
    } else if world.drivers[driver].requests > MOST_REQUESTS {
        let what = format!("T10 no end: driver {driver}");
        world.e.judge.violations.push(what);
    } else {
        world.drivers[driver].running = Some(running);
    }
}
