//! What makes an object special: a finalizer, a map that is one value, a webhook, people and controllers that write to it all the time.

use http::Method;
use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use support::{Case, Fault, Request, Stage, Times, cases, until};

use super::{
    EXAMPLE, Shop,
    deaths::driver,
    input::{asks, webhook},
    is_change, said, wanted,
};

pub(super) fn all() -> Vec<Case> {
    cases![
        what_a_finalizer_holds_is_deleted_and_comes_back_once_it_is_gone,
        a_selector_is_replaced_as_a_whole_and_put_back,
        nothing_is_deleted_beside_its_owner,
        an_object_whose_status_is_written_all_the_time_is_tried_nine_times,
        what_a_webhook_adds_is_its_own_and_one_that_denies_changes_nothing,
        a_hundred_edits_of_objects_that_are_changed_meanwhile_are_all_kept,
        a_creation_whose_answer_was_lost_is_undone_and_may_still_come,
        a_journal_is_pruned_with_its_lease_once_no_request_may_come,
        an_object_that_somebody_has_made_anew_stays_and_is_named,
        an_object_that_was_deleted_or_made_anew_has_nothing_to_put_back_unless_it_has_the_new_values,
        an_undo_takes_its_own_keys_from_a_map_to_which_others_have_added,
        a_new_item_in_which_others_have_set_something_stays_until_it_is_forced,
        an_item_is_named_by_all_its_keys,
        a_plan_shows_no_change_of_an_object_that_somebody_has_made_anew,
        an_item_that_somebody_has_removed_is_not_made_again,
        what_cannot_be_written_keeps_nothing_else_from_its_undo,
        an_undo_of_objects_that_hang_asks_for_one_more_after_its_limit,
        a_file_whose_first_driver_was_killed_at_a_creation_is_committed_once,
    ]
}

/// The change of an object of the core group, as a line of a Transaction.
fn change(kind: &str, name: &str, how: &str) -> String {
    format!("  - {{target: {{apiVersion: v1, kind: {kind}, name: {name}}}, {how}}}\n")
}

fn transaction(changes: &str) -> String {
    format!("apiVersion: tenure.dev/v1\nkind: Transaction\nmetadata: {{name: x}}\nspec:\n  changes:\n{changes}")
}

async fn what_a_finalizer_holds_is_deleted_and_comes_back_once_it_is_gone(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let maps = format!("/api/v1/namespaces/{}/configmaps", stage.namespace);
    let path = format!("{maps}/guarded");
    let guarded = json!({ "metadata": { "name": "guarded", "finalizers": ["example.com/guard"] }, "data": { "a": "b" } });
    stage.api.create(&maps, &guarded).await;
    let before = shop.read(&path).await;
    let file = shop.file("delete.yaml", &transaction(&change("ConfigMap", "guarded", "type: Delete")));
    let is_deletion = |request: &Request| is_change(request) && request.method == Method::DELETE;
    shop.desk.proxy.on(is_deletion, Times::Only(1), Fault::committed_but(503, "ServiceUnavailable"));

    said(&shop.apply(&file, &[]).await, 0, &["committed"]);

    assert!(shop.read(&path).await["metadata"]["deletionTimestamp"].is_string(), "its finalizer holds it");
    said(&shop.apply(&file, &[]).await, 0, &["committed already"]);
    said(&shop.recover(&["apply", "x"]).await, 2, &["it is still being deleted"]);
    let (_, mut going) = stage.api.call(Method::GET, &path, None).await;
    going["metadata"]["finalizers"] = json!([]);
    assert_eq!(stage.api.call(Method::PUT, &path, Some(&going)).await.0, 200);
    assert_eq!(shop.read(&path).await, Value::Null);
    said(&shop.recover(&["apply", "x"]).await, 0, &["undone: 1"]);
    assert_eq!(shop.read(&path).await, before);
}

async fn a_creation_whose_answer_was_lost_is_undone_and_may_still_come(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let file = shop.file("create.yaml", &transaction(&change("ConfigMap", "new", "type: Create, content: {data: {a: b}}")));
    let path = format!("/api/v1/namespaces/{}/configmaps/new", stage.namespace);
    for is_gone in [false, true] {
        let is_creation = |request: &Request| is_change(request) && request.method == Method::POST;
        shop.desk.proxy.on(is_creation, Times::Only(1), Fault::committed_but(503, "ServiceUnavailable"));
        said(&shop.apply(&file, &[]).await, 0, &["committed"]);
        if is_gone {
            stage.api.call(Method::DELETE, &path, None).await;
        }
        said(&shop.recover(&["plan", "x"]).await, 1, &["committed by "]);

        let undone = shop.recover(&["apply", "x"]).await;

        said(&undone, 0, &["/new, but a late request may still create it", "as before, but may still be created"]);
        assert!(!undone.err.contains("as it is"), "{undone:?}");
        said(&shop.recover(&["plan", "x"]).await, 0, &["nothing to undo"]);
        said(&shop.recover(&["apply", "x"]).await, 0, &["nothing to do"]);
        assert_eq!(shop.read(&path).await, Value::Null);
    }
    let is_it = |request: &Request| request.method == Method::GET && request.uri.contains("/configmaps/new");
    shop.desk.proxy.on(is_it, Times::Always, Fault::refused(403, "Forbidden"));
    said(&shop.recover(&["apply", "x"]).await, 2, &["/new: the API server answered 403"]);
}

async fn a_journal_is_pruned_with_its_lease_once_no_request_may_come(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let file = shop.file("create.yaml", &transaction(&change("ConfigMap", "new", "type: Create, content: {data: {a: b}}")));
    let is_creation = |request: &Request| is_change(request) && request.method == Method::POST;
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases/txn-x", stage.namespace);
    let pruned = async || {
        until("the Lease is pruned", async || {
            shop.desk.ends(&["prune", "--older-than", "0s"]).await;
            shop.read(&lease).await.is_null()
        })
        .await;
        shop.journal("x").await
    };
    for (undo, stays) in [(false, false), (true, true)] {
        shop.desk.proxy.on(is_creation, Times::Only(1), Fault::committed_but(503, "ServiceUnavailable"));
        said(&shop.apply(&file, &[]).await, 0, &["committed"]);
        if undo {
            said(&shop.recover(&["apply", "x"]).await, 0, &["may still create it"]);
        }
        assert_eq!(pruned().await.is_some(), stays);
        let path = format!("/api/v1/namespaces/{}/configmaps/new", stage.namespace);
        stage.api.call(Method::DELETE, &path, None).await;
    }
}

async fn an_object_that_somebody_has_made_anew_stays_and_is_named(stage: Stage) {
    const PREFIXED: [&str; 2] = ["--set", "lease.prefix=shop-"];
    let shop = Shop::open(&stage).await;
    let file = shop.file("create.yaml", &transaction(&change("ConfigMap", "new", "type: Create, content: {data: {a: b}}")));
    said(&shop.apply(&file, &PREFIXED).await, 0, &["committed"]);
    let maps = format!("/api/v1/namespaces/{}/configmaps", stage.namespace);
    stage.api.call(Method::DELETE, &format!("{maps}/new"), None).await;
    stage.api.create(&maps, &json!({ "metadata": { "name": "new" }, "data": { "a": "c" } })).await;

    let undone = shop.recover(&[&["apply", "x"][..], &PREFIXED].concat()).await;

    said(
        &undone,
        2,
        &["/new as it is: this one is somebody else's", "tenure recover apply --lease shop-txn-x --set lease.prefix= -n "],
    );
    assert_eq!(shop.read(&format!("{maps}/new")).await["data"]["a"], "c");
    said(&shop.recover(&["plan", "--lease", "shop-txn-x", "--set", "lease.prefix=", "--force"]).await, 1, &["was made anew"]);
    said(&shop.recover(&[&["apply", "x", "--force"][..], &PREFIXED].concat()).await, 0, &["was made anew: nothing to put back"]);
    assert_eq!(shop.read(&format!("{maps}/new")).await["data"]["a"], "c", "it was never tenure's");
    said(&shop.recover(&[&["plan", "x"][..], &PREFIXED].concat()).await, 0, &["nothing to undo"]);
}

async fn an_object_that_was_deleted_or_made_anew_has_nothing_to_put_back_unless_it_has_the_new_values(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let maps = format!("/api/v1/namespaces/{}/configmaps", stage.namespace);
    let path = format!("{maps}/old");
    let map = |value: &str| json!({ "metadata": { "name": "old" }, "data": { "a": value } });
    let file = shop.file("patch.yaml", &transaction(&change("ConfigMap", "old", "type: Patch, content: {data: {a: new}}")));
    for (anew, code, words) in [
        (None, 0, "was deleted: nothing to put back"),
        (Some("third"), 0, "was made anew: nothing to put back"),
        (Some("new"), 2, "was made anew, with the same values"),
    ] {
        stage.api.call(Method::DELETE, &path, None).await;
        stage.api.create(&maps, &map("first")).await;
        said(&shop.apply(&file, &[]).await, 0, &["committed"]);
        stage.api.call(Method::DELETE, &path, None).await;
        if let Some(value) = anew {
            stage.api.create(&maps, &map(value)).await;
        }

        let undone = shop.recover(&["apply", "x"]).await;

        said(&undone, code, &[words]);
        assert!(!undone.err.contains("undid") && !undone.out.contains("as before"), "{undone:?}");
        assert_eq!(shop.read(&path).await["data"]["a"], json!(anew));
    }
    said(&shop.recover(&["apply", "x", "--force"]).await, 0, &["was made anew: nothing to put back"]);
}

/// A person's merge patch.
async fn merged(shop: &Shop<'_>, path: &str, patch: &Value) {
    let (_, mut object) = shop.stage.api.call(Method::GET, path, None).await;
    json_merge(&mut object, patch);
    assert_eq!(shop.stage.api.call(Method::PUT, path, Some(&object)).await.0, 200);
}

fn json_merge(object: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else { return object.clone_from(patch) };
    patch.iter().for_each(|(key, patch)| json_merge(&mut object[key], patch));
}

async fn an_undo_takes_its_own_keys_from_a_map_to_which_others_have_added(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let services = format!("/api/v1/namespaces/{}/services", stage.namespace);
    stage.api.create(&services, &json!({ "metadata": { "name": "shop" }, "spec": { "ports": [{ "port": 80 }] } })).await;
    let service = format!("{services}/shop");
    // Another transaction's keys are tenure's as well.
    let metadata = |name: &str| {
        let content = format!("{{metadata: {{labels: {{{name}: x}}, annotations: {{{name}: x}}}}}}");
        let text = transaction(&change("ConfigMap", "settings", &format!("type: Patch, content: {content}")));
        shop.file(&format!("{name}.yaml"), &text.replace("name: x}", &format!("name: {name}}}")))
    };
    let before = shop.seen().await;
    for name in ["s1", "s2"] {
        said(&shop.apply(metadata(name), &[]).await, 0, &["committed: 1 change"]);
    }

    said(&shop.recover(&["apply", "s1"]).await, 0, &["undone: 1 change"]);

    let left = shop.seen().await;
    let of = |key: &str| &left[0]["metadata"][key];
    assert_eq!((of("labels"), of("annotations")), (&json!({ "s2": "x" }), &json!({ "s2": "x" })));
    said(&shop.recover(&["apply", "s2"]).await, 0, &["undone: 1 change"]);
    assert_eq!(shop.seen().await, before);

    // A person's keys in maps that are one value.
    let disk = "type: Patch, content: {spec: {template: {spec: {nodeSelector: {disk: ssd}}}}}";
    let changes = change("Deployment", "shop", disk).replace("apiVersion: v1", "apiVersion: apps/v1")
        + &change("Service", "shop", "type: Patch, content: {spec: {selector: {app: shop}}}");
    said(&shop.apply(shop.file("x.yaml", &transaction(&changes)), &[]).await, 0, &["committed: 2 changes"]);
    let zone = json!({ "spec": { "template": { "spec": { "nodeSelector": { "zone": "a" } } } } });
    merged(&shop, &shop.objects[1], &zone).await;
    merged(&shop, &service, &json!({ "spec": { "selector": { "tier": "web" } } })).await;

    said(&shop.recover(&["apply", "x"]).await, 0, &["undone: 2 changes"]);

    let mut expected = before[1].clone();
    json_merge(&mut expected, &zone);
    assert_eq!(shop.read(&shop.objects[1]).await, expected);
    assert_eq!(shop.read(&service).await["spec"]["selector"], json!({ "tier": "web" }));
}

async fn a_new_item_in_which_others_have_set_something_stays_until_it_is_forced(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let before = shop.seen().await;
    let services = format!("/api/v1/namespaces/{}/services", stage.namespace);
    let spec = json!({ "type": "NodePort", "ports": [{ "name": "a", "port": 80 }] });
    stage.api.create(&services, &json!({ "metadata": { "name": "shop" }, "spec": spec })).await;
    let service = shop.read(&format!("{services}/shop")).await;
    let container = "{name: new, image: n, resources: {limits: {cpu: 1}}}";
    let added = format!("type: Patch, content: {{spec: {{template: {{spec: {{containers: [{container}]}}}}}}}}");
    let port = "type: Patch, content: {spec: {ports: [{name: b, port: 81, protocol: TCP}]}}";
    let changes =
        change("Deployment", "shop", &added).replace("apiVersion: v1", "apiVersion: apps/v1") + &change("Service", "shop", port);
    said(&shop.apply(shop.file("x.yaml", &transaction(&changes)), &[]).await, 0, &["committed: 2 changes"]);
    let (_, mut deployment) = stage.api.call(Method::GET, &shop.objects[1], None).await;
    deployment["spec"]["template"]["spec"]["containers"][2]["env"] = json!([{ "name": "A", "value": "kept" }]);
    assert_eq!(stage.api.call(Method::PUT, &shop.objects[1], Some(&deployment)).await.0, 200);

    let undone = shop.recover(&["apply", "x"]).await;

    said(&undone, 2, &["/shop as it is: others have set spec.template.spec.containers[name=new].env"]);
    assert_eq!(shop.read(&shop.objects[1]).await["spec"], deployment["spec"]);
    assert_eq!(shop.read(&format!("{services}/shop")).await, service, "what the server has allocated keeps no item");
    said(&shop.recover(&["apply", "x", "--force"]).await, 0, &["undone: 1 change"]);
    assert_eq!(shop.seen().await, before);
}

/// The API server takes TCP where no protocol is given, and so adds an item.
async fn an_item_is_named_by_all_its_keys(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let services = format!("/api/v1/namespaces/{}/services", stage.namespace);
    let spec = json!({ "ports": [{ "name": "dns", "port": 53, "protocol": "UDP" }] });
    stage.api.create(&services, &json!({ "metadata": { "name": "dns" }, "spec": spec })).await;
    let patch = |item: &str| {
        let how = format!("type: Patch, content: {{spec: {{ports: [{item}]}}}}");
        shop.file("ports.yaml", &transaction(&change("Service", "dns", &how)))
    };

    let refused = shop.apply(patch("{port: 53, name: dns-tcp}"), &[]).await;

    said(&refused, 1, &["spec.ports: give port and protocol"]);
    let twice = patch("{port: 53, protocol: TCP, name: a}, {port: 53, protocol: TCP, name: b}");
    said(&shop.apply(twice, &[]).await, 1, &["spec.ports[port=53,protocol=TCP]: it is there twice"]);
    said(&shop.apply(patch("{port: 53, protocol: TCP, name: dns-tcp}"), &[]).await, 0, &["committed"]);
    let ports = shop.read(&format!("{services}/dns")).await["spec"]["ports"].clone();
    assert_eq!([&ports[0]["name"], &ports[1]["name"]], ["dns", "dns-tcp"]);
}

async fn an_item_that_somebody_has_removed_is_not_made_again(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let target = "target: {apiVersion: apps/v1, kind: Deployment, name: shop}";
    let content = "spec: {template: {spec: {containers: [{name: web, env: [{name: A, value: null}]}]}}}";
    let file = shop.file("x.yaml", &transaction(&format!("  - {{{target}, type: Patch, content: {{{content}}}}}\n")));
    said(&shop.apply(&file, &[]).await, 0, &["committed: 1"]);
    let (_, mut found) = stage.api.call(Method::GET, &shop.objects[1], None).await;
    let env = "/spec/template/spec/containers/0/env";
    *found.pointer_mut(env).expect("env") = json!([]);
    assert_eq!(stage.api.call(Method::PUT, &shop.objects[1], Some(&found)).await.0, 200);

    said(&shop.recover(&["apply", "x"]).await, 2, &["env[name=A].value is somebody else's"]);
    said(&shop.recover(&["apply", "x", "--force"]).await, 0, &["undone: 1"]);

    assert_eq!(shop.read(&shop.objects[1]).await.pointer(env), None);
}

async fn what_cannot_be_written_keeps_nothing_else_from_its_undo(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let (before, owners) = (shop.seen().await, shop.managers(&shop.objects[0]).await);
    let is_second = |request: &Request| is_change(request) && request.uri.contains("/deployments/");
    for (status, reason) in [(500, "InternalError"), (409, "Conflict")] {
        said(&shop.apply(EXAMPLE, &[]).await, 0, &["committed"]);
        let made = shop.seen().await;
        shop.desk.proxy.on(is_second, Times::Always, Fault::refused(status, reason));

        let undone = shop.recover(&["apply", "release-2", "--limit", "2s"]).await;

        let why = format!("Deployment {}/shop: the API server answered {status}", stage.namespace);
        said(&undone, 2, &["undid ConfigMap", "undid Secret", &why]);
        assert_eq!(shop.seen().await, [&before[0], &made[1], &before[2]].map(Value::clone));
        assert_eq!(shop.managers(&shop.objects[0]).await, owners);
        shop.desk.proxy.clear();
        said(&shop.recover(&["apply", "release-2"]).await, 0, &["undone"]);
        assert_eq!(shop.seen().await, before);
    }
}

async fn an_undo_of_objects_that_hang_asks_for_one_more_after_its_limit(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let labels = "type: Patch, content: {metadata: {labels: {by: x}}}";
    let maps = ["a", "b", "c"].map(|name| change("ConfigMap", name, labels)).concat();
    let path = |name: &str| format!("/api/v1/namespaces/{}/configmaps{name}", stage.namespace);
    for name in ["a", "b", "c"] {
        stage.api.create(&path(""), &json!({ "metadata": { "name": name } })).await;
    }
    let file = shop.file("x.yaml", &transaction(&maps));
    said(&shop.apply(&file, &[]).await, 0, &["committed: 3"]);
    let sent = |name: &str| shop.desk.proxy.log.count(|e| is_change(&e.request) && e.request.uri.contains(&path(name)));
    let before = ["/a", "/b", "/c"].map(sent);
    shop.desk.proxy.on(is_change, Times::Always, Fault::lost_request());

    let undone = shop.recover(&["apply", "x", "--limit", "1s"]).await;

    said(&undone, 2, &["not undone in full"]);
    let asked: Vec<_> = ["/a", "/b", "/c"].map(sent).iter().zip(before).map(|(now, before)| now - before).collect();
    assert_eq!(asked, [0, 1, 1], "{undone:?}");
    shop.desk.proxy.clear();
    said(&shop.recover(&["apply", "x"]).await, 0, &["undone"]);
}

async fn a_file_whose_first_driver_was_killed_at_a_creation_is_committed_once(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let file = shop.file("x.yaml", &transaction(&change("ConfigMap", "new", "type: Create, content: {data: {a: b}}")));
    let is_creation = |request: &Request| is_change(request) && request.method == Method::POST;
    shop.desk.proxy.on(is_creation, Times::Only(1), Fault::lost_request());
    let lock = shop.desk.starts(&["apply", "-f", file.to_str().expect("text")]);
    shop.desk.proxy.log.first("the creation", |e| is_creation(&e.request)).await;
    kill(driver(lock.pid).await, Signal::SIGKILL).expect("it lives");
    assert_eq!(lock.exit().await.0, 137);

    said(&shop.apply(&file, &[]).await, 0, &["committed: 1"]);
    said(&shop.apply(&file, &[]).await, 0, &["committed already"]);
}

async fn a_plan_shows_no_change_of_an_object_that_somebody_has_made_anew(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let maps = format!("/api/v1/namespaces/{}/configmaps", stage.namespace);
    let map = |value: &str| json!({ "metadata": { "name": "old" }, "data": { "a": value } });
    stage.api.create(&maps, &map("first")).await;
    let file = shop.file("patch.yaml", &transaction(&change("ConfigMap", "old", "type: Patch, content: {data: {a: second}}")));
    said(&shop.apply(&file, &[]).await, 0, &["committed"]);
    stage.api.call(Method::DELETE, &format!("{maps}/old"), None).await;
    stage.api.create(&maps, &map("third")).await;

    let planned = shop.recover(&["plan", "x"]).await;

    said(&planned, 1, &["ConfigMap/old", "put back", "was made anew"]);
    assert!(!format!("{planned:?}").contains("first"), "{planned:?}");
}

async fn a_selector_is_replaced_as_a_whole_and_put_back(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let services = format!("/api/v1/namespaces/{}/services", stage.namespace);
    let spec = json!({ "ports": [{ "port": 80 }], "selector": { "app": "shop", "colour": "blue" } });
    stage.api.create(&services, &json!({ "metadata": { "name": "shop" }, "spec": spec })).await;
    let path = format!("{services}/shop");
    let before = shop.read(&path).await;
    let file = shop.file(
        "selector.yaml",
        &transaction(&change("Service", "shop", "type: Patch, content: {spec: {selector: {colour: green}}}")),
    );

    said(&shop.apply(&file, &[]).await, 0, &["committed"]);

    let mut green = before.clone();
    green["spec"]["selector"] = json!({ "colour": "green" });
    assert_eq!(shop.read(&path).await, green);
    said(&shop.recover(&["apply", "x"]).await, 0, &[]);
    assert_eq!(shop.read(&path).await, before);
    for selector in ["{absent: null}", "{colour: red, app: null}"] {
        let removes = change("Service", "shop", &format!("type: Patch, content: {{spec: {{selector: {selector}}}}}"));
        let refused = shop.apply(&shop.file("removes.yaml", &transaction(&removes)), &[]).await;
        said(&refused, 1, &["/shop: spec.selector: it is replaced as a whole: write all that it is to have"]);
    }
    let policies = format!("/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies", stage.namespace);
    let policy = json!({ "metadata": { "name": "shop" }, "spec": { "podSelector": { "matchLabels": { "tier": "a" } } } });
    stage.api.create(&policies, &policy).await;
    let removes = change("NetworkPolicy", "shop", "type: Patch, content: {spec: {podSelector: {matchLabels: {tier: null}}}}");
    let removes = removes.replace("apiVersion: v1", "apiVersion: networking.k8s.io/v1");
    let refused = shop.apply(&shop.file("removes.yaml", &transaction(&removes)), &[]).await;
    said(&refused, 1, &["/shop: spec.podSelector: it is replaced as a whole"]);
    assert_eq!(shop.read(&path).await, before);
}

async fn nothing_is_deleted_beside_its_owner(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let maps = format!("/api/v1/namespaces/{}/configmaps", stage.namespace);
    stage.api.create(&maps, &json!({ "metadata": { "name": "owner" } })).await;
    let (_, owner) = stage.api.call(Method::GET, &format!("{maps}/owner"), None).await;
    let reference = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"] }]);
    stage.api.create(&maps, &json!({ "metadata": { "name": "owned", "ownerReferences": reference } })).await;
    let mut two = reference.clone();
    two.as_array_mut().expect("a list").push(json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "stays", "uid": "0" }));
    stage.api.create(&maps, &json!({ "metadata": { "name": "shared", "ownerReferences": two } })).await;
    for names in [["owned", "owner"], ["owner", "owned"]] {
        let file = shop.file("x.yaml", &transaction(&names.map(|name| change("ConfigMap", name, "type: Delete")).concat()));

        said(&shop.apply(&file, &[]).await, 1, &["/owned: ConfigMap ", "/owner owns it and is deleted too"]);

        assert!(!shop.read(&format!("{maps}/owned")).await.is_null());
    }
    let beside = change("ConfigMap", "beside", &format!("type: Create, content: {{metadata: {{ownerReferences: {reference}}}}}"));
    let file = shop.file("x.yaml", &transaction(&(change("ConfigMap", "owner", "type: Delete") + &beside)));
    said(&shop.apply(&file, &[]).await, 1, &["/beside: ConfigMap ", "/owner owns it and is deleted too"]);
    let changes = ["shared", "owner"].map(|name| change("ConfigMap", name, "type: Delete")).concat();
    said(&shop.apply(&shop.file("x.yaml", &transaction(&changes)), &[]).await, 0, &["committed: 2 changes"]);
}

async fn an_object_whose_status_is_written_all_the_time_is_tried_nine_times(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let before = shop.seen().await;
    let is_it =
        |request: &Request| is_change(request) && request.uri.contains("/deployments/") && request.body["spec"].is_object();
    let conflict = || Fault::refused(409, "Conflict");
    shop.desk.proxy.on(is_it, Times::Only(9), conflict());

    said(&shop.apply(EXAMPLE, &[]).await, 1, &["undone: Deployment ", "changes all the time"]);

    assert_eq!(shop.seen().await, before);
    shop.desk.proxy.clear();
    shop.desk.proxy.on(is_it, Times::Only(8), conflict());
    shop.desk.proxy.on(is_it, Times::Only(10), Fault::refused(503, "ServiceUnavailable"));
    said(&shop.apply(EXAMPLE, &[]).await, 0, &["committed"]);
    assert_eq!(shop.seen().await, wanted(before));
}

/// Answers the review of an admission: annotates what has the new image, and denies what has a third one.
fn admit(review: &Value) -> String {
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    let (request, template) = (&review["request"], "/request/object/spec/template/spec/containers/0/image");
    let image = review.pointer(template).and_then(Value::as_str).unwrap_or_default();
    let mut response = json!({ "uid": request["uid"], "allowed": !["shop:3.0", "shop:4.0"].contains(&image) });
    if image == "shop:4.0" {
        response["status"] = json!({ "code": 409, "message": "not now" });
    }
    if image == "shop:2.0" && request["object"]["spec"]["template"]["metadata"]["annotations"].is_null() {
        let patch = json!([{ "op": "add", "path": "/spec/template/metadata/annotations", "value": { "hooked": "yes" } }]);
        response["patchType"] = json!("JSONPatch");
        response["patch"] = json!(BASE64_STANDARD.encode(patch.to_string()));
    }
    json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response }).to_string()
}

async fn what_a_webhook_adds_is_its_own_and_one_that_denies_changes_nothing(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let before = shop.seen().await;
    let hook = webhook(&shop, admit).await;
    asks(&shop, |deployment| deployment["spec"]["template"]["spec"]["containers"][0]["image"] = json!("shop:3.0")).await;
    let text = std::fs::read_to_string(EXAMPLE).expect("the example");
    let denied = shop.file("denied.yaml", &text.replace("shop:2.0", "shop:3.0"));

    said(&shop.apply(&denied, &[]).await, 1, &["denied the request"]);
    let conflict = shop.file("conflict.yaml", &text.replace("shop:2.0", "shop:4.0"));
    said(&shop.apply(&conflict, &[]).await, 1, &["or is refused with 409 Conflict by a webhook"]);
    assert_eq!(shop.seen().await, before);
    said(&shop.apply(EXAMPLE, &[]).await, 0, &["committed"]);

    let mut hooked = wanted(before.clone());
    hooked[1]["spec"]["template"]["metadata"]["annotations"] = json!({ "hooked": "yes" });
    assert_eq!(shop.seen().await, hooked);
    said(&shop.recover(&["apply", "release-2"]).await, 0, &[]);
    let mut left = before;
    left[1]["spec"]["template"]["metadata"]["annotations"] = json!({ "hooked": "yes" });
    assert_eq!(shop.seen().await, left);
    stage.api.call(Method::DELETE, &hook, None).await;
}

async fn a_hundred_edits_of_objects_that_are_changed_meanwhile_are_all_kept(stage: Stage) {
    const OBJECTS: usize = 32;
    let shop = Shop::open(&stage).await;
    let maps = format!("/api/v1/namespaces/{}/configmaps", stage.namespace);
    let mut changes = String::new();
    for number in 0..OBJECTS {
        let object = json!({ "metadata": { "name": format!("m{number}") }, "data": { "version": "1.0" } });
        stage.api.create(&maps, &object).await;
        changes += &change("ConfigMap", &format!("m{number}"), "type: Patch, content: {data: {version: '2.0'}}");
    }
    let file = shop.file("many.yaml", &transaction(&changes));
    let mut random = fastrand::Rng::with_seed(40);
    let edits: Vec<(usize, String)> = (0..100).map(|number| (random.usize(..OBJECTS), format!("edit{number}"))).collect();
    let edit = async {
        shop.desk.proxy.log.first("a change", |e| is_change(&e.request)).await;
        for (object, key) in &edits {
            let path = format!("{maps}/m{object}");
            loop {
                let (_, mut found) = stage.api.call(Method::GET, &path, None).await;
                found["data"][key] = json!("kept");
                match stage.api.call(Method::PUT, &path, Some(&found)).await {
                    (200, _) => break,
                    (409, _) => {}
                    (status, body) => panic!("{status} {body}"),
                }
            }
        }
    };
    let file = file.to_str().expect("text");
    // Without an end: hundreds of requests, on a machine that may be busy.
    let run = async |line: &[&str]| Shop::end(shop.desk.command(line).spawn().expect("it starts")).await;
    let drive = async {
        said(&run(&["apply", "-f", file]).await, 0, &["committed: 32 changes"]);
        said(&run(&["recover", "apply", "x"]).await, 0, &["undone: 32 changes"]);
    };

    tokio::join!(edit, drive);

    for number in 0..OBJECTS {
        let mut expected = json!({ "version": "1.0" });
        for (_, key) in edits.iter().filter(|(object, _)| *object == number) {
            expected[key] = json!("kept");
        }
        let object = shop.read(&format!("{maps}/m{number}")).await;
        assert_eq!(object["data"], expected, "{number}");
        assert!(object["metadata"]["annotations"].is_null(), "{object}");
    }
}
