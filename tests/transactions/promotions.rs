//! `tenure promote` and `demote` in the hooks of replicas: the objects follow the leader, however the last one ended.

use http::Method;
use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use support::{Case, Fault, LEASE, Prepared, Request, Stage, Times, Verbs, cases, found, until};

use super::{Shop, change, deaths::dies, edit, journal_of, said, transaction};
use crate::{
    TENURE,
    beside::Desk,
    collector::{Collector, Manner, Seen, Wire},
};

pub(super) fn all() -> Vec<Case> {
    cases![
        objects_follow_the_leader_through_a_crash_and_are_as_before_after_a_planned_stop,
        a_hook_that_cannot_promote_hands_over_and_leaves_nothing,
        a_command_on_the_lease_of_a_replica_waits_for_an_earlier_holder,
        a_promotion_acts_as_the_account_that_its_file_names,
        what_others_change_in_each_term_does_not_fill_the_journal,
        a_secret_follows_each_leader_and_has_its_value_back_wherever_one_of_them_is_killed,
    ]
}

/// Labels the leader's own object, as a pod is labelled, and names the leader in a shared one.
const PROMOTION: &str = "apiVersion: tenure.dev/v1\nkind: Transaction\nspec:\n  changes:\n  - {target: {apiVersion: v1, kind: ConfigMap, name: \
                         $(POD_NAME)}, type: Patch, content: {metadata: {labels: {role: leader}}}}\n  - {target: {apiVersion: v1, kind: ConfigMap, \
                         name: shared}, type: Patch, content: {data: {leader: $(TENURE_IDENTITY), literal: $$(X)}}}\n";

/// A replica whose hooks promote and demote it by this tenure.
pub(crate) async fn promoted(stage: &Stage, name: &str, tenure: &str) -> Prepared {
    let rule = |resource: &str, verbs: &[&str]| json!({ "apiGroups": [""], "resources": [resource], "verbs": verbs });
    let others = vec![rule("configmaps", &["get", "patch"]), rule("secrets", &["get", "create", "update"])];
    let mut prepared = stage.prepare_with(name, &Verbs { others, ..Verbs::default() }).await;
    let file = stage.directory().join("promotion.yaml");
    std::fs::write(&file, PROMOTION).expect("a file");
    let promote = json!({ "command": [tenure, "promote", "-f", file] });
    prepared.launch.config["hooks"] = json!({ "beforeLead": promote, "beforeFollow": { "command": [tenure, "demote"] } });
    prepared.launch.env.push(("POD_NAME".into(), name.into()));
    prepared.unhurried().set("lease.creationWait", "0s").set("workload.stop.grace", "20s")
}

pub(crate) async fn object(stage: &Stage, name: &str) -> Value {
    let path = format!("/api/v1/namespaces/{}/configmaps/{name}", stage.namespace);
    let (status, mut object) = stage.api.call(Method::GET, &path, None).await;
    assert_eq!(status, 200, "{object}");
    for moving in ["resourceVersion", "managedFields", "uid", "creationTimestamp"] {
        object["metadata"].as_object_mut().expect("metadata").remove(moving);
    }
    object
}

pub(crate) async fn create(stage: &Stage, name: &str) -> Value {
    let path = format!("/api/v1/namespaces/{}/configmaps", stage.namespace);
    stage.api.create(&path, &json!({ "metadata": { "name": name }, "data": { "leader": "none" } })).await;
    object(stage, name).await
}

/// Waits until `name` alone is labelled, and the shared object names it.
pub(crate) async fn leads(stage: &Stage, name: &str, other: &str) {
    let labelled = |object: &Value| object["metadata"]["labels"]["role"] == "leader";
    let promoted = async || {
        let (mine, theirs, shared) = (object(stage, name).await, object(stage, other).await, object(stage, "shared").await);
        let named = shared["data"]["leader"].as_str().is_some_and(|leader| leader.starts_with(&format!("{name}_")));
        (labelled(&mine) && !labelled(&theirs) && named).then_some(shared)
    };
    assert_eq!(found(&format!("{name} is promoted"), promoted).await["data"]["literal"], "$(X)");
}

async fn objects_follow_the_leader_through_a_crash_and_are_as_before_after_a_planned_stop(stage: Stage) {
    let mut before = Vec::new();
    for name in ["a", "b", "shared"] {
        before.push(create(&stage, name).await);
    }
    let mut collector = Collector::start(Wire::Http, Manner::Obliging);
    let mut a = promoted(&stage, "a", TENURE).await;
    a.launch.env.extend(collector.environment());
    let a = a.start();
    stage.witness.start("a", 0).await;
    leads(&stage, "a", "b").await;
    let is_part = |seen: &[Seen]| {
        let is_whole = |span: &Seen, whole: &Seen| whole.name == "transition" && span.is_part_of(whole);
        seen.iter().any(|span| span.name == "transaction" && seen.iter().any(|whole| is_whole(span, whole)))
    };
    until("the promotion is a part of its transition", async || is_part(&collector.seen())).await;
    let b = promoted(&stage, "b", TENURE).await.start();
    b.said("the Lease was read").await;
    // As GitOps would: the value is put back, the mark stays.
    let path = format!("/api/v1/namespaces/{}/configmaps/shared", stage.namespace);
    edit(&stage, &path, |shared| shared["data"] = json!({ "leader": "none" })).await;

    kill(a.init().await, Signal::SIGKILL).expect("init lives");
    a.exit().await;
    stage.api.call(Method::DELETE, &stage.lease.path(), None).await;

    stage.witness.start("b", 0).await;
    leads(&stage, "b", "a").await;
    let desk = Desk::of(&stage).await;
    let plan = desk.ends(&["recover", "plan", "--lease", LEASE]).await;
    assert!(plan.code == 1 && plan.out.contains("metadata.labels"), "{plan:?}");
    b.stop().await;
    assert_eq!(desk.ends(&["recover", "apply", "--lease", LEASE]).await.code, 0, "nothing is left");
    let mut after = Vec::new();
    for name in ["a", "b", "shared"] {
        after.push(object(&stage, name).await);
    }
    assert_eq!(after, before);
}

async fn a_hook_that_cannot_promote_hands_over_and_leaves_nothing(stage: Stage) {
    for name in ["a", "b"] {
        create(&stage, name).await;
    }
    let (before, shared) = (object(&stage, "a").await, create(&stage, "shared").await);
    let a = promoted(&stage, "a", TENURE).await;
    let changes = |name: &str| {
        let path = format!("/configmaps/{name}?fieldManager=tenure");
        move |request: &Request| request.method == Method::PATCH && request.uri.ends_with(&path)
    };
    a.proxy.on(changes("shared"), Times::Always, Fault::refused(422, "Invalid"));
    let a = a.start();

    a.said("hook beforeLead: tenure: undone: ConfigMap ").await;
    a.said("hook-failed").await;

    let is_own = changes("a");
    let own: Vec<_> = a.proxy.log.all().into_iter().filter(|e| is_own(&e.request)).collect();
    assert_eq!(own[0].request.body["metadata"]["labels"]["role"], "leader", "it was changed");
    assert_eq!((object(&stage, "a").await, object(&stage, "shared").await), (before, shared), "and put back");
    assert_eq!(stage.witness.starts("a"), 0);
    let _b = promoted(&stage, "b", TENURE).await.start();
    stage.witness.start("b", 0).await;
    leads(&stage, "b", "a").await;
}

async fn a_command_on_the_lease_of_a_replica_waits_for_an_earlier_holder(stage: Stage) {
    stage.lease.create(json!({ "holderIdentity": "", "leaseDurationSeconds": 15 })).await;
    let desk = Desk::of(&stage).await;

    let running = desk.starts(&["recover", "apply", "--lease", "main"]);

    let first = desk.proxy.log.first("a write", |e| e.request.is_write()).await;
    assert!(first.request.is_nobody(), "{first:?}");
    kill(running.pid, Signal::SIGKILL).expect("it lives");
}

async fn a_promotion_acts_as_the_account_that_its_file_names(stage: Stage) {
    let a = promoted(&stage, "a", TENURE).await;
    let file = stage.directory().join("promotion.yaml");
    std::fs::write(&file, PROMOTION.replace("spec:\n", "spec:\n  serviceAccountName: somebody\n")).expect("a file");

    let a = a.start();

    a.said("cannot impersonate").await;
    a.said("hook-failed").await;
}

/// A file of a promotion with this change.
fn promotion(shop: &Shop<'_>, name: &str, change: &str) -> String {
    let text = transaction("x", &[change.to_owned()]).replace("metadata: {name: x}\n", "");
    shop.file(&format!("{name}.yaml"), &text).to_str().expect("text").to_owned()
}

async fn a_secret_follows_each_leader_and_has_its_value_back_wherever_one_of_them_is_killed(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let path = shop.objects[2].clone();
    let before = shop.read(&path).await;
    let owners = shop.managers(&path).await;
    let files = ["one", "two", "three"].map(|value| {
        let values = format!("type: Patch, content: {{stringData: {{key: {value}, leader: {value}}}}}");
        promotion(&shop, value, &change("v1 Secret old-key", &values))
    });
    let term = ["lock", "leader", "--set", "lease.creationWait=0s", "--", TENURE];
    let promotes = |leader: usize| [&term[..], &["promote", "-f", &files[leader]]].concat();
    for request in 1.. {
        said(&shop.desk.ends(&promotes(0)).await, 0, &["committed: 1 change"]);

        let died = dies(&shop, &promotes(1), request, Fault::lost_reply()).await;
        let third = shop.desk.ends(&promotes(2)).await;
        let data = shop.read(&path).await["data"].take();
        let demoted = shop.desk.ends(&[&term[..], &["demote"]].concat()).await;

        said(&third, 0, &["committed: 1 change"]);
        assert_eq!(data, json!({ "key": "dGhyZWU=", "leader": "dGhyZWU=" }), "killed after {request}");
        said(&demoted, 0, &["undone: 1 change"]);
        assert_eq!(shop.read(&path).await, before, "killed after {request}");
        assert_eq!(shop.managers(&path).await, owners, "killed after {request}");
        if !died {
            assert!(request > 9, "only {request} requests");
            return;
        }
    }
}

async fn what_others_change_in_each_term_does_not_fill_the_journal(stage: Stage) {
    let shop = Shop::open(&stage).await;
    let promote = async |leader: u32| {
        let content = format!("metadata: {{labels: {{leader: 'number-{leader}'}}}}, spec: {{replicas: 3}}");
        let file =
            promotion(&shop, "promotion", &change("apps/v1 Deployment shop", &format!("type: Patch, content: {{{content}}}")));
        let line = ["lock", "p", "--", TENURE, "promote", "-f", &file];
        said(&shop.desk.ends(&line).await, 0, &["committed: 1 change"]);
    };
    let before = shop.read(&shop.objects[1]).await;

    for replicas in 11..15 {
        promote(replicas).await;
        edit(&stage, &shop.objects[1], |deployment| deployment["spec"]["replicas"] = json!(replicas)).await;
    }

    promote(15).await;
    let path = format!("/api/v1/namespaces/{}/secrets/lock-p-journal", stage.namespace);
    let journal: Value = serde_json::from_str(&journal_of(&stage.api.call(Method::GET, &path, None).await.1)).expect("JSON");
    // The one that made the map of labels, and the last.
    assert_eq!(journal["entries"].as_array().map(Vec::len), Some(2), "{journal}");
    said(&shop.desk.ends(&["lock", "p", "--", TENURE, "demote"]).await, 0, &["undone: 2 changes"]);
    let mut after = shop.read(&shop.objects[1]).await;
    assert_eq!(after["spec"]["replicas"].take(), 14);
    assert_eq!(after["metadata"]["labels"], before["metadata"]["labels"], "as before all promotions");
}
