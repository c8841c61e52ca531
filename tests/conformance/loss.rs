//! Cases 31 to 35: what ends a term.

use std::time::Duration;

use serde_json::json;
use support::{
    Behaviour, Case, Event, Fault, Replica, Request, Stage, Times, Verb, cases,
    spec::{CALM, Spans, UNHURRIED, assert_nobody, assert_on_version, calm, held, wait},
    timing,
};
use tenure::clock;

use super::{assert_newer, last_confirmed, vacated};

pub fn all() -> Vec<Case> {
    cases![
        case_31_another_holder_ends_the_term_at_once,
        case_32_a_cleared_holder_ends_the_term_and_is_campaigned_for_after_the_proof,
        case_33_a_deleted_lease_is_created_again_only_after_the_proof,
        case_35_a_deletion_with_a_second_candidate_waiting,
    ]
}

/// Excludes a renewal that was in flight when somebody edited the Lease.
fn is_acquisition(request: &Request) -> bool {
    request.is_held() && request.spec()["acquireTime"] == request.spec()["renewTime"]
}

fn assert_stopped_before_s(spans: Spans, me: &Replica, stop: &Event) {
    assert!(stop.at() + timing::RENEW_PERIOD < spans.soft(last_confirmed(me, stop.at()).request.at));
}

async fn case_31_another_holder_ends_the_term_at_once(stage: Stage) {
    let prepared = stage.prepare("me").await.unhurried().set("workload.stop.lossGrace", "1s").set("lease.creationWait", "0s");
    let prepared = prepared.workload(&Behaviour::stubborn()).set("workload.stop.grace", "20s");
    prepared.proxy.on(|request| request.verb == Verb::Watch, Times::Always, Fault::silent_watch(""));
    let (me, first) = stage.lead(prepared).await;
    me.proxy.log.nth(2, "renewals", |e| e.request.is_held() && e.succeeded()).await;

    let since = clock::boot();
    let object = stage.lease.set_spec(held("x_1", 4)).await;

    let stop = stage.witness.signal("me", "SIGTERM").await;
    assert_stopped_before_s(UNHURRIED, &me, &stop);
    let next = me.proxy.log.first("a write", |e| e.request.at > stop.at() && e.request.is_write()).await;
    assert!(is_acquisition(&next.request) && next.request.at >= since + wait(4.0));
    assert_on_version(&next, &object);
    let lives = stage.witness.lives();
    assert!(lives[0].last < stop.at() + Duration::from_secs(5), "the loss cuts the grace to lossGrace");
    let again = stage.witness.start("me", 1).await;
    assert_newer(&again, &first);
}

async fn case_32_a_cleared_holder_ends_the_term_and_is_campaigned_for_after_the_proof(stage: Stage) {
    let linger = Behaviour::lingering(Duration::from_secs(1));
    let prepared = stage.prepare("me").await.unhurried().workload(&linger);
    prepared.proxy.on(|request| request.verb == Verb::Watch, Times::Always, Fault::silent_watch(""));
    let (me, _) = stage.lead(prepared).await;

    stage.lease.edit(|lease| lease["spec"]["holderIdentity"] = json!("")).await;

    let stop = stage.witness.signal("me", "SIGTERM").await;
    assert_stopped_before_s(UNHURRIED, &me, &stop);
    let vacated = vacated(&me).await;
    let again = stage.witness.start("me", 1).await;
    assert!(vacated.request.at > stage.witness.lives()[0].last);
    assert!(again.at() >= vacated.request.at + wait(20.0));
}

async fn case_33_a_deleted_lease_is_created_again_only_after_the_proof(stage: Stage) {
    let prepared = calm(stage.prepare("me").await).workload(&Behaviour::lingering(Duration::from_secs(1)));
    prepared.proxy.on(|request| request.verb == Verb::Watch, Times::Always, Fault::silent_watch(""));
    let (me, _) = stage.lead(prepared).await;

    stage.lease.delete().await;

    let stop = stage.witness.signal("me", "SIGTERM").await;
    assert_stopped_before_s(CALM, &me, &stop);
    let created = me.proxy.log.first("a creation", |e| e.request.verb == Verb::Create && e.succeeded()).await;
    let again = stage.witness.start("me", 1).await;
    let dead = stage.witness.lives()[0].last;
    assert_eq!(me.proxy.log.count(|e| e.request.verb == Verb::Create && e.request.at <= dead), 0);
    assert_nobody(&created, 10);
    assert!(again.at() >= created.request.at + wait(10.0));
}

async fn case_35_a_deletion_with_a_second_candidate_waiting(stage: Stage) {
    let prepared = stage.prepare("me").await.workload(&Behaviour::stubborn());
    prepared.proxy.on(|request| request.verb == Verb::Watch, Times::Always, Fault::silent_watch(""));
    // It might come first, and then the other would create nothing.
    prepared.proxy.on(|request| request.verb == Verb::Create, Times::Always, Fault::lost_request());
    let (me, _) = stage.lead(prepared).await;
    let other = stage.start("other").await;
    other.proxy.log.first("a watch", |e| e.request.verb == Verb::Watch).await;

    stage.lease.delete().await;

    let created = other.proxy.log.first("a creation", |e| e.request.verb == Verb::Create && e.succeeded()).await;
    let start = stage.witness.start("other", 0).await;
    assert!(start.at() >= created.request.at + wait(4.0));
    let dead = stage.witness.last_alive("me");
    assert_eq!(me.proxy.log.count(|e| e.request.verb == Verb::Create && e.request.at <= dead), 0);
}
