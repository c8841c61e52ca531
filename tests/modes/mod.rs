//! What runs on replicas that do not lead, on a real kube-apiserver: frozen programs.

use std::time::Duration;

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use crate::{
    conformance::spec::{is_held_by, released},
    support::{
        PATIENCE,
        case::{Case, REAL, cases},
        procfs::state,
        replica::Replica,
        stage::Stage,
        within,
        workload::Behaviour,
    },
};

pub(crate) fn all() -> Vec<Case> {
    let cases = cases![
        a_frozen_standby_is_continued_when_the_leader_hands_over_and_when_it_is_killed,
        a_frozen_standby_that_somebody_continues_is_killed_and_leads_later,
    ];
    cases.into_iter().map(|case| Case { on: REAL, ..case }).collect()
}

/// A replica whose workload does nothing until it leads.
async fn start(stage: &Stage, name: &str) -> Replica {
    let frozen = Behaviour { frozen: true, lock: true, ..Behaviour::obedient() };
    let prepared = stage.prepare(name).await.workload(&frozen).set("workload.runs", "frozen");
    prepared.set("workload.restart", json!({ "delay": "100ms" })).start()
}

/// Its workload, once that is stopped.
async fn frozen(replica: &Replica) -> Pid {
    let stopped = async {
        loop {
            let pid = replica.workload().await;
            if state(pid) == Some('T') {
                return pid;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within(PATIENCE, "a frozen workload", stopped).await
}

async fn a_frozen_standby_is_continued_when_the_leader_hands_over_and_when_it_is_killed(stage: Stage) {
    stage.lease.create(released()).await;
    let a = start(&stage, "a").await;
    stage.witness.start("a", 0).await;
    let b = start(&stage, "b").await;
    let c = start(&stage, "c").await;
    let warm = [("b", frozen(&b).await), ("c", frozen(&c).await)];
    let replica = |name: &str| if name == "b" { &b } else { &c };

    a.signal(Signal::SIGTERM).await;

    let start = stage.witness.nth(1, "a second start", |event| event.what == "start").await;
    let &(leader, pid) = warm.iter().find(|(name, _)| *name == start.replica).expect("a standby");
    assert_eq!(replica(leader).workload().await, pid, "it was not started again");
    assert!(start.at() > stage.witness.last_alive("a"));

    let &(next, pid) = warm.iter().find(|(name, _)| *name != leader).expect("another one");
    kill(replica(leader).init().await, Signal::SIGKILL).expect("it runs");
    stage.witness.start(next, 0).await;
    assert_eq!(replica(next).workload().await, pid);
    let held = |lease: Option<&Value>| lease.is_some_and(|lease| is_held_by(&lease["spec"], next));
    stage.lease.wait("the last one leads", held).await;
}

async fn a_frozen_standby_that_somebody_continues_is_killed_and_leads_later(stage: Stage) {
    stage.lease.create(released()).await;
    let a = start(&stage, "a").await;
    stage.witness.start("a", 0).await;
    let b = start(&stage, "b").await;
    let first = frozen(&b).await;

    kill(first, Signal::SIGCONT).expect("it is there");

    b.said("the workload is not frozen").await;
    b.gone(first).await;
    assert_ne!(frozen(&b).await, first);
    assert_eq!(stage.witness.starts("b"), 0);
    a.signal(Signal::SIGTERM).await;
    stage.witness.start("b", 0).await;
}
