//! `tenure status --watch`: nothing that happens is missed, whatever becomes of the watch.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use support::{
    Canned, Case, Fault, Passage, Request, Stage, Times, Valve, Verb, Verbs, cases,
    spec::{held, released, time},
};

use super::{Desk, Running};

pub(super) fn all() -> Vec<Case> {
    cases![
        every_event_is_a_line,
        the_end_of_a_rest_is_no_event,
        a_watch_that_the_server_ends_goes_on_from_its_last_version,
        nothing_is_missed_when_the_version_is_gone,
        nothing_is_missed_when_the_server_is_away,
        a_list_whose_first_page_is_forgotten_is_begun_anew,
        a_reader_that_goes_away_ends_it_in_silence,
        a_first_list_that_fails_ends_it,
        one_lease_is_watched_by_its_name_from_before_it_is_there_with_rights_for_it_alone,
        each_slot_of_a_pool_is_watched_by_its_name_whatever_its_labels,
        the_fleet_is_watched_in_all_namespaces_with_what_needs_a_look_first,
    ]
}

const WATCH: &[&str] = &["status", "-l", "team=x", "--watch", "-o", "json"];

fn labels() -> Value {
    json!({ "team": "x" })
}

/// The event and the name of the next lines, sorted: a list has no order.
async fn next(running: &mut Running, count: usize) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    for _ in 0..count {
        let line = running.json().await;
        let text = |key: &str| line[key].as_str().expect("text").to_owned();
        lines.push((text("event"), text("name")));
    }
    lines.sort();
    lines
}

#[track_caller]
fn assert_said(lines: &[(String, String)], expected: &[(&str, &str)]) {
    let lines: Vec<_> = lines.iter().map(|(event, name)| (event.as_str(), name.as_str())).collect();
    assert_eq!(lines, expected);
}

async fn every_event_is_a_line(stage: Stage) {
    let desk = Desk::of(&stage).await;
    let mut old = held("gone", 2);
    old["renewTime"] = json!(time(-60));
    for (name, spec) in [("a", held("me", 600)), ("b", old), ("c", released()), ("main", held("brief", 2))] {
        desk.lease(name, &labels(), &spec).await;
    }
    desk.lease("other", &json!({}), &held("me", 600)).await;
    let mut running = desk.starts(WATCH);

    let initial = [("now", "a"), ("now", "b"), ("now", "c"), ("now", "main")];
    assert_said(&next(&mut running, 4).await, &initial);
    let expired = running.json().await;
    assert_eq!((&expired["event"], &expired["name"], &expired["state"]), (&json!("expired"), &json!("main"), &json!("expired")));
    stage.lease.set_spec(held("brief", 600)).await;
    assert_said(&next(&mut running, 1).await, &[("acquired", "main")]);
    // Its renewal is not said.
    stage.lease.edit(|object| object["spec"]["renewTime"] = json!(time(1))).await;
    stage.lease.set_spec(held("next", 600)).await;
    let acquired = running.json().await;
    assert_eq!((&acquired["event"], &acquired["holder"]), (&json!("acquired"), &json!("next")));
    stage.lease.set_spec(released()).await;
    assert_said(&next(&mut running, 1).await, &[("released", "main")]);
    stage.lease.delete().await;
    assert_said(&next(&mut running, 1).await, &[("deleted", "main")]);
}

async fn the_end_of_a_rest_is_no_event(stage: Stage) {
    let desk = Desk::of(&stage).await;
    let (now, labels) = (time(0), labels());
    let mut rest = held("me", 2);
    rest["renewTime"] = json!(now);
    let metadata = json!({ "name": "main", "labels": labels, "annotations": { "tenure.dev/rests": format!("{now} me") } });
    desk.create(&json!({ "metadata": metadata, "spec": rest })).await;
    let mut running = desk.starts(WATCH);
    let rests = running.json().await;
    assert_eq!((&rests["event"], &rests["state"]), (&json!("now"), &json!("resting")));
    while desk.ends(&["status", "main"]).await.out.contains("resting") {}

    // The watch shows it again.
    stage.lease.edit(|object| object["metadata"]["annotations"]["more"] = json!("x")).await;
    stage.lease.set_spec(held("next", 600)).await;
    assert_said(&next(&mut running, 1).await, &[("acquired", "main")]);
}

fn is_watch(request: &Request) -> bool {
    request.verb == Verb::Watch
}

async fn a_watch_that_the_server_ends_goes_on_from_its_last_version(stage: Stage) {
    let desk = Desk::of(&stage).await;
    let old = desk.lease("main", &labels(), &released()).await["metadata"]["resourceVersion"].clone();
    stage.lease.edit(|object| object["metadata"]["labels"]["more"] = json!("x")).await;
    let bookmark = json!({ "type": "BOOKMARK", "object": { "metadata": { "resourceVersion": old } } });
    let valve = Valve::closed();
    let ended = Fault { reply: Passage::Through(valve.clone()), ..Fault::ended_watch(&format!("{bookmark}\n")) };
    desk.proxy.on(is_watch, Times::Only(1), ended);
    let mut running = desk.starts(WATCH);
    assert_said(&next(&mut running, 1).await, &[("now", "main")]);
    desk.proxy.log.first("a watch", |e| is_watch(&e.request)).await;

    for spec in [held("brief", 600), released()] {
        stage.lease.set_spec(spec).await;
    }
    valve.open();

    let said = [running.json().await, running.json().await];
    assert_eq!(said.each_ref().map(|line| &line["event"]), ["acquired", "released"]);
    let resumed = desk.proxy.log.nth(1, "a watch", |e| is_watch(&e.request)).await.request.uri;
    assert!(resumed.contains(&format!("resourceVersion={}", old.as_str().expect("text"))), "{resumed}");
    assert_eq!(desk.proxy.log.count(|e| e.request.verb == Verb::List), 1);
}

async fn a_list_whose_first_page_is_forgotten_is_begun_anew(stage: Stage) {
    let desk = Desk::of(&stage).await;
    desk.lease("main", &labels(), &held("me", 600)).await;
    let first = json!({ "metadata": { "continue": "next" }, "items": [] }).to_string();
    let is_next = |request: &Request| request.uri.contains("continue=next");
    let begin = || {
        let page = Canned { status: 200, body: first.clone(), ..Canned::default() };
        desk.proxy.on(|request| request.verb == Verb::List, Times::Only(1), Fault::answered(page));
        desk.proxy.on(is_next, Times::Only(1), Fault::refused(410, "Expired"));
    };
    begin();
    let status = ["status", "-l", "team=x", "-o", "name"];

    let ended = desk.ends(&status).await;

    assert_eq!((ended.code, ended.out.as_str()), (0, "lease.coordination.k8s.io/main\n"), "{}", ended.err);
    begin();
    begin();
    assert_eq!(desk.ends(&status).await.code, 69, "a server that always forgets is not asked for ever");
}

async fn nothing_is_missed_when_the_version_is_gone(stage: Stage) {
    let desk = Desk::of(&stage).await;
    for name in ["a", "main"] {
        desk.lease(name, &labels(), &held("me", 600)).await;
    }
    let gone = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old"}"#;
    let event = format!("{{\"type\":\"ERROR\",\"object\":{gone}}}\n");
    desk.proxy.on(is_watch, Times::Only(1), Fault::ended_watch(&event));
    let answer = Canned { status: 410, body: gone.to_owned(), ..Canned::default() };
    desk.proxy.on(is_watch, Times::Only(1), Fault::answered(answer));
    let mut running = desk.starts(WATCH);
    assert_said(&next(&mut running, 2).await, &[("now", "a"), ("now", "main")]);

    desk.proxy.log.first("a watch", |e| is_watch(&e.request)).await;
    stage.lease.delete().await;
    assert_said(&next(&mut running, 1).await, &[("deleted", "main")]);
    desk.proxy.log.first("a watch that goes on", |e| is_watch(&e.request) && e.succeeded()).await;
    stage.lease.create(json!({})).await;
    stage.lease.edit(|object| object["metadata"]["labels"] = labels()).await;

    assert_said(&next(&mut running, 1).await, &[("released", "main")]);
    assert_eq!(desk.proxy.log.count(|e| is_watch(&e.request)), 3);
    running.signal(Signal::SIGTERM);
    assert_eq!(running.exit().await, (0, String::new()), "that a version is gone is nothing to complain of");
}

async fn nothing_is_missed_when_the_server_is_away(stage: Stage) {
    let desk = Desk::of(&stage).await;
    for name in ["a", "b", "main"] {
        desk.lease(name, &labels(), &held("me", 600)).await;
    }
    let mut running = desk.starts(WATCH);
    next(&mut running, 3).await;
    desk.proxy.log.first("a watch", |e| is_watch(&e.request) && e.succeeded()).await;

    desk.proxy.refuse().await;
    stage.lease.set_spec(held("next", 600)).await;
    stage.api.lease(&stage.namespace, "a").delete().await;
    desk.proxy.mend().await;

    assert_said(&next(&mut running, 2).await, &[("acquired", "main"), ("deleted", "a")]);
    desk.proxy.reset();
    stage.lease.set_spec(released()).await;
    assert_said(&next(&mut running, 1).await, &[("released", "main")]);
    running.signal(Signal::SIGINT);
    assert_eq!(running.exit().await.0, 0);
}

async fn a_reader_that_goes_away_ends_it_in_silence(stage: Stage) {
    let desk = Desk::of(&stage).await;
    desk.lease("main", &labels(), &held("me", 600)).await;
    let mut running = desk.starts(WATCH);
    running.line().await;

    running.lines.close();
    // The thread that reads notices with this, and closes the pipe. Nothing happens after it.
    stage.lease.set_spec(held("other", 600)).await;

    assert_eq!(running.exit().await, (0, String::new()));
}

async fn a_first_list_that_fails_ends_it(stage: Stage) {
    let desk = Desk::of(&stage).await;
    let is_list = |request: &Request| request.verb == Verb::List;
    desk.proxy.on(is_list, Times::Only(1), Fault::refused(403, "Forbidden"));
    assert_eq!(desk.ends(WATCH).await.code, 77);
    desk.proxy.on(is_list, Times::Only(1), Fault::hung_up());
    assert_eq!(desk.ends(WATCH).await.code, 69);
    assert_eq!(desk.ends(&["status", "-l", "a===", "--watch"]).await.code, 78);
}

async fn one_lease_is_watched_by_its_name_from_before_it_is_there_with_rights_for_it_alone(stage: Stage) {
    let verbs = Verbs { named: ["get", "list", "watch"].map(str::to_owned).into(), any: Vec::new(), others: Vec::new() };
    let token = stage.api.minimal_token(&stage.namespace, "main", &verbs).await;
    let desk = Desk::with(&stage, &token).await;
    let mut running = desk.starts(&["status", "main", "--watch", "-v"]);
    desk.proxy.log.first("a watch", |e| is_watch(&e.request) && e.succeeded()).await;

    stage.api.lease(&stage.namespace, "other").create(held("me", 600)).await;
    stage.lease.create(held("me", 600)).await;
    let first = running.line().await;
    assert!(first.contains("acquired") && first.contains("main   held   me"), "{first}");
    // An edit that is no renewal is none.
    stage.lease.edit(|object| object["metadata"]["labels"]["more"] = json!("x")).await;
    stage.lease.edit(|object| object["spec"]["renewTime"] = json!(time(1))).await;
    let renewed = running.line().await;
    assert!(renewed.contains("renewed") && renewed.contains("main   held   me"), "{renewed}");
    stage.lease.set_spec(released()).await;
    let free = running.line().await;
    assert!(free.contains("released") && free.contains("main   free   -"), "{free}");
    stage.lease.delete().await;
    let deleted = running.line().await;
    assert!(deleted.contains("deleted"), "{deleted}");

    running.signal(Signal::SIGINT);
    assert_eq!(running.exit().await, (0, String::new()));
    assert_eq!(desk.ends(&["status", "other", "--watch"]).await.code, 77);
    assert_eq!(desk.ends(WATCH).await.code, 77);
}

async fn each_slot_of_a_pool_is_watched_by_its_name_whatever_its_labels(stage: Stage) {
    let (desk, pool) = (Desk::of(&stage).await, json!({ "tenure.dev/slots": "main" }));
    for (name, labels) in [("main", &json!({})), ("main-slot-1", &pool), ("main-slot-2", &pool), ("other", &json!({}))] {
        desk.lease(name, labels, &held("me", 600)).await;
    }
    let mut running = desk.starts(&["status", "main", "--slots", "2", "--watch", "-o", "json"]);
    assert_said(&next(&mut running, 2).await, &[("now", "main"), ("now", "main-slot-1")]);
    desk.proxy.log.first("a watch", |e| is_watch(&e.request) && e.succeeded()).await;

    stage.api.lease(&stage.namespace, "main-slot-2").delete().await;
    stage.lease.set_spec(released()).await;

    assert_said(&next(&mut running, 1).await, &[("released", "main")]);
}

async fn the_fleet_is_watched_in_all_namespaces_with_what_needs_a_look_first(stage: Stage) {
    let (beside, ours) = (stage.beside("beside").await, json!({ "app.kubernetes.io/managed-by": "tenure" }));
    let (here, there) = (Desk::of(&stage).await, Desk::of(&beside).await);
    let mut old = held("gone", 2);
    old["renewTime"] = json!(time(-60));
    for (desk, name, labels, spec) in [
        (&here, "a", &ours, held("me", 600)),
        (&here, "main", &ours, released()),
        (&here, "other", &json!({}), old.clone()),
        (&there, "main", &ours, held("me", 600)),
        (&there, "z", &ours, old),
    ] {
        desk.lease(name, labels, &spec).await;
    }
    let mut running = here.starts(&["status", "-A", "--watch", "-o", "json"]);
    // Other cases have Leases too.
    let mut next = async || loop {
        let line = running.json().await;
        let text = |key: &str| line[key].as_str().expect("text").to_owned();
        if let Some(place) =
            ["here", "there"].into_iter().zip([&stage, &beside]).find(|(_, it)| line["namespace"] == it.namespace)
        {
            return format!("{} {}/{}", text("event"), place.0, text("name"));
        }
    };

    let mut listed = Vec::new();
    for _ in 0..4 {
        listed.push(next().await);
    }
    // What is held stands in the order of the names of the namespaces.
    listed[2..].sort();
    assert_eq!(listed, ["now there/z", "now here/main", "now here/a", "now there/main"]);
    beside.lease.set_spec(released()).await;
    assert_eq!(next().await, "released there/main");
    stage.lease.set_spec(held("next", 600)).await;
    assert_eq!(next().await, "acquired here/main");
    beside.lease.delete().await;
    assert_eq!(next().await, "deleted there/main");
}
