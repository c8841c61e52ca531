//! What makes an object special: a finalizer, a map that is one value, a webhook, people and controllers that write to it all the time.

use http::Method;
use serde_json::{Value, json};
use support::{Case, Fault, Request, Stage, Times, cases, until};

use super::{
    EXAMPLE, Shop, change, containers, edit,
    input::{asks, webhook},
    is_change, said, transaction, wanted,
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
        an_undo_takes_its_own_from_a_map_or_a_list_to_which_others_have_added,
        a_new_item_in_which_others_have_set_something_stays_until_it_is_forced,
        what_others_have_set_in_a_value_with_one_owner_is_theirs,
        a_deleted_object_that_others_made_again_without_its_labels_is_another,
        an_item_is_named_by_all_its_keys,
        an_item_that_somebody_has_removed_is_not_made_again,
        what_cannot_be_written_keeps_nothing_else_from_its_undo,
        an_undo_of_objects_that_hang_asks_for_one_more_after_its_limit,
    ]
}

async fn what_a_finalizer_holds_is_deleted_and_comes_back_once_it_is_gone(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let guarded = json!({ "metadata": { "finalizers": ["example.com/guard"] }, "data": { "a": "b" } });
    let path = shop.make("configmaps", "guarded", guarded).await;
    let before = shop.read(&path).await;
    let file = shop.changes(&[change("v1 ConfigMap guarded", "type: Delete")]);
    let is_deletion = |request: &Request| is_change(request) && request.method == Method::DELETE;
    shop.desk.proxy.on(is_deletion, Times::Only(1), Fault::committed_but(503, "ServiceUnavailable"));

    said(&shop.apply(&file, &[]).await, 0, &["committed"]);

    assert!(shop.read(&path).await["metadata"]["deletionTimestamp"].is_string(), "its finalizer holds it");
    said(&shop.apply(&file, &[]).await, 0, &["committed already"]);
    said(&shop.recover(&["apply", "x"]).await, 2, &["it is still being deleted"]);
    edit(&stage, &path, |going| going["metadata"]["finalizers"] = json!([])).await;
    assert_eq!(shop.read(&path).await, Value::Null);
    said(&shop.recover(&["apply", "x"]).await, 0, &["undone: 1"]);
    assert_eq!(shop.read(&path).await, before);
}

async fn a_creation_whose_answer_was_lost_is_undone_and_may_still_come(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let file = shop.changes(&[change("v1 ConfigMap new", "type: Create, content: {data: {a: b}}")]);
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

        said(&undone, 0, &["/new: undone, but a late request may still create it"]);
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
    let file = shop.changes(&[change("v1 ConfigMap new", "type: Create, content: {data: {a: b}}")]);
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
    let file = shop.changes(&[change("v1 ConfigMap new", "type: Create, content: {data: {a: b}}")]);
    said(&shop.apply(&file, &PREFIXED).await, 0, &["committed"]);
    let maps = format!("/api/v1/namespaces/{}/configmaps", stage.namespace);
    stage.api.call(Method::DELETE, &format!("{maps}/new"), None).await;
    stage.api.create(&maps, &json!({ "metadata": { "name": "new" }, "data": { "a": "c" } })).await;

    let undone = shop.recover(&[&["apply", "x"][..], &PREFIXED].concat()).await;

    said(
        &undone,
        2,
        &["/new: left as it is: this one is somebody else's", "tenure recover apply --lease shop-txn-x --set lease.prefix= -n "],
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
    let file = shop.changes(&[change("v1 ConfigMap old", "type: Patch, content: {data: {a: new}}")]);
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

        let planned = shop.recover(&["plan", "x"]).await;
        let undone = shop.recover(&["apply", "x"]).await;

        if anew == Some("third") {
            said(&planned, 1, &["ConfigMap/old", "put back", "was made anew"]);
            assert!(!format!("{planned:?}").contains("first"), "a change is shown: {planned:?}");
        }
        said(&undone, code, &[words]);
        assert!(!undone.err.contains("/old: undone") && !undone.out.contains("undone"), "{undone:?}");
        assert_eq!(shop.read(&path).await["data"]["a"], json!(anew));
    }
    said(&shop.recover(&["apply", "x", "--force"]).await, 0, &["was made anew: nothing to put back"]);
}

/// A person's merge patch.
async fn merged(shop: &Shop<'_>, path: &str, patch: &Value) {
    edit(shop.stage, path, |object| json_merge(object, patch)).await;
}

fn json_merge(object: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else { return object.clone_from(patch) };
    patch.iter().for_each(|(key, patch)| json_merge(&mut object[key], patch));
}

async fn an_undo_takes_its_own_from_a_map_or_a_list_to_which_others_have_added(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let service = shop.make("services", "shop", json!({ "spec": { "ports": [{ "port": 80 }] } })).await;
    // Another transaction's keys are tenure's as well.
    let metadata = |name: &str| {
        let keys = format!("type: Patch, content: {{metadata: {{labels: {{{name}: x}}, annotations: {{{name}: x}}}}}}");
        shop.file(&format!("{name}.yaml"), &transaction(name, &[change("v1 ConfigMap settings", &keys)]))
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

    // A person's keys in maps that are one value, and an item in a list that was made.
    let pod = "nodeSelector: {disk: ssd}, containers: [{name: web, ports: [{containerPort: 80, protocol: TCP}]}]";
    let disk = change("apps/v1 Deployment shop", &format!("type: Patch, content: {{spec: {{template: {{spec: {{{pod}}}}}}}}}"));
    let selector = change("v1 Service shop", "type: Patch, content: {spec: {selector: {app: shop}}}");
    said(&shop.apply(shop.changes(&[disk, selector]), &[]).await, 0, &["committed: 2 changes"]);
    let zone = json!({ "spec": { "template": { "spec": { "nodeSelector": { "zone": "a" } } } } });
    merged(&shop, &shop.objects[1], &zone).await;
    let port = json!({ "containerPort": 81, "protocol": "TCP" });
    edit(&stage, &shop.objects[1], |shop| containers(shop)[0]["ports"].as_array_mut().expect("a list").push(port.clone())).await;
    merged(&shop, &service, &json!({ "spec": { "selector": { "tier": "web" } } })).await;

    said(&shop.recover(&["apply", "x"]).await, 0, &["undone: 2 changes"]);

    let mut expected = before[1].clone();
    json_merge(&mut expected, &zone);
    containers(&mut expected)[0]["ports"] = json!([port]);
    assert_eq!(shop.read(&shop.objects[1]).await, expected);
    assert_eq!(shop.read(&service).await["spec"]["selector"], json!({ "tier": "web" }));
}

async fn a_new_item_in_which_others_have_set_something_stays_until_it_is_forced(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let before = shop.seen().await;
    let spec = json!({ "type": "NodePort", "ports": [{ "name": "a", "port": 80 }] });
    let path = shop.make("services", "shop", json!({ "spec": spec })).await;
    let service = shop.read(&path).await;
    let container = "{name: new, image: new, resources: {limits: {cpu: 1}}}";
    let added = format!("type: Patch, content: {{spec: {{template: {{spec: {{containers: [{container}]}}}}}}}}");
    let port = "type: Patch, content: {spec: {ports: [{name: b, port: 81, protocol: TCP}]}}";
    let changes = [change("apps/v1 Deployment shop", &added), change("v1 Service shop", port)];
    said(&shop.apply(shop.changes(&changes), &[]).await, 0, &["committed: 2 changes"]);
    let kept = json!([{ "name": "A", "value": "kept" }]);
    edit(&stage, &shop.objects[1], |deployment| containers(deployment)[2]["env"] = kept.clone()).await;
    let edited = shop.read(&shop.objects[1]).await;

    let undone = shop.recover(&["apply", "x"]).await;

    said(&undone, 2, &["/shop: left as it is: others have set spec.template.spec.containers[name=new].env"]);
    assert_eq!(shop.read(&shop.objects[1]).await["spec"], edited["spec"]);
    assert_eq!(shop.read(&path).await, service, "what the server has allocated keeps no item");
    said(&shop.recover(&["apply", "x", "--force"]).await, 0, &["undone: 1 change"]);
    assert_eq!(shop.seen().await, before);
}

async fn what_others_have_set_in_a_value_with_one_owner_is_theirs(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let spread = |key: &str| json!({ "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": { "matchLabels": { "app": "shop" } } });
    let spreads = |deployment: &mut Value| deployment["spec"]["template"]["spec"]["topologySpreadConstraints"].take();
    edit(&stage, &shop.objects[1], |deployment| {
        deployment["spec"]["template"]["spec"]["topologySpreadConstraints"] = json!([spread("node")]);
    })
    .await;
    let added = json!({ "spec": { "template": { "spec": { "topologySpreadConstraints": [spread("zone")] } } } });
    let file = shop.changes(&[change("apps/v1 Deployment shop", &format!("type: Patch, content: {added}"))]);
    said(&shop.apply(file, &[]).await, 0, &["committed: 1 change"]);
    edit(&stage, &shop.objects[1], |deployment| {
        let spreads = &mut deployment["spec"]["template"]["spec"]["topologySpreadConstraints"];
        let zone = spreads.as_array_mut().unwrap().iter_mut().find(|spread| spread["topologyKey"] == "zone");
        zone.unwrap()["labelSelector"]["matchLabels"]["tier"] = json!("x");
    })
    .await;
    let edited = spreads(&mut shop.read(&shop.objects[1]).await);

    said(&shop.recover(&["apply", "x"]).await, 2, &["others have set spec.template.spec.topologySpreadConstraints"]);

    assert_eq!(spreads(&mut shop.read(&shop.objects[1]).await), edited);
}

async fn a_deleted_object_that_others_made_again_without_its_labels_is_another(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let role = |name: &str| json!({ "example.com/role": name });
    let account = shop.make("serviceaccounts", "shop", json!({ "metadata": { "annotations": role("writer") } })).await;
    said(&shop.apply(shop.changes(&[change("v1 ServiceAccount shop", "type: Delete")]), &[]).await, 0, &["committed: 1 change"]);
    shop.make("serviceaccounts", "shop", json!({})).await;

    said(&shop.recover(&["apply", "x"]).await, 2, &["/shop: left as it is: somebody has made another"]);

    edit(&stage, &account, |account| account["metadata"]["annotations"] = role("x")).await;
    said(&shop.recover(&["apply", "x"]).await, 0, &["undone: 1 change"]);
}

/// The API server takes TCP where no protocol is given, and so adds an item.
async fn an_item_is_named_by_all_its_keys(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let spec = json!({ "ports": [{ "name": "dns", "port": 53, "protocol": "UDP" }] });
    let service = shop.make("services", "dns", json!({ "spec": spec })).await;
    let patch =
        |item: &str| shop.changes(&[change("v1 Service dns", &format!("type: Patch, content: {{spec: {{ports: [{item}]}}}}"))]);

    let refused = shop.apply(patch("{port: 53, name: dns-tcp}"), &[]).await;

    said(&refused, 1, &["spec.ports: give port and protocol"]);
    let twice = patch("{port: 53, protocol: TCP, name: a}, {port: 53, protocol: TCP, name: b}");
    said(&shop.apply(twice, &[]).await, 1, &["spec.ports[port=53,protocol=TCP]: it is there twice"]);
    said(&shop.apply(patch("{port: 53, protocol: TCP, name: dns-tcp}"), &[]).await, 0, &["committed"]);
    let ports = shop.read(&service).await["spec"]["ports"].clone();
    assert_eq!([&ports[0]["name"], &ports[1]["name"]], ["dns", "dns-tcp"]);
}

async fn an_item_that_somebody_has_removed_is_not_made_again(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let removes = "type: Patch, content: {spec: {template: {spec: {containers: [{name: web, env: [{name: A, value: null}]}]}}}}";
    said(&shop.apply(shop.changes(&[change("apps/v1 Deployment shop", removes)]), &[]).await, 0, &["committed: 1"]);
    edit(&stage, &shop.objects[1], |deployment| containers(deployment)[0]["env"] = json!([])).await;

    said(&shop.recover(&["apply", "x"]).await, 2, &["env[name=A].value is somebody else's"]);
    said(&shop.recover(&["apply", "x", "--force"]).await, 0, &["undone: 1"]);

    assert_eq!(containers(&mut shop.read(&shop.objects[1]).await)[0].get("env"), None);
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
        said(&undone, 2, &["/settings: undone", "/old-key: undone", &why]);
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
    let maps = ["v1 ConfigMap a", "v1 ConfigMap b", "v1 ConfigMap c"].map(|map| change(map, labels));
    let mut paths = Vec::new();
    for name in ["a", "b", "c"] {
        paths.push(shop.make("configmaps", name, json!({})).await);
    }
    said(&shop.apply(shop.changes(&maps), &[]).await, 0, &["committed: 3"]);
    let sent = |path: &String| shop.desk.proxy.log.count(|e| is_change(&e.request) && e.request.uri.contains(path));
    let before: Vec<_> = paths.iter().map(sent).collect();
    shop.desk.proxy.on(is_change, Times::Always, Fault::lost_request());

    let undone = shop.recover(&["apply", "x", "--limit", "1s"]).await;

    said(&undone, 2, &["not undone in full"]);
    let asked: Vec<_> = paths.iter().map(sent).zip(before).map(|(now, before)| now - before).collect();
    assert_eq!(asked, [0, 1, 1], "{undone:?}");
    shop.desk.proxy.clear();
    said(&shop.recover(&["apply", "x"]).await, 0, &["undone"]);
}

async fn a_selector_is_replaced_as_a_whole_and_put_back(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let spec = json!({ "ports": [{ "port": 80 }], "selector": { "app": "shop", "colour": "blue" } });
    let path = shop.make("services", "shop", json!({ "spec": spec })).await;
    let before = shop.read(&path).await;
    let patches = |selector: &str| {
        shop.changes(&[change("v1 Service shop", &format!("type: Patch, content: {{spec: {{selector: {selector}}}}}"))])
    };

    said(&shop.apply(patches("{colour: green}"), &[]).await, 0, &["committed"]);

    let mut green = before.clone();
    green["spec"]["selector"] = json!({ "colour": "green" });
    assert_eq!(shop.read(&path).await, green);
    said(&shop.recover(&["apply", "x"]).await, 0, &[]);
    assert_eq!(shop.read(&path).await, before);
    for selector in ["{absent: null}", "{colour: red, app: null}"] {
        let refused = shop.apply(patches(selector), &[]).await;
        said(&refused, 1, &["/shop: spec.selector: it is replaced as a whole: write all that it is to have"]);
    }
    let policies = format!("/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies", stage.namespace);
    let policy = json!({ "metadata": { "name": "shop" }, "spec": { "podSelector": { "matchLabels": { "tier": "a" } } } });
    stage.api.create(&policies, &policy).await;
    let removes = "type: Patch, content: {spec: {podSelector: {matchLabels: {tier: null}}}}";
    let removes = change("networking.k8s.io/v1 NetworkPolicy shop", removes);
    let refused = shop.apply(shop.changes(&[removes]), &[]).await;
    said(&refused, 1, &["/shop: spec.podSelector: it is replaced as a whole"]);
    assert_eq!(shop.read(&path).await, before);
}

async fn nothing_is_deleted_beside_its_owner(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let owner = shop.make("configmaps", "owner", json!({})).await;
    let (_, owner) = stage.api.call(Method::GET, &owner, None).await;
    let reference = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"] }]);
    let owned = shop.make("configmaps", "owned", json!({ "metadata": { "ownerReferences": reference } })).await;
    let mut two = reference.clone();
    two.as_array_mut().expect("a list").push(json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "stays", "uid": "0" }));
    shop.make("configmaps", "shared", json!({ "metadata": { "ownerReferences": two } })).await;
    let delete = |name: &str| change(&format!("v1 ConfigMap {name}"), "type: Delete");
    for names in [["owned", "owner"], ["owner", "owned"]] {
        let words = ["/owned: ConfigMap ", "/owner owns it and is deleted too"];
        said(&shop.apply(shop.changes(&names.map(delete)), &[]).await, 1, &words);

        assert!(!shop.read(&owned).await.is_null());
    }
    let beside = change("v1 ConfigMap beside", &format!("type: Create, content: {{metadata: {{ownerReferences: {reference}}}}}"));
    let words = ["/beside: ConfigMap ", "/owner owns it and is deleted too"];
    said(&shop.apply(shop.changes(&[delete("owner"), beside]), &[]).await, 1, &words);
    said(&shop.apply(shop.changes(&["shared", "owner"].map(delete)), &[]).await, 0, &["committed: 2 changes"]);
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
    asks(&shop, |deployment| containers(deployment)[0]["image"] = json!("shop:3.0")).await;
    let text = std::fs::read_to_string(EXAMPLE).expect("the example");
    let denied = shop.file("denied.yaml", &text.replace("shop:2.0", "shop:3.0"));

    said(&shop.apply(&denied, &[]).await, 1, &["denied the request"]);
    let conflict = shop.file("conflict.yaml", &text.replace("shop:2.0", "shop:4.0"));
    said(&shop.apply(&conflict, &[]).await, 1, &["or each request is refused as a conflict"]);
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
    let (mut paths, mut changes) = (Vec::new(), Vec::new());
    for number in 0..OBJECTS {
        paths.push(shop.make("configmaps", &format!("m{number}"), json!({ "data": { "version": "1.0" } })).await);
        changes.push(change(&format!("v1 ConfigMap m{number}"), "type: Patch, content: {data: {version: '2.0'}}"));
    }
    let file = shop.changes(&changes);
    let mut random = fastrand::Rng::with_seed(40);
    let edits: Vec<(usize, String)> = (0..100).map(|number| (random.usize(..OBJECTS), format!("edit{number}"))).collect();
    let others = async {
        shop.desk.proxy.log.first("a change", |e| is_change(&e.request)).await;
        for (object, key) in &edits {
            edit(&stage, &paths[*object], |found| found["data"][key] = json!("kept")).await;
        }
    };
    let file = file.to_str().expect("text");
    // Without an end: hundreds of requests, on a machine that may be busy.
    let run = async |line: &[&str]| Shop::end(shop.desk.command(line).spawn().expect("it starts")).await;
    let drive = async {
        said(&run(&["apply", "-f", file]).await, 0, &["committed: 32 changes"]);
        said(&run(&["recover", "apply", "x"]).await, 0, &["undone: 32 changes"]);
    };

    tokio::join!(others, drive);

    for (number, path) in paths.iter().enumerate() {
        let mut expected = json!({ "version": "1.0" });
        for (_, key) in edits.iter().filter(|(object, _)| *object == number) {
            expected[key] = json!("kept");
        }
        let object = shop.read(path).await;
        assert_eq!(object["data"], expected, "{number}");
        assert!(object["metadata"]["annotations"].is_null(), "{object}");
    }
}
