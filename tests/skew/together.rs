//! Slots, a task and a promotion that replicas of both versions share.

use std::{net::Ipv4Addr, time::Duration};

use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use support::{Behaviour, Case, Event, LEASE, Replica, Stage, Verb, cases, spec::calm, spec::released, stalls, within};

use super::{Head, SOON, Version, Version::Earlier, earlier};
use crate::{
    locks::{by, tasks::taken},
    transactions::promotions::{create, leads, object, promoted},
};

pub(super) fn all() -> Vec<Case> {
    cases![
        either_takes_the_slot_that_the_other_gives_back,
        either_makes_the_next_run_of_a_task_after_the_other_and_repeats_one_that_was_killed,
        either_undoes_what_the_other_promoted_before_it_was_killed,
    ]
}

/// A replica of a pool of two slots, which may do everything in its namespace.
async fn pooled(pool: &Stage, version: Version, name: &str) -> Replica {
    let prepared = pool.prepare_at(name, pool.api.token().to_owned(), Ipv4Addr::LOCALHOST).await.set("lease.slots", 2);
    version.runs(prepared.unhurried()).start()
}

async fn either_takes_the_slot_that_the_other_gives_back(stage: Stage) {
    if earlier().is_none() {
        return;
    }
    // Beside the case's own stage, where nobody may run at a time.
    let pool = stage.beside("pool").await;
    for lease in [LEASE, "main-slot-1"] {
        let labels = json!({ "tenure.dev/slots": LEASE });
        let lease = json!({ "metadata": { "name": lease, "labels": labels }, "spec": released() });
        pool.api.create(&pool.lease.collection(), &lease).await;
    }
    let mut holders = Vec::new();
    for (version, name) in [(Earlier, "first"), (Head, "second")] {
        let replica = pooled(&pool, version, name).await;
        holders.push((replica, pool.witness.start(name, 0).await));
    }
    assert_ne!(slot(&holders[0].1), slot(&holders[1].1));

    for (version, name) in [(Head, "third"), (Earlier, "fourth")] {
        let (last, term) = holders.remove(0);
        let next = pooled(&pool, version, name).await;
        next.proxy.log.first("a watch", |e| e.request.verb == Verb::Watch && e.succeeded()).await;

        assert_eq!(last.stop().await, 0);

        let start = within(SOON, "the slot is taken", pool.witness.start(name, 0)).await;
        assert_eq!(slot(&start), slot(&term));
        pool.witness.assert_gone(&last.name, start.at());
        holders.push((next, start));
    }
    assert_eq!(pool.witness.all().iter().filter(|event| event.what == "start").count(), 4, "nobody else noticed");
}

fn slot(start: &Event) -> &str {
    start.variable("TENURE_SLOT")
}

const EVERY: Duration = Duration::from_secs(8);

/// Runs a task whose runs end when they are told to.
async fn runner(stage: &Stage, version: Version, name: &str) -> Replica {
    let prepared = version.runs(calm(stage.prepare(name).await));
    let runner = by(prepared, "task", &["--every", "8s"]).workload(&Behaviour::obedient()).start();
    runner.proxy.log.first("a watch", |e| e.request.verb == Verb::Watch && e.succeeded()).await;
    runner
}

async fn either_makes_the_next_run_of_a_task_after_the_other_and_repeats_one_that_was_killed(stage: Stage) {
    if earlier().is_none() {
        return;
    }
    stage.lease.create(released()).await;
    let mut last = runner(&stage, Earlier, "run-0").await;
    let mut run = stage.witness.start("run-0", 0).await;
    for (number, version, is_killed) in [(1, Head, false), (2, Earlier, false), (3, Head, true), (4, Earlier, true)] {
        let name = format!("run-{number}");
        let next = runner(&stage, version, &name).await;

        if is_killed {
            last.signal(Signal::SIGKILL).await;
            last.exit().await;
        } else {
            kill(last.workload().await, Signal::SIGUSR2).expect("the run lives");
            let rests = |lease: &Value| lease["metadata"]["annotations"]["tenure.dev/rests"].is_string();
            stage.lease.wait("the run is done", |lease| lease.is_some_and(rests)).await;
            assert_eq!(last.stop().await, 0);
        }

        let start = stage.witness.start(&name, 0).await;
        let written = taken([&last.proxy.log], &run);
        let apart = taken([&next.proxy.log], &start).since(written) + stalls::since(written);
        assert!(is_killed || apart > EVERY - Duration::from_millis(300), "two runs in one interval: {run:?}, {start:?}");
        (last, run) = (next, start);
    }
}

async fn either_undoes_what_the_other_promoted_before_it_was_killed(stage: Stage) {
    if earlier().is_none() {
        return;
    }
    let mut before = Vec::new();
    for name in ["first", "second", "third", "shared"] {
        before.push(create(&stage, name).await);
    }
    let start = async |version: Version, name: &str| version.runs(promoted(&stage, name, version.program()).await).start();
    let mut leader = start(Earlier, "first").await;
    leads(&stage, "first", "second").await;
    for (version, name) in [(Head, "second"), (Earlier, "third")] {
        let next = start(version, name).await;
        next.said("the Lease was read").await;
        stage.witness.start(&leader.name, 0).await;

        kill(leader.init().await, Signal::SIGKILL).expect("init lives");
        leader.exit().await;
        stage.api.call(http::Method::DELETE, &stage.lease.path(), None).await;

        stage.witness.start(name, 0).await;
        leads(&stage, name, &leader.name).await;
        leader = next;
    }
    assert_eq!(leader.stop().await, 0);
    let mut after = Vec::new();
    for name in ["first", "second", "third", "shared"] {
        after.push(object(&stage, name).await);
    }
    assert_eq!(after, before);
}
