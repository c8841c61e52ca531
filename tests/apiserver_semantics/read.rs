//! GET and LIST, and what else clients read.

use http::Method;
use serde_json::{Value, json};

use super::hand::{lease, number, plain, version, with};
use crate::support::{
    case::{Case, cases},
    stage::Stage,
};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        a_lease_reads_as_it_was_written,
        a_version_ahead_of_the_server_is_too_large,
        a_version_that_is_no_number_is_refused,
        a_list_has_a_version_of_its_own_and_items_without_type,
        a_list_is_in_the_order_of_names,
        a_list_of_an_unknown_namespace_is_empty,
        labels_and_fields_select,
        what_is_no_selector_is_a_bad_request,
        options_that_do_not_go_together_are_invalid,
        paths_and_methods_that_do_not_exist,
        groups_and_resources_are_found,
        access_is_reviewed,
    ]
}

async fn a_lease_reads_as_it_was_written(stage: Stage) {
    let object = stage.given("a", json!({ "holderIdentity": "x" })).await;

    let latest = stage.get("a").await.ok();
    let at = |version: &str| format!("{}?resourceVersion={version}", stage.at("a"));
    // The server's cache, which answers this and the next one, is waited for by this one only.
    let as_new = stage.request(Method::GET, &at(version(&object)), None).await.ok();
    let any = stage.request(Method::GET, &at("0"), None).await.ok();

    assert_eq!(plain(latest), plain(object.clone()));
    assert_eq!(plain(as_new), plain(object.clone()));
    assert_eq!(plain(any), plain(object));
}

async fn a_version_ahead_of_the_server_is_too_large(stage: Stage) {
    stage.given("a", json!({})).await;
    for path in [stage.at("a"), stage.lease.collection()] {
        let answer = stage.request(Method::GET, &format!("{path}?resourceVersion=99999999"), None).await;

        let message = answer.refused(504, "Timeout");
        assert!(message.starts_with("Timeout: Too large resource version: 99999999, current: "), "{message}");
        assert_eq!(answer.body["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
        assert_eq!(answer.retry_after.as_deref(), Some("1"));
    }
}

async fn a_version_that_is_no_number_is_refused(stage: Stage) {
    stage.given("a", json!({})).await;

    let get = stage.request(Method::GET, &format!("{}?resourceVersion=x", stage.at("a")), None).await;
    let list = stage.list("resourceVersion=x").await;

    let why = "resourceVersion: Invalid value: \"x\": strconv.ParseUint: parsing \"x\": invalid syntax";
    assert_eq!(get.refused(500, ""), why);
    assert_eq!(list.refused(400, "BadRequest"), format!("invalid resource version: {why}"));
}

async fn a_list_has_a_version_of_its_own_and_items_without_type(stage: Stage) {
    let object = stage.given("a", json!({ "holderIdentity": "x" })).await;

    let list = stage.list("").await.ok();

    assert_eq!(list["kind"], "LeaseList");
    assert_eq!(list["apiVersion"], "coordination.k8s.io/v1");
    assert!(number(&list) >= number(&object));
    let item = &list["items"][0];
    assert_eq!((&item["kind"], &item["apiVersion"]), (&Value::Null, &Value::Null));
    assert_eq!(item["spec"], object["spec"]);
    assert_eq!(version(item), version(&object));
}

async fn a_list_is_in_the_order_of_names(stage: Stage) {
    for name in ["c", "a", "b"] {
        stage.given(name, json!({})).await;
    }

    assert_eq!(names(&stage.list("").await.ok()), ["a", "b", "c"]);
}

async fn a_list_of_an_unknown_namespace_is_empty(stage: Stage) {
    let path = "/apis/coordination.k8s.io/v1/namespaces/there-is-none/leases";

    let list = stage.request(Method::GET, path, None).await.ok();

    assert_eq!(list["items"], json!([]));
}

async fn labels_and_fields_select(stage: Stage) {
    stage.post(&with(lease("a", json!({})), "labels", json!({ "app": "x", "tier": "1" }))).await.created();
    stage.post(&with(lease("b", json!({})), "labels", json!({ "app": "y" }))).await.created();
    stage.given("c", json!({})).await;
    for (query, expected) in [
        ("labelSelector=app%3Dx", vec!["a"]),
        ("labelSelector=app", vec!["a", "b"]),
        ("labelSelector=!app", vec!["c"]),
        ("labelSelector=app!%3Dx", vec!["b", "c"]),
        ("labelSelector=app+in+(x,y),tier", vec!["a"]),
        ("labelSelector=app+notin+(x)", vec!["b", "c"]),
        ("fieldSelector=metadata.name%3Db", vec!["b"]),
        ("fieldSelector=metadata.name!%3Db", vec!["a", "c"]),
        ("fieldSelector=metadata.name%3Da&labelSelector=app%3Dy", vec![]),
        ("labelSelector=&fieldSelector=", vec!["a", "b", "c"]),
    ] {
        assert_eq!(names(&stage.list(query).await.ok()), expected, "{query}");
    }
    let everywhere = "/apis/coordination.k8s.io/v1/leases?labelSelector=tier%3D1&fieldSelector=metadata.namespace%3D";
    let list = stage.request(Method::GET, &format!("{everywhere}{}", stage.namespace), None).await.ok();
    assert_eq!(names(&list), ["a"]);
}

async fn what_is_no_selector_is_a_bad_request(stage: Stage) {
    for query in ["labelSelector=a+b", "labelSelector=a%3D%3D%3Db", "fieldSelector=a", "fieldSelector=spec.holderIdentity%3Dx"] {
        stage.list(query).await.refused(400, "BadRequest");
    }
}

async fn options_that_do_not_go_together_are_invalid(stage: Stage) {
    for query in [
        "resourceVersionMatch=Exact",
        "resourceVersion=0&resourceVersionMatch=Exact",
        "sendInitialEvents=true",
        "watch=true&sendInitialEvents=true",
        "watch=true&resourceVersion=1&resourceVersionMatch=NotOlderThan",
    ] {
        let answer = stage.list(query).await;

        answer.refused(422, "Invalid");
        assert_eq!(answer.body["details"]["kind"], "ListOptions", "{query}");
    }
}

async fn paths_and_methods_that_do_not_exist(stage: Stage) {
    stage.given("a", json!({})).await;

    let sub = stage.request(Method::GET, &format!("{}/status", stage.at("a")), None).await;
    let kind = stage.request(Method::GET, "/apis/coordination.k8s.io/v1/things", None).await;
    let group = stage.request(Method::GET, "/apis/example.com/v1/things", None).await;
    let post = stage.request(Method::POST, &stage.at("a"), Some(&lease("a", json!({})))).await;
    let put = stage.request(Method::PUT, &stage.lease.collection(), Some(&lease("a", json!({})))).await;

    sub.refused(404, "NotFound");
    kind.refused(404, "NotFound");
    assert_eq!((group.code, &group.body), (404, &Value::Null));
    post.refused(405, "MethodNotAllowed");
    put.refused(405, "MethodNotAllowed");
}

async fn groups_and_resources_are_found(stage: Stage) {
    let groups = stage.request(Method::GET, "/apis", None).await.ok();
    let resources = stage.request(Method::GET, "/apis/coordination.k8s.io/v1", None).await.ok();
    let release = stage.request(Method::GET, "/version", None).await.ok();

    let named = |list: &Value, name: &str| list.as_array().expect("a list").iter().any(|item| item["name"] == name);
    assert!(named(&groups["groups"], "coordination.k8s.io"));
    assert!(named(&resources["resources"], "leases"));
    assert_eq!(release["major"], "1");
}

async fn access_is_reviewed(stage: Stage) {
    let attributes = json!({
        "namespace": stage.namespace, "verb": "update", "group": "coordination.k8s.io", "resource": "leases", "name": "a",
    });
    let review = json!({
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "spec": { "resourceAttributes": attributes },
    });

    let answer = stage.request(Method::POST, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", Some(&review)).await;

    let answer = answer.created();
    assert_eq!(answer["status"]["allowed"], true);
    assert_eq!(answer["spec"]["resourceAttributes"]["verb"], "update");
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().expect("items");
    items.iter().map(|item| item["metadata"]["name"].as_str().expect("a name")).collect()
}
