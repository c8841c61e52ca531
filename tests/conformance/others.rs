//! Cases 48 to 53: what others than its holder write into a Lease.

use std::time::Duration;

use http::Request;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use support::{
    Behaviour, Case, Exchange, Fault, Replica, Stage, Times, Verb, cases, server::COORDINATED, spec::released, timing,
};
use tenure::clock;

pub fn all() -> Vec<Case> {
    let mut cases = cases![
        case_51_fields_of_the_future_are_kept,
        case_51_who_wrote_which_field_is_kept_only_once_somebody_applies_the_lease,
        case_53_labels_are_added_where_there_were_none,
    ];
    let coordinated = cases![
        case_48_a_preferred_other_is_given_way,
        case_48_being_preferred_changes_nothing,
        case_49_a_lease_kept_for_another_is_not_taken,
        case_50_every_write_on_a_lease_keeps_its_strategy,
        case_50_no_preferred_holder_is_written_without_a_strategy,
    ];
    cases.extend(coordinated.into_iter().map(|case| case.since(COORDINATED)));
    cases
}

/// A coordinator sets this holder as preferred.
async fn prefer(stage: &Stage, holder: &str) -> Value {
    let preference = |lease: &mut Value| {
        lease["spec"]["strategy"] = json!("OldestEmulationVersion");
        lease["spec"]["preferredHolder"] = json!(holder);
    };
    stage.lease.edit(preference).await
}

/// The resourceVersion of an object, or on which a write is based.
fn base(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().expect("a version").parse().expect("a number")
}

fn assert_strategy_kept(me: &Replica, object: &Value) {
    let writes = me.proxy.log.writes().into_iter().filter(|write| base(&write.request.body) >= base(object));
    for write in writes {
        assert_eq!(write.request.spec()["strategy"], "OldestEmulationVersion", "{:?}", write.request);
    }
}

async fn case_48_a_preferred_other_is_given_way(stage: Stage) {
    let linger = Behaviour::lingering(Duration::from_secs(4));
    let prepared = stage.prepare("me").await.unhurried().workload(&linger).set("workload.stop.grace", "10s");
    let (me, _) = stage.lead(prepared).await;

    let object = prefer(&stage, "x_1").await;

    let stop = stage.witness.signal("me", "SIGTERM").await;
    let release = me.proxy.log.first("a release", |e| e.request.is_release() && e.succeeded()).await;
    stage.witness.assert_gone("me", release.request.at);
    assert_strategy_kept(&me, &object);
    let renewed = |e: &Exchange| e.request.at > stop.at() && e.request.is_held() && e.succeeded();
    assert!(me.proxy.log.count(renewed) >= 1, "it renews while its workload stops");
}

async fn case_48_being_preferred_changes_nothing(stage: Stage) {
    let (me, start) = stage.lead(stage.prepare("me").await.unhurried()).await;
    let identity = start.variable("TENURE_IDENTITY").to_owned();

    let object = prefer(&stage, &identity).await;

    let renewed = |e: &Exchange| e.request.is_held() && e.succeeded() && base(&e.request.body) >= base(&object);
    me.proxy.log.nth(3, "renewals of it", renewed).await;
    assert_strategy_kept(&me, &object);
    assert_eq!(stage.witness.all().len(), 1, "the workload noticed nothing");
}

/// Free, and kept for `x_1`.
fn kept() -> Value {
    let mut spec = released();
    spec["strategy"] = json!("OldestEmulationVersion");
    spec["preferredHolder"] = json!("x_1");
    spec
}

async fn case_49_a_lease_kept_for_another_is_not_taken(stage: Stage) {
    let since = clock::boot();
    stage.lease.create(kept()).await;
    let me = stage.prepare("me").await.start();

    me.said("the Lease has a strategy").await;
    me.proxy.log.first("a later read", |e| e.request.verb == Verb::Get && e.request.at > since + timing::DURATION * 2).await;

    assert!(me.proxy.log.writes().is_empty());
}

async fn case_50_every_write_on_a_lease_keeps_its_strategy(stage: Stage) {
    let (me, start) = stage.lead(stage.prepare("me").await.unhurried()).await;
    let object = prefer(&stage, start.variable("TENURE_IDENTITY")).await;
    me.proxy
        .log
        .first("a renewal of it", |e| e.request.is_held() && e.succeeded() && base(&e.request.body) >= base(&object))
        .await;

    assert_eq!(me.stop().await, 0);
    let release = me.proxy.log.first("the release", |e| e.request.is_release() && e.succeeded()).await;
    assert!(base(&release.request.body) >= base(&object));
    assert_strategy_kept(&me, &object);
}

async fn case_50_no_preferred_holder_is_written_without_a_strategy(stage: Stage) {
    let prepared = stage.prepare("me").await.unhurried();
    let is_seen_without = |lease: &mut Value| drop(lease["spec"].as_object_mut().expect("a spec").remove("strategy"));
    prepared.proxy.on(|_| true, Times::Always, Fault::changed(is_seen_without));
    stage.lease.create(kept()).await;
    let me = prepared.start();
    stage.witness.start("me", 0).await;

    me.proxy.log.first("a renewal", |e| e.request.is_held() && e.succeeded()).await;

    for write in me.proxy.log.writes() {
        assert!(write.request.spec().get("preferredHolder").is_none(), "{:?}", write.request);
    }
}

async fn case_51_fields_of_the_future_are_kept(stage: Stage) {
    let prepared = stage.prepare("me").await.unhurried();
    prepared.proxy.on(|_| true, Times::Always, Fault::changed(|lease| lease["spec"]["futureField"] = json!({ "a": 1 })));
    let (me, _) = stage.lead(prepared).await;
    me.proxy.log.nth(2, "renewals", |e| e.request.is_held() && e.succeeded()).await;

    me.signal(Signal::SIGTERM).await;

    me.proxy.log.first("a release", |e| e.request.is_release() && e.succeeded()).await;
    for write in me.proxy.log.writes() {
        assert_eq!(write.request.spec()["futureField"], json!({ "a": 1 }));
    }
    assert_eq!(me.exit().await, 0);
}

async fn case_51_who_wrote_which_field_is_kept_only_once_somebody_applies_the_lease(stage: Stage) {
    let managers = |object: &Value| object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    assert_eq!(managers(&stage.lease.create(released()).await).len(), 1, "the server keeps it by itself");
    let me = stage.prepare("me").await.unhurried().start();
    stage.witness.start("me", 0).await;
    assert_eq!(managers(&stage.lease.read().await.expect("a Lease")), [Value::Null; 0]);

    let object = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "labels": { "team": "a" } } });
    let path = format!("{}?fieldManager=owner", stage.lease.path());
    let request = Request::patch(path).header("content-type", "application/apply-patch+yaml");
    let answer = stage.api.client().send(request.body(object.to_string().into_bytes().into()).unwrap()).await.unwrap();
    assert!(answer.status().is_success(), "{answer:?}");
    let applied = stage.lease.read().await.expect("a Lease");

    let renewed = |e: &Exchange| e.request.is_held() && e.succeeded() && base(&e.request.body) >= base(&applied);
    let renewals = me.proxy.log.nth(1, "renewals of it", renewed).await;
    let kept = managers(&renewals.answer.expect("an answer").body);
    assert!(kept.iter().any(|entry| entry["manager"] == "owner" && entry["operation"] == "Apply"), "{kept:?}");
}

async fn case_53_labels_are_added_where_there_were_none(stage: Stage) {
    let prepared = stage.prepare("me").await.set("lease.labels", json!({ "team": "a" }));
    let (me, _) = stage.lead(prepared).await;

    let object = stage.lease.read().await.expect("a Lease");
    assert_eq!(object["metadata"]["labels"], json!({ "app.kubernetes.io/managed-by": "tenure", "team": "a" }));
    assert!(me.runs());
}
