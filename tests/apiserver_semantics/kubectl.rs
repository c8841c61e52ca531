//! Commands that people type.

use std::process::Command;

use serde_json::json;

use crate::support::{
    case::{Case, cases},
    stage::Stage,
};

pub(crate) fn cases() -> Vec<Case> {
    cases![kubectl_reads_and_labels_and_deletes, kubectl_edits, kubectl_creates_and_applies, kubectl_explains,]
}

async fn kubectl_reads_and_labels_and_deletes(stage: Stage) {
    stage.given("a", json!({ "holderIdentity": "somebody" })).await;

    let table = kubectl(&stage, &["get", "leases"], None, "");
    kubectl(&stage, &["annotate", "lease", "a", "tenure.dev/note=hello"], None, "");
    kubectl(&stage, &["label", "lease", "a", "app=x"], None, "");
    let object = stage.get("a").await.ok();
    kubectl(&stage, &["delete", "lease", "a"], None, "");

    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["NAME", "HOLDER", "AGE"]);
    assert_eq!(lines[1][..2], ["a", "somebody"]);
    assert_eq!(object["metadata"]["annotations"]["tenure.dev/note"], "hello");
    assert_eq!(object["metadata"]["labels"]["app"], "x");
    assert_eq!(stage.get("a").await.code, 404);
}

async fn kubectl_edits(stage: Stage) {
    stage.given("a", json!({ "holderIdentity": "somebody" })).await;

    kubectl(&stage, &["edit", "lease", "a"], Some("sed -i s/somebody/another/"), "");

    assert_eq!(stage.get("a").await.ok()["spec"]["holderIdentity"], "another");
}

async fn kubectl_creates_and_applies(stage: Stage) {
    let manifest = |holder: &str| {
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": { "name": "a" },
            "spec": { "holderIdentity": holder, "leaseDurationSeconds": 15 },
        })
        .to_string()
    };

    kubectl(&stage, &["apply", "-f", "-"], None, &manifest("x"));
    kubectl(&stage, &["apply", "-f", "-"], None, &manifest("y"));

    assert_eq!(stage.get("a").await.ok()["spec"]["holderIdentity"], "y");
}

async fn kubectl_explains(stage: Stage) {
    let all = kubectl(&stage, &["explain", "lease"], None, "");
    let spec = kubectl(&stage, &["explain", "lease.spec"], None, "");
    let time = kubectl(&stage, &["explain", "leases.spec.renewTime"], None, "");
    let owner = kubectl(&stage, &["explain", "lease.metadata.ownerReferences.uid"], None, "");

    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let says = |text: &str, line: &[&str]| words(text).windows(line.len()).any(|words| words == line);
    assert!(says(&all, &["GROUP:", "coordination.k8s.io", "KIND:", "Lease", "VERSION:", "v1"]), "{all}");
    assert!(says(&spec, &["leaseTransitions", "<integer>"]) && says(&spec, &["holderIdentity", "<string>"]), "{spec}");
    assert!(says(&time, &["FIELD:", "renewTime"]), "{time}");
    assert!(says(&owner, &["FIELD:", "uid", "<string>"]), "{owner}");
}

/// What it prints.
fn kubectl(stage: &Stage, arguments: &[&str], editor: Option<&str>, input: &str) -> String {
    let mut command = Command::new("timeout");
    command.args(["30", "kubectl", "--kubeconfig"]).arg(stage.kubeconfig()).args(["--namespace", &stage.namespace]);
    command.args(arguments).env("KUBE_EDITOR", editor.unwrap_or("false"));
    let mut child = command
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("kubectl must be installed for these tests");
    std::io::Write::write_all(&mut child.stdin.take().expect("piped"), input.as_bytes()).expect("kubectl reads its input");
    let output = child.wait_with_output().expect("kubectl ends");
    assert!(output.status.success(), "kubectl {arguments:?}: {}", output.status);
    String::from_utf8(output.stdout).expect("text")
}
