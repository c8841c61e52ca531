//! DELETE.

use http::Method;
use serde_json::{Value, json};

use super::hand::{STRATEGIC, lease, plain, version, with};
use crate::support::{
    case::{Case, cases},
    stage::Stage,
};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        a_deleted_lease_is_gone,
        a_missing_lease_is_not_found_whatever_was_demanded,
        another_uid_is_a_conflict,
        another_version_is_a_conflict,
        both_preconditions_can_hold,
        preconditions_can_stand_in_the_query,
        a_dry_run_deletes_nothing,
        the_options_of_the_body_stand_in_place_of_the_query,
        a_dry_run_of_another_kind_is_refused,
        options_that_cannot_be_read_delete_nothing,
        a_policy_that_there_is_not_deletes_nothing,
        a_policy_can_keep_a_lease_for_its_dependents,
        the_last_policy_counts,
        a_finalizer_keeps_a_lease_until_it_is_taken_away,
        a_lease_on_its_way_out_takes_no_new_finalizer,
        a_lease_on_its_way_out_is_not_made_anew,
    ]
}

async fn a_deleted_lease_is_gone(stage: Stage) {
    let object = stage.given("a", json!({})).await;

    let answer = stage.delete("a", None).await.ok();

    let details = json!({ "name": "a", "group": "coordination.k8s.io", "kind": "leases", "uid": object["metadata"]["uid"] });
    let expected = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details });
    assert_eq!(answer, expected);
    let missing = stage.get("a").await;
    assert_eq!(missing.refused(404, "NotFound"), "leases.coordination.k8s.io \"a\" not found");
    assert_eq!(missing.body["details"], json!({ "name": "a", "group": "coordination.k8s.io", "kind": "leases" }));
}

async fn a_missing_lease_is_not_found_whatever_was_demanded(stage: Stage) {
    stage.delete("a", None).await.refused(404, "NotFound");
    stage.delete("a", Some(&json!({ "preconditions": { "uid": "x" } }))).await.refused(404, "NotFound");
}

async fn another_uid_is_a_conflict(stage: Stage) {
    let object = stage.given("a", json!({})).await;
    let uid = object["metadata"]["uid"].as_str().expect("a uid");

    let answer = stage.delete("a", Some(&json!({ "preconditions": { "uid": "another" } }))).await;

    let expected = format!(
        "Operation cannot be fulfilled on Lease.coordination.k8s.io \"a\": the UID in the precondition (another) does not match \
         the UID in record ({uid}). The object might have been deleted and then recreated"
    );
    assert_eq!(answer.refused(409, "Conflict"), expected);
    assert_eq!(answer.body["details"]["kind"], "Lease");
    assert_eq!(stage.get("a").await.code, 200);
}

async fn another_version_is_a_conflict(stage: Stage) {
    let object = stage.given("a", json!({})).await;

    let answer = stage.delete("a", Some(&json!({ "preconditions": { "resourceVersion": "1" } }))).await;

    let expected = format!(
        "Operation cannot be fulfilled on Lease.coordination.k8s.io \"a\": the ResourceVersion in the precondition (1) does not \
         match the ResourceVersion in record ({}). The object might have been modified",
        version(&object)
    );
    assert_eq!(answer.refused(409, "Conflict"), expected);
    assert_eq!(stage.get("a").await.code, 200);
}

async fn both_preconditions_can_hold(stage: Stage) {
    let object = stage.given("a", json!({})).await;
    let metadata = &object["metadata"];
    let options = json!({
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "preconditions": { "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"] },
    });

    stage.delete("a", Some(&options)).await.ok();

    assert_eq!(stage.get("a").await.code, 404);
}

async fn preconditions_can_stand_in_the_query(stage: Stage) {
    let object = stage.given("a", json!({})).await;
    let uid = object["metadata"]["uid"].as_str().expect("a uid");
    let at = |query: &str| format!("{}?{query}", stage.at("a"));

    let another = stage.request(Method::DELETE, &at("uid=another"), None).await;
    let old = stage.request(Method::DELETE, &at(&format!("uid={uid}&resourceVersion=1")), None).await;
    let present = stage.request(Method::DELETE, &at(&format!("uid={uid}&resourceVersion={}", version(&object))), None).await;

    assert!(another.refused(409, "Conflict").contains("the UID in the precondition (another) does not match"));
    assert!(old.refused(409, "Conflict").contains("the ResourceVersion in the precondition (1) does not match"));
    present.ok();
    stage.given("a", json!({})).await;
    stage.request(Method::DELETE, &at("uid=&resourceVersion="), None).await.ok();
}

async fn a_dry_run_deletes_nothing(stage: Stage) {
    stage.given("a", json!({})).await;

    stage.delete("a", Some(&json!({ "dryRun": ["All"] }))).await.ok();

    assert_eq!(stage.get("a").await.code, 200);
}

async fn the_options_of_the_body_stand_in_place_of_the_query(stage: Stage) {
    stage.given("a", json!({})).await;
    stage.given("b", json!({})).await;

    let of_query = stage.request(Method::DELETE, &format!("{}?dryRun=All", stage.at("a")), None).await;
    let of_body = stage.request(Method::DELETE, &format!("{}?dryRun=All", stage.at("b")), Some(&json!({}))).await;

    of_query.ok();
    of_body.ok();
    assert_eq!((stage.get("a").await.code, stage.get("b").await.code), (200, 404));
}

async fn a_dry_run_of_another_kind_is_refused(stage: Stage) {
    stage.given("a", json!({})).await;

    let answer = stage.delete("a", Some(&json!({ "dryRun": ["All", "some"] }))).await;

    let expected =
        r#"DeleteOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["All","some"]: supported values: "All""#;
    assert_eq!(answer.refused(422, "Invalid"), expected);
    assert_eq!(stage.get("a").await.code, 200);
}

async fn options_that_cannot_be_read_delete_nothing(stage: Stage) {
    stage.given("a", json!({})).await;
    for (body, why) in [
        (
            r#"{"preconditions":{"uid":5}}"#,
            "json: cannot unmarshal number into Go struct field Preconditions.preconditions.uid of type types.UID",
        ),
        (
            r#"{"preconditions":[]}"#,
            "json: cannot unmarshal array into Go struct field DeleteOptions.preconditions of type v1.Preconditions",
        ),
        (r#"{"dryRun":"All"}"#, "json: cannot unmarshal string into Go struct field DeleteOptions.dryRun of type []string"),
        (r#"{"dryRun":[5]}"#, "json: cannot unmarshal number into Go struct field DeleteOptions.dryRun of type string"),
        (
            r#"{"gracePeriodSeconds":"x"}"#,
            "json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64",
        ),
        (
            r#"{"propagationPolicy":5}"#,
            "json: cannot unmarshal number into Go struct field DeleteOptions.propagationPolicy of type v1.DeletionPropagation",
        ),
        (
            r#"{"orphanDependents":"x"}"#,
            "json: cannot unmarshal string into Go struct field DeleteOptions.orphanDependents of type bool",
        ),
        (r#"{"kind":"Lease"}"#, "no kind \"Lease\" is registered for version \"meta.k8s.io/v1\" in scheme"),
        (
            r#"{"kind":5}"#,
            "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string",
        ),
        ("[]", "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type "),
        ("hello", "couldn't get version/kind; json parse error: "),
    ] {
        let answer = stage.send(Method::DELETE, &stage.at("a"), "application/json", body.into()).await;

        let message = answer.refused(400, "BadRequest");
        assert!(message.starts_with(why), "{message}");
    }
    let query = stage.request(Method::DELETE, &format!("{}?gracePeriodSeconds=x", stage.at("a")), None).await;
    assert_eq!(query.refused(400, "BadRequest"), "strconv.ParseInt: parsing \"x\": invalid syntax");
    assert_eq!(stage.get("a").await.code, 200);
}

async fn a_policy_that_there_is_not_deletes_nothing(stage: Stage) {
    stage.given("a", json!({})).await;
    let unknown = "Unsupported value: \"foo\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"";
    let both = "Invalid value: \"Orphan\": orphanDependents and deletionPropagation cannot be both set";
    for (query, body, wrong) in [
        ("", Some(json!({ "propagationPolicy": "foo" })), unknown),
        ("propagationPolicy=foo", None, unknown),
        ("", Some(json!({ "propagationPolicy": "Orphan", "orphanDependents": true })), both),
        ("propagationPolicy=Orphan&orphanDependents=0", None, both),
    ] {
        let answer = stage.request(Method::DELETE, &format!("{}?{query}", stage.at("a")), body.as_ref()).await;

        assert_eq!(answer.invalid(), ("propagationPolicy".into(), wrong.into()));
        assert_eq!(answer.body["details"]["kind"], "DeleteOptions");
    }
    assert_eq!(stage.get("a").await.code, 200);
}

async fn a_policy_can_keep_a_lease_for_its_dependents(stage: Stage) {
    for (name, query, finalizer) in [
        ("a", "propagationPolicy=Foreground", Some("foregroundDeletion")),
        ("b", "propagationPolicy=Orphan", Some("orphan")),
        ("c", "orphanDependents=true", Some("orphan")),
        ("d", "propagationPolicy=Background", None),
        ("e", "orphanDependents=false", None),
    ] {
        stage.given(name, json!({})).await;

        let answer = stage.request(Method::DELETE, &format!("{}?{query}", stage.at(name)), None).await.ok();

        match finalizer {
            Some(finalizer) => {
                assert_eq!(answer["metadata"]["finalizers"], json!([finalizer]), "{query}");
                assert!(answer["metadata"]["deletionTimestamp"].is_string(), "{query}");
                assert_eq!(plain(stage.get(name).await.ok()), plain(answer));
            }
            None => {
                assert_eq!(answer["status"], "Success", "{query}");
                assert_eq!(stage.get(name).await.code, 404, "{query}");
            }
        }
    }
}

async fn the_last_policy_counts(stage: Stage) {
    stage.post(&with(lease("a", json!({})), "finalizers", json!(["example.com/f", "orphan"]))).await.created();
    let policy = |policy: &str| json!({ "propagationPolicy": policy });

    let marked = stage.delete("a", None).await.ok();
    let foreground = stage.delete("a", Some(&policy("Foreground"))).await.ok();
    let background = stage.delete("a", Some(&policy("Background"))).await.ok();
    let again = stage.delete("a", Some(&policy("Background"))).await.ok();

    assert_eq!(marked["metadata"]["finalizers"], json!(["example.com/f", "orphan"]));
    assert_eq!(foreground["metadata"]["finalizers"], json!(["example.com/f", "foregroundDeletion"]));
    assert_eq!(background["metadata"]["finalizers"], json!(["example.com/f"]));
    assert_eq!(plain(again), plain(background));
}

async fn a_finalizer_keeps_a_lease_until_it_is_taken_away(stage: Stage) {
    let object = with(lease("a", json!({ "holderIdentity": "x" })), "finalizers", json!(["example.com/f"]));
    let object = stage.post(&object).await.created();

    let deleting = stage.delete("a", None).await.ok();
    let again = stage.delete("a", None).await.ok();
    let mut edited = again.clone();
    edited["spec"]["holderIdentity"] = json!("y");
    let metadata = edited["metadata"].as_object_mut().expect("metadata");
    metadata.remove("deletionTimestamp");
    metadata.remove("deletionGracePeriodSeconds");
    let edited = stage.put("a", &edited).await.ok();
    let freed = stage
        .patch("a", STRATEGIC, &json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["example.com/f"] } }))
        .await
        .ok();

    assert!(deleting["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(deleting["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_ne!(version(&deleting), version(&object));
    assert_eq!(plain(again), plain(deleting.clone()));
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        assert_eq!(edited["metadata"][field], deleting["metadata"][field], "{field}");
    }
    assert_eq!(freed["metadata"]["finalizers"], Value::Null);
    assert_eq!(stage.get("a").await.code, 404);
}

async fn a_lease_on_its_way_out_takes_no_new_finalizer(stage: Stage) {
    stage.post(&with(lease("a", json!({})), "finalizers", json!(["example.com/f"]))).await.created();
    let deleting = stage.delete("a", None).await.ok();

    let answer = stage.put("a", &with(deleting, "finalizers", json!(["example.com/f", "example.com/g"]))).await;

    let expected = "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers \
                    []string{\"example.com/g\"}";
    answer.refused(422, "Invalid");
    assert_eq!(answer.body["details"]["causes"][0]["message"], expected);
}

async fn a_lease_on_its_way_out_is_not_made_anew(stage: Stage) {
    stage.post(&with(lease("a", json!({})), "finalizers", json!(["example.com/f"]))).await.created();
    stage.delete("a", None).await.ok();

    let answer = stage.post(&lease("a", json!({}))).await;

    let expected = "object is being deleted: leases.coordination.k8s.io \"a\" already exists";
    assert_eq!(answer.refused(409, "AlreadyExists"), expected);
}
