//! Cases 56 to 66: stop, release, restart.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use serde_json::json;
use support::{
    Behaviour, Case, Exchange, Fault, Prepared, Replica, Request, Stage, Times, Valve, Verb, Verbs, cases,
    spec::{UNHURRIED, assert_on_version, end, held, is_held_by, micros, released, wait, wall},
    timing,
};
use tenure::clock;

use super::{assert_dead_by, last_confirmed, late, until};

/// Where nothing has to be waited for: a few times as long as the machine may stall.
const SOON: Duration = Duration::from_secs(15);

pub fn all() -> Vec<Case> {
    cases![
        case_56_the_lease_is_released_after_the_last_process_is_gone,
        case_56_a_lease_can_be_deleted_instead,
        case_56_a_lease_can_be_kept_instead,
        case_57_a_release_that_lost_to_an_own_late_renewal_is_repeated,
        case_60_a_release_that_nobody_answers_is_given_up,
        case_61_a_workload_that_ignores_its_stop_is_killed_with_its_daemons,
        case_62_what_cannot_be_killed_is_never_released,
        case_62_what_cannot_be_killed_dies_with_its_init_where_the_lease_is_lost,
        case_63_a_restart_keeps_the_term,
        case_63_a_restart_does_not_move_its_end,
        case_63_an_exit_releases_and_passes_its_code_on,
        case_64_a_follower_stops_without_a_write,
        case_65_a_stop_while_a_takeover_is_unanswered_gives_the_lease_back,
        case_65_a_stop_while_a_creation_is_unanswered_writes_nothing_more,
        case_66_a_killed_container_is_replaced_after_its_duration,
        case_94_between_the_last_process_and_the_free_lease_is_one_request,
    ]
}

fn is_done_release(exchange: &Exchange) -> bool {
    exchange.request.is_release() && exchange.succeeded()
}

async fn case_56_the_lease_is_released_after_the_last_process_is_gone(stage: Stage) {
    let linger = Behaviour::lingering(Duration::from_secs(4));
    let prepared = stage.prepare("me").await.unhurried().workload(&linger).set("workload.stop.grace", "10s");
    let (me, _) = stage.lead(prepared.set("lease.labels", json!({ "team": "a" }))).await;

    assert_eq!(me.stop().await, 0);
    let writes = me.proxy.log.writes();
    let (release, before) = writes.split_last().expect("writes");
    let last = &before.last().expect("a renewal");
    assert!(is_done_release(release));
    stage.witness.assert_gone("me", release.request.at);
    let stop = stage.witness.signal("me", "SIGTERM").await;
    assert!(last.request.at > stop.at(), "it renews during the grace");
    let spec = release.request.spec();
    assert_eq!((&spec["holderIdentity"], &spec["leaseDurationSeconds"]), (&json!(""), &json!(1)));
    assert_eq!(spec["acquireTime"], spec["renewTime"]);
    let time = micros(spec["renewTime"].as_str().expect("a time"));
    // It is at least a second later than that of the last renewal.
    assert!((wall(stage.witness.last_alive("me"))..=clock::wall() + 1_000_000).contains(&time), "{spec}");
    assert_eq!(spec["leaseTransitions"], last.request.spec()["leaseTransitions"]);
    assert_on_version(release, &last.answer.as_ref().expect("an answer").body);
    assert_eq!(release.request.body["metadata"]["labels"]["team"], "a");
}

async fn case_56_a_lease_can_be_deleted_instead(stage: Stage) {
    let verbs = Verbs::default().with("delete");
    let prepared = stage.prepare_with("me", &verbs).await.unhurried().set("lease.release", "delete");
    let (me, _) = stage.lead(prepared).await;

    assert_eq!(me.stop().await, 0);
    let writes = me.proxy.log.writes();
    let [.., clear, delete] = &writes[..] else { panic!("two writes") };
    assert!(is_done_release(clear) && delete.request.verb == Verb::Delete && delete.succeeded());
    let preconditions = &delete.request.body["preconditions"];
    let cleared = &clear.answer.as_ref().expect("an answer").body["metadata"];
    for field in ["uid", "resourceVersion"] {
        assert_eq!(preconditions[field], cleared[field]);
    }
    assert!(stage.lease.read().await.is_none());
}

async fn case_56_a_lease_can_be_kept_instead(stage: Stage) {
    let (me, _) = stage.lead(stage.prepare("me").await.set("lease.release", "keep")).await;

    assert_eq!(me.stop().await, 0);
    assert!(is_held_by(&stage.lease.read().await.expect("a Lease")["spec"], "me"));
}

async fn case_57_a_release_that_lost_to_an_own_late_renewal_is_repeated(stage: Stage) {
    let (me, _) = stage.lead(stage.prepare("me").await.unhurried()).await;
    let (late, release) = (Valve::closed(), Valve::closed());
    let before = me.proxy.log.count(|e| e.request.is_held());
    me.proxy.on(Request::is_held, Times::Only(1), Fault::late_request(&late));
    me.proxy.on(Request::is_release, Times::Only(1), Fault::late_request(&release));
    let renewal = me.proxy.log.nth(before, "a renewal under way", |e| e.request.is_held()).await;
    me.signal(Signal::SIGTERM).await;
    me.proxy.log.first("a release under way", |e| e.request.is_release()).await;

    late.open();
    me.proxy.log.first("the late renewal", |e| e.request.at == renewal.request.at && e.succeeded()).await;
    release.open();

    assert_eq!(me.exit().await, 0);
    let releases: Vec<_> = me.proxy.log.writes().into_iter().filter(|e| e.request.is_release()).collect();
    assert_eq!(releases.first().and_then(|e| e.answer.as_ref()).map(|answer| answer.status), Some(409));
    assert!(releases.last().is_some_and(Exchange::succeeded));
}

async fn case_60_a_release_that_nobody_answers_is_given_up(stage: Stage) {
    let (me, _) = stage.lead(stage.prepare("me").await.workload(&Behaviour::lingering(Duration::from_millis(1500)))).await;
    let x = stage.start("x").await;
    x.proxy.log.first("a watch", |e| e.request.verb == Verb::Watch).await;

    me.signal(Signal::SIGTERM).await;
    stage.witness.signal("me", "SIGTERM").await;
    me.proxy.cut();

    assert_eq!(me.exit().await, 0);
    let gone = clock::boot().since(stage.witness.last_alive("me"));
    assert!(gone < 2 * timing::ATTEMPT_TIMEOUT + Duration::from_secs(2), "it gives up {gone:?} after the proof");
    let last = stage.lease.read().await.expect("a Lease");
    assert!(is_held_by(&last["spec"], "me"));
    let start = stage.witness.start("x", 0).await;
    let renewed = me.proxy.log.all().into_iter().rfind(|e| e.request.is_held() && e.succeeded()).expect("a renewal");
    assert!(start.at() >= renewed.request.at + wait(4.0));
}

async fn case_61_a_workload_that_ignores_its_stop_is_killed_with_its_daemons(stage: Stage) {
    let behaviour = Behaviour { daemon: true, ..Behaviour::stubborn() };
    let (me, _) = stage.lead(stage.prepare("me").await.unhurried().workload(&behaviour)).await;
    stage.witness.start("me", 1).await;

    let asked = clock::boot();
    me.stop().await;
    stage.witness.signal("me", "SIGTERM").await;
    let release = me.proxy.log.first("a release", is_done_release).await;
    stage.witness.assert_gone("me", release.request.at);
    assert!(release.request.at >= asked + timing::GRACE, "the whole grace");
}

async fn case_62_what_cannot_be_killed_is_never_released(stage: Stage) {
    let (me, _) = stage.lead(stage.prepare("me").await.unhurried().without_kill()).await;
    let intruder = me.intruder().await;

    is_stopped_in_vain(&stage, &me).await;

    drop(intruder);
    me.proxy.log.first("a release after the proof", is_done_release).await;
    me.exit().await;
}

async fn case_62_what_cannot_be_killed_dies_with_its_init_where_the_lease_is_lost(stage: Stage) {
    // That much is left after H even on a busy machine.
    let prepared = stage.prepare("me").await.unhurried().set("workload.stop.killMargin", "4s").without_kill();
    let (me, _) = stage.lead(prepared).await;
    let intruder = me.intruder().await;
    let x = stage.start("x").await;
    x.proxy.log.first("a watch", |e| e.request.verb == Verb::Watch).await;

    me.proxy.cut();
    let last = last_confirmed(&me, clock::boot());

    intruder.ended().await;
    assert!(clock::boot() < UNHURRIED.end(last.request.at));
    assert_eq!(me.exit().await, 70);
    stage.witness.start("x", 0).await;
}

/// Asked to stop, but without a proof of death: it renews even after the grace period, and releases nothing.
async fn is_stopped_in_vain(stage: &Stage, me: &Replica) {
    me.signal(Signal::SIGTERM).await;

    let stop = stage.witness.signal("me", "SIGTERM").await;
    me.said("processes are left that SIGKILL does not remove").await;
    let later = stop.at() + timing::GRACE + timing::DURATION;
    me.proxy.log.first("renewals go on", |e| e.request.at > later && e.request.is_held() && e.succeeded()).await;
    assert_eq!(me.proxy.log.count(|e| e.request.is_release()), 0);
    assert!(me.runs());
}

/// Makes it restart its workload when that exits with an error.
fn restarting(prepared: Prepared) -> Prepared {
    prepared.unhurried().set("workload.onExit", "restart").set("workload.restart.delay", "100ms")
}

async fn case_63_a_restart_keeps_the_term(stage: Stage) {
    let (me, first) = stage.lead(restarting(stage.prepare("me").await)).await;

    kill(me.workload().await, Signal::SIGUSR1).expect("the workload lives");

    let second = stage.witness.start("me", 1).await;
    for name in ["TENURE_FENCING_TOKEN", "TENURE_TERM", "TENURE_LEASE_UID"] {
        assert_eq!(first.variable(name), second.variable(name));
    }
    // An exit that the restart policy does not cover ends the replica.
    kill(me.workload().await, Signal::SIGUSR2).expect("the workload lives");
    assert_eq!(me.exit().await, 0);
    me.proxy.log.first("a release", is_done_release).await;
    assert_eq!(stage.witness.starts("me"), 2);
}

async fn case_63_a_restart_does_not_move_its_end(stage: Stage) {
    let prepared = restarting(stage.prepare("me").await).workload(&Behaviour::stubborn());
    let (me, _) = stage.lead(prepared).await;
    me.proxy.cut();
    let last = last_confirmed(&me, clock::boot());
    until(last.request.at + Duration::from_secs(5)).await;

    kill(me.workload().await, Signal::SIGUSR1).expect("the workload lives");

    stage.witness.start("me", 1).await;
    assert_dead_by(&stage, "me", UNHURRIED.end(last.request.at)).await;
}

async fn case_63_an_exit_releases_and_passes_its_code_on(stage: Stage) {
    let (me, _) = stage.lead(stage.prepare("me").await.unhurried()).await;

    kill(me.workload().await, Signal::SIGUSR1).expect("the workload lives");

    assert_eq!(me.exit().await, 7);
    let release = me.proxy.log.first("a release", is_done_release).await;
    stage.witness.assert_gone("me", release.request.at);
}

async fn case_64_a_follower_stops_without_a_write(stage: Stage) {
    stage.lease.create(held("x_1", 60)).await;
    let me = stage.start("me").await;
    me.proxy.log.first("a watch", |e| e.request.verb == Verb::Watch).await;

    let asked = clock::boot();
    assert_eq!(me.stop().await, 0);
    assert!(clock::boot() < asked + SOON);
    assert!(me.proxy.log.writes().is_empty());
}

async fn case_65_a_stop_while_a_takeover_is_unanswered_gives_the_lease_back(stage: Stage) {
    stage.lease.create(released()).await;
    let prepared = stage.prepare("me").await.unhurried();
    prepared.proxy.on(Request::is_held, Times::Only(1), Fault::lost_reply());
    let me = prepared.start();
    me.proxy.log.first("a takeover done", |e| e.request.is_held() && e.succeeded()).await;

    assert_eq!(me.stop().await, 0);
    assert_eq!(stage.lease.read().await.expect("a Lease")["spec"]["holderIdentity"], "");
}

async fn case_65_a_stop_while_a_creation_is_unanswered_writes_nothing_more(stage: Stage) {
    let prepared = stage.prepare("me").await.set("lease.attemptTimeout", "800ms");
    prepared.proxy.on(|request| request.verb == Verb::Create, Times::Only(1), Fault::lost_reply());
    let me = prepared.start();
    me.proxy.log.first("a creation done", |e| e.request.verb == Verb::Create && e.succeeded()).await;

    assert_eq!(me.stop().await, 0);
    assert_eq!(me.proxy.log.writes().len(), 1);
    assert_eq!(stage.witness.starts("me"), 0);
}

async fn case_94_between_the_last_process_and_the_free_lease_is_one_request(stage: Stage) {
    let (me, _) = stage.lead(stage.prepare("me").await.unhurried()).await;
    me.proxy.log.first("a watch", |e| e.request.verb == Verb::Watch && e.succeeded()).await;

    assert_eq!(me.stop().await, 0);
    let since = me.proxy.log.since(stage.witness.last_alive("me"));
    let verbs: Vec<_> = since.iter().map(|e| (e.request.verb, e.request.is_release())).collect();
    assert_eq!(verbs, [(Verb::Update, true)]);
}

async fn case_66_a_killed_container_is_replaced_after_its_duration(stage: Stage) {
    let (me, _) = stage.lead(stage.prepare("me").await).await;
    let x = stage.start("x").await;
    x.proxy.log.first("a watch", |e| e.request.verb == Verb::Watch).await;
    me.proxy.log.nth(2, "renewals", |e| e.request.is_held() && e.succeeded()).await;

    me.signal(Signal::SIGKILL).await;

    let start = stage.witness.start("x", 0).await;
    let last = me.proxy.log.all().into_iter().rfind(|e| e.request.is_held() && e.succeeded()).expect("a renewal");
    // The commit lies between the request and its answer.
    assert!(start.at() >= last.request.at + wait(4.0));
    assert!(start.at() < last.answered_at() + wait(4.0) + timing::RENEW_PERIOD + late(last.request.at));
    assert!(stage.witness.last_alive("me") < end(last.request.at));
}
