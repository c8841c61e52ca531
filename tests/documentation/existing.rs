//! Checks that a real API server takes the manifests of the pages, and that tenure takes what their containers tell it.

use std::{fs, process::Command};

use serde_json::{Value, json};
use support::{Ended as _, Namespace, Stage, fences, grace};

use crate::TENURE;

const CLUSTERS: &str = include_str!("../../docs/several-clusters.md");
const LOCKS: &str = include_str!("../../docs/locks.md");

/// Both kinds, on top of what runs already.
pub(super) fn a_workload_that_exists_gets_tenure(stage: &Stage) {
    for kind in ["Deployment", "StatefulSet"] {
        let cluster = Namespace::restricted(stage);
        let directory = stage.directory().join(format!("existing-{kind}"));
        fs::create_dir(&directory).unwrap();
        for name in ["before.yaml", "tenure.yaml", "deployment.yaml", "kustomization.yaml"] {
            let mut text = fences::pasted(name).replace("kind: Deployment", &format!("kind: {kind}"));
            if kind == "StatefulSet" {
                text = text.lines().filter(|line| !line.contains("strategy:")).map(|line| format!("{line}\n")).collect();
            }
            fs::write(directory.join(name), text).unwrap();
        }
        cluster.kubectl(&["apply", "-f", directory.join("before.yaml").to_str().unwrap()]).success();

        let applied = cluster.kubectl(&["apply", "-k", directory.to_str().unwrap()]).success();

        assert_eq!(String::from_utf8_lossy(&applied.stderr), "", "{kind}: a warning");
        let workload = cluster.get(&format!("{kind}/shop-billing"));
        let template = &workload["spec"]["template"];
        cluster.admits(template);
        let container = &template["spec"]["containers"][0];
        assert_eq!(container["command"], json!(["/opt/tenure/tenure", "--"]));
        assert_eq!(container["livenessProbe"]["initialDelaySeconds"], Value::Null, "{kind}: tenure answers at once");
        assert_eq!(container["readinessProbe"]["tcpSocket"], Value::Null, "{kind}: a standby does not listen");
        assert!(container["env"].to_string().contains("LOG_LEVEL"), "{kind}: what was there is left");
        assert!(granted(&template["spec"]) >= needed(container), "{kind}: the grace period is too short");
        let account = cluster.account("shop-billing", "update", "shop-billing");
        account.assert_may(&["get", "watch"], "leases.coordination.k8s.io/shop-billing", true);
        account.assert_may(&["create", "delete"], "leases.coordination.k8s.io/shop-billing", false);
    }
}

pub(super) fn a_job_that_exists_gets_tenure(stage: &Stage) {
    let cluster = Namespace::restricted(stage);
    cluster.kubectl(&["create", "serviceaccount", "billing-import"]).success();
    let mut before: Value = serde_saphyr::from_str(fences::file(LOCKS, "retry.yaml")).unwrap();
    let container = &mut before["spec"]["template"]["spec"]["containers"][0];
    *container = json!({ "name": "import", "image": "import", "securityContext": container["securityContext"] });

    let template = patched(stage, &cluster, "job/billing-import", before.to_string().as_bytes(), &fences::pasted("job.yaml"));

    let container = &template["spec"]["containers"][0];
    assert!(granted(&template["spec"]) >= needed(container), "the grace period is too short");
    let leases = fences::pasted("tenure.yaml").replace("resourceNames: [shop-billing]", "resourceNames: [lock-billing-import]");
    let leases = leases.replace("{ name: shop-billing }", "{ name: lock-billing-import }");
    let leases = leases.replace("ServiceAccount, name: shop-billing", "ServiceAccount, name: billing-import");
    cluster.feed(&["apply", "-f", "-"], &leases).success();
    let kubeconfig = cluster.account("billing-import", "update", "lock-billing-import").kubeconfig();
    let words = container["command"].as_array().unwrap().iter().skip(1).map(|word| word.as_str().unwrap());
    let mut lock = Command::new(TENURE);
    lock.args(words).args(["echo", "imports"]).env("TENURE_LEASE__CREATION_WAIT", "0s").env("KUBECONFIG", kubeconfig);
    lock.env("TENURE_LEASE__NAMESPACE", &cluster.name);
    assert_eq!(lock.output().unwrap().success().stdout, b"imports\n");
}

pub(super) fn a_job_is_tried_again_on_the_codes_of_a_lock(stage: &Stage) {
    let cluster = Namespace::restricted(stage);
    cluster.kubectl(&["create", "serviceaccount", "billing-import"]).success();

    let applied = cluster.feed(&["apply", "-f", "-"], &fences::file(LOCKS, "retry.yaml")).success();

    assert_eq!(String::from_utf8_lossy(&applied.stderr), "", "a warning");
    let template = cluster.get("job/billing-import")["spec"]["template"].take();
    cluster.admits(&template);
    let rule = json!({ "action": "Restart", "exitCodes": { "operator": "In", "values": [75, 76] } });
    assert_eq!(template["spec"]["containers"][0]["restartPolicyRules"], json!([rule]));
}

/// This server is the third cluster, and the one of the replicas too.
pub(super) fn replicas_use_a_lease_in_another_cluster(stage: &Stage) {
    let cluster = Namespace::restricted(stage);
    let rendered = cluster.kubectl(&["kustomize", concat!(env!("CARGO_MANIFEST_DIR"), "/deploy")]).success().stdout;

    let template = patched(stage, &cluster, "deployment/tenure", &rendered, fences::file(CLUSTERS, "replicas.yaml"));

    let container = &template["spec"]["containers"][0];
    assert!(granted(&template["spec"]) >= needed(container), "the grace period is too short");
    let places = template["spec"]["initContainers"].as_array().unwrap().iter().chain([container]);
    assert!(places.clone().all(|one| one["env"].to_string().contains("/etc/third-cluster/kubeconfig")), "{template}");

    let third = Namespace::restricted(stage);
    third.feed(&["apply", "-f", "-"], &fences::file(CLUSTERS, "third.yaml")).success();
    let kubeconfig = third.account("tenure", "update", "tenure").kubeconfig();
    let mut replica = Command::new(TENURE);
    replica.envs(variables(container)).env("KUBECONFIG", kubeconfig).env("TENURE_LEASE__NAMESPACE", &third.name);
    replica.args(["--set=http.listen=null", "--set=lease.witness=null", "--set=lease.creationWait=0s", "--", "echo", "leads"]);
    assert_eq!(replica.output().unwrap().success().stdout, b"leads\n");
}

/// The pods of this workload, once manifests have been applied with this patch: without a warning, and as the policy of pods admits.
fn patched(stage: &Stage, cluster: &Namespace, workload: &str, manifests: &[u8], patch: &str) -> Value {
    let directory = stage.directory().join("patched");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("before.yaml"), manifests).unwrap();
    fs::write(directory.join("patch.yaml"), patch).unwrap();
    fs::write(directory.join("kustomization.yaml"), "resources: [before.yaml]\npatches: [{ path: patch.yaml }]\n").unwrap();
    let applied = cluster.kubectl(&["apply", "-k", directory.to_str().unwrap()]).success();
    assert_eq!(String::from_utf8_lossy(&applied.stderr), "", "a warning");
    let template = cluster.get(workload)["spec"]["template"].take();
    cluster.admits(&template);
    template
}

fn granted(pod: &Value) -> u64 {
    pod["terminationGracePeriodSeconds"].as_u64().unwrap()
}

/// The seconds that `tenure check` asks for with the variables of this container.
fn needed(container: &Value) -> u64 {
    let mut check = Command::new(TENURE);
    check.envs(variables(container));
    let said = check.args(["check", "--offline", "--lease=any", "--", "true"]).output().unwrap().success().stdout;
    grace(&String::from_utf8(said).unwrap())
}

/// The variables of tenure that have a value, not a reference.
fn variables(container: &Value) -> impl Iterator<Item = (&str, &str)> {
    let variables = container["env"].as_array().unwrap().iter();
    let pairs = variables.filter_map(|variable| Some((variable["name"].as_str()?, variable["value"].as_str()?)));
    pairs.filter(|(name, _)| name.starts_with("TENURE_"))
}
