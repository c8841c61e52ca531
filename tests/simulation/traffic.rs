//! The EndpointSlice of a leader's Service, and what an elector writes into it, as in `elector/endpoint_slice.rs`.
//!
//! Owns the slices, the requests for them, and what must hold of each write (law 19). No lock, lease or deadline depends on it.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tenure::{
    election::{
        publication::{Endpoints, PAUSE, Publisher, SliceAction, TOKEN},
        turn::Arrived,
    },
    link::{InitialState, Term, ToElector, ToInit},
    request::Answer,
    slot::Slot,
    telemetry::status::{Fact, Status},
    time::Instant,
};

use crate::{
    clock::{Ns, nanos},
    container::Container,
    engine::{Child, Engine, Event},
    world::World,
};

/// An elector's part in it.
#[derive(Clone)]
pub struct Traffic {
    status: Status,
    publisher: Publisher,
    /// A request is under way.
    asks: bool,
    /// When it wakes by itself.
    next: Ns,
    /// The token of the slice that it has read last.
    read: Option<u64>,
    /// The term whose withdrawal was reported.
    withdrawn: Option<Term>,
    /// The leader runs, is ready, and is to stop, by what the elector has heard and said.
    runs: bool,
    ready: bool,
    ends: bool,
}

/// A request for a slice, by its elector; none: a read.
#[derive(Debug)]
pub struct SliceFlight {
    from: Child,
    slot: Slot,
    slice: Option<Value>,
}

/// The slices, as the server stores them.
#[derive(Debug, Default)]
pub struct Slices(BTreeMap<Slot, Value>);

impl Traffic {
    /// The traffic of a new elector, if there is a Service.
    pub fn start(initial: &InitialState) -> Option<Box<Self>> {
        let config = &initial.config;
        config.service.endpoint_slice.as_ref()?;
        let of = [("IPv4".to_owned(), json!({ "addresses": [initial.identity] }))].into_iter().collect();
        let resume = initial.resume.as_ref();
        Some(Box::new(Self {
            status: Status::new(initial, Instant::BOOT),
            publisher: Publisher::new(Endpoints { of, ports: Vec::new() }, config.timing()),
            asks: false,
            next: Ns::MAX,
            read: None,
            withdrawn: None,
            runs: resume.is_some_and(|resume| resume.told && resume.main.is_some()),
            ready: config.workload.readiness.handler().is_none(),
            ends: resume.is_some_and(|resume| resume.stopping.is_some()),
        }))
    }

    /// The same in a memory that is restored.
    pub fn restored(&self) -> Box<Self> {
        Box::new(Self { asks: false, ..self.clone() })
    }

    /// A message of init; true if the slice is to change.
    pub fn told(&mut self, message: &ToElector) -> bool {
        let before = self.status.wanted();
        self.status.apply(&Fact::Told(message.clone()), Instant::BOOT);
        match message {
            ToElector::Health { unready, .. } => self.ready = unready.is_none(),
            ToElector::Started { .. } => self.runs = true,
            ToElector::Restarting { .. } => self.runs = false,
            ToElector::Stopping { .. } => self.ends = true,
            ToElector::InitialState(_)
            | ToElector::Acknowledged { .. }
            | ToElector::Stopped { .. }
            | ToElector::Unproved { .. }
            | ToElector::Shutdown
            | ToElector::Heartbeat
            | ToElector::Hooked { .. }
            | ToElector::Probe { .. }
            | ToElector::Warn(_) => {}
        }
        before != self.status.wanted()
    }

    /// A message to init; true if the slice is to change.
    pub fn telling(&mut self, message: &ToInit) -> bool {
        let before = self.status.wanted();
        self.status.apply(&Fact::Telling(message.clone()), Instant::BOOT);
        if matches!(message, ToInit::Lead { .. }) {
            (self.runs, self.ends) = (false, false);
        }
        self.ends |= matches!(message, ToInit::StepDown { .. });
        before != self.status.wanted()
    }

    /// Why this write, sent now, is wrong.
    fn wrong(&self, slice: &Value, until: Instant, now: Instant) -> Option<&'static str> {
        let lacks = |name: &str| slice["metadata"][name].as_str().is_none_or(str::is_empty);
        let is_empty = slice["endpoints"].as_array().is_none_or(Vec::is_empty);
        let wrong = [
            (lacks("uid") || lacks("resourceVersion"), "without uid or resourceVersion"),
            (now >= until, "from S - T on"),
            (!is_empty && self.ends, "with an address although a stop has begun"),
            (!(is_empty || self.runs && self.ready), "with an address before it is ready"),
        ];
        wrong.into_iter().find(|(is_wrong, _)| *is_wrong).map(|(_, wrong)| wrong)
    }
}

fn token(slice: &Value) -> Option<u64> {
    slice["metadata"]["annotations"][TOKEN].as_str()?.parse().ok()
}

impl Slices {
    fn carry_out(&mut self, slot: Slot, slice: Option<Value>, e: &mut Engine) -> Answer {
        let new = || json!({ "metadata": { "uid": "slice", "resourceVersion": "1" }, "addressType": "IPv4" });
        let stored = self.0.entry(slot).or_insert_with(new);
        let Some(mut slice) = slice else { return Answer::Object(stored.clone().into()) };
        let version = |slice: &Value| slice["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse::<u64>().ok());
        if version(&slice) != version(stored) {
            return Answer::Conflict;
        }
        let wrong = || format!("token {:?} replaces {:?} in a slice", token(&slice), token(stored));
        e.judge.judges("a token in a slice rises", token(&slice) < token(stored), wrong);
        slice["metadata"]["resourceVersion"] = (version(stored).unwrap_or_default() + 1).to_string().into();
        stored.clone_from(&slice);
        Answer::Object(slice.into())
    }
}

impl Container {
    /// The elector looks after its slice; returns the request that it sends.
    fn publishes(&mut self, pid: i32, e: &mut Engine) -> Option<SliceFlight> {
        let (clock, who, wait_limit) = (self.clock(), self.who, self.node.config.lease.attempt_timeout);
        let now = clock.boot(e.now);
        let elector = self.runner(pid)?;
        let (from, until) = (elector.child, elector.soft.before(wait_limit));
        if elector.stands_until() > e.now {
            e.at(elector.stands_until(), Event::Publishes(from));
            return None;
        }
        let traffic = elector.traffic.as_mut().filter(|traffic| !traffic.asks)?;
        let wanted = traffic.status.wanted()?;
        let step = traffic.publisher.step(&wanted, now);
        if traffic.read.take().is_some_and(|read| wanted.token.parse().is_ok_and(|own| read < own)) && now < wanted.until {
            let waits = matches!(step, SliceAction::Wait(_));
            e.judge.judges("an earlier term's slice is taken over", waits, || format!("{who} leaves an earlier term's slice"));
        }
        let slice = match step {
            SliceAction::Get => None,
            SliceAction::Replace(slice) => Some(slice),
            SliceAction::Wait(at) => {
                let next = clock.real(at);
                if at != Instant::NEVER && std::mem::replace(&mut traffic.next, next) != next {
                    e.at(next, Event::Publishes(from));
                }
                let over = Some(wanted.term).filter(|_| wanted.ends && at.since(now) > PAUSE);
                if let Some(term) = over.filter(|_| std::mem::replace(&mut traffic.withdrawn, over) != over) {
                    elector.inbox.push_back(Arrived::ForInit(ToInit::Withdrawn { term }));
                    elector.wake(0, e);
                }
                return None;
            }
        };
        traffic.asks = true;
        if let Some(slice) = &slice {
            let wrong = traffic.wrong(slice, until, now);
            e.judge.judges("a write of a slice", wrong.is_some(), || format!("{who} writes its slice {wrong:?}"));
        }
        Some(SliceFlight { from, slot: wanted.slot, slice })
    }

    /// The answer reaches the elector.
    pub fn slice_answered(&mut self, pid: i32, answer: Answer, e: &mut Engine) {
        let now = self.clock().boot(e.now);
        let Some(elector) = self.runner(pid) else { return };
        let Some(traffic) = &mut elector.traffic else { return };
        traffic.asks = false;
        traffic.read = if let Answer::Object(slice) = &answer { token(slice) } else { None };
        traffic.publisher.answered(answer, now);
        e.after(0, Event::Publishes(elector.child));
    }
}

fn lost(words: &str) -> Answer {
    Answer::Unknown { message: words.into(), retry_after: None }
}

impl World {
    /// An elector looks after its slice.
    pub fn publishes(&mut self, child: Child) {
        let replica = &mut self.replicas[child.who.replica];
        let running = |container: &&mut Container| container.who == child.who && !container.over;
        let Some(container) = replica.container.as_mut().filter(running) else { return };
        let Some(flight) = container.publishes(child.pid, &mut self.e) else { return };
        match replica.road.up(&mut self.e) {
            Some(at) => self.e.at(at, Event::SliceArrives(Box::new(flight))),
            None => self.slice_times_out(child),
        }
    }

    fn slice_times_out(&mut self, child: Child) {
        let span = nanos(self.replicas[child.who.replica].node.config.lease.attempt_timeout);
        self.e.after(span, Event::SliceAnswered(child, Box::new(lost("timed out"))));
    }

    /// A request for a slice reaches the server.
    pub fn slice_arrives(&mut self, SliceFlight { from, slot, slice }: SliceFlight) {
        let road = self.replicas[from.who.replica].road.clone();
        let answer = match (slice, road.moody(&mut self.e)) {
            (None, Some(_)) => Answer::Object(json!({ "metadata": { "resourceVersion": "1" } }).into()),
            (Some(_), Some((_, false))) => lost("503"),
            (slice, Some((_, true)) | None) => self.slices.carry_out(slot, slice, &mut self.e),
        };
        match road.down(&mut self.e) {
            Some(at) => self.e.at(at, Event::SliceAnswered(from, Box::new(answer))),
            None => self.slice_times_out(from),
        }
    }
}
