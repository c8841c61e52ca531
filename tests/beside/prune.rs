//! `tenure prune`: what somebody may use stays.

use std::collections::BTreeMap;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use support::{
    Case, Fault, LEASE, PATIENCE, Request, Stage, Times, Valve, Verb, cases,
    server::COORDINATED,
    spec::{held, released, time, wait},
    within,
};
use tenure::clock;

use super::{Desk, Ended};

pub(super) fn all() -> Vec<Case> {
    let mut cases = cases![
        a_dry_run_deletes_nothing_and_waits_for_nothing,
        a_lease_that_is_renewed_while_it_is_watched_is_untouched,
        a_lease_that_is_touched_in_the_last_moment_is_untouched,
        what_a_lock_leaves_behind_goes_and_not_while_it_is_held,
        one_that_is_interrupted_says_what_it_has_deleted,
        a_selector_narrows_and_one_of_the_kind_decides_on_it,
        what_the_server_refuses_is_1_and_if_it_refuses_all_77,
        a_server_that_does_not_answer_is_69,
    ];
    cases.extend(cases![what_nobody_uses_goes_and_everything_else_stays].into_iter().map(|case| case.since(COORDINATED)));
    cases
}

const PRUNE: &[&str] = &["prune", "-o", "json"];

fn lock() -> Value {
    json!({ "app.kubernetes.io/managed-by": "tenure", "tenure.dev/kind": "lock" })
}

fn expired(holder: &str, seconds: i64) -> Value {
    let mut spec = held(holder, seconds);
    spec["renewTime"] = json!(time(-3600));
    spec
}

fn released_ago(seconds: i64) -> Value {
    let mut spec = released();
    spec["renewTime"] = json!(time(-seconds));
    spec["acquireTime"] = spec["renewTime"].clone();
    spec
}

/// What became of each Lease that it names.
fn outcomes(ended: &Ended) -> BTreeMap<String, String> {
    let text = |lease: &Value, key: &str| lease[key].as_str().expect("text").to_owned();
    ended.json().as_array().expect("a list").iter().map(|lease| (text(lease, "name"), text(lease, "outcome"))).collect()
}

#[track_caller]
fn assert_outcomes(ended: &Ended, code: i32, expected: &[(&str, &str)]) {
    let expected: BTreeMap<_, _> = expected.iter().map(|(name, outcome)| ((*name).to_owned(), (*outcome).to_owned())).collect();
    assert_eq!((ended.code, outcomes(ended)), (code, expected), "{ended:?}");
}

async fn names(stage: &Stage) -> Vec<String> {
    let (_, list) = stage.api.call(http::Method::GET, &stage.lease.collection(), None).await;
    let name = |lease: &Value| lease["metadata"]["name"].as_str().expect("a name").to_owned();
    list["items"].as_array().expect("a list").iter().map(name).collect()
}

async fn what_nobody_uses_goes_and_everything_else_stays(stage: Stage) {
    let desk = Desk::of(&stage).await;
    let owner = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "00000000-0000-0000-0000-000000000000" }]);
    let mut appointed = expired("me", 2);
    appointed["strategy"] = json!("OldestEmulationVersion");
    let unlabelled = |gone: &str| {
        let mut labels = lock();
        labels.as_object_mut().expect("a map").remove(gone);
        labels
    };
    let mut goes = Vec::new();
    for (name, spec) in
        [("released-old", released_ago(3700)), ("expired", expired("me", 2)), ("nobodys", expired("tenure.dev/nobody", 3))]
    {
        goes.push(desk.lease(name, &lock(), &spec).await);
    }
    for (name, labels, spec) in [
        ("released-lately", lock(), released_ago(3500)),
        ("held", lock(), held("me", 600)),
        ("free", lock(), json!({})),
        ("appointed", lock(), appointed),
        ("of-run", unlabelled("tenure.dev/kind"), expired("me", 2)),
        ("of-another", unlabelled("app.kubernetes.io/managed-by"), expired("me", 2)),
        ("of-no-duration", lock(), json!({ "holderIdentity": "me", "renewTime": time(-3600) })),
    ] {
        desk.lease(name, &labels, &spec).await;
    }
    for (name, key, value) in [
        ("paused", "annotations", json!({ "tenure.dev/paused": "true" })),
        ("owned", "ownerReferences", owner),
        ("leaving", "finalizers", json!(["example.com/x"])),
    ] {
        let mut metadata = json!({ "name": name, "labels": lock() });
        metadata[key] = value;
        desk.create(&json!({ "metadata": metadata, "spec": expired("me", 2) })).await;
    }
    stage.api.lease(&stage.namespace, "leaving").delete().await;
    let since = clock::boot();

    let ended = desk.ends(PRUNE).await;

    assert_outcomes(&ended, 0, &[("expired", "deleted"), ("nobodys", "deleted"), ("released-old", "deleted")]);
    assert!(clock::boot().since(since) >= wait(3.0), "what nobody has given back is watched for its own duration");
    let stays =
        ["appointed", "free", "held", "leaving", "of-another", "of-no-duration", "of-run", "owned", "paused", "released-lately"];
    assert_eq!(names(&stage).await, stays);
    let deletions: Vec<_> = desk.proxy.log.writes().into_iter().map(|e| e.request.body["preconditions"].clone()).collect();
    let listed =
        |lease: &Value| json!({ "uid": lease["metadata"]["uid"], "resourceVersion": lease["metadata"]["resourceVersion"] });
    assert_eq!(deletions, goes.iter().map(listed).collect::<Vec<_>>());
}

async fn a_dry_run_deletes_nothing_and_waits_for_nothing(stage: Stage) {
    let desk = Desk::of(&stage).await;
    desk.lease("a", &lock(), &released_ago(120)).await;
    desk.lease("b", &lock(), &expired("me", 600)).await;

    let ended = desk.ends(&[PRUNE, &["--dry-run", "--older-than", "1m"]].concat()).await;
    let table = desk.ends(&["prune", "--dry-run"]).await;

    assert_outcomes(&ended, 0, &[("a", "candidate"), ("b", "candidate")]);
    let lines: Vec<Vec<_>> = table.out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["LEASE", "STATE", "HOLDER", "RENEWED", "OUTCOME"]);
    assert_eq!(lines[1..].concat()[..3], ["b", "expired", "me"], "{table:?}");
    assert_eq!((names(&stage).await, desk.proxy.log.writes().len()), (vec!["a".into(), "b".into()], 0));
}

async fn a_lease_that_is_renewed_while_it_is_watched_is_untouched(stage: Stage) {
    let desk = Desk::of(&stage).await;
    for name in [LEASE, "gone", "anew"] {
        desk.lease(name, &lock(), &expired("me", 3)).await;
    }
    let pruned = desk.ends(PRUNE);
    let race = async {
        desk.proxy.log.first("the list", |e| e.request.verb == Verb::List && e.answer.is_some()).await;
        stage.api.lease(&stage.namespace, "gone").delete().await;
        stage.api.lease(&stage.namespace, "anew").delete().await;
        desk.lease("anew", &lock(), &expired("me", 3)).await;
        // Even one that looks as expired as before.
        stage.lease.edit(|object| object["spec"]["renewTime"] = json!(time(-3590))).await
    };

    let (ended, renewed) = tokio::join!(pruned, race);

    assert_outcomes(&ended, 0, &[("anew", "in use"), ("gone", "in use"), (LEASE, "in use")]);
    assert_eq!(stage.lease.read().await, Some(renewed));
    assert_eq!(names(&stage).await, ["anew", LEASE]);
}

fn is_delete(request: &Request) -> bool {
    request.verb == Verb::Delete
}

async fn a_lease_that_is_touched_in_the_last_moment_is_untouched(stage: Stage) {
    let desk = Desk::of(&stage).await;
    desk.lease(LEASE, &lock(), &released_ago(7200)).await;
    let valve = Valve::closed();
    desk.proxy.on(is_delete, Times::Only(1), Fault::late_request(&valve));
    let pruned = desk.ends(PRUNE);
    let race = async {
        desk.proxy.log.first("the deletion", |e| is_delete(&e.request)).await;
        let taken = stage.lease.set_spec(held("me", 600)).await;
        valve.open();
        taken
    };

    let (ended, taken) = tokio::join!(pruned, race);

    assert_outcomes(&ended, 0, &[(LEASE, "in use")]);
    assert_eq!(stage.lease.read().await, Some(taken));
}

async fn what_a_lock_leaves_behind_goes_and_not_while_it_is_held(stage: Stage) {
    let desk = Desk::of(&stage).await;
    let prune = [PRUNE, &["--older-than", "0s"]].concat();
    let holder = desk.starts(&["lock", "a.b", "--set", "lease.creationWait=0s", "--", "sleep", "infinity"]);
    let is_held = |lease: Option<&Value>| lease.is_some_and(|lease| lease["spec"]["acquireTime"].is_string());
    stage.api.lease(&stage.namespace, "lock-a-b").wait("the lock is held", is_held).await;

    assert_outcomes(&desk.ends(&prune).await, 0, &[]);
    holder.signal(Signal::SIGTERM);
    holder.exit().await;

    // A release may name a time that is up to a second ahead.
    let deleted = within(PATIENCE, "it counts as given back", async {
        loop {
            let ended = desk.ends(&prune).await;
            if !outcomes(&ended).is_empty() {
                return ended;
            }
        }
    });
    assert_outcomes(&deleted.await, 0, &[("lock-a-b", "deleted")]);
}

async fn one_that_is_interrupted_says_what_it_has_deleted(stage: Stage) {
    let desk = Desk::of(&stage).await;
    desk.lease("gone", &lock(), &released_ago(7200)).await;
    desk.lease("watched", &lock(), &expired("me", 600)).await;
    let mut prune = desk.starts(&["prune"]);
    desk.proxy.log.first("a deletion", |e| is_delete(&e.request) && e.answer.is_some()).await;

    prune.signal(Signal::SIGTERM);

    assert!(prune.line().await.ends_with("OUTCOME"));
    for (name, outcome) in [("gone", "deleted"), ("watched", "candidate")] {
        let line = prune.line().await;
        assert!(line.starts_with(name) && line.ends_with(outcome), "{line}");
    }
    assert_eq!(prune.exit().await.0, 1);
    assert_eq!(names(&stage).await, ["watched"]);
}

async fn a_selector_narrows_and_one_of_the_kind_decides_on_it(stage: Stage) {
    let desk = Desk::of(&stage).await;
    for (name, kind, team) in [("lock-a", "lock", "a"), ("lock-b", "lock", "b"), ("task", "task", "a"), ("run", "", "a")] {
        let mut labels = json!({ "app.kubernetes.io/managed-by": "tenure", "team": team });
        if !kind.is_empty() {
            labels["tenure.dev/kind"] = json!(kind);
        }
        desk.lease(name, &labels, &released_ago(7200)).await;
    }
    // Its Lease alone tells when a run is due whose replica died.
    let task = json!({ "app.kubernetes.io/managed-by": "tenure", "tenure.dev/kind": "task", "team": "b" });
    desk.lease("task-died", &task, &expired("me", 2)).await;
    for (selector, expected) in [
        ("", &["lock-a", "lock-b"][..]),
        ("team=a", &["lock-a"]),
        ("tenure.dev/kind=task", &["task"]),
        ("!tenure.dev/kind", &["run"]),
        ("! tenure.dev/kind", &["run"]),
        ("!mytenure.dev/kind", &["lock-a", "lock-b"]),
        ("team in (a,b), tenure.dev/kind in (task)", &["task"]),
        ("tenure.dev/kind,team=a", &["lock-a", "task"]),
    ] {
        let ended = desk.ends(&[PRUNE, &["--dry-run", "-l", selector]].concat()).await;
        assert_eq!(outcomes(&ended).into_keys().collect::<Vec<_>>(), expected, "{selector}");
    }
    assert_eq!(desk.ends(&["prune", "-l", "a==="]).await.code, 78);
}

async fn what_the_server_refuses_is_1_and_if_it_refuses_all_77(stage: Stage) {
    let desk = Desk::of(&stage).await;
    for name in ["a", "b"] {
        desk.lease(name, &lock(), &released_ago(7200)).await;
    }
    // After a 401 each request is sent once more, with credentials that were read again.
    for (status, code, requests) in [(403, 77, 2), (401, 77, 4), (500, 1, 2)] {
        desk.proxy.on(is_delete, Times::Only(requests), Fault::refused(status, "No"));
        let ended = desk.ends(PRUNE).await;
        assert_outcomes(&ended, code, &[("a", "refused"), ("b", "refused")]);
        assert!(ended.err.contains("No, by the test's proxy"), "{ended:?}");
    }
    desk.proxy.on(is_delete, Times::Only(1), Fault::refused(403, "No"));
    assert_outcomes(&desk.ends(PRUNE).await, 1, &[("a", "refused"), ("b", "deleted")]);

    desk.proxy.on(|request| request.verb == Verb::List, Times::Only(1), Fault::refused(403, "No"));
    assert_eq!(desk.ends(PRUNE).await.code, 77);
}

async fn a_server_that_does_not_answer_is_69(stage: Stage) {
    let desk = Desk::of(&stage).await;
    for name in ["a", "b", "c"] {
        desk.lease(name, &lock(), &released_ago(7200)).await;
    }
    desk.proxy.on(|request| is_delete(request) && request.uri.ends_with("/b"), Times::Only(1), Fault::hung_up());
    let ended = desk.ends(PRUNE).await;
    assert_outcomes(&ended, 69, &[("a", "deleted"), ("b", "unknown"), ("c", "candidate")]);

    desk.proxy.refuse().await;
    assert_eq!(desk.ends(PRUNE).await.code, 69);
}
