//! POST, PUT, PATCH and DELETE.

use http::Method;
use serde_json::{Value, json};
use support::{Case, Stage, cases, server::COORDINATED};

use super::{JSON, Leases as _, MERGE, TIME, lease, number, plain, uid, version, with};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = cases![BOTH:
        a_lease_is_created_once,
        what_is_unset_or_unknown_is_not_kept,
        times_have_six_digits_and_are_in_utc,
        bodies_that_cannot_be_read_are_refused,
        the_rules_of_a_lease_are_kept,
        an_update_replaces_the_whole_object,
        a_stale_update_is_a_conflict_and_changes_nothing,
        a_write_that_changes_nothing_makes_no_version,
        an_update_of_a_missing_lease_creates_one_without_uid,
        a_lease_made_anew_is_another,
        a_merge_patch_changes_what_it_names,
        a_deleted_lease_is_gone,
        a_deletion_with_preconditions_fails_unless_they_hold,
        a_finalizer_keeps_a_lease_until_it_is_taken_away,
    ];
    let coordinated = cases![BOTH: what_others_wrote_survives_if_it_is_sent_back, a_preferred_holder_needs_a_strategy];
    cases.extend(coordinated.into_iter().map(|case| case.since(COORDINATED)));
    // Before 1.35 the code is 500.
    cases.extend(cases![BOTH: options_of_a_deletion_that_cannot_be_read_are_refused].into_iter().map(|case| case.since(35)));
    cases.extend(cases![EMBEDDED: what_is_not_served_is_refused]);
    cases
}

async fn a_lease_is_created_once(stage: Stage) {
    let created = stage.given("a", json!({ "holderIdentity": "x", "leaseDurationSeconds": 15, "renewTime": TIME })).await;
    stage.post(&lease("a", json!({}))).await.refused(409, "AlreadyExists");

    let head = json!({ "kind": created["kind"], "apiVersion": created["apiVersion"] });
    assert_eq!(head, json!({ "kind": "Lease", "apiVersion": "coordination.k8s.io/v1" }));
    assert_eq!(created["metadata"]["namespace"], stage.namespace);
    assert!(uid(&created).len() == 36 && number(&created) > 0);
    let since = created["metadata"]["creationTimestamp"].as_str().expect("a time");
    let age = tenure::clock::wall() - since.parse::<jiff::Timestamp>().expect("RFC 3339").as_microsecond();
    assert!(since.len() == 20 && age.abs() < 60_000_000, "{since}");
    assert_eq!(plain(stage.get("a").await.ok()), plain(created));
}

async fn what_is_unset_or_unknown_is_not_kept(stage: Stage) {
    let spec = json!({ "holderIdentity": null, "leaseTransitions": 0, "futureField": 1 });
    let created = stage.given("a", spec).await;
    let bare = stage.post(&json!({ "metadata": { "name": "b", "labels": null, "finalizers": [] } })).await.created();

    assert_eq!(created["spec"], json!({ "leaseTransitions": 0 }));
    assert_eq!((&bare["spec"], &bare["metadata"]["labels"]), (&json!({}), &Value::Null));
    assert_eq!(bare["metadata"]["finalizers"], Value::Null);
}

async fn times_have_six_digits_and_are_in_utc(stage: Stage) {
    for (name, sent, kept) in [
        ("a", TIME, TIME),
        ("b", "2024-01-01T02:30:00.000001+02:30", "2024-01-01T00:00:00.000001Z"),
        ("c", "2023-12-31T23:00:00.123456-01:00", "2024-01-01T00:00:00.123456Z"),
    ] {
        let created = stage.given(name, json!({ "renewTime": sent, "acquireTime": sent })).await;
        assert_eq!(created["spec"], json!({ "renewTime": kept, "acquireTime": kept }));
    }
    let wrong = "2024-01-01T00:00:00Z|2024-01-01T00:00:00.000Z|2024-01-01T00:00:00.0000000Z|2024-01-01 00:00:00.000000Z|\
                 2024-01-01T00:00:00.000000|2024-13-01T00:00:00.000000Z|now";
    for wrong in wrong.split('|') {
        stage.post(&lease("d", json!({ "renewTime": wrong }))).await.refused(400, "BadRequest");
    }
}

async fn bodies_that_cannot_be_read_are_refused(stage: Stage) {
    let object = stage.given("a", json!({})).await;
    for spec in [
        json!("x"),
        json!({ "holderIdentity": 5 }),
        json!({ "leaseDurationSeconds": "15" }),
        json!({ "leaseDurationSeconds": 15.5 }),
        json!({ "leaseTransitions": 2_147_483_648_u32 }),
        json!({ "renewTime": 5 }),
    ] {
        stage.post(&lease("b", spec.clone())).await.refused(400, "BadRequest");
        stage.put("a", &with(object.clone(), "/spec", spec)).await.refused(400, "BadRequest");
    }
    for body in ["", "{", "[]", "hello"] {
        stage.send_text(Method::POST, &stage.lease.collection(), JSON, JSON, body.into()).await.refused(400, "BadRequest");
    }
    for (field, value) in [("/kind", "Pod"), ("/metadata/namespace", "elsewhere")] {
        stage.post(&with(lease("b", json!({})), field, value)).await.refused(400, "BadRequest");
    }
    stage.put("a", &lease("b", json!({}))).await.refused(400, "BadRequest");
    stage.put("a", &json!({ "spec": {} })).await.refused(400, "BadRequest");
    stage.send(Method::POST, &stage.lease.collection(), "text/plain", &object).await.refused(415, "UnsupportedMediaType");
    stage.send(Method::PATCH, &stage.at("a"), JSON, &object).await.refused(415, "UnsupportedMediaType");
    assert_eq!(version(&stage.get("a").await.ok()), version(&object));
}

async fn assert_refused(stage: &Stage, object: &Value, field: &str, value: Value) {
    let spec = json!({ field: value });
    let field = format!("spec.{field}");
    stage.post(&lease("b", spec.clone())).await.invalid(&field);
    stage.put("a", &with(object.clone(), "/spec", spec.clone())).await.invalid(&field);
    stage.patch("a", &json!({ "spec": spec })).await.invalid(&field);
}

async fn a_preferred_holder_needs_a_strategy(stage: Stage) {
    let object = stage.given("a", json!({})).await;
    assert_refused(&stage, &object, "preferredHolder", json!("x")).await;
}

async fn the_rules_of_a_lease_are_kept(stage: Stage) {
    let object = stage.given("a", json!({})).await;
    for (field, value) in
        [("leaseDurationSeconds", json!(0)), ("leaseDurationSeconds", json!(-1)), ("leaseTransitions", json!(-1))]
    {
        assert_refused(&stage, &object, field, value).await;
    }
    for name in ["B", "-b", "b_c", "b..c"] {
        stage.post(&lease(name, json!({}))).await.invalid("metadata.name");
        stage.put(name, &lease(name, json!({}))).await.invalid("metadata.name");
    }
    stage.post(&lease("", json!({}))).await.invalid("metadata.name");
    for object in [lease("a", json!({})), with(lease("a", json!({})), "/metadata/resourceVersion", "0")] {
        stage.put("a", &object).await.invalid("metadata.resourceVersion");
    }
    let stale = with(with(object, "/metadata/resourceVersion", "1"), "/spec/leaseDurationSeconds", 0);
    stage.put("a", &stale).await.refused(409, "Conflict");
}

async fn an_update_replaces_the_whole_object(stage: Stage) {
    let spec = json!({ "holderIdentity": "x", "leaseDurationSeconds": 15, "renewTime": TIME });
    let object = stage.post(&with(lease("a", spec), "/metadata/labels", json!({ "app": "x" }))).await.created();
    let bare = with(lease("a", json!({ "holderIdentity": "" })), "/metadata/resourceVersion", version(&object));

    let updated = stage.put("a", &with(bare, "/metadata/creationTimestamp", "2000-01-01T00:00:00Z")).await.ok();

    assert_eq!((&updated["spec"], &updated["metadata"]["labels"]), (&json!({ "holderIdentity": "" }), &Value::Null));
    assert_eq!(uid(&updated), uid(&object));
    assert_eq!(updated["metadata"]["creationTimestamp"], object["metadata"]["creationTimestamp"]);
    assert!(number(&updated) > number(&object));
    assert_eq!(plain(stage.get("a").await.ok()), plain(updated));
}

async fn a_stale_update_is_a_conflict_and_changes_nothing(stage: Stage) {
    let first = stage.given("a", json!({ "holderIdentity": "x" })).await;
    let second = stage.put("a", &with(first.clone(), "/spec/holderIdentity", "y")).await.ok();

    let status = stage.put("a", &first).await.refused(409, "Conflict");
    stage.put("a", &with(second.clone(), "/metadata/resourceVersion", "99999999")).await.refused(409, "Conflict");
    stage.put("a", &with(second.clone(), "/metadata/uid", "another")).await.refused(409, "Conflict");

    let details = json!({ "name": "a", "group": "coordination.k8s.io", "kind": "leases" });
    assert_eq!(status["details"], details);
    assert_eq!(version(&stage.get("a").await.ok()), version(&second));
}

async fn a_write_that_changes_nothing_makes_no_version(stage: Stage) {
    let object = stage.given("a", json!({ "holderIdentity": "x", "renewTime": TIME })).await;

    let put = stage.put("a", &object).await.ok();
    let patched = stage.patch("a", &json!({ "spec": { "holderIdentity": "x", "strategy": null } })).await.ok();

    assert_eq!((plain(put), plain(patched)), (plain(object.clone()), plain(object.clone())));
    assert_eq!(version(&stage.get("a").await.ok()), version(&object));
}

async fn what_others_wrote_survives_if_it_is_sent_back(stage: Stage) {
    let spec = json!({ "holderIdentity": "x", "strategy": "OldestEmulationVersion", "preferredHolder": "y" });
    let owner = json!({ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1", "controller": false });
    let mut object = with(lease("a", spec), "/metadata/labels", json!({ "z": "1", "a": "2" }));
    object = with(object, "/metadata/annotations", json!({ "example.com/Note": "n" }));
    object = with(object, "/metadata/finalizers", json!(["example.com/f"]));
    let object = stage.post(&with(object, "/metadata/ownerReferences", json!([owner]))).await.created();

    let updated = stage.put("a", &with(object.clone(), "/spec/holderIdentity", "y")).await.ok();

    for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
        assert_eq!(updated["metadata"][field], object["metadata"][field], "{field}");
    }
    assert_eq!(updated["spec"], with(object, "/spec/holderIdentity", "y")["spec"]);
}

async fn an_update_of_a_missing_lease_creates_one_without_uid(stage: Stage) {
    let created = stage.put("a", &lease("a", json!({ "holderIdentity": "x" }))).await.created();
    stage.put("b", &with(lease("b", json!({})), "/metadata/uid", uid(&created))).await.refused(409, "Conflict");

    assert_eq!((&created["spec"]["holderIdentity"], &created["metadata"]["namespace"]), (&json!("x"), &json!(stage.namespace)));
    assert_eq!(stage.get("b").await.code, 404);
}

async fn a_lease_made_anew_is_another(stage: Stage) {
    let old = stage.given("a", json!({})).await;
    stage.delete("a", &json!({})).await.ok();
    let gone = stage.put("a", &old).await;
    let new = stage.given("a", json!({})).await;
    let stale = stage.put("a", &old).await;

    gone.refused(409, "Conflict");
    stale.refused(409, "Conflict");
    assert!(uid(&old) != uid(&new) && number(&old) + 1 < number(&new));
}

async fn a_merge_patch_changes_what_it_names(stage: Stage) {
    let spec = json!({ "holderIdentity": "x", "leaseDurationSeconds": 15 });
    let object = stage.post(&with(lease("a", spec), "/metadata/labels", json!({ "a": "1" }))).await.created();

    let change = json!({ "metadata": { "annotations": { "n": "1" }, "labels": { "a": null, "b": "2" } }, "spec": { "holderIdentity": "y" } });
    let patched = stage.patch("a", &change).await.ok();
    stage.patch("a", &json!({ "metadata": { "resourceVersion": version(&object) }, "spec": {} })).await.refused(409, "Conflict");
    stage.patch("a", &json!({ "metadata": { "name": "b" } })).await.refused(400, "BadRequest");
    stage.patch("b", &change).await.refused(404, "NotFound");
    stage.send_text(Method::PATCH, &stage.at("a"), MERGE, JSON, "{".into()).await.refused(400, "BadRequest");

    assert_eq!(patched["spec"], json!({ "holderIdentity": "y", "leaseDurationSeconds": 15 }));
    assert_eq!(patched["metadata"]["labels"], json!({ "b": "2" }));
    assert_eq!(patched["metadata"]["annotations"], json!({ "n": "1" }));
    assert_eq!(plain(stage.get("a").await.ok()), plain(patched));
}

async fn a_deleted_lease_is_gone(stage: Stage) {
    let object = stage.given("a", json!({})).await;

    let policy = json!({ "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background" });
    let status = stage.delete("a", &policy).await.ok();
    let missing = stage.get("a").await.refused(404, "NotFound");
    stage.delete("a", &json!({ "preconditions": { "uid": "x" } })).await.refused(404, "NotFound");
    stage.send_text(Method::DELETE, &stage.at("a"), JSON, JSON, String::new()).await.refused(404, "NotFound");

    let name = json!({ "name": "a", "group": "coordination.k8s.io", "kind": "leases" });
    assert_eq!((&status["kind"], &status["status"]), (&json!("Status"), &json!("Success")));
    assert_eq!(status["details"], with(json!({ "d": name }), "/d/uid", uid(&object))["d"]);
    assert_eq!(missing["details"], name);
}

async fn options_of_a_deletion_that_cannot_be_read_are_refused(stage: Stage) {
    stage.given("a", json!({})).await;
    for options in [json!({ "preconditions": { "uid": 5 } }), json!([])] {
        stage.delete("a", &options).await.refused(400, "BadRequest");
    }
    assert_eq!(stage.get("a").await.code, 200);
}

async fn a_deletion_with_preconditions_fails_unless_they_hold(stage: Stage) {
    let old = stage.given("a", json!({})).await;
    let object = stage.patch("a", &json!({ "spec": { "holderIdentity": "x" } })).await.ok();
    let must = |uid: &str, version: &str| json!({ "preconditions": { "uid": uid, "resourceVersion": version } });

    stage.delete("a", &must("another", version(&object))).await.refused(409, "Conflict");
    stage.delete("a", &must(uid(&object), version(&old))).await.refused(409, "Conflict");
    assert_eq!(stage.get("a").await.code, 200);
    stage.delete("a", &must(uid(&object), version(&object))).await.ok();
    assert_eq!(stage.get("a").await.code, 404);
}

async fn a_finalizer_keeps_a_lease_until_it_is_taken_away(stage: Stage) {
    let object = stage.post(&with(lease("a", json!({})), "/metadata/finalizers", json!(["example.com/f"]))).await.created();

    let deleting = stage.delete("a", &json!({})).await.ok();
    let again = stage.delete("a", &json!({})).await.ok();
    stage.post(&lease("a", json!({}))).await.refused(409, "AlreadyExists");
    let edited =
        stage.patch("a", &json!({ "metadata": { "deletionTimestamp": null }, "spec": { "holderIdentity": "y" } })).await.ok();
    let freed = stage.patch("a", &json!({ "metadata": { "finalizers": null } })).await.ok();

    assert!(deleting["metadata"]["deletionTimestamp"].is_string() && version(&deleting) != version(&object));
    assert_eq!(plain(again), plain(deleting.clone()));
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        assert_eq!(edited["metadata"][field], deleting["metadata"][field], "{field}");
    }
    assert_eq!(freed["metadata"]["finalizers"], Value::Null);
    assert_eq!(stage.get("a").await.code, 404);
}

/// Clearly, so that a client can fall back or say why it does not work.
async fn what_is_not_served_is_refused(stage: Stage) {
    const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
    let object = stage.given("a", json!({})).await;
    for media in ["application/strategic-merge-patch+json", "application/json-patch+json", "application/apply-patch+yaml"] {
        stage.send(Method::PATCH, &stage.at("a"), media, &object).await.refused(415, "UnsupportedMediaType");
    }
    for method in [Method::PUT, Method::DELETE] {
        stage.send(method, &stage.at("a"), PROTOBUF, &object).await.refused(415, "UnsupportedMediaType");
    }
    stage.send(Method::DELETE, &format!("{}?dryRun=All", stage.at("a")), JSON, &json!({})).await.refused(400, "BadRequest");
    stage.delete("a", &json!({ "dryRun": ["All"] })).await.refused(400, "BadRequest");
    for accept in [PROTOBUF, "application/json;as=Table;v=v1;g=meta.k8s.io"] {
        let also = format!("{accept},{JSON}");
        let at = stage.at("a");
        stage.send_text(Method::GET, &at, JSON, accept, String::new()).await.refused(406, "NotAcceptable");
        assert_eq!(stage.send_text(Method::GET, &at, JSON, &also, String::new()).await.ok(), object);
    }
    assert_eq!(stage.get("a").await.ok(), object);
}
