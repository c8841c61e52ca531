//! GET, LIST, and what clients ask for first.

use std::process::Command;

use http::Method;
use serde_json::{Value, json};
use support::{Case, Stage, api::config, cases};

use super::{JSON, Leases as _, lease, number, plain, with};

pub(super) fn cases() -> Vec<Case> {
    cases![BOTH:
        a_list_holds_the_leases_of_its_namespace,
        selectors_choose_by_label_and_name,
        a_review_says_what_is_allowed,
        what_there_is_not_is_not_found,
        without_its_token_nobody_gets_anything,
    ]
}

async fn a_list_holds_the_leases_of_its_namespace(stage: Stage) {
    let (b, a) = (stage.given("b", json!({ "holderIdentity": "x" })).await, stage.given("a", json!({})).await);

    let list = stage.list("limit=500").await.ok();
    let here = format!("fieldSelector=metadata.namespace%3D{}", stage.namespace);
    let all = stage.read(&format!("/apis/coordination.k8s.io/v1/leases?{here}")).await.ok();

    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("LeaseList"), &json!("coordination.k8s.io/v1")));
    assert!(number(&list) >= number(&a));
    for list in [list, all] {
        let items = list["items"].as_array().expect("items").iter().cloned();
        // The real server leaves the kind out here; clients know it.
        let headed = items.map(|item| with(with(plain(item), "/kind", "Lease"), "/apiVersion", "coordination.k8s.io/v1"));
        assert_eq!(headed.collect::<Vec<_>>(), [plain(a.clone()), plain(b.clone())]);
    }
}

async fn selectors_choose_by_label_and_name(stage: Stage) {
    for (name, label) in [("a", "x"), ("b", "y"), ("c", "x")] {
        stage.post(&with(lease(name, json!({})), "/metadata/labels", json!({ "app": label, "all": "" }))).await.created();
    }
    for (query, expected) in [
        ("labelSelector=app%3Dx", "ac"),
        ("labelSelector=app%3D%3Dx,all%3D", "ac"),
        ("labelSelector=app!%3Dx", "b"),
        ("labelSelector=other!%3Dx", "abc"),
        ("labelSelector=all", "abc"),
        ("labelSelector=!app", ""),
        ("labelSelector=!other,app%3Dy", "b"),
        ("labelSelector=app%3Dx&fieldSelector=metadata.name%3Dc", "c"),
        ("fieldSelector=metadata.name!%3Dc", "ab"),
        ("labelSelector=app%3Dz", ""),
    ] {
        let list = stage.list(query).await.ok();
        let names: String =
            list["items"].as_array().expect("items").iter().filter_map(|item| item["metadata"]["name"].as_str()).collect();
        assert_eq!(names, expected, "{query}");
    }
    for query in ["labelSelector=a%3D%3D%3D", "fieldSelector=spec.holderIdentity%3Dx", "fieldSelector=x"] {
        stage.list(query).await.refused(400, "BadRequest");
    }
}

async fn a_review_says_what_is_allowed(stage: Stage) {
    let spec = json!({ "resourceAttributes": {
        "group": "coordination.k8s.io", "resource": "leases", "namespace": stage.namespace, "verb": "update", "name": "a",
    } });
    let review = json!({ "kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": spec });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

    let answer = stage.send(Method::POST, path, JSON, &review).await.created();

    assert_eq!((&answer["spec"], &answer["status"]["allowed"]), (&spec, &json!(true)));
}

async fn what_there_is_not_is_not_found(stage: Stage) {
    let elsewhere = stage.read("/apis/coordination.k8s.io/v1/nothing").await.refused(404, "NotFound");
    assert_eq!(stage.read("/apis/example.com/v1/leases").await.code, 404);
    stage.send(Method::POST, &stage.at("a"), JSON, &json!({})).await.refused(405, "MethodNotAllowed");

    assert_eq!(elsewhere["details"]["name"], Value::Null, "it is not a Lease that is missing");
}

async fn without_its_token_nobody_gets_anything(stage: Stage) {
    let server = config(stage.kubeconfig()).await.cluster_url.to_string();
    let url = server.trim_end_matches('/').to_owned() + &stage.at("a");
    let mut command = Command::new("curl");
    command.args(["-sk", "-m", "30", "-H", "Authorization: Bearer nobodys", &url]);

    let output = command.output().expect("curl must be installed");

    let status: Value = serde_json::from_slice(&output.stdout).expect("a Status");
    assert_eq!((&status["code"], &status["reason"]), (&json!(401), &json!("Unauthorized")));
}
