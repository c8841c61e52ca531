//! Probes of the workload, with real processes on a real kube-apiserver: a leader that hangs or does not get ready hands over, and a
//! standby that is not ready leaves the Lease to one that is.

use std::{
    fs,
    net::{Ipv4Addr, TcpListener, TcpStream},
    time::Duration,
};

use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use support::{
    Behaviour, Case, Replica, Stage, cases,
    spec::{is_held_by, released},
    stage::timing::GRACE,
    stalls,
};
use tenure::clock;

const PERIOD: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_millis(500);
const FAILURES: u32 = 3;
/// Time for SIGKILL, proof, release and the start elsewhere on a busy machine, beside its standstills. A hung workload otherwise
/// hands over within failureThreshold x period, the timeout of the last answer and the grace of its stop.
const SLACK: Duration = Duration::from_secs(2);
/// The workload stamps every millisecond; older than this it is taken for hung.
const STALE: Duration = Duration::from_secs(1);

pub(crate) fn all() -> Vec<Case> {
    cases![
        a_leader_that_is_stopped_hands_over,
        a_leader_whose_port_is_closed_hands_over,
        a_leader_whose_main_thread_is_deadlocked_hands_over,
        a_leader_that_is_not_ready_in_time_hands_over,
        a_standby_that_is_not_ready_leaves_a_free_lease_to_one_that_is,
    ]
}

/// Asks often.
fn probe(mut how: Value) -> Value {
    how["period"] = format!("{}ms", PERIOD.as_millis()).into();
    how["timeout"] = format!("{}ms", TIMEOUT.as_millis()).into();
    how["failureThreshold"] = FAILURES.into();
    how
}

/// Runs a workload, breaks it, and judges how long the next one took to start; what hangs is noticed after `stale`.
async fn hands_over(
    stage: &Stage,
    what: &str,
    (behaviour, liveness, stale): (Behaviour, Value, Duration),
    hangs: impl AsyncFnOnce(&Replica),
) {
    // A standstill costs no term.
    let unhurried = async |name: &str| stage.prepare(name).await.unhurried();
    let a = unhurried("a").await.set("workload.liveness", probe(liveness)).workload(&behaviour).start();
    stage.witness.start("a", 0).await;
    let b = unhurried("b").await.start();
    b.said("another replica holds the Lease").await;
    let broke = clock::boot();

    hangs(&a).await;

    let start = stage.witness.start("b", 0).await;
    let (took, bound) = (start.at().since(broke), stale + PERIOD * FAILURES + TIMEOUT + GRACE);
    eprintln!("{what}: another runs after {took:.2?}; the bound is {bound:?}");
    let slack = SLACK + stalls::since(broke);
    assert!(took < bound + slack, "{what}: {took:?} after it hung, and {bound:?} + {slack:?} is allowed");
    stage.witness.assert_gone("a", start.at());
    a.said("not-live").await;
    assert_eq!(stage.witness.starts("a"), 1, "it leaves the Lease to others");
}

async fn a_leader_that_is_stopped_hands_over(stage: Stage) {
    let stamps = stage.directory().join("stamps");
    let ask = format!("find {} -name 'a@*' -newermt '-{} second' | grep -q .", stamps.display(), STALE.as_secs());
    let liveness = json!({ "exec": { "command": ["sh", "-c", ask] } });
    let stop = async |a: &Replica| kill(a.workload().await, Signal::SIGSTOP).unwrap();
    hands_over(&stage, "SIGSTOP, exec probe", (Behaviour::obedient(), liveness, STALE), stop).await;
}

async fn a_leader_whose_port_is_closed_hands_over(stage: Stage) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let liveness = json!({ "tcp": { "port": listener.local_addr().unwrap().port() } });
    let close = async |_: &Replica| drop(listener);
    hands_over(&stage, "closed port, tcp probe", (Behaviour::obedient(), liveness, Duration::ZERO), close).await;
}

async fn a_leader_whose_main_thread_is_deadlocked_hands_over(stage: Stage) {
    let (address, _kept) = stage.free_address();
    let behaviour = Behaviour { serve: Some(address.port()), ..Behaviour::obedient() };
    let liveness = json!({ "http": { "port": address.port(), "path": "/" } });
    let deadlock = async |a: &Replica| {
        kill(a.workload().await, Signal::SIGHUP).unwrap();
        stage.witness.signal("a", "SIGHUP").await;
        // It takes connections as before.
        TcpStream::connect((Ipv4Addr::LOCALHOST, address.port())).unwrap();
    };
    hands_over(&stage, "deadlock, http probe", (behaviour, liveness, Duration::ZERO), deadlock).await;
}

async fn a_leader_that_is_not_ready_in_time_hands_over(stage: Stage) {
    let (nobody, _kept) = stage.free_address();
    let readiness = probe(json!({ "tcp": { "port": nobody.port() } }));
    let a = stage.prepare("a").await.set("workload.readiness", readiness).set("workload.startTimeout", "1s").start();
    stage.witness.start("a", 0).await;

    let _b = stage.start("b").await;

    let start = stage.witness.start("b", 0).await;
    stage.witness.assert_gone("a", start.at());
    a.said("not-ready").await;
}

async fn a_standby_that_is_not_ready_leaves_a_free_lease_to_one_that_is(stage: Stage) {
    // Beside the case's own stage, where only one may run at a time.
    let pool = stage.beside("pool").await;
    let (address, _kept) = pool.free_address();
    let ready = |name: &str| pool.directory().join(format!("{name} is ready"));
    let start = async |name: &str| {
        let mut prepared = pool.prepare(name).await;
        let settings = [
            ("workload.runs", json!("always")),
            ("workload.acknowledge", json!("none")),
            ("workload.candidate", json!("ready")),
            ("workload.readiness", probe(json!({ "file": { "path": ready(name) } }))),
            ("signals", json!({ "onLead": "SIGHUP", "onFollow": "SIGUSR2" })),
        ];
        for (key, value) in settings {
            prepared = prepared.set(key, value);
        }
        if name == "a" {
            prepared = prepared.set("http", json!({ "listen": address.to_string(), "ready": "workload" }));
        }
        prepared.start()
    };
    pool.lease.create(released()).await;
    let a = start("a").await;
    a.said("the Lease was read").await;
    pool.witness.start("a", 0).await;
    assert_eq!(pool.probe(address, "/readyz").await, 503);

    let b = start("b").await;
    pool.witness.start("b", 0).await;
    fs::write(ready("b"), "").unwrap();
    let is_held_by_b = |lease: Option<&Value>| lease.is_some_and(|lease| is_held_by(&lease["spec"], "b"));
    let lease = pool.lease.wait("b has it", is_held_by_b).await.unwrap();
    let transitions = released()["leaseTransitions"].as_i64().unwrap();
    assert_eq!(lease["spec"]["leaseTransitions"], transitions + 1, "nobody had it before");
    fs::write(ready("a"), "").unwrap();
    a.said("the program is ready").await;
    assert_eq!(pool.probe(address, "/readyz").await, 200);
    assert_eq!(b.stop().await, 0);
    pool.lease.wait("a has it", |lease| lease.is_some_and(|lease| is_held_by(&lease["spec"], "a"))).await;
    pool.witness.signal("a", "SIGHUP").await;
}
