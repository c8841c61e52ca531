//! deploy/ against a real API server: it is admitted, grants exactly the permissions that tenure needs, and can be repeated.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::{Mutex, PoisonError},
};

use serde_json::{Value, json};
use support::{Case, Ended as _, Namespace, cases, programs, server::VALIDATING, wait_until};

use crate::TENURE;

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy");

const PRUNE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/prune");

const INJECT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/deploy/inject");

const COMPONENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/deploy/components");

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/examples");

mod one_label;

pub(crate) use one_label::all as of_one_label;

pub(crate) fn all() -> Vec<Case> {
    let mut cases = cases![restricted:
        its_pods_are_admitted_where_pod_security_is_restricted,
        the_account_may_do_to_its_lease_what_tenure_needs_and_nothing_else,
        a_second_apply_leaves_the_holder_alone,
        a_prefix_reaches_every_place_where_the_lease_is_named,
        its_pods_have_the_grace_period_that_their_configuration_needs,
        the_builder_has_the_pinned_toolchain,
        the_job_that_prunes_is_admitted_and_may_list_and_delete_leases_and_nothing_else,
        a_container_of_that_job_deletes_what_nobody_uses,
        an_image_without_tenure_gets_it_and_its_pods_are_admitted_where_pod_security_is_restricted,
        the_components_are_taken_by_the_server_and_name_what_the_kustomization_names,
        what_monitors_it_is_rendered_for_the_pods_of_the_deployment,
        the_leader_of_the_example_may_write_its_slice_and_no_other_and_a_second_apply_leaves_that_alone,
        the_patch_that_leaves_the_witness_out_is_json_and_names_the_witness,
    ];
    let examples = cases![restricted:
        the_pods_of_the_examples_are_admitted_where_pod_security_is_restricted,
        the_accounts_of_the_examples_may_do_what_their_commands_need_and_nothing_else,
        the_examples_have_the_leases_that_their_commands_take,
        a_pod_of_the_example_makes_only_itself_the_leader,
        the_leader_of_the_example_changes_nothing_of_its_service_but_the_selector,
        the_jobs_of_the_examples_run_no_other_program_and_open_no_other_address,
        the_jobs_of_the_examples_have_the_grace_period_that_an_undo_needs,
    ];
    cases.extend(examples.into_iter().map(|case| case.since(VALIDATING)));
    cases
}

/// A program whose image knows nothing of tenure runs under it, whatever its Pod has already.
fn an_image_without_tenure_gets_it_and_its_pods_are_admitted_where_pod_security_is_restricted(cluster: &Namespace) {
    let warnings = cluster.kubectl(&["apply", "-k", INJECT]).success().stderr;
    assert_eq!(String::from_utf8_lossy(&warnings), "");

    for (workload, args, mounts, first) in [
        ("deployment/billing-bare", json!(["/program", "--port=80"]), json!(["tenure", "tenure-witness"]), "tenure"),
        ("statefulset/billing-full", json!(["/program"]), json!(["data", "tenure", "tenure-witness"]), "tenure"),
    ] {
        let template = template(&cluster.get(workload));
        let (spec, container) = (&template["spec"], &template["spec"]["containers"][0]);
        assert_eq!((&container["command"], &container["args"]), (&json!(["/opt/tenure/tenure", "--"]), &args), "{workload}");
        let names = |list: &Value| list.as_array().unwrap().iter().map(|one| one["name"].clone()).collect::<Value>();
        assert_eq!(names(&container["volumeMounts"]), mounts, "{workload}");
        let own = container["volumeMounts"].as_array().unwrap().iter().filter(|mount| mount["name"] != "data");
        assert!(own.clone().all(|mount| mount["readOnly"] == true), "{workload}");
        let lease = container["env"].as_array().unwrap().last();
        assert_eq!(lease, Some(&json!({ "name": "TENURE_LEASE__NAME", "value": "billing-tenure" })), "{workload}");
        assert_eq!((&spec["initContainers"][0]["name"], &spec["serviceAccountName"]), (&json!(first), &json!("billing-tenure")));
        assert_eq!(spec["initContainers"][0]["image"], "registry/tenure:1");
        let pod = |one: &Value| one["env"].as_array().unwrap().iter().find(|variable| variable["name"] == "POD_NAME").cloned();
        let witness = spec["initContainers"].as_array().unwrap().iter().find(|one| one["name"] == "tenure-witness").unwrap();
        assert!(pod(witness).is_some(), "{workload}");
        assert_eq!(pod(container), pod(witness), "{workload}: the witness refuses a replica of another name");
        assert!(spec["containers"][1]["command"].is_null(), "{workload}: only the first");
        cluster.admits(&template);
    }
    assert!(!cluster.kubectl(&["get", "configmap", "billing-tenure-places"]).status.success(), "it is not applied");
    cluster.account("billing-tenure", "update", "billing-tenure").assert_may(&["create"], "leases.coordination.k8s.io", false);
}

fn the_components_are_taken_by_the_server_and_name_what_the_kustomization_names(cluster: &Namespace) {
    let rendered = cluster.kubectl(&["kustomize", COMPONENTS]).success().stdout;
    let rendered = String::from_utf8(rendered).unwrap().replace("the-namespace", &cluster.name);
    let applied = cluster.feed(&["apply", "-f", "-"], &rendered).success();
    assert_eq!(String::from_utf8_lossy(&applied.stderr), "");

    let name = format!("{}-tenure", cluster.name);
    let schema = cluster.get(&format!("flowschema/{name}"));
    let subject = &schema["spec"]["rules"][0]["subjects"][0]["serviceAccount"];
    assert_eq!(subject, &json!({ "name": name, "namespace": cluster.name }));
    let dangling = schema["status"]["conditions"].as_array().unwrap().iter().find(|condition| condition["type"] == "Dangling");
    assert!(dangling.is_none_or(|condition| condition["status"] == "False"), "its priority level is there: {schema}");
    let policy = cluster.get(&format!("networkpolicy/{name}"));
    let pods = &cluster.get(&format!("deployment/{name}"))["spec"]["selector"];
    assert_eq!(&policy["spec"]["podSelector"], pods, "the policy is about the pods of the Deployment");
    cluster.kubectl(&["delete", &format!("flowschema/{name}")]).success();
}

/// kustomize reads what begins with a bracket as JSON.
fn the_patch_that_leaves_the_witness_out_is_json_and_names_the_witness(_: &Namespace) {
    let text = fs::read_to_string(format!("{DEPLOY}/deployment.yaml")).expect("a deployment");
    let comment: String = text.lines().filter_map(|line| line.trim().strip_prefix('#')).collect();
    let (from, to) = (comment.find("[{ \"op\"").expect("a patch"), comment.find("}]").expect("its end"));
    let patch: Value = serde_json::from_str(&comment[from..to + 2]).expect("JSON");
    let deployment: Value = serde_saphyr::from_str(&text).expect("a deployment");
    let named = |index: usize| &deployment.pointer(patch[index]["path"].as_str().expect("a path")).expect("it is there")["name"];
    assert_eq!([named(0), named(1)], ["witness", "TENURE_LEASE__WITNESS"]);
}

/// The operator's kinds are not known to this server: what is applied is looked at.
fn what_monitors_it_is_rendered_for_the_pods_of_the_deployment(cluster: &Namespace) {
    let rendered = cluster.kubectl(&["kustomize", &format!("{DEPLOY}/monitoring")]).success().stdout;
    let rendered = String::from_utf8_lossy(&rendered);
    for kind in ["PodMonitor", "PrometheusRule", "ConfigMap"] {
        assert!(rendered.contains(&format!("kind: {kind}\n")), "{kind} is not in\n{rendered}");
    }
    let deployment = fs::read_to_string(format!("{DEPLOY}/deployment.yaml")).expect("a deployment");
    assert!(deployment.contains("name: http,") && rendered.contains("port: http\n"), "the port is named alike");
}

fn its_pods_are_admitted_where_pod_security_is_restricted(cluster: &Namespace) {
    let warnings = cluster.kubectl(&["apply", "-k", DEPLOY]).success().stderr;
    assert_eq!(String::from_utf8_lossy(&warnings), "");

    cluster.admits(&cluster.get("deployment/tenure")["spec"]["template"]);
}

fn the_account_may_do_to_its_lease_what_tenure_needs_and_nothing_else(cluster: &Namespace) {
    cluster.kubectl(&["apply", "-k", DEPLOY]).success();

    let account = cluster.account("tenure", "get", "tenure");
    account.assert_may(&["get", "watch", "update"], "leases.coordination.k8s.io/tenure", true);
    account.assert_may(&["get", "watch", "update"], "leases.coordination.k8s.io/other", false);
    account.assert_may(&["create", "list", "patch", "delete", "deletecollection"], "leases.coordination.k8s.io/tenure", false);
    ["secrets", "pods"].iter().for_each(|object| account.assert_may(&["get"], object, false));
}

fn a_second_apply_leaves_the_holder_alone(cluster: &Namespace) {
    cluster.kubectl(&["apply", "-k", DEPLOY]).success();
    let mut held = cluster.get("lease/tenure");
    held["spec"] = json!({
        "holderIdentity": "pod_0", "leaseDurationSeconds": 15, "leaseTransitions": 3,
        "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:03.000000Z",
    });
    held["metadata"]["labels"]["app.kubernetes.io/managed-by"] = json!("tenure");
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases/tenure", cluster.name);
    cluster.feed(&["replace", "--raw", &path, "-f", "-"], &held).success();
    let before = cluster.get("lease/tenure");

    let said = cluster.kubectl(&["apply", "-k", DEPLOY]).success().stdout;
    cluster.kubectl(&["apply", "--server-side", "--force-conflicts", "-k", DEPLOY]).success();

    let said = String::from_utf8(said).unwrap();
    assert!(said.lines().any(|line| line == "lease.coordination.k8s.io/tenure unchanged"), "{said}");
    let after = cluster.get("lease/tenure");
    assert_eq!(after["spec"], before["spec"]);
    assert_eq!(after["metadata"]["labels"], before["metadata"]["labels"]);
}

fn a_prefix_reaches_every_place_where_the_lease_is_named(cluster: &Namespace) {
    let overlay = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/deploy/overlay");
    cluster.kubectl(&["apply", "-k", DEPLOY]).success();
    cluster.kubectl(&["apply", "-k", overlay]).success();

    let role = cluster.get("role/billing-tenure");
    let deployment = cluster.get("deployment/billing-tenure");
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    cluster.get("lease/billing-tenure");
    assert_eq!(role["rules"][0]["resourceNames"], json!(["billing-tenure"]));
    assert_eq!(container["env"][0], json!({ "name": "TENURE_LEASE__NAME", "value": "billing-tenure" }));
    assert_eq!(container["image"], "billing:1");
    let selector = json!({ "app.kubernetes.io/name": "tenure", "app.kubernetes.io/instance": "billing" });
    assert_eq!(deployment["spec"]["selector"]["matchLabels"], selector, "it would select the other's pods");
    assert_eq!(cluster.get("pdb/billing-tenure")["spec"]["selector"]["matchLabels"], selector);
}

fn its_pods_have_the_grace_period_that_their_configuration_needs(cluster: &Namespace) {
    cluster.kubectl(&["apply", "-k", DEPLOY]).success();
    let mut tenure = Command::new(TENURE);
    tenure.args(["check", "--offline", "--lease=tenure", "--config"]).arg(Path::new(DEPLOY).join("tenure.yaml"));

    has_its_grace(cluster, "deployment/tenure", &mut tenure);
}

fn the_jobs_of_the_examples_have_the_grace_period_that_an_undo_needs(cluster: &Namespace) {
    for (file, job) in [("transaction.yaml", "job/billing-release"), ("blue-green.yaml", "job/billing-web-switch")] {
        let path = Path::new(EXAMPLES).join(file);
        assert!(fs::read_to_string(&path).unwrap().contains("      timeout: 1m\n"), "{file}");
        cluster.kubectl(&["apply", "-f", &path.display().to_string()]).success();
        let mut tenure = Command::new(TENURE);
        // The minute of the undo, and 10 s to say what is left.
        tenure.args(["check", "--offline", "--lease=x", "--set", "workload.stop.grace=70s", "--", "true"]);

        has_its_grace(cluster, job, &mut tenure);
    }
}

/// Checks that the pods of a workload have the grace period that this `tenure check` asks for.
fn has_its_grace(cluster: &Namespace, workload: &str, check: &mut Command) {
    let said = String::from_utf8(check.output().unwrap().success().stdout).unwrap();
    let needed = support::grace(&said);
    let granted = cluster.get(workload)["spec"]["template"]["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap();
    assert!(granted >= needed, "{workload}: {granted} s granted, {needed} s needed");
}

fn the_builder_has_the_pinned_toolchain(_: &Namespace) {
    let file = |name| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap();

    let pinned = file("rust-toolchain.toml");
    let pinned = pinned.split("channel = \"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();

    assert!(file("Dockerfile").contains(&format!("ARG BUILDER=rust:{pinned}-slim\n")), "rust-toolchain.toml says {pinned}");
}

fn the_job_that_prunes_is_admitted_and_may_list_and_delete_leases_and_nothing_else(cluster: &Namespace) {
    let warnings = cluster.kubectl(&["apply", "-k", PRUNE]).success().stderr;
    assert_eq!(String::from_utf8_lossy(&warnings), "");

    cluster.admits(&cluster.get("cronjob/tenure-prune")["spec"]["jobTemplate"]["spec"]["template"]);
    let account = cluster.account("tenure-prune", "delete", "tenure");
    account.assert_may(&["list"], "leases.coordination.k8s.io", true);
    account.assert_may(&["get", "watch"], "leases.coordination.k8s.io/tenure", false);
    account.assert_may(&["create", "update", "patch", "deletecollection"], "leases.coordination.k8s.io/tenure", false);
    account.assert_may(&["list", "delete"], "pods", false);
}

fn a_container_of_that_job_deletes_what_nobody_uses(cluster: &Namespace) {
    cluster.kubectl(&["apply", "-k", PRUNE]).success();
    let labels = json!({ "app.kubernetes.io/managed-by": "tenure", "tenure.dev/kind": "lock" });
    for (name, holder) in [("given-back", ""), ("held", "pod_0")] {
        let spec = json!({
            "holderIdentity": holder, "leaseDurationSeconds": 1, "leaseTransitions": 3,
            "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z",
        });
        let metadata =
            json!({ "name": name, "labels": labels, "annotations": { "tenure.dev/paused": (!holder.is_empty()).to_string() } });
        let lease = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec });
        cluster.create(&lease).success();
    }
    let account = cluster.account("tenure-prune", "delete", "tenure");

    let container = &cluster.get("cronjob/tenure-prune")["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0];
    let arguments = container["args"].as_array().unwrap().iter().map(|argument| argument.as_str().unwrap());
    let mut tenure = Command::new(TENURE);
    tenure.args(arguments).args(["--namespace", &cluster.name]).env("KUBECONFIG", account.kubeconfig());
    let said = String::from_utf8(tenure.output().unwrap().success().stdout).unwrap();

    assert!(said.contains("given-back") && said.contains("deleted"), "{said}");
    let left = cluster.get("leases")["items"].as_array().unwrap().iter().map(|lease| lease["metadata"]["name"].clone()).collect();
    assert_eq!(Value::Array(left), json!(["held"]));
}

/// A file of deploy/examples.
struct Example {
    file: &'static str,
    account: &'static str,
    workloads: Vec<&'static str>,
    leases: Vec<&'static str>,
    /// What its transaction or promotion changes.
    targets: Vec<&'static str>,
}

/// The fields of each [`Example`]. A list has commas, and `-` stands for an empty one.
const ALL_EXAMPLES: &str = "\
service.yaml billing deployment/billing billing -
job.yaml billing-import job/billing-import lock-billing-import -
transaction.yaml billing-release job/billing-release txn-billing-release configmaps/billing,deployments.apps/billing,services/billing
blue-green.yaml billing-web-switch job/billing-web-switch txn-billing-web-switch \
deployments.apps/billing-web-green,services/billing-web,services/billing-web-preview
role-label.yaml billing-role deployment/billing-role billing-role pods
selector.yaml billing-store statefulset/billing-store billing-store services/billing-store
sidecar.yaml billing-mail deployment/billing-mail billing-mail -
statefulset.yaml billing-ledger statefulset/billing-ledger billing-ledger -
migration.yaml billing-server deployment/billing-server lock-billing-migration -
nightly.yaml billing-nightly cronjob/billing-nightly,cronjob/billing-nightly-again tasklock-billing-nightly -
periodic.yaml billing-refresh deployment/billing-refresh tasklock-billing-refresh -
pool.yaml billing-worker deployment/billing-worker billing-worker,billing-worker-slot-1 -";

fn examples() -> impl Iterator<Item = Example> {
    let list = |words: &'static str| words.split(',').filter(|word| *word != "-").collect();
    ALL_EXAMPLES.lines().map(move |line| {
        let [file, account, workloads, leases, targets] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        Example { file, account, workloads: list(workloads), leases: list(leases), targets: list(targets) }
    })
}

/// Workloads of the examples in whose pods tenure does not run.
const BESIDE: &[&str] = &["deployment/billing-web-blue", "deployment/billing-web-green"];

/// Applies all examples. One after the other: some objects belong to the whole cluster.
fn apply_examples(cluster: &Namespace) -> Output {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    cluster.kubectl(&["apply", "-f", EXAMPLES]).success()
}

/// The template of a workload's pods, with the volumes that a StatefulSet's controller adds to it.
fn template(workload: &Value) -> Value {
    let spec = &workload["spec"];
    let mut template =
        if workload["kind"] == "CronJob" { &spec["jobTemplate"]["spec"]["template"] } else { &spec["template"] }.clone();
    for claim in spec["volumeClaimTemplates"].as_array().into_iter().flatten() {
        let volume = json!({ "name": claim["metadata"]["name"], "emptyDir": {} });
        match template["spec"]["volumes"].as_array_mut() {
            Some(volumes) => volumes.push(volume),
            None => template["spec"]["volumes"] = json!([volume]),
        }
    }
    template
}

fn the_pods_of_the_examples_are_admitted_where_pod_security_is_restricted(cluster: &Namespace) {
    let files: BTreeSet<_> =
        fs::read_dir(EXAMPLES).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(files, examples().map(|example| example.file.to_owned()).collect(), "what is there, and what is tested");
    // What a controller makes in each namespace.
    cluster.kubectl(&["create", "serviceaccount", "default"]).success();
    let warnings = apply_examples(cluster).stderr;
    assert_eq!(String::from_utf8_lossy(&warnings), "");

    for workload in examples().flat_map(|example| example.workloads).chain(BESIDE.iter().copied()) {
        cluster.admits(&template(&cluster.get(workload)));
    }
}

fn the_accounts_of_the_examples_may_do_what_their_commands_need_and_nothing_else(cluster: &Namespace) {
    apply_examples(cluster);

    for Example { account, leases, targets, .. } in examples() {
        let is_pool = leases.len() > 1;
        let account = cluster.account(account, "update", leases[0]);
        let lease = |name: &str| format!("leases.coordination.k8s.io/{name}");
        for name in &leases {
            account.assert_may(&["get", "update", "watch"], &lease(name), true);
            account.assert_may(&["create", "patch", "delete", "deletecollection"], &lease(name), false);
        }
        // The marks of other transactions name their Leases.
        account.assert_may(&["get"], &lease("other"), !targets.is_empty());
        account.assert_may(&["update"], &lease("other"), false);
        account.assert_may(&["list", "watch"], "leases.coordination.k8s.io", is_pool);
        account.assert_may(&["get", "update"], &format!("secrets/{}-journal", leases[0]), !targets.is_empty());
        for target in &targets {
            account.assert_may(&["get", "patch"], target, true);
            account.assert_may(&["update", "delete"], target, false);
        }
        account.assert_may(&["get"], "secrets", false);
        account.assert_may(&["get"], "pods", targets.contains(&"pods"));
        ["services", "configmaps"].iter().for_each(|object| account.assert_may(&["patch"], object, false));
    }
}

fn the_examples_have_the_leases_that_their_commands_take(cluster: &Namespace) {
    apply_examples(cluster);

    let there = cluster.get("leases")["items"].take();
    let there: BTreeSet<&str> =
        there.as_array().unwrap().iter().map(|lease| lease["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(there, examples().flat_map(|example| example.leases).collect());
    for Example { file, workloads, leases, .. } in examples() {
        for workload in workloads {
            let template = template(&cluster.get(workload));
            let containers = ["initContainers", "containers"].into_iter().filter_map(|list| template["spec"][list].as_array());
            let (witnesses, others): (Vec<_>, Vec<_>) =
                containers.flatten().partition(|container| container["args"] == json!(["witness"]));
            let socket = json!({ "name": "TENURE_LEASE__WITNESS", "value": "/run/tenure/witness" });
            let has =
                |container: &Value, list: &str, one: &Value| container[list].as_array().is_some_and(|all| all.contains(one));
            let told = has(others[0], "env", &socket);
            assert_eq!(told, witnesses.iter().any(|witness| witness["restartPolicy"] == "Always"), "{file}");
            // Only the two have the socket's directory, and the witness alone may write there.
            let mount = json!({ "name": "witness", "mountPath": "/run/tenure" });
            let reads = json!({ "name": "witness", "mountPath": "/run/tenure", "readOnly": true });
            assert!(witnesses.iter().all(|witness| has(witness, "volumeMounts", &mount)), "{file}");
            assert_eq!(has(others[0], "volumeMounts", &reads), told, "{file}");
            assert!(!others[1..].iter().any(|other| has(other, "volumeMounts", &reads)), "{file}");
            let line: Vec<&str> = others[0]["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
            let prefix = match line[0] {
                "lock" => "lock-",
                "task" => "tasklock-",
                "apply" => "txn-",
                _ => "",
            };
            let name = line[1].trim_start_matches("--lease=");
            assert_eq!(format!("{prefix}{name}"), leases[0], "{file}: {line:?}");
            let slots = line.iter().find_map(|word| word.strip_prefix("--slots=")).unwrap_or("1");
            assert_eq!(slots, leases.len().to_string(), "{file}: {line:?}");
        }
    }
}

fn the_leader_of_the_example_may_write_its_slice_and_no_other_and_a_second_apply_leaves_that_alone(cluster: &Namespace) {
    let example = format!("{EXAMPLES}/service.yaml");
    cluster.kubectl(&["apply", "-f", &example]).success();
    let account = cluster.account("billing", "update", "billing");
    account.assert_may(&["get", "update"], "endpointslices.discovery.k8s.io/billing-leader", true);
    account.assert_may(&["create", "delete", "patch"], "endpointslices.discovery.k8s.io/billing-leader", false);
    account.assert_may(&["update"], "endpointslices.discovery.k8s.io/other", false);
    account.assert_may(&["create"], "events.events.k8s.io", true);
    account.assert_may(&["list"], "events.events.k8s.io", false);

    let mut slice = cluster.get("endpointslice/billing-leader");
    slice["metadata"]["annotations"]["tenure.dev/fencing-token"] = json!("7");
    slice["endpoints"] = json!([{ "addresses": ["10.0.0.1"] }]);
    slice["ports"] = json!([{ "name": "http", "port": 8080, "protocol": "TCP" }]);
    let path = format!("/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices/billing-leader", cluster.name);
    cluster.feed(&["replace", "--raw", &path, "-f", "-"], &slice).success();
    let before = cluster.get("endpointslice/billing-leader");
    cluster.kubectl(&["apply", "-f", &example]).success();
    let after = cluster.get("endpointslice/billing-leader");
    for part in ["/endpoints", "/ports", "/metadata/annotations/tenure.dev~1fencing-token"] {
        assert_eq!(after.pointer(part), before.pointer(part), "{part}");
    }
}

/// What a leader may do to pods: its own, one beside it, and one of another program.
fn a_pod_of_the_example_makes_only_itself_the_leader(cluster: &Namespace) {
    apply_examples(cluster);
    let account = cluster.account("billing-role", "update", "billing-role");
    let template = cluster.get("deployment/billing-role")["spec"]["template"].take();
    for (name, program) in [("own", "billing-role"), ("beside", "billing-role"), ("foreign", "other")] {
        let mut pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"] });
        pod["metadata"]["name"] = json!(name);
        pod["metadata"]["labels"]["app.kubernetes.io/name"] = json!(program);
        cluster.create(&pod).success();
    }
    let own = account.kubeconfig_with(&["--bound-object-kind=Pod", "--bound-object-name=own"]);
    let bare = account.kubeconfig();
    let patch = |kubeconfig: &Path, pod: &str, patch: &Value| {
        let kind = if patch.is_array() { "--type=json" } else { "--type=merge" };
        let mut kubectl = Command::new(programs::path("kubectl"));
        kubectl.arg("--kubeconfig").arg(kubeconfig).args(["--namespace", &cluster.name, "patch", "pod", pod, kind, "--patch"]);
        kubectl.arg(patch.to_string()).output().unwrap()
    };
    let label = |value: &Value| json!({ "metadata": { "labels": { "role": value } } });
    let annotation = |key: &str, value: &Value| json!({ "metadata": { "annotations": { key: value } } });
    let cost = |value: &Value| annotation("controller.kubernetes.io/pod-deletion-cost", value);
    // The policy is in force a little later.
    wait_until("the policy is in force", || !patch(&own, "beside", &label(&json!("leader"))).status.success());
    for pod in ["beside", "foreign"] {
        cluster.kubectl(&["label", "--overwrite", "pod", pod, "role=leader"]).success();
    }

    let denied = |kubeconfig: &Path, pod: &str, change: &Value, why: &str| {
        let said = patch(kubeconfig, pod, change).failure();
        assert!(said.contains(&format!("denied request: {why}")), "{pod} {change}: {said}");
    };
    let elsewhere = "a pod makes only itself the leader";
    denied(&own, "beside", &label(&json!("other")), elsewhere);
    denied(&own, "beside", &cost(&json!("1")), elsewhere);
    denied(&bare, "own", &label(&json!("leader")), elsewhere);
    denied(&own, "foreign", &label(&Value::Null), "this account changes pods of the program billing-role only");
    let more = "this account changes the label and the annotations of the leader only";
    denied(&own, "own", &annotation("other", &json!("x")), more);
    for metadata in [
        json!({ "labels": { "other": "x" } }),
        json!({ "labels": { "app.kubernetes.io/name": "x" } }),
        json!({ "labels": { "app.kubernetes.io/name": null } }),
        json!({ "finalizers": ["example.com/x"] }),
        json!({ "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x" }] }),
    ] {
        denied(&own, "own", &json!({ "metadata": metadata }), more);
    }
    denied(&own, "own", &json!([{ "op": "replace", "path": "/spec/containers/0/image", "value": "other" }]), more);
    for (pod, change) in [
        ("own", label(&json!("leader"))),
        ("own", cost(&json!("1000"))),
        ("own", annotation("tenure.dev/change", &json!("x"))),
        ("beside", annotation("tenure.dev/change", &json!("x"))),
        ("beside", label(&Value::Null)),
        ("own", cost(&Value::Null)),
        ("own", label(&Value::Null)),
    ] {
        patch(&own, pod, &change).success();
    }
}

/// A right to patch a Service is one to write externalIPs too.
fn the_leader_of_the_example_changes_nothing_of_its_service_but_the_selector(cluster: &Namespace) {
    apply_examples(cluster);
    let program = "app.kubernetes.io/name";
    let account = Narrowed::of(cluster, "billing-store", "service/billing-store", "this account changes the selector only");

    account.may(&json!({ "metadata": { "annotations": { "tenure.dev/change": "x" } } }));
    account.may(&json!({ "spec": { "selector": { program: "billing-store", "pod": "one" } } }));
    for change in [
        json!({ "spec": { "ports": [{ "port": 80, "targetPort": 22 }] } }),
        json!({ "metadata": { "labels": { "other": "x" } } }),
        json!({ "metadata": { "annotations": { "other": "x" } } }),
    ] {
        account.may_not(&change);
    }
    let elsewhere = Narrowed { denied: "this account selects pods of the program billing-store only", ..account };
    elsewhere.may_not(&json!({ "spec": { "selector": { program: "other" } } }));
    elsewhere.may_not(&json!({ "spec": { "selector": null } }));
    elsewhere.may(&json!({ "metadata": { "annotations": { "tenure.dev/change": null } } }));
}

/// A right to patch a Deployment is one to run any program.
fn the_jobs_of_the_examples_run_no_other_program_and_open_no_other_address(cluster: &Namespace) {
    apply_examples(cluster);
    let image = |deployment: &str| {
        let container = cluster.get(deployment)["spec"]["template"]["spec"]["containers"][0]["name"].clone();
        json!({ "spec": { "template": { "spec": { "containers": [{ "name": container, "image": "other" }] } } } })
    };
    let annotated = json!({ "metadata": { "annotations": { "traffic": "users", "tenure.dev/change": "x" } } });
    let rolled = json!({ "spec": { "template": { "metadata": { "annotations": { "currency": "EUR" } } } } });

    // The garbage collector deletes what is owned by nobody, and the Deployment's controller rolls back.
    let owned = json!({ "metadata": { "ownerReferences": [
        { "apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "11111111-1111-1111-1111-111111111111" }] } });
    let back = json!({ "metadata": { "annotations": { "deprecated.deployment.rollback.to": "1" } } });
    let holds_the_rest = |accounts: [Narrowed<'_>; 2], denied| {
        for account in accounts {
            let metadata = Narrowed { denied, ..account };
            metadata.may_not(&owned);
            metadata.may_not(&back);
        }
    };

    let neither = "this account changes neither what pods run nor the spec of a Service";
    let service = Narrowed::of(cluster, "txn-billing-release", "service/billing", neither);
    service.may(&json!({ "metadata": { "labels": { "currency": "EUR" } } }));
    let deployment = Narrowed::of(cluster, "txn-billing-release", "deployment/billing", neither);
    deployment.may(&rolled);
    deployment.may_not(&image("deployment/billing"));
    deployment.may_not(&json!({ "spec": { "template": { "metadata": { "annotations": { "tenure.dev/command": "[]" } } } } }));
    holds_the_rest([service, deployment], "this account changes no other metadata than currency");

    let only = "this account changes the selector only";
    let service = Narrowed::of(cluster, "txn-billing-web-switch", "service/billing-web", only);
    service.may(&json!({ "spec": { "selector": { "color": "green" } } }));
    let deployment = Narrowed::of(cluster, "txn-billing-web-switch", "deployment/billing-web-green", only);
    deployment.may(&annotated);
    deployment.may_not(&rolled);
    deployment.may_not(&image("deployment/billing-web-green"));
    holds_the_rest([service, deployment], "this account changes no other metadata than traffic");
}

/// An object of the examples, as the account that has a policy for it sees it.
struct Narrowed<'a> {
    cluster: &'a Namespace,
    kubeconfig: PathBuf,
    object: &'static str,
    /// What the policy says.
    denied: &'static str,
}

impl<'a> Narrowed<'a> {
    /// Waits until the policy is in force. The account is called as its Lease, without the prefix.
    fn of(cluster: &'a Namespace, lease: &'static str, object: &'static str, denied: &'static str) -> Self {
        let kubeconfig = cluster.account(lease.trim_start_matches("txn-"), "update", lease).kubeconfig();
        let narrowed = Self { cluster, kubeconfig, object, denied };
        let changes = match object.split_once('/').unwrap().0 {
            "service" => &[json!({ "spec": { "externalIPs": ["192.0.2.1"] } }), json!({ "spec": { "type": "NodePort" } })][..],
            _ => &[json!({ "spec": { "template": { "spec": { "serviceAccountName": "other" } } } })],
        };
        let is_denied = || !narrowed.patch(&changes[0], &["--dry-run=server"]).status.success();
        wait_until(&format!("{object}: the policy is in force"), is_denied);
        changes.iter().for_each(|change| narrowed.may_not(change));
        narrowed
    }

    fn patch(&self, patch: &Value, flags: &[&str]) -> Output {
        let mut kubectl = Command::new(programs::path("kubectl"));
        kubectl.arg("--kubeconfig").arg(&self.kubeconfig).args(["--namespace", &self.cluster.name, "patch", self.object]);
        let kind = if self.object.starts_with("service/") { "merge" } else { "strategic" };
        kubectl.args(flags).args(["--type", kind, "--patch", &patch.to_string()]).output().unwrap()
    }

    fn may(&self, change: &Value) {
        self.patch(change, &[]).success();
    }

    fn may_not(&self, change: &Value) {
        let said = self.patch(change, &[]).failure();
        assert!(said.contains(&format!("denied request: {}", self.denied)), "{} {change}: {said}", self.object);
    }
}
