//! What the README's first screen promises: how soon the next leader runs after a handover, and after a kill beside a witness.
//!
//! The floor is measured in the same round: what a client needs that changes a Lease, sees another change it, and starts a process. A
//! busy machine is slow in both.

use std::{process::Command, time::Duration};

use nix::sys::signal::Signal;
use support::{Case, Event, PATIENCE, Prepared, Replica, Stage, cases, spec::released, within};
use tenure::{clock, time::Instant};

use crate::TENURE;

/// How many times are measured.
const ROUNDS: usize = 20;

/// How many floors the median may take.
const FLOORS: u32 = 5;

pub(crate) fn all() -> Vec<Case> {
    cases![the_next_leader_runs_soon_after_a_handover, the_next_leader_runs_soon_after_a_kill_beside_a_witness]
}

async fn the_next_leader_runs_soon_after_a_handover(stage: Stage) {
    let floor = Floor::set(&stage).await;
    let (_a, mut start) = stage.lead(stage.prepare("a").await.unhurried()).await;
    let b = stage.prepare("b").await.unhurried().start();
    b.said("holds the Lease").await;
    let mut times = Times::default();
    for round in 0..ROUNDS {
        times.floors.push(floor.measure().await);
        stage.lease.ask_to_step_down().await;
        start = followed(&stage, &start, round + 1).await;
        times.gaps.push(start.at().since(stage.witness.last_alive(other(&start.replica))));
    }
    times.assert_short("handover");
}

const fn other(name: &str) -> &'static str {
    if name.as_bytes()[0] == b'a' { "b" } else { "a" }
}

async fn the_next_leader_runs_soon_after_a_kill_beside_a_witness(stage: Stage) {
    let floor = Floor::set(&stage).await;
    let socket = format!("@{}", stage.namespace);
    // A witness believes the replicas of its own pod only.
    let aside = stage.prepare("aside").await.witness(&socket, "pod").start();
    aside.said("waits for replicas").await;
    let patient = async |round: usize| -> Prepared {
        let prepared = stage.prepare(&format!("r{round}")).await;
        prepared
            .set("lease.duration", "60s")
            .set("lease.attemptTimeout", "5s")
            .set("lease.witness", &*socket)
            .set("lease.identity", "pod")
    };
    let (mut leader, mut start): (Replica, Event) = stage.lead(patient(0).await).await;
    let mut times = Times::default();
    for round in 1..=ROUNDS {
        let next = patient(round).await.start();
        next.said("holds the Lease").await;
        leader.said("gives the Lease back if").await;
        times.floors.push(floor.measure().await);
        let killed = clock::boot();
        leader.signal(Signal::SIGKILL).await;
        start = followed(&stage, &start, round).await;
        times.gaps.push(start.at().since(killed));
        leader = next;
    }
    times.assert_short("kill");
}

/// The start after `count` others.
async fn followed(stage: &Stage, before: &Event, count: usize) -> Event {
    let start = stage.witness.nth(count, "the next leader runs", |event| event.what == "start").await;
    assert_ne!(start.replica, before.replica);
    start
}

#[derive(Default)]
struct Times {
    floors: Vec<Duration>,
    gaps: Vec<Duration>,
}

impl Times {
    fn assert_short(self, what: &str) {
        let median = |mut times: Vec<Duration>| {
            times.sort_unstable();
            times[times.len() / 2]
        };
        let (floor, gap) = (median(self.floors), median(self.gaps));
        eprintln!("{what}: median {gap:?}, {:.1} floors of {floor:?}", gap.as_secs_f64() / floor.as_secs_f64());
        assert!(gap < floor * FLOORS, "{what}: {gap:?}, and the floor is {floor:?}");
    }
}

/// Another Lease beside the case's.
struct Floor(support::Lease);

impl Floor {
    async fn set(stage: &Stage) -> Self {
        let lease = stage.api.lease(&stage.namespace, "floor");
        lease.create(released()).await;
        Self(lease)
    }

    async fn measure(&self) -> Duration {
        let before = self.0.read().await.expect("a Lease");
        let is_newer = |lease: Option<&serde_json::Value>| {
            lease.is_some_and(|lease| lease["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"])
        };
        let begin: Instant = clock::boot();
        let change = || {
            self.0.edit(|lease| {
                lease["spec"]["leaseTransitions"] = (lease["spec"]["leaseTransitions"].as_i64().unwrap_or(0) + 1).into()
            })
        };
        tokio::join!(self.0.wait("a change", is_newer), change());
        change().await;
        let mut child = Command::new(TENURE).arg("--version").stdout(std::process::Stdio::null()).spawn().expect("it starts");
        within(PATIENCE, "its end", tokio::task::spawn_blocking(move || child.wait())).await.expect("no panic").expect("an end");
        clock::boot().since(begin)
    }
}
