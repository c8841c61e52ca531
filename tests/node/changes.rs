//! The examples of docs/transactions.md, applied unchanged: what a leader changes follows it however the last one ended, and what a Job
//! changes is changed as a whole.

use std::{fs, net::SocketAddr};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::{
    node::{NAMESPACE, Node, PATIENCE, Pod, await_some},
    shipped::ask,
    stamps::{Run, Stamps, now},
};

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/examples");

/// Runs everything in order; panics where something does not hold.
pub(crate) fn run(node: &Node, stamps: &Stamps) {
    let begin = tenure::clock::boot();
    let changes = Changes { node, stamps };
    for file in ["role-label.yaml", "selector.yaml", "service.yaml"] {
        changes.apply(file);
    }
    changes.blue_green();
    changes.role_label();
    changes.selector();
    changes.transaction();
    println!("node: the examples of transactions took {:.0} s", tenure::clock::boot().since(begin).as_secs_f64());
}

struct Changes<'a> {
    node: &'a Node,
    stamps: &'a Stamps,
}

impl Changes<'_> {
    /// Of three pods only the leader's has the label, however the last leader ended. A scale-down to one spares the leader, even the youngest.
    fn role_label(&self) {
        self.labelled(0);
        for _ in 0..2 {
            self.relabelled("SIGKILL of its container", |leader| self.node.signal(leader, Signal::SIGKILL));
            self.relabelled("tenure step-down", |_| self.step_down("billing-role"));
            self.relabelled("kubectl delete pod", |leader| {
                self.node.kubectl(&["delete", "pod", leader.name(), "--wait=false"]);
            });
        }
        self.relabelled("kubectl rollout restart", |_| {
            self.node.kubectl(&["rollout", "restart", "deployment/billing-role"]);
            self.rolled_out("billing-role");
        });
        let (eldest, _) = self.labelled(0);
        self.scale(1);
        self.scale(3);
        self.relabelled("tenure step-down", |_| self.step_down("billing-role"));
        let (leader, run) = self.labelled(0);
        assert_ne!(leader.name(), eldest.name(), "a scale-down took the leader");
        self.scale(1);
        let (left, same) = self.labelled(0);
        assert_eq!((left.name(), same.token), (leader.name(), run.token), "a scale-down took a younger leader");
        self.apply("role-label.yaml");
        self.rolled_out("billing-role");
        assert_eq!(self.labelled(0).1.token, run.token, "a second apply ended the term");
        self.node.kubectl(&["scale", "deployment/billing-role", "--replicas=0"]);
        println!("{:<34} only the leader has the label, and a scale-down spares it", "role-label.yaml");
    }

    fn relabelled(&self, what: &str, act: impl FnOnce(&Pod)) {
        let (leader, before) = self.labelled(0);
        act(&leader);
        let (next, _) = self.labelled(before.token + 1);
        let runs: Vec<Run> = self.runs().into_iter().filter(|run| run.token >= before.token).collect();
        let gap = runs.windows(2).map(|pair| pair[1].first - pair[0].last).max().unwrap();
        println!("{what:<34} {:>5}.{:02} s  {} has the label", gap / 100, gap % 100, next.name());
    }

    fn runs(&self) -> Vec<Run> {
        self.stamps.runs().into_iter().filter(|run| run.pod.starts_with("billing-role-")).collect()
    }

    /// Waits until one program runs, with at least this token, and only its pod has the label and the annotation.
    fn labelled(&self, token: u64) -> (Pod, Run) {
        await_some("a leader whose pod alone has the label", PATIENCE, || {
            let runs = self.runs();
            for pair in runs.windows(2) {
                assert!(pair[0].last <= pair[1].first, "two at once: {} and {}", pair[0].summary(), pair[1].summary());
            }
            let run = runs.last().filter(|run| run.last + 250 > now() && run.token >= token)?;
            let pods = self.node.pods("app.kubernetes.io/name=billing-role");
            let labelled: Vec<&Pod> = pods.iter().filter(|pod| is_labelled(pod)).collect();
            let [pod] = labelled[..] else { return None };
            (pod.name() == run.pod && pods.iter().all(Pod::is_ready)).then(|| (pod.clone(), run.clone()))
        })
    }

    fn scale(&self, replicas: usize) {
        self.node.kubectl(&["scale", "deployment/billing-role", &format!("--replicas={replicas}")]);
        await_some("as many pods, all ready", PATIENCE, || {
            let pods = self.node.pods("app.kubernetes.io/name=billing-role");
            (pods.len() == replicas && pods.iter().all(Pod::is_ready)).then_some(())
        });
    }

    /// The Service has one endpoint, the leader, which answers.
    fn selector(&self) {
        self.node.kubectl(&["rollout", "status", "statefulset/billing-store", "--timeout=60s"]);
        let mut leader = self.reaches();
        for (what, act) in [
            ("SIGKILL of its container", &(|pod: &Pod| self.node.signal(pod, Signal::SIGKILL)) as &dyn Fn(&Pod)),
            ("tenure step-down", &|_| self.step_down("billing-store")),
            ("kubectl delete pod", &|pod| drop(self.node.kubectl(&["delete", "pod", pod.name(), "--wait=false"]))),
        ] {
            let begin = tenure::clock::boot();
            act(&leader);
            let next =
                await_some("another leader", PATIENCE, || Some(self.reaches()).filter(|next| next.name() != leader.name()));
            let took = tenure::clock::boot().since(begin).as_secs_f64();
            println!("{what:<34} {took:>8.2} s  the Service reaches {}", next.name());
            leader = next;
        }
        self.apply("selector.yaml");
        assert_eq!(self.reaches().name(), leader.name(), "a second apply reset the selector");
        println!("{:<34} the selector follows the leader, and a second apply leaves it", "selector.yaml");
    }

    /// Waits until the Service has one endpoint, which is the leader and answers.
    fn reaches(&self) -> Pod {
        await_some("a Service that reaches the leader alone", PATIENCE, || {
            let holder = self.node.get("lease/billing-store")["spec"]["holderIdentity"].take();
            let pods = self.node.pods("app.kubernetes.io/name=billing-store");
            let leader = pods.iter().find(|pod| holder.as_str().is_some_and(|it| it.starts_with(&format!("{}_", pod.name()))))?;
            let [(pod, address)] = &self.endpoints("billing-store")[..] else { return None };
            let way = if self.node.has_kube_proxy() { self.cluster_address("billing-store") } else { *address };
            let is_whole = pods.len() == 2 && pods.iter().all(Pod::is_ready);
            (is_whole && pod == leader.name() && ask(way).as_ref() == Some(pod)).then(|| leader.clone())
        })
    }

    /// The pods that get the traffic of a Service, and where they listen.
    fn endpoints(&self, service: &str) -> Vec<(String, SocketAddr)> {
        let selector = format!("kubernetes.io/service-name={service}");
        let slices: Value =
            serde_json::from_str(&self.node.kubectl(&["get", "endpointslices", "--selector", &selector, "--output=json"]))
                .unwrap();
        let mut endpoints = Vec::new();
        for slice in slices["items"].as_array().unwrap() {
            let Some(port) = slice["ports"][0]["port"].as_u64() else { continue };
            let ready =
                slice["endpoints"].as_array().into_iter().flatten().filter(|endpoint| endpoint["conditions"]["ready"] == true);
            endpoints.extend(ready.map(|endpoint| {
                let address = endpoint["addresses"][0].as_str().unwrap().parse().unwrap();
                (
                    endpoint["targetRef"]["name"].as_str().unwrap().to_owned(),
                    SocketAddr::new(address, u16::try_from(port).unwrap()),
                )
            }));
        }
        endpoints.sort();
        endpoints
    }

    fn cluster_address(&self, service: &str) -> SocketAddr {
        let spec = self.node.get(&format!("service/{service}"))["spec"].take();
        let port = u16::try_from(spec["ports"][0]["port"].as_u64().unwrap()).unwrap();
        SocketAddr::new(spec["clusterIP"].as_str().unwrap().parse().unwrap(), port)
    }

    /// Both Services change places once green is ready, and neither before. An undo changes both back.
    fn blue_green(&self) {
        let colors = || ["billing-web", "billing-web-preview"].map(|service| self.color(service));
        let (before, after) = ([json!("blue"), json!("green")], [json!("green"), json!("blue")]);
        self.node.kubectl(&["delete", "job/billing-web-switch", "--ignore-not-found"]);
        self.apply("blue-green.yaml");
        self.completed("billing-web-switch");
        assert_eq!(colors(), after);
        for (service, color) in [("billing-web", "green"), ("billing-web-preview", "blue")] {
            await_some("traffic to the other color", PATIENCE, || {
                let [(pod, _)] = &self.endpoints(service)[..] else { return None };
                pod.starts_with(&format!("billing-web-{color}-")).then_some(())
            });
        }

        let undone = self.node.tenure(&["recover", "apply", "billing-web-switch"]);
        assert!(undone.status.success(), "{}", String::from_utf8_lossy(&undone.stderr));
        assert_eq!(colors(), before);

        self.node.kubectl(&["scale", "deployment/billing-web-green", "--replicas=0"]);
        let green = "--selector=app.kubernetes.io/name=billing-web,color=green";
        self.node.kubectl(&["wait", "--for=delete", "pod", green, "--timeout=60s"]);
        await_some("the status of green", PATIENCE, || {
            self.node.get("deployment/billing-web-green")["status"]["readyReplicas"].is_null().then_some(())
        });
        self.again("blue-green.yaml", "billing-web-switch");
        let said = self.failed("billing-web-switch");
        assert!(said.contains("is not as required"), "{said}");
        assert_eq!(colors(), before, "switched to what is not ready");
        self.node.kubectl(&["scale", "deployment/billing-web-green", "--replicas=1"]);
        self.completed("billing-web-switch");
        assert_eq!(colors(), after);
        println!("{:<34} both Services change places once green is ready, and back", "blue-green.yaml");
    }

    fn color(&self, service: &str) -> Value {
        self.node.get(&format!("service/{service}"))["spec"]["selector"]["color"].take()
    }

    /// All three objects have the change, or none of them, even where the third is refused after the others were changed.
    fn transaction(&self) {
        let (none, all) = ([Value::Null, Value::Null, Value::Null], [json!("EUR"), json!("EUR"), json!("EUR")]);
        self.node.kubectl(&["delete", "job/billing-release", "--ignore-not-found"]);
        self.apply("transaction.yaml");
        self.completed("billing-release");
        assert_eq!(self.currencies(), all);
        self.rolled_out("billing");

        let undone = self.node.tenure(&["recover", "apply", "billing-release"]);
        assert!(undone.status.success(), "{}", String::from_utf8_lossy(&undone.stderr));
        assert_eq!(self.currencies(), none);

        self.refuse_the_last();
        self.again("transaction.yaml", "billing-release");
        let said = self.failed("billing-release");
        assert!(said.contains("refused by the test") && said.contains("undone"), "{said}");
        assert_eq!(self.currencies(), none, "half of it is left: {said}");
        self.node.kubectl(&["delete", "validatingadmissionpolicy/refuse-the-last"]);
        self.completed("billing-release");
        assert_eq!(self.currencies(), all);
        self.rolled_out("billing");
        println!("{:<34} reaches all three objects, or none", "transaction.yaml");
    }

    /// What the transaction sets in each of its objects; the marks are gone.
    fn currencies(&self) -> [Value; 3] {
        [
            ("configmap", "/data/currency"),
            ("deployment", "/spec/template/metadata/annotations/currency"),
            ("service", "/metadata/labels/currency"),
        ]
        .map(|(kind, place)| {
            let object = self.node.get(&format!("{kind}/billing"));
            assert_eq!(object.pointer("/metadata/annotations/tenure.dev~1change"), None, "{object}");
            object.pointer(place).cloned().unwrap_or_default()
        })
    }

    /// From now on the third object takes a dry run only.
    fn refuse_the_last(&self) {
        let rule = json!({ "apiGroups": [""], "apiVersions": ["v1"], "resources": ["services"], "operations": ["UPDATE"] });
        let conditions = json!([{ "name": "it", "expression": "object.metadata.name == 'billing'" }]);
        let validations = json!([{ "expression": "request.?dryRun.orValue(false)", "message": "refused by the test" }]);
        let metadata = json!({ "name": "refuse-the-last" });
        let api = "admissionregistration.k8s.io/v1";
        let spec =
            json!({ "matchConstraints": { "resourceRules": [rule] }, "matchConditions": conditions, "validations": validations });
        let policy = json!({ "apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": metadata, "spec": spec });
        let spec = json!({ "policyName": "refuse-the-last", "validationActions": ["Deny"] });
        let binding =
            json!({ "apiVersion": api, "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata, "spec": spec });
        self.node.apply(&json!({ "apiVersion": "v1", "kind": "List", "items": [policy, binding] }));
        await_some("the policy in force", PATIENCE, || {
            let value = format!("tried={}", now());
            (!self.node.try_kubectl(&["annotate", "--overwrite", "service/billing", &value]).status.success()).then_some(())
        });
    }

    fn step_down(&self, lease: &str) {
        let asked = self.node.tenure(&["step-down", lease]);
        assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
    }

    fn apply(&self, file: &str) {
        self.node.kubectl(&["apply", "-f", &format!("{EXAMPLES}/{file}")]);
    }

    /// Runs the Job of an example once more.
    fn again(&self, file: &str, job: &str) {
        self.node.kubectl(&["delete", &format!("job/{job}"), "--timeout=60s"]);
        let text = fs::read_to_string(format!("{EXAMPLES}/{file}")).unwrap();
        let documents = text.split("---\n").filter_map(|text| serde_saphyr::from_str::<Value>(text).ok());
        self.node.apply(&documents.into_iter().find(|object| object["kind"] == "Job").expect("a Job"));
    }

    /// What the first pod of a Job has said, once it has failed.
    fn failed(&self, job: &str) -> String {
        await_some("a pod of the Job that failed", PATIENCE, || {
            (self.node.get(&format!("job/{job}"))["status"]["failed"].as_u64()? > 0).then_some(())
        });
        self.node.kubectl(&["logs", &format!("job/{job}")])
    }

    fn completed(&self, job: &str) {
        let job = format!("job/{job}");
        let ended = self.node.try_kubectl(&["wait", "--for=condition=complete", &job, "--timeout=90s"]);
        assert!(ended.status.success(), "{job}: {}", self.node.kubectl(&["logs", &job]));
    }

    fn rolled_out(&self, deployment: &str) {
        self.node.kubectl(&["rollout", "status", &format!("deployment/{deployment}"), "--timeout=90s"]);
    }
}

/// Has both parts of the promotion; never only one.
fn is_labelled(pod: &Pod) -> bool {
    let metadata = pod.metadata();
    let has_cost = metadata.pointer("/annotations/controller.kubernetes.io~1pod-deletion-cost").is_some();
    assert_eq!(metadata["labels"]["role"] == "leader", has_cost, "half of the promotion in {NAMESPACE}: {metadata}");
    has_cost
}
