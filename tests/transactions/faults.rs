//! What surrounds the protocol: what the server derives, what others do with an object, who may what, and who owns which field.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{Method, Request as Http};
use kube::client::Body;
use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use support::{Case, Exchange, Fault, Request, Stage, Times, cases, until};
use tenure::clock;

use super::{Shop, change, containers, deaths::killed, edit, is_change, journal_of, said, settings, transaction};

pub(super) fn all() -> Vec<Case> {
    cases![
        fields_that_the_server_derives_and_nulls_that_exclude_each_other_go_there_and_back,
        what_the_server_puts_into_what_a_change_names_is_asked_of_it_at_the_write,
        all_annotations_but_the_mark_can_be_removed_and_come_back,
        what_was_created_and_is_used_by_others_stays_until_it_is_forced,
        why_the_changes_failed_is_said_where_their_undo_fails_too,
        what_is_required_is_judged_until_the_change_is_made,
        an_object_of_an_earlier_file_that_cannot_be_read_holds_up_no_later_one,
        the_documented_rights_suffice_and_without_one_of_them_nothing_is_changed,
        a_deleted_job_leaves_no_pods_behind_and_comes_back,
        a_kind_that_is_no_longer_served_concerns_its_entry_only,
        a_value_that_cannot_be_decoded_is_refused_at_once,
        a_role_and_its_binding_are_made_by_an_administrator_of_the_namespace,
        the_owner_of_a_field_applies_it_without_a_conflict_after_an_undo,
        signals_and_a_lost_api_server_leave_an_undo_its_time,
        a_creation_of_a_killed_driver_is_known_however_the_server_writes_it,
        what_somebody_else_deletes_already_is_not_made_again,
        a_look_shows_the_others_where_one_object_cannot_be_read_and_ends_where_none_can,
        nulls_that_no_patch_carries_do_not_keep_a_value_from_its_undo,
    ]
}

/// An object, the content of its change, and the value that a field has then.
const DERIVED: &str = r#"v1 Secret old-key | stringData: {key: new} | /data/key | "bmV3"
v1 Secret old-key | data: {lines: "YW\nJj\n"} | /data/lines | "YWJj"
apps/v1 Deployment shop | spec: {replicas: null} | /spec/replicas | 1
apps/v1 Deployment shop | spec: {strategy: {type: Recreate, rollingUpdate: null}} | /spec/strategy | {"type": "Recreate"}
apps/v1 Deployment shop | spec: {template: {spec: {containers: [{name: web, livenessProbe: {httpGet: null, exec: {command: [x]}}}]}}} | /spec/template/spec/containers/0/livenessProbe/exec | {"command": ["x"]}
apps/v1 Deployment shop | spec: {template: {spec: {serviceAccountName: web}}} | /spec/template/spec/serviceAccount | "web"
apps/v1 Deployment shop | spec: {template: {spec: {containers: [{name: web, readinessProbe: {exec: {command: [x]}}, ports: [{containerPort: 8}]}]}}} | /spec/template/spec/containers/0/ports/0/protocol | "TCP"
v1 Service s | spec: {type: NodePort} | /spec/type | "NodePort"
v1 Service s | spec: {type: LoadBalancer} | /spec/type | "LoadBalancer"
policy/v1 PodDisruptionBudget b | spec: {selector: {matchExpressions: [{key: b, operator: Exists}]}} | /spec/selector/matchExpressions/0/operator | "Exists"
policy/v1 PodDisruptionBudget b | spec: {minAvailable: null, maxUnavailable: 1} | /spec/maxUnavailable | 1"#;

async fn fields_that_the_server_derives_and_nulls_that_exclude_each_other_go_there_and_back(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let budgets = format!("/apis/policy/v1/namespaces/{}/poddisruptionbudgets", stage.namespace);
    let spec = json!({ "ports": [{ "port": 80 }], "selector": { "app": "a" } });
    let service = shop.make("services", "s", json!({ "spec": spec })).await;
    let selector = json!({ "matchExpressions": [{ "key": "b", "operator": "In", "values": ["c"] }] });
    let budget = json!({ "metadata": { "name": "b" }, "spec": { "minAvailable": 1, "selector": selector } });
    stage.api.create(&budgets, &budget).await;
    let probe = json!({ "spec": { "replicas": 3, "template": { "spec": { "containers": [
        { "name": "web", "image": "web:1.0", "livenessProbe": { "httpGet": { "path": "/", "port": 80 } } }, { "name": "log", "image": "log:1.0" },
    ]}}}});
    assert_eq!(patched(&shop, &shop.objects[1], "application/strategic-merge-patch+json", &probe).await, 200);
    // A list that nobody names may have a key twice, which server-side apply refuses.
    let twice = json!([{ "name": "A", "value": "b" }, { "name": "A", "value": "c" }]);
    edit(&stage, &shop.objects[1], |deployment| containers(deployment)[1]["env"] = twice.clone()).await;
    let [_, deployment, secret] = shop.objects.clone();
    let budget = format!("{budgets}/b");
    for row in DERIVED.lines() {
        let [target, content, pointer, value]: [&str; 4] = row.split(" | ").collect::<Vec<_>>().try_into().expect("four parts");
        let value: Value = serde_json::from_str(value).expect("JSON");
        let path = match target.split(' ').nth(1) {
            Some("Secret") => &secret,
            Some("Deployment") => &deployment,
            Some("Service") => &service,
            _ => &budget,
        };
        let (before, owners) = (shop.read(path).await, shop.managers(path).await);
        let file = shop.changes(&[change(target, &format!("type: Patch, content: {{{content}}}"))]);

        said(&shop.apply(&file, &[]).await, 0, &["committed: 1 change"]);

        assert_eq!(shop.read(path).await.pointer(pointer), Some(&value), "{content}");
        said(&shop.apply(&file, &[]).await, 0, &["committed already"]);
        said(&shop.recover(&["apply", "x"]).await, 0, &["undone: 1 change"]);
        assert_eq!(shop.read(path).await, before, "{content}");
        assert_eq!(shop.managers(path).await, owners, "{content}");
    }
    let probe = "spec: {template: {metadata: {annotations: {a: b}}, spec: {containers: [{name: web, startupProbe: {httpGet: {port: 80}, periodSeconds: 5}}]}}}";
    let wants = |probe: &str| shop.changes(&[change("apps/v1 Deployment shop", &format!("type: Patch, content: {{{probe}}}"))]);
    // A value that is the default is named, also where the answer was lost.
    for (period, lost) in [(5, 0), (10, 0), (10, 1)] {
        shop.stock().await;
        said(&shop.apply(&wants(&probe.replace(": 5}", &format!(": {period}}}"))), &[]).await, 0, &["committed: 1 change"]);
        let other = json!({ "exec": { "command": ["x"] }, "periodSeconds": period });
        edit(&stage, &deployment, |deployment| containers(deployment)[0]["startupProbe"] = other.clone()).await;
        shop.desk.proxy.on(is_change, Times::Only(lost), Fault::committed_but(503, "ServiceUnavailable"));

        let undone = shop.recover(&["apply", "x"]).await;

        said(
            &undone,
            0,
            if period == 10 { &["the API server keeps", "periodSeconds", "undone: 1 change"] } else { &["undone: 1 change"] },
        );
        let kept = containers(&mut shop.read(&deployment).await)[0]["startupProbe"].clone();
        assert_eq!([&kept["exec"], &kept["periodSeconds"]], [&other["exec"], &json!(10)]);
    }
    // What others have added may be invalid alone.
    shop.stock().await;
    said(&shop.apply(&wants(probe), &[]).await, 0, &["committed: 1 change"]);
    edit(&stage, &deployment, |deployment| containers(deployment)[0]["startupProbe"]["failureThreshold"] = json!(9)).await;
    edit(&stage, &deployment, |deployment| deployment["spec"]["template"]["metadata"]["annotations"]["b"] = json!("c")).await;
    for force in [None, Some("--force")] {
        said(&shop.recover(&["apply", "x"].into_iter().chain(force).collect::<Vec<_>>()).await, 2, &["must specify a handler"]);
    }
    edit(&stage, &deployment, |deployment| containers(deployment)[0]["startupProbe"]["failureThreshold"] = Value::Null).await;
    said(&shop.recover(&["apply", "x"]).await, 0, &["undone: 1 change"]);
    let template = shop.read(&deployment).await["spec"]["template"].take();
    assert_eq!(template["spec"]["containers"][0]["startupProbe"], Value::Null);
    assert_eq!(template["metadata"]["annotations"], json!({ "b": "c" }));
}

async fn what_the_server_puts_into_what_a_change_names_is_asked_of_it_at_the_write(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let spec = json!({ "ports": [{ "port": 80 }], "selector": { "app": "a" } });
    let path = shop.make("services", "s", json!({ "spec": spec })).await;
    let before = shop.read(&path).await;
    let ports = "spec: {type: NodePort, selector: {app: a}, ports: [{name: http, port: 80}, {name: more, port: 81}]}";
    let service = change("v1 Service s", &format!("type: Update, content: {{{ports}}}"));
    let file = shop.changes(std::slice::from_ref(&service));

    said(&shop.apply(&file, &[]).await, 0, &["committed: 1 change"]);

    let made = shop.read(&path).await;
    assert!(made["spec"]["ports"][1]["nodePort"].is_u64(), "{made}");
    said(&shop.apply(&file, &[]).await, 0, &["committed already"]);
    assert_eq!(shop.read(&path).await, made);
    said(&shop.recover(&["apply", "x"]).await, 0, &["undone: 1 change"]);
    assert_eq!(shop.read(&path).await, before);
    let two = shop.file("two.yaml", &transaction("x", &[service, settings(2)]));
    let _valve = killed(&shop, &two, "/settings").await;
    said(&shop.recover(&["apply", "x"]).await, 0, &["undone: 2 changes"]);
    assert_eq!(shop.read(&path).await, before);
    let _valve = killed(&shop, &two, "/settings").await;
    let unserved = shop.file("none.yaml", &transaction("x", &[change("nope.io/v1 Thing x", "type: Create, content: {}")]));
    for how in [&["--dry-run"][..], &[]] {
        said(&shop.apply(&unserved, how).await, 1, &["does not serve Thing", "is undone first"]);
    }
    assert_eq!(shop.read(&path).await, before);
    // Nothing tells a port of the server from that of somebody else.
    shop.desk.proxy.on(is_change, Times::Only(1), Fault::committed_but(503, "ServiceUnavailable"));
    said(&shop.apply(&file, &[]).await, 2, &["spec.ports is somebody else's"]);
    said(&shop.recover(&["apply", "x", "--force"]).await, 0, &["undone: 1 change"]);
    assert_eq!(shop.read(&path).await, before);
}

async fn all_annotations_but_the_mark_can_be_removed_and_come_back(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let path = &shop.objects[0];
    for annotations in [json!({ "a": "b" }), Value::Null] {
        for verb in ["Patch", "Update"] {
            shop.stock().await;
            edit(&stage, path, |settings| settings["metadata"]["annotations"] = annotations.clone()).await;
            let before = shop.read(path).await;
            let how = format!("type: {verb}, content: {{metadata: {{annotations: null}}, data: {{version: '1.0', kept: x}}}}");
            let file = shop.changes(&[change("v1 ConfigMap settings", &how)]);

            let (first, again) = (shop.apply(&file, &[]).await, shop.apply(&file, &[]).await);

            let (done, stands) =
                if annotations.is_null() { ("nothing", "nothing") } else { ("committed: 1", "committed already") };
            said(&first, 0, &[done]);
            said(&again, 0, &[stands]);
            assert_eq!(shop.read(path).await["metadata"]["annotations"], Value::Null);
            said(&shop.recover(&["apply", "x"]).await, 0, &[]);
            assert_eq!(shop.read(path).await, before, "{verb}");
        }
    }
}

/// Sends a PATCH of this form.
async fn patched(shop: &Shop<'_>, path: &str, form: &str, body: &Value) -> u16 {
    let request = Http::builder().method(Method::PATCH).uri(path).header("content-type", form);
    let request = request.body(Body::from(body.to_string().into_bytes())).expect("a request");
    shop.stage.api.client().send(request).await.expect("an answer").status().as_u16()
}

/// The group and the spec of a definition of this kind.
fn defined(stage: &Stage, kind: &str, scope: &str, schema: &Value) -> (String, Value) {
    let (group, one) = (format!("{}.example.com", stage.namespace), kind.to_lowercase());
    let version = json!({ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } });
    let names = json!({ "plural": format!("{one}s"), "singular": one, "kind": kind });
    let spec = json!({ "group": group, "scope": scope, "names": names, "versions": [version] });
    (group, spec)
}

/// A change that defines a kind Door, and the path of the definition.
fn definition(stage: &Stage) -> (String, String) {
    let (group, spec) = defined(stage, "Door", "Cluster", &json!({ "type": "object" }));
    let target = format!("apiextensions.k8s.io/v1 CustomResourceDefinition doors.{group}");
    (change(&target, &format!("type: Create, content: {{spec: {spec}}}")), format!("{DEFINITIONS}/doors.{group}"))
}

async fn what_was_created_and_is_used_by_others_stays_until_it_is_forced(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let map = format!("/api/v1/namespaces/{}/configmaps/new", stage.namespace);
    let (define, definition) = definition(&stage);
    let new = change("v1 ConfigMap new", "type: Create, content: {data: {a: b}}");
    said(&shop.apply(shop.changes(&[new, define]), &[]).await, 0, &["committed: 2 changes"]);
    edit(&stage, &map, |map| map["data"]["others"] = json!("kept")).await;

    let plan = shop.recover(&["plan", "x"]).await;
    let undone = shop.recover(&["apply", "x"]).await;

    said(&plan, 1, &["delete", "somebody else has changed it", "it stays, as others may have put something into it"]);
    said(
        &undone,
        2,
        &["/new: left as it is: somebody else has changed it", "it stays, as others", "tenure recover apply --lease txn-x"],
    );
    assert_eq!(shop.read(&map).await["data"], json!({ "a": "b", "others": "kept" }));
    assert_eq!(shop.read(&definition).await["metadata"]["deletionTimestamp"], Value::Null);
    said(&shop.recover(&["apply", "x", "--force"]).await, 0, &["undone: 2 changes"]);
    assert_eq!(shop.read(&map).await, Value::Null);
    until("the definition is gone", async || shop.read(&definition).await.is_null()).await;
}

async fn why_the_changes_failed_is_said_where_their_undo_fails_too(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let (define, definition) = definition(&stage);
    let file = shop.changes(&[define, settings(2)]);
    let is_second = |request: &Request| is_change(request) && request.uri.contains("/configmaps/settings");
    shop.desk.proxy.on(is_second, Times::Always, Fault::refused(422, "Invalid"));

    let ended = shop.apply(&file, &[]).await;

    let why = format!("the changes cannot all be made: ConfigMap {}/settings: the API server answered 422", stage.namespace);
    said(&ended, 2, &[&why, "it stays, as others may have put something into it"]);
    said(&shop.recover(&["apply", "x", "--force"]).await, 0, &["undone: "]);
    until("the definition is gone", async || shop.read(&definition).await.is_null()).await;
}

async fn what_is_required_is_judged_until_the_change_is_made(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let (before, status) = (shop.seen().await, format!("{}/status", shop.objects[1]));
    let ready = async |ready: u32| {
        let status_of = json!({ "status": { "replicas": 1, "readyReplicas": ready } });
        assert_eq!(patched(&shop, &status, "application/merge-patch+json", &status_of).await, 200);
    };
    let deployment = |how: &str| change("apps/v1 Deployment shop", &format!("{how}, require: {{status: {{readyReplicas: 1}}}}"));
    let (same, gone) = (deployment("type: Patch, content: {spec: {replicas: 1}}"), deployment("type: Delete"));
    for (object, changes) in [("/configmaps/settings", [same, settings(2)]), ("/deployments/shop", [settings(2), gone])] {
        ready(1).await;
        let (valve, lock) = shop.halts(shop.changes(&changes), object).await;
        ready(0).await;
        valve.open();

        let (code, err) = lock.exit().await;

        assert!(code == 1 && err.contains("is not as required: status.readyReplicas"), "{code} {err}");
        assert_eq!(shop.seen().await, before);
    }
}

async fn the_documented_rights_suffice_and_without_one_of_them_nothing_is_changed(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let namespace = &stage.namespace;
    let old = shop.make("configmaps", "old", json!({ "data": { "a": "b" } })).await;
    let seen = async || (shop.read(&old).await, shop.read(&old.replace("/old", "/new")).await);
    let before = seen().await;
    for (how, verbs) in
        [("old, type: Delete", ["get", "delete", "create", "patch"]), ("new, type: Create", ["get", "create", "patch", "delete"])]
    {
        for lacking in [None, Some(verbs[1]), Some(verbs[2]), Some(verbs[3])] {
            let (name, how) = how.split_once(", ").expect("two parts");
            let account = format!("{name}-{}", lacking.unwrap_or("all"));
            let granted: Vec<_> = verbs.into_iter().filter(|verb| Some(*verb) != lacking).collect();
            let rules = json!([{ "apiGroups": [""], "resources": ["configmaps"], "verbs": granted }]);
            stage.api.grant(namespace, &account, &rules).await;
            stage
                .api
                .decides(namespace, &account, &json!({ "namespace": namespace, "verb": "get", "resource": "configmaps" }), true)
                .await;
            let content = if name == "new" { ", content: {data: {a: b}}" } else { "" };
            let text = transaction("x", &[change(&format!("v1 ConfigMap {name}"), &format!("{how}{content}"))]);
            let file = shop.file("x.yaml", &text.replace("spec:\n", &format!("spec:\n  serviceAccountName: {account}\n")));

            let ended = shop.apply(&file, &[]).await;

            if let Some(lacking) = lacking {
                said(&ended, 77, &[lacking]);
            } else {
                said(&ended, 0, &["committed: 1 change"]);
                said(&shop.recover(&["apply", "x"]).await, 0, &["undone: 1 change"]);
            }
            assert_eq!(seen().await, before, "{account}");
        }
    }
}

async fn a_deleted_job_leaves_no_pods_behind_and_comes_back(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let jobs = format!("/apis/batch/v1/namespaces/{}/jobs", stage.namespace);
    let template = json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i" }] } });
    stage.api.create(&jobs, &json!({ "metadata": { "name": "j" }, "spec": { "template": template, "suspend": true } })).await;
    let path = format!("{jobs}/j");

    said(&shop.apply(shop.changes(&[change("batch/v1 Job j", "type: Delete")]), &[]).await, 0, &["committed: 1 change"]);

    let deletes = |request: &Request| is_change(request) && request.method == Method::DELETE;
    let sent: Vec<_> = shop.exchanges().into_iter().filter(|e| deletes(&e.request)).collect();
    assert_eq!(sent[0].request.body["propagationPolicy"], "Background");
    assert_eq!(shop.read(&path).await, Value::Null);
    said(&shop.recover(&["apply", "x"]).await, 0, &["undone: 1 change"]);
    let back = shop.read(&path).await;
    assert_eq!(
        (&back["spec"]["template"]["spec"]["containers"][0]["image"], &back["spec"]["suspend"]),
        (&json!("i"), &json!(true))
    );
    assert!(back["spec"]["selector"]["matchLabels"].is_object(), "a selector of its own: {back}");
}

pub(super) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Defines a kind of this scope, and makes an object named g of it. Returns the group, and the path of the objects.
pub(super) async fn define(stage: &Stage, kind: &str, scope: &str, schema: &Value, spec: &Value) -> (String, String) {
    let (group, definition) = defined(stage, kind, scope, schema);
    let plural = definition["names"]["plural"].as_str().expect("text");
    let name = format!("{plural}.{group}");
    stage.api.create(DEFINITIONS, &json!({ "metadata": { "name": name }, "spec": definition })).await;
    let namespace = if scope == "Cluster" { String::new() } else { format!("namespaces/{}/", stage.namespace) };
    let all = format!("/apis/{group}/v1/{namespace}{plural}");
    until("they are served", async || stage.api.call(Method::GET, &all, None).await.0 == 200).await;
    let object = json!({ "apiVersion": format!("{group}/v1"), "kind": kind, "metadata": { "name": "g" }, "spec": spec });
    stage.api.create(&all, &object).await;
    (group, all)
}

/// The same of a kind Gate that holds anything.
async fn gate(stage: &Stage, spec: &Value) -> (String, String) {
    define(stage, "Gate", "Namespaced", &json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true }), spec).await
}

async fn nulls_that_no_patch_carries_do_not_keep_a_value_from_its_undo(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let (group, gates) = gate(&stage, &json!({ "tasks": [{ "name": "a", "spec": null }] })).await;
    let change = change(&format!("{group}/v1 Gate g"), "type: Patch, content: {spec: {tasks: [{name: b}]}}");
    said(&shop.apply(shop.changes(&[change]), &[]).await, 0, &["committed: 1 change"]);

    said(&shop.recover(&["apply", "x"]).await, 0, &["undone: 1 change"]);

    assert_eq!(shop.read(&format!("{gates}/g")).await["spec"]["tasks"][0]["name"], "a");
}

async fn a_kind_that_is_no_longer_served_concerns_its_entry_only(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let before = shop.seen().await;
    let (group, gates) = gate(&stage, &json!({ "a": 1 })).await;
    let gate = change(&format!("{group}/v1 Gate g"), "type: Patch, content: {spec: {a: 2}}");
    said(&shop.apply(shop.changes(&[settings(2), gate]), &[]).await, 0, &["committed: 2 changes"]);
    let path = format!("{DEFINITIONS}/gates.{group}");
    stage.api.call(Method::DELETE, &path, None).await;
    until("gates are not served", async || stage.api.call(Method::GET, &gates, None).await.0 == 404).await;
    until("the definition is gone", async || shop.read(&path).await.is_null()).await;

    let undone = shop.recover(&["apply", "x"]).await;

    said(&undone, 2, &["/g: left as it is: ", "/settings: undone"]);
    assert_eq!(shop.seen().await, before);
    said(&shop.recover(&["forget", "x"]).await, 0, &["forgotten"]);
    said(&shop.apply(shop.changes(&[settings(2)]), &[]).await, 0, &["committed: 1 change"]);
}

async fn an_object_of_an_earlier_file_that_cannot_be_read_holds_up_no_later_one(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let key = change("v1 Secret old-key", "type: Patch, content: {data: {key: bmV3}}");
    said(&shop.apply(shop.changes(&[settings(2), key]), &[]).await, 0, &["committed: 2 changes"]);
    let is_key = |request: &Request| request.uri.contains("/secrets/old-key");
    shop.desk.proxy.on(is_key, Times::Always, Fault::refused(500, "InternalError"));
    let other = shop.changes(&[settings(3)]);

    said(&shop.apply(&other, &["--dry-run", "--limit", "10s"]).await, 0, &["settings"]);
    said(&shop.apply(&other, &["--limit", "10s"]).await, 0, &["committed: 1 change"]);
}

async fn a_value_that_cannot_be_decoded_is_refused_at_once(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let before = shop.seen().await;
    for (target, how) in [
        ("apps/v1 Deployment shop", "type: Patch, content: {spec: {replicas: many}}"),
        ("v1 ConfigMap settings", "type: Update, content: {data: {a: 5}}"),
        ("v1 ConfigMap new", "type: Create, content: {data: {a: 5}}"),
        ("apps/v1 Deployment shop", "type: Patch, content: {spec: {replicaz: 5}}"),
    ] {
        let ended = shop.apply(shop.changes(&[change(target, how)]), &[]).await;
        said(&ended, 1, &[target.rsplit(' ').next().expect("a name")]);
        assert!(!ended.err.contains("no success yet"), "{ended:?}");
    }
    assert_eq!(shop.seen().await, before);
}

async fn a_role_and_its_binding_are_made_by_an_administrator_of_the_namespace(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let all = ["get", "create", "patch", "delete"];
    let rules = json!([
        { "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": all },
        { "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"] },
    ]);
    stage.api.grant(&stage.namespace, "boss", &rules).await;
    let get = json!({ "namespace": stage.namespace, "verb": "get", "resource": "configmaps" });
    stage.api.decides(&stage.namespace, "boss", &get, true).await;
    let rules = "rules: [{apiGroups: [''], resources: [configmaps], verbs: [get]}]";
    let role = "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}";
    let create = |target: &str, content: &str| change(target, &format!("type: Create, content: {{{content}}}"));
    let binding = format!("{role}, subjects: [{{kind: ServiceAccount, name: x}}]");
    let text = transaction(
        "x",
        &[
            create("rbac.authorization.k8s.io/v1 Role reader", rules),
            create("rbac.authorization.k8s.io/v1 RoleBinding ann@example.com", &binding),
        ],
    );
    let file = shop.file("x.yaml", &text.replace("spec:\n", "spec:\n  serviceAccountName: boss\n"));

    said(&shop.apply(&file, &[]).await, 0, &["committed: 2 changes"]);
    said(&shop.recover(&["apply", "x"]).await, 0, &["undone: 2 changes"]);
}

async fn the_owner_of_a_field_applies_it_without_a_conflict_after_an_undo(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let path = format!("/api/v1/namespaces/{}/configmaps/owned", stage.namespace);
    let object = |value: &str| json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "owned" }, "data": { "version": value } });
    let owns = async |value: &str| {
        patched(&shop, &format!("{path}?fieldManager=owner"), "application/apply-patch+yaml", &object(value)).await
    };
    assert_eq!(owns("1").await, 201);
    let before = shop.managers(&path).await;
    let file = shop.changes(&[change("v1 ConfigMap owned", "type: Patch, content: {data: {version: '2'}}")]);
    let taken = "data.version is applied by owner";
    said(&shop.apply(&file, &["--dry-run"]).await, 0, &[taken]);
    said(&shop.apply(&file, &[]).await, 0, &[taken]);
    assert_eq!(owns("3").await, 409, "tenure has it");

    said(&shop.recover(&["apply", "x"]).await, 0, &["undone: 1 change"]);

    assert_eq!(shop.managers(&path).await, before);
    assert_eq!(owns("3").await, 200);
}

async fn a_creation_of_a_killed_driver_is_known_however_the_server_writes_it(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let container = "{name: c, image: i, resources: {requests: {cpu: 0.5, memory: 1024Mi}}, env: [{name: A, value: ''}]}";
    let pod = format!("hostNetwork: false, volumes: [], containers: [{container}]");
    let template = format!("{{metadata: {{labels: {{a: b}}}}, spec: {{{pod}}}}}");
    let create = format!("type: Create, content: {{spec: {{selector: {{matchLabels: {{a: b}}}}, template: {template}}}}}");
    let file = shop.changes(&[change("apps/v1 Deployment new", &create), settings(2)]);
    let _valve = killed(&shop, file, "/configmaps/settings").await;
    shop.desk.proxy.clear();
    let made = format!("/apis/apps/v1/namespaces/{}/deployments/new", stage.namespace);
    let requests = containers(&mut shop.read(&made).await)[0]["resources"]["requests"].take();
    assert_eq!(requests, json!({ "cpu": "500m", "memory": "1Gi" }));

    let undone = shop.recover(&["apply", "x"]).await;

    said(&undone, 0, &["Deployment", "/new: undone"]);
    assert_eq!(shop.read(&made).await, Value::Null);
}

async fn what_somebody_else_deletes_already_is_not_made_again(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let key = &shop.objects[2];
    let held = json!({ "metadata": { "finalizers": ["example.com/held"] } });
    assert_eq!(patched(&shop, key, "application/merge-patch+json", &held).await, 200);
    assert_eq!(stage.api.call(Method::DELETE, key, None).await.0, 200);

    let applied = shop.apply(shop.changes(&[settings(2), change("v1 Secret old-key", "type: Delete")]), &[]).await;

    said(&applied, 0, &["committed: 1 change"]);
    let free = json!({ "metadata": { "finalizers": null } });
    assert_eq!(patched(&shop, key, "application/merge-patch+json", &free).await, 200);
    said(&shop.recover(&["apply", "x"]).await, 0, &["undone: "]);

    assert_eq!(shop.read(key).await, Value::Null);
}

async fn a_look_shows_the_others_where_one_object_cannot_be_read_and_ends_where_none_can(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let file = shop.changes(&[settings(2), change("v1 Secret old-key", "type: Patch, content: {data: {key: bmV3}}")]);
    shop.desk.proxy.on(|request| request.uri.ends_with("/api/v1"), Times::Only(1), Fault::refused(503, "ServiceUnavailable"));
    said(&shop.apply(&file, &[]).await, 0, &["no success yet", "committed: 2 changes"]);
    let is_object = |request: &Request| request.uri.ends_with("/settings") || request.uri.ends_with("/old-key");
    shop.desk.proxy.on(is_object, Times::Always, Fault::lost_request());
    let (begin, sent) = (clock::boot(), shop.desk.proxy.log.count(|e| is_object(&e.request)));
    said(&shop.apply(&file, &["--dry-run", "--timeout", "1s"]).await, 69, &[]);
    said(&shop.recover(&["plan", "x", "--timeout", "1s"]).await, 1, &["left as it is"]);
    assert!(clock::boot().since(begin) < Duration::from_secs(9), "one request alone is given up after 10 s");
    assert_eq!(shop.desk.proxy.log.count(|e| is_object(&e.request)), sent + 2, "the first that nobody answers ends a look");
    shop.desk.proxy.clear();
    let is_one = |request: &Request| request.method == Method::GET && request.uri.contains("/configmaps/settings");
    shop.desk.proxy.on(is_one, Times::Only(1), Fault::refused(503, "ServiceUnavailable"));

    let once = shop.recover(&["plan", "x"]).await;
    shop.desk.proxy.on(is_one, Times::Always, Fault::refused(500, "InternalError"));
    let always = shop.recover(&["plan", "x", "--limit", "1s"]).await;

    said(&once, 1, &["Secret/old-key", "ConfigMap/settings"]);
    assert!(!once.out.contains("as it is"), "{once:?}");
    said(&always, 1, &["Secret/old-key", "left as it is: the API server answered 500"]);
    let path = format!("/api/v1/namespaces/{}/secrets/txn-x-journal", stage.namespace);
    edit(&stage, &path, |secret| {
        let unfinished = journal_of(secret).replace(r#""phase":"committed""#, r#""phase":"prepared""#);
        secret["data"]["journal"] = json!(BASE64_STANDARD.encode(unfinished));
    })
    .await;
    for how in [&["--dry-run", "--limit", "1s"][..], &["--limit", "1s"]] {
        said(&shop.apply(&file, how).await, 2, &["the API server answered 500"]);
    }
}

async fn signals_and_a_lost_api_server_leave_an_undo_its_time(stage: Stage) {
    const OBJECTS: usize = 12;
    let shop = Shop::open(&stage).await;
    let maps = format!("/api/v1/namespaces/{}/configmaps", stage.namespace);
    let mut changes = Vec::new();
    for number in 0..OBJECTS {
        let name = format!("m{number}");
        stage.api.create(&maps, &json!({ "metadata": { "name": name }, "data": { "version": "1" } })).await;
        changes.push(change(&format!("v1 ConfigMap {name}"), "type: Patch, content: {data: {version: '2'}}"));
    }
    changes.push(change("apps/v1 Deployment shop", "type: Patch, content: {spec: {replicas: 2}}"));
    let file = shop.changes(&changes);
    let line = ["apply", "-f", file.to_str().expect("text"), "--limit", "1m"];
    let is_last = |request: &Request| is_change(request) && request.body["spec"]["replicas"] == 2;
    let is_undo = |request: &Request| is_change(request) && request.body["data"]["version"] == "1";
    let all_are_back = async |err: &str| {
        for number in 0..OBJECTS {
            assert_eq!(shop.read(&format!("{maps}/m{number}")).await["data"]["version"], "1", "m{number}: {err}");
        }
    };
    for signals in [&[Signal::SIGTERM][..], &[Signal::SIGINT, Signal::SIGINT, Signal::SIGINT]] {
        shop.desk.proxy.on(is_last, Times::Always, Fault::refused(503, "ServiceUnavailable"));
        shop.desk.proxy.on(is_undo, Times::Always, Fault::slow_reply(Duration::from_millis(300)));
        let sent = shop.desk.proxy.log.count(|e| is_last(&e.request));
        let is_made = |e: &Exchange| is_change(&e.request) && e.request.body["data"]["version"] == "2";
        let made = shop.desk.proxy.log.count(is_made);
        let lock = shop.desk.starts(&line);
        for done in 0..OBJECTS {
            shop.desk.proxy.log.nth(made + done, "a change", is_made).await;
        }
        shop.desk.proxy.log.nth(sent, "the last change", |e| is_last(&e.request)).await;
        for signal in signals {
            kill(lock.pid, *signal).expect("it lives");
        }

        let (code, err) = lock.exit().await;

        assert!(code == 1 && err.contains("tenure: undone: "), "{code} {err}");
        all_are_back(&err).await;
        shop.desk.proxy.clear();
    }
    // A third SIGTERM kills the driver in the middle of the undo: the next command undoes the rest.
    let is_undone = |e: &Exchange| is_undo(&e.request) && e.answer.is_some();
    shop.desk.proxy.on(is_last, Times::Always, Fault::refused(503, "ServiceUnavailable"));
    shop.desk.proxy.on(is_undo, Times::Always, Fault::slow_reply(Duration::from_millis(300)));
    let (sent, undone) = (shop.desk.proxy.log.count(|e| is_last(&e.request)), shop.desk.proxy.log.count(is_undone));
    let lock = shop.desk.starts(&line);
    shop.desk.proxy.log.nth(sent, "the last change", |e| is_last(&e.request)).await;
    for done in undone..undone + 2 {
        kill(lock.pid, Signal::SIGTERM).expect("it lives");
        shop.desk.proxy.log.nth(done, "an undo", is_undone).await;
    }
    kill(lock.pid, Signal::SIGTERM).expect("it lives");

    let (code, err) = lock.exit().await;

    assert!(code == 137 && err.contains("tells what is left") && !err.contains("tenure: undone: "), "{code} {err}");
    said(&shop.recover(&["plan", "x"]).await, 1, &["put back"]);
    shop.desk.proxy.clear();
    said(&shop.recover(&["apply", "x"]).await, 0, &["undone: "]);
    all_are_back(&err).await;
    // The API server is away in the middle of the undo: whatever becomes of this driver, the next one ends it.
    shop.desk.proxy.on(is_last, Times::Only(1), Fault::refused(422, "Invalid"));
    let undone = shop.desk.proxy.log.count(is_undone);
    let lock = shop.desk.starts(&line);
    shop.desk.proxy.log.nth(undone + 3, "an undo", is_undone).await;
    shop.desk.proxy.on(|_| true, Times::Only(20), Fault::lost_request());
    let (code, err) = lock.exit().await;
    assert_ne!(code, 0, "{err}");
    shop.desk.proxy.clear();
    said(&shop.recover(&["apply", "x"]).await, 0, &[]);
    all_are_back(&err).await;
}
