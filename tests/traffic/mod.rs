//! Traffic to the leader, on a real kube-apiserver: its address is in the EndpointSlice from its readiness to its stop, no late write
//! overwrites a successor's, and nothing of it costs a term. And the Events about it.

use std::{fs, net::Ipv4Addr, time::Duration};

use http::Method;
use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use support::{
    Behaviour, Case, Exchange, Fault, Life, PATIENCE, Prepared, Replica, Request, Stage, Times, Valve, Verbs, cases, safe,
    spec::{self, released},
    stalls, timing, within,
};
use tenure::{clock, election::publication::TOKEN, law::WITHDRAWAL, time::Instant};
use tokio::{io::AsyncReadExt as _, net::TcpStream};

/// As in deploy/examples/service.yaml.
const SLICE: &str = "billing-leader";

const NOT_AS_IT_SHOULD_BE: &str = "the EndpointSlice is not as it should be";

pub(crate) fn all() -> Vec<Case> {
    cases![
        a_leader_is_published_once_it_is_ready_and_withdrawn_as_it_stops,
        clients_of_the_slice_are_answered_by_the_leader_alone,
        a_late_write_of_a_frozen_leader_overwrites_no_successor,
        without_the_rights_a_term_goes_on_and_it_is_said_once,
        a_server_that_hangs_on_slices_delays_neither_a_renewal_nor_the_release,
        without_an_address_it_does_not_start,
        transitions_are_told_as_events,
    ]
}

/// The rules of the Role in deploy/examples/service.yaml beside that on its Lease.
fn rules() -> Vec<Value> {
    let documents = include_str!("../../deploy/examples/service.yaml").split("---");
    let mut objects = documents.map(|text| serde_saphyr::from_str::<Value>(text).expect("YAML"));
    let role = objects.find(|object| object["kind"] == "Role").expect("a Role");
    role["rules"].as_array().expect("rules")[1..].to_vec()
}

async fn create_slice(stage: &Stage, kind: &str) {
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": kind, "endpoints": null,
        "metadata": { "name": SLICE, "labels": { "kubernetes.io/service-name": "billing" } },
    });
    stage.api.create(&path(stage, ""), &slice).await;
}

fn path(stage: &Stage, name: &str) -> String {
    format!("/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices{name}", stage.namespace)
}

async fn slice(stage: &Stage) -> Value {
    stage.api.call(Method::GET, &path(stage, &format!("/{SLICE}")), None).await.1
}

/// With these rights beside those on its Lease.
async fn prepare_with(stage: &Stage, name: &str, address: &str, others: Vec<Value>) -> Prepared {
    let prepared = stage.prepare_with(name, &Verbs { others, ..Verbs::default() }).await;
    let mut prepared = prepared
        .set("service.endpointSlice", SLICE)
        .set("service.ports", json!([{ "name": "http", "port": 8080 }, { "name": "dns", "port": 53, "protocol": "UDP" }]));
    let env = [("POD_IPS", address), ("POD_NAME", name), ("NODE_NAME", "node-1")];
    prepared.launch.env.extend(env.map(|(name, value)| (name.to_owned(), value.to_owned())));
    prepared
}

async fn prepare(stage: &Stage, name: &str, address: &str) -> Prepared {
    prepare_with(stage, name, address, rules()).await
}

fn is_of_slice(request: &Request) -> bool {
    request.uri.contains("/endpointslices/")
}

fn is_write(request: &Request) -> bool {
    is_of_slice(request) && request.body.is_object()
}

/// The addresses in a slice.
fn addresses(slice: &Value) -> Vec<&str> {
    let endpoints = slice["endpoints"].as_array().map(Vec::as_slice).unwrap_or_default();
    endpoints.iter().flat_map(|endpoint| endpoint["addresses"].as_array().unwrap()).map(|it| it.as_str().unwrap()).collect()
}

fn token(slice: &Value) -> u64 {
    slice["metadata"]["annotations"][TOKEN].as_str().and_then(|token| token.parse().ok()).expect("a token")
}

fn publishes(request: &Request) -> bool {
    is_write(request) && !addresses(&request.body).is_empty()
}

fn withdraws(request: &Request) -> bool {
    is_write(request) && addresses(&request.body).is_empty()
}

async fn published(me: &Replica) -> Exchange {
    me.proxy.log.first("it is published", |e| publishes(&e.request) && e.succeeded()).await
}

/// Each write that the server took, in its order.
fn accepted(replicas: &[&Replica]) -> Vec<Value> {
    let all = replicas.iter().flat_map(|me| me.proxy.log.all());
    let mut taken: Vec<_> = all.filter(|e| is_write(&e.request) && e.succeeded()).collect();
    taken.sort_by_key(|e| e.version().parse::<u64>().unwrap());
    taken.into_iter().map(|e| e.answer.unwrap().body).collect()
}

fn said(me: &Replica, words: &str) -> usize {
    me.lines().iter().filter(|line| line.contains(words)).count()
}

async fn a_leader_is_published_once_it_is_ready_and_withdrawn_as_it_stops(stage: Stage) {
    create_slice(&stage, "IPv4").await;
    stage.lease.create(released()).await;
    let ready = stage.directory().join("ready");
    let readiness = json!({ "file": { "path": ready }, "period": "100ms" });
    let a = prepare(&stage, "a", "10.0.0.1").await.set("workload.readiness", readiness);
    let a = a.workload(&Behaviour::lingering(Duration::from_secs(1))).start();
    let start = stage.witness.start("a", 0).await;
    let claim = a.proxy.log.first("a term's first write", |e| is_write(&e.request) && e.succeeded()).await;
    assert!(addresses(&claim.request.body).is_empty(), "it is not ready");
    assert_eq!(token(&claim.request.body).to_string(), start.variable("TENURE_FENCING_TOKEN"));
    let b = prepare(&stage, "b", "10.0.0.2").await.unhurried().start();
    b.said("another replica holds the Lease").await;
    let wrote = clock::boot();
    assert_eq!(a.proxy.log.count(|e| publishes(&e.request)), 0);

    fs::write(&ready, "").unwrap();
    let publication = published(&a).await;

    assert!(publication.request.at > wrote);
    let stored = publication.answer.unwrap().body;
    let pod = json!({ "kind": "Pod", "name": "a", "namespace": stage.namespace });
    let conditions = json!({ "ready": true, "serving": true, "terminating": false });
    let endpoint = json!({ "addresses": ["10.0.0.1"], "conditions": conditions, "nodeName": "node-1", "targetRef": pod });
    assert_eq!(stored["endpoints"], json!([endpoint]));
    let ports = json!([{ "name": "http", "port": 8080, "protocol": "TCP" }, { "name": "dns", "port": 53, "protocol": "UDP" }]);
    assert_eq!(stored["ports"], ports);
    assert_eq!(stored["metadata"]["labels"]["kubernetes.io/service-name"], "billing");
    assert_eq!(stored["metadata"]["managedFields"], Value::Null, "the server kept it by itself");

    a.proxy.on(withdraws, Times::Only(1), Fault::slow_reply(Duration::from_millis(200)));
    let asked = clock::boot();
    a.signal(Signal::SIGTERM).await;
    let stop = stage.witness.signal("a", "SIGTERM").await;
    let withdrawal = a.proxy.log.nth(1, "it is withdrawn", |e| withdraws(&e.request) && e.succeeded()).await;
    let is_answered = withdrawal.answered_at() < stop.at();
    assert!(is_answered || stop.at() >= asked + WITHDRAWAL, "its workload is told to stop after the answer, or the wait");
    assert_eq!(a.exit().await, 0);
    let successor = published(&b).await;
    assert_eq!(addresses(&successor.request.body), ["10.0.0.2"]);
    let written = accepted(&[&a, &b]);
    safe(written.is_sorted_by_key(token), || format!("a token fell: {written:#?}"));
    let requests = b.proxy.log.count(|e| is_of_slice(&e.request) && e.request.at < stop.at());
    assert_eq!(requests, 0, "a standby asks nothing");

    b.proxy.on(withdraws, Times::Only(1), Fault::refused(503, "ServiceUnavailable"));
    assert_eq!(b.stop().await, 0);
    let left = slice(&stage).await;
    assert_eq!(addresses(&left), [""; 0], "and where nobody follows it is gone too, though the first withdrawal failed");
}

/// Asks as fast as it can, each time at the address that the slice has by then; returns who answered, and when. Ends after a
/// hundred answers of those for whom it waits.
async fn ask(stage: &Stage, ports: &[(&str, u16)], is_awaited: impl Fn(&str) -> bool) -> Vec<(Instant, String)> {
    let mut answers = Vec::new();
    let mut awaited = 0;
    within(PATIENCE, "an answer", async {
        loop {
            let slice = slice(stage).await;
            let port = addresses(&slice).first().and_then(|found| ports.iter().find(|(address, _)| address == found));
            let Some((_, port)) = port else { continue };
            let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).await else { continue };
            let mut said = String::new();
            if server.read_to_string(&mut said).await.is_ok_and(|length| length > 0) {
                awaited += u32::from(is_awaited(&said));
                answers.push((clock::boot(), said));
                if awaited == 100 {
                    return;
                }
            }
        }
    })
    .await;
    answers
}

async fn clients_of_the_slice_are_answered_by_the_leader_alone(stage: Stage) {
    create_slice(&stage, "IPv4").await;
    stage.lease.create(released()).await;
    let (mut replicas, mut ports, mut kept) = (Vec::new(), Vec::new(), Vec::new());
    for (name, address) in [("a", "10.0.0.1"), ("b", "10.0.0.2"), ("c", "10.0.0.3")] {
        let (own, socket) = stage.free_address();
        let behaviour = Behaviour { listen: Some(own.port()), ..Behaviour::lingering(Duration::from_millis(100)) };
        let readiness = json!({ "tcp": { "port": own.port() }, "period": "20ms" });
        let prepared = prepare(&stage, name, address).await.set("workload.readiness", readiness);
        // A stall of the machine shall not make a third change of the leader.
        let prepared = prepared.set("lease.duration", "10s");
        replicas.push(prepared.workload(&behaviour).start());
        ports.push((address, own.port()));
        kept.push(socket);
        if name == "a" {
            stage.witness.start("a", 0).await;
        }
    }
    replicas[2].said("another replica holds the Lease").await;
    let of = |answer: &str| answer.split(' ').next().unwrap().to_owned();
    let mut all = ask(&stage, &ports, |_| true).await;
    assert_eq!(of(&all[0].1), "a");

    replicas[0].signal(Signal::SIGTERM).await;
    all.extend(ask(&stage, &ports, |answer| of(answer) != "a").await);
    let next = usize::from(of(&all.last().unwrap().1) == "c") + 1;
    replicas[next].signal(Signal::SIGKILL).await;
    all.extend(ask(&stage, &ports, |answer| of(answer) == ["a", "c", "b"][next]).await);

    let lives = stage.witness.lives();
    for (at, answer) in &all {
        let is_its = |life: &&Life| *answer == format!("{} {}", life.replica, life.token) && life.first < *at;
        assert!(lives.iter().any(|life| is_its(&life)), "{answer:?} by no leader: {lives:?}");
    }
    assert!(all.is_sorted_by_key(|(_, answer)| answer.split(' ').nth(1).unwrap().parse::<u64>().unwrap()), "{all:?}");
    let change = |(one, two): (&(Instant, String), &(Instant, String))| (one.1 != two.1).then(|| two.0.since(one.0));
    let gaps: Vec<_> = all.iter().zip(&all[1..]).filter_map(change).collect();
    eprintln!("{} requests were answered by leaders, and none by others; without an answer for {gaps:?}", all.len());
    let [handover, crash] = gaps[..] else { panic!("{gaps:?}") };
    let slack = Duration::from_secs(4) + stalls::since(all[0].0);
    assert!(handover < slack, "{handover:?} without an answer in a handover");
    assert!(crash < spec::wait(10.0) + slack, "{crash:?} without an answer after a crash");
}

async fn a_late_write_of_a_frozen_leader_overwrites_no_successor(stage: Stage) {
    create_slice(&stage, "IPv4").await;
    stage.lease.create(released()).await;
    let a = prepare(&stage, "a", "10.0.0.1").await;
    let valve = Valve::closed();
    a.proxy.on(publishes, Times::Only(1), Fault::late_request(&valve));
    let a = a.start();
    let late = a.proxy.log.first("a publication that is under way", |e| publishes(&e.request)).await;
    kill(a.elector().await, Signal::SIGSTOP).unwrap();
    let b = prepare(&stage, "b", "10.0.0.2").await.start();
    published(&b).await;

    valve.open();

    let is_it = |e: &Exchange| e.request.at == late.request.at && e.answer.is_some();
    let late = a.proxy.log.first("its answer", is_it).await;
    assert_eq!(late.answer.unwrap().status, 409);
    let slice = slice(&stage).await;
    assert_eq!(addresses(&slice), ["10.0.0.2"]);
    let written = accepted(&[&a, &b]);
    safe(written.is_sorted_by_key(token), || format!("a token fell: {written:#?}"));
}

async fn without_the_rights_a_term_goes_on_and_it_is_said_once(stage: Stage) {
    create_slice(&stage, "IPv4").await;
    stage.lease.create(released()).await;
    let a = prepare_with(&stage, "a", "10.0.0.1", Vec::new()).await.set("events.enabled", true).unhurried().start();

    a.proxy.log.nth(4, "a fifth attempt", |e| is_of_slice(&e.request)).await;

    assert_eq!(said(&a, NOT_AS_IT_SHOULD_BE), 1, "{:?}", a.lines());
    assert_eq!(said(&a, "forbidden"), 2, "and that an Event was not accepted: {:?}", a.lines());
    assert_eq!(stage.witness.starts("a"), 1);
}

async fn a_server_that_hangs_on_slices_delays_neither_a_renewal_nor_the_release(stage: Stage) {
    create_slice(&stage, "IPv4").await;
    stage.lease.create(released()).await;
    let a = prepare(&stage, "a", "10.0.0.1").await.set("events.enabled", true).unhurried();
    a.proxy.on(|request| is_of_slice(request) || request.uri.contains("/events"), Times::Always, Fault::lost_request());
    let a = a.start();
    stage.witness.start("a", 0).await;
    a.proxy.log.first("an attempt", |e| is_of_slice(&e.request)).await;

    let renews = |e: &Exchange| e.request.is_held() && e.succeeded();
    let renewal = async |nth| a.proxy.log.nth(nth, "a renewal", renews).await.request.at;
    let (first, fourth) = (renewal(1).await, renewal(4).await);
    // One that waited for the slice would come after an attemptTimeout of 5 s.
    assert!(fourth.since(first) < timing::RENEW_PERIOD * 3 + Duration::from_secs(4), "each is as due as ever");

    a.signal(Signal::SIGTERM).await;
    let end = stage.witness.first("its end", |event| event.what == "end").await;
    let release = a.proxy.log.first("a release", |e| e.request.is_release()).await;
    assert!(release.request.at.since(end.at()) < Duration::from_secs(4));
    assert_eq!(a.exit().await, 0);
}

async fn without_an_address_it_does_not_start(stage: Stage) {
    let mut a = prepare(&stage, "a", "10.0.0.1").await;
    a.launch.env.clear();
    let a = a.start();

    assert_eq!(a.exit().await, 78);
    assert_eq!(said(&a, "fieldPath: status.podIPs"), 1, "{:?}", a.lines());
}

async fn transitions_are_told_as_events(stage: Stage) {
    stage.lease.create(released()).await;
    let prepared = stage.prepare_with("a", &Verbs { others: rules(), ..Verbs::default() }).await;
    let a = prepared.set("events.enabled", true).unhurried().start();
    stage.witness.start("a", 0).await;
    a.proxy.log.first("an Event", |e| e.request.uri.contains("/events") && e.succeeded()).await;

    assert_eq!(a.stop().await, 0);

    let path = format!("/apis/events.k8s.io/v1/namespaces/{}/events", stage.namespace);
    let mut events = stage.api.call(Method::GET, &path, None).await.1["items"].take();
    let events = events.as_array_mut().unwrap();
    events.sort_by_key(|event| event["eventTime"].as_str().unwrap().to_owned());
    let uid = stage.lease.read().await.unwrap()["metadata"]["uid"].clone();
    for event in events.iter() {
        assert_eq!((&event["regarding"]["kind"], &event["regarding"]["uid"]), (&json!("Lease"), &uid));
        assert_eq!((&event["type"], &event["reportingController"]), (&json!("Normal"), &json!("tenure.dev/elector")));
    }
    let told: Vec<_> = events.iter().map(|event| (event["reason"].as_str().unwrap(), event["note"].as_str().unwrap())).collect();
    let reasons: Vec<_> = told.iter().map(|(reason, _)| *reason).collect();
    assert_eq!(reasons, ["StartedLeading", "Stopping", "StoppedLeading"], "{told:?}");
    assert!(
        told[0].1.contains("leads in term") && told[2].1.ends_with(": signal; its workload ended with exit code 0"),
        "{told:?}"
    );
}
