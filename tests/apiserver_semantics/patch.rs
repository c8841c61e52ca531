//! PATCH.

use http::Method;
use serde_json::{Value, json};

use super::hand::{JSON, MERGE, STRATEGIC, lease, plain, version, with};
use crate::support::{
    case::{Case, cases},
    stage::Stage,
};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        a_patch_changes_what_it_names_and_nothing_else,
        null_removes_a_field,
        a_patch_that_changes_nothing_makes_no_version,
        a_missing_lease_is_not_found,
        a_patch_may_carry_a_version,
        uid_name_and_namespace_cannot_be_patched,
        a_patch_keeps_the_rules,
        a_patch_to_what_is_no_lease_is_invalid,
        a_merge_patch_replaces_lists_and_a_strategic_one_unites_them,
        a_strategic_patch_can_take_an_element_away,
        a_strategic_patch_can_empty_or_replace,
        a_json_patch_is_carried_out_step_by_step,
        a_json_patch_that_fails_changes_nothing,
        a_json_patch_of_too_many_steps_or_of_copies_of_copies_is_refused,
        what_is_no_json_patch_is_a_bad_request,
        a_json_patch_tests_for_null_only_where_a_field_could_be,
        only_an_apply_can_be_forced,
        unknown_fields_are_dropped_with_a_warning,
        fields_that_stand_twice_are_named,
        what_is_no_patch_is_a_bad_request,
    ]
}

async fn a_patch_changes_what_it_names_and_nothing_else(stage: Stage) {
    let spec = json!({ "holderIdentity": "x", "leaseDurationSeconds": 15 });
    let object = stage.post(&with(lease("a", spec), "labels", json!({ "app": "x" }))).await.created();
    for (media, name) in [(MERGE, "one"), (STRATEGIC, "other")] {
        let patched = stage.patch("a", media, &json!({ "metadata": { "annotations": { name: "1" } } })).await.ok();

        assert_eq!(patched["metadata"]["annotations"][name], "1");
        assert_eq!(patched["metadata"]["labels"], object["metadata"]["labels"]);
        assert_eq!(patched["spec"], object["spec"]);
        assert_ne!(version(&patched), version(&object));
    }
}

async fn null_removes_a_field(stage: Stage) {
    let spec = json!({ "holderIdentity": "x", "leaseDurationSeconds": 15 });
    stage.post(&with(lease("a", spec), "labels", json!({ "app": "x", "b": "y" }))).await.created();
    let patch = json!({ "metadata": { "labels": { "app": null } }, "spec": { "holderIdentity": null } });

    let patched = stage.patch("a", STRATEGIC, &patch).await.ok();

    assert_eq!(patched["metadata"]["labels"], json!({ "b": "y" }));
    assert_eq!(patched["spec"], json!({ "leaseDurationSeconds": 15 }));
}

async fn a_patch_that_changes_nothing_makes_no_version(stage: Stage) {
    let object = stage.given("a", json!({ "holderIdentity": "x" })).await;
    for patch in [json!({}), json!({ "spec": { "holderIdentity": "x" } })] {
        let patched = stage.patch("a", MERGE, &patch).await.ok();

        assert_eq!(plain(patched), plain(object.clone()));
    }
}

async fn a_missing_lease_is_not_found(stage: Stage) {
    let answer = stage.patch("a", MERGE, &json!({ "metadata": { "resourceVersion": "1" } })).await;

    assert_eq!(answer.refused(404, "NotFound"), "leases.coordination.k8s.io \"a\" not found");
}

async fn a_patch_may_carry_a_version(stage: Stage) {
    let object = stage.given("a", json!({})).await;
    let patch = |version: Value| json!({ "metadata": { "resourceVersion": version }, "spec": { "holderIdentity": "x" } });

    let stale = stage.patch("a", MERGE, &patch(json!("1"))).await;
    let none = stage.patch("a", MERGE, &patch(Value::Null)).await;
    let current = stage.patch("a", MERGE, &patch(json!(version(&object)))).await;

    stale.refused(409, "Conflict");
    assert_eq!(none.invalid().0, "metadata.resourceVersion");
    current.ok();
}

async fn uid_name_and_namespace_cannot_be_patched(stage: Stage) {
    stage.given("a", json!({})).await;

    let uid = stage.patch("a", MERGE, &json!({ "metadata": { "uid": "x" } })).await;
    let name = stage.patch("a", MERGE, &json!({ "metadata": { "name": "x" } })).await;
    let namespace = stage.patch("a", MERGE, &json!({ "metadata": { "namespace": "x" } })).await;

    assert!(uid.refused(422, "Invalid").contains("metadata.uid: Invalid value: \"x\": field is immutable"));
    assert_eq!(name.refused(400, "BadRequest"), "the name of the object (x) does not match the name on the URL (a)");
    namespace.refused(400, "BadRequest");
}

async fn a_patch_keeps_the_rules(stage: Stage) {
    stage.given("a", json!({})).await;

    let answer = stage.patch("a", STRATEGIC, &json!({ "spec": { "leaseDurationSeconds": 0 } })).await;

    assert_eq!(answer.invalid(), ("spec.leaseDurationSeconds".into(), "Invalid value: 0: must be greater than 0".into()));
}

async fn a_patch_to_what_is_no_lease_is_invalid(stage: Stage) {
    stage.given("a", json!({})).await;
    for patch in
        [json!({ "spec": { "leaseTransitions": "x" } }), json!({ "spec": { "renewTime": "now" } }), json!({ "kind": "Leese" })]
    {
        let answer = stage.patch("a", MERGE, &patch).await;

        assert_eq!(answer.invalid().0, "patch", "{patch}");
    }
}

async fn a_merge_patch_replaces_lists_and_a_strategic_one_unites_them(stage: Stage) {
    let object = with(lease("a", json!({})), "finalizers", json!(["example.com/a"]));
    stage.post(&object).await.created();
    let patch = |name: &str| json!({ "metadata": { "finalizers": [name] } });

    let united = stage.patch("a", STRATEGIC, &patch("example.com/b")).await.ok();
    let replaced = stage.patch("a", MERGE, &patch("example.com/c")).await.ok();

    assert_eq!(united["metadata"]["finalizers"], json!(["example.com/b", "example.com/a"]));
    assert_eq!(replaced["metadata"]["finalizers"], json!(["example.com/c"]));
}

async fn a_strategic_patch_can_take_an_element_away(stage: Stage) {
    let owner = |uid: &str| json!({ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid });
    let mut object = with(lease("a", json!({})), "finalizers", json!(["example.com/a", "example.com/b"]));
    object["metadata"]["ownerReferences"] = json!([owner("1"), owner("2")]);
    stage.post(&object).await.created();
    let patch = json!({ "metadata": {
        "$deleteFromPrimitiveList/finalizers": ["example.com/a"],
        "$setElementOrder/finalizers": ["example.com/b"],
        "ownerReferences": [{ "uid": "1", "$patch": "delete" }],
    }});

    let patched = stage.patch("a", STRATEGIC, &patch).await.ok();

    assert_eq!(patched["metadata"]["finalizers"], json!(["example.com/b"]));
    assert_eq!(patched["metadata"]["ownerReferences"], json!([owner("2")]));
}

async fn a_strategic_patch_can_empty_or_replace(stage: Stage) {
    let mut object = with(lease("a", json!({ "holderIdentity": "x" })), "annotations", json!({ "a": "1", "b": "2" }));
    object["metadata"]["ownerReferences"] = json!([{ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1" }]);
    stage.post(&object).await.created();

    let replace =
        json!({ "metadata": { "annotations": { "c": "3", "$patch": "replace" }, "ownerReferences": [{ "$patch": "replace" }] } });
    let replaced = stage.patch("a", STRATEGIC, &replace).await.ok();
    let delete =
        json!({ "metadata": { "annotations": { "$patch": "delete" } }, "spec": { "$patch": "delete", "holderIdentity": "y" } });
    let emptied = stage.patch("a", STRATEGIC, &delete).await.ok();
    let whole = stage.patch("a", STRATEGIC, &json!({ "$patch": "delete" })).await;
    let unknown = stage.patch("a", STRATEGIC, &json!({ "spec": { "$patch": "merge" } })).await;

    assert_eq!(replaced["metadata"]["annotations"], json!({ "c": "3" }));
    assert_eq!(replaced["metadata"]["ownerReferences"], Value::Null);
    assert_eq!((&emptied["metadata"]["annotations"], &emptied["spec"]), (&Value::Null, &json!({})));
    let nameless = "the name of the object (a based on URL) was undeterminable: name must be provided";
    assert_eq!(whole.refused(400, "BadRequest"), nameless);
    assert_eq!(unknown.refused(500, ""), "unknown patch type: merge in map: map[$patch:merge]");
}

async fn a_json_patch_is_carried_out_step_by_step(stage: Stage) {
    stage.post(&with(lease("a", json!({ "holderIdentity": "x" })), "labels", json!({ "a": "1" }))).await.created();
    let patch = json!([
        { "op": "test", "path": "/spec/holderIdentity", "value": "x" },
        { "op": "replace", "path": "/spec/holderIdentity", "value": "y" },
        { "op": "replace", "path": "/spec/leaseTransitions", "value": 1 },
        { "op": "move", "from": "/metadata/labels/a", "path": "/metadata/labels/b" },
        { "op": "add", "path": "/metadata/annotations", "value": {} },
        { "op": "copy", "from": "/metadata/labels/b", "path": "/metadata/annotations/example.com~1c" },
        { "op": "add", "path": "/metadata/finalizers", "value": ["example.com/a"] },
        { "op": "add", "path": "/metadata/finalizers/-", "value": "example.com/b" },
        { "op": "add", "path": "/metadata/finalizers/0", "value": "example.com/c" },
        { "op": "remove", "path": "/metadata/finalizers/1" },
    ]);

    let patched = stage.patch("a", JSON, &patch).await.ok();

    assert_eq!(patched["spec"], json!({ "holderIdentity": "y", "leaseTransitions": 1 }));
    assert_eq!(patched["metadata"]["labels"], json!({ "b": "1" }));
    assert_eq!(patched["metadata"]["annotations"], json!({ "example.com/c": "1" }));
    assert_eq!(patched["metadata"]["finalizers"], json!(["example.com/c", "example.com/b"]));
}

async fn a_json_patch_that_fails_changes_nothing(stage: Stage) {
    let object = stage.given("a", json!({ "holderIdentity": "x" })).await;
    for step in [
        json!({ "op": "test", "path": "/spec/holderIdentity", "value": "y" }),
        json!({ "op": "remove", "path": "/spec/renewTime" }),
        json!({ "op": "move", "from": "/spec/renewTime", "path": "/spec/acquireTime" }),
        json!({ "op": "replace", "path": "/metadata/finalizers/0", "value": "x" }),
        json!({ "op": "add", "path": "/nowhere/x", "value": 1 }),
        json!({ "op": "add", "path": "spec", "value": 1 }),
        json!({ "op": "other", "path": "/spec" }),
        json!({ "path": "/spec" }),
    ] {
        let first = json!({ "op": "replace", "path": "/spec/holderIdentity", "value": "x" });
        let answer = stage.patch("a", JSON, &json!([first, step])).await;

        let expected = "the server rejected our request due to an error in our request";
        assert_eq!(answer.refused(422, "Invalid"), expected, "{step}");
    }
    assert_eq!(stage.patch("a", JSON, &json!([{ "op": "remove", "path": "/metadata/name" }])).await.code, 400);
    assert_eq!(plain(stage.get("a").await.ok()), plain(object));
}

async fn a_json_patch_of_too_many_steps_or_of_copies_of_copies_is_refused(stage: Stage) {
    let object = stage.given("a", json!({ "holderIdentity": "x" })).await;
    let many = vec![json!({ "op": "test", "path": "/spec/holderIdentity", "value": "x" }); 10_001];
    let answer = stage.patch("a", JSON, &json!(many)).await;
    let expected = "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001";
    assert_eq!(answer.refused(413, "RequestEntityTooLarge"), expected);

    let first = json!({ "op": "add", "path": "/metadata/annotations", "value": { "a": "x".repeat(100_000) } });
    let twice = (0..20).map(|step| json!({ "op": "copy", "from": "/metadata", "path": format!("/metadata/labels{step}") }));
    let steps: Vec<_> = [first].into_iter().chain(twice).collect();
    let answer = stage.patch("a", JSON, &json!(steps)).await;
    assert_eq!(answer.refused(422, "Invalid"), "the server rejected our request due to an error in our request");
    assert_eq!(plain(stage.get("a").await.ok()), plain(object));
}

async fn what_is_no_json_patch_is_a_bad_request(stage: Stage) {
    stage.given("a", json!({})).await;
    for (body, wrong) in [
        ("{}", "json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"),
        ("[5]", "json: cannot unmarshal number into Go value of type handlers.jsonPatchOp"),
        ("x", ""),
    ] {
        let message = stage.send(Method::PATCH, &stage.at("a"), JSON, body.into()).await.refused(400, "BadRequest");

        assert!(message.starts_with(&format!("error decoding patch: {wrong}")), "{message}");
    }
}

async fn only_an_apply_can_be_forced(stage: Stage) {
    stage.given("a", json!({})).await;
    for (media, body) in [(MERGE, "{}"), (STRATEGIC, "{}"), (JSON, "[]")] {
        let answer = stage.send(Method::PATCH, &format!("{}?force=false", stage.at("a")), media, body.into()).await;

        assert_eq!(answer.invalid(), ("force".into(), "Forbidden: may not be specified for non-apply patch".into()));
    }
}

async fn unknown_fields_are_dropped_with_a_warning(stage: Stage) {
    stage.given("a", json!({ "holderIdentity": "x" })).await;
    let patch = json!({ "spec": { "futureField": 1 } });

    let warned = stage.patch("a", MERGE, &patch).await;
    let at = format!("{}?fieldValidation=Strict", stage.at("a"));
    let strict = stage.send(Method::PATCH, &at, MERGE, patch.to_string()).await;

    assert_eq!(warned.warnings, [r#"299 - "unknown field \"spec.futureField\"""#]);
    assert_eq!(warned.ok()["spec"], json!({ "holderIdentity": "x" }));
    assert_eq!(strict.invalid().0, "patch");
}

async fn fields_that_stand_twice_are_named(stage: Stage) {
    stage.given("a", json!({ "leaseDurationSeconds": 15 })).await;
    let patch = r#"{"spec":{"x":{"y":1,"y":2}},"spec":{"z":1,"holderIdentity":"a","holderIdentity":"b"}}"#;
    let twice = ["duplicate field \"spec.x.y\"", "duplicate field \"spec\"", "duplicate field \"spec.holderIdentity\""];
    for media in [MERGE, STRATEGIC] {
        let warned = stage.send(Method::PATCH, &stage.at("a"), media, patch.into()).await;
        let at = format!("{}?fieldValidation=Strict", stage.at("a"));
        let strict = stage.send(Method::PATCH, &at, media, patch.into()).await;

        let expected: Vec<String> = twice.iter().chain(&["unknown field \"spec.z\""]).map(|wrong| (*wrong).into()).collect();
        assert_eq!(warned.warnings.len(), expected.len(), "{:?}", warned.warnings);
        for (warning, expected) in warned.warnings.iter().zip(&expected) {
            assert_eq!(warning.replace("\\\"", "\""), format!("299 - \"{expected}\""));
        }
        assert_eq!(warned.ok()["spec"], json!({ "holderIdentity": "b", "leaseDurationSeconds": 15 }));
        let (field, message) = strict.invalid();
        assert_eq!(field, "patch");
        assert!(message.contains(&format!("strict decoding error: {}", twice[0])), "{message}");
    }
}

async fn what_is_no_patch_is_a_bad_request(stage: Stage) {
    stage.given("a", json!({})).await;
    for media in [MERGE, STRATEGIC] {
        for body in ["[]", "{", "5"] {
            stage.send(Method::PATCH, &stage.at("a"), media, body.into()).await.refused(400, "BadRequest");
        }
    }
    stage.send(Method::PATCH, &stage.at("a"), "application/json", "{}".into()).await.refused(415, "UnsupportedMediaType");
}

async fn a_json_patch_tests_for_null_only_where_a_field_could_be(stage: Stage) {
    let object = with(lease("a", json!({ "holderIdentity": "x" })), "finalizers", json!(["example.com/f"]));
    stage.post(&object).await.created();
    let test = |path: &'static str| json!([{ "op": "test", "path": path, "value": null }]);
    for path in ["/nowhere", "/spec/nowhere"] {
        stage.patch("a", JSON, &test(path)).await.ok();
    }
    for path in ["/nowhere/x", "/metadata/finalizers/9", "/metadata/finalizers/x", "/metadata/name/x", "nowhere", ""] {
        stage.patch("a", JSON, &test(path)).await.refused(422, "Invalid");
    }
}
