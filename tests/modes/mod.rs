//! Programs on replicas that do not lead, on a real kube-apiserver: frozen ones, and others.

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use support::{
    Behaviour, Case, Event, Replica, Stage, Witness, cases, found,
    procfs::state,
    spec::{is_held_by, released},
};

pub(crate) fn all() -> Vec<Case> {
    cases![
        a_frozen_standby_is_continued_when_the_leader_hands_over_and_when_it_is_killed,
        a_standby_command_is_gone_before_its_replica_leads_and_back_after_it,
    ]
}

/// A replica whose workload does nothing until it leads.
async fn start(stage: &Stage, name: &str) -> Replica {
    let frozen = Behaviour { frozen: true, lock: true, ..Behaviour::obedient() };
    let prepared = stage.prepare(name).await.workload(&frozen).set("workload.runs", "frozen");
    prepared.set("workload.restart", json!({ "delay": "100ms" })).start()
}

/// Its workload, once that is stopped.
async fn frozen(replica: &Replica) -> Pid {
    found("a frozen workload", async || Some(replica.workload().await).filter(|pid| state(*pid) == Some('T'))).await
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
    stage.witness.assert_gone("a", start.at());

    let &(next, pid) = warm.iter().find(|(name, _)| *name != leader).expect("another one");
    kill(replica(leader).init().await, Signal::SIGKILL).expect("it runs");
    stage.witness.start(next, 0).await;
    assert_eq!(replica(next).workload().await, pid);
    let held = |lease: Option<&Value>| lease.is_some_and(|lease| is_held_by(&lease["spec"], next));
    stage.lease.wait("the last one leads", held).await;
}

/// Standbys report to a witness of their own: they run beside the leader of another replica.
async fn a_standby_command_is_gone_before_its_replica_leads_and_back_after_it(stage: Stage) {
    stage.lease.create(released()).await;
    let directory = stage.directory().join("standbys");
    let standbys = Witness::listen(&directory);
    let with_daemon = Behaviour { daemon: true, ..Behaviour::obedient() };
    let beside = async |name: &str| {
        let leader = Behaviour { lock: true, ..with_daemon.clone() };
        stage.prepare(name).await.workload(&leader).set("standby.command", with_daemon.command(&directory, name)).start()
    };
    let _a = beside("a").await;
    let led = stage.witness.start("a", 0).await.at();
    let b = beside("b").await;
    // Itself, and its daemon.
    standbys.start("b", 1).await;

    stage.lease.ask_to_step_down().await;

    let leads = stage.witness.start("b", 0).await;
    // The daemon that ignores its stop signal, too.
    standbys.assert_gone("b", leads.at());
    let dead = stage.witness.last_alive("a");
    let again = |event: &Event| event.replica == "a" && event.what == "start" && event.at() > dead;
    standbys.first("a's standby starts again", again).await;
    let of_a = standbys.all().into_iter().filter(|event| event.replica == "a");
    assert!(of_a.map(|event| event.at()).all(|at| at < led || at > dead), "beside a's leader, or its daemon");
    assert_eq!(standbys.starts("b"), 2, "nothing of it comes back while b leads");

    kill(b.init().await, Signal::SIGKILL).expect("it runs");
    let leads = stage.witness.first("a leads again", again).await;
    standbys.assert_gone("a", leads.at());
}
