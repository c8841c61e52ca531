//! Measures handovers: the leader gets SIGTERM, again and again.

use std::time::Duration;

use nix::sys::signal::Signal;
use support::{Behaviour, Server, Stage, audit, server::scratch};
use tenure::{clock, time::Instant};

use crate::{
    contestant::{BOTH, Contestant, DEFAULT, Pace, Programs, Replica},
    floor,
    table::{Gap, gap, quantile, row, title},
};

/// Three replicas. A replica that ends is replaced.
pub struct Trio {
    pub stage: Stage,
    pub replicas: Vec<Replica>,
    who: Contestant,
    pace: Pace,
    behaviour: Behaviour,
    faults: bool,
    made: usize,
    pub starts: usize,
}

impl Trio {
    pub async fn start(
        server: &Server,
        programs: &Programs,
        who: Contestant,
        pace: Pace,
        behaviour: Behaviour,
        faults: bool,
    ) -> Self {
        let stage = Stage::set(server, &scratch("figures")).await;
        let mut trio = Self { stage, replicas: Vec::new(), who, pace, behaviour, faults, made: 0, starts: 0 };
        for _ in 0..3 {
            trio.add(programs).await;
        }
        trio
    }

    pub async fn add(&mut self, programs: &Programs) {
        self.made += 1;
        let name = format!("r{}", self.made);
        let replica = Replica::start(programs, self.who, &self.stage, &name, self.pace, &self.behaviour, self.faults);
        self.replicas.push(replica.await);
    }

    /// The replica whose workload starts next.
    pub async fn next_leader(&mut self) -> String {
        let patience = self.pace.duration * 4 + Duration::from_secs(30);
        let event =
            self.stage.witness.nth_within(patience, self.starts, "the next workload starts", |event| event.what == "start").await;
        self.starts += 1;
        event.replica
    }

    pub fn replica(&mut self, name: &str) -> &mut Replica {
        self.replicas.iter_mut().find(|replica| replica.name == name).expect("a replica of ours")
    }

    /// Removes a replica that has ended or will end.
    pub fn take(&mut self, name: &str) -> Replica {
        let index = self.replicas.iter().position(|replica| replica.name == name).expect("a replica of ours");
        self.replicas.swap_remove(index)
    }

    /// From the last sign of life of `old` to the first of `new`.
    pub fn gap(&self, old: &str, new: &str) -> Gap {
        let (last, first) = self.ends(old, new);
        gap(last, first)
    }

    fn ends(&self, old: &str, new: &str) -> (Instant, Instant) {
        let lives = self.stage.witness.lives();
        let last = lives.iter().filter(|life| life.replica == old).map(|life| life.last).max().expect("the old one lived");
        let first = lives.iter().filter(|life| life.replica == new).map(|life| life.first).max().expect("the new one lives");
        (last, first)
    }

    /// The five legs of one handover, in the order of [`LEGS`].
    fn legs(&self, old: &str, new: &str) -> Option<[Gap; 5]> {
        let (last, first) = self.ends(old, new);
        let records = self.stage.audit();
        let written: Vec<_> = records.iter().filter(|record| record.verb == "update" && record.status < 300).collect();
        let release = written.iter().rposition(|record| record.holder.as_deref() == Some(""))?;
        let acquire = written.iter().skip(release).find(|record| by(record, new))?;
        let times =
            [written.get(release)?.asked, written.get(release)?.answered, acquire.asked, acquire.answered].map(on_our_clock);
        let from = [last, times[0], times[1], times[2], times[3]];
        let to = [times[0], times[1], times[2], times[3], first];
        Some(std::array::from_fn(|leg| gap(from[leg], to[leg])))
    }
}

/// With fewer rounds the first requests of a connection dominate.
const FLOOR_ROUNDS: usize = 200;

const LEGS: [&str; 5] = ["dead to release asked", "answered", "seen and acquire asked", "answered", "to its first stamp"];

/// Whether the replica wrote this record, with itself as the holder.
pub fn by(record: &audit::Record, replica: &str) -> bool {
    record.holder.as_deref().is_some_and(|holder| holder.split('_').next() == Some(replica))
}

/// Converts a time of the audit log, in microseconds since 1970, to an instant.
pub fn on_our_clock(wall: i64) -> Instant {
    let ago = clock::wall() - wall;
    clock::boot().before(Duration::from_micros(u64::try_from(ago).unwrap_or_default()))
}

/// Ends with the floor: multiples of it compare the figures of two machines.
pub async fn show(server: &Server, programs: &Programs, linger: Duration, rounds: usize) {
    title(&format!("Handover after SIGTERM, D = 15 s, three replicas, a workload that takes {linger:?} to stop"));
    let mut medians = Vec::new();
    for who in BOTH.into_iter().chain([Contestant::Frozen]) {
        let behaviour = Behaviour { frozen: who == Contestant::Frozen, ..Behaviour::lingering(linger) };
        let mut trio = Trio::start(server, programs, who, DEFAULT, behaviour, false).await;
        let mut leader = trio.next_leader().await;
        let (mut gaps, mut legs) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            settle().await;
            let mut old = trio.take(&leader);
            old.signal(old.init(), Signal::SIGTERM);
            let next = trio.next_leader().await;
            old.ended().await;
            gaps.push(trio.gap(&leader, &next));
            legs.extend(trio.legs(&leader, &next));
            trio.add(programs).await;
            leader = next;
        }
        row(who.name(), &gaps);
        medians.push((who, quantile(&gaps, 0.5)));
        let median = |leg: usize| quantile(&legs.iter().map(|legs| legs[leg]).collect::<Vec<Gap>>(), 0.5);
        let split = LEGS.iter().enumerate().map(|(leg, name)| format!("{name} {:.1}", median(leg)));
        println!("  {:<20} {} ms (medians of n {})", "", split.collect::<Vec<_>>().join(", "), legs.len());
    }
    let floor = floor::show(server, FLOOR_ROUNDS).await;
    let ratios = medians.iter().map(|(who, median)| format!("{} {:.1}", who.name(), median / floor));
    println!("  {:<20} {} times this floor (medians)", "", ratios.collect::<Vec<_>>().join(", "));
}

/// Neither contestant says when it stands by again. The pause is longer than both need.
pub async fn settle() {
    tokio::time::sleep(Duration::from_secs(1)).await;
}
