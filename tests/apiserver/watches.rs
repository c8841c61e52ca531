//! WATCH.

use http::Request;
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use support::{Case, PATIENCE, Stage, cases, within};

use super::{Leases as _, lease, number, plain, version, with};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = cases![BOTH:
        a_watch_without_version_begins_with_what_is_there,
        a_watch_from_a_version_brings_what_came_after_it,
        a_watch_of_a_selection_hides_the_rest,
        a_bookmark_comes_before_the_end,
    ];
    // 1.32 has it too, and 1.33 has not.
    cases.extend(cases![BOTH: initial_events_end_with_a_bookmark].into_iter().map(|case| case.since(34)));
    // The real one forgets its versions after minutes.
    cases.extend(cases![EMBEDDED: a_watch_from_a_forgotten_version_is_expired]);
    cases
}

const ONE: &str = "fieldSelector=metadata.name%3Da&timeoutSeconds=30";

async fn a_watch_without_version_begins_with_what_is_there(stage: Stage) {
    let object = stage.given("a", json!({ "holderIdentity": "x" })).await;
    for query in [ONE.to_owned(), format!("{ONE}&resourceVersion=0")] {
        let mut watch = watch(&stage, &query).await;

        assert_eq!(watch.expect("ADDED").await, plain(object.clone()));
    }
}

async fn a_watch_from_a_version_brings_what_came_after_it(stage: Stage) {
    let object = stage.post(&with(lease("a", json!({})), "/metadata/finalizers", json!(["example.com/f"]))).await.created();
    let before = stage.patch("a", &json!({ "spec": { "holderIdentity": "x" } })).await.ok();

    let mut watch = watch(&stage, &format!("{ONE}&resourceVersion={}", version(&object))).await;
    stage.put("a", &before).await.ok();
    stage.given("b", json!({})).await;
    let after = stage.patch("a", &json!({ "spec": { "holderIdentity": "y" } })).await.ok();
    let marked = stage.delete("a", &json!({})).await.ok();
    stage.patch("a", &json!({ "metadata": { "finalizers": null } })).await.ok();
    let anew = stage.given("a", json!({})).await;

    for object in [before, after, marked.clone()] {
        assert_eq!(watch.expect("MODIFIED").await, plain(object));
    }
    let gone = watch.expect("DELETED").await;
    assert_eq!(gone["metadata"]["uid"], object["metadata"]["uid"]);
    assert!(number(&marked) < number(&gone) && number(&gone) < number(&anew), "a deletion has a version of its own");
    assert_eq!(watch.expect("ADDED").await, plain(anew));
}

async fn a_watch_of_a_selection_hides_the_rest(stage: Stage) {
    let object = stage.post(&with(lease("a", json!({})), "/metadata/labels", json!({ "app": "x" }))).await.created();
    let query = format!("labelSelector=app%3Dx&timeoutSeconds=30&resourceVersion={}", version(&object));
    let mut watch = watch(&stage, &query).await;
    let label = |value: &str| json!({ "metadata": { "labels": { "app": value } } });

    let left = stage.patch("a", &label("y")).await.ok();
    stage.patch("a", &json!({ "spec": { "holderIdentity": "x" } })).await.ok();
    let back = stage.patch("a", &label("x")).await.ok();

    let gone = watch.expect("DELETED").await;
    assert_eq!((version(&gone), &gone["metadata"]["labels"]), (version(&left), &json!({ "app": "x" })));
    assert_eq!(watch.expect("ADDED").await, plain(back));
}

async fn initial_events_end_with_a_bookmark(stage: Stage) {
    let object = stage.given("a", json!({})).await;
    let asked = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    for query in [format!("{ONE}&allowWatchBookmarks=true"), format!("{ONE}&allowWatchBookmarks=true{asked}")] {
        let mut watch = watch(&stage, &query).await;
        watch.expect("ADDED").await;
        let bookmark = watch.expect("BOOKMARK").await;

        assert!(number(&bookmark) >= number(&object));
        assert_eq!(bookmark["kind"], "Lease");
        assert_eq!(bookmark["metadata"]["annotations"], json!({ "k8s.io/initial-events-end": "true" }));
    }
}

async fn a_bookmark_comes_before_the_end(stage: Stage) {
    let object = stage.given("a", json!({})).await;
    let began = tenure::clock::boot();
    let query = format!("fieldSelector=metadata.name%3Da&timeoutSeconds=4&resourceVersion={}", version(&object));

    let mut silent = watch(&stage, &query).await;
    let mut watch = watch(&stage, &format!("{query}&allowWatchBookmarks=true")).await;
    stage.given("b", json!({})).await;

    let bookmark = watch.expect("BOOKMARK").await;
    assert!(number(&bookmark) > number(&object), "it has passed what is hidden");
    assert_eq!(bookmark["metadata"]["annotations"], Value::Null);
    assert_eq!(silent.next().await, None);
    while let Some((kind, _)) = watch.next().await {
        assert_eq!(kind, "BOOKMARK");
    }
    assert!(tenure::clock::boot().since(began).as_millis() >= 4_000);
}

async fn a_watch_from_a_forgotten_version_is_expired(stage: Stage) {
    let mut object = stage.given("a", json!({})).await;
    while number(&object) < 1_002 {
        object = stage.patch("a", &json!({ "spec": { "holderIdentity": version(&object) } })).await.ok();
    }

    let mut watch = watch(&stage, &format!("{ONE}&resourceVersion=1")).await;

    let status = watch.expect("ERROR").await;
    assert_eq!((&status["kind"], &status["code"], &status["reason"]), (&json!("Status"), &json!(410), &json!("Expired")));
    assert_eq!(watch.next().await, None);
}

async fn watch(stage: &Stage, query: &str) -> Watch {
    let uri = format!("{}?watch=true&{query}", stage.lease.collection());
    let request = Request::get(uri).body(Body::empty()).expect("a request");
    let answer = within(PATIENCE, "a watch", stage.api.client().send(request)).await.expect("a watch");
    assert_eq!(answer.status(), 200);
    Watch { body: answer.into_body(), read: Vec::new() }
}

struct Watch {
    body: Body,
    read: Vec<u8>,
}

impl Watch {
    /// The next event; none when the watch ends.
    async fn next(&mut self) -> Option<(String, Value)> {
        within(PATIENCE, "an event", async {
            loop {
                if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = self.read.drain(..=end).collect();
                    let event: Value = serde_json::from_slice(&line).expect("an event");
                    let kind = event["type"].as_str().expect("a type").to_owned();
                    return Some((kind, plain(event["object"].clone())));
                }
                let frame = self.body.frame().await?.expect("no error of the stream");
                if let Ok(data) = frame.into_data() {
                    self.read.extend_from_slice(&data);
                }
            }
        })
        .await
    }

    /// The next event, which must be of this kind.
    async fn expect(&mut self, kind: &str) -> Value {
        let (seen, object) = self.next().await.expect("an event before the end");
        assert_eq!(seen, kind, "{object}");
        object
    }
}
