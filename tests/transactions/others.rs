//! Others change the same objects: another transaction, a person, a controller.

use std::{fs, path::PathBuf};

use http::Method;
use serde_json::{Value, json};
use support::{Case, Exchange, Fault, Request, Stage, Times, Valve, cases};

use super::{
    EXAMPLE, SENTINEL, Shop, change, containers,
    deaths::killed,
    edit,
    faults::{DEFINITIONS, define},
    is_change, journal_of, said, settings, transaction, wanted,
};

pub(super) fn all() -> Vec<Case> {
    cases![
        transactions_that_meet_in_the_middle_of_their_changes_are_undone_and_say_whose_the_object_is,
        an_edit_of_the_same_field_before_the_commit_undoes_and_one_after_it_stays,
        an_object_that_is_put_back_or_deleted_between_the_changes_is_named,
        edits_of_other_fields_of_a_sidecar_and_of_the_status_survive,
        a_value_of_a_secret_is_nowhere_to_be_read,
        a_mark_that_no_transaction_can_have_made_keeps_nobody_away,
        who_has_put_a_field_back_is_named_though_another_has_written_the_status_since,
        an_undo_that_cannot_be_begun_is_not_done_in_full,
        a_journal_that_others_write_or_delete_before_its_first_write_is_begun_anew,
        a_forgotten_transaction_restores_nothing_and_leaves_no_mark,
        a_transaction_whose_journal_was_deleted_keeps_nobody_waiting,
        an_undo_needs_no_lease,
        a_dry_run_ends_as_the_application_would,
        a_command_that_waits_for_the_lock_stays_with_the_cluster_of_its_start,
        what_the_cluster_and_a_definition_of_its_own_hold_is_changed_and_undone,
    ]
}

/// Two transactions over two objects, in opposite order.
fn opposed(shop: &Shop<'_>) -> [PathBuf; 2] {
    let (settings, deployment) = ("v1 ConfigMap settings", "apps/v1 Deployment shop");
    [("a", [settings, deployment]), ("b", [deployment, settings])].map(|(name, targets)| {
        let labels = format!("type: Patch, content: {{metadata: {{labels: {{by: {name}}}}}}}");
        shop.file(&format!("{name}.yaml"), &transaction(name, &targets.map(|target| change(target, &labels))))
    })
}

async fn transactions_that_meet_in_the_middle_of_their_changes_are_undone_and_say_whose_the_object_is(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let files = opposed(&shop);
    let is_prepared = |request: &Request| {
        let text = journal_of(&request.body);
        request.method == Method::PUT && text.contains(r#""phase":"prepared""#)
    };
    let by = |name: &'static str, object: &'static str| {
        move |request: &Request| {
            is_change(request) && request.body["metadata"]["labels"]["by"] == name && request.uri.contains(object)
        }
    };
    let second = move |request: &Request| by("a", "/deployments/")(request) || by("b", "/configmaps/")(request);
    let (planned, met) = (Valve::closed(), Valve::closed());
    shop.desk.proxy.on(is_prepared, Times::Only(2), Fault::late_request(&planned));
    shop.desk.proxy.on(second, Times::Only(2), Fault::late_request(&met));
    let log = &shop.desk.proxy.log;

    let running = files.each_ref().map(|file| shop.desk.starts(&["apply", "-f", file.to_str().expect("text")]));
    log.nth(1, "both are planned", |e| is_prepared(&e.request)).await;
    planned.open();
    let is_made =
        |e: &Exchange| e.answer.is_some() && (by("a", "/configmaps/")(&e.request) || by("b", "/deployments/")(&e.request));
    log.nth(1, "both have made their first change", is_made).await;
    log.nth(1, "both try their second", |e| second(&e.request)).await;
    met.open();

    let mut codes = Vec::new();
    for running in running {
        let (code, err) = running.exit().await;
        assert!(code == 0 || err.contains("undone: ") && err.contains("it is another transaction's: "), "{code} {err}");
        codes.push(code);
    }
    codes.sort_unstable();
    assert!([[0, 75], [75, 75]].iter().any(|expected| codes == expected), "{codes:?}");
    let seen = shop.seen().await;
    assert_eq!(seen[0]["metadata"]["labels"]["by"], seen[1]["metadata"]["labels"]["by"], "{codes:?}");
    assert!(seen.iter().all(|object| object["metadata"]["annotations"]["tenure.dev/change"].is_null()), "{seen:?}");
}

async fn an_edit_of_the_same_field_before_the_commit_undoes_and_one_after_it_stays(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let before = shop.seen().await;
    let (valve, lock) = shop.halted("/deployments/").await;

    edit(&stage, &shop.objects[1], |deployment| containers(deployment)[0]["image"] = json!("foreign")).await;
    valve.open();

    let (code, err) = lock.exit().await;
    assert!(code == 1 && err.contains("/shop"), "{code} {err}");
    let mut seen = shop.seen().await;
    assert_eq!(std::mem::replace(&mut containers(&mut seen[1])[0]["image"], json!("web:1.0")), "foreign");
    assert_eq!(seen, before);

    said(&shop.apply(EXAMPLE, &[]).await, 0, &["committed"]);
    edit(&stage, &shop.objects[0], |settings| settings["data"]["version"] = json!("foreign")).await;
    said(&shop.recover(&["apply", "release-2"]).await, 2, &["not undone in full; ConfigMap "]);
    let seen = shop.seen().await;
    assert_eq!((&seen[0]["data"]["version"], seen[2].is_null()), (&json!("foreign"), false));
    said(&shop.recover(&["plan", "release-2"]).await, 1, &["ConfigMap/settings", "\"foreign\"", "left as it is"]);
    said(&shop.apply(EXAMPLE, &[]).await, 2, &["settings"]);
    said(&shop.recover(&["apply", "release-2", "--force"]).await, 0, &[]);
    assert_eq!(shop.seen().await[0]["data"]["version"], "1.0");
}

async fn an_object_that_is_put_back_or_deleted_between_the_changes_is_named(stage: Stage) {
    let shop = Shop::open(&stage).await;
    for (is_deleted, words) in [(false, "/settings: data.version"), (true, "/settings: it was deleted meanwhile")] {
        shop.stock().await;
        let (valve, lock) = shop.halted("/deployments/").await;
        if is_deleted {
            assert_eq!(stage.api.call(Method::DELETE, &shop.objects[0], None).await.0, 200);
        } else {
            edit(&stage, &shop.objects[0], |settings| settings["data"]["version"] = json!("1.0")).await;
        }
        valve.open();

        let (code, err) = lock.exit().await;

        assert!(code == 0 && err.contains(words), "{code} {err}");
    }
}

async fn edits_of_other_fields_of_a_sidecar_and_of_the_status_survive(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let before = shop.seen().await;
    let (valve, lock) = shop.halted("/deployments/").await;

    let others = |deployment: &mut Value, image: &str| {
        deployment["spec"]["replicas"] = json!(7);
        deployment["spec"]["template"]["spec"]["containers"][1]["image"] = json!(image);
    };
    edit(&stage, &shop.objects[1], |deployment| others(deployment, "log:2.0")).await;
    let status = json!({ "observedGeneration": 1, "replicas": 1 });
    edit(&stage, &format!("{}/status", shop.objects[1]), |deployment| deployment["status"] = status.clone()).await;
    valve.open();

    let (code, err) = lock.exit().await;
    assert_eq!(code, 0, "{err}");
    let (mut expected, mut undone) = (wanted(before.clone()), before);
    others(&mut expected[1], "log:2.0");
    assert_eq!(shop.seen().await, expected);
    edit(&stage, &shop.objects[1], |deployment| others(deployment, "log:3.0")).await;
    said(&shop.recover(&["apply", "release-2"]).await, 0, &["undone: 3 changes"]);
    others(&mut undone[1], "log:3.0");
    assert_eq!(shop.seen().await, undone);
}

async fn a_value_of_a_secret_is_nowhere_to_be_read(stage: Stage) {
    let shop = Shop::open(&stage).await;
    for (content, code) in [
        // The server's message quotes the value.
        ("stringData: {key: [sentinel-5a17]}", 1),
        ("type: kubernetes.io/tls, stringData: {key: sentinel-5a17}", 1),
        ("data: {key: sentinel-5a17!}", 78),
        ("stringData: {key: sentinel-5a17-new}", 0),
    ] {
        let file = shop.changes(&[change("v1 Secret old-key", &format!("type: Patch, content: {{{content}}}"))]);
        let options = ["--log-level", "trace", "--limit", "3s"];
        said(&shop.apply(&file, &[&options[..], &["--dry-run"]].concat()).await, code, &[]);
        said(&shop.apply(&file, &options).await, code, &["old-key"]);
        for output in ["table", "json", "yaml"] {
            said(&shop.recover(&["plan", "x", "-o", output]).await, i32::from(code == 0), &[]);
        }
    }
    edit(&stage, &shop.objects[2], |secret| secret["stringData"] = json!({ "key": format!("{SENTINEL}-foreign") })).await;
    said(&shop.recover(&["apply", "x"]).await, 2, &["old-key"]);
}

async fn a_mark_that_no_transaction_can_have_made_keeps_nobody_away(stage: Stage) {
    let shop = Shop::open(&stage).await;
    for mark in ["default/ x 1", "/txn-x x 1", "a/../b x 1", "a/b  1"] {
        shop.stock().await;
        let marked = |object: &mut Value| object["metadata"]["annotations"] = json!({ "tenure.dev/change": mark });
        edit(&stage, &shop.objects[0], marked).await;

        said(&shop.apply(EXAMPLE, &["--limit", "5s"]).await, 0, &["committed"]);

        said(&shop.recover(&["apply", "release-2"]).await, 0, &["undone"]);
    }
}

async fn who_has_put_a_field_back_is_named_though_another_has_written_the_status_since(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let scaled = change("apps/v1 Deployment shop", "type: Patch, content: {spec: {replicas: 5}}");
    let file = shop.changes(&[scaled, change("v1 Secret old-key", "type: Delete")]);
    let (valve, driver) = shop.halts(file, "/secrets/old-key").await;
    for (part, manager, field) in [("", "argocd", "/spec/replicas"), ("/status", "controller", "/status/replicas")] {
        let path = format!("{}{part}", shop.objects[1]);
        let (_, mut deployment) = stage.api.call(Method::GET, &path, None).await;
        deployment["status"]["replicas"] = json!(0);
        *deployment.pointer_mut(field).unwrap() = json!(1);
        let (status, body) = stage.api.call(Method::PUT, &format!("{path}?fieldManager={manager}"), Some(&deployment)).await;
        assert_eq!(status, 200, "{body}");
    }
    valve.open();

    let (code, said) = driver.exit().await;

    assert!(code == 0 && said.contains("argocd has changed it"), "{code}: {said}");
}

async fn an_undo_that_cannot_be_begun_is_not_done_in_full(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let _valve = killed(&shop, EXAMPLE, "/secrets/").await;
    shop.desk.proxy.on(is_journal, Times::Only(1), Fault::refused(422, "Invalid"));

    said(&shop.recover(&["apply", "release-2"]).await, 2, &["not undone in full; ", "/settings: ", "/shop: ", "/old-key: "]);

    said(&shop.recover(&["apply", "release-2"]).await, 0, &["undone"]);
}

async fn a_journal_that_others_write_or_delete_before_its_first_write_is_begun_anew(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let path = format!("/api/v1/namespaces/{}/secrets/txn-x-journal", stage.namespace);
    for (version, is_deleted) in [(2, false), (3, true)] {
        stage.api.call(Method::DELETE, &path, None).await;
        let valve = Valve::closed();
        shop.desk.proxy.on(is_journal, Times::Only(1), Fault::late_request(&valve));
        let sent = shop.desk.proxy.log.count(|e| is_journal(&e.request));
        let file = shop.changes(&[settings(version)]);
        let driver = shop.desk.starts(&["apply", "-f", file.to_str().unwrap()]);
        shop.desk.proxy.log.nth(sent, "the journal", |e| is_journal(&e.request)).await;
        if is_deleted {
            stage.api.call(Method::DELETE, &path, None).await;
        } else {
            edit(&stage, &path, |secret| secret["metadata"]["annotations"] = json!({ "a": "b" })).await;
        }
        valve.open();

        let (code, said) = driver.exit().await;

        assert!(code == 0 && !said.contains("is not there"), "{is_deleted}: {code}: {said}");
    }
}

/// Tells whether it writes a journal.
fn is_journal(request: &Request) -> bool {
    request.method == Method::PUT && request.uri.contains("-journal")
}

async fn a_forgotten_transaction_restores_nothing_and_leaves_no_mark(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let before = shop.seen().await;
    let _valve = killed(&shop, EXAMPLE, "/secrets/").await;
    assert!(shop.seen().await[0]["metadata"]["annotations"]["tenure.dev/change"].is_string());
    // Its own marks keep nobody waiting, and what would happen first is said.
    let words = ["is undone first", "data.version", "\"1.0\"", "\"2.0\"", "Secret/old-key"];
    said(&shop.apply(EXAMPLE, &["--dry-run", "--limit", "1s"]).await, 0, &words);
    said(&shop.recover(&["plan", "release-2"]).await, 1, &["not finished by "]);
    let is_mark = |request: &Request| is_change(request) && request.uri.contains("/configmaps/settings");
    shop.desk.proxy.on(is_mark, Times::Only(1), Fault::refused(503, "ServiceUnavailable"));

    said(&shop.recover(&["forget", "release-2"]).await, 0, &["forgotten: ", "nothing is restored"]);

    let mut expected = wanted(before.clone());
    expected[2] = before[2].clone();
    assert_eq!(shop.seen().await, expected);
    said(&shop.recover(&["plan", "release-2"]).await, 0, &["nothing to undo"]);
}

async fn a_transaction_whose_journal_was_deleted_keeps_nobody_waiting(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let path = format!("/api/v1/namespaces/{}/secrets/txn-release-2-journal", stage.namespace);
    let lost = async || {
        shop.stock().await;
        let _valve = killed(&shop, EXAMPLE, "/deployments/").await;
        shop.desk.proxy.clear();
        assert_eq!(stage.api.call(Method::DELETE, &path, None).await.0, 200);
    };
    let other = opposed(&shop)[0].clone();
    lost().await;
    said(&shop.apply(&other, &["--limit", "1s"]).await, 75, &["it is another transaction's: "]);

    let recovered = shop.recover(&["apply", "release-2"]).await;

    let lost_words = "the journal that was announced is not there: what it may have changed stays";
    said(&recovered, 0, &[lost_words, "nothing can be undone", "nothing to do"]);
    said(&shop.apply(&other, &["--limit", "10s"]).await, 0, &["committed: 2 changes"]);
    lost().await;
    said(&shop.apply(EXAMPLE, &["--dry-run", "--limit", "10s"]).await, 0, &[]);
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases/txn-release-2", stage.namespace);
    let last = shop.read(&lease).await["metadata"]["annotations"]["tenure.dev/journal"].clone();
    let is_end = move |request: &Request| {
        request.method == Method::PUT
            && request.uri.starts_with(&lease)
            && request.body["metadata"]["annotations"]["tenure.dev/journal"] != last
    };
    shop.desk.proxy.on(is_end, Times::Only(1), Fault::committed_but(503, "ServiceUnavailable"));
    let applied = shop.apply(EXAMPLE, &["--limit", "10s"]).await;
    said(&applied, 0, &["the journal that was announced is not there", "committed: 2 changes"]);
}

async fn an_undo_needs_no_lease(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let before = shop.seen().await;
    let (valve, lock) = shop.halted("/deployments/").await;
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases/txn-release-2", stage.namespace);
    assert_eq!(stage.api.call(Method::DELETE, &lease, None).await.0, 200);
    edit(&stage, &shop.objects[1], |deployment| containers(deployment)[0]["image"] = json!("foreign")).await;
    // The undo is slower than the news of the Lease.
    shop.desk.proxy.on(is_journal, Times::Only(6), Fault::refused(500, "InternalError"));
    valve.open();

    let (code, err) = lock.exit().await;

    let remedy = format!("`tenure recover plan --lease txn-release-2 -n {}` tells what is left or committed", stage.namespace);
    assert!(code == 76 && err.contains("undone: ") && err.contains(&remedy), "{code} {err}");
    assert_eq!(shop.seen().await[0], before[0], "{err}");
}

async fn a_command_that_waits_for_the_lock_stays_with_the_cluster_of_its_start(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let (valve, lock) = shop.halted("/deployments/").await;
    let command = shop.desk.command(&[]);
    let (_, path) = command.get_envs().find(|(name, _)| *name == "KUBECONFIG").expect("it is set");
    let text = fs::read_to_string(path.expect("a path")).expect("a kubeconfig");
    let mut kubeconfig: Value = serde_json::from_str(&text).expect("JSON");
    for (list, value) in [
        ("clusters", json!({ "name": "other", "cluster": { "server": "https://127.0.0.1:1" } })),
        ("contexts", json!({ "name": "other", "context": { "cluster": "other", "user": "test" } })),
    ] {
        kubeconfig[list].as_array_mut().expect("a list").push(value);
    }
    kubeconfig["contexts"][0]["context"]["namespace"] = json!(stage.namespace);
    let path = shop.file("kubeconfig", &kubeconfig.to_string());
    let is_watch = |e: &Exchange| e.request.uri.contains("/leases") && e.request.uri.contains("watch=");
    let watches = shop.desk.proxy.log.count(is_watch);
    let waiting =
        shop.desk.starts(&["--kubeconfig", path.to_str().expect("text"), "apply", "--set", "lease.namespace=", "-f", EXAMPLE]);
    shop.desk.proxy.log.nth(watches, "a watch", is_watch).await;

    kubeconfig["current-context"] = json!("other");
    kubeconfig["contexts"][0]["context"]["namespace"] = json!("default");
    shop.file("kubeconfig", &kubeconfig.to_string());
    valve.open();

    assert_eq!(lock.exit().await.0, 0);
    let (code, said) = waiting.exit().await;
    assert!(code == 0 && said.contains("committed already"), "{code}: {said}");
}

async fn a_dry_run_ends_as_the_application_would(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let both = async |code: i32, words: &str| {
        said(&shop.apply(EXAMPLE, &["--dry-run"]).await, code, &[words]);
        said(&shop.apply(EXAMPLE, &[]).await, code, &[words]);
    };
    said(&shop.apply(EXAMPLE, &[]).await, 0, &["committed"]);
    both(0, "committed already").await;
    edit(&stage, &shop.objects[0], |settings| settings["data"]["version"] = json!("foreign")).await;
    said(&shop.recover(&["apply", "release-2"]).await, 2, &[]);
    both(2, "data.version is somebody else's").await;
    said(&shop.recover(&["plan", "release-2"]).await, 1, &["left as it is: "]);
    let forced = shop.recover(&["plan", "release-2", "--force"]).await;
    assert!(forced.code == 1 && !forced.out.contains("left as it is: "), "{forced:?}");
    // A killed run, of which somebody has edited a field.
    shop.stock().await;
    let _valve = killed(&shop, EXAMPLE, "/deployments/").await;
    edit(&stage, &shop.objects[0], |settings| settings["data"]["version"] = json!("foreign")).await;
    both(2, "data.version is somebody else's").await;
}

async fn what_the_cluster_and_a_definition_of_its_own_hold_is_changed_and_undone(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let schema = json!({ "type": "object", "properties": { "spec": { "type": "object", "properties": { "ports": {
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": { "type": "object", "required": ["name"], "properties": { "name": { "type": "string" }, "port": { "type": "integer" } } },
    }}}}});
    let door = json!({ "ports": [{ "name": "a", "port": 1 }, { "name": "b", "port": 2 }] });
    let (group, doors) = define(&stage, "Door", "Cluster", &schema, &door).await;
    let inner = format!("{}-inner", stage.namespace);
    let file = shop.changes(&[
        change(&format!("v1 Namespace {inner}"), "type: Create, content: {metadata: {labels: {a: b}}}"),
        change(&format!("v1 ConfigMap a, namespace: {inner}"), "type: Create, content: {data: {a: b}}"),
        change(&format!("{group}/v1 Door g"), "type: Patch, content: {spec: {ports: [{name: b, port: 3}]}}"),
    ]);

    said(&shop.apply(&file, &[]).await, 0, &["committed: 3 changes"]);

    let path = format!("{doors}/g");
    assert_eq!(shop.read(&path).await["spec"]["ports"], json!([{ "name": "a", "port": 1 }, { "name": "b", "port": 3 }]));
    said(&shop.recover(&["apply", "x"]).await, 2, &["it stays, as others may have put something into it"]);
    assert_eq!(shop.read(&path).await["spec"], door);
    let inner = format!("/api/v1/namespaces/{inner}");
    assert_eq!(shop.read(&format!("{inner}/configmaps/a")).await, Value::Null);
    assert_eq!(shop.read(&inner).await["metadata"]["deletionTimestamp"], Value::Null);
    said(&shop.recover(&["apply", "x", "--force"]).await, 0, &[]);
    assert!(shop.read(&inner).await["metadata"]["deletionTimestamp"].is_string());
    stage.api.call(Method::DELETE, &format!("{DEFINITIONS}/doors.{group}"), None).await;
}
