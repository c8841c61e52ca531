//! deploy/helm by the real Helm on a real API server: linted, installed, upgraded, and its values judged.
//!
//! Building Helm takes minutes: `.ci/nightly chart`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    unreachable_pub,
    reason = "a test fails by panicking, and says why"
)]

use std::{
    env, fs,
    process::{self, Command, ExitCode, Output},
};

use serde_json::{Value, json};

#[allow(dead_code, reason = "each test binary has its own copy, and uses a part of it")]
#[path = "deploy/namespace.rs"]
mod namespace;
mod support;

use namespace::{Ended as _, Namespace};
use support::case::{Case, REAL};

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/helm/tenure");

/// All that it needs.
const LEAST: [&str; 4] = ["--set", "image.repository=writer", "--set-json", "args=[\"/bin/writer\"]"];

/// Everything but what needs the Prometheus Operator.
const MOST: [&str; 4] =
    ["--set", "inject.repository=tenure,networkPolicy=true,priority=true", "--set", "podLabels.team=billing,podAnnotations.a=b"];

/// Cases of functions that take a namespace, on the real server.
macro_rules! charted {
    ($($name:ident),* $(,)?) => {
        vec![$(Case {
            name: stringify!($name),
            on: REAL,
            body: |stage| Box::pin(async move { $name(&Namespace::restricted(&stage)) }),
        }),*]
    };
}

fn main() -> ExitCode {
    support::case::main(vec![(
        "chart",
        charted![
            helm_has_nothing_to_find_fault_with,
            what_tenure_takes_as_a_file_is_taken_as_config,
            what_it_installs_is_admitted_where_pod_security_is_restricted,
            an_upgrade_leaves_the_holder_alone_and_rolls_what_has_another_configuration,
            a_value_that_nothing_reads_is_refused_and_so_is_a_key_that_tenure_does_not_have,
            the_rights_are_those_that_the_configuration_needs,
            a_replica_leads_with_the_configuration_and_the_rights_of_the_release,
        ],
    )])
}

fn helm(cluster: &Namespace, verb: &[&str], values: &[&[&str]]) -> Output {
    let mut helm = cluster.command("helm", verb);
    helm.args(values.concat()).env("HELM_CACHE_HOME", "/nonexistent").output().expect("helm starts")
}

fn install(cluster: &Namespace, values: &[&[&str]]) -> Output {
    helm(cluster, &["install", "billing", CHART], values)
}

fn helm_has_nothing_to_find_fault_with(cluster: &Namespace) {
    for values in [&[&LEAST[..]][..], &[&LEAST, &MOST, &["--set", "podMonitor=true"]]] {
        helm(cluster, &["lint", "--strict", "--kube-version=1.36.3", CHART], values).success();
    }
    let rendered =
        helm(cluster, &["template", "--kube-version=1.36.3", CHART], &[&LEAST, &["--set", "podMonitor=true"]]).success();
    assert!(String::from_utf8_lossy(&rendered.stdout).contains("kind: PodMonitor\n"));
}

/// The file of defaults, and sections in which nothing is said, are a `config` too.
fn what_tenure_takes_as_a_file_is_taken_as_config(cluster: &Namespace) {
    let defaults = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/config/tenure.yaml")).unwrap();
    let indented: String = defaults.lines().map(|line| format!("  {line}\n")).collect();
    let nothing = "{lease: null, http: null, service: null, events: null}";
    for config in [format!("\n{indented}"), nothing.to_owned()] {
        let file = env::temp_dir().join(format!("tenure-chart-{}.yaml", process::id()));
        fs::write(&file, format!("config: {config}\n")).unwrap();
        let values = ["--values", file.to_str().unwrap()];
        install(cluster, &[&LEAST, &values]).success();
        fs::remove_file(&file).unwrap();

        let container = cluster.get("deployment/billing-tenure")["spec"]["template"]["spec"]["containers"][0].take();
        assert_eq!((&container["command"], &container["args"]), (&json!(["/tenure"]), &json!(["--", "/bin/writer"])));
        assert_eq!(container["ports"][0]["containerPort"], 8080);
        assert_eq!(cluster.get("role/billing-tenure")["rules"][0]["resourceNames"], json!(["billing-tenure"]));
        let written = cluster.get("configmap/billing-tenure")["data"]["tenure.yaml"].take();
        assert!(written.as_str().unwrap().contains("name: billing-tenure\n"), "{written}");
        helm(cluster, &["uninstall", "billing"], &[]).success();
    }
}

fn what_it_installs_is_admitted_where_pod_security_is_restricted(cluster: &Namespace) {
    for values in [&[&LEAST[..]][..], &[&LEAST, &MOST]] {
        let said = install(cluster, values).success();
        assert_eq!(String::from_utf8_lossy(&said.stderr), "", "a warning");
        let deployment = cluster.get("deployment/billing-tenure");
        let template = &deployment["spec"]["template"];
        cluster.admits(template);
        let pods = &deployment["spec"]["selector"];
        assert_eq!(&cluster.get("pdb/billing-tenure")["spec"]["selector"], pods);
        if values.len() > 1 {
            assert_eq!(template["spec"]["initContainers"][0]["args"], json!(["install", "/opt/tenure/tenure"]));
            assert_eq!(template["spec"]["containers"][0]["command"], json!(["/opt/tenure/tenure"]));
            assert_eq!(&cluster.get("networkpolicy/billing-tenure")["spec"]["podSelector"], pods);
            let schema = cluster.get(&format!("flowschema/{}-billing-tenure", cluster.name));
            let subject = &schema["spec"]["rules"][0]["subjects"][0]["serviceAccount"];
            assert_eq!(subject, &json!({ "name": "billing-tenure", "namespace": cluster.name }));
        }
        helm(cluster, &["uninstall", "billing"], &[]).success();
    }
    let left = cluster.get("leases,deployments,roles,flowschemas")["items"].take();
    let ours = |one: &&Value| one["metadata"]["labels"]["app.kubernetes.io/instance"] == "billing";
    assert_eq!(left.as_array().unwrap().iter().find(ours), None, "it is left");
}

fn an_upgrade_leaves_the_holder_alone_and_rolls_what_has_another_configuration(cluster: &Namespace) {
    install(cluster, &[&LEAST]).success();
    let mut held = cluster.get("lease/billing-tenure");
    held["spec"] = json!({
        "holderIdentity": "pod_0", "leaseDurationSeconds": 15, "leaseTransitions": 3,
        "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:03.000000Z",
    });
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases/billing-tenure", cluster.name);
    cluster.feed(&["replace", "--raw", &path, "-f", "-"], &held).success();
    let rolled = || cluster.get("deployment/billing-tenure")["spec"]["template"].clone();
    let before = (cluster.get("lease/billing-tenure")["spec"].clone(), rolled());
    let upgrade = |values: &[&[&str]]| drop(helm(cluster, &["upgrade", "billing", CHART], values).success());

    upgrade(&[&LEAST, &["--set", "replicas=3"]]);
    assert_eq!((cluster.get("lease/billing-tenure")["spec"].clone(), rolled()), before);
    upgrade(&[&LEAST, &["--set", "config.lease.duration=20s"]]);
    assert_eq!(cluster.get("lease/billing-tenure")["spec"], before.0);
    assert_ne!(rolled(), before.1, "replicas read their configuration only once");
}

fn a_value_that_nothing_reads_is_refused_and_so_is_a_key_that_tenure_does_not_have(cluster: &Namespace) {
    for (values, words) in [
        (&["--set", "replics=3"][..], "'replics' not allowed"),
        (&["--set", "config.workload.stop.grce=2s"], "'grce' not allowed"),
        (&["--set", "config.workload.runs=sometimes"], "/config/workload/runs"),
        (&["--set", "image.repository="], "/image/repository"),
        (&["--set-json", "args=[]"], "args, or config.workload.command, is required"),
        (&["--set", "config.lease.namespace=other"], "in the namespace of the release"),
    ] {
        let refused = helm(cluster, &["template", "--kube-version=1.36.3", CHART], &[&LEAST, values]).failure();
        assert!(refused.contains(words), "{values:?}: {refused}");
    }
}

fn the_rights_are_those_that_the_configuration_needs(cluster: &Namespace) {
    let lease = "config.lease.prefix=Shop_,config.lease.slots=2,config.lease.release=delete,config.service.endpointSlice=leader";
    let notes = install(cluster, &[&LEAST, &["--set", lease, "--set", "config.service.ports[0].port=80"]]).success().stdout;
    assert!(String::from_utf8_lossy(&notes).contains(" shop-billing-tenure\n"), "who leads is asked by another name");
    let kubeconfig = cluster.account("billing-tenure", "delete", "shop-billing-tenure-slot-1").kubeconfig();
    let file = kubeconfig.with_extension("yaml");
    fs::write(&file, cluster.get("configmap/billing-tenure")["data"]["tenure.yaml"].as_str().unwrap()).unwrap();
    let mut check = Command::new(env!("CARGO_BIN_EXE_tenure"));
    check
        .arg("check")
        .arg("--config")
        .arg(&file)
        .args(["--namespace", &cluster.name, "--", "echo"])
        .env("POD_IPS", "10.0.0.1")
        .env("KUBECONFIG", &kubeconfig);

    let said = String::from_utf8(check.output().unwrap().success().stdout).unwrap();

    assert!(said.contains("/shop-billing-tenure-slot-1") && !said.contains("not permitted"), "{said}");
    let labels = &cluster.get("lease/shop-billing-tenure-slot-1")["metadata"]["labels"];
    assert_eq!(labels["tenure.dev/slots"], "shop-billing-tenure");
}

fn a_replica_leads_with_the_configuration_and_the_rights_of_the_release(cluster: &Namespace) {
    let more = "config.service.endpointSlice=leader,config.service.ports[0].port=80,config.events.enabled=true";
    install(cluster, &[&LEAST, &["--set", "config.lease.duration=20s,config.lease.creationWait=0s", "--set", more]]).success();
    let account = cluster.account("billing-tenure", "update", "billing-tenure");
    let kubeconfig = account.kubeconfig();
    let file = kubeconfig.with_extension("yaml");
    fs::write(&file, cluster.get("configmap/billing-tenure")["data"]["tenure.yaml"].as_str().unwrap()).unwrap();
    let tenure = |arguments: &[&str], command: &[&str]| {
        let mut tenure = Command::new(env!("CARGO_BIN_EXE_tenure"));
        tenure.args(arguments).arg("--config").arg(&file).args(["--namespace", &cluster.name, "--set", "http.listen=null", "--"]);
        tenure.env("POD_IPS", "192.0.2.1").env("KUBECONFIG", &kubeconfig);
        String::from_utf8(tenure.args(command).output().unwrap().success().stdout).unwrap()
    };

    assert_eq!(tenure(&["run"], &["echo", "leads"]), "leads\n");

    let needed = tenure(&["check", "--offline"], &["echo"]);
    let needed =
        needed.split_once("terminationGracePeriodSeconds: ").unwrap().1.split(' ').next().unwrap().parse::<u64>().unwrap();
    let granted = &cluster.get("deployment/billing-tenure")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"];
    assert!(granted.as_u64().unwrap() >= needed, "{granted} s granted, {needed} s needed");
    let may = |verb: &str| account.may(verb, "leases.coordination.k8s.io/billing-tenure");
    assert_eq!(["get", "watch", "update"].map(may), [Some(true); 3]);
    let slice = |verb: &str, name: &str| account.may(verb, &format!("endpointslices.discovery.k8s.io/{name}"));
    assert_eq!(
        [slice("get", "leader"), slice("update", "leader"), slice("update", "other")],
        [Some(true), Some(true), Some(false)]
    );
    assert_eq!(account.may("create", "events.events.k8s.io"), Some(true));
    assert_eq!(["create", "list", "patch", "delete", "deletecollection"].map(may), [Some(false); 5], "too much");
}
