//! Three replicas, and one forced transition after another: never two workloads at once, and every token higher than the last.
//!
//! TENURE_TRANSITIONS sets how many; without it each kind is forced twice.

#![allow(clippy::expect_used, clippy::print_stderr, unreachable_pub, reason = "a test fails by panicking, and says why")]

use std::{process::ExitCode, time::Duration};

use nix::sys::signal::{Signal, kill};
use serde_json::json;
use tenure::{clock, time::Instant};

#[path = "../support/mod.rs"]
mod support;

use support::{
    case::{self, cases},
    proxy::log::Exchange,
    replica::Replica,
    stage::Stage,
    witness::Event,
    workload::Behaviour,
};

fn main() -> ExitCode {
    case::main(vec![("transitions", cases![two_never_run_at_once])])
}

/// What ends a term.
#[derive(Clone, Copy, Debug)]
enum Force {
    Term,
    KillInit,
    KillElector,
    StopElector,
    StopInit,
    BlackHole,
    Delete,
    Edit,
    Clear,
}

const ALL: [Force; 9] = [
    Force::Term,
    Force::KillInit,
    Force::KillElector,
    Force::StopElector,
    Force::StopInit,
    Force::BlackHole,
    Force::Delete,
    Force::Edit,
    Force::Clear,
];

async fn two_never_run_at_once(stage: Stage) {
    let count = std::env::var("TENURE_TRANSITIONS").map_or(2 * ALL.len(), |count| count.parse().expect("a number"));
    let mut world = World { stage, replicas: Vec::new(), started: 0 };
    for _ in 0..3 {
        world.add().await;
    }
    world.term_after(0).await;
    for force in ALL.into_iter().cycle().take(count) {
        let before = clock::boot();
        let leader = world.last_term();
        let old = world.force(force, &leader).await;
        if matches!(force, Force::KillElector) {
            world.goes_on(old, &leader, before).await;
        } else {
            world.term_after(token(&leader)).await;
        }
        world.mend(force, old).await;
        eprintln!(
            "{force:?} upon {}: {} leads after {:?}",
            leader.replica,
            world.last_term().replica,
            clock::boot().since(before)
        );
        world.stage.witness.assert_no_overlap();
    }
}

fn token(start: &Event) -> u64 {
    start.variable("TENURE_FENCING_TOKEN").parse().expect("a resourceVersion")
}

struct World {
    stage: Stage,
    replicas: Vec<Replica>,
    started: u32,
}

impl World {
    /// Adds a replica with a new name; every other one ignores its stop signal.
    async fn add(&mut self) {
        self.started += 1;
        let name = format!("r{}", self.started);
        let behaviour =
            if self.started.is_multiple_of(2) { Behaviour::stubborn() } else { Behaviour::lingering(Duration::from_millis(100)) };
        let prepared = self.stage.prepare(&name).await.workload(&Behaviour { daemon: true, ..behaviour });
        let prepared = prepared.set("lease.duration", "3s").set("lease.attemptTimeout", "300ms");
        self.replicas.push(prepared.set("workload.stop.lossGrace", "200ms").set("workload.stop.grace", "1s").start());
    }

    /// The start of the latest term; a busy machine may have ended others by itself.
    fn last_term(&self) -> Event {
        let starts = self.stage.witness.all().into_iter().filter(|event| event.what == "start");
        starts.max_by_key(token).expect("a start")
    }

    /// Waits for the workload of a later term than the one of this token.
    async fn term_after(&self, last: u64) {
        self.stage.witness.first("the next term", |event| event.what == "start" && token(event) > last).await;
    }

    /// Waits until the leader's next elector renews, or was too late for that on a busy machine.
    async fn goes_on(&self, place: usize, leader: &Event, since: Instant) {
        let renewed = |e: &Exchange| e.request.at > since && e.request.is_held() && e.succeeded();
        tokio::select! {
            _ = self.replicas[place].proxy.log.nth(1, "the next elector renews", renewed) => {}
            () = self.term_after(token(leader)) => {}
        }
    }

    fn place(&self, name: &str) -> usize {
        self.replicas.iter().position(|replica| replica.name == name).expect("a replica of that name")
    }

    /// Applies it to the leader, whose place it returns.
    async fn force(&self, force: Force, leader: &Event) -> usize {
        let place = self.place(&leader.replica);
        let replica = &self.replicas[place];
        let lease = &self.stage.lease;
        match force {
            Force::Term => replica.signal(Signal::SIGTERM).await,
            Force::KillInit => replica.signal(Signal::SIGKILL).await,
            Force::KillElector => kill(replica.elector().await, Signal::SIGKILL).expect("the elector lives"),
            Force::StopElector => kill(replica.elector().await, Signal::SIGSTOP).expect("the elector lives"),
            Force::StopInit => replica.signal(Signal::SIGSTOP).await,
            Force::BlackHole => replica.proxy.cut(),
            Force::Delete => {
                self.there_is_a_lease().await;
                lease.delete().await;
            }
            Force::Edit => {
                self.there_is_a_lease().await;
                let taken = json!({ "holderIdentity": "nobody_1", "leaseDurationSeconds": 2 });
                drop(lease.edit(|lease| lease["spec"] = taken.clone()).await);
            }
            Force::Clear => {
                self.there_is_a_lease().await;
                drop(lease.edit(|lease| lease["spec"]["holderIdentity"] = json!("")).await);
            }
        }
        place
    }

    /// Waits for one: the term after a deleted one may be another replica's, begun by itself before the deletion.
    async fn there_is_a_lease(&self) {
        self.stage.lease.wait("a Lease", |lease| lease.is_some()).await;
    }

    /// Repairs what does not recover by itself.
    async fn mend(&mut self, force: Force, old: usize) {
        match force {
            Force::Term | Force::KillInit => {
                self.replicas.remove(old).exit().await;
                self.add().await;
            }
            Force::StopInit => self.replicas[old].signal(Signal::SIGCONT).await,
            Force::BlackHole => self.replicas[old].proxy.mend().await,
            // Init has replaced an elector that was killed or stopped.
            Force::KillElector | Force::StopElector | Force::Delete | Force::Edit | Force::Clear => {}
        }
    }
}
