//! Watches.

use serde_json::json;

use super::hand::{MERGE, lease, number, plain, version, with};
use crate::support::{
    case::{Case, cases},
    stage::Stage,
};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        a_watch_without_version_begins_with_what_is_there,
        a_watch_from_a_version_brings_what_came_after_it,
        a_watch_from_a_version_ahead_waits_for_it,
        a_deletion_carries_a_version_of_its_own,
        a_field_selector_hides_other_leases,
        a_lease_that_stops_matching_is_deleted_for_the_watcher,
        an_update_that_changes_nothing_is_no_event,
        a_watch_ends_after_its_timeout,
        initial_events_end_with_a_bookmark,
        initial_events_wait_for_their_version,
        initial_events_can_be_declined,
        a_bookmark_comes_before_the_end,
        a_finalizer_makes_a_deletion_a_change_first,
    ]
}

const ONE: &str = "fieldSelector=metadata.name%3Da&timeoutSeconds=30";

async fn a_watch_without_version_begins_with_what_is_there(stage: Stage) {
    let object = stage.given("a", json!({ "holderIdentity": "x" })).await;
    for query in [ONE.to_owned(), format!("{ONE}&resourceVersion=0")] {
        let mut watch = stage.watch(&query).await;

        assert_eq!(watch.expect("ADDED").await, plain(object.clone()));
    }
}

async fn a_watch_from_a_version_brings_what_came_after_it(stage: Stage) {
    let object = stage.given("a", json!({})).await;
    let first = stage.patch("a", MERGE, &json!({ "spec": { "holderIdentity": "x" } })).await.ok();

    let mut watch = stage.watch(&format!("{ONE}&resourceVersion={}", version(&object))).await;
    let seen = watch.expect("MODIFIED").await;
    let second = stage.patch("a", MERGE, &json!({ "spec": { "holderIdentity": "y" } })).await.ok();

    assert_eq!(seen, plain(first));
    assert_eq!(watch.expect("MODIFIED").await, plain(second));
}

async fn a_watch_from_a_version_ahead_waits_for_it(stage: Stage) {
    let object = stage.given("a", json!({})).await;
    let ahead = number(&object) + 1;

    let mut watch = stage.watch(&format!("{ONE}&resourceVersion={ahead}")).await;
    let mut last = object;
    while number(&last) <= ahead {
        last = stage.patch("a", MERGE, &json!({ "spec": { "holderIdentity": version(&last) } })).await.ok();
    }

    assert_eq!(watch.expect("MODIFIED").await, plain(last));
}

async fn a_deletion_carries_a_version_of_its_own(stage: Stage) {
    let object = stage.given("a", json!({ "holderIdentity": "x" })).await;
    let mut watch = stage.watch(&format!("{ONE}&resourceVersion={}", version(&object))).await;

    stage.delete("a", None).await.ok();
    let gone = watch.expect("DELETED").await;
    let anew = stage.given("a", json!({})).await;

    assert_eq!(gone["spec"], object["spec"]);
    assert_eq!(gone["metadata"]["uid"], object["metadata"]["uid"]);
    assert!(number(&object) < number(&gone) && number(&gone) < number(&anew));
    assert_eq!(watch.expect("ADDED").await, plain(anew));
}

async fn a_field_selector_hides_other_leases(stage: Stage) {
    let object = stage.given("a", json!({})).await;
    let mut watch = stage.watch(&format!("{ONE}&resourceVersion={}", version(&object))).await;

    stage.given("b", json!({})).await;
    let changed = stage.patch("a", MERGE, &json!({ "spec": { "holderIdentity": "x" } })).await.ok();

    assert_eq!(watch.expect("MODIFIED").await, plain(changed));
}

async fn a_lease_that_stops_matching_is_deleted_for_the_watcher(stage: Stage) {
    let object = stage.post(&with(lease("a", json!({})), "labels", json!({ "app": "x" }))).await.created();
    let query = format!("labelSelector=app%3Dx&timeoutSeconds=30&resourceVersion={}", version(&object));
    let mut watch = stage.watch(&query).await;
    let label = |value: &str| json!({ "metadata": { "labels": { "app": value } } });

    let left = stage.patch("a", MERGE, &label("y")).await.ok();
    let back = stage.patch("a", MERGE, &label("x")).await.ok();

    let gone = watch.expect("DELETED").await;
    assert_eq!(version(&gone), version(&left));
    assert_eq!(gone["metadata"]["labels"]["app"], "x");
    assert_eq!(watch.expect("ADDED").await, plain(back));
}

async fn an_update_that_changes_nothing_is_no_event(stage: Stage) {
    let object = stage.given("a", json!({ "holderIdentity": "x" })).await;
    let mut watch = stage.watch(&format!("{ONE}&resourceVersion={}", version(&object))).await;

    stage.put("a", &object).await.ok();
    let changed = stage.patch("a", MERGE, &json!({ "spec": { "holderIdentity": "y" } })).await.ok();

    assert_eq!(watch.expect("MODIFIED").await, plain(changed));
}

async fn a_watch_ends_after_its_timeout(stage: Stage) {
    let object = stage.given("a", json!({})).await;
    let began = tenure::clock::boot();

    let mut watch = stage.watch(&format!("timeoutSeconds=1&resourceVersion={}", version(&object))).await;

    assert_eq!(watch.next().await, None);
    assert!(tenure::clock::boot().since(began).as_millis() >= 1_000);
}

async fn initial_events_end_with_a_bookmark(stage: Stage) {
    let object = stage.given("a", json!({})).await;
    let asked = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    for query in [format!("{ONE}&allowWatchBookmarks=true"), format!("{ONE}&allowWatchBookmarks=true{asked}")] {
        let mut watch = stage.watch(&query).await;
        watch.expect("ADDED").await;
        let bookmark = watch.expect("BOOKMARK").await;

        assert!(number(&bookmark) >= number(&object));
        assert_eq!(bookmark["kind"], "Lease");
        assert_eq!(bookmark["metadata"]["annotations"], json!({ "k8s.io/initial-events-end": "true" }));
    }
}

async fn initial_events_wait_for_their_version(stage: Stage) {
    let object = stage.given("a", json!({})).await;
    let ahead = number(&object) + 5;
    let asked = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

    let mut watch = stage.watch(&format!("{ONE}&{asked}&resourceVersion={ahead}")).await;
    let mut last = object;
    while number(&last) < ahead {
        last = stage.patch("a", MERGE, &json!({ "spec": { "holderIdentity": version(&last) } })).await.ok();
    }
    let mut seen = watch.next().await.expect("an event");
    while seen.0 != "BOOKMARK" {
        seen = watch.next().await.expect("an event");
    }

    assert!(number(&seen.1) >= ahead, "{}", seen.1);
}

async fn initial_events_can_be_declined(stage: Stage) {
    let object = stage.given("a", json!({})).await;
    // A watch from version 0 begins at the state of the server's cache; until that has the object, its creation is a change.
    stage.list(&format!("resourceVersion={}&resourceVersionMatch=NotOlderThan", version(&object))).await.ok();
    let query = format!("{ONE}&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=0");

    let mut watch = stage.watch(&query).await;
    let changed = stage.patch("a", MERGE, &json!({ "spec": { "holderIdentity": "x" } })).await.ok();

    assert_eq!(watch.expect("MODIFIED").await, plain(changed));
}

async fn a_bookmark_comes_before_the_end(stage: Stage) {
    let object = stage.given("a", json!({})).await;
    let query = format!("timeoutSeconds=4&allowWatchBookmarks=true&resourceVersion={}", version(&object));

    let mut watch = stage.watch(&query).await;

    let bookmark = watch.expect("BOOKMARK").await;
    assert!(number(&bookmark) >= number(&object));
    assert_eq!(bookmark["metadata"]["annotations"], json!(null));
}

async fn a_finalizer_makes_a_deletion_a_change_first(stage: Stage) {
    let object = stage.post(&with(lease("a", json!({})), "finalizers", json!(["example.com/f"]))).await.created();
    let mut watch = stage.watch(&format!("{ONE}&resourceVersion={}", version(&object))).await;

    stage.delete("a", None).await.ok();
    stage.patch("a", MERGE, &json!({ "metadata": { "finalizers": null } })).await.ok();

    assert!(watch.expect("MODIFIED").await["metadata"]["deletionTimestamp"].is_string());
    watch.expect("DELETED").await;
}
