//! Cases 1 to 13 and 19 to 27: who may take a Lease, when, and with which write.

use std::time::Duration;

use serde_json::{Value, json};
use support::{
    Behaviour, Case, Exchange, Fault, LEASE, Prepared, Replica, Stage, Times, Valve, Verb, cases,
    spec::{CALM, assert_acquires, assert_nobody, assert_on_version, calm, held, released, soft, time, wait, with},
    timing,
};
use tenure::clock;

use super::{assert_dead_by, takeover, vacated};

pub fn all() -> Vec<Case> {
    let mut cases = cases![
        case_1_an_absent_lease_is_created_held_by_nobody_and_taken_after_the_wait,
        case_2_a_creation_that_comes_second_observes,
        case_4_a_released_lease_is_taken_and_run_on_at_once,
        case_5_a_mark_beside_a_name_is_held_by_nobody_first,
        case_10_a_shorter_duration_in_the_record_is_enough,
        case_11_a_renewing_holder_is_left_alone_and_quietly_observed,
        case_13_a_new_holder_starts_the_wait_anew,
        case_19_of_two_that_see_the_expiry_together_one_runs,
        case_21_a_takeover_that_was_done_but_not_answered_is_found_out,
        case_21_its_end_counts_from_the_send_of_that_takeover,
        case_22_a_takeover_that_was_lost_is_repeated,
        case_24_a_takeover_confirmed_after_the_soft_deadline_is_written_again,
        case_27_a_lease_under_deletion_is_left_alone,
    ];
    cases.extend(cases![each held_by_nobody_and_taken_later:
        case_3_an_empty_spec_is_held_by_nobody_first(json!({}), 1);
        case_3_a_null_spec_is_held_by_nobody_first(Value::Null, 1);
        case_5_a_null_holder_is_held_by_nobody_first(with(released(), "holderIdentity", Value::Null), 4);
        case_5_a_cleared_holder_is_held_by_nobody_first(held("", 4), 4);
    ]);
    cases.extend(cases![each taken_after_silence:
        case_6_a_renewal_time_long_past_gives_no_right(with(held("x_1", 4), "renewTime", time(-3600)), 4.0, 4);
        case_7_a_renewal_time_in_the_future_defers_nothing(with(held("x_1", 4), "renewTime", time(3600)), 4.0, 4);
        case_8_a_silent_holder_is_replaced_by_exactly_one_write(held("x_1", 4), 4.0, 4);
        case_9_a_longer_duration_in_the_record_is_waited_out(held("x_1", 8), 8.0, 4);
        case_25_the_own_name_with_another_nonce_is_foreign(held("me_0123456789abcdef0123456789abcdef", 4), 4.0, 4);
    ]);
    cases
}

async fn case_1_an_absent_lease_is_created_held_by_nobody_and_taken_after_the_wait(stage: Stage) {
    let since = clock::boot();
    let me = stage.prepare("me").await.set("lease.labels", json!({ "team": "a" })).start();

    let start = stage.witness.start("me", 0).await;

    let created = vacated(&me).await;
    assert_eq!((created.request.verb, created.answer.as_ref().expect("an answer").status), (Verb::Create, 201));
    assert_nobody(&created, 4);
    let metadata = &created.request.body["metadata"];
    assert_eq!((&metadata["name"], &metadata["namespace"]), (&json!(LEASE), &json!(stage.namespace)));
    assert_eq!(metadata["labels"], json!({ "app.kubernetes.io/managed-by": "tenure", "team": "a" }));
    assert!(metadata["uid"].is_null() && metadata["resourceVersion"].is_null(), "{metadata}");
    let taken = takeover(&me).await;
    assert!(taken.request.at >= created.request.at + wait(4.0));
    assert_acquires(&taken, "me", 1, since);
    assert_on_version(&taken, &created.answer.expect("an answer").body);
    assert_eq!(start.variable("TENURE_FENCING_TOKEN"), taken.version());
    let before = me.proxy.log.writes().into_iter().filter(|e| e.request.at <= start.at()).count();
    assert!(before <= 3, "nobody, the takeover, and a renewal at the most");
}

async fn case_2_a_creation_that_comes_second_observes(stage: Stage) {
    let me = stage.prepare("me").await.unhurried();
    let valve = Valve::closed();
    me.proxy.on(|request| request.verb == Verb::Create, Times::Only(1), Fault::late_request(&valve));
    let me = me.start();
    me.proxy.log.first("a creation under way", |e| e.request.verb == Verb::Create).await;
    let created = clock::boot();
    stage.lease.create(held("x_1", 4)).await;

    valve.open();

    let refused = me.proxy.log.first("the answer", |e| e.request.verb == Verb::Create && e.answer.is_some()).await;
    assert_eq!(refused.answer.expect("an answer").status, 409);
    let taken = me.proxy.log.first("a takeover", |e| e.request.is_held()).await;
    assert!(taken.request.at >= created + wait(4.0));
    assert_eq!(me.proxy.log.count(|e| e.request.verb == Verb::Create), 1);
    assert!(me.proxy.log.count(|e| e.request.verb == Verb::Get) >= 2);
    stage.witness.start("me", 0).await;
}

async fn assert_taken_at_once(me: &Replica, taken: &Exchange) {
    let seen = me.proxy.log.first("a read", |e| e.request.verb == Verb::Get && e.answer.is_some()).await;
    assert!(taken.request.at < seen.answered_at() + wait(4.0), "it waited for nothing");
}

async fn held_by_nobody_and_taken_later(stage: Stage, spec: Value, transitions: i64) {
    let since = clock::boot();
    let object = stage.lease.create(spec).await;
    let me = stage.start("me").await;

    let start = stage.witness.start("me", 0).await;

    let vacated = vacated(&me).await;
    assert_nobody(&vacated, 4);
    assert_eq!(vacated.request.spec().get("leaseTransitions"), object["spec"].get("leaseTransitions"));
    assert_on_version(&vacated, &object);
    assert_taken_at_once(&me, &vacated).await;
    let taken = takeover(&me).await;
    assert!(taken.request.at >= vacated.request.at + wait(4.0));
    assert_acquires(&taken, "me", transitions, since);
    assert_eq!(start.variable("TENURE_TERM"), transitions.to_string());
}

async fn case_4_a_released_lease_is_taken_and_run_on_at_once(stage: Stage) {
    let since = clock::boot();
    let object = stage.lease.create(released()).await;
    let me = stage.start("me").await;

    let start = stage.witness.start("me", 0).await;

    let taken = takeover(&me).await;
    assert_acquires(&taken, "me", 4, since);
    assert_on_version(&taken, &object);
    assert_taken_at_once(&me, &taken).await;
    assert_ne!(taken.request.spec()["acquireTime"], object["spec"]["acquireTime"]);
    assert!(start.at() < taken.answered_at() + wait(4.0), "no wait");
}

async fn case_5_a_mark_beside_a_name_is_held_by_nobody_first(stage: Stage) {
    stage.lease.create(released()).await;
    stage.lease.edit(|lease| lease["metadata"]["annotations"] = json!({ "tenure.dev/holder": "x_1" })).await;
    let me = stage.start("me").await;

    stage.witness.start("me", 0).await;

    let vacated = vacated(&me).await;
    assert_nobody(&vacated, 4);
    assert!(takeover(&me).await.request.at >= vacated.request.at + wait(4.0));
}

/// A takeover after at least `seconds` of silence, with exactly one write.
pub async fn taken_after_silence(stage: Stage, spec: Value, seconds: f64, transitions: i64) {
    let since = clock::boot();
    let object = stage.lease.create(spec).await;
    let me = stage.prepare("me").await.set("lease.attemptTimeout", "800ms").start();

    let start = stage.witness.start("me", 0).await;

    let taken = takeover(&me).await;
    assert!(taken.request.at >= since + wait(seconds), "taken after {:?}", taken.request.at.since(since));
    assert_acquires(&taken, "me", transitions, since);
    assert_on_version(&taken, &object);
    assert_eq!(taken.request.spec()["leaseDurationSeconds"], 4);
    assert_eq!(start.variable("TENURE_FENCING_TOKEN"), taken.version());
    let first_renewal = taken.request.at + timing::RENEW_PERIOD;
    let before = me.proxy.log.writes().into_iter().filter(|e| e.request.at <= start.at().min(first_renewal)).count();
    assert_eq!(before, 1, "one write, then the workload");
}

async fn case_10_a_shorter_duration_in_the_record_is_enough(stage: Stage) {
    let since = clock::boot();
    stage.lease.create(held("x_1", 2)).await;
    let me = stage.prepare("me").await.set("lease.duration", "15s").start();

    stage.witness.start("me", 0).await;

    let taken = takeover(&me).await.request;
    assert!(taken.at >= since + wait(2.0) && taken.at < since + Duration::from_secs(15));
    assert_eq!(taken.spec()["leaseDurationSeconds"], 15);
}

async fn case_11_a_renewing_holder_is_left_alone_and_quietly_observed(stage: Stage) {
    stage.lease.create(held("x_1", 10)).await;
    let me = stage.start("me").await;
    let since = clock::boot();
    me.proxy.log.first("a watch", |e| e.request.verb == Verb::Watch).await;

    for _ in 0..6 {
        tokio::time::sleep(Duration::from_secs(2)).await;
        stage.lease.edit(|lease| lease["spec"]["renewTime"] = json!(time(0))).await;
    }

    let requests = me.proxy.log.all();
    assert!(!requests.iter().any(|e| e.request.is_write()));
    // A first read, one watch, and fallback reads no more often than every R.
    assert!(requests.iter().filter(|e| e.request.verb == Verb::Watch).count() <= 2);
    let periods = clock::boot().since(since).as_secs() / timing::RENEW_PERIOD.as_secs();
    assert!(requests.len() as u64 <= 2 + periods, "{} requests in {periods} periods", requests.len());
    assert_eq!(stage.witness.starts("me"), 0);
}

async fn case_13_a_new_holder_starts_the_wait_anew(stage: Stage) {
    stage.lease.create(held("x_1", 20)).await;
    let me = stage.start("me").await;
    me.proxy.log.first("a watch", |e| e.request.verb == Verb::Watch).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let since = clock::boot();
    let object = stage.lease.set_spec(held("y_1", 5)).await;

    let taken = takeover(&me).await;

    assert!(taken.request.at >= since + wait(5.0));
    assert_on_version(&taken, &object);
    stage.witness.start("me", 0).await;
}

async fn case_19_of_two_that_see_the_expiry_together_one_runs(stage: Stage) {
    stage.lease.create(held("x_1", 6)).await;
    let valve = Valve::closed();
    let mut prepared = Vec::new();
    for name in ["a", "b"] {
        let replica = stage.prepare(name).await.set("lease.duration", "12s").set("lease.attemptTimeout", "4s");
        replica.proxy.on(|request| request.is_held(), Times::Only(1), Fault::late_request(&valve));
        prepared.push(replica);
    }
    let both: Vec<_> = prepared.into_iter().map(Prepared::start).collect();
    for replica in &both {
        replica.proxy.log.first("a watch", |e| e.request.verb == Verb::Watch && e.succeeded()).await;
    }
    // Both wait from here on.
    stage.lease.edit(|lease| lease["spec"]["renewTime"] = json!(time(0))).await;
    for replica in &both {
        replica.proxy.log.first("a takeover under way", |e| e.request.is_held()).await;
    }

    valve.open();

    let mut statuses = Vec::new();
    for replica in &both {
        statuses.push(takeover(replica).await.answer.expect("an answer").status);
    }
    let loser = usize::from(statuses[0] == 200);
    let winner = 1 - loser;
    assert_eq!((statuses[winner], statuses[loser]), (200, 409));
    stage.witness.start(&both[winner].name, 0).await;
    // While the winner renews, the loser writes nothing for longer than D.
    both[winner].proxy.log.nth(13, "renewals", |e| e.request.is_held() && e.succeeded()).await;
    assert_eq!(both[loser].proxy.log.writes().len(), 1);
    assert_eq!(stage.witness.starts(&both[loser].name), 0);
}

async fn case_21_a_takeover_that_was_done_but_not_answered_is_found_out(stage: Stage) {
    stage.lease.create(released()).await;
    let me = stage.prepare("me").await;
    me.proxy.on(|request| request.is_held(), Times::Only(1), Fault::lost_reply());
    let me = me.start();

    let start = stage.witness.start("me", 0).await;

    let taken = takeover(&me).await;
    assert_eq!(start.variable("TENURE_FENCING_TOKEN"), taken.version());
    assert!(me.proxy.log.count(|e| e.request.verb == Verb::Get && e.request.at > taken.request.at) >= 1);
}

async fn case_21_its_end_counts_from_the_send_of_that_takeover(stage: Stage) {
    stage.lease.create(released()).await;
    let me = calm(stage.prepare("me").await).set("lease.attemptTimeout", "2s").workload(&Behaviour::stubborn());
    me.proxy.on(|request| request.is_held(), Times::Always, Fault::lost_request());
    me.proxy.on(|request| request.is_held(), Times::Only(1), Fault::lost_reply());
    let me = me.start();

    stage.witness.start("me", 0).await;
    me.proxy.cut();

    let taken = takeover(&me).await;
    assert_dead_by(&stage, "me", CALM.end(taken.request.at)).await;
}

async fn case_22_a_takeover_that_was_lost_is_repeated(stage: Stage) {
    let object = stage.lease.create(released()).await;
    let me = stage.prepare("me").await;
    me.proxy.on(|request| request.is_held(), Times::Only(1), Fault::lost_request());
    let me = me.start();

    let start = stage.witness.start("me", 0).await;

    let taken = takeover(&me).await;
    assert_on_version(&taken, &object);
    assert_eq!(start.variable("TENURE_FENCING_TOKEN"), taken.version());
    let specs: Vec<_> = me.proxy.log.writes().into_iter().map(|write| write.request.body["spec"].clone()).collect();
    assert_ne!(specs[0], specs[1], "no two attempts are equal");
}

async fn case_24_a_takeover_confirmed_after_the_soft_deadline_is_written_again(stage: Stage) {
    stage.lease.create(released()).await;
    let me = stage.prepare("me").await;
    me.proxy.on(|request| request.is_held(), Times::Only(1), Fault::lost_reply());
    let me = me.start();
    let taken = takeover(&me).await;
    me.proxy.cut();
    tokio::time::sleep(soft(taken.request.at).since(clock::boot()) + Duration::from_millis(50)).await;

    me.proxy.mend().await;

    let start = stage.witness.start("me", 0).await;
    let again = me.proxy.log.nth(1, "a fresh write", |e| e.request.is_held() && e.succeeded()).await;
    assert!(start.at() >= again.request.at);
    assert_eq!(start.variable("TENURE_FENCING_TOKEN"), again.version(), "that write begins the term");
    for kept in ["holderIdentity", "acquireTime", "leaseTransitions"] {
        assert_eq!(again.request.spec()[kept], taken.request.spec()[kept]);
    }
}

async fn case_27_a_lease_under_deletion_is_left_alone(stage: Stage) {
    stage.lease.create(released()).await;
    stage.lease.edit(|lease| lease["metadata"]["finalizers"] = json!(["test.tenure.dev/stay"])).await;
    stage.lease.delete().await;
    let me = stage.start("me").await;
    me.proxy.log.first("a read", |e| e.request.verb == Verb::Get && e.succeeded()).await;
    me.proxy.log.none_for(Duration::from_secs(2), "a write", |e| e.request.is_write()).await;

    stage.lease.edit(|lease| lease["metadata"]["finalizers"] = json!([])).await;

    let created = vacated(&me).await;
    assert_eq!(created.request.verb, Verb::Create);
    let start = stage.witness.start("me", 0).await;
    assert!(start.at() >= created.request.at + wait(4.0));
}
