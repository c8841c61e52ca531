//! Cases 29, 30, 36 and 40: what keeps a term alive, and how it runs out when nothing does.

use std::time::Duration;

use serde_json::json;
use support::{
    Behaviour, Case, Exchange, Fault, Request, Stage, Times, Verb, cases,
    spec::{CALM, Spans, assert_on_version, calm},
    timing,
};
use tenure::clock;
use tokio::task::JoinSet;

use super::{LATE, assert_dead_by, assert_stopped_at_s, is_renewal, last_confirmed, late, until};

pub fn all() -> Vec<Case> {
    cases![
        case_29_every_period_one_write_and_nothing_else,
        case_30_a_label_of_others_costs_one_more_write_and_is_kept,
        case_30_an_answer_whose_version_did_not_rise_moves_nothing,
        case_36_a_black_hole_at_every_phase,
        case_40_slow_replies_do_not_drift,
    ]
}

async fn case_29_every_period_one_write_and_nothing_else(stage: Stage) {
    let began = clock::boot();
    let (me, start) = stage.lead(stage.prepare("me").await.unhurried()).await;

    me.proxy.log.nth(10, "renewals", |e| e.request.is_held() && e.succeeded()).await;

    let writes: Vec<_> = me.proxy.log.writes().into_iter().filter(Exchange::succeeded).collect();
    for pair in writes.windows(2) {
        let (before, after) = (&pair[0].request, &pair[1].request);
        assert_on_version(&pair[1], &pair[0].answer.as_ref().expect("an answer").body);
        for field in ["acquireTime", "leaseTransitions", "holderIdentity", "leaseDurationSeconds"] {
            assert_eq!(before.spec()[field], after.spec()[field]);
        }
        let time = |request: &Request| request.spec()["renewTime"].as_str().expect("a time").parse::<jiff::Timestamp>();
        let risen = time(after).expect("a time").duration_since(time(before).expect("a time"));
        assert!(risen >= jiff::SignedDuration::from_secs(1), "{risen:?}");
    }
    let all = me.proxy.log.writes();
    let periods = all.last().expect("a renewal").request.at.since(began).as_secs() / timing::RENEW_PERIOD.as_secs();
    assert!(all.len() as u64 <= periods + 2, "{} writes in {periods} periods", all.len());
    let reads = me.proxy.log.since(start.at()).into_iter().filter(|e| e.request.verb == Verb::Get).count();
    assert_eq!(reads, 0);
}

async fn case_30_a_label_of_others_costs_one_more_write_and_is_kept(stage: Stage) {
    let prepared = stage.prepare("me").await.unhurried();
    prepared.proxy.on(|request| request.verb == Verb::Watch, Times::Always, Fault::silent_watch(""));
    let (me, _) = stage.lead(prepared).await;

    stage.lease.edit(|lease| lease["metadata"]["labels"]["team"] = json!("a")).await;

    let is_refused = |e: &Exchange| e.answer.as_ref().is_some_and(|answer| answer.status == 409);
    let refused = me.proxy.log.first("a conflict", is_refused).await;
    let after = |e: &Exchange| e.request.at > refused.request.at && e.request.is_held() && e.succeeded();
    let repeated = me.proxy.log.first("a write on the new version", after).await;
    assert_eq!(repeated.request.body["metadata"]["labels"]["team"], "a");
    assert_ne!(repeated.request.spec(), refused.request.spec(), "no two attempts are equal");
    me.proxy.log.nth(2, "renewals", after).await;
    assert_eq!(stage.witness.all().len(), 1, "the workload noticed nothing");
}

async fn case_30_an_answer_whose_version_did_not_rise_moves_nothing(stage: Stage) {
    let (me, _) = stage.lead(calm(stage.prepare("me").await)).await;
    me.proxy.on(is_renewal, Times::Always, Fault::echoed());

    let stop = stage.witness.signal("me", "SIGTERM").await;

    let last = last_confirmed(&me, stop.at());
    assert!(stop.at() < CALM.soft(last.request.at) + late(last.request.at), "the answers counted for nothing");
    assert_dead_by(&stage, "me", CALM.end(last.request.at)).await;
}

async fn case_36_a_black_hole_at_every_phase(stage: Stage) {
    let step = Duration::from_millis(50);
    let mut phases = JoinSet::new();
    for count in 0..=u32::try_from(timing::RENEW_PERIOD.as_millis() / step.as_millis()).expect("a few") {
        let stage = stage.beside(&count.to_string()).await;
        phases.spawn_local(black_hole(stage, step * count));
        // Two at a time on each core, so that they do not starve each other.
        if phases.len() == 4 {
            phases.join_next().await.expect("a phase").expect("no panic");
        }
    }
    while let Some(phase) = phases.join_next().await {
        phase.expect("no panic");
    }
}

async fn black_hole(stage: Stage, phase: Duration) {
    let (me, _) = stage.lead(calm(stage.prepare("me").await).workload(&Behaviour::stubborn())).await;
    let renewed = me.proxy.log.nth(2, "renewals", |e| e.request.is_held() && e.succeeded()).await;
    until(renewed.answered_at() + phase).await;

    me.proxy.cut();
    let cut = clock::boot();
    let connections = me.proxy.connections();
    me.proxy.connected(connections + 2).await;
    let retried = clock::boot();

    let stop = stage.witness.signal("me", "SIGTERM").await;
    assert_stopped_at_s(CALM, &me, &stop, cut);
    let last = last_confirmed(&me, cut);
    // While the machine stands still nothing is tried.
    let stood_still = late(cut) > LATE * 2;
    assert!(stood_still || retried < CALM.hard(last.request.at), "new connections, {phase:?} after a renewal");
    assert_dead_by(&stage, "me", CALM.end(last.request.at)).await;
}

/// Ten thousand of them run in virtual time: `deadlines_count_from_the_send_however_late_the_reply` in src/election/tests/renew.rs.
async fn case_40_slow_replies_do_not_drift(stage: Stage) {
    // Long enough for a term to survive a reply that a stall made too late, and the conflict after it.
    let (attempt, spans) = (Duration::from_secs(2), Spans { duration: Duration::from_secs(16), ..CALM });
    let prepared = calm(stage.prepare("me").await).workload(&Behaviour::stubborn());
    let prepared = prepared.set("lease.duration", "16s").set("lease.attemptTimeout", "2s");
    let (me, _) = stage.lead(prepared).await;
    me.proxy.on(is_renewal, Times::Always, Fault::slow_reply(attempt.mul_f64(0.9)));
    me.proxy.log.nth(8, "slow renewals", |e| e.request.is_held() && e.succeeded()).await;
    assert_eq!(stage.witness.all().len(), 1, "the workload noticed nothing");

    me.proxy.clear();
    me.proxy.on(|_| true, Times::Always, Fault::lost_request());
    let cut = clock::boot();

    let stop = stage.witness.signal("me", "SIGTERM").await;
    let last = last_confirmed(&me, cut);
    assert!(stop.at() < spans.soft(last.request.at) + late(last.request.at));
    assert_dead_by(&stage, "me", spans.end(last.request.at)).await;
}
