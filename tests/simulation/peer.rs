//! A client-go replica beside those of tenure: its node, its network, and a workload that ends with it.

use tenure::{election::RequestId, request::Answer, slot::Slot, time::Instant};
use tenure_world::Observer;

use crate::{
    alarm::Alarm,
    client_go::{ClientGo, Deed, Times},
    clock::{Clock, MS, Ns, S},
    engine::{Child, Engine, Event, Who},
    judge::Uncovered,
    network::{Flight, Road},
    world::World,
};

/// The peer's habits, which the seed determines.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    pub times: Times,
    pub clock: Clock,
    /// How long it leads at most before it crashes.
    pub lasts: Ns,
    /// Nothing of this world makes it break the law.
    pub lawful: bool,
}

/// Its number among the replicas.
pub const PEER: usize = 100;

pub struct Peer {
    pub who: Who,
    pub road: Road,
    habits: Habits,
    machine: ClientGo,
    alarm: Alarm,
    /// When it crashes.
    crash: Ns,
}

impl Peer {
    /// Returns a peer that starts now, as the replica with this number.
    pub fn start(who: Who, road: Road, habits: Habits, e: &Engine) -> Self {
        let machine = ClientGo::start(format!("peer_{who}"), habits.times, habits.clock.boot(e.now));
        Self { who, road, habits, machine, alarm: Alarm::off(), crash: Ns::MAX }
    }

    /// Schedules its wake-up for when it has something to do.
    pub fn wake(&mut self, e: &mut Engine) {
        let due = self.habits.clock.real(self.machine.timeout()).min(self.crash);
        if let Some(at) = self.alarm.set(due.max(e.now)) {
            e.at(at, Event::Peer);
        }
    }

    fn child(&self) -> Child {
        Child { who: self.who, pid: 1 }
    }

    /// Makes the peer crash by then, if it leads by then.
    pub fn crashes_by(&mut self, at: Ns, e: &mut Engine) {
        if self.crash != Ns::MAX {
            self.crash = self.crash.min(at);
            self.wake(e);
        }
    }
}

impl World {
    /// The peer may have something to do.
    pub fn turn_peer(&mut self) {
        let Some(peer) = &mut self.peer else { return };
        match peer.alarm.comes(self.e.now) {
            Ok(true) => {}
            Ok(false) => return,
            Err(later) => return self.e.at(later, Event::Peer),
        }
        if peer.crash > self.e.now {
            let deed = peer.machine.step(peer.habits.clock.now(self.e.now));
            return self.carry_out_peer(deed);
        }
        self.carry_out_peer(Some(Deed::Ends));
        self.carry_out_peer(Some(Deed::Exits));
    }

    /// The peer's request is answered.
    pub fn answered_peer(&mut self, to: Child, id: RequestId, answer: Answer) {
        let Some(peer) = self.peer.as_mut().filter(|peer| peer.who == to.who) else { return };
        let deed = peer.machine.answered(id, answer, peer.habits.clock.now(self.e.now));
        self.carry_out_peer(deed);
    }

    /// The peer is cut off, for some time or for about as long as its hold lasts.
    pub fn cut_peer(&mut self, span: Ns) {
        if let Some(peer) = &mut self.peer {
            let hold = peer.habits.times.lease * S;
            let span = if self.e.rng.bool() { span } else { self.e.between(hold / 2, hold * 3 / 2) };
            (peer.road.up_cut, peer.road.down_cut) = (self.e.now + span, self.e.now + span);
            self.e.note(peer.who, || format!("is cut off for {} ms", span / MS));
        }
    }

    fn carry_out_peer(&mut self, deed: Option<Deed>) {
        let Some(peer) = &mut self.peer else { return };
        match deed {
            None => {}
            Some(Deed::Asks(id, request)) => {
                let identity = format!("peer_{}", peer.who).into();
                let flight =
                    Box::new(Flight { from: peer.child(), identity, sent: self.e.now, slot: Slot(0), id, request, number: None });
                if let Some(at) = peer.road.up(&mut self.e) {
                    self.e.at(at, Event::Arrive(flight));
                }
            }
            Some(Deed::Leads(token)) => {
                self.e.note(peer.who, || format!("client-go RUNS under token {token}"));
                peer.crash = self.e.now + self.e.spread(10 * MS, peer.habits.lasts);
                if !peer.habits.lawful {
                    self.e.judge.injects(Uncovered::ClientGo, peer.who, Ns::MAX);
                }
                self.e.judge.runs(peer.child(), token.parse().unwrap_or_default(), true, self.e.now);
            }
            Some(Deed::Ends) => {
                self.e.note(peer.who, || "client-go ends".into());
                self.e.judge.gone(peer.child());
                peer.crash = Ns::MAX;
            }
            Some(Deed::Exits) => {
                let who = Who { life: peer.who.life + 1, ..peer.who };
                let road = peer.road.clone();
                *peer = Peer {
                    alarm: std::mem::replace(&mut peer.alarm, Alarm::off()),
                    ..Peer::start(who, road, peer.habits, &self.e)
                };
            }
        }
        peer.wake(&mut self.e);
    }
}

impl Habits {
    /// Habits of a peer whose clock error is at most this many millionths.
    pub fn random(error: u32, epoch: i64, rng: &mut fastrand::Rng) -> Self {
        let lease = rng.u64(2..12);
        let share = |percent: u64| Instant::from_nanos(lease * S / 100 * percent).since(Instant::BOOT);
        let times = Times { lease, renew_deadline: share(60), retry_period: share(15), timeout: share(25), releases: rng.bool() };
        let clock = Clock {
            rate: rng.u32(1_000_000 - error..=1_000_000 + error),
            kernel: 1_000_000,
            boot: rng.u64(S..1_000_000 * S),
            wall: epoch,
        };
        Self { times, clock, lasts: rng.u64(S..60 * S), lawful: false }
    }
}
