//! Cases 56 to 73: stop, release, restart, and what a replica asks of its cluster.

use std::{net::SocketAddr, time::Duration};

use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use tenure::clock;

use crate::{
    freezer::Freezer,
    lead,
    spec::{assert_on_version, end, held, is_held_by, released, time, wait},
    support::{
        PATIENCE,
        api::Verbs,
        case::{Case, cases},
        proxy::{
            fault::{Fault, Times, Valve},
            log::{Exchange, Request, Verb},
        },
        server::Kind,
        stage::{Stage, timing},
        within,
        workload::Behaviour,
    },
};

pub fn all() -> Vec<Case> {
    cases![
        case_56_the_lease_is_released_after_the_last_process_is_gone,
        case_56_a_lease_can_be_deleted_instead,
        case_56_a_lease_can_be_kept_instead,
        case_57_a_release_that_lost_to_an_own_late_renewal_is_repeated,
        case_60_a_release_that_nobody_answers_is_given_up,
        case_61_a_workload_that_ignores_its_stop_is_killed_with_its_daemons,
        case_62_what_cannot_be_killed_is_never_released,
        case_62_what_does_not_die_of_a_kill_is_never_released,
        case_63_a_restart_keeps_the_term,
        case_63_an_exit_releases_and_passes_its_code_on,
        case_64_a_follower_stops_without_a_write,
        case_65_a_stop_while_a_takeover_is_unanswered_gives_the_lease_back,
        case_65_a_stop_while_a_creation_is_unanswered_writes_nothing_more,
        case_66_a_killed_container_is_replaced_after_its_duration,
        case_67_what_cannot_be_lawful_is_refused_without_a_request,
        case_68_each_new_holder_is_reported_once,
        case_69_health_follows_the_renewals,
        case_70_a_hundred_tokens_rise,
        case_72_without_watch_it_polls,
        case_72_without_create_it_waits_for_the_lease,
        case_73_a_watch_that_is_expired,
        case_73_a_watch_with_bookmarks_only,
        case_73_a_watch_that_ends_every_time,
        case_73_a_watch_that_is_silent,
    ]
}

fn is_done_release(exchange: &Exchange) -> bool {
    exchange.request.is_release() && exchange.succeeded()
}

async fn case_56_the_lease_is_released_after_the_last_process_is_gone(stage: Stage) {
    let linger = Behaviour::lingering(Duration::from_millis(1500));
    let prepared = stage.prepare("me").await.workload(&linger).set("lease.labels", json!({ "team": "a" }));
    let (me, _) = lead(&stage, prepared).await;

    me.signal(Signal::SIGTERM).await;

    assert_eq!(me.exit().await, 0);
    let writes = me.proxy.log.writes();
    let (release, before) = writes.split_last().expect("writes");
    let last = &before.last().expect("a renewal");
    assert!(is_done_release(release));
    assert!(release.request.at > stage.witness.last_alive("me"), "death, then the release");
    let stop = stage.witness.signal("me", "SIGTERM").await;
    assert!(last.request.at > stop.at(), "it renews during the grace");
    let spec = release.request.spec();
    assert_eq!((&spec["holderIdentity"], &spec["leaseDurationSeconds"]), (&json!(""), &json!(1)));
    assert_eq!(spec["acquireTime"], spec["renewTime"]);
    assert_eq!(spec["leaseTransitions"], last.request.spec()["leaseTransitions"]);
    assert_on_version(release, &last.answer.as_ref().expect("an answer").body);
    assert_eq!(release.request.body["metadata"]["labels"]["team"], "a");
}

async fn case_56_a_lease_can_be_deleted_instead(stage: Stage) {
    let verbs = Verbs::default().with("delete");
    let prepared = stage.prepare_with("me", &verbs).await.set("lease.release", "delete");
    let (me, _) = lead(&stage, prepared).await;

    me.signal(Signal::SIGTERM).await;

    assert_eq!(me.exit().await, 0);
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
    let (me, _) = lead(&stage, stage.prepare("me").await.set("lease.release", "keep")).await;

    me.signal(Signal::SIGTERM).await;

    assert_eq!(me.exit().await, 0);
    assert!(is_held_by(&stage.lease.read().await.expect("a Lease")["spec"], "me"));
}

async fn case_57_a_release_that_lost_to_an_own_late_renewal_is_repeated(stage: Stage) {
    let (me, _) = lead(&stage, stage.prepare("me").await.set("lease.attemptTimeout", "800ms")).await;
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
    let (me, _) = lead(&stage, stage.prepare("me").await.workload(&Behaviour::lingering(Duration::from_millis(300)))).await;
    let x = stage.start("x").await;
    x.proxy.log.first("a watch", |e| e.request.verb == Verb::Watch).await;

    me.signal(Signal::SIGTERM).await;
    stage.witness.signal("me", "SIGTERM").await;
    me.proxy.cut();

    assert_eq!(me.exit().await, 0);
    let last = stage.lease.read().await.expect("a Lease");
    assert!(is_held_by(&last["spec"], "me"));
    let start = stage.witness.start("x", 0).await;
    let renewed = me.proxy.log.all().into_iter().rfind(|e| e.request.is_held() && e.succeeded()).expect("a renewal");
    assert!(start.at() >= renewed.request.at + wait(4.0));
}

async fn case_61_a_workload_that_ignores_its_stop_is_killed_with_its_daemons(stage: Stage) {
    let behaviour = Behaviour { daemon: true, ..Behaviour::stubborn() };
    let (me, _) = lead(&stage, stage.prepare("me").await.workload(&behaviour)).await;
    stage.witness.start("me", 1).await;

    me.signal(Signal::SIGTERM).await;

    me.exit().await;
    let stop = stage.witness.signal("me", "SIGTERM").await;
    let release = me.proxy.log.first("a release", is_done_release).await;
    let last = stage.witness.last_alive("me");
    assert!(release.request.at > last, "the daemon too, then the release");
    assert!(last >= stop.at() + timing::GRACE - Duration::from_millis(100), "the whole grace");
}

async fn case_62_what_cannot_be_killed_is_never_released(stage: Stage) {
    let (me, _) = lead(&stage, stage.prepare("me").await.without_kill()).await;
    let intruder = me.intruder().await;

    me.signal(Signal::SIGTERM).await;

    let stop = stage.witness.signal("me", "SIGTERM").await;
    let later = stop.at() + timing::GRACE + timing::DURATION;
    me.proxy.log.first("renewals go on", |e| e.request.at > later && e.request.is_held() && e.succeeded()).await;
    assert_eq!(me.proxy.log.count(|e| e.request.is_release()), 0);
    assert!(me.runs());
    drop(intruder);
    me.proxy.log.first("a release after the proof", is_done_release).await;
    me.exit().await;
}

/// SIGKILL is taken and does nothing until the freezer lets go, as with a process that hangs in the kernel.
async fn case_62_what_does_not_die_of_a_kill_is_never_released(stage: Stage) {
    let freezer = match Freezer::make() {
        Ok(freezer) => freezer,
        Err(error) => return eprintln!("case 62 did not see a process that does not die: no cgroup v1 freezer here: {error}"),
    };
    let daemon = Behaviour { daemon: true, ..Behaviour::obedient() };
    let (me, _) = lead(&stage, stage.prepare("me").await.workload(&daemon)).await;
    let (init, workload) = (me.init().await, me.workload().await);
    freezer.freeze(me.child_beside(init, workload).await).await;

    me.signal(Signal::SIGTERM).await;

    let stop = stage.witness.signal("me", "SIGTERM").await;
    let later = stop.at() + timing::GRACE + timing::DURATION;
    me.proxy.log.first("renewals go on", |e| e.request.at > later && e.request.is_held() && e.succeeded()).await;
    assert_eq!(me.proxy.log.count(|e| e.request.is_release()), 0);
    assert!(me.runs());
    drop(freezer);
    me.proxy.log.first("a release after the proof", is_done_release).await;
    me.exit().await;
}

async fn case_63_a_restart_keeps_the_term(stage: Stage) {
    let prepared = stage.prepare("me").await.set("workload.onExit", "restart").set("workload.restart.delay", "100ms");
    let (me, first) = lead(&stage, prepared).await;

    kill(me.workload().await, Signal::SIGUSR1).expect("the workload lives");

    let second = stage.witness.start("me", 1).await;
    for name in ["TENURE_FENCING_TOKEN", "TENURE_TERM", "TENURE_LEASE_UID"] {
        assert_eq!(first.variable(name), second.variable(name));
    }
    // An end that the policy does not cover is an exit.
    kill(me.workload().await, Signal::SIGUSR2).expect("the workload lives");
    assert_eq!(me.exit().await, 0);
    me.proxy.log.first("a release", is_done_release).await;
    assert_eq!(stage.witness.starts("me"), 2);
}

async fn case_63_an_exit_releases_and_passes_its_code_on(stage: Stage) {
    let (me, _) = lead(&stage, stage.prepare("me").await).await;

    kill(me.workload().await, Signal::SIGUSR1).expect("the workload lives");

    assert_eq!(me.exit().await, 7);
    let release = me.proxy.log.first("a release", is_done_release).await;
    assert!(release.request.at > stage.witness.last_alive("me"));
}

async fn case_64_a_follower_stops_without_a_write(stage: Stage) {
    stage.lease.create(held("x_1", 60)).await;
    let me = stage.start("me").await;
    me.proxy.log.first("a watch", |e| e.request.verb == Verb::Watch).await;

    me.signal(Signal::SIGTERM).await;

    assert_eq!(me.exit().await, 0);
    assert!(me.proxy.log.writes().is_empty());
}

async fn case_65_a_stop_while_a_takeover_is_unanswered_gives_the_lease_back(stage: Stage) {
    stage.lease.create(released()).await;
    let prepared = stage.prepare("me").await;
    prepared.proxy.on(Request::is_held, Times::Only(1), Fault::lost_reply());
    let me = prepared.start();
    me.proxy.log.first("a takeover done", |e| e.request.is_held() && e.succeeded()).await;

    me.signal(Signal::SIGTERM).await;

    assert_eq!(me.exit().await, 0);
    assert_eq!(stage.lease.read().await.expect("a Lease")["spec"]["holderIdentity"], "");
}

async fn case_65_a_stop_while_a_creation_is_unanswered_writes_nothing_more(stage: Stage) {
    let prepared = stage.prepare("me").await;
    prepared.proxy.on(|request| request.verb == Verb::Create, Times::Only(1), Fault::lost_reply());
    let me = prepared.start();
    me.proxy.log.first("a creation done", |e| e.request.verb == Verb::Create && e.succeeded()).await;

    me.signal(Signal::SIGTERM).await;

    me.exit().await;
    assert!(is_held_by(&stage.lease.read().await.expect("a Lease")["spec"], "me"), "no release mark");
    assert_eq!(me.proxy.log.writes().len(), 1);
    assert_eq!(stage.witness.starts("me"), 0);
}

async fn case_66_a_killed_container_is_replaced_after_its_duration(stage: Stage) {
    let (me, _) = lead(&stage, stage.prepare("me").await).await;
    let x = stage.start("x").await;
    x.proxy.log.first("a watch", |e| e.request.verb == Verb::Watch).await;
    me.proxy.log.nth(2, "renewals", |e| e.request.is_held() && e.succeeded()).await;

    me.signal(Signal::SIGKILL).await;

    let start = stage.witness.start("x", 0).await;
    let last = me.proxy.log.all().into_iter().rfind(|e| e.request.is_held() && e.succeeded()).expect("a renewal");
    // The commit lies between the request and its answer.
    assert!(start.at() >= last.request.at + wait(4.0));
    assert!(stage.witness.last_alive("me") < end(last.request.at));
}

async fn case_67_what_cannot_be_lawful_is_refused_without_a_request(stage: Stage) {
    for (key, value, numbers) in [
        ("lease.duration", "1s", "2s is the shortest"),
        ("lease.duration", "2500ms", "write 3s"),
        ("lease.duration", "0s", "2s is the shortest"),
        ("lease.duration", "-4s", "lease.duration"),
        ("lease.duration", "2s", "the next one is due after 1s, the workload is stopped after 1s180ms"),
        ("lease.renewPeriod", "0s", "1s is the shortest"),
        ("lease.renewPeriod", "-1s", "lease.renewPeriod"),
        ("lease.renewPeriod", "900ms", "1s is the shortest"),
        ("lease.renewPeriod", "3500ms", "the next one is due after 3s500ms, the workload is stopped after 3s160ms"),
        ("lease.attemptTimeout", "0s", "leaves a request no time"),
        ("lease.attemptTimeout", "-1s", "lease.attemptTimeout"),
        ("lease.attemptTimeout", "3s", "one attempt takes up to 3s and a pause of 200ms"),
        ("lease.name", "///", "nothing of \"///\" can stand in the name of an object"),
    ] {
        let me = stage.prepare("me").await.set(key, value).start();

        let code = me.exit().await;

        assert_eq!(code, 78, "{key} {value}: {:#?}", me.lines());
        assert!(me.lines().iter().any(|line| line.contains(numbers)), "{key} {value}: {:#?}", me.lines());
        assert!(me.proxy.log.all().is_empty());
    }
}

async fn case_68_each_new_holder_is_reported_once(stage: Stage) {
    stage.lease.create(held("first_1", 60)).await;
    let me = stage.prepare("me").await.set("log.level", "info").start();
    me.proxy.log.first("a watch", |e| e.request.verb == Verb::Watch).await;
    for holder in ["first_1", "second_1", "", "second_1", "third_1"] {
        let mut spec = held(holder, 60);
        spec["strategy"] = json!("OldestEmulationVersion");
        spec["preferredHolder"] = json!("nobody_1");
        stage.lease.set_spec(spec).await;
    }

    me.said("third_1").await;

    for (holder, times) in [("first_1", 1), ("third_1", 1)] {
        let lines = me.lines();
        assert_eq!(lines.iter().filter(|line| line.contains(holder)).count(), times, "{holder}: {lines:#?}");
    }
    assert!(me.proxy.log.writes().is_empty());
}

async fn case_69_health_follows_the_renewals(stage: Stage) {
    let address = stage.free_address().await;
    let (me, _) = lead(&stage, stage.prepare("me").await.set("http.listen", address.to_string())).await;
    let other = stage.free_address().await;
    let follower = stage.prepare("follower").await.set("http.listen", other.to_string()).start();
    follower.proxy.log.first("a watch", |e| e.request.verb == Verb::Watch).await;

    for (path, leads, follows) in [("/livez", 200, 200), ("/readyz", 200, 200), ("/leader", 200, 503)] {
        assert_eq!(stage.probe(address, path).await, leads, "{path} of the leader");
        assert_eq!(stage.probe(other, path).await, follows, "{path} of the follower");
    }
    // Init answers for the elector no more, and a leader that does not renew is no leader.
    me.proxy.cut();
    follower.proxy.log.first("a takeover", |e| e.request.is_held() && e.succeeded()).await;
    stage.witness.start("follower", 0).await;
    assert_eq!(stage.probe(address, "/leader").await, 503);
    assert_eq!(stage.probe(address, "/livez").await, 200, "it follows, and that is healthy");
    assert_eq!(stage.probe(other, "/leader").await, 200);

    // The new leader's init stands still: nothing is renewed any more.
    follower.signal(Signal::SIGSTOP).await;
    until_probe(&stage, other, "/livez", 503).await;
    until_probe(&stage, other, "/leader", 503).await;
}

/// Waits until a probe answers so.
async fn until_probe(stage: &Stage, address: SocketAddr, path: &str, status: u16) {
    within(PATIENCE, &format!("{status} from {path}"), async {
        while stage.probe(address, path).await != status {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

async fn case_70_a_hundred_tokens_rise(stage: Stage) {
    let prepared = stage.prepare("me").await.set("lease.creationWait", "0s");
    let (_me, first) = lead(&stage, prepared).await;
    let mut last: u64 = first.variable("TENURE_FENCING_TOKEN").parse().expect("a version");
    for count in 1..=100 {
        if count % 10 == 0 {
            stage.lease.delete().await;
        } else {
            stage.lease.set_spec(released()).await;
        }

        let start = stage.witness.start("me", count).await;

        let token = start.variable("TENURE_FENCING_TOKEN").parse().expect("a version");
        assert!(token > last, "{token} after {last}");
        last = token;
    }
}

async fn case_72_without_watch_it_polls(stage: Stage) {
    let verbs = Verbs::default().without("watch");
    let since = clock::boot();
    stage.lease.create(held("x_1", 4)).await;
    let prepared = stage.prepare_with("me", &verbs).await;
    if stage.kind == Kind::Embedded {
        prepared.proxy.on(|request| request.verb == Verb::Watch, Times::Always, Fault::refused(403, "Forbidden"));
    }
    let me = prepared.start();

    let start = stage.witness.start("me", 0).await;

    assert!(start.at() >= since + wait(4.0));
    assert!(me.proxy.log.count(|e| e.request.verb == Verb::Watch) <= 3, "it does not insist");
}

async fn case_72_without_create_it_waits_for_the_lease(stage: Stage) {
    let verbs = Verbs::default().without("create");
    let prepared = stage.prepare_with("me", &verbs).await;
    if stage.kind == Kind::Embedded {
        prepared.proxy.on(|request| request.verb == Verb::Create, Times::Always, Fault::refused(403, "Forbidden"));
    }
    let me = prepared.start();
    me.proxy.log.first("a refused creation", |e| e.request.verb == Verb::Create).await;

    stage.lease.create(Value::Null).await;

    stage.witness.start("me", 0).await;
    assert_eq!(me.proxy.log.count(|e| e.request.verb == Verb::Create), 1);
}

/// However the watch misbehaves, a follower takes over, and a leader leads.
async fn taken_over_despite(stage: Stage, fault: Fault) {
    let since = clock::boot();
    stage.lease.create(held("x_1", 4)).await;
    let prepared = stage.prepare("me").await;
    prepared.proxy.on(|request| request.verb == Verb::Watch, Times::Always, fault);
    let me = prepared.start();
    me.proxy.log.first("a read", |e| e.request.verb == Verb::Get && e.succeeded()).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let renewed = clock::boot();
    stage.lease.edit(|lease| lease["spec"]["renewTime"] = json!(time(0))).await;

    let start = stage.witness.start("me", 0).await;

    assert!(start.at() >= renewed + wait(4.0));
    me.proxy.log.nth(4, "renewals", |e| e.request.is_held() && e.succeeded()).await;
    assert_eq!(stage.witness.all().len(), 1, "the workload noticed nothing");
    let span = clock::boot().since(since).as_secs();
    let requests = u64::try_from(me.proxy.log.all().len()).expect("a number");
    assert!(requests <= 4 * span, "{requests} requests in {span} s");
}

async fn case_73_a_watch_that_is_expired(stage: Stage) {
    let gone = json!({ "type": "ERROR", "object": {
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410, "message": "too old",
    }});
    taken_over_despite(stage, Fault::ended_watch(&format!("{gone}\n"))).await;
}

async fn case_73_a_watch_with_bookmarks_only(stage: Stage) {
    let bookmark = json!({ "type": "BOOKMARK", "object": {
        "kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": { "resourceVersion": "999999999" }, "spec": {},
    }});
    taken_over_despite(stage, Fault::silent_watch(&format!("{bookmark}\n"))).await;
}

async fn case_73_a_watch_that_ends_every_time(stage: Stage) {
    taken_over_despite(stage, Fault::ended_watch("")).await;
}

async fn case_73_a_watch_that_is_silent(stage: Stage) {
    taken_over_despite(stage, Fault::silent_watch("")).await;
}
