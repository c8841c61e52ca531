//! Tests of the test harness itself: a test that relies on it must not pass because the harness is broken.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use support::{Behaviour, Canned, Case, Fault, Flow, PATIENCE, Proxy, Request, Stage, Times, Valve, Verb, cases};
use tenure::time::Instant;

pub(crate) fn all() -> Vec<Case> {
    cases![
        a_proxy_passes_requests_on_and_writes_them_down,
        a_lost_request_leaves_the_write_undone_and_a_lost_reply_done,
        a_late_request_arrives_although_the_client_hung_up,
        a_reply_can_be_made_up_changed_and_cut_off,
        held_bytes_arrive_once_the_flow_is_open,
        connections_can_be_reset_and_refused,
        events_of_a_watch_can_be_changed,
        the_minimal_rights_are_minimal,
        a_workload_stamps_until_it_is_killed,
        two_workloads_at_once_are_found,
        a_daemon_of_a_workload_is_part_of_its_life,
    ]
}

const PROMPT: Duration = Duration::from_secs(2);

/// More than can occur by chance.
const STAMPS: usize = 100;

fn spec(holder: &str) -> Value {
    json!({ "holderIdentity": holder, "leaseDurationSeconds": 4 })
}

fn is_update(request: &Request) -> bool {
    request.verb == Verb::Update
}

async fn a_proxy_passes_requests_on_and_writes_them_down(stage: Stage) {
    let (proxy, client) = stage.client().await;
    let mut object = stage.lease.create(spec("x")).await;
    object["spec"]["holderIdentity"] = json!("y");

    let (status, _) = client.call(Method::PUT, &stage.lease.path(), Some(&object)).await;

    assert_eq!(status, 200);
    assert_eq!(stage.lease.read().await.expect("a Lease")["spec"]["holderIdentity"], "y");
    let [exchange] = &proxy.log.all()[..] else { panic!("one exchange") };
    assert!(exchange.request.is_held() && exchange.succeeded());
    assert_ne!(exchange.version(), object["metadata"]["resourceVersion"]);
    let last = stage.audit().into_iter().rfind(|record| record.verb == "update").expect("a record");
    assert_eq!((last.status, last.holder.as_deref()), (200, Some("y")));
    assert!(last.user.starts_with("system:serviceaccount:"), "{last:?}");
}

async fn a_lost_request_leaves_the_write_undone_and_a_lost_reply_done(stage: Stage) {
    let (proxy, client) = stage.client().await;
    let mut object = stage.lease.create(spec("x")).await;
    object["spec"]["holderIdentity"] = json!("y");
    for (fault, holder) in [(Fault::lost_request(), "x"), (Fault::lost_reply(), "y")] {
        // For one request only.
        proxy.on(is_update, Times::Only(1), fault);

        let unanswered = tokio::time::timeout(PROMPT, client.attempt(Method::PUT, &stage.lease.path(), Some(&object))).await;

        assert!(unanswered.is_err());
        assert_eq!(stage.lease.read().await.expect("a Lease")["spec"]["holderIdentity"], holder);
        assert_eq!(proxy.log.all().last().is_some_and(|exchange| exchange.answer.is_some()), holder == "y");
    }
    assert_eq!(client.call(Method::PUT, &stage.lease.path(), Some(&object)).await.0, 409);
}

async fn a_late_request_arrives_although_the_client_hung_up(stage: Stage) {
    let (proxy, client) = stage.client().await;
    let mut object = stage.lease.create(spec("x")).await;
    object["spec"]["holderIdentity"] = json!("y");
    let valve = Valve::closed();
    proxy.on(is_update, Times::Only(1), Fault::late_request(&valve));
    let unanswered = tokio::time::timeout(PROMPT, client.attempt(Method::PUT, &stage.lease.path(), Some(&object))).await;
    assert!(unanswered.is_err());
    drop(client);
    assert_eq!(stage.lease.read().await.expect("a Lease")["spec"]["holderIdentity"], "x");

    valve.open();

    stage.lease.wait("the late write is done", |lease| lease.is_some_and(|lease| lease["spec"]["holderIdentity"] == "y")).await;
}

async fn a_reply_can_be_made_up_changed_and_cut_off(stage: Stage) {
    let (proxy, client) = stage.client().await;
    stage.lease.create(spec("x")).await;
    let path = stage.lease.path();
    proxy.on(|_| true, Times::Only(1), Fault::truncated());
    proxy.on(|_| true, Times::Only(1), Fault::hung_up());
    proxy.on(|_| true, Times::Only(1), Fault::changed(|lease| lease["spec"]["futureField"] = json!(1)));
    let garbage = Canned { status: 200, body: "garbage".to_owned(), ..Canned::default() };
    proxy.on(|_| true, Times::Only(1), Fault::answered(garbage));
    proxy.on(|_| true, Times::Only(1), Fault::refused(503, "ServiceUnavailable"));

    assert_eq!(client.call(Method::GET, &path, None).await.0, 503);
    assert_eq!(client.call(Method::GET, &path, None).await, (200, Value::Null));
    let (status, changed) = client.call(Method::GET, &path, None).await;
    assert_eq!((status, &changed["spec"]["futureField"], &changed["spec"]["holderIdentity"]), (200, &json!(1), &json!("x")));
    client.attempt(Method::GET, &path, None).await.expect_err("the connection ended");
    client.attempt(Method::GET, &path, None).await.expect_err("half of the body is missing");
    assert_eq!(client.call(Method::GET, &path, None).await.0, 200);
}

async fn held_bytes_arrive_once_the_flow_is_open(stage: Stage) {
    let (proxy, client) = stage.client().await;
    let mut object = stage.lease.create(spec("x")).await;
    let path = stage.lease.path();
    assert_eq!(client.call(Method::GET, &path, None).await.0, 200);
    for (held, flow) in [("requests", Proxy::requests as fn(&Proxy, Flow)), ("replies", Proxy::replies)] {
        object["spec"]["holderIdentity"] = json!(held);
        flow(&proxy, Flow::Held);
        let mut pending = Box::pin(client.call(Method::PUT, &path, Some(&object)));
        assert!(tokio::time::timeout(PROMPT, &mut pending).await.is_err(), "{held} are held");
        let done = stage.lease.read().await.expect("a Lease")["spec"]["holderIdentity"] == held;
        assert_eq!(done, held == "replies");

        flow(&proxy, Flow::Open);

        let (status, body) = pending.await;
        assert_eq!(status, 200);
        object = body;
    }
}

async fn connections_can_be_reset_and_refused(stage: Stage) {
    let (proxy, client) = stage.client().await;
    stage.lease.create(spec("x")).await;
    let path = stage.lease.path();
    let valve = Valve::closed();
    proxy.on(|_| true, Times::Only(1), Fault::late_reply(&valve));
    let mut pending = Box::pin(client.attempt(Method::GET, &path, None));
    assert!(tokio::time::timeout(PROMPT, &mut pending).await.is_err());

    proxy.reset();
    pending.await.expect_err("reset");
    proxy.refuse().await;
    client.attempt(Method::GET, &path, None).await.expect_err("refused");
    proxy.mend().await;
    assert_eq!(client.call(Method::GET, &path, None).await.0, 200);

    proxy.cut();
    assert!(tokio::time::timeout(PROMPT, client.attempt(Method::GET, &path, None)).await.is_err(), "cut off");
}

async fn events_of_a_watch_can_be_changed(stage: Stage) {
    let (proxy, client) = stage.client().await;
    proxy.on(
        |request| request.verb == Verb::Watch,
        Times::Always,
        Fault::changed(|lease| lease["spec"]["leaseDurationSeconds"] = json!(-1)),
    );
    stage.lease.create(spec("x")).await;
    let uri = format!("{}?watch=1&fieldSelector=metadata.name%3Dmain&timeoutSeconds=5", stage.lease.collection());

    let (status, event) = client.call(Method::GET, &uri, None).await;

    assert_eq!((status, &event["type"]), (200, &json!("ADDED")));
    assert_eq!(event["object"]["spec"], json!({ "holderIdentity": "x", "leaseDurationSeconds": -1 }));
}

async fn the_minimal_rights_are_minimal(stage: Stage) {
    let (_proxy, client) = stage.client().await;
    let mut object = stage.lease.create(spec("x")).await;
    let path = stage.lease.path();

    assert_eq!(client.call(Method::GET, &path, None).await.0, 200);
    object["spec"]["holderIdentity"] = json!("y");
    assert_eq!(client.call(Method::PUT, &path, Some(&object)).await.0, 200);
    assert_eq!(client.call(Method::DELETE, &path, None).await.0, 403);
    assert_eq!(client.call(Method::GET, &stage.lease.collection(), None).await.0, 403);
    assert_eq!(client.call(Method::GET, &format!("{path}-other"), None).await.0, 403);
}

async fn a_workload_stamps_until_it_is_killed(stage: Stage) {
    let mut child = stage.bare_workload("a", "1", &Behaviour::stubborn());
    let start = stage.witness.start("a", 0).await;
    assert_eq!(start.variable("TENURE_FENCING_TOKEN"), "1");

    let seen = tokio::time::timeout(PATIENCE, stamps_after(&stage, start.at())).await;
    child.end();

    let [life] = &stage.witness.lives()[..] else { panic!("one life") };
    assert!(life.first <= start.at() && life.last >= life.first);
    assert!(life.last <= tenure::clock::boot());
    assert!(life.last >= seen.expect("stamps in time"), "the stamps went on to the end");
}

/// Waits for many more stamps of `a`'s workload after this one; returns the last.
async fn stamps_after(stage: &Stage, mut seen: Instant) -> Instant {
    for _ in 0..STAMPS {
        while stage.witness.last_alive("a") <= seen {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        seen = stage.witness.last_alive("a");
    }
    seen
}

async fn two_workloads_at_once_are_found(stage: Stage) {
    let first = stage.bare_workload("a", "1", &Behaviour::stubborn());
    stage.witness.start("a", 0).await;
    let second = stage.bare_workload("b", "2", &Behaviour::obedient());
    stage.witness.start("b", 0).await;
    nix::sys::signal::kill(first.pid(), nix::sys::signal::Signal::SIGHUP).expect("a lives");
    stage.witness.signal("a", "SIGHUP").await;
    drop((first, second));

    assert!(stage.witness.overlap().is_some());
    stage.witness.forget();
}

async fn a_daemon_of_a_workload_is_part_of_its_life(stage: Stage) {
    let behaviour = Behaviour { daemon: true, ..Behaviour::obedient() };
    let mut child = stage.bare_workload("a", "1", &behaviour);
    let main = stage.witness.start("a", 0).await;
    let daemon = stage.witness.start("a", 1).await;
    assert_ne!(main.pid, daemon.pid);
    let pid = nix::unistd::Pid::from_raw(i32::try_from(daemon.pid).expect("a pid"));

    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("the daemon lives");
    stage.witness.signal("a", "SIGTERM").await;
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("the daemon lives");
    child.end();

    assert_eq!(stage.witness.lives().len(), 1);
}
