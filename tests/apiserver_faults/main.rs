//! The faults that a test can inject for clients of the embedded API server, and what it can observe of those clients.

#![allow(clippy::expect_used, reason = "a test fails by panicking, and says why")]

use std::collections::BTreeSet;

use http::{Method, Request, header};
use kube::client::Body;
use serde_json::{Value, json};
use tenure::apiserver::{Fate, Fault, Link, Namespaces, On, Place, Rules};
use tokio::time::timeout;

mod watches;
mod world;

use world::{A, Hand, LEASES, PATIENCE, SILENCE, World, lease};

#[tokio::test]
async fn every_client_is_told_apart_and_nobody_else_is_let_in() {
    let world = World::new();
    let (alice, bob) = (Hand::of(&world.client("alice")).await, Hand::of(&world.client("bob")).await);
    let mut stranger = world.client("carol").kubeconfig();
    stranger = stranger.replace(world.client("carol").token(), world.client("alice").token());

    alice.get("a").await.expect("an answer");
    bob.get("a").await.expect("an answer");
    let refused = Hand::with(&stranger).await.get("a").await.expect("an answer");

    assert_eq!((refused.0, &refused.1["reason"]), (401, &json!("Unauthorized")));
    let clients: Vec<String> = world.server.journal().into_iter().map(|entry| entry.client).collect();
    assert_eq!(clients, ["alice", "bob", ""]);
}

#[tokio::test]
async fn the_journal_tells_what_came_when_and_what_became_of_it() {
    let world = World::new();
    let hand = world.hand("alice").await;

    hand.post("a").await.expect("an answer");
    hand.get("b").await.expect("an answer");

    let [post, get] = &world.server.journal()[..] else { panic!("two requests") };
    assert_eq!((&post.method, post.path.as_str(), post.code()), (&Method::POST, LEASES, Some(201)));
    assert_eq!(serde_json::from_slice::<Value>(&post.body).expect("JSON"), lease("a"));
    assert_eq!(post.version, Some(world.server.store(|store| store.version())));
    assert!(post.carried_out.is_some_and(|at| at >= post.arrived));
    assert!(matches!(post.fate, Fate::Answered { at, .. } if Some(at) >= post.carried_out));
    assert_eq!((get.code(), get.version), (Some(404), None));
    assert!(get.arrived >= post.arrived);
}

#[tokio::test]
async fn a_late_commit_comes_although_the_client_gave_up() {
    let world = World::new();
    let hand = world.hand("alice").await;
    world.client("alice").inject_times(1, Fault::LateCommit(10 * SILENCE), On::Writes);

    let given_up = timeout(SILENCE, hand.post("a")).await;
    drop(hand);

    assert!(given_up.is_err() && !world.has("a"));
    world.wait_for("a").await;
}

#[tokio::test]
async fn a_late_reply_hides_a_commit_that_is_there_at_once() {
    let world = World::new();
    let hand = world.hand("alice").await;
    world.client("alice").inject(Fault::LateReply(SILENCE), On::Writes);

    let answer = hand.post("a").await;

    assert_eq!(answer.expect("an answer").0, 201);
    let entry = &world.server.journal()[0];
    let Fate::Answered { at, .. } = entry.fate else { panic!("an answer") };
    assert!(at.since(entry.carried_out.expect("carried out")) >= SILENCE);
}

#[tokio::test]
async fn a_dropped_request_is_not_carried_out_and_a_dropped_reply_is() {
    let world = World::new();
    let hand = world.hand("alice").await;
    let client = world.client("alice");
    client.inject_times(1, Fault::DropRequest, On::Writes);
    client.inject_times(1, Fault::DropReply, On::Writes);

    hand.post("a").await.expect_err("no answer");
    let first = world.has("a");
    hand.post("a").await.expect_err("no answer");
    let second = world.has("a");
    let third = hand.post("a").await.expect("an answer").0;

    assert_eq!((first, second, third), (false, true, 409));
    assert_eq!(world.server.journal()[0].fate, Fate::Dropped);
}

#[tokio::test]
async fn a_black_hole_swallows_requests_and_a_swallowed_reply_was_carried_out() {
    let world = World::new();
    let hand = world.hand("alice").await;
    let client = world.client("alice");
    client.inject_times(1, Fault::BlackHole, On::Method(Method::POST));
    client.inject_times(1, Fault::SwallowReply, On::Method(Method::POST));

    timeout(SILENCE, hand.post("a")).await.expect_err("no answer");
    let first = world.has("a");
    timeout(SILENCE, hand.post("a")).await.expect_err("no answer");

    assert!(!first && world.has("a"));
    assert!(world.server.journal().iter().all(|entry| entry.fate == Fate::Open));
}

#[tokio::test]
async fn a_refusal_says_when_to_come_back() {
    let world = World::new();
    let hand = world.hand("alice").await;
    world.client("alice").inject(Fault::Refuse { code: 429, retry_after: Some(7) }, On::Any);

    let request = Request::get(LEASES).body(Body::empty()).expect("a request");
    let answer = hand.0.send(request).await.expect("an answer");

    assert_eq!(answer.status(), 429);
    assert_eq!(answer.headers().get(header::RETRY_AFTER).map(http::HeaderValue::as_bytes), Some(b"7".as_slice()));
}

#[tokio::test]
async fn half_an_answer_and_a_wrong_one_hide_a_commit() {
    let world = World::new();
    let hand = world.hand("alice").await;
    let client = world.client("alice");
    client.inject_times(1, Fault::Truncate, On::Writes);
    client.inject_times(1, Fault::Garbage, On::Writes);

    hand.post("a").await.expect_err("half a body");
    let odd = hand.post("b").await.expect("an answer");

    assert!(world.has("a") && world.has("b"));
    assert_eq!(odd, (200, Value::Null));
}

#[tokio::test]
async fn faults_of_one_client_are_nothing_to_another_and_can_be_healed() {
    let world = World::new();
    let (alice, bob) = (world.hand("alice").await, world.hand("bob").await);
    let client = world.client("alice");
    client.inject(Fault::Refuse { code: 503, retry_after: None }, On::Any);

    let (sick, sound) = (alice.get("a").await.expect("an answer").0, bob.get("a").await.expect("an answer").0);
    client.heal();

    assert_eq!((sick, sound, alice.get("a").await.expect("an answer").0), (503, 404, 404));
}

#[tokio::test]
async fn what_a_cut_link_held_back_arrives_once_it_is_up_again() {
    let world = World::new();
    let hand = world.hand("alice").await;
    let client = world.client("alice");
    hand.get("a").await.expect("a connection");
    client.set_link(Link::Cut);

    let post = async {
        let early = timeout(SILENCE, std::future::pending::<()>());
        let mut answer = Box::pin(hand.post("a"));
        tokio::select! {
            _ = &mut answer => panic!("answered over a cut link"),
            _ = early => {}
        }
        let committed_early = world.has("a");
        client.set_link(Link::Up);
        (committed_early, answer.await)
    };
    let (committed_early, answer) = timeout(PATIENCE, post).await.expect("an answer in time");

    assert!(!committed_early);
    assert_eq!(answer.expect("an answer").0, 201);
}

#[tokio::test]
async fn a_partition_can_be_one_way() {
    let world = World::new();
    let hand = world.hand("alice").await;
    let client = world.client("alice");
    hand.get("a").await.expect("a connection");

    client.set_link(Link::RepliesHeld);
    timeout(SILENCE, hand.post("a")).await.expect_err("no answer");
    world.wait_for("a").await;
    client.heal();
    hand.get("a").await.expect("a connection");
    let mut watch = hand.watch("").await;
    assert_eq!(watch.next().await.expect("an event").0, "ADDED");
    client.set_link(Link::RequestsHeld);
    timeout(SILENCE, hand.post("b")).await.expect_err("no answer");
    world.server.store(|store| store.plant(Place { name: "c", ..A }, json!({})));

    assert!(!world.has("b"));
    assert_eq!(watch.next().await.expect("an event").1["metadata"]["name"], "c");
}

#[tokio::test]
async fn refused_connections_are_accepted_again_at_the_same_address() {
    let world = World::new();
    let hand = world.hand("alice").await;
    let client = world.client("alice");
    hand.get("a").await.expect("an answer");

    client.set_link(Link::Refused);
    let refused = timeout(PATIENCE, async { while hand.get("a").await.is_ok() {} }).await;
    client.set_link(Link::Up);
    let accepted = timeout(PATIENCE, async { while hand.get("a").await.is_err() {} }).await;

    assert!(refused.is_ok() && accepted.is_ok());
}

#[tokio::test]
async fn connections_can_be_reset() {
    let world = World::new();
    let hand = world.hand("alice").await;
    let mut watch = hand.watch("").await;

    world.client("alice").reset();

    assert!(watch.next().await.is_none());
}

#[tokio::test]
async fn nonsense_that_was_planted_is_served_as_it_is() {
    let world = World::new();
    let hand = world.hand("alice").await;
    let spec = json!({ "leaseDurationSeconds": -5, "renewTime": 7, "holderIdentity": ["x"] });

    world.server.store(|store| store.plant(A, json!({ "spec": spec })));
    let served = hand.get("a").await.expect("an answer").1;

    assert_eq!(served["spec"], spec);
    assert_eq!(served["metadata"]["name"], "a");
}

#[tokio::test]
async fn a_namespace_can_be_missing() {
    let rules = Rules { namespaces: Namespaces::Only(BTreeSet::from(["here".to_owned()])), ..Rules::default() };
    let world = World::with(rules);
    let hand = world.hand("alice").await;
    let mut invalid = lease("a");
    invalid["spec"]["leaseDurationSeconds"] = json!(0);

    let (code, status) = hand.call(Method::POST, LEASES, &invalid).await.expect("an answer");
    let there = LEASES.replace("default", "here");

    assert_eq!((code, &status["message"]), (404, &json!("namespaces \"default\" not found")));
    assert_eq!(status["details"], json!({ "name": "default", "kind": "namespaces" }));
    assert_eq!(hand.call(Method::POST, &there, &lease("a")).await.expect("an answer").0, 201);
}

#[tokio::test]
async fn without_its_feature_gate_a_strategy_is_dropped() {
    let world = World::new();
    let hand = world.hand("alice").await;
    let mut object = lease("a");
    object["spec"] = json!({ "strategy": "OldestEmulationVersion", "preferredHolder": "x", "holderIdentity": "y" });

    let (code, created) = hand.call(Method::POST, LEASES, &object).await.expect("an answer");

    assert_eq!((code, &created["spec"]), (201, &json!({ "holderIdentity": "y" })));
}
