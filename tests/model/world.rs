//! The whole state: replicas, their connections to the register, messages in flight, and what may happen next.

use std::{
    collections::VecDeque,
    hash::{Hash, Hasher},
    sync::Arc,
};

use serde_json::Value;
use tenure::{
    election::{RequestId, obituary::Input},
    request::{Answer, Watched},
    slot::Slot,
};
use tenure_world::{Observer, Who, Wrong, lawful::Lawful, reading::State};

use crate::{
    clock::{Clock, Ns},
    container::Container,
    digest::{Aside, Sealed, digest},
    elector::ElectorProcess,
    family::Setup,
    judge::Judge,
    peer::Peer,
    register::{Leases, Request, Start, is_shown, shown},
    witness::{self, WitnessProcess},
};

/// A state of the model.
#[derive(Clone, Debug)]
pub struct World {
    /// Real time.
    pub now: Ns,
    pub register: Leases,
    /// The Lease that was changed last, before that, if it was there.
    pub before: Option<Arc<Value>>,
    pub places: Vec<Place>,
    /// A client-go replica.
    pub peer: Option<Peer>,
    /// Requests and answers that are on their way.
    pub flights: Vec<Flight>,
    /// How many faults may still happen.
    pub left: u8,
    /// All faults are over.
    pub calm: bool,
    pub judge: Judge,
}

/// A replica.
#[derive(Clone, Debug, Hash)]
pub struct Place {
    pub container: Sealed<Container>,
    pub road: Road,
    pub witness: Option<Sealed<WitnessProcess>>,
}

/// The connection between a replica and the API server.
#[derive(Clone, Debug, Default, Hash)]
pub struct Road {
    pub cut: bool,
    pub stalled: bool,
    /// Watch events not yet delivered.
    events: VecDeque<Watched>,
}

/// A request, then its answer.
#[derive(Clone, Debug, Hash)]
pub struct Flight {
    pub from: Who,
    /// The elector's pid.
    pub pid: i32,
    pub id: RequestId,
    pub stage: Stage,
    /// The adversary chooses when it arrives.
    pub held: bool,
    /// For the law: the number of a request that may change the spec; the slot that an answer tells of, and its version then.
    pub law: Aside<(Option<usize>, (Slot, u64))>,
}

#[derive(Clone, Debug, Hash)]
pub enum Stage {
    Asked(Slot, Request),
    Answered(Answer),
}

impl Flight {
    pub const fn is_asked(&self) -> bool {
        matches!(self.stage, Stage::Asked(..))
    }
}

/// The actors of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor {
    /// Starts the container again.
    Runtime,
    Tree,
    Guard,
    Init,
    Elector,
    Witness,
}

impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { now, register, before, places, peer, flights, left, calm, judge } = self;
        state.write_u64(digest(&(now, register, before, places, peer, flights, left, calm, judge)));
    }
}

impl PartialEq for World {
    fn eq(&self, other: &Self) -> bool {
        digest(self) == digest(other)
    }
}

impl World {
    pub fn new(start: Start, setups: &[Setup], peer: Option<Clock>, left: u8, by_law: bool) -> Self {
        let slots = setups.first().map_or(1, Setup::slots);
        let begins = setups.iter().enumerate().filter(|(_, setup)| !setup.vacant);
        let places = begins.map(|(replica, setup)| Place {
            container: Sealed::new(Container::start(Who { replica, life: 1 }, setup)),
            road: Road::default(),
            witness: setup.witness.then(|| Sealed::new(WitnessProcess::start())),
        });
        let mut world = Self {
            now: 0,
            register: Leases::new(start, slots),
            before: None,
            places: places.collect(),
            peer: peer.map(|clock| Peer::start(setups.len(), clock)),
            flights: Vec::new(),
            left,
            calm: false,
            judge: Judge::of(slots, setups.iter().map(|setup| setup.config.lease.priority).collect()),
        };
        // What creationWait replaces is not in the law.
        if by_law && setups.iter().all(|setup| setup.config.lease.creation_wait.is_none()) {
            let leases = (0..slots).map(|slot| world.register.lease(Slot(slot)).cloned());
            world.judge.law = Aside(Some(Arc::new(Lawful::new(leases))));
            for (on, setup) in setups.iter().enumerate().take(world.places.len()) {
                let who = world.places[on].container.who;
                world.judge.lawful(|law| law.begins(who, &who.to_string(), &setup.config, setup.clock));
            }
        }
        world
    }

    /// The actors of this replica that have something to do now. The kernel's come first, in this order; init, the guard and the
    /// elector run concurrently.
    pub fn at_work(&self, on: usize, setups: &[Setup]) -> Vec<Actor> {
        let container = &self.places[on].container;
        let boot = setups[on].clock.boot(self.now);
        if container.over.is_some_and(|at| at <= self.now) {
            return vec![Actor::Runtime];
        }
        if container.tree.has_work(self.now, container.dawdles) {
            return vec![Actor::Tree];
        }
        let working = [
            (Actor::Guard, container.guard_has_work(self.now, boot)),
            (Actor::Init, container.init_has_work(boot)),
            (Actor::Elector, container.elector_has_work(self.now, boot)),
            (Actor::Witness, self.places[on].witness.as_ref().is_some_and(|witness| witness.has_work(self.now))),
        ];
        working.into_iter().filter(|(_, works)| *works).map(|(actor, _)| actor).collect()
    }

    /// Takes one step of an actor.
    pub fn act(&mut self, on: usize, actor: Actor, setups: &[Setup]) {
        match actor {
            Actor::Runtime => {
                // Its last process is gone.
                let who = self.places[on].container.who;
                self.judge.lawful(|law| law.dies(who));
                self.tell_witness(on, setups, |identity| Input::Died { identity });
                let (who, setup) = (Who { life: who.life + 1, ..who }, &setups[on]);
                let container = Container::start(who, setup);
                self.judge.lawful(|law| law.begins(who, &who.to_string(), &setup.config, setup.clock));
                self.places[on].container = Sealed::new(container);
                self.places[on].road.events.clear();
            }
            Actor::Tree => self.inside(on, setups, Container::step_tree),
            Actor::Guard => self.inside(on, setups, Container::step_guard),
            Actor::Init => self.inside(on, setups, Container::step_init),
            Actor::Elector => {
                let sent = self.inside(on, setups, Container::step_elector);
                let Some(elector) = &self.places[on].container.elector else { return };
                let (from, pid) = (self.places[on].container.who, elector.pid);
                let (now, begins) = (self.now, elector.watch_from.is_some());
                if let Some(witness) = self.places[on].witness.as_mut().filter(|witness| !witness.knows(from)) {
                    witness.change(|witness| witness.told(from, &setups[on], now));
                }
                if begins {
                    self.begin_watch(on, setups);
                }
                if let Some((id, slot, request, number)) = sent.filter(|_| !self.places[on].road.cut) {
                    let law = Aside((number, Default::default()));
                    self.flights.push(Flight { from, pid, id, stage: Stage::Asked(slot, request), held: false, law });
                }
            }
            Actor::Witness => {
                let (now, from) = (self.now, self.places[on].container.who);
                let Some(witness) = &mut self.places[on].witness else { return };
                let sent = witness.change(|witness| witness.step(&setups[on], now));
                if let Some((id, request)) = sent.filter(|_| !self.places[on].road.cut) {
                    // In the name of the one before, who is dead.
                    let from = Who { life: from.life - 1, ..from };
                    let number = self.judge.lawful(|law| law.asks(from, Slot::default(), &request, true));
                    let law = Aside((number, Default::default()));
                    let stage = Stage::Asked(Slot::default(), request);
                    self.flights.push(Flight { from, pid: witness::PID, id, stage, held: false, law });
                }
            }
        }
    }

    /// The witness of this replica hears something of the container that it was told of, if that is still the one.
    pub fn tell_witness(&mut self, on: usize, setups: &[Setup], input: impl FnOnce(String) -> Input) {
        let (now, who) = (self.now, self.places[on].container.who);
        if let Some(witness) = self.places[on].witness.as_mut().filter(|witness| witness.knows(who)) {
            witness.change(|witness| witness.input(input(who.to_string()), &setups[on], now));
        }
    }

    /// A message arrives: a request at the register, an answer at its elector.
    pub fn arrive(&mut self, index: usize, setups: &[Setup]) {
        let Flight { from, pid, id, stage, law: Aside((number, at)), .. } = self.flights.remove(index);
        match stage {
            Stage::Asked(slot, request) => {
                let answer = self.commit(from, slot, &request, number, setups);
                if !self.is_cut(from.replica) {
                    let law = Aside((None, (slot, self.judge.lawful(|law| law.version(slot)))));
                    self.flights.push(Flight { from, pid, id, stage: Stage::Answered(answer), held: false, law });
                }
            }
            Stage::Answered(answer) if pid == witness::PID => {
                let now = self.now;
                if let Some(witness) = &mut self.places[from.replica].witness {
                    witness.change(|witness| witness.input(Input::Answered { id, answer }, &setups[from.replica], now));
                }
            }
            Stage::Answered(answer) => match self.places.get(from.replica) {
                Some(place) if place.container.who == from => {
                    self.inside(from.replica, setups, |container, _| container.answered(pid, id, answer, at));
                }
                None if self.peer.as_ref().is_some_and(|peer| peer.who == from) => {
                    self.step_peer(|peer, now, judge| peer.answered(id, answer, now, judge));
                }
                Some(_) | None => {}
            },
        }
    }

    /// The client-go replica takes a step.
    pub fn step_peer(&mut self, does: impl FnOnce(&mut Peer, Ns, &mut Judge) -> Option<(RequestId, Request)>) {
        let Some(peer) = &mut self.peer else { return };
        let sent = does(peer, self.now, &mut self.judge).filter(|_| !peer.cut);
        let from = peer.who;
        self.flights.extend(sent.map(|(id, request)| Flight {
            from,
            pid: 0,
            id,
            stage: Stage::Asked(Slot::default(), request),
            held: false,
            law: Aside::default(),
        }));
    }

    fn is_cut(&self, on: usize) -> bool {
        self.places.get(on).map_or_else(|| self.peer.as_ref().is_some_and(|peer| peer.cut), |place| place.road.cut)
    }

    fn commit(&mut self, from: Who, slot: Slot, request: &Request, number: Option<usize>, setups: &[Setup]) -> Answer {
        let mut answer = None;
        self.judge.lawful(|law| law.arrives(number));
        let changed = self.change(setups, |register| answer = Some(register.carry_out(slot, request)));
        self.judge.lawful(|law| law.arrives(None));
        let cleared = |object: &Arc<Value>| matches!(State::of(object), State::Released | State::Free | State::Resting);
        if changed && self.register.lease(slot).is_none_or(cleared) {
            self.judge.released(from);
        }
        answer.unwrap_or(Answer::NotFound)
    }

    /// Passes a change of the Lease on to the watches; returns whether there was one.
    pub fn change(&mut self, setups: &[Setup], change: impl FnOnce(&mut Leases)) -> bool {
        let version = self.register.version();
        change(&mut self.register);
        let change = self.register.changes_since(version).into_iter().flatten().last().cloned();
        // The history is no part of the state.
        self.register.compact();
        let Some(change) = change else { return false };
        self.judge.changed(&change);
        for (on, setup) in setups.iter().enumerate().take(self.places.len()) {
            let event = shown(&change, setup.slots());
            let watches = self.places[on].container.elector.as_ref().is_some_and(|elector| elector.watches && !elector.is_dead);
            if let Some(event) = event.filter(|_| watches) {
                self.places[on].road.events.push_back(event);
                self.catch_up(on);
            }
        }
        self.before = change.before;
        true
    }

    /// Delivers the events that wait for this replica's watch, if any.
    pub fn catch_up(&mut self, on: usize) {
        let Place { container, road, .. } = &mut self.places[on];
        if road.cut || road.stalled || road.events.is_empty() {
            return;
        }
        let events = std::mem::take(&mut road.events);
        container.change(|container| {
            if let Some(elector) = container.elector.as_mut().filter(|elector| elector.watches && !elector.is_dead) {
                elector.inbox.extend(events.into_iter().map(tenure::election::Input::Watched));
            }
        });
    }

    /// The watch of this replica is told again what there was before, and what there is.
    pub fn rewind(&mut self, on: usize) {
        let versions = [self.before.as_ref(), self.register.lease(Slot::default())];
        self.places[on].road.events.extend(versions.into_iter().flatten().cloned().map(Watched::Changed));
        self.catch_up(on);
    }

    /// The memory of this replica is restored in the place that is vacant.
    pub fn copy(&mut self, on: usize, setups: &[Setup]) {
        let original = &self.places[on].container;
        let copy = Who { replica: self.places.len(), life: 1 };
        self.judge.copies(original.who, copy, self.now);
        let container = Sealed::new(original.restored(copy));
        self.places.push(Place { container, road: Road::default(), witness: None });
        debug_assert_eq!(self.places.len(), setups.len(), "a place is vacant");
    }

    fn begin_watch(&mut self, on: usize, setups: &[Setup]) {
        let from =
            self.inside(on, setups, |container, _| container.elector.as_mut().and_then(|elector| elector.watch_from.take()));
        let known = from.flatten().and_then(|version| version.parse().ok()).unwrap_or(0_u64);
        self.places[on].road.events.clear();
        let slots = setups[on].slots();
        for slot in (0..slots).map(Slot).filter(|_| known < self.register.version()) {
            let lease = self.register.lease(slot).filter(|lease| is_shown(lease, slots));
            self.places[on].road.events.extend(lease.cloned().map(Watched::Changed));
        }
        self.catch_up(on);
    }

    /// The next instant at which anything happens, or could if it were not stopped; nothing is left to do now. A held message may
    /// arrive when its sender is about to give it up, which is an instant of its own.
    pub fn next_instant(&self, setups: &[Setup]) -> Ns {
        let last_chance = |at: Ns| if self.flights.iter().any(|flight| flight.held) { at - 1 } else { at };
        let of = |(place, setup): (&Place, &Setup)| {
            let container = &place.container;
            let late = container.elector.as_ref().and_then(ElectorProcess::late).map(last_chance);
            let times =
                [container.over, container.tree.next_death(), container.init_timeout(setup), container.fuse_timeout(setup), late];
            let witness = place.witness.as_ref().and_then(|witness| witness.timeout());
            let times = times.into_iter().chain(container.elector_timeouts(setup)).chain([witness]);
            times.flatten().filter(|at| *at > self.now).min()
        };
        let peer = self.peer.as_ref().map(Peer::timeout);
        self.places.iter().zip(setups).filter_map(of).chain(peer).min().unwrap_or(Ns::MAX)
    }

    /// Time advances to `when`. What dies then is dead before anything else happens.
    pub fn pass(&mut self, when: Ns, setups: &[Setup]) {
        for (Place { container, .. }, setup) in self.places.iter().zip(setups) {
            let late = container.known_end(setup).is_some_and(|end| end < setup.clock.boot(self.now));
            if late && self.judge.is_leading(container.who) {
                self.judge.fail(Wrong::Late, format!("{} leads past the E that its init knows", container.who));
            }
        }
        for on in 0..self.places.len() {
            if self.places[on].container.strays(self.now) {
                self.inside(on, setups, Container::judge_strays);
            }
        }
        self.judge.passes(self.now);
        self.now = when;
        self.judge.passes(when);
        for on in 0..self.places.len() {
            if self.places[on].container.tree.next_death().is_some_and(|at| at <= when) {
                self.inside(on, setups, |container, around| container.tree.bury(around));
            }
            if self.places[on].container.fuse_timeout(&setups[on]).is_some_and(|at| at <= when) {
                self.inside(on, setups, Container::fire_fuse);
            }
        }
        self.judge.lawful(|law| law.comes(when));
    }
}
