//! Bodies in protobuf, as client-go sends them by default.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use http::Method;
use serde_json::json;

use super::hand::{Answer, plain, version};
use crate::support::{
    case::{Case, cases},
    stage::Stage,
};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Recorded from client-go v0.36.3.
mod recorded {
    /// With every field that a client may set.
    pub(super) const FULL: &str = "azhzAAofChZjb29yZGluYXRpb24uazhzLmlvL3YxEgVMZWFzZRKLAQpXCgFhEgAaACIAKgAyADgFQgBaCAoDYXBwEgF4YgUKAWISAGIRCgx0ZW51cmUuZGV2L3kSAXpqEQoDUG9kGgFwIgF1KgJ2MTABcg1leGFtcGxlLmNvbS9mEjAKAXgQDxoLCIueyKwGENjflgIiACgAMhZPbGRlc3RFbXVsYXRpb25WZXJzaW9uOgAaACIA";
    /// A prefix for a name.
    pub(super) const PREFIX: &str =
        "azhzAAofChZjb29yZGluYXRpb24uazhzLmlvL3YxEgVMZWFzZRIZChUKABIFc29tZS0aACIAKgAyADgAQgASABoAIgA=";
    /// Version 1.
    pub(super) const STALE: &str = "azhzAAofChZjb29yZGluYXRpb24uazhzLmlvL3YxEgVMZWFzZRIXChMKAWESABoAIgAqAXUyATE4AEIAEgAaACIA";
    /// Only a name.
    pub(super) const BARE: &str = "azhzAAofChZjb29yZGluYXRpb24uazhzLmlvL3YxEgVMZWFzZRIVChEKAWESABoAIgAqADIAOABCABIAGgAiAA==";
    /// Only a name, and no kind.
    pub(super) const UNTYPED: &str = "azhzAAoECgASABIVChEKAWESABoAIgAqADIAOABCABIAGgAiAA==";
    /// Another kind.
    pub(super) const POD: &str = "azhzAAoJCgJ2MRIDUG9kEkYKEQoBYRIAGgAiACoAMgA4AEIAEhwaADIAQgBKAFIAWABgAGgAggEAigEAmgEAwgEAGhMKABoAIgAqADIASgBaAHIAiAEAGgAiAA==";

    /// Preconditions: the uid "another", or version 1.
    pub(super) const OF_ANOTHER: &str = "azhzAAonChZjb29yZGluYXRpb24uazhzLmlvL3YxEg1EZWxldGVPcHRpb25zEgsSCQoHYW5vdGhlchoAIgA=";
    pub(super) const OF_AN_OLD_ONE: &str = "azhzAAonChZjb29yZGluYXRpb24uazhzLmlvL3YxEg1EZWxldGVPcHRpb25zEgUSAxIBMRoAIgA=";
    /// With gracePeriodSeconds.
    pub(super) const DRY: &str = "azhzAAonChZjb29yZGluYXRpb24uazhzLmlvL3YxEg1EZWxldGVPcHRpb25zEgcIACoDQWxsGgAiAA==";
    pub(super) const ORPHANING: &str = "azhzAAonChZjb29yZGluYXRpb24uazhzLmlvL3YxEg1EZWxldGVPcHRpb25zEgIYARoAIgA=";
    pub(super) const IN_THE_FOREGROUND: &str =
        "azhzAAonChZjb29yZGluYXRpb24uazhzLmlvL3YxEg1EZWxldGVPcHRpb25zEgwiCkZvcmVncm91bmQaACIA";
    pub(super) const PLAIN: &str = "azhzAAonChZjb29yZGluYXRpb24uazhzLmlvL3YxEg1EZWxldGVPcHRpb25zEgAaACIA";

    pub(super) const REVIEW: &str = "azhzAAoyChdhdXRob3JpemF0aW9uLms4cy5pby92MRIXU2VsZlN1YmplY3RBY2Nlc3NSZXZpZXcSVQoQCgASABoAIgAqADIAOABCABI3CjUKB2RlZmF1bHQSBnVwZGF0ZRoTY29vcmRpbmF0aW9uLms4cy5pbyIAKgZsZWFzZXMyADoBYRoICAASABoAIAAaACIA";
    pub(super) const REVIEW_OF_A_PATH: &str = "azhzAAoyChdhdXRob3JpemF0aW9uLms4cy5pby92MRIXU2VsZlN1YmplY3RBY2Nlc3NSZXZpZXcSKQoQCgASABoAIgAqADIAOABCABILEgkKAi94EgNnZXQaCAgAEgAaACAAGgAiAA==";
}

pub(crate) fn cases() -> Vec<Case> {
    cases![
        protobuf_says_the_same_as_json,
        protobuf_replaces_a_lease,
        a_name_is_generated_from_a_prefix_in_protobuf,
        protobuf_need_not_state_its_kind,
        what_is_no_lease_in_protobuf_is_a_bad_request,
        options_in_protobuf_are_obeyed,
        what_is_no_options_in_protobuf_deletes_nothing,
        access_is_reviewed_in_protobuf,
    ]
}

async fn send(stage: &Stage, method: Method, path: &str, recorded: &str) -> Answer {
    send_bytes(stage, method, path, BASE64_STANDARD.decode(recorded).expect("base64")).await
}

async fn send_bytes(stage: &Stage, method: Method, path: &str, body: Vec<u8>) -> Answer {
    stage.deliver(method, path, PROTOBUF, "application/json", body).await
}

async fn protobuf_says_the_same_as_json(stage: Stage) {
    let at = format!("{}?fieldValidation=Strict", stage.lease.collection());

    let created = send(&stage, Method::POST, &at, recorded::FULL).await.created();

    let mut object = plain(created);
    let metadata = object["metadata"].as_object_mut().expect("metadata");
    for field in ["uid", "resourceVersion", "creationTimestamp"] {
        assert!(metadata.remove(field).is_some_and(|value| value.is_string()), "{field}");
    }
    let owner = json!({ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true });
    let expected = json!({
        "kind": "Lease",
        "apiVersion": "coordination.k8s.io/v1",
        "metadata": {
            "name": "a",
            "namespace": stage.namespace,
            "generation": 5,
            "labels": { "app": "x" },
            "annotations": { "b": "", "tenure.dev/y": "z" },
            "ownerReferences": [owner],
            "finalizers": ["example.com/f"],
        },
        "spec": {
            "holderIdentity": "x",
            "leaseDurationSeconds": 15,
            "acquireTime": "2024-01-01T01:02:03.004567Z",
            "renewTime": null,
            "leaseTransitions": 0,
            "strategy": "OldestEmulationVersion",
            "preferredHolder": "",
        },
    });
    assert_eq!(object, expected);
}

async fn protobuf_replaces_a_lease(stage: Stage) {
    let created = send(&stage, Method::PUT, &stage.at("a"), recorded::FULL).await.created();

    let stale = send(&stage, Method::PUT, &stage.at("a"), recorded::STALE).await;

    stale.refused(409, "Conflict");
    assert_eq!(version(&stage.get("a").await.ok()), version(&created));
}

async fn a_name_is_generated_from_a_prefix_in_protobuf(stage: Stage) {
    let created = send(&stage, Method::POST, &stage.lease.collection(), recorded::PREFIX).await.created();

    assert!(created["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("some-")));
}

async fn protobuf_need_not_state_its_kind(stage: Stage) {
    let created = send(&stage, Method::POST, &stage.lease.collection(), recorded::UNTYPED).await.created();

    assert_eq!((&created["kind"], &created["spec"]), (&json!("Lease"), &json!({})));
}

async fn what_is_no_lease_in_protobuf_is_a_bad_request(stage: Stage) {
    let unknown = "the object provided is unrecognized (must be of type Lease): ";
    let prefix = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";
    for (body, wrong) in [
        (&b""[..], "empty data"),
        (b"hello", prefix),
        (br#"{"metadata":{"name":"a"}}"#, prefix),
        (b"k8s\0", "empty body"),
        (b"k8s\0\xff", ""),
        (b"k8s\0\x0a\x05ab", ""),
    ] {
        let message = send_bytes(&stage, Method::POST, &stage.lease.collection(), body.into()).await.refused(400, "BadRequest");

        assert!(message.starts_with(&format!("{unknown}{wrong}")), "{message}");
    }
    // The envelope of a Lease that is cut off.
    let cut = send_bytes(&stage, Method::POST, &stage.lease.collection(), b"k8s\0\x12\x02\x0a\x05".into()).await;
    cut.refused(400, "BadRequest");
    send(&stage, Method::POST, &stage.lease.collection(), recorded::POD).await.refused(400, "BadRequest");
}

async fn options_in_protobuf_are_obeyed(stage: Stage) {
    let at = stage.at("a");
    let create = || async { send(&stage, Method::POST, &stage.lease.collection(), recorded::BARE).await.created() };
    create().await;

    send(&stage, Method::DELETE, &at, recorded::OF_ANOTHER).await.refused(409, "Conflict");
    send(&stage, Method::DELETE, &at, recorded::OF_AN_OLD_ONE).await.refused(409, "Conflict");
    send(&stage, Method::DELETE, &at, recorded::DRY).await.ok();
    assert_eq!(stage.get("a").await.code, 200);
    send(&stage, Method::DELETE, &at, recorded::PLAIN).await.ok();
    assert_eq!(stage.get("a").await.code, 404);

    create().await;
    let orphaning = send(&stage, Method::DELETE, &at, recorded::ORPHANING).await.ok();
    let foreground = send(&stage, Method::DELETE, &at, recorded::IN_THE_FOREGROUND).await.ok();
    assert_eq!(orphaning["metadata"]["finalizers"], json!(["orphan"]));
    assert_eq!(foreground["metadata"]["finalizers"], json!(["foregroundDeletion"]));
}

async fn what_is_no_options_in_protobuf_deletes_nothing(stage: Stage) {
    stage.given("a", json!({})).await;

    let bytes = send_bytes(&stage, Method::DELETE, &stage.at("a"), b"hello".into()).await;
    let lease = send(&stage, Method::DELETE, &stage.at("a"), recorded::BARE).await;

    let expected = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";
    assert_eq!(bytes.refused(400, "BadRequest"), expected);
    lease.refused(400, "BadRequest");
    assert_eq!(stage.get("a").await.code, 200);
}

async fn access_is_reviewed_in_protobuf(stage: Stage) {
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

    let lease = send(&stage, Method::POST, path, recorded::REVIEW).await.created();
    let other = send(&stage, Method::POST, path, recorded::REVIEW_OF_A_PATH).await.created();

    assert_eq!((&lease["status"]["allowed"], &lease["spec"]["resourceAttributes"]["verb"]), (&json!(true), &json!("update")));
    assert_eq!(other["spec"]["nonResourceAttributes"], json!({ "path": "/x", "verb": "get" }));
}
