//! `fieldValidation`: fields that are unknown or stand twice, and the warnings of them.

use http::Method;
use serde_json::{Map, Value, json};

use super::hand::{MERGE, lease, with};
use crate::support::{
    case::{Case, cases},
    stage::Stage,
};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        unknown_fields_are_dropped_with_a_warning,
        unknown_fields_are_refused_where_that_is_asked_for,
        of_many_unknown_fields_a_hundred_are_named,
        long_warnings_are_cut_and_no_more_than_4_kib,
        fields_that_stand_twice_are_named_in_a_warning,
        fields_that_stand_twice_are_refused_where_that_is_asked_for,
        warnings_come_with_a_refusal_too,
    ]
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
    let unknown: Map<_, _> = (0..1_000).map(|field| (format!("field{field:03}"), json!(0))).collect();
    let at = format!("{}?fieldValidation=Strict", stage.lease.collection());

    let answer = stage.request(Method::POST, &at, Some(&lease("a", unknown.into()))).await;

    let message = answer.refused(400, "BadRequest");
    let (_, named) = message.split_once("strict decoding error: ").expect("what is wrong");
    let expected: Vec<_> = (0..100).map(|field| format!("unknown field \"spec.field{field:03}\"")).collect();
    assert_eq!(named, expected.join(", "));
}

async fn long_warnings_are_cut_and_no_more_than_4_kib(stage: Stage) {
    let unknown: Map<_, _> = (0..50).map(|field| (format!("{field:0300}"), json!(0))).collect();

    let answer = stage.post(&lease("a", unknown.into())).await;

    let cut = "unknown field \\\"spec.".to_owned() + &"0".repeat(256 - "unknown field \"spec.".len());
    assert_eq!(answer.warnings, vec![format!("299 - \"{cut}\""); 16]);
    answer.created();
}

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
