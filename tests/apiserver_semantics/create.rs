//! POST.

use http::Method;
use serde_json::{Map, Value, json};

use super::hand::{MERGE, STRATEGIC, TIME, lease, number, plain, version, with};
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
        owners_that_stand_twice_are_united_with_a_warning,
        warnings_come_with_a_refusal_too,
        what_only_the_server_may_set_is_ignored,
        a_generation_is_kept_and_never_counted,
        a_name_is_generated_from_a_prefix,
        a_lease_needs_a_name,
        a_name_is_a_dns_subdomain,
        another_namespace_than_the_path_is_a_bad_request,
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
        managed_fields_have_a_type,
        null_is_absent_and_empty_is_not,
        unknown_fields_are_dropped_with_a_warning,
        unknown_fields_are_refused_where_that_is_asked_for,
        of_many_unknown_fields_a_hundred_are_named,
        long_warnings_are_cut_and_no_more_than_4_kib,
        fields_that_stand_twice_are_named_in_a_warning,
        fields_that_stand_twice_are_refused_where_that_is_asked_for,
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

async fn unknown_fields_are_dropped_with_a_warning(stage: Stage) {
    let mut object = lease("a", json!({ "futureField": 1, "holderIdentity": "x" }));
    object["other"] = json!(2);

    let answer = stage.post(&object).await;

    let expected = [r#"299 - "unknown field \"spec.futureField\"""#, r#"299 - "unknown field \"other\"""#];
    let mut warnings = answer.warnings.clone();
    warnings.sort();
    assert_eq!(warnings, {
        let mut expected = expected;
        expected.sort_unstable();
        expected
    });
    assert_eq!(answer.created()["spec"], json!({ "holderIdentity": "x" }));
}

async fn unknown_fields_are_refused_where_that_is_asked_for(stage: Stage) {
    let object = lease("a", json!({ "futureField": 1 }));
    let at = |mode: &str| format!("{}?fieldValidation={mode}", stage.lease.collection());

    let strict = stage.request(Method::POST, &at("Strict"), Some(&object)).await;
    let ignored = stage.request(Method::POST, &at("Ignore"), Some(&object)).await;

    let expected =
        "Lease in version \"v1\" cannot be handled as a Lease: strict decoding error: unknown field \"spec.futureField\"";
    assert_eq!(strict.refused(400, "BadRequest"), expected);
    assert!(ignored.warnings.is_empty());
    ignored.created();
}

async fn of_many_unknown_fields_a_hundred_are_named(stage: Stage) {
    let unknown: Map<_, _> = (0..1_000).map(|field| (format!("field{field}"), json!(0))).collect();
    let at = format!("{}?fieldValidation=Strict", stage.lease.collection());

    let answer = stage.request(Method::POST, &at, Some(&lease("a", unknown.into()))).await;

    let message = answer.refused(400, "BadRequest");
    let (_, named) = message.split_once("strict decoding error: ").expect("what is wrong");
    let expected: Vec<_> = (0..100).map(|field| format!("unknown field \"spec.field{field}\"")).collect();
    assert_eq!(named, expected.join(", "));
}

async fn long_warnings_are_cut_and_no_more_than_4_kib(stage: Stage) {
    let unknown: Map<_, _> = (0..50).map(|field| (format!("{field:0300}"), json!(0))).collect();

    let answer = stage.post(&lease("a", unknown.into())).await;

    let cut = "unknown field \\\"spec.".to_owned() + &"0".repeat(256 - "unknown field \"spec.".len());
    assert_eq!(answer.warnings, vec![format!("299 - \"{cut}\""); 16]);
    answer.created();
}

/// Duplicate fields at every level, one of them unknown and one in an unknown object.
const TWICE: &str = r#"{"metadata":{"name":"a","name":"a","labels":{"a":"1","a":"2"},
    "ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"1","uid":"2"}]},
    "spec":{"x":1,"x":{"y":1,"y":2}},"spec":{"holderIdentity":"h"},"spec":{"z":1}}"#;

/// What is wrong with it, in the order of the document.
const WRONG: [&str; 6] = [
    "duplicate field \"metadata.name\"",
    "duplicate field \"metadata.labels.a\"",
    "duplicate field \"metadata.ownerReferences[0].uid\"",
    "unknown field \"spec.x\"",
    "duplicate field \"spec\"",
    "unknown field \"spec.z\"",
];

async fn fields_that_stand_twice_are_named_in_a_warning(stage: Stage) {
    let answer = stage.send(Method::POST, &stage.lease.collection(), "application/json", TWICE.into()).await;

    assert_eq!(answer.warnings, WRONG.map(|wrong| format!("299 - \"{}\"", wrong.replace('"', "\\\""))));
    let created = answer.created();
    assert_eq!(created["spec"], json!({ "holderIdentity": "h" }));
    assert_eq!(created["metadata"]["labels"], json!({ "a": "2" }));
    assert_eq!(created["metadata"]["ownerReferences"][0]["uid"], "2");
}

async fn fields_that_stand_twice_are_refused_where_that_is_asked_for(stage: Stage) {
    let at = |mode: &str| format!("{}?fieldValidation={mode}", stage.lease.collection());

    let strict = stage.send(Method::POST, &at("Strict"), "application/json", TWICE.into()).await;
    let ignored = stage.send(Method::POST, &at("Ignore"), "application/json", TWICE.into()).await;

    let expected = format!("Lease in version \"v1\" cannot be handled as a Lease: strict decoding error: {}", WRONG.join(", "));
    assert_eq!(strict.refused(400, "BadRequest"), expected);
    assert!(ignored.warnings.is_empty());
    ignored.created();
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

async fn what_is_no_version_is_ignored(stage: Stage) {
    for (name, version) in ["0", "00", "abc", "-1", "+5", "1 ", "99999999999999999999"].into_iter().enumerate() {
        stage.post(&with(lease(&format!("a{name}"), json!({})), "resourceVersion", version)).await.created();
    }
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

async fn warnings_come_with_a_refusal_too(stage: Stage) {
    let object = stage.given("a", json!({})).await;
    let with_more = |mut object: Value| {
        object["x"] = json!(1);
        object
    };
    let stale = with_more(json!({ "metadata": { "resourceVersion": "1" } }));

    let elsewhere = stage.post(&with_more(with(lease("b", json!({})), "namespace", "elsewhere"))).await;
    let invalid = stage.post(&with_more(lease("B", json!({})))).await;
    let misnamed = stage.put("b", &with_more(object)).await;
    let conflict = stage.patch("a", MERGE, &stale).await;
    let renamed = stage.patch("a", MERGE, &with_more(lease("b", json!({})))).await;

    for (answer, code) in [(elsewhere, 400), (invalid, 422), (misnamed, 400), (conflict, 409), (renamed, 400)] {
        assert_eq!(
            (answer.code, &*answer.warnings),
            (code, &[r#"299 - "unknown field \"x\"""#.to_owned()][..]),
            "{}",
            answer.body
        );
    }
}
