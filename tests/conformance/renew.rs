//! Cases 29 to 40 and 48 to 55: what keeps a term, and what ends it.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use serde_json::json;
use tenure::clock;
use tokio::task::JoinSet;

use crate::{
    is_renewal, last_confirmed, lead,
    spec::{assert_acquires, assert_on_version, end, hard, held, is_held_by, released, soft, wait},
    support::{
        case::{Case, cases},
        proxy::{
            fault::{Fault, Times},
            log::{Exchange, Request, Verb},
        },
        stage::{Prepared, Stage, timing},
        workload::Behaviour,
    },
    until,
};

pub fn all() -> Vec<Case> {
    cases![
        case_29_every_period_one_write_and_nothing_else,
        case_30_a_label_of_others_costs_one_more_write_and_is_kept,
        case_30_an_answer_whose_version_did_not_rise_moves_nothing,
        case_31_another_holder_ends_the_term_at_once,
        case_32_a_cleared_holder_ends_the_term_and_is_campaigned_for_after_the_proof,
        case_33_a_deleted_lease_is_created_again_only_after_the_proof,
        case_35_a_deletion_with_a_second_candidate_waiting,
        case_36_a_black_hole_at_every_phase,
        case_37_a_frozen_elector_writes_nothing_stale,
        case_38_init_killed_as_pid_1_takes_everything_along,
        case_38_init_killed_among_others_takes_everything_along,
        case_39_a_frozen_init_is_replaced_by_the_second_guard,
        case_40_slow_replies_do_not_drift,
        case_48_a_preferred_other_is_given_way,
        case_48_being_preferred_changes_nothing,
        case_49_a_lease_kept_for_another_is_not_taken_for_one_duration,
        case_51_fields_of_the_future_are_kept,
        case_53_labels_are_added_where_there_were_none,
        case_55_after_a_gap_it_kills_before_it_speaks,
    ]
}

/// Not a renewal that was under way when somebody edited the Lease.
fn is_acquisition(request: &Request) -> bool {
    request.is_held() && request.spec()["acquireTime"] == request.spec()["renewTime"]
}

async fn case_29_every_period_one_write_and_nothing_else(stage: Stage) {
    let (me, start) = lead(&stage, stage.prepare("me").await.set("lease.attemptTimeout", "800ms")).await;

    me.proxy.log.nth(6, "renewals", |e| e.request.is_held() && e.succeeded()).await;

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
    let reads = me.proxy.log.since(start.at()).into_iter().filter(|e| e.request.verb == Verb::Get).count();
    assert_eq!(reads, 0);
}

async fn case_30_a_label_of_others_costs_one_more_write_and_is_kept(stage: Stage) {
    let prepared = stage.prepare("me").await;
    prepared.proxy.on(|request| request.verb == Verb::Watch, Times::Always, Fault::silent_watch(""));
    let (me, _) = lead(&stage, prepared).await;

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
    let (me, _) = lead(&stage, stage.prepare("me").await).await;
    me.proxy.on(is_renewal, Times::Always, Fault::echoed());

    let stop = stage.witness.signal("me", "SIGTERM").await;

    let last = last_confirmed(&me, stop.at());
    assert!(stop.at() < end(last.request.at), "the answers counted for nothing");
    assert!(stage.witness.last_alive("me") < end(last.request.at));
}

async fn case_31_another_holder_ends_the_term_at_once(stage: Stage) {
    let prepared = stage.prepare("me").await.workload(&Behaviour::stubborn()).set("workload.stop.grace", "20s");
    prepared.proxy.on(|request| request.verb == Verb::Watch, Times::Always, Fault::silent_watch(""));
    let (me, _) = lead(&stage, prepared).await;
    me.proxy.log.nth(2, "renewals", |e| e.request.is_held() && e.succeeded()).await;

    let since = clock::boot();
    let object = stage.lease.set_spec(held("x_1", 4)).await;

    let stop = stage.witness.signal("me", "SIGTERM").await;
    let last = last_confirmed(&me, stop.at());
    assert!(stop.at() < soft(last.request.at), "the loss, not S");
    let next = me.proxy.log.first("a takeover", |e| e.request.at > since && is_acquisition(&e.request) && e.succeeded()).await;
    assert!(next.request.at >= since + wait(4.0));
    assert_on_version(&next, &object);
    let lives = stage.witness.lives();
    assert!(lives[0].last < end(last.request.at), "the loss cuts the grace to lossGrace");
    let again = stage.witness.start("me", 1).await;
    assert!(
        again.variable("TENURE_FENCING_TOKEN").parse::<u64>().expect("a version") > lives[0].token.parse().expect("a version")
    );
}

async fn case_32_a_cleared_holder_ends_the_term_and_is_campaigned_for_after_the_proof(stage: Stage) {
    let linger = Behaviour::lingering(Duration::from_millis(200));
    let (me, _) = lead(&stage, stage.prepare("me").await.workload(&linger)).await;

    let since = clock::boot();
    stage.lease.edit(|lease| lease["spec"]["holderIdentity"] = json!("")).await;

    stage.witness.signal("me", "SIGTERM").await;
    let taken = me.proxy.log.first("a takeover", |e| e.request.at > since && is_acquisition(&e.request) && e.succeeded()).await;
    let again = stage.witness.start("me", 1).await;
    assert!(taken.request.at > stage.witness.lives()[0].last);
    assert!(again.at() >= taken.answered_at() + wait(4.0));
}

async fn case_33_a_deleted_lease_is_created_again_only_after_the_proof(stage: Stage) {
    let linger = Behaviour::lingering(Duration::from_millis(200));
    let (me, _) = lead(&stage, stage.prepare("me").await.workload(&linger)).await;

    stage.lease.delete().await;

    stage.witness.signal("me", "SIGTERM").await;
    let created = me.proxy.log.first("a creation", |e| e.request.verb == Verb::Create && e.succeeded()).await;
    let again = stage.witness.start("me", 1).await;
    assert!(created.request.at > stage.witness.lives()[0].last);
    assert_acquires(&created, "me", 0);
    assert!(again.at() >= created.answered_at() + wait(4.0));
}

async fn case_35_a_deletion_with_a_second_candidate_waiting(stage: Stage) {
    let prepared = stage.prepare("me").await.workload(&Behaviour::stubborn());
    prepared.proxy.on(|request| request.verb == Verb::Watch, Times::Always, Fault::silent_watch(""));
    // It might come first, and the other would create nothing.
    prepared.proxy.on(|request| request.verb == Verb::Create, Times::Always, Fault::lost_request());
    let (_me, _) = lead(&stage, prepared).await;
    let other = stage.start("other").await;
    other.proxy.log.first("a watch", |e| e.request.verb == Verb::Watch).await;

    stage.lease.delete().await;

    let created = other.proxy.log.first("a creation", |e| e.request.verb == Verb::Create && e.succeeded()).await;
    let start = stage.witness.start("other", 0).await;
    assert!(start.at() >= created.answered_at() + wait(4.0));
}

async fn case_36_a_black_hole_at_every_phase(stage: Stage) {
    let step = Duration::from_millis(50);
    let mut phases = JoinSet::new();
    for count in 0..=u32::try_from(timing::RENEW_PERIOD.as_millis() / step.as_millis()).expect("a few") {
        let stage = stage.beside(&count.to_string()).await;
        phases.spawn_local(black_hole(stage, step * count));
        // Two at a time on each core: they must not starve each other.
        if phases.len() == 4 {
            phases.join_next().await.expect("a phase").expect("no panic");
        }
    }
    while let Some(phase) = phases.join_next().await {
        phase.expect("no panic");
    }
}

async fn black_hole(stage: Stage, phase: Duration) {
    let (me, _) = lead(&stage, stage.prepare("me").await.workload(&Behaviour::stubborn())).await;
    let renewed = me.proxy.log.nth(1, "a renewal", |e| e.request.is_held() && e.succeeded()).await;
    until(renewed.answered_at() + phase).await;

    me.proxy.cut();
    let cut = clock::boot();
    let connections = me.proxy.connections();

    let stop = stage.witness.signal("me", "SIGTERM").await;
    // What was under way when it was cut may or may not have been confirmed.
    let last = last_confirmed(&me, cut);
    assert!(stop.at() < hard(last.request.at) + timing::RENEW_PERIOD, "at S, {phase:?} after a renewal");
    assert!(me.proxy.connections() >= connections + 2, "new connections, {phase:?} after a renewal");
    until(end(last.request.at)).await;
    assert!(stage.witness.last_alive("me") < end(last.request.at), "dead at H, {phase:?} after a renewal");
}

async fn case_37_a_frozen_elector_writes_nothing_stale(stage: Stage) {
    let (me, _) = lead(&stage, stage.prepare("me").await).await;
    let x = stage.start("x").await;
    let elector = me.elector().await;

    kill(elector, Signal::SIGSTOP).expect("the elector lives");
    let frozen = clock::boot();
    stage.witness.signal("me", "SIGTERM").await;
    stage.witness.start("x", 0).await;
    until(frozen + 2 * timing::DURATION).await;
    // Init may have replaced it by now.
    let _ = kill(elector, Signal::SIGCONT);

    x.proxy.log.nth(9, "x goes on", |e| e.request.is_held() && e.succeeded()).await;
    let late = me.proxy.log.since(frozen + Duration::from_millis(500));
    assert!(!late.iter().any(|e| e.request.is_write()), "{late:?}");
    assert_eq!((stage.witness.starts("me"), stage.witness.starts("x")), (1, 1));
}

async fn init_killed(stage: Stage, prepared: Prepared) {
    let (me, _) = lead(&stage, prepared.workload(&Behaviour::stubborn())).await;
    let workload = me.workload().await;
    let killed = clock::boot();

    me.signal(Signal::SIGKILL).await;

    assert_ne!(me.exit().await, 0);
    // A parent that is gone means that the kernel has sent the signal; nothing else may be left either.
    me.gone(workload).await;
    let object = stage.lease.read().await.expect("a Lease");
    assert!(is_held_by(&object["spec"], "me"), "nobody released it");
    let x = stage.start("x").await;
    let start = stage.witness.start("x", 0).await;
    let last = last_confirmed(&me, killed + Duration::from_secs(1));
    assert!(start.at() >= last.answered_at() + wait(4.0));
    assert!(!me.proxy.log.all().iter().any(|e| e.request.is_release()));
    drop(x);
}

async fn case_38_init_killed_as_pid_1_takes_everything_along(stage: Stage) {
    let prepared = stage.prepare("me").await;
    init_killed(stage, prepared).await;
}

async fn case_38_init_killed_among_others_takes_everything_along(stage: Stage) {
    let prepared = stage.prepare("me").await.uncontained();
    init_killed(stage, prepared).await;
}

async fn case_39_a_frozen_init_is_replaced_by_the_second_guard(stage: Stage) {
    let (me, _) = lead(&stage, stage.prepare("me").await.workload(&Behaviour::stubborn())).await;
    let workload = me.workload().await;
    let x = stage.start("x").await;

    me.signal(Signal::SIGSTOP).await;

    me.gone(workload).await;
    let last = last_confirmed(&me, clock::boot());
    assert!(stage.witness.last_alive("me") < end(last.request.at));
    stage.witness.start("x", 0).await;
    me.signal(Signal::SIGCONT).await;
    x.proxy.log.nth(4, "x goes on", |e| e.request.is_held() && e.succeeded()).await;
    assert!(!me.proxy.log.all().iter().any(|e| e.request.is_release()));
    assert!(me.runs());
}

/// Ten thousand of them, in virtual time: `ten_thousand_slow_renewals_do_not_drift` in src/election/tests/renew.rs.
async fn case_40_slow_replies_do_not_drift(stage: Stage) {
    let prepared = stage.prepare("me").await.workload(&Behaviour::stubborn()).set("lease.attemptTimeout", "800ms");
    let (me, _) = lead(&stage, prepared).await;
    me.proxy.on(is_renewal, Times::Always, Fault::slow_reply(timing::ATTEMPT_TIMEOUT.mul_f64(0.8)));
    me.proxy.log.nth(8, "slow renewals", |e| e.request.is_held() && e.succeeded()).await;
    assert_eq!(stage.witness.all().len(), 1, "the workload noticed nothing");

    me.proxy.clear();
    me.proxy.on(|_| true, Times::Always, Fault::lost_request());
    let cut = clock::boot();

    let stop = stage.witness.signal("me", "SIGTERM").await;
    let last = last_confirmed(&me, cut);
    assert!(stop.at() < end(last.request.at));
    until(end(last.request.at)).await;
    assert!(stage.witness.last_alive("me") < end(last.request.at));
}

async fn case_48_a_preferred_other_is_given_way(stage: Stage) {
    let linger = Behaviour::lingering(Duration::from_secs(4));
    let prepared = stage.prepare("me").await.workload(&linger).set("workload.stop.grace", "10s");
    let (me, _) = lead(&stage, prepared).await;

    stage
        .lease
        .edit(|lease| {
            lease["spec"]["strategy"] = json!("OldestEmulationVersion");
            lease["spec"]["preferredHolder"] = json!("x_1");
        })
        .await;

    let stop = stage.witness.signal("me", "SIGTERM").await;
    let release = me.proxy.log.first("a release", |e| e.request.is_release() && e.succeeded()).await;
    assert!(release.request.at > stage.witness.last_alive("me"));
    assert_eq!(release.request.spec()["strategy"], "OldestEmulationVersion");
    let renewed = |e: &Exchange| e.request.at > stop.at() && e.request.is_held() && e.succeeded();
    assert!(me.proxy.log.count(renewed) >= 1, "it renews while its workload stops");
}

async fn case_48_being_preferred_changes_nothing(stage: Stage) {
    let (me, start) = lead(&stage, stage.prepare("me").await).await;
    let identity = start.variable("TENURE_IDENTITY").to_owned();

    let object = stage
        .lease
        .edit(|lease| {
            lease["spec"]["strategy"] = json!("OldestEmulationVersion");
            lease["spec"]["preferredHolder"] = json!(identity);
        })
        .await;
    let version = object["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();

    let on_it = |e: &Exchange| e.request.body["metadata"]["resourceVersion"] == version.as_str();
    let next = me.proxy.log.first("a renewal of it", on_it).await;
    assert_eq!(next.request.spec()["strategy"], "OldestEmulationVersion", "case 50");
    me.proxy.log.nth(2, "renewals", |e| e.request.at > next.request.at && e.succeeded()).await;
    assert_eq!(stage.witness.all().len(), 1, "the workload noticed nothing");
}

async fn case_49_a_lease_kept_for_another_is_not_taken_for_one_duration(stage: Stage) {
    let mut spec = released();
    spec["strategy"] = json!("OldestEmulationVersion");
    spec["preferredHolder"] = json!("x_1");
    let since = clock::boot();
    stage.lease.create(spec).await;
    let me = stage.start("me").await;

    let taken = me.proxy.log.first("a takeover", |e| e.request.is_write()).await;

    assert!(taken.request.at >= since + timing::DURATION);
    assert!(me.runs());
}

async fn case_51_fields_of_the_future_are_kept(stage: Stage) {
    let prepared = stage.prepare("me").await;
    prepared.proxy.on(|_| true, Times::Always, Fault::changed(|lease| lease["spec"]["futureField"] = json!({ "a": 1 })));
    let (me, _) = lead(&stage, prepared).await;
    me.proxy.log.nth(2, "renewals", |e| e.request.is_held() && e.succeeded()).await;

    me.signal(Signal::SIGTERM).await;

    me.proxy.log.first("a release", |e| e.request.is_release() && e.succeeded()).await;
    for write in me.proxy.log.writes() {
        assert_eq!(write.request.spec()["futureField"], json!({ "a": 1 }));
    }
    assert_eq!(me.exit().await, 0);
}

async fn case_53_labels_are_added_where_there_were_none(stage: Stage) {
    let prepared = stage.prepare("me").await.set("lease.labels", json!({ "team": "a" }));
    let (me, _) = lead(&stage, prepared).await;

    let object = stage.lease.read().await.expect("a Lease");
    assert_eq!(object["metadata"]["labels"], json!({ "app.kubernetes.io/managed-by": "tenure", "team": "a" }));
    assert!(me.runs());
}

/// As a suspend looks from inside: nobody runs, and CLOCK_BOOTTIME goes on. No namespace lets a test step that clock under a running
/// process; what each machine does with such a step is in `init_that_wakes_after_h_kills_everything_first` (src/supervision) and
/// `after_a_gap_in_its_own_clock_the_term_is_ended_before_anything_is_sent` (src/election).
async fn case_55_after_a_gap_it_kills_before_it_speaks(stage: Stage) {
    let (me, _) = lead(&stage, stage.prepare("me").await.workload(&Behaviour::stubborn())).await;
    // The elector wakes first: what it does must not need init to be awake already.
    let all = [me.elector().await, me.init().await, me.workload().await];
    all.iter().for_each(|pid| kill(*pid, Signal::SIGSTOP).expect("it lives"));
    let frozen = clock::boot();
    until(frozen + 2 * timing::DURATION).await;
    // The elector may have killed the workload before its turn comes.
    for pid in all {
        let _ = kill(pid, Signal::SIGCONT);
    }

    let next = me.proxy.log.first("a write", |e| e.request.at > frozen + timing::DURATION && e.request.is_write()).await;
    assert!(next.request.at > stage.witness.lives()[0].last);
    assert!(stage.witness.start("me", 1).await.at() > next.request.at);
}
