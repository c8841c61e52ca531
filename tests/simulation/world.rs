//! The whole simulation: replicas, networks, the server, and the events that connect them.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::Duration,
};

use tenure::{
    election::{RequestId, writes::Sent},
    request::Answer,
    slot::Slot,
};
use tenure_world::{Due, reading::State};

use crate::{
    clock::{MS, Ns, S},
    container::Container,
    engine::{Child, Engine, Event, Who},
    lawful::Lawful,
    nemesis::{Fault, MOST_SLOTS},
    network::{Flight, Reply, Road},
    peer::{PEER, Peer},
    plan::{self, Control, Node, Plan},
    register::Request,
    server::{Admission, Server},
    shrink::Strike,
    sights::Sights,
    traffic::Slices,
    witness::WitnessProcess,
};

/// More events than ever occur within a second legitimately.
const CROWD: u32 = 50_000;

/// A replica: its node, its network, its container.
pub struct Replica {
    pub node: Node,
    pub road: Road,
    pub life: u32,
    pub container: Option<Container>,
}

pub struct World {
    pub e: Engine,
    pub server: Server,
    pub slices: Slices,
    pub replicas: Vec<Replica>,
    /// A client-go replica on the same Lease.
    pub peer: Option<Peer>,
    pub plan: Rc<Plan>,
    pub calm_since: Option<Ns>,
    /// A replica was restored beside itself.
    pub is_copied: bool,
    /// The witness of each replica that has one.
    pub witnesses: BTreeMap<usize, WitnessProcess>,
    /// The faults that took effect.
    pub strikes: Vec<Strike>,
    /// The state of the random generator at the start of each instant, if the story is told.
    pub states: Option<Rc<BTreeMap<Ns, u64>>>,
    /// Set in a world that repeats strikes: it draws by this salt and the time at an instant that has no such state.
    pub salt: Option<u64>,
}

impl World {
    /// The world of this seed, in which this may break a bound.
    pub fn new(seed: u64, told: bool, control: Option<Control>) -> Self {
        let mut e = Engine::new(seed, told);
        let nodes = plan::nodes(&mut e.rng, control);
        let plan = Rc::clone(&nodes[0].plan);
        e.note("plan", || format!("{plan:?}"));
        if plan.unseen {
            e.judge.sights = Some(Sights::default());
        }
        e.judge.is_pool = plan.slots > 1;
        e.judge.opts_out = nodes[0].config.lease.creation_wait == Some(Duration::ZERO);
        e.judge.interval = plan.interval();
        e.judge.is_task = plan.task.is_some();
        e.judge.is_scheduled = plan.task.as_ref().is_some_and(|task| task.trigger.schedule().is_some());
        e.judge.walls_differ = plan.faults.contains(&Fault::JumpWall);
        e.judge.wait_limit = nodes.iter().map(Node::unfit_delay).max().unwrap_or_default();
        e.judge.latest_byte = nodes.iter().map(|node| node.wake).max().unwrap_or_default();
        e.judge.longest = nodes.iter().map(Node::longest_wait).max().unwrap_or_default();
        for node in &nodes {
            let (timing, lease) = (node.config.timing(), &node.config.lease);
            e.note(&node.name, || {
                format!(
                    "{timing:?}, wait {:?}, {:?}, rate {}, w {} us, {:?}, {:?}",
                    lease.creation_wait,
                    lease.release,
                    node.clock.rate,
                    node.wake / 1_000,
                    node.config.workload.on_exit,
                    node.habits
                )
            });
        }
        let replica = |node: Node| Replica { road: Road::new(node.usual, plan.latest), node, life: 0, container: None };
        let replicas: Vec<_> = nodes.into_iter().map(replica).collect();
        for replica in 0..replicas.len() {
            let at = e.spread(1, 5 * S);
            e.at(at, Event::Boot(replica));
        }
        let witnessed = replicas.iter().enumerate().filter(|(_, replica)| replica.node.witnessed);
        let witnesses: BTreeMap<_, _> = witnessed.map(|(index, _)| (index, WitnessProcess::default())).collect();
        witnesses.keys().for_each(|replica| e.at(0, Event::WitnessUp(*replica)));
        e.at(plan.storm, Event::Calm);
        e.after(0, Event::Strike);
        let who = Who { replica: PEER, life: 1 };
        let peer = plan.peer.map(|habits| {
            let mut peer = Peer::start(who, Road::new(MS, plan.latest), habits, &e);
            peer.wake(&mut e);
            peer
        });
        let server = Server::new(plan.start, plan.slots);
        // What creationWait replaces is not in the law, and a control breaks it.
        if control.is_none() && replicas[0].node.config.lease.creation_wait.is_none() {
            // A rollout may add slots.
            let slots = if plan.slots > 1 { MOST_SLOTS } else { 1 };
            e.judge.law = Some(Box::new(Lawful::new((0..slots).map(|slot| server.lease_of(Slot(slot))))));
        }
        let (slices, strikes, states) = (Slices::default(), Vec::new(), told.then(Rc::default));
        let (calm_since, is_copied, salt) = (None, false, None);
        Self { e, server, slices, replicas, peer, plan, calm_since, is_copied, witnesses, strikes, states, salt }
    }

    /// Runs it to the end, or until then.
    pub fn run(&mut self, until: Ns) {
        // A task that lost a run to the last fault has the next ones.
        let fires = self.e.judge.is_scheduled.then_some(180 * S);
        let bound = self.plan.longest * 4 + 60 * S + fires.unwrap_or_default();
        // After the last fault, delayed messages may still arrive, and be repeated.
        let aftermath = self.plan.latest * 2 + S;
        let (mut before, mut events, mut led) = (self.e.now, 0, BTreeSet::new());
        while let Some(event) = self.e.next_until(until) {
            let now = self.e.now;
            events = if now / S == before / S { events + 1 } else { 0 };
            if events > CROWD {
                return self.e.judge.fail("somebody spins");
            }
            match (&mut self.states, self.salt) {
                (Some(states), None) => _ = Rc::make_mut(states).entry(now).or_insert_with(|| self.e.rng.get_seed()),
                (Some(states), Some(salt)) if now > before => {
                    self.e.rng.seed(states.get(&now).copied().unwrap_or_else(|| now ^ salt.rotate_right(16)));
                }
                _ => {}
            }
            before = now;
            self.e.judge.lawful(|law| law.passes(now));
            self.happens(event);
            if self.e.judge.verdict().is_some() {
                return;
            }
            let Some(calm) = self.calm_since else { continue };
            if self.e.now >= calm + aftermath {
                led.extend(self.e.judge.led());
                if led.len() >= self.wanted() {
                    return self.e.judge.settles(self.e.now);
                }
            }
            // There are workloads whose every term fails. Where others lead, that is no fault of their replicas.
            let patience = calm + 3_600 * S;
            if self.e.now > patience && !led.is_empty() && led.len() + self.e.judge.failing(patience) >= self.wanted() {
                return self.e.judge.settles(self.e.now);
            }
            if self.e.now > self.e.judge.backs_off().clamp(calm, patience) + bound {
                let (wanted, after) = (self.wanted(), bound / S);
                return self.e.judge.fail(format!("only {led:?} of {wanted} slots are led {after} s after the last fault"));
            }
        }
    }

    /// So many slots must be led in the end: a replica holds one, and knows no more than its own configuration has.
    fn wanted(&self) -> usize {
        let able = self.replicas.len() - self.e.judge.hanging();
        let slots = self.replicas.iter().map(|replica| usize::from(replica.node.config.lease.slots));
        slots.min().unwrap_or(1).min(able)
    }

    /// The container of `who`, if it is still that one and init runs in it.
    fn container(&mut self, who: Who) -> Option<(&mut Container, &mut Engine)> {
        let container = self.replicas.get_mut(who.replica)?.container.as_mut().filter(|container| container.who == who)?;
        Some((container, &mut self.e))
    }

    /// Runs `does` on the container of a replica, if it has one.
    pub fn living(&mut self, replica: usize, does: impl FnOnce(&mut Container, &mut Engine)) -> bool {
        let container = self.replicas[replica].container.as_mut().filter(|container| !container.over);
        container.map(|container| does(container, &mut self.e)).is_some()
    }

    /// Adds a replica, whose container runs already.
    pub fn add(&mut self, container: Container) {
        let node = container.node.clone();
        let road = Road::new(node.usual, self.plan.latest);
        self.replicas.push(Replica { road, node, life: container.who.life, container: Some(container) });
    }

    pub fn identities(&self) -> Vec<String> {
        let containers = self.replicas.iter().filter_map(|replica| replica.container.as_ref());
        containers.map(|container| container.identity.to_string()).collect()
    }

    fn on(&mut self, who: Who, does: impl FnOnce(&mut Container, &mut Engine)) {
        if let Some((container, e)) = self.container(who) {
            does(container, e);
        }
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Boot(replica) => self.boot(replica),
            Event::Init(who) => self.on(who, Container::turn),
            Event::ContinueInit(who) => self.on(who, Container::continues),
            Event::ElectorUp(child) => {
                self.on(child.who, |container, e| container.elector_up(child.pid, e));
                let span = self.e.latency(MS);
                self.e.after(span, Event::Connects(child.who));
            }
            Event::Elector(child) => self.on(child.who, |container, e| container.turn_elector(child.pid, e)),
            Event::Guard(child) => self.on(child.who, |container, e| container.guard(child.pid, e)),
            Event::Fuse(who) => self.on(who, Container::fire_fuse),
            Event::ContinueElector(child) => self.on(child.who, |container, e| {
                let (clock, latency) = (container.clock(), e.latency(container.node.wake));
                if let Some(elector) = container.elector.as_mut().filter(|elector| elector.child == child) {
                    elector.continues(clock, latency, e);
                }
            }),
            Event::ElectorGone(child) => {
                self.on(child.who, |container, e| container.elector_gone(child.pid, e));
                self.disconnects(child.who);
            }
            Event::Disconnects(who) => self.disconnects(who),
            Event::Send(child, id) => self.send(child, id),
            Event::Late(child, id) => self.on(child.who, |container, e| {
                if let Some(elector) = container.elector.as_mut().filter(|elector| elector.child == child) {
                    elector.late(id, e);
                }
            }),
            Event::Arrive(flight) => self.arrive(*flight),
            Event::Reply(reply) => {
                let Reply { to, id, answer, at } = *reply;
                if to.who.replica == PEER {
                    return self.answered_peer(to, id, answer);
                }
                if to.pid < 0 {
                    return self.answered_witness(to, id, answer);
                }
                self.on(to.who, |container, e| {
                    let latency = e.latency(container.node.wake);
                    if let Some(elector) = container.elector.as_mut().filter(|elector| elector.child == to) {
                        elector.answered(id, answer, at, latency, e);
                    }
                });
            }
            Event::WatchBegins(child, number, version) => {
                let replica = &self.replicas[child.who.replica];
                // A watch that its client has given up is not started.
                if replica.container.as_ref().is_some_and(|container| container.hears(child)) {
                    self.server.watch(child, number, version.as_deref(), &replica.road, self.plan.watch, &mut self.e);
                }
            }
            Event::Watched(child, number, watched) => {
                self.on(child.who, |container, e| container.watched(child.pid, number, *watched, e));
            }
            Event::Due(Due::Exec(child)) => self.on(child.who, |container, e| container.exec(child.pid, e)),
            Event::Due(Due::Obeys(child)) => self.on(child.who, |container, e| container.obeys(child.pid, e)),
            Event::Due(Due::Ends(child)) => self.on(child.who, |container, e| container.ends(child.pid, e)),
            Event::Says(child) => self.on(child.who, |container, e| container.says(child.pid, e)),
            Event::Strays(child, within) => self.on(child.who, |container, e| container.strays(child.pid, within, e)),
            Event::Publishes(child) => self.publishes(child),
            Event::SliceArrives(flight) => self.slice_arrives(*flight),
            Event::SliceAnswered(child, answer) => {
                self.on(child.who, |container, e| container.slice_answered(child.pid, *answer, e));
            }
            Event::Connects(who) => self.connects(who),
            Event::Died(who) => self.died(who),
            Event::WitnessUp(replica) => self.witness_up(replica),
            Event::SendObituary(flight) => self.send_obituary(flight),
            Event::WitnessLate(child, id) => {
                self.answered_witness(child, id, Answer::Unknown { message: "timed out".into(), retry_after: None });
            }
            Event::Peer => self.turn_peer(),
            Event::Command(command) => self.command(*command),
            Event::Strike | Event::Aimed(..) if self.calm_since.is_some() || self.salt.is_some() => {}
            Event::Strike => self.strike_somewhere(),
            Event::Aimed(who, fault) => self.strike(who, fault),
            Event::Again(strike) if self.e.now < strike.at => self.e.at(strike.at, Event::Again(strike)),
            // The copy that it struck may be missing.
            Event::Again(Strike { who, .. }) if who.replica >= self.replicas.len() && who.replica < PEER => {}
            Event::Again(Strike { who, fault, state, .. }) => {
                self.e.rng.seed(state);
                self.strike(who, fault);
            }
            Event::Settles => self.e.judge.settles(self.e.now),
            Event::Calm => self.calm(),
        }
    }

    fn boot(&mut self, index: usize) {
        let replica = &mut self.replicas[index];
        if let Some(container) = &replica.container {
            self.server.forget(container.who);
        }
        replica.life += 1;
        let who = Who { replica: index, life: replica.life };
        replica.container = Some(Container::start(who, replica.node.clone(), &mut self.e));
        self.e.judge.trouble(index, replica.road.trouble());
    }

    fn send(&mut self, child: Child, id: RequestId) {
        let replica = &mut self.replicas[child.who.replica];
        let Some(container) = replica.container.as_mut().filter(|container| container.who == child.who && !container.over) else {
            return;
        };
        let wait_limit = container.node.config.lease.attempt_timeout;
        let late = self.e.now + container.clock().timer(wait_limit);
        let Some(elector) = container.elector.as_mut().filter(|elector| elector.child == child) else { return };
        let Some((slot, request, number)) = elector.take_unsent(id) else { return };
        if is_release(&request) {
            let wrong = || format!("{} gives the Lease back before init knows", child.who);
            self.e.judge.judges("init knows of a release", container.void != elector.releasing, wrong);
        }
        self.e.at(late, Event::Late(child, id));
        let identity = Rc::clone(&container.identity);
        let flight = Box::new(Flight { from: child, identity, sent: self.e.now, slot, id, request, number });
        if let Some(first) = replica.road.up(&mut self.e) {
            if let Some(again) = replica.road.again(first, &mut self.e) {
                self.e.at(again, Event::Arrive(flight.clone()));
            }
            self.e.at(first, Event::Arrive(flight));
        }
    }

    fn road(&self, replica: usize) -> &Road {
        match (self.replicas.get(replica), &self.peer) {
            (Some(Replica { road, .. }), _) | (None, Some(Peer { road, .. })) => road,
            (None, None) => &self.replicas[0].road,
        }
    }

    fn arrive(&mut self, flight: Flight) {
        let Flight { from, identity, sent, slot, id, request, number } = flight;
        let moody = self.road(from.who.replica).clone().moody(&mut self.e);
        let answer = match moody {
            Some((answer, false)) => answer,
            Some((answer, true)) => {
                self.commit(from.who, &identity, sent, slot, &request, number);
                answer
            }
            None => self.commit(from.who, &identity, sent, slot, &request, number),
        };
        let told = (slot, self.e.judge.law.as_ref().map_or(0, |law| law.version(slot)));
        self.e.note(from.who, || {
            if let Answer::Object(object) = &answer {
                format!("is answered with {}", object["metadata"]["resourceVersion"])
            } else {
                format!("is answered with {answer:?}")
            }
        });
        let mute = self.e.now < self.road(from.who.replica).mute && !matches!(request, Request::Get | Request::List);
        if let Some(at) = self.road(from.who.replica).clone().down(&mut self.e).filter(|_| !mute) {
            self.e.at(at, Event::Reply(Box::new(Reply { to: from, id, answer, at: told })));
        }
    }

    fn commit(&mut self, who: Who, identity: &str, sent: Ns, slot: Slot, request: &Request, number: Option<usize>) -> Answer {
        let before = self.server.version();
        self.e.judge.lawful(|law| law.arrives(number));
        self.e.judge.sent = sent;
        let (until, admission) = self.road(who.replica).admission;
        let admission = if self.e.now < until { admission } else { Admission::Sound };
        let answer = self.server.carry_out(slot, who, identity, request, admission, &mut self.e);
        self.e.judge.lawful(|law| law.arrives(None));
        if self.server.version() > before {
            self.e.judge.wrote(self.server.version(), sent);
            self.publish();
        }
        answer
    }

    /// The watches hear of new changes.
    pub fn publish(&mut self) {
        for child in self.server.watchers() {
            let road = &self.replicas[child.who.replica].road;
            self.server.feed(child, road, self.plan.watch, &mut self.e);
        }
    }
}

/// Returns whether the request empties the Lease, lets it rest, or deletes it.
fn is_release(request: &Request) -> bool {
    match request {
        Request::Write(Sent::Replace(object)) => object["spec"]["holderIdentity"] == "" || State::of(object) == State::Resting,
        Request::Write(Sent::Delete { .. }) => true,
        Request::Get | Request::List | Request::Write(Sent::Create(_)) => false,
    }
}
