//! `tenure apply` and `recover` on a real kube-apiserver: all changes are made, or everything is as before, whoever dies in between.

mod deaths;
mod failovers;
mod faults;
mod input;
mod kinds;
mod objects;
mod others;
mod policies;
pub(crate) mod promotions;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Child,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::Method;
use serde_json::{Value, json};
use support::{Case, Exchange, Fault, Request, Stage, Times, Valve, cases};
use tokio::task::spawn_blocking;

use crate::{
    beside::{Desk, Ended, Running},
    collector::{Collector, Manner, Seen, Wire},
};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/transactions/example.yaml");

pub(crate) fn all() -> Vec<Case> {
    let cases = cases![
        a_file_of_janus_is_committed_as_it_stands_with_each_request_as_promised,
        a_change_that_is_refused_leaves_everything_as_before,
        a_dry_run_shows_the_difference_and_writes_nothing,
        objects_that_no_file_can_change_are_refused_before_anything_is_written,
        whoever_may_not_undo_a_deletion_changes_nothing,
        an_undo_acts_as_whoever_began_unless_it_names_another,
        what_was_done_reaches_the_collector_in_the_trace_of_its_term,
    ];
    let others = [
        deaths::all(),
        failovers::all(),
        faults::all(),
        input::all(),
        kinds::all(),
        objects::all(),
        others::all(),
        policies::all(),
        promotions::all(),
    ];
    cases.into_iter().chain(others.into_iter().flatten()).collect()
}

/// A namespace with the objects of the example, and a desk from which transactions are applied.
struct Shop<'a> {
    stage: &'a Stage,
    desk: Desk<'a>,
    /// The paths of its objects.
    objects: [String; 3],
}

impl<'a> Shop<'a> {
    async fn open(stage: &'a Stage) -> Self {
        let core = format!("/api/v1/namespaces/{}", stage.namespace);
        let apps = format!("/apis/apps/v1/namespaces/{}", stage.namespace);
        let objects =
            [format!("{core}/configmaps/settings"), format!("{apps}/deployments/shop"), format!("{core}/secrets/old-key")];
        let shop = Self { stage, desk: Desk::of(stage).await, objects };
        shop.releaser().await;
        shop.stock().await;
        shop
    }

    /// The account of the example, which may do what that needs.
    async fn releaser(&self) {
        let rule = |group: &str, resource: &str, verbs: &[&str]| json!({ "apiGroups": [group], "resources": [resource], "verbs": verbs });
        let rules = json!([
            rule("", "configmaps", &["get", "patch"]),
            rule("apps", "deployments", &["get", "patch"]),
            rule("", "secrets", &["get", "delete", "create", "patch"]),
        ]);
        self.stage.api.grant(&self.stage.namespace, "releaser", &rules).await;
        self.releaser_may("create", true).await;
    }

    /// Waits until the account of the example may do this to Secrets, or may not.
    async fn releaser_may(&self, verb: &str, allowed: bool) {
        let secrets = json!({ "namespace": self.stage.namespace, "verb": verb, "resource": "secrets" });
        self.stage.api.decides(&self.stage.namespace, "releaser", &secrets, allowed).await;
    }

    /// Makes the objects anew, and forgets all transactions.
    async fn stock(&self) {
        let journal = format!("/api/v1/namespaces/{}/secrets/txn-release-2-journal", self.stage.namespace);
        for path in self.objects.iter().chain([&journal]) {
            self.stage.api.call(Method::DELETE, path, None).await;
        }
        let container =
            |name: &str| json!({ "name": name, "image": format!("{name}:1.0"), "env": [{ "name": "A", "value": "b" }] });
        let labels = json!({ "app": "shop" });
        let template =
            json!({ "metadata": { "labels": labels }, "spec": { "containers": [container("web"), container("log")] } });
        for (path, object) in self.objects.iter().zip([
            json!({ "metadata": { "name": "settings" }, "data": { "version": "1.0", "kept": "x" } }),
            json!({ "metadata": { "name": "shop" }, "spec": { "replicas": 1, "selector": { "matchLabels": labels }, "template": template } }),
            json!({ "metadata": { "name": "old-key", "labels": labels }, "stringData": { "key": SENTINEL } }),
        ]) {
            let (collection, _) = path.rsplit_once('/').expect("a path");
            self.stage.api.create(collection, &object).await;
        }
    }

    /// Makes an object of the core of the API, of this name. Returns its path.
    async fn make(&self, resource: &str, name: &str, mut object: Value) -> String {
        let collection = format!("/api/v1/namespaces/{}/{resource}", self.stage.namespace);
        object["metadata"]["name"] = json!(name);
        self.stage.api.create(&collection, &object).await;
        format!("{collection}/{name}")
    }

    /// The objects, without what moves with every write.
    async fn seen(&self) -> Vec<Value> {
        let mut seen = Vec::new();
        for path in &self.objects {
            seen.push(self.read(path).await);
        }
        seen
    }

    async fn read(&self, path: &str) -> Value {
        let (status, mut object) = self.stage.api.call(Method::GET, path, None).await;
        if status == 404 {
            return Value::Null;
        }
        object.as_object_mut().expect("an object").remove("status");
        let metadata = object["metadata"].as_object_mut().expect("metadata");
        for moving in ["resourceVersion", "generation", "managedFields", "uid", "creationTimestamp"] {
            metadata.remove(moving);
        }
        object
    }

    /// The managers of an object's fields.
    async fn managers(&self, path: &str) -> Vec<Value> {
        let (_, object) = self.stage.api.call(Method::GET, path, None).await;
        object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default()
    }

    async fn journal(&self, name: &str) -> Option<Value> {
        let path = format!("/api/v1/namespaces/{}/secrets/txn-{name}-journal", self.stage.namespace);
        let (status, secret) = self.stage.api.call(Method::GET, &path, None).await;
        (status == 200).then(|| serde_json::from_str(&journal_of(&secret)).expect("JSON"))
    }

    /// A file of this text.
    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.stage.directory().join(name);
        fs::write(&path, text).expect("a file");
        path
    }

    async fn apply(&self, file: impl AsRef<Path>, options: &[&str]) -> Ended {
        let file = file.as_ref().to_str().expect("text");
        self.desk.ends(&[&["apply", "-f", file], options].concat()).await
    }

    /// Runs a command with a collector.
    async fn observed(&self, collector: &Collector, line: &[&str]) -> Ended {
        let mut command = self.desk.command(line);
        Self::end(command.envs(collector.environment()).spawn().expect("it starts")).await
    }

    async fn end(child: Child) -> Ended {
        let output = spawn_blocking(move || child.wait_with_output()).await.expect("no panic inside").expect("a child");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        Ended { code: output.status.code().expect("a code"), out: text(output.stdout), err: text(output.stderr) }
    }

    /// A file of the Transaction x with these changes.
    fn changes(&self, changes: &[String]) -> PathBuf {
        self.file("x.yaml", &transaction("x", changes))
    }

    /// Applies the example, whose change of such an object arrives only once the valve is open.
    async fn halted(&self, object: &'static str) -> (Valve, Running) {
        self.halts(EXAMPLE, object).await
    }

    /// The same with another file.
    async fn halts(&self, file: impl AsRef<Path>, object: &'static str) -> (Valve, Running) {
        let valve = Valve::closed();
        let is_it = move |request: &Request| is_change(request) && request.uri.contains(object);
        self.desk.proxy.on(is_it, Times::Only(1), Fault::late_request(&valve));
        let sent = self.desk.proxy.log.count(|e| is_it(&e.request));
        let lock = self.desk.starts(&["apply", "-f", file.as_ref().to_str().expect("text")]);
        self.desk.proxy.log.nth(sent, "the change", |e| is_it(&e.request)).await;
        (valve, lock)
    }

    async fn recover(&self, line: &[&str]) -> Ended {
        self.desk.ends(&[&["recover"], line].concat()).await
    }

    /// The exchanges of drivers so far.
    fn exchanges(&self) -> Vec<Exchange> {
        self.desk.proxy.log.all().into_iter().filter(|exchange| is_of_driver(&exchange.request)).collect()
    }
}

/// A Transaction of this name with these changes.
fn transaction(name: &str, changes: &[String]) -> String {
    let changes: String = changes.iter().map(|change| format!("  - {change}\n")).collect();
    format!("apiVersion: tenure.dev/v1\nkind: Transaction\nmetadata: {{name: {name}}}\nspec:\n  changes:\n{changes}")
}

/// The change of this object, such as `v1 ConfigMap a`; `how` is the rest of it.
fn change(target: &str, how: &str) -> String {
    let [version, kind, name]: [&str; 3] = target.splitn(3, ' ').collect::<Vec<_>>().try_into().expect("an object");
    format!("{{target: {{apiVersion: {version}, kind: {kind}, name: {name}}}, {how}}}")
}

/// The change of the shop's ConfigMap to this version.
fn settings(version: u32) -> String {
    change("v1 ConfigMap settings", &format!("type: Patch, content: {{data: {{version: '{version}'}}}}"))
}

/// Changes an object as a person would, who tries again after a conflict.
async fn edit(stage: &Stage, path: &str, change: impl Fn(&mut Value)) {
    loop {
        let (_, mut object) = stage.api.call(Method::GET, path, None).await;
        change(&mut object);
        match stage.api.call(Method::PUT, path, Some(&object)).await {
            (200, _) => return,
            (409, _) => {}
            (status, body) => panic!("{status} {body}"),
        }
    }
}

/// The containers of a Deployment.
fn containers(deployment: &mut Value) -> &mut Value {
    &mut deployment["spec"]["template"]["spec"]["containers"]
}

/// The text of the journal in a Secret.
fn journal_of(secret: &Value) -> String {
    let text = BASE64_STANDARD.decode(secret["data"]["journal"].as_str().unwrap_or_default()).expect("base64");
    String::from_utf8(text).expect("text")
}

/// A value that nothing may show.
const SENTINEL: &str = "sentinel-5a17";
/// The same in base64, without the end, which depends on what follows.
const ENCODED: &str = "c2VudGluZWwtNWEx";

/// Tells whether a driver sends it: not the lock, and not discovery.
fn is_of_driver(request: &Request) -> bool {
    let is_object = request.uri.contains("/namespaces") || request.uri.contains("selfsubject");
    is_object && !request.uri.contains("/leases")
}

/// Counts the requests of drivers: true for the one of this number.
fn is_number(number: usize) -> impl Fn(&Request) -> bool + Send + 'static {
    let count = Arc::<AtomicUsize>::default();
    move |request| is_of_driver(request) && count.fetch_add(1, Relaxed) + 1 == number
}

fn is_dry(request: &Request) -> bool {
    request.uri.contains("dryRun=All") || request.body["dryRun"] == json!(["All"])
}

/// Tells whether it changes an object for real.
fn is_change(request: &Request) -> bool {
    is_of_driver(request)
        && [Method::PATCH, Method::POST, Method::DELETE].contains(&request.method)
        && !is_dry(request)
        && !request.uri.contains("-journal")
        && !request.uri.ends_with("/secrets")
        && !request.uri.contains("selfsubject")
}

fn said(ended: &Ended, code: i32, words: &[&str]) {
    assert_eq!(ended.code, code, "{ended:?}");
    for word in words {
        assert!(ended.err.contains(word) || ended.out.contains(word), "{word:?} in {ended:?}");
    }
    assert!(!shows(&ended.err) && !shows(&ended.out), "{ended:?}");
}

/// Tells whether a text shows the value that nothing may show.
fn shows(text: &str) -> bool {
    text.contains(SENTINEL) || text.contains(ENCODED)
}

/// The example's objects once it is committed.
fn wanted(mut seen: Vec<Value>) -> Vec<Value> {
    seen[0]["data"]["version"] = json!("2.0");
    containers(&mut seen[1])[0]["image"] = json!("shop:2.0");
    seen[2] = Value::Null;
    seen
}

async fn a_file_of_janus_is_committed_as_it_stands_with_each_request_as_promised(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let before = shop.seen().await;

    let ended = shop.apply(EXAMPLE, &[]).await;

    said(&ended, 0, &["spec.lockTimeout is ignored", "committed: 3 changes", "Deployment/shop"]);
    assert!(!ended.err.contains("creationWait"), "{ended:?}");
    assert_eq!(shop.seen().await, wanted(before), "the other container and its environment stay");
    let journal = shop.journal("release-2").await.expect("a journal");
    assert_eq!((&journal["phase"], &journal["kind"], &journal["claim"]), (&json!("committed"), &json!("transaction"), &json!(1)));
    let exchanges = shop.exchanges();
    let lines: Vec<_> = exchanges.iter().map(|e| format!("{} {}", e.request.method, e.request.uri)).collect();
    // The journal read, made, and stored twice; per object a read, its dry runs and a change; two marks taken off; two reviews.
    assert_eq!(exchanges.len(), 19, "{lines:#?}");
    let dry: Vec<_> = exchanges.iter().filter(|e| is_dry(&e.request)).map(|e| e.request.clone()).collect();
    let [shape, settings, shape_too, deployment, key] = &dry[..] else { panic!("{lines:#?}") };
    for plan in [shape, shape_too] {
        assert!(plan.uri.ends_with("?dryRun=All&fieldManager=tenure&force=true"), "{plan:?}");
        assert!(plan.body["metadata"]["resourceVersion"].is_string());
    }
    for plan in [settings, deployment] {
        assert!(plan.uri.ends_with("?dryRun=All&fieldManager=tenure&fieldValidation=Strict"), "{plan:?}");
        assert!(
            plan.body["metadata"]["resourceVersion"].is_string()
                && plan.body["metadata"]["annotations"]["tenure.dev/change"].is_string()
        );
    }
    let preconditions = &key.body["preconditions"];
    assert!(preconditions["uid"].is_string() && preconditions["resourceVersion"].is_string(), "{key:?}");
    let stores = |request: &Request| request.method == Method::PUT && request.uri.ends_with("-journal");
    let prepared = exchanges.iter().position(|e| stores(&e.request)).expect("a prepared journal");
    let first = exchanges.iter().position(|e| is_change(&e.request)).expect("a change");
    assert!(prepared < first, "{lines:#?}");
    for change in exchanges.iter().filter(|e| is_change(&e.request) && e.request.method == Method::PATCH) {
        assert!(change.request.uri.ends_with("?fieldManager=tenure"), "{change:?}");
        assert!(change.request.body["metadata"]["resourceVersion"].is_string(), "{change:?}");
    }

    let again = shop.apply(EXAMPLE, &["-o", "json"]).await;
    said(&again, 0, &["committed already"]);
    assert_eq!(again.json().as_array().map(Vec::len), Some(3));
    let planned = shop.apply(EXAMPLE, &["--dry-run", "-o", "json"]).await;
    said(&planned, 0, &["committed already"]);
    assert_eq!(planned.json(), json!([]));
}

async fn a_change_that_is_refused_leaves_everything_as_before(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let before = shop.seen().await;
    for (at, path) in shop.objects.clone().into_iter().enumerate() {
        let is_it = move |request: &Request| is_change(request) && request.uri.starts_with(&path);
        shop.desk.proxy.on(is_it, Times::Only(1), Fault::refused(422, "Invalid"));

        let ended = shop.apply(EXAMPLE, &[]).await;

        said(&ended, 1, &["undone", "422"]);
        assert_eq!(shop.seen().await, before, "change {at}");
        assert_eq!(shop.journal("release-2").await.expect("a journal")["phase"], "undone");
        shop.desk.proxy.clear();
    }
    said(&shop.apply(EXAMPLE, &[]).await, 0, &["committed"]);
    assert_eq!(shop.seen().await, wanted(before.clone()));

    said(&shop.recover(&["plan", "release-2"]).await, 1, &["data.version", "Secret/old-key"]);
    said(&shop.recover(&["apply", "release-2"]).await, 0, &["undone: 3 changes"]);

    assert_eq!(shop.seen().await, before, "the deleted Secret too");
    said(&shop.recover(&["plan", "release-2"]).await, 0, &["nothing to undo"]);
    said(&shop.recover(&["apply", "release-2"]).await, 0, &[]);
}

async fn a_dry_run_shows_the_difference_and_writes_nothing(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let before = shop.seen().await;
    let key = change("v1 Secret old-key", "type: Patch, content: {stringData: {key: sentinel-5a17-new}}");
    let file = shop.changes(&[key, settings(3).replace("Patch", "Update")]);

    let ended = shop.apply(&file, &["--dry-run"]).await;

    said(&ended, 0, &["data.key", "(not shown)", "data.version", "\"1.0\"", "\"3\"", "data.kept"]);
    said(&shop.apply(EXAMPLE, &["--dry-run", "-o", "json"]).await, 0, &["\"change\": \"delete\""]);
    assert_eq!(shop.seen().await, before);
    assert!(
        shop.exchanges()
            .iter()
            .all(|e| is_dry(&e.request) || e.request.method == Method::GET || e.request.uri.contains("selfsubject"))
    );
    assert!(stage.audit_of("txn-x").is_empty(), "no Lease either");

    said(&shop.apply(&file, &[]).await, 0, &["committed"]);
    said(&shop.recover(&["plan", "x"]).await, 1, &["(not shown)", "data.kept"]);
    let settings = shop.read(&shop.objects[0]).await;
    assert_eq!(settings["data"], json!({ "version": "3" }), "an update is all of it");
    said(&shop.recover(&["apply", "x"]).await, 0, &[]);
    assert_eq!(shop.seen().await, before);
}

async fn objects_that_no_file_can_change_are_refused_before_anything_is_written(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let own = format!("v1 Secret txn-x-journal, namespace: {}", stage.namespace);
    let named = format!("v1 Secret a, namespace: {}", stage.namespace);
    for (targets, code, words) in [
        (&["no.such/v1 Thing a"][..], 1, "does not serve Thing in no.such/v1: apply its CustomResourceDefinition first"),
        (&["apps/v1 Thing a"], 1, "does not serve Thing in apps/v1"),
        (&["apps/v1 Deploymet a"], 78, "there is no Deploymet in apps/v1: did you mean Deployment?"),
        (&["v1 Binding a"], 78, "does not let anybody get a Binding"),
        (&["autoscaling/v1 Scale a"], 1, "does not serve Scale"),
        (&[&own], 78, "this is the journal of the transaction"),
        (&["v1 Secret a", &named], 78, "change 2 (Secret/a): this object is a target twice"),
    ] {
        let changes: Vec<_> = targets.iter().map(|target| change(target, "type: Patch, content: {spec: {a: b}}")).collect();
        said(&shop.apply(shop.changes(&changes), &[]).await, code, &["x.yaml, document", words]);
    }
    assert!(shop.journal("x").await.is_none());
}

async fn whoever_may_not_undo_a_deletion_changes_nothing(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let before = shop.seen().await;
    let role = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles/releaser", stage.namespace);
    edit(&stage, &role, |role| role["rules"][2]["verbs"] = json!(["get", "delete"])).await;
    shop.releaser_may("create", false).await;

    let ended = shop.apply(EXAMPLE, &[]).await;

    said(&ended, 77, &["old-key"]);
    assert_eq!(shop.seen().await, before);
}

async fn an_undo_acts_as_whoever_began_unless_it_names_another(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let before = shop.seen().await;
    said(&shop.apply(EXAMPLE, &[]).await, 0, &["committed"]);
    let role = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles/releaser", stage.namespace);
    stage.api.grant(&stage.namespace, "other", &stage.api.call(Method::GET, &role, None).await.1["rules"]).await;
    edit(&stage, &role, |role| role["rules"][2]["verbs"] = json!(["get"])).await;
    shop.releaser_may("create", false).await;

    let as_before = shop.recover(&["apply", "release-2"]).await;
    let other = format!("system:serviceaccount:{}:other", stage.namespace);
    let as_another = shop.recover(&["apply", "release-2", "--as", &other]).await;

    said(&as_before, 2, &["old-key", "403"]);
    said(&as_another, 0, &["/old-key: undone"]);
    assert_eq!(shop.seen().await, before);
}

async fn what_was_done_reaches_the_collector_in_the_trace_of_its_term(stage: Stage) {
    let mut collector = Collector::start(Wire::Http, Manner::Obliging);
    let shop = Shop::open(&stage).await;
    let is_deletion = |request: &Request| is_change(request) && request.method == Method::DELETE;
    shop.desk.proxy.on(is_deletion, Times::Only(1), Fault::refused(422, "Invalid"));

    said(&shop.observed(&collector, &["apply", "-f", EXAMPLE]).await, 1, &["undone"]);
    said(&shop.observed(&collector, &["apply", "-f", EXAMPLE]).await, 0, &["committed"]);
    said(&shop.observed(&collector, &["recover", "forget", "release-2"]).await, 0, &["forgotten"]);

    let seen = collector.seen();
    let told = |outcome: &str| {
        let is_whole = |span: &&Seen| span.name == "transaction" && span.attributes["tenure.outcome"] == outcome;
        let whole = seen.iter().find(is_whole).unwrap_or_else(|| panic!("{outcome}: {seen:#?}"));
        assert!(seen.iter().any(|span| span.name == "transition" && whole.is_part_of(span)), "{seen:#?}");
        assert_eq!(whole.attributes["tenure.lease"], "txn-release-2");
        let fact = |span: &Seen, key: &str| span.attributes.get(key).cloned().unwrap_or_default();
        let told = |span: &Seen| format!("{} {} {}", span.name, fact(span, "tenure.change"), fact(span, "tenure.outcome"));
        seen.iter().filter(|span| span.is_part_of(whole)).map(told).collect::<Vec<_>>()
    };
    let (patched, restored) = ("change patch changed", "undo patch undone");
    assert_eq!(told("undone"), ["plan  ", patched, patched, "change delete failed", restored, restored]);
    assert_eq!(told("committed"), ["plan  ", patched, patched, "change delete changed"]);
    assert!(told("forgotten").is_empty());
    let metrics = collector.metrics();
    for name in ["tenure.transactions", "tenure.transaction", "tenure.transactions.active", "tenure.changes"] {
        assert!(metrics.contains(name), "{name} is not in {metrics:?}");
    }
    assert!(!shows(&format!("{seen:?}")));
}
