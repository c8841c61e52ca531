//! POST.

use http::Method;
use serde_json::{Value, json};

use super::hand::{TIME, lease, number, plain, version, with};
use crate::support::{
    case::{Case, cases},
    stage::Stage,
};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        a_created_lease_is_what_was_sent_and_what_the_server_adds,
        a_lease_needs_no_spec,
        a_name_that_exists_is_a_conflict,
        versions_rise_across_leases_and_deletions,
        a_version_is_refused,
        what_is_no_version_is_ignored,
        what_only_the_server_may_set_is_ignored,
        a_generation_is_kept_and_never_counted,
        a_name_is_generated_from_a_prefix,
        a_lease_needs_a_name,
        a_name_is_a_dns_subdomain,
        another_namespace_than_the_path_is_a_bad_request,
        a_dry_run_leaves_nothing,
        options_that_there_are_not_are_refused,
        a_field_manager_is_printable,
        what_is_no_lease_is_a_bad_request,
    ]
}

async fn a_created_lease_is_what_was_sent_and_what_the_server_adds(stage: Stage) {
    let spec = json!({
        "holderIdentity": "x", "leaseDurationSeconds": 15, "acquireTime": TIME, "renewTime": TIME, "leaseTransitions": 0,
    });
    let mut sent = with(lease("a", spec), "labels", json!({ "app": "x" }));
    sent["metadata"]["annotations"] = json!({ "tenure.dev/y": "z" });

    let mut created = plain(stage.post(&sent).await.created());

    let metadata = created["metadata"].as_object_mut().expect("metadata");
    let uid = metadata.remove("uid").and_then(|uid| uid.as_str().map(str::len));
    assert_eq!(uid, Some(36));
    assert!(metadata.remove("resourceVersion").is_some());
    assert!(metadata.remove("creationTimestamp").is_some_and(|time| time.as_str().is_some_and(|time| time.len() == 20)));
    sent["metadata"]["namespace"] = json!(stage.namespace);
    assert_eq!(created, sent);
}

async fn a_lease_needs_no_spec(stage: Stage) {
    let created = stage.post(&json!({ "metadata": { "name": "a" } })).await.created();

    assert_eq!(created["kind"], "Lease");
    assert_eq!(created["spec"], json!({}));
}

async fn a_name_that_exists_is_a_conflict(stage: Stage) {
    stage.given("a", json!({})).await;

    let again = stage.post(&lease("a", json!({}))).await;

    assert_eq!(again.refused(409, "AlreadyExists"), "leases.coordination.k8s.io \"a\" already exists");
    assert_eq!(again.body["details"], json!({ "name": "a", "group": "coordination.k8s.io", "kind": "leases" }));
}

async fn versions_rise_across_leases_and_deletions(stage: Stage) {
    let first = stage.given("a", json!({})).await;
    let second = stage.given("b", json!({})).await;
    stage.delete("a", None).await.ok();
    let third = stage.given("a", json!({})).await;

    assert!(number(&first) < number(&second) && number(&second) + 1 < number(&third));
    assert_ne!(first["metadata"]["uid"], third["metadata"]["uid"]);
}

async fn a_version_is_refused(stage: Stage) {
    let answer = stage.post(&with(lease("a", json!({})), "resourceVersion", "5")).await;

    assert_eq!(answer.refused(500, ""), "resourceVersion should not be set on objects to be created");
    assert_eq!(stage.get("a").await.code, 404);
}

async fn what_is_no_version_is_ignored(stage: Stage) {
    for (name, version) in ["0", "00", "abc", "-1", "+5", "1 ", "99999999999999999999"].into_iter().enumerate() {
        stage.post(&with(lease(&format!("a{name}"), json!({})), "resourceVersion", version)).await.created();
    }
}

async fn what_only_the_server_may_set_is_ignored(stage: Stage) {
    let mut object = lease("a", json!({}));
    for (field, value) in [
        ("uid", json!("mine")),
        ("creationTimestamp", json!("2000-01-01T00:00:00Z")),
        ("deletionTimestamp", json!("2000-01-01T00:00:00Z")),
        ("deletionGracePeriodSeconds", json!(5)),
        ("selfLink", json!("/there")),
    ] {
        object["metadata"][field] = value;
    }

    let created = stage.post(&object).await.created();

    assert_ne!(created["metadata"]["uid"], "mine");
    assert_ne!(created["metadata"]["creationTimestamp"], "2000-01-01T00:00:00Z");
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        assert_eq!(created["metadata"][field], Value::Null, "{field}");
    }
}

async fn a_generation_is_kept_and_never_counted(stage: Stage) {
    let without = stage.given("a", json!({})).await;
    let with_one = stage.post(&with(lease("b", json!({})), "generation", 5)).await.created();
    let mut changed = with_one.clone();
    changed["spec"]["holderIdentity"] = json!("x");
    changed["metadata"]["generation"] = json!(9);

    let changed = stage.put("b", &changed).await.ok();

    assert_eq!(without["metadata"]["generation"], Value::Null);
    assert_eq!(with_one["metadata"]["generation"], 5);
    assert_eq!(changed["metadata"]["generation"], 5);
}

async fn a_name_is_generated_from_a_prefix(stage: Stage) {
    let object = json!({ "metadata": { "generateName": "some-" } });

    let (one, other) = (stage.post(&object).await.created(), stage.post(&object).await.created());

    let name = one["metadata"]["name"].as_str().expect("a name");
    assert!(name.starts_with("some-") && name.len() == 10, "{name}");
    assert_eq!(one["metadata"]["generateName"], "some-");
    assert_ne!(one["metadata"]["name"], other["metadata"]["name"]);
}

async fn a_lease_needs_a_name(stage: Stage) {
    let answer = stage.post(&json!({})).await;

    let expected = ("metadata.name".into(), "Required value: name or generateName is required".into());
    assert_eq!(answer.invalid(), expected);
    assert_eq!(answer.body["details"]["kind"], "Lease");
}

async fn a_name_is_a_dns_subdomain(stage: Stage) {
    for bad in ["A", "-a", "a_b", "a..b", "a/b", &"a".repeat(254)] {
        let answer = stage.post(&lease(bad, json!({}))).await;

        let message = answer.refused(422, "Invalid");
        assert!(message.starts_with(&format!("Lease.coordination.k8s.io {bad:?} is invalid: ")), "{message}");
        assert_eq!(answer.body["details"]["causes"][0]["field"], "metadata.name");
    }
    stage.given("a-1.b", json!({})).await;
}

async fn another_namespace_than_the_path_is_a_bad_request(stage: Stage) {
    let answer = stage.post(&with(lease("a", json!({})), "namespace", "elsewhere")).await;

    let expected = "the namespace of the provided object does not match the namespace sent on the request";
    assert_eq!(answer.refused(400, "BadRequest"), expected);
}

async fn a_dry_run_leaves_nothing(stage: Stage) {
    let at = format!("{}?dryRun=All", stage.lease.collection());

    let answer = stage.request(Method::POST, &at, Some(&lease("a", json!({ "holderIdentity": "x" })))).await;

    let created = answer.created();
    assert_eq!(created["spec"]["holderIdentity"], "x");
    assert_eq!(created["metadata"]["resourceVersion"], Value::Null);
    assert_eq!(stage.get("a").await.code, 404);
}

async fn options_that_there_are_not_are_refused(stage: Stage) {
    stage.given("a", json!({})).await;
    let long = "x".repeat(129);
    let query = format!("?dryRun=some&fieldValidation=Loose&fieldManager={long}");
    let wrong = concat!(
        "[fieldManager: Too long: may not be more than 128 bytes, ",
        r#"dryRun: Unsupported value: ["some"]: supported values: "All", "#,
        r#"fieldValidation: Unsupported value: "Loose": supported values: "", "Ignore", "Strict", "Warn"]"#,
    );
    let (object, all) = (lease("a", json!({})), stage.lease.collection());
    for (method, path, kind) in [(Method::POST, all, "CreateOptions"), (Method::PUT, stage.at("a"), "UpdateOptions")] {
        let answer = stage.request(method, &format!("{path}{query}"), Some(&object)).await;

        assert_eq!(answer.refused(422, "Invalid"), format!("{kind}.meta.k8s.io \"\" is invalid: {wrong}"));
        assert_eq!(answer.body["details"]["group"], "meta.k8s.io");
        assert_eq!(answer.body["details"]["causes"][1]["reason"], "FieldValueNotSupported");
    }
}

async fn a_field_manager_is_printable(stage: Stage) {
    let at = format!("{}?fieldManager=a%01", stage.lease.collection());

    let answer = stage.request(Method::POST, &at, Some(&lease("a", json!({})))).await;

    let rule = "Invalid value: \"a\\x01\": invalid character U+0001 (at position 1)";
    assert_eq!(answer.invalid(), ("fieldManager".into(), rule.into()));
}

async fn what_is_no_lease_is_a_bad_request(stage: Stage) {
    let path = stage.lease.collection();
    for body in ["", "hello", "[]", "\"a\"", r#"{"metadata": "a"}"#, r#"{"spec": []}"#] {
        let answer = stage.send(Method::POST, &path, "application/json", body.to_owned()).await;

        answer.refused(400, "BadRequest");
    }
    for (version, kind) in [("coordination.k8s.io/v1beta1", "Lease"), ("coordination.k8s.io/v1", "Leese"), ("v1", "Pod")] {
        let object = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": "a" } });
        stage.post(&object).await.refused(400, "BadRequest");
    }
    stage.send(Method::POST, &path, "text/plain", "{}".into()).await.refused(415, "UnsupportedMediaType");
    let typed = stage.send(Method::POST, &path, "application/json; charset=utf-8", lease("a", json!({})).to_string()).await;
    assert!(!version(&typed.created()).is_empty());
}
