//! Commands that people type, by the pinned kubectl, which is client-go's dynamic client, discovery and informers too.

use std::process::{Child, Command, Stdio};

use serde_json::json;
use support::{Case, Stage, cases, programs, until};

use super::{Leases as _, lease, uid, with};

pub(super) fn cases() -> Vec<Case> {
    cases![BOTH: kubectl_gets_and_annotates_and_labels, kubectl_waits_for_a_field, kubectl_deletes_and_waits_for_that]
}

async fn kubectl_gets_and_annotates_and_labels(stage: Stage) {
    stage.given("a", json!({ "holderIdentity": "somebody" })).await;

    let table = done(kubectl(&stage, &["get", "leases"]));
    done(kubectl(&stage, &["annotate", "lease", "a", "tenure.dev/note=hello", "tenure.dev/other=x"]));
    done(kubectl(&stage, &["annotate", "lease", "a", "tenure.dev/other-"]));
    done(kubectl(&stage, &["label", "lease", "a", "app=x"]));
    let chosen = done(kubectl(&stage, &["get", "leases", "-l", "app=x", "-o", "jsonpath={.items[*].spec.holderIdentity}"]));
    let missing = kubectl(&stage, &["get", "lease", "b"]).wait_with_output().expect("kubectl ends");

    let names: Vec<_> = table.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!((names.as_slice(), chosen.as_str()), (["NAME", "a"].as_slice(), "somebody"));
    let object = stage.get("a").await.ok();
    assert_eq!(object["metadata"]["annotations"], json!({ "tenure.dev/note": "hello" }));
    assert_eq!(object["metadata"]["labels"]["app"], "x");
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(!missing.status.success() && said.contains("leases.coordination.k8s.io \"b\" not found"), "{said}");
}

async fn kubectl_waits_for_a_field(stage: Stage) {
    stage.given("a", json!({ "holderIdentity": "x" })).await;
    let waits = kubectl(&stage, &["wait", "lease/a", "--for=jsonpath={.spec.holderIdentity}=y", "--timeout=25s"]);

    stage.patch("a", &json!({ "spec": { "holderIdentity": "y" } })).await.ok();

    assert!(done(waits).contains("condition met"));
}

/// The Lease is made anew at once, as by a standby.
async fn kubectl_deletes_and_waits_for_that(stage: Stage) {
    let old = stage.post(&with(lease("a", json!({})), "/metadata/finalizers", json!(["example.com/f"]))).await.created();
    let deletes = kubectl(&stage, &["delete", "lease", "a"]);
    until("it is deleted", async || !stage.get("a").await.ok()["metadata"]["deletionTimestamp"].is_null()).await;

    stage.patch("a", &json!({ "metadata": { "finalizers": null } })).await.ok();
    let new = stage.given("a", json!({})).await;

    assert!(done(deletes).contains("deleted"));
    assert_ne!(uid(&old), uid(&new));
    let waits = kubectl(&stage, &["wait", "lease/a", "--for=delete", "--timeout=25s"]);
    stage.delete("a", &json!({})).await.ok();
    done(waits);
}

fn kubectl(stage: &Stage, arguments: &[&str]) -> Child {
    let mut command = Command::new("timeout");
    command.arg("30").arg(programs::path("kubectl")).arg("--kubeconfig").arg(stage.kubeconfig());
    command.args(["--namespace", &stage.namespace]).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("timeout starts")
}

/// Waits until kubectl has succeeded, and returns what it prints.
fn done(child: Child) -> String {
    let output = child.wait_with_output().expect("kubectl ends");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}
