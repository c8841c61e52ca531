//! Cases 14 to 18: records that nobody should write, and how a follower treats them.

use std::time::Duration;

use serde_json::{Value, json};
use support::{
    Case, Fault, Stage, Times, Verb, cases,
    spec::{assert_acquires, assert_on_version, held, wait, with},
    timing,
};
use tenure::clock;

use super::{acquire::taken_after_silence, said, takeover};

pub fn all() -> Vec<Case> {
    let mut cases = cases![
        case_14_after_a_longer_one_a_duration_of_null_is_that_one,
        case_15_a_duration_below_one_is_the_own_one,
        case_16_the_longest_duration_is_no_overflow,
        case_18_negative_transitions_count_as_none,
    ];
    cases.extend(cases![each taken_after_silence:
        case_14_a_duration_of_null_is_the_own_one(with(held("x_1", 4), "leaseDurationSeconds", Value::Null), 4.0, 4);
        case_17_transitions_saturate(with(held("x_1", 2), "leaseTransitions", i32::MAX), 2.0, i64::from(i32::MAX));
        case_18_null_transitions_count_as_none(with(held("x_1", 2), "leaseTransitions", Value::Null), 2.0, 1);
    ]);
    cases
}

async fn case_14_after_a_longer_one_a_duration_of_null_is_that_one(stage: Stage) {
    stage.lease.create(held("x_1", 10)).await;
    let me = stage.start("me").await;
    me.proxy.log.first("a watch", |e| e.request.verb == Verb::Watch).await;
    let since = clock::boot();

    let object = stage.lease.edit(|lease| lease["spec"]["leaseDurationSeconds"] = Value::Null).await;

    let taken = takeover(&me).await;
    assert!(taken.request.at >= since + wait(10.0));
    assert_on_version(&taken, &object);
}

/// Makes x hold the record with this duration.
fn of_x(lease: &mut Value, seconds: &Value) {
    if lease["spec"]["holderIdentity"] == "x_1" {
        lease["spec"]["leaseDurationSeconds"] = seconds.clone();
    }
}

async fn case_15_a_duration_below_one_is_the_own_one(stage: Stage) {
    for (name, change) in
        [("zero", (|lease| of_x(lease, &json!(0))) as fn(&mut Value)), ("negative", |lease| of_x(lease, &json!(-7)))]
    {
        let stage = stage.beside(name).await;
        let since = clock::boot();
        stage.lease.create(held("x_1", 60)).await;
        let me = stage.prepare("me").await;
        me.proxy.on(|request| !request.is_write(), Times::Always, Fault::changed(change));
        let me = me.start();

        let taken = takeover(&me).await;

        assert!(taken.request.at >= since + wait(4.0));
        let before = me.proxy.log.all().into_iter().filter(|e| e.request.at < taken.request.at).count();
        assert!(before <= quietly(taken.request.at.since(since)), "{before} requests while it waited");
        stage.witness.start("me", 0).await;
        assert_eq!(said(&me, "without a valid leaseDurationSeconds"), 1, "{:#?}", me.lines());
    }
}

/// The number of requests in this time span above which a client is in a busy loop.
fn quietly(span: Duration) -> usize {
    4 + 2 * usize::try_from(span.as_secs()).expect("not long")
}

async fn case_16_the_longest_duration_is_no_overflow(stage: Stage) {
    let since = clock::boot();
    stage.lease.create(held("x_1", i64::from(i32::MAX))).await;
    let me = stage.start("me").await;
    me.proxy.log.first("a watch", |e| e.request.verb == Verb::Watch).await;

    me.proxy.log.none_for(2 * timing::DURATION, "a write", |e| e.request.is_write()).await;

    assert!(me.runs());
    let requests = me.proxy.log.all().len();
    assert!(requests <= quietly(clock::boot().since(since)), "{requests} requests");
}

async fn case_18_negative_transitions_count_as_none(stage: Stage) {
    let since = clock::boot();
    stage.lease.create(held("x_1", 2)).await;
    let me = stage.prepare("me").await;
    me.proxy.on(
        |request| !request.is_write(),
        Times::Always,
        Fault::changed(|lease| lease["spec"]["leaseTransitions"] = json!(-5)),
    );
    let me = me.start();

    let taken = takeover(&me).await;

    assert_acquires(&taken, "me", 1, since);
    stage.witness.start("me", 0).await;
}
