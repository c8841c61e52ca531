//! What the fields of a Lease may hold, whichever request writes them.

use serde_json::json;

use super::hand::{MERGE, STRATEGIC, lease, with};
use crate::support::{
    case::{Case, cases},
    stage::Stage,
};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        durations_are_positive_and_transitions_not_negative,
        numbers_are_whole_and_of_32_bits,
        times_have_exactly_six_digits,
        times_come_back_in_utc,
        times_reach_to_the_end_of_the_year_9999,
        the_zero_time_is_null,
        texts_are_texts,
        a_preferred_holder_needs_a_strategy,
        a_strategy_is_known_or_somebody_elses,
        labels_and_finalizers_have_a_form,
        a_prefix_may_end_in_a_hyphen,
        owners_have_a_version_and_one_controls,
        owners_that_stand_twice_are_united_with_a_warning,
        managed_fields_have_a_type,
        null_is_absent_and_empty_is_not,
    ]
}

async fn durations_are_positive_and_transitions_not_negative(stage: Stage) {
    let zero = stage.post(&lease("a", json!({ "leaseDurationSeconds": 0 }))).await;
    let both = stage.post(&lease("a", json!({ "leaseDurationSeconds": -1, "leaseTransitions": -1 }))).await;
    let most = json!({ "leaseDurationSeconds": i32::MAX, "leaseTransitions": i32::MAX });

    assert_eq!(zero.invalid(), ("spec.leaseDurationSeconds".into(), "Invalid value: 0: must be greater than 0".into()));
    assert_eq!(
        both.refused(422, "Invalid"),
        "Lease.coordination.k8s.io \"a\" is invalid: [spec.leaseDurationSeconds: Invalid value: -1: must be greater than 0, \
         spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0]"
    );
    assert_eq!(stage.given("a", most.clone()).await["spec"], most);
}

async fn numbers_are_whole_and_of_32_bits(stage: Stage) {
    for (value, shown) in [
        (json!("15"), "string"),
        (json!(1.5), "number 1.5"),
        (json!(2_147_483_648_i64), "number 2147483648"),
        (json!(true), "bool"),
        (json!({}), "object"),
    ] {
        let answer = stage.post(&lease("a", json!({ "leaseDurationSeconds": value }))).await;

        let expected = format!(
            "Lease in version \"v1\" cannot be handled as a Lease: json: cannot unmarshal {shown} into Go struct field \
             LeaseSpec.spec.leaseDurationSeconds of type int32"
        );
        assert_eq!(answer.refused(400, "BadRequest"), expected);
    }
}

async fn times_have_exactly_six_digits(stage: Stage) {
    for (time, wrong) in [
        ("2024-01-01T00:00:00Z", "cannot parse \"Z\" as \".000000\""),
        ("2024-01-01T00:00:00.123Z", "cannot parse \".123Z\" as \".000000\""),
        ("2024-01-01T00:00:00.123456789Z", "cannot parse \"789Z\" as \"Z07:00\""),
        ("2024-01-01 00:00:00.000000Z", "cannot parse \" 00:00:00.000000Z\" as \"T\""),
        ("2024-01-01T00:00:00.000000", "cannot parse \"\" as \"Z07:00\""),
        ("now", "cannot parse \"now\" as \"2006\""),
        ("", "cannot parse \"\" as \"2006\""),
    ] {
        let answer = stage.post(&lease("a", json!({ "renewTime": time }))).await;

        let expected = format!(
            "Lease in version \"v1\" cannot be handled as a Lease: parsing time {time:?} as \
             \"2006-01-02T15:04:05.000000Z07:00\": {wrong}"
        );
        assert_eq!(answer.refused(400, "BadRequest"), expected);
    }
    for (time, wrong) in [
        ("2024-13-01T00:00:00.000000Z", "month out of range"),
        ("2024-02-30T00:00:00.000000Z", "day out of range"),
        ("2024-02-01T00:00:60.000000Z", "second out of range"),
        ("2024-02-01T00:00:00.000000Zx", "extra text: \"x\""),
    ] {
        let answer = stage.post(&lease("a", json!({ "acquireTime": time }))).await;

        assert!(answer.refused(400, "BadRequest").ends_with(&format!("parsing time {time:?}: {wrong}")), "{}", answer.body);
    }
}

async fn times_come_back_in_utc(stage: Stage) {
    let spec = json!({ "acquireTime": "2024-01-01T01:30:00.000001+01:30", "renewTime": "2023-12-31T23:00:00.500000-01:00" });

    let created = stage.given("a", spec).await;

    assert_eq!(created["spec"]["acquireTime"], "2024-01-01T00:00:00.000001Z");
    assert_eq!(created["spec"]["renewTime"], "2024-01-01T00:00:00.500000Z");
}

async fn times_reach_to_the_end_of_the_year_9999(stage: Stage) {
    let spec = json!({ "acquireTime": "0000-01-01T00:00:00.000000Z", "renewTime": "9999-12-31T23:59:59.999999Z" });

    let created = stage.given("a", spec.clone()).await;

    assert_eq!(created["spec"], spec);
}

async fn the_zero_time_is_null(stage: Stage) {
    let spec = json!({ "acquireTime": "0001-01-01T01:00:00.000000+01:00", "renewTime": "0001-01-01T00:00:00.000000Z" });

    let created = stage.given("a", spec).await;

    let expected = json!({ "acquireTime": null, "renewTime": null });
    assert_eq!(created["spec"], expected);
    assert_eq!(stage.get("a").await.ok()["spec"], expected);
}

async fn texts_are_texts(stage: Stage) {
    for (field, value, shown) in
        [("holderIdentity", json!(5), "number"), ("preferredHolder", json!([]), "array"), ("renewTime", json!(5), "number")]
    {
        let answer = stage.post(&lease("a", json!({ field: value }))).await;

        let message = answer.refused(400, "BadRequest");
        let expected = format!("json: cannot unmarshal {shown} into Go struct field LeaseSpec.spec.{field} of type string");
        assert!(message.ends_with(&expected), "{message}");
    }
}

async fn a_preferred_holder_needs_a_strategy(stage: Stage) {
    let answer = stage.post(&lease("a", json!({ "preferredHolder": "x" }))).await;

    let rule = "Forbidden: may only be specified if `strategy` is defined";
    assert_eq!(answer.invalid(), ("spec.preferredHolder".into(), rule.into()));
    stage.given("b", json!({ "preferredHolder": "" })).await;
    stage.given("c", json!({ "preferredHolder": "x", "strategy": "OldestEmulationVersion" })).await;
}

async fn a_strategy_is_known_or_somebody_elses(stage: Stage) {
    let unknown = stage.post(&lease("a", json!({ "strategy": "x" }))).await;
    let odd = stage.post(&lease("a", json!({ "strategy": "a/b/c" }))).await;

    let message = "Unsupported value: \"x\": supported values: \"OldestEmulationVersion\"";
    assert_eq!(unknown.invalid(), ("spec.strategy.strategy".into(), message.into()));
    odd.refused(422, "Invalid");
    stage.given("b", json!({ "strategy": "example.com/mine" })).await;
}

async fn labels_and_finalizers_have_a_form(stage: Stage) {
    for (field, value) in [
        ("labels", json!({ "-a": "x" })),
        ("labels", json!({ "a": "b c" })),
        ("labels", json!({ "a/b/c": "x" })),
        ("annotations", json!({ "/a": "x" })),
        ("annotations", json!({ "a": "x".repeat(256 * 1024) })),
        ("finalizers", json!(["a b"])),
        ("generateName", json!("A")),
    ] {
        let answer = stage.post(&with(lease("a", json!({})), field, value)).await;

        assert_eq!(answer.invalid().0, format!("metadata.{field}"));
    }
    let owner = json!([{ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "" }]);
    let answer = stage.post(&with(lease("a", json!({})), "ownerReferences", owner)).await;
    assert_eq!(answer.invalid().0, "metadata.ownerReferences.uid");
}

async fn a_prefix_may_end_in_a_hyphen(stage: Stage) {
    let answer = stage.post(&with(lease("", json!({})), "generateName", "G-")).await;

    assert_eq!(answer.invalid().0, "metadata.name");
}

async fn owners_have_a_version_and_one_controls(stage: Stage) {
    let owner = |version: &str, kind: &str, uid: &str, controls: bool| json!({ "apiVersion": version, "kind": kind, "name": "p", "uid": uid, "controller": controls });
    let both = json!([owner("v1", "Pod", "1", true), owner("v1", "Job", "2", true)]);
    for (owners, field, rule) in [
        (
            both,
            "metadata.ownerReferences",
            "Only one reference can have Controller set to true. Found \"true\" in references for Pod/p and Job/p",
        ),
        (
            json!([owner("v1", "Event", "1", false)]),
            "metadata.ownerReferences",
            "/v1, Kind=Event is disallowed from being an owner",
        ),
        (
            json!([owner("a/b/c", "Pod", "1", false)]),
            "metadata.ownerReferences.apiVersion",
            "\"a/b/c\": version must not be empty",
        ),
        (json!([owner("a/", "Pod", "1", false)]), "metadata.ownerReferences.apiVersion", "\"a/\": version must not be empty"),
    ] {
        let (wrong, message) = stage.post(&with(lease("a", json!({})), "ownerReferences", owners)).await.invalid();

        assert_eq!(wrong, field);
        assert!(message.starts_with("Invalid value: ") && message.ends_with(rule), "{message}");
    }
    let finalizers = stage.post(&with(lease("a", json!({})), "finalizers", json!(["orphan", "foregroundDeletion"]))).await;
    let rule = "Invalid value: [\"orphan\",\"foregroundDeletion\"]: finalizer orphan and foregroundDeletion cannot be both set";
    assert_eq!(finalizers.invalid(), ("metadata.finalizers".into(), rule.into()));
}

async fn owners_that_stand_twice_are_united_with_a_warning(stage: Stage) {
    let owner = |name: &str| json!({ "apiVersion": "v1", "kind": "Pod", "name": name, "uid": "u" });
    let owners = json!([owner("p"), owner("p"), owner("q"), owner("p")]);
    let warning = |found: &str, uids: &str| {
        format!(
            "299 - \".metadata.ownerReferences contains duplicate entries{found}; API server dedups owner references in 1.20+, and \
             may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {uids}\""
        )
    };
    let patched = " after mutating admission happens";

    let created = stage.post(&with(lease("a", json!({})), "ownerReferences", owners.clone())).await;
    let merged = stage.patch("a", MERGE, &json!({ "metadata": { "ownerReferences": [owner("p"), owner("p")] } })).await;
    let replaced = stage.put("a", &with(merged.body.clone(), "ownerReferences", owners)).await;
    let stale = stage.put("a", &with(merged.body.clone(), "ownerReferences", [owner("p"), owner("p")])).await;
    let united = stage.patch("a", STRATEGIC, &json!({ "metadata": { "ownerReferences": [owner("x"), owner("y")] } })).await;

    assert_eq!(created.warnings, [warning("", "u, u")]);
    assert_eq!(created.created()["metadata"]["ownerReferences"], json!([owner("p"), owner("q")]));
    assert_eq!(merged.warnings, [warning(patched, "u")]);
    assert_eq!(merged.ok()["metadata"]["ownerReferences"], json!([owner("p")]));
    assert_eq!(replaced.warnings, [warning("", "u, u")]);
    assert_eq!(replaced.ok()["metadata"]["ownerReferences"], json!([owner("p"), owner("q")]));
    assert_eq!(stale.warnings, [warning("", "u")]);
    stale.refused(409, "Conflict");
    assert!(united.warnings.is_empty(), "{:?}", united.warnings);
}

async fn managed_fields_have_a_type(stage: Stage) {
    for (fields, wrong) in [
        (json!("x"), "string into Go struct field ObjectMeta.metadata.managedFields of type []v1.ManagedFieldsEntry"),
        (
            json!([{ "operation": 5 }]),
            "number into Go struct field ManagedFieldsEntry.metadata.managedFields.operation of type \
             v1.ManagedFieldsOperationType",
        ),
    ] {
        let message = stage.post(&with(lease("a", json!({})), "managedFields", fields)).await.refused(400, "BadRequest");

        assert!(message.ends_with(&format!("json: cannot unmarshal {wrong}")), "{message}");
    }
}

async fn null_is_absent_and_empty_is_not(stage: Stage) {
    let spec = json!({ "holderIdentity": "", "leaseDurationSeconds": null, "renewTime": null });

    let created = stage.given("a", spec).await;

    assert_eq!(created["spec"], json!({ "holderIdentity": "" }));
}
