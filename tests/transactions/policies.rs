//! Policies of the API server: those that change each write, and those that refuse one.

use http::Method;
use serde_json::{Value, json};
use support::{Case, Stage, cases, server::MUTATING, until};

use super::{Shop, change, said, settings};

pub(super) fn all() -> Vec<Case> {
    let cases = cases![
        an_undo_that_the_server_does_not_take_is_none,
        a_policy_that_stamps_each_write_is_nobodys_conflict,
        what_breaks_a_newer_policy_can_be_repaired_by_an_update_and_no_warning_shows_a_value,
    ];
    cases.into_iter().map(|case| case.since(MUTATING)).collect()
}

/// Has the API server apply this to each ConfigMap and Secret that is written in the namespace.
async fn mutate(stage: &Stage, expression: &str, condition: &str) {
    let (policies, name) = ("/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolic", &stage.namespace);
    let matched = json!({
        "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": name } },
        "resourceRules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps", "secrets"] }],
    });
    let spec = json!({
        "matchConstraints": matched, "failurePolicy": "Fail", "reinvocationPolicy": "Never",
        "matchConditions": [{ "name": "asked", "expression": condition }],
        "mutations": [{ "patchType": "ApplyConfiguration", "applyConfiguration": { "expression": expression } }],
    });
    stage.api.create(&format!("{policies}ies"), &json!({ "metadata": { "name": name }, "spec": spec })).await;
    let binding = json!({ "metadata": { "name": name }, "spec": { "policyName": name } });
    stage.api.create(&format!("{policies}ybindings"), &binding).await;
}

async fn an_undo_that_the_server_does_not_take_is_none(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let old = shop.make("configmaps", "old", json!({ "data": { "version": "1.0" } })).await;
    let file = shop.changes(&[settings(2), change("v1 ConfigMap old", "type: Delete")]);
    said(&shop.apply(&file, &[]).await, 0, &["committed: 2 changes"]);
    mutate(&stage, "Object{data: {'version': '9'}}", "object.?data.version.orValue('') == '1.0'").await;
    let (_, mut undone) = stage.api.call(Method::GET, &shop.objects[0], None).await;
    undone["data"]["version"] = json!("1.0");
    let dry = format!("{}?dryRun=All", shop.objects[0]);
    until("the policy acts", async || stage.api.call(Method::PUT, &dry, Some(&undone)).await.1["data"]["version"] == "9").await;

    let undone = shop.recover(&["apply", "x"]).await;

    let words =
        ["the API server makes something else of data.version", "/old: left as it is: it was made again, but not as it was"];
    said(&undone, 2, &words);
    let entries = shop.journal("x").await.expect("a journal")["entries"].clone();
    assert_eq!([&entries[0]["fields"][0]["before"], &entries[1]["object"]["data"]["version"]], ["1.0", "1.0"]);
    said(&shop.recover(&["apply", "x"]).await, 2, &words[1..]);
    said(&shop.recover(&["apply", "x", "--force"]).await, 0, &words[..1]);
    assert_eq!(shop.read(&old).await["metadata"]["annotations"].get("tenure.dev/change"), None);
}

async fn a_policy_that_stamps_each_write_is_nobodys_conflict(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let name = &stage.namespace;
    let stamp = "Object{metadata: Object.metadata{annotations: {'example.com/stamp': string(object.metadata.?resourceVersion.orValue('new'))}}}";
    mutate(&stage, stamp, "true").await;
    let stamped = |object: &Value| object["metadata"]["annotations"]["example.com/stamp"].clone();
    let stamps = async || {
        let path = format!("{}?dryRun=All", shop.objects[0]);
        let (_, settings) = stage.api.call(Method::GET, &shop.objects[0], None).await;
        stamped(&stage.api.call(Method::PUT, &path, Some(&settings)).await.1).is_string()
    };
    until("each write is stamped", stamps).await;
    let without_stamps = async || {
        let mut seen = shop.seen().await;
        seen.push(shop.read(&format!("/api/v1/namespaces/{name}/configmaps/new")).await);
        for annotations in seen.iter_mut().filter_map(|object| object.pointer_mut("/metadata/annotations")?.as_object_mut()) {
            annotations.remove("example.com/stamp");
        }
        seen.iter_mut().filter_map(|object| object.pointer_mut("/metadata")?.as_object_mut()).for_each(|metadata| {
            metadata.retain(|key, value| key != "annotations" || value != &json!({}));
        });
        seen
    };
    let before = without_stamps().await;
    let new = change("v1 ConfigMap new", "type: Create, content: {data: {a: b}}");
    let file = shop.changes(&[settings(2), change("v1 Secret old-key", "type: Delete"), new]);

    let committed = shop.apply(&file, &[]).await;
    let stamp = stamped(&shop.read(&shop.objects[0]).await);
    let again = shop.apply(&file, &[]).await;
    let recovered = shop.recover(&["apply", "x"]).await;

    said(&committed, 0, &["committed: 3 changes"]);
    said(&again, 0, &["committed already"]);
    said(&recovered, 0, &["undone: 3 changes"]);
    assert_ne!(stamped(&shop.read(&shop.objects[0]).await), stamp, "an undo is stamped too");
    assert_eq!(without_stamps().await, before);
}

async fn what_breaks_a_newer_policy_can_be_repaired_by_an_update_and_no_warning_shows_a_value(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let (policies, namespace) = ("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic", &stage.namespace);
    let spec = json!({ "ports": [{ "port": 80 }], "selector": { "app": "a", "colour": "blue" } });
    let path = shop.make("services", "s", json!({ "spec": spec })).await;
    for (resource, action, validation) in [
        ("services", "Deny", json!({ "expression": "has(object.metadata.labels)" })),
        ("secrets", "Warn", json!({ "expression": "!has(object.data)", "messageExpression": "'weak: ' + string(object.data)" })),
    ] {
        let name = format!("{namespace}-{resource}");
        let rule = json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": [resource] });
        let selector = json!({ "matchLabels": { "kubernetes.io/metadata.name": namespace } });
        let matched = json!({ "namespaceSelector": selector, "resourceRules": [rule] });
        let spec = json!({ "matchConstraints": matched, "validations": [validation] });
        stage.api.create(&format!("{policies}ies"), &json!({ "metadata": { "name": name }, "spec": spec })).await;
        let spec = json!({ "policyName": name, "validationActions": [action] });
        stage.api.create(&format!("{policies}ybindings"), &json!({ "metadata": { "name": name }, "spec": spec })).await;
    }
    until("the policy is in force", async || {
        let (_, service) = stage.api.call(Method::GET, &path, None).await;
        stage.api.call(Method::PUT, &format!("{path}?dryRun=All"), Some(&service)).await.0 == 422
    })
    .await;
    let labelled = "type: Patch, content: {metadata: {labels: {app: web}}}";
    let repaired =
        "metadata: {labels: {team: a}}, spec: {selector: {app: b}, ports: [{port: 80, protocol: TCP, targetPort: 8080}]}";
    let changes = |how: &str| {
        let service = change("v1 Service s", &format!("type: {how}, content: {{{repaired}}}"));
        shop.changes(&[service, change("v1 Secret old-key", labelled)])
    };
    said(&shop.apply(changes("Patch"), &[]).await, 1, &["denied request"]);

    let applied = shop.apply(changes("Update"), &[]).await;

    said(
        &applied,
        0,
        &["committed: 2 changes", "the API server warns: of Secret ", "the API server warns: of the journal, Secret "],
    );
    assert!(!applied.err.contains("weak"), "{applied:?}");
}
