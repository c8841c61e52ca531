//! `kubectl apply -k deploy` against a real API server: it is admitted, grants exactly the permissions that tenure needs, and can
//! be repeated.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, reason = "a test fails by panicking, and says why")]

mod support;

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Output, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

use serde_json::{Value, json};
use support::server::{Kind, Server};

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy");

#[test]
fn its_pods_are_admitted_where_pod_security_is_restricted() {
    let cluster = Namespace::restricted();
    let warnings = cluster.kubectl(&["apply", "-k", DEPLOY]).success().stderr;
    assert_eq!(String::from_utf8_lossy(&warnings), "");

    let template = &cluster.get("deployment/tenure")["spec"]["template"];
    let mut pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"] });
    pod["metadata"]["generateName"] = json!("tenure-");

    cluster.create(&pod).success();
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = json!(true);
    let refused = cluster.create(&pod).failure();
    assert!(refused.contains("violates PodSecurity \"restricted"), "{refused}");
}

#[test]
fn the_account_may_do_to_its_lease_what_tenure_needs_and_nothing_else() {
    let cluster = Namespace::restricted();
    cluster.kubectl(&["apply", "-k", DEPLOY]).success();

    // The authorizer learns of the binding through its own watch.
    let deadline = tenure::clock::boot() + support::PATIENCE;
    while !cluster.account_may("get", "leases.coordination.k8s.io/tenure") {
        assert!(tenure::clock::boot() < deadline, "the role binding is not in force");
    }
    for verb in ["get", "watch", "update"] {
        assert!(cluster.account_may(verb, "leases.coordination.k8s.io/tenure"), "{verb} is missing");
        assert!(!cluster.account_may(verb, "leases.coordination.k8s.io/other"), "{verb} on any Lease");
    }
    for verb in ["create", "list", "patch", "delete", "deletecollection"] {
        assert!(!cluster.account_may(verb, "leases.coordination.k8s.io/tenure"), "{verb} is too much");
    }
    assert!(!cluster.account_may("get", "secrets"));
    assert!(!cluster.account_may("get", "pods"));
}

#[test]
fn a_second_apply_leaves_the_holder_alone() {
    let cluster = Namespace::restricted();
    cluster.kubectl(&["apply", "-k", DEPLOY]).success();
    let mut held = cluster.get("lease/tenure");
    held["spec"] = json!({
        "holderIdentity": "pod_0", "leaseDurationSeconds": 15, "leaseTransitions": 3,
        "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:03.000000Z",
    });
    held["metadata"]["labels"]["app.kubernetes.io/managed-by"] = json!("tenure");
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases/tenure", cluster.0);
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

#[test]
fn a_prefix_reaches_every_place_where_the_lease_is_named() {
    let cluster = Namespace::restricted();
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

#[test]
fn its_configuration_is_one_that_tenure_takes() {
    let mut tenure = Command::new(env!("CARGO_BIN_EXE_tenure"));
    tenure.args(["config", "effective", "--lease=tenure", "--config"]).arg(Path::new(DEPLOY).join("tenure.yaml"));

    tenure.output().unwrap().success();
}

#[test]
fn its_pods_have_the_grace_period_that_their_configuration_needs() {
    let cluster = Namespace::restricted();
    cluster.kubectl(&["apply", "-k", DEPLOY]).success();
    let mut tenure = Command::new(env!("CARGO_BIN_EXE_tenure"));
    tenure.args(["check", "--offline", "--lease=tenure", "--config"]).arg(Path::new(DEPLOY).join("tenure.yaml"));

    let said = tenure.output().unwrap().success().stdout;

    let said = String::from_utf8(said).unwrap();
    let (_, needed) = said.split_once("terminationGracePeriodSeconds: ").unwrap();
    let needed: u64 = needed.split(' ').next().unwrap().parse().unwrap();
    let granted = cluster.get("deployment/tenure")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap();
    assert!(granted >= needed, "{granted} s granted, {needed} s needed");
}

/// A new namespace on the API server, under Pod Security `restricted`.
struct Namespace(String);

impl Namespace {
    fn restricted() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let namespace = Self(format!("deploy-{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
        let levels = ["enforce", "warn"].map(|mode| (format!("pod-security.kubernetes.io/{mode}"), json!("restricted")));
        let labels: Value = levels.into_iter().collect();
        let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace.0, "labels": labels } });
        namespace.create(&object).success();
        namespace
    }

    fn kubectl(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("kubectl starts")
    }

    /// kubectl with this object on its standard input.
    fn feed(&self, arguments: &[&str], object: &Value) -> Output {
        let mut command = self.command(arguments);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("kubectl starts");
        child.stdin.take().unwrap().write_all(object.to_string().as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    fn create(&self, object: &Value) -> Output {
        self.feed(&["create", "-f", "-"], object)
    }

    fn get(&self, object: &str) -> Value {
        serde_json::from_slice(&self.kubectl(&["get", "-o", "json", object]).success().stdout).unwrap()
    }

    /// Whether the ServiceAccount of deploy/ is permitted this.
    fn account_may(&self, verb: &str, object: &str) -> bool {
        let account = format!("--as=system:serviceaccount:{}:tenure", self.0);
        let output = self.kubectl(&["auth", "can-i", verb, object, &account]);
        // The reason may follow a "no".
        match String::from_utf8_lossy(&output.stdout).split_whitespace().next() {
            Some("yes") => true,
            Some("no") => false,
            _ => panic!("{output:?}"),
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        static SERVER: OnceLock<Server> = OnceLock::new();
        static KUBECTL: OnceLock<String> = OnceLock::new();
        let server = SERVER.get_or_init(|| Server::start(Kind::Real));
        let mut command = Command::new(KUBECTL.get_or_init(kubectl));
        command.arg("--kubeconfig").arg(server.kubeconfig()).args(["--namespace", &self.0]).args(arguments);
        command
    }
}

/// The path of kubectl.
fn kubectl() -> String {
    let build = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/binaries/build");
    let output = Command::new(build).arg("kubectl").stderr(Stdio::inherit()).output().unwrap().success();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// How a command is expected to end.
trait Ended {
    fn success(self) -> Output;
    fn failure(self) -> String;
}

impl Ended for Output {
    fn success(self) -> Output {
        assert!(self.status.success(), "{}", String::from_utf8_lossy(&self.stderr));
        self
    }

    fn failure(self) -> String {
        assert!(!self.status.success(), "{}", String::from_utf8_lossy(&self.stdout));
        String::from_utf8(self.stderr).unwrap()
    }
}
