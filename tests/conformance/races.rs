//! Cases 76 to 90: schedules in which an earlier wording of the law allowed two workloads at once, or a repeated token.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use support::{
    Behaviour, Canned, Case, Event, Exchange, Fault, PATIENCE, Request, Stage, Times, Valve, Verb, cases,
    spec::{UNHURRIED, calm, held, released, soft, time, wait},
    timing, within,
};
use tenure::{clock, election::writes::NOBODY};

use super::{assert_dead_by, assert_newer, assert_stopped_at_s, is_renewal, last_confirmed, takeover, token, until, vacated};

pub fn all() -> Vec<Case> {
    cases![
        case_76_nothing_starts_on_the_validity_that_a_release_gave_up,
        case_77_a_stop_while_nobody_holds_writes_nothing_and_the_next_waits_from_its_sight,
        case_78_what_is_wiped_again_and_again_is_held_by_nobody_again,
        case_78_a_new_elector_waits_as_long,
        case_79_a_stale_read_does_not_bring_a_lost_term_back,
        case_80_a_new_elector_keeps_the_constants_of_the_term,
        case_81_an_elector_that_dies_in_a_renewal_is_not_noticed,
        case_82_a_stop_during_a_pending_restart_starts_nothing,
        case_83_a_displaced_leader_is_waited_for_whoever_has_led_since,
        case_84_no_two_electors_write_the_same,
        case_85_an_init_that_oversleeps_starts_nothing,
        case_86_a_frozen_elector_of_a_follower_is_replaced,
        case_87_a_late_confirmation_revives_nothing,
        case_88_a_passed_deadline_of_an_old_term_kills_nothing,
        case_89_a_request_to_an_earlier_holder_is_removed,
        case_90_only_its_holder_retakes_a_paused_lease,
        case_91_labels_of_others_do_not_lengthen_the_wait_for_nobody,
        case_92_a_copy_that_renews_too_ends_the_term,
        case_93_without_a_creation_wait_nobody_is_waited_for,
        case_93_a_holder_is_waited_for_all_the_same,
    ]
}

async fn case_76_nothing_starts_on_the_validity_that_a_release_gave_up(stage: Stage) {
    let (me, first) = stage.lead(stage.prepare("me").await.set("workload.onExit", "follow")).await;
    me.proxy.on(Request::is_release, Times::Always, Fault::lost_request());

    kill(me.workload().await, Signal::SIGUSR2).expect("the workload lives");

    me.proxy.log.first("a release under way", |e| e.request.is_release()).await;
    let second = stage.witness.start("me", 1).await;
    let write = me
        .proxy
        .log
        .all()
        .into_iter()
        .find(|e| e.succeeded() && e.request.is_write() && e.version() == token(&second).to_string());
    let write = write.expect("a write of its own");
    let release = me.proxy.log.first("the release", |e| e.request.is_release()).await;
    assert!(write.request.at > release.request.at && second.at() >= write.request.at);
    assert_newer(&second, &first);
}

async fn case_77_a_stop_while_nobody_holds_writes_nothing_and_the_next_waits_from_its_sight(stage: Stage) {
    let me = stage.prepare("me").await.unhurried().start();
    vacated(&me).await;

    assert_eq!(me.stop().await, 0);
    assert_eq!((me.proxy.log.writes().len(), stage.witness.starts("me")), (1, 0));
    stage.lease.edit(|lease| lease["spec"]["leaseDurationSeconds"] = json!(4)).await;
    let x = stage.start("x").await;
    stage.witness.start("x", 0).await;
    let seen = x.proxy.log.first("a read", |e| e.request.verb == Verb::Get && e.succeeded()).await;
    let taken = takeover(&x).await;
    assert!(taken.request.at >= seen.request.at + wait(4.0) && !x.proxy.log.writes().iter().any(|e| e.request.is_nobody()));
}

async fn case_78_what_is_wiped_again_and_again_is_held_by_nobody_again(stage: Stage) {
    let me = stage.start("me").await;
    let mut last = clock::boot();
    for count in 0..4 {
        me.proxy.log.nth(count, "nobody's hold", |e| e.request.is_nobody() && e.succeeded()).await;
        last = clock::boot();
        stage.lease.set_spec(Value::Null).await;
    }

    let start = stage.witness.start("me", 0).await;

    assert!(start.at() >= last + wait(4.0), "never before a whole wait");
    assert!(me.proxy.log.count(|e| e.request.is_nobody()) <= 8, "paced as retries");
}

async fn case_78_a_new_elector_waits_as_long(stage: Stage) {
    stage.lease.create(held("x_1", 8)).await;
    let me = stage.start("me").await;
    me.proxy.log.first("a watch", |e| e.request.verb == Verb::Watch && e.succeeded()).await;
    let wiped = clock::boot();
    stage.lease.set_spec(Value::Null).await;
    vacated(&me).await;

    kill(me.elector().await, Signal::SIGKILL).expect("the elector lives");
    stage.lease.set_spec(released()).await;

    let start = stage.witness.start("me", 0).await;
    assert!(start.at() >= wiped + wait(8.0), "it was told what its predecessor had seen");
}

async fn case_79_a_stale_read_does_not_bring_a_lost_term_back(stage: Stage) {
    let (me, first) = stage.lead(stage.prepare("me").await).await;
    let acquired = me.proxy.log.first("the acquiring write", |e| e.request.is_held() && e.succeeded()).await;
    let stale = acquired.answer.expect("an answer").body;
    stage.lease.set_spec(held("x_1", 2)).await;
    let reads = |request: &Request| request.verb == Verb::Get;
    me.proxy.on(reads, Times::Only(3), Fault::answered(Canned { status: 200, body: stale.to_string(), ..Canned::default() }));

    let second = stage.witness.start("me", 1).await;

    assert_newer(&second, &first);
    let write = me
        .proxy
        .log
        .first("its write", |e| e.succeeded() && e.request.is_write() && e.version() == token(&second).to_string())
        .await;
    assert!(second.at() >= write.request.at && write.request.at > stage.witness.lives()[0].last);
}

async fn case_80_a_new_elector_keeps_the_constants_of_the_term(stage: Stage) {
    let prepared = stage.prepare("me").await.unhurried().workload(&Behaviour::stubborn());
    let (me, first) = stage.lead(prepared).await;
    // Each of these would move S, alone as well as together with the others.
    stage.rewrite_config("me", |config| {
        config["lease"]["duration"] = json!("60s");
        config["lease"]["clockDrift"] = json!("20%");
        config["workload"]["stop"]["lossGrace"] = json!("8s");
        config["workload"]["stop"]["killMargin"] = json!("8s");
    });
    let elector = me.elector().await;

    kill(elector, Signal::SIGKILL).expect("the elector lives");
    let killed = clock::boot();

    let renewed = me.proxy.log.nth(2, "renewals", |e| e.request.at > killed && e.request.is_held() && e.succeeded()).await;
    assert_eq!(renewed.request.spec()["leaseDurationSeconds"], 20);
    assert_ne!(me.elector().await, elector);
    assert_eq!(stage.witness.all().len(), 1, "the workload noticed nothing");
    assert_eq!(renewed.request.spec()["leaseTransitions"].to_string(), first.variable("TENURE_TERM"));
    me.proxy.cut();
    let cut = clock::boot();
    let stop = stage.witness.signal("me", "SIGTERM").await;
    assert_stopped_at_s(UNHURRIED, &me, &stop, cut);
    assert_dead_by(&stage, "me", UNHURRIED.end(last_confirmed(&me, cut).request.at)).await;
}

/// A leader whose elector dies during a renewal that commits but is not answered; returns that renewal and the next write.
async fn elector_dies_in_a_renewal(stage: &Stage) -> (Exchange, Exchange) {
    // Without an answer the elector itself would soon write again, before it is killed.
    let (me, _) = stage.lead(stage.prepare("me").await.unhurried()).await;
    let since = clock::boot();
    me.proxy.on(Request::is_held, Times::Only(1), Fault::lost_reply());
    let unanswered = me.proxy.log.first("a renewal done", |e| e.request.at > since && e.request.is_held() && e.succeeded()).await;

    kill(me.elector().await, Signal::SIGKILL).expect("the elector lives");

    let after = |e: &Exchange| e.request.at > unanswered.request.at && e.request.is_held() && e.succeeded();
    let next = me.proxy.log.first("the next elector's renewal", after).await;
    me.proxy.log.nth(2, "renewals", after).await;
    assert_eq!(stage.witness.all().len(), 1, "the workload noticed nothing");
    (unanswered, next)
}

async fn case_81_an_elector_that_dies_in_a_renewal_is_not_noticed(stage: Stage) {
    let (unanswered, next) = elector_dies_in_a_renewal(&stage).await;

    assert_eq!(next.request.body["metadata"]["resourceVersion"], unanswered.version());
}

/// The wall clock of one process cannot be stepped: `the_bytes_of_a_successor_differ_even_if_the_wall_clock_is_behind` in
/// src/election/tests/resume.rs does that in virtual time.
async fn case_84_no_two_electors_write_the_same(stage: Stage) {
    let (unanswered, next) = elector_dies_in_a_renewal(&stage).await;

    assert_ne!(next.request.spec(), unanswered.request.spec());
    let micros = |exchange: &Exchange| exchange.request.spec()["renewTime"].as_str().expect("a time")[23..26].to_owned();
    assert_ne!(micros(&next), micros(&unanswered), "the microseconds carry the elector's number");
}

async fn case_82_a_stop_during_a_pending_restart_starts_nothing(stage: Stage) {
    let prepared = stage.prepare("me").await.unhurried();
    let prepared = prepared.set("workload.onExit", "restart").set("workload.restart.delay", "10s");
    let (me, _) = stage.lead(prepared).await;
    kill(me.workload().await, Signal::SIGUSR1).expect("the workload lives");
    let ended = stage.witness.first("its end", |event| event.what == "end").await;
    me.proxy.log.first("a renewal after it", |e| e.request.at > ended.at() && e.request.is_held() && e.succeeded()).await;

    me.stop().await;
    me.proxy.log.first("a release", |e| e.request.is_release() && e.succeeded()).await;
    assert_eq!(stage.witness.starts("me"), 1);
}

/// A leader that is cut off, and whose Lease somebody who did not wait takes and gives back; the standby that saw it, and a fresh one.
async fn case_83_a_displaced_leader_is_waited_for_whoever_has_led_since(stage: Stage) {
    let (me, _) = stage.lead(calm(stage.prepare("me").await).workload(&Behaviour::stubborn())).await;
    let x = stage.start("x").await;
    x.proxy.log.first("a watch", |e| e.request.verb == Verb::Watch && e.succeeded()).await;
    me.proxy.log.nth(2, "renewals", |e| e.request.is_held() && e.succeeded()).await;

    me.proxy.cut();
    let displaced = clock::boot();
    stage.lease.set_spec(held("client-go", 2)).await;
    stage.lease.set_spec(released()).await;
    let fresh = calm(stage.prepare("fresh").await).start();

    let start = stage.witness.first("the next start", |event| event.what == "start" && event.replica != "me").await;
    assert!(start.at() >= displaced + wait(10.0), "{:?} after it", start.at().since(displaced));
    stage.witness.assert_gone("me", start.at());
    drop((x, fresh));
}

/// Stopped before it reads the Lead. The stop between its check and the exec, which cannot be timed from outside, is tested in
/// `a_child_that_was_stopped_past_its_deadline_runs_nothing` (tests/process), where the child is stopped before its execve.
async fn case_85_an_init_that_oversleeps_starts_nothing(stage: Stage) {
    stage.lease.create(released()).await;
    let valve = Valve::closed();
    let prepared = stage.prepare("me").await.set("lease.attemptTimeout", "800ms");
    prepared.proxy.on(Request::is_held, Times::Only(1), Fault::late_reply(&valve));
    let me = prepared.start();
    let taken = me.proxy.log.first("a takeover done", |e| e.request.is_held() && e.succeeded()).await;
    me.signal(Signal::SIGSTOP).await;
    valve.open();
    let x = stage.prepare("x").await.unhurried().start();
    stage.witness.start("x", 0).await;
    assert!(clock::boot() > soft(taken.request.at));

    me.signal(Signal::SIGCONT).await;

    x.proxy.log.nth(5, "x goes on", |e| e.request.is_held() && e.succeeded()).await;
    assert_eq!(stage.witness.starts("me"), 0);
    assert!(me.runs());
}

async fn case_86_a_frozen_elector_of_a_follower_is_replaced(stage: Stage) {
    stage.lease.create(held("x_1", 6)).await;
    let me = stage.start("me").await;
    me.proxy.log.first("a watch", |e| e.request.verb == Verb::Watch).await;
    let elector = me.elector().await;

    kill(elector, Signal::SIGSTOP).expect("the elector lives");

    stage.witness.start("me", 0).await;
    assert_ne!(me.elector().await, elector);
}

async fn case_87_a_late_confirmation_revives_nothing(stage: Stage) {
    let linger = Behaviour::lingering(Duration::from_secs(1));
    let (me, first) = stage.lead(stage.prepare("me").await.unhurried().workload(&linger)).await;
    let valve = Valve::closed();
    // Two attempts are over before S. The third is in flight then.
    me.proxy.on(is_renewal, Times::Always, Fault::late_reply(&valve));
    me.proxy.on(is_renewal, Times::Only(2), Fault::lost_request());
    let before = clock::boot();
    let late = me.proxy.log.first("a renewal done", |e| e.request.at > before && e.request.is_held() && e.succeeded()).await;

    stage.witness.signal("me", "SIGTERM").await;
    valve.open();

    let second = stage.witness.start("me", 1).await;
    assert_newer(&second, &first);
    assert!(token(&second) > late.version().parse().expect("a resourceVersion"));
    assert!(stage.witness.all().iter().any(|event| event.what == "end"));
}

async fn case_88_a_passed_deadline_of_an_old_term_kills_nothing(stage: Stage) {
    let prepared = stage.prepare("me").await.unhurried().set("lease.creationWait", "0s");
    let (me, first) = stage.lead(prepared).await;
    me.proxy.log.nth(1, "a renewal", |e| e.request.is_held() && e.succeeded()).await;

    stage.lease.set_spec(released()).await;

    let old = last_confirmed(&me, clock::boot());
    let second = stage.witness.start("me", 1).await;
    assert_newer(&second, &first);
    assert!(second.at() < UNHURRIED.end(old.request.at), "a new term before the old deadlines");
    until(UNHURRIED.end(old.request.at) + timing::KILL_MARGIN).await;
    within(PATIENCE, "it lives on", async {
        while stage.witness.last_alive("me") <= UNHURRIED.end(old.request.at) {
            tokio::time::sleep(timing::KILL_MARGIN).await;
        }
    })
    .await;
    let after = |event: &Event| event.at() > second.at();
    assert!(!stage.witness.all().iter().any(after), "no signal, no start");
}

async fn case_89_a_request_to_an_earlier_holder_is_removed(stage: Stage) {
    stage.lease.create(released()).await;
    stage.lease.edit(|lease| lease["metadata"]["annotations"] = json!({ "tenure.dev/step-down": "x_1", "note": "kept" })).await;

    let me = stage.prepare("me").await.unhurried().start();

    stage.witness.start("me", 0).await;
    me.proxy.log.nth(2, "renewals", |e| e.request.is_held() && e.succeeded()).await;
    assert_eq!(stage.witness.all().len(), 1, "the workload noticed nothing");
    let annotations = stage.lease.read().await.expect("a Lease")["metadata"]["annotations"].clone();
    assert_eq!((&annotations["tenure.dev/step-down"], &annotations["note"]), (&Value::Null, &json!("kept")));
}

async fn case_90_only_its_holder_retakes_a_paused_lease(stage: Stage) {
    let (me, _) = stage.lead(calm(stage.prepare("me").await)).await;
    let x = stage.start("x").await;
    x.proxy.log.first("a watch", |e| e.request.verb == Verb::Watch).await;
    stage.lease.edit(|lease| lease["metadata"]["annotations"]["tenure.dev/paused"] = json!("true")).await;
    me.proxy.log.nth(1, "a renewal", |e| e.request.is_held() && e.succeeded()).await;

    me.proxy.cut();
    stage.witness.signal("me", "SIGTERM").await;
    tokio::time::sleep(2 * timing::DURATION).await;
    me.proxy.mend().await;

    stage.witness.start("me", 1).await;
    assert!(x.proxy.log.writes().is_empty());
    assert_eq!(stage.witness.starts("x"), 0);
}

async fn case_91_labels_of_others_do_not_lengthen_the_wait_for_nobody(stage: Stage) {
    let me = stage.start("me").await;
    let vacated = vacated(&me).await;

    let labels = async {
        for count in 0.. {
            stage.lease.edit(|lease| lease["metadata"]["labels"]["theirs"] = json!(count.to_string())).await;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    let start = tokio::select! {
        () = labels => unreachable!("labels are written without end"),
        start = stage.witness.start("me", 0) => start,
    };

    assert!(start.at() >= vacated.request.at + wait(4.0));
    assert_eq!(me.proxy.log.count(|e| e.request.is_nobody()), 1);
}

async fn case_92_a_copy_that_renews_too_ends_the_term(stage: Stage) {
    let prepared = calm(stage.prepare("me").await);
    prepared.proxy.on(|request| request.verb == Verb::Watch, Times::Always, Fault::silent_watch(""));
    let (me, _) = stage.lead(prepared).await;
    me.proxy.log.nth(1, "a renewal", |e| e.request.is_held() && e.succeeded()).await;

    let copied = clock::boot();
    stage.lease.edit(|lease| lease["spec"]["renewTime"] = json!(time(1))).await;

    let stop = stage.witness.signal("me", "SIGTERM").await;
    let renewals = |e: &Exchange| e.request.at > copied && e.request.is_held() && e.succeeded();
    assert_eq!(me.proxy.log.count(|e| renewals(e) && e.request.at < stop.at() + wait(4.0)), 0, "it renews no further");
    me.said("lost-to-copy").await;
}

async fn case_93_without_a_creation_wait_nobody_is_waited_for(stage: Stage) {
    for (name, spec) in [("absent", None), ("free", Some(Value::Null)), ("nobody", Some(held(NOBODY, 20)))] {
        let stage = stage.beside(name).await;
        if let Some(spec) = spec {
            stage.lease.create(spec).await;
        }

        let me = stage.prepare("me").await.unhurried().set("lease.creationWait", "0s").start();

        let start = stage.witness.start("me", 0).await;
        let first = me.proxy.log.first("a read", |e| e.request.verb == Verb::Get && e.answer.is_some()).await;
        assert!(start.at() < first.answered_at() + wait(20.0), "{name}");
    }
}

async fn case_93_a_holder_is_waited_for_all_the_same(stage: Stage) {
    stage.lease.create(held("client-go", 4)).await;
    let since = clock::boot();
    stage.lease.edit(|lease| lease["metadata"]["annotations"] = json!({ "tenure.dev/holder": "x_1" })).await;
    let me = stage.prepare("me").await.set("lease.creationWait", "0s").start();

    stage.witness.start("me", 0).await;

    assert!(takeover(&me).await.request.at >= since + wait(4.0));
}
