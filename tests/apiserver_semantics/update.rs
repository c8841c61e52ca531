//! PUT.

use serde_json::{Value, json};

use super::hand::{TIME, lease, number, plain, version, with};
use crate::support::{
    case::{Case, cases},
    stage::Stage,
};

const MODIFIED: &str = "Operation cannot be fulfilled on leases.coordination.k8s.io \"a\": the object has been modified; please apply \
                        your changes to the latest version and try again";

pub(crate) fn cases() -> Vec<Case> {
    cases![
        an_update_with_the_current_version_is_carried_out,
        an_update_replaces_the_whole_object,
        an_older_version_is_a_conflict_and_changes_nothing,
        a_version_that_was_never_there_is_a_conflict,
        no_version_is_invalid,
        a_version_that_is_no_number_is_an_error_of_the_server,
        a_version_has_no_sign_and_fits_into_64_bits,
        another_uid_is_a_conflict_even_with_the_current_version,
        no_uid_is_as_good_as_the_right_one,
        an_update_that_changes_nothing_makes_no_version,
        of_two_updates_of_one_version_one_is_a_conflict,
        a_missing_lease_is_created_without_uid,
        a_missing_lease_is_created_even_with_a_version,
        a_missing_lease_is_a_conflict_with_a_uid,
        a_lease_made_anew_is_a_conflict_for_the_old_uid,
        the_name_is_that_of_the_path,
        the_creation_time_cannot_be_changed,
        a_deletion_time_cannot_be_set,
        an_update_keeps_the_rules,
        a_stale_update_is_a_conflict_before_it_is_invalid,
        what_others_wrote_survives_if_it_is_sent_back,
        strategy_and_preferred_holder_are_kept,
    ]
}

async fn an_update_with_the_current_version_is_carried_out(stage: Stage) {
    let mut object = stage.given("a", json!({ "holderIdentity": "x" })).await;
    let before = number(&object);
    object["spec"]["holderIdentity"] = json!("y");

    let updated = stage.put("a", &object).await.ok();

    assert!(number(&updated) > before);
    assert_eq!(updated["metadata"]["uid"], object["metadata"]["uid"]);
    assert_eq!(plain(stage.get("a").await.ok()), plain(updated));
}

async fn an_update_replaces_the_whole_object(stage: Stage) {
    let spec = json!({ "holderIdentity": "x", "leaseDurationSeconds": 15, "renewTime": TIME });
    let object = stage.post(&with(lease("a", spec), "labels", json!({ "app": "x" }))).await.created();
    let bare = with(lease("a", json!({ "holderIdentity": "" })), "resourceVersion", version(&object));

    let updated = stage.put("a", &bare).await.ok();

    assert_eq!(updated["spec"], json!({ "holderIdentity": "" }));
    assert_eq!(updated["metadata"]["labels"], Value::Null);
}

async fn an_older_version_is_a_conflict_and_changes_nothing(stage: Stage) {
    let first = stage.given("a", json!({ "holderIdentity": "x" })).await;
    let mut object = first.clone();
    object["spec"]["holderIdentity"] = json!("y");
    let second = stage.put("a", &object).await.ok();

    let stale = stage.put("a", &first).await;

    assert_eq!(stale.refused(409, "Conflict"), MODIFIED);
    assert_eq!(stale.body["details"], json!({ "name": "a", "group": "coordination.k8s.io", "kind": "leases" }));
    assert_eq!(version(&stage.get("a").await.ok()), version(&second));
}

async fn a_version_that_was_never_there_is_a_conflict(stage: Stage) {
    let object = stage.given("a", json!({})).await;

    let answer = stage.put("a", &with(object, "resourceVersion", "99999999")).await;

    assert_eq!(answer.refused(409, "Conflict"), MODIFIED);
}

async fn no_version_is_invalid(stage: Stage) {
    stage.given("a", json!({})).await;
    for object in [lease("a", json!({})), with(lease("a", json!({})), "resourceVersion", "0")] {
        let answer = stage.put("a", &object).await;

        let rule = "Invalid value: 0: must be specified for an update";
        assert_eq!(answer.invalid(), ("metadata.resourceVersion".into(), rule.into()));
        assert_eq!(answer.body["details"]["kind"], "leases");
    }
}

async fn a_version_that_is_no_number_is_an_error_of_the_server(stage: Stage) {
    let object = stage.given("a", json!({})).await;

    let answer = stage.put("a", &with(object, "resourceVersion", "abc")).await;

    assert_eq!(answer.refused(500, ""), "strconv.ParseUint: parsing \"abc\": invalid syntax");
}

async fn another_uid_is_a_conflict_even_with_the_current_version(stage: Stage) {
    let object = stage.given("a", json!({})).await;
    let uid = object["metadata"]["uid"].as_str().expect("a uid").to_owned();

    let answer = stage.put("a", &with(object, "uid", "another")).await;

    let message = answer.refused(409, "Conflict");
    let end = format!("Precondition failed: UID in precondition: another, UID in object meta: {uid}");
    assert!(
        message.starts_with("Operation cannot be fulfilled on leases.coordination.k8s.io \"a\": StorageError: "),
        "{message}"
    );
    assert!(message.ends_with(&end), "{message}");
}

async fn no_uid_is_as_good_as_the_right_one(stage: Stage) {
    let object = stage.given("a", json!({})).await;
    let sent = with(lease("a", json!({ "holderIdentity": "x" })), "resourceVersion", version(&object));

    let updated = stage.put("a", &sent).await.ok();

    assert_eq!(updated["metadata"]["uid"], object["metadata"]["uid"]);
}

async fn an_update_that_changes_nothing_makes_no_version(stage: Stage) {
    let object = stage.given("a", json!({ "holderIdentity": "x", "renewTime": TIME })).await;

    let same = stage.put("a", &object).await.ok();

    assert_eq!(plain(same), plain(object.clone()));
    assert_eq!(version(&stage.get("a").await.ok()), version(&object));
}

async fn of_two_updates_of_one_version_one_is_a_conflict(stage: Stage) {
    let object = stage.given("a", json!({})).await;
    let (mut one, mut other) = (object.clone(), object);
    one["spec"]["holderIdentity"] = json!("x");
    other["spec"]["holderIdentity"] = json!("y");

    let (one, other) = tokio::join!(stage.put("a", &one), stage.put("a", &other));

    let mut codes = [one.code, other.code];
    codes.sort_unstable();
    assert_eq!(codes, [200, 409]);
}

async fn a_missing_lease_is_created_without_uid(stage: Stage) {
    let created = stage.put("a", &lease("a", json!({ "holderIdentity": "x" }))).await.created();

    assert_eq!(created["spec"]["holderIdentity"], "x");
    assert_eq!(created["metadata"]["namespace"], stage.namespace);
}

async fn a_missing_lease_is_created_even_with_a_version(stage: Stage) {
    let object = stage.given("a", json!({})).await;
    stage.delete("a", None).await.ok();

    let created = stage.put("a", &with(lease("a", json!({})), "resourceVersion", version(&object))).await.created();

    assert_ne!(created["metadata"]["uid"], object["metadata"]["uid"]);
    assert!(number(&created) > number(&object));
}

async fn a_missing_lease_is_a_conflict_with_a_uid(stage: Stage) {
    let object = stage.given("a", json!({})).await;
    stage.delete("a", None).await.ok();

    let answer = stage.put("a", &object).await;

    let message = answer.refused(409, "Conflict");
    assert!(message.contains("StorageError: invalid object, Code: 4, "), "{message}");
    assert!(message.ends_with(", UID in object meta: "), "{message}");
    assert_eq!(stage.get("a").await.code, 404);
}

async fn a_lease_made_anew_is_a_conflict_for_the_old_uid(stage: Stage) {
    let object = stage.given("a", json!({})).await;
    stage.delete("a", None).await.ok();
    stage.given("a", json!({})).await;

    stage.put("a", &object).await.refused(409, "Conflict");
}

async fn the_name_is_that_of_the_path(stage: Stage) {
    stage.given("a", json!({})).await;

    let another = stage.put("a", &lease("b", json!({}))).await;
    let none = stage.put("a", &json!({ "spec": {} })).await;
    let elsewhere = stage.put("a", &with(lease("a", json!({})), "namespace", "elsewhere")).await;

    assert_eq!(another.refused(400, "BadRequest"), "the name of the object (b) does not match the name on the URL (a)");
    let message = "the name of the object (a based on URL) was undeterminable: name must be provided";
    assert_eq!(none.refused(400, "BadRequest"), message);
    elsewhere.refused(400, "BadRequest");
}

async fn the_creation_time_cannot_be_changed(stage: Stage) {
    let object = stage.given("a", json!({})).await;
    let mut sent = with(object.clone(), "creationTimestamp", "2000-01-01T00:00:00Z");
    sent["spec"]["holderIdentity"] = json!("x");

    let updated = stage.put("a", &sent).await.ok();

    assert_eq!(updated["metadata"]["creationTimestamp"], object["metadata"]["creationTimestamp"]);
}

async fn a_deletion_time_cannot_be_set(stage: Stage) {
    let object = stage.given("a", json!({})).await;

    let answer = stage.put("a", &with(object, "deletionTimestamp", "2000-01-01T00:00:00Z")).await;

    let message = answer.refused(422, "Invalid");
    let end = "metadata.deletionTimestamp: Invalid value: \"2000-01-01T00:00:00Z\": field is immutable";
    assert!(message.ends_with(end), "{message}");
}

async fn an_update_keeps_the_rules(stage: Stage) {
    let object = stage.given("a", json!({})).await;
    let mut negative = object.clone();
    negative["spec"]["leaseTransitions"] = json!(-1);

    let invalid = stage.put("a", &negative).await;
    let mut mistyped = object.clone();
    mistyped["spec"]["renewTime"] = json!("now");
    let unreadable = stage.put("a", &mistyped).await;

    let rule = "Invalid value: -1: must be greater than or equal to 0";
    assert_eq!(invalid.invalid(), ("spec.leaseTransitions".into(), rule.into()));
    unreadable.refused(400, "BadRequest");
    assert_eq!(version(&stage.get("a").await.ok()), version(&object));
}

async fn a_stale_update_is_a_conflict_before_it_is_invalid(stage: Stage) {
    let object = stage.given("a", json!({ "leaseDurationSeconds": 5 })).await;
    let mut stale = with(object, "resourceVersion", "1");
    stale["spec"]["leaseDurationSeconds"] = json!(0);

    stage.put("a", &stale).await.refused(409, "Conflict");
}

async fn what_others_wrote_survives_if_it_is_sent_back(stage: Stage) {
    let mut object = with(lease("a", json!({ "holderIdentity": "x" })), "labels", json!({ "z": "1", "a": "2" }));
    object["metadata"]["annotations"] = json!({ "example.com/Note": "n" });
    object["metadata"]["finalizers"] = json!(["example.com/f"]);
    object["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1", "controller": false }]);
    let object = stage.post(&object).await.created();
    let mut sent = object.clone();
    sent["spec"]["holderIdentity"] = json!("y");

    let updated = stage.put("a", &sent).await.ok();

    for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
        assert_eq!(updated["metadata"][field], object["metadata"][field], "{field}");
    }
}

async fn strategy_and_preferred_holder_are_kept(stage: Stage) {
    let spec = json!({ "holderIdentity": "x", "strategy": "OldestEmulationVersion", "preferredHolder": "y" });
    let mut object = stage.given("a", spec).await;
    object["spec"]["holderIdentity"] = json!("z");

    let updated = stage.put("a", &object).await.ok();
    let mut without = updated.clone();
    without["spec"].as_object_mut().expect("a spec").remove("strategy");
    let refused = stage.put("a", &without).await;

    assert_eq!(updated["spec"]["strategy"], "OldestEmulationVersion");
    assert_eq!(updated["spec"]["preferredHolder"], "y");
    assert_eq!(refused.invalid().0, "spec.preferredHolder");
}

async fn a_version_has_no_sign_and_fits_into_64_bits(stage: Stage) {
    stage.given("a", json!({})).await;
    for (version, why) in [("+5", "invalid syntax"), ("-1", "invalid syntax"), ("99999999999999999999", "value out of range")] {
        let wrong = format!("strconv.ParseUint: parsing {version:?}: {why}");
        let query = version.replace('+', "%2B");

        let put = stage.put("a", &with(lease("a", json!({})), "resourceVersion", version)).await;
        let get = stage.get(&format!("a?resourceVersion={query}")).await;
        let list = stage.list(&format!("resourceVersion={query}")).await;

        assert_eq!(put.refused(500, ""), wrong);
        let wrong = format!("resourceVersion: Invalid value: {version:?}: {wrong}");
        assert_eq!(get.refused(500, ""), wrong);
        assert_eq!(list.refused(400, "BadRequest"), format!("invalid resource version: {wrong}"));
    }
}
