//! Cases 67 to 73: what a replica needs from its configuration and its cluster, and what it tells others.

use std::{fs, net::SocketAddr, time::Duration};

use nix::{
    sys::{
        resource::{RLIM_INFINITY, Resource, getrlimit},
        signal::Signal,
    },
    unistd::Pid,
};
use serde_json::{Value, json};
use support::{
    Case, Fault, Stage, Times, Verb, Verbs, cases, not_run,
    procfs::status,
    server::COORDINATED,
    spec::{held, released, time, wait},
    timing,
};
use tenure::clock;

use super::{assert_newer, late, said, token};

pub fn all() -> Vec<Case> {
    let mut cases = cases![
        case_67_what_cannot_be_lawful_is_refused_without_a_request,
        case_69_health_follows_the_renewals,
        case_70_a_hundred_tokens_rise,
        case_72_without_watch_it_polls,
        case_72_without_create_it_waits_for_the_lease,
        case_73_a_watch_that_is_expired,
        case_73_a_watch_with_bookmarks_only,
        case_73_a_watch_that_ends_every_time,
        case_73_a_watch_that_is_silent,
        what_guards_is_locked_into_memory,
    ];
    // A strategy keeps the replica from writing into a Lease without a holder.
    cases.extend(cases![case_68_each_new_holder_is_reported_once].into_iter().map(|case| case.since(COORDINATED)));
    cases
}

async fn case_67_what_cannot_be_lawful_is_refused_without_a_request(stage: Stage) {
    for (key, value, numbers) in [
        ("lease.duration", "1s", "3s is the shortest"),
        ("lease.duration", "2500ms", "write 3s"),
        ("lease.duration", "0s", "3s is the shortest"),
        ("lease.duration", "-4s", "lease.duration"),
        ("lease.duration", "2s", "3s is the shortest"),
        ("lease.renewPeriod", "0s", "1s is the shortest"),
        ("lease.renewPeriod", "-1s", "lease.renewPeriod"),
        ("lease.renewPeriod", "900ms", "1s is the shortest"),
        ("lease.renewPeriod", "3500ms", "the next one is due after 3.5s, the workload is stopped after 3.16s"),
        ("lease.attemptTimeout", "0s", "10ms is the shortest"),
        ("lease.attemptTimeout", "9ms", "10ms is the shortest"),
        ("lease.attemptTimeout", "-1s", "lease.attemptTimeout"),
        ("lease.attemptTimeout", "3s", "One attempt takes up to 3s, and the pause after it 200ms"),
        ("lease.name", "///", "\"///\" has no character that the name of an object may begin with"),
    ] {
        let me = stage.prepare("me").await.set(key, value).start();

        let code = me.exit().await;

        assert_eq!(code, 78, "{key} {value}: {:#?}", me.lines());
        assert!(me.lines().iter().any(|line| line.contains(numbers)), "{key} {value}: {:#?}", me.lines());
        assert!(me.proxy.log.all().is_empty());
    }
}

async fn case_68_each_new_holder_is_reported_once(stage: Stage) {
    stage.lease.create(held("first_1", 60)).await;
    let me = stage.prepare("me").await.set("log.level", "info").start();
    me.proxy.log.first("a watch", |e| e.request.verb == Verb::Watch).await;
    for holder in ["first_1", "second_1", "", "second_1", "third_1"] {
        let mut spec = held(holder, 60);
        spec["strategy"] = json!("OldestEmulationVersion");
        spec["preferredHolder"] = json!("nobody_1");
        stage.lease.set_spec(spec).await;
    }

    me.said("third_1").await;
    stage.lease.edit(|lease| lease["spec"]["renewTime"] = json!(time(1))).await;
    stage.lease.edit(|lease| lease["spec"]["holderIdentity"] = json!("fourth_1")).await;
    me.said("fourth_1").await;

    for holder in ["first_1", "third_1", "fourth_1"] {
        assert_eq!(said(&me, holder), 1, "{holder}: {:#?}", me.lines());
    }
    assert!(said(&me, "second_1") >= 1, "{:#?}", me.lines());
    let nobody = |line: &&String| line.contains("another replica holds the Lease") && !line.contains("_1");
    assert_eq!(me.lines().iter().find(nobody), None, "an empty transition");
    assert!(me.proxy.log.writes().is_empty());
}

async fn case_69_health_follows_the_renewals(stage: Stage) {
    let (address, _kept) = stage.free_address();
    let (me, _) = stage.lead(stage.prepare("me").await.set("http.listen", address.to_string())).await;
    let (other, _kept_too) = stage.free_address();
    let follower = stage.prepare("follower").await.set("http.listen", other.to_string()).start();
    follower.proxy.log.first("a watch", |e| e.request.verb == Verb::Watch).await;

    for (path, leads, follows) in [("/livez", 200, 200), ("/readyz", 200, 200), ("/leader", 200, 503)] {
        assert_eq!(stage.probe(address, path).await, leads, "{path} of the leader");
        assert_eq!(stage.probe(other, path).await, follows, "{path} of the follower");
    }
    // Init no longer answers for the elector, and a leader that does not renew is no leader.
    me.proxy.cut();
    follower.proxy.log.first("a takeover", |e| e.request.is_held() && e.succeeded()).await;
    stage.witness.start("follower", 0).await;
    assert_eq!(stage.probe(address, "/leader").await, 503);
    assert_eq!(stage.probe(address, "/livez").await, 200, "it follows, and that is healthy");
    assert_eq!(stage.probe(other, "/leader").await, 200);

    // The new leader's init is stopped: nothing is renewed any more.
    follower.signal(Signal::SIGSTOP).await;
    until_probe(&stage, other, "/livez", 503).await;
    until_probe(&stage, other, "/leader", 503).await;
}

/// Waits until a probe gives this answer.
async fn until_probe(stage: &Stage, address: SocketAddr, path: &str, status: u16) {
    support::until(&format!("{status} from {path}"), async || stage.probe(address, path).await == status).await;
}

async fn case_70_a_hundred_tokens_rise(stage: Stage) {
    let prepared = stage.prepare("me").await.unhurried().set("lease.creationWait", "0s");
    let (_me, _) = stage.lead(prepared).await;
    for count in 1..=100 {
        let taken_from = if count % 10 == 0 {
            let object = stage.lease.read().await.expect("a Lease");
            stage.lease.delete().await;
            object
        } else {
            stage.lease.set_spec(released()).await
        };
        let version: u64 = taken_from["metadata"]["resourceVersion"].as_str().expect("a version").parse().expect("a number");

        stage.witness.first("the next start", |event| event.what == "start" && token(event) > version).await;
    }

    let starts: Vec<_> = stage.witness.all().into_iter().filter(|event| event.what == "start").collect();
    assert!(starts.len() > 100);
    for pair in starts.windows(2) {
        assert_newer(&pair[1], &pair[0]);
    }
}

async fn case_72_without_watch_it_polls(stage: Stage) {
    let verbs = Verbs::default().without("watch");
    let since = clock::boot();
    stage.lease.create(held("x_1", 4)).await;
    let prepared = stage.prepare_with("me", &verbs).await;
    let me = prepared.start();

    let start = stage.witness.start("me", 0).await;

    assert!(start.at() >= since + wait(4.0));
    assert!(me.proxy.log.count(|e| e.request.verb == Verb::Watch) <= 3, "it does not insist");
}

async fn case_72_without_create_it_waits_for_the_lease(stage: Stage) {
    let verbs = Verbs::default().without("create");
    let prepared = stage.prepare_with("me", &verbs).await.unhurried().set("lease.creationWait", "2s");
    let me = prepared.start();
    me.proxy.log.first("a refused creation", |e| e.request.verb == Verb::Create).await;

    stage.lease.create(Value::Null).await;

    stage.witness.start("me", 0).await;
    assert_eq!(me.proxy.log.count(|e| e.request.verb == Verb::Create), 1);
}

/// However the watch misbehaves, a follower takes over, and a leader leads.
async fn taken_over_despite(stage: Stage, fault: Fault) {
    let since = clock::boot();
    stage.lease.create(held("x_1", 10)).await;
    let prepared = stage.prepare("me").await.unhurried();
    prepared.proxy.on(|request| request.verb == Verb::Watch, Times::Always, fault);
    let me = prepared.start();
    me.proxy.log.first("a read", |e| e.request.verb == Verb::Get && e.succeeded()).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let renewed = clock::boot();
    stage.lease.edit(|lease| lease["spec"]["renewTime"] = json!(time(0))).await;

    let start = stage.witness.start("me", 0).await;

    assert!(start.at() >= renewed + wait(10.0));
    assert!(
        start.at() < renewed + wait(10.0) + timing::RENEW_PERIOD + late(renewed),
        "law 16: the watch only makes things faster"
    );
    me.proxy.log.nth(4, "renewals", |e| e.request.is_held() && e.succeeded()).await;
    assert_eq!(stage.witness.all().len(), 1, "the workload noticed nothing");
    let span = clock::boot().since(since).as_secs();
    let requests = u64::try_from(me.proxy.log.all().len()).expect("a number");
    assert!(requests <= 4 * span, "{requests} requests in {span} s");
}

async fn case_73_a_watch_that_is_expired(stage: Stage) {
    let gone = json!({ "type": "ERROR", "object": {
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410, "message": "too old",
    }});
    taken_over_despite(stage, Fault::ended_watch(&format!("{gone}\n"))).await;
}

async fn case_73_a_watch_with_bookmarks_only(stage: Stage) {
    let bookmark = json!({ "type": "BOOKMARK", "object": {
        "kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": { "resourceVersion": "999999999" }, "spec": {},
    }});
    taken_over_despite(stage, Fault::silent_watch(&format!("{bookmark}\n"))).await;
}

async fn case_73_a_watch_that_ends_every_time(stage: Stage) {
    taken_over_despite(stage, Fault::ended_watch("")).await;
}

async fn case_73_a_watch_that_is_silent(stage: Stage) {
    taken_over_despite(stage, Fault::silent_watch("")).await;
}

async fn what_guards_is_locked_into_memory(stage: Stage) {
    let (me, _) = stage.lead(stage.prepare("me").await.unhurried()).await;
    if !may_lock() {
        return not_run("what guards is locked into memory", "RLIMIT_MEMLOCK does not allow it here");
    }

    let locked =
        [me.init().await, me.elector().await, me.workload().await].map(|pid| status(pid, "VmLck").expect("it lives") != "0 kB");

    assert_eq!(locked, [true, true, false], "init, the elector, the workload");
}

/// Returns whether a process that is started here may lock all of its memory: only root may without a limit.
fn may_lock() -> bool {
    const CAP_IPC_LOCK: u64 = 14;
    let set = status(Pid::this(), "CapEff").map(|set| u64::from_str_radix(&set, 16).expect("a set"));
    let is_capable = set.is_some_and(|set| set >> CAP_IPC_LOCK & 1 == 1);
    // In a user namespace of its own root has no such power.
    let is_real = fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| map.trim_end().ends_with(" 4294967295"));
    let limit = getrlimit(Resource::RLIMIT_MEMLOCK).map(|(soft, _)| soft);
    is_capable && is_real || limit == Ok(RLIM_INFINITY)
}
