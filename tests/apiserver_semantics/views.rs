//! What an Accept header can ask for instead of the objects.

use http::Method;
use serde_json::{Value, json};

use super::hand::{Answer, MERGE, lease, plain, with};
use crate::support::{
    case::{Case, cases},
    stage::Stage,
};

const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";

pub(crate) fn cases() -> Vec<Case> {
    cases![
        metadata_can_be_had_alone,
        a_list_can_be_had_as_metadata,
        a_table_has_a_row_for_each_lease,
        a_write_answers_in_the_view_that_is_asked_for,
        a_view_that_there_is_not_is_passed_over,
        of_several_views_the_preferred_one_is_taken,
        a_view_of_another_shape_is_not_acceptable,
        rows_come_with_as_much_of_their_lease_as_is_asked_for,
        rows_of_an_unknown_form_are_a_bad_request,
    ]
}

async fn ask(stage: &Stage, path: &str, accept: &str) -> Answer {
    stage.ask(Method::GET, path, "application/json", accept, String::new()).await
}

async fn metadata_can_be_had_alone(stage: Stage) {
    let object = stage.post(&with(lease("a", json!({ "holderIdentity": "x" })), "labels", json!({ "b": "c" }))).await.created();
    for (accept, version) in [
        (METADATA, "meta.k8s.io/v1"),
        ("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1", "meta.k8s.io/v1beta1"),
        (&format!("{METADATA},application/json"), "meta.k8s.io/v1"),
    ] {
        let seen = ask(&stage, &stage.at("a"), accept).await.ok();

        let metadata = plain(object.clone())["metadata"].clone();
        assert_eq!(plain(seen), json!({ "kind": "PartialObjectMetadata", "apiVersion": version, "metadata": metadata }));
    }
}

async fn a_list_can_be_had_as_metadata(stage: Stage) {
    let object = stage.given("a", json!({ "holderIdentity": "x" })).await;
    stage.given("b", json!({})).await;

    let list = ask(&stage, &format!("{}?limit=1", stage.lease.collection()), METADATA_LIST).await.ok();

    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("PartialObjectMetadataList"), &json!("meta.k8s.io/v1")));
    assert_eq!(list["metadata"]["remainingItemCount"], 1);
    let metadata = plain(object)["metadata"].clone();
    let expected = json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata });
    assert_eq!(plain(list["items"][0].clone()), expected);
}

async fn a_table_has_a_row_for_each_lease(stage: Stage) {
    stage.given("a", json!({ "holderIdentity": "x" })).await;
    stage.given("b", json!({ "holderIdentity": "y" })).await;

    let list = ask(&stage, &stage.lease.collection(), TABLE).await.ok();
    let any = ask(&stage, &stage.at("b"), "*/*;as=Table;g=meta.k8s.io;v=v1").await.ok();

    let cells = |table: &Value, row: usize| json!([table["rows"][row]["cells"][0], table["rows"][row]["cells"][1]]);
    assert_eq!((cells(&list, 0), cells(&list, 1)), (json!(["a", "x"]), json!(["b", "y"])));
    assert_eq!(cells(&any, 0), json!(["b", "y"]));
}

async fn a_write_answers_in_the_view_that_is_asked_for(stage: Stage) {
    let created = lease("a", json!({ "holderIdentity": "x" })).to_string();
    let path = stage.lease.collection();

    let created = stage.ask(Method::POST, &path, "application/json", METADATA, created).await.created();
    let patched = stage.ask(Method::PATCH, &stage.at("a"), MERGE, TABLE, "{}".into()).await.ok();
    let deleted = stage.ask(Method::DELETE, &stage.at("a"), "application/json", METADATA, String::new()).await.ok();

    assert_eq!((&created["kind"], &created["spec"]), (&json!("PartialObjectMetadata"), &Value::Null));
    assert_eq!(patched["kind"], "Table");
    assert_eq!(deleted["kind"], "Status");
}

async fn a_view_that_there_is_not_is_passed_over(stage: Stage) {
    stage.given("a", json!({})).await;
    for accept in [
        "application/json;as=Table;g=meta.k8s.io;v=v2",
        "application/json;as=Table",
        "application/json;as=PartialObjectMetadata;v=v1",
        "application/json;as=Other;g=meta.k8s.io;v=v1",
    ] {
        let alone = ask(&stage, &stage.at("a"), accept).await;
        let first = ask(&stage, &stage.at("a"), &format!("{accept},application/json")).await.ok();

        let message = alone.refused(406, "NotAcceptable");
        assert!(message.starts_with("only the following media types are accepted: application/json"), "{message}");
        assert_eq!(first["kind"], "Lease");
    }
}

async fn a_view_of_another_shape_is_not_acceptable(stage: Stage) {
    stage.given("a", json!({})).await;

    let list = ask(&stage, &stage.lease.collection(), METADATA).await;
    let one = ask(&stage, &stage.at("a"), METADATA_LIST).await;

    let expected = "you requested PartialObjectMetadata, but the requested object is a list (*coordination.LeaseList)";
    assert_eq!(list.refused(406, "NotAcceptable"), expected);
    let expected = "you requested PartialObjectMetadataList, but the requested object is not a list (*coordination.Lease)";
    assert_eq!(one.refused(406, "NotAcceptable"), expected);
}

async fn rows_come_with_as_much_of_their_lease_as_is_asked_for(stage: Stage) {
    let object = plain(stage.given("a", json!({ "holderIdentity": "x" })).await);
    let metadata = json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"] });
    for (asked, expected) in [("None", &Value::Null), ("Object", &object), ("Metadata", &metadata), ("", &metadata)] {
        let one = ask(&stage, &format!("{}?includeObject={asked}", stage.at("a")), TABLE).await.ok();
        let list = ask(&stage, &format!("{}?includeObject={asked}", stage.lease.collection()), TABLE).await.ok();
        let mut watch = stage.watch_as(&format!("includeObject={asked}"), TABLE).await;
        let watched = watch.expect("ADDED").await;

        for mut table in [one, list, watched] {
            assert_eq!(table["rows"][0]["cells"][0], "a");
            let row = table["rows"][0]["object"].take();
            assert_eq!(&if row.is_null() { row } else { plain(row) }, expected, "{asked}");
        }
    }
}

async fn rows_of_an_unknown_form_are_a_bad_request(stage: Stage) {
    let created = lease("a", json!({})).to_string();
    let (one, all) = (format!("{}?includeObject=x", stage.at("a")), format!("{}?includeObject=x", stage.lease.collection()));

    let missing = ask(&stage, &one, TABLE).await;
    let written = stage.ask(Method::POST, &all, "application/json", TABLE, created).await;
    let read = ask(&stage, &one, TABLE).await;
    let listed = ask(&stage, &all, TABLE).await;
    let watched = ask(&stage, &format!("{all}&watch=true&timeoutSeconds=1"), TABLE).await;
    let whole = ask(&stage, &all, "application/json").await;

    missing.refused(404, "NotFound");
    let expected = "Unable to convert to Table as requested: includeObject: Invalid value: \"x\": must be 'Metadata', 'Object', \
                    'None', or empty";
    for answer in [written, read, listed, watched] {
        assert_eq!(answer.refused(400, "BadRequest"), expected);
    }
    assert_eq!(whole.ok()["items"][0]["metadata"]["name"], "a");
}

async fn of_several_views_the_preferred_one_is_taken(stage: Stage) {
    let whole = "application/json";
    for (accept, kind) in [
        (format!("{whole};q=0.1,{METADATA_LIST};q=0.9"), "PartialObjectMetadataList"),
        (format!("{METADATA_LIST};q=0.1,{whole}"), "LeaseList"),
        (format!("{METADATA_LIST}; q=0.5,{whole}; q=0.6"), "LeaseList"),
        (format!("{METADATA_LIST};q=0.5,*/*;q=0.9"), "LeaseList"),
        (format!("{METADATA_LIST};q=0.5,{whole};q=0.5"), "PartialObjectMetadataList"),
        (format!("{METADATA_LIST};q=x,{whole};q=0.1"), "LeaseList"),
        (format!("*/*,{METADATA_LIST}"), "PartialObjectMetadataList"),
        (format!("application/*,{METADATA_LIST};q=0.3"), "PartialObjectMetadataList"),
        (format!("text/plain,{whole};q=0"), "LeaseList"),
    ] {
        assert_eq!(ask(&stage, &stage.lease.collection(), &accept).await.ok()["kind"], kind, "{accept}");
    }
}
