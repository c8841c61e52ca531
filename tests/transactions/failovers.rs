//! Many failovers of three replicas whose hooks label the leader's own pod: after each of them no other pod has the label.

use std::{env, time::Duration};

use http::Method;
use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use support::{Case, PATIENCE, Replica, Request, Stage, Verbs, cases, found, spec::released, stalls, within};
use tenure::{clock, time::Instant};

use crate::TENURE;

pub(super) fn all() -> Vec<Case> {
    cases![after_each_of_many_failovers_only_the_leaders_pod_is_labelled]
}

/// As deploy/examples/role-label.yaml has it, with an object that all leaders share.
const PROMOTION: &str = "apiVersion: tenure.dev/v1
kind: Transaction
spec:
  changes:
  - target: {apiVersion: v1, kind: Pod, name: $(POD_NAME)}
    type: Patch
    content: {metadata: {labels: {role: leader}, annotations: {controller.kubernetes.io/pod-deletion-cost: '1000'}}}
  - target: {apiVersion: v1, kind: ConfigMap, name: shared}
    type: Patch
    content: {data: {leader: $(TENURE_IDENTITY)}}
";

const NAMES: [&str; 3] = ["a", "b", "c"];

/// How a term ends.
#[derive(Clone, Copy, Debug)]
enum End {
    StepDown,
    /// SIGKILL of init.
    Kill,
    /// SIGKILL of the init of the next leader while its hook promotes it.
    KillInHook,
    /// SIGSTOP of init and elector, until another leads.
    Freeze,
    /// The API server is out of reach, until another leads.
    Cut,
}

const ENDS: [End; 5] = [End::Kill, End::KillInHook, End::StepDown, End::Freeze, End::Cut];

/// The replicas, their pods, and what they share.
struct Set<'a> {
    stage: &'a Stage,
    replicas: Vec<Replica>,
}

impl<'a> Set<'a> {
    async fn of(stage: &'a Stage) -> Self {
        let core = format!("/api/v1/namespaces/{}", stage.namespace);
        let shared = json!({ "metadata": { "name": "shared" }, "data": { "leader": "none" } });
        stage.api.create(&format!("{core}/configmaps"), &shared).await;
        stage.api.create(&format!("{core}/serviceaccounts"), &json!({ "metadata": { "name": "default" } })).await;
        for name in NAMES {
            let spec = json!({ "containers": [{ "name": "billing", "image": "billing" }] });
            stage.api.create(&format!("{core}/pods"), &json!({ "metadata": { "name": name }, "spec": spec })).await;
        }
        let mut set = Self { stage, replicas: Vec::new() };
        for name in NAMES {
            let replica = set.start(name).await;
            set.replicas.push(replica);
        }
        set
    }

    async fn start(&self, name: &str) -> Replica {
        let rule = |resource: &str, verbs: &[&str]| json!({ "apiGroups": [""], "resources": [resource], "verbs": verbs });
        let others = vec![
            rule("pods", &["get", "patch"]),
            rule("configmaps", &["get", "patch"]),
            rule("secrets", &["get", "create", "update"]),
        ];
        let mut prepared = self.stage.prepare_with(name, &Verbs { others, ..Verbs::default() }).await;
        prepared = prepared.set("workload.stop.grace", "20s");
        let file = self.stage.directory().join("promotion.yaml");
        std::fs::write(&file, PROMOTION).expect("a file");
        prepared.launch.config["hooks"] = json!({
            "afterLead": { "command": [TENURE, "promote", "-f", file] },
            "beforeFollow": { "command": [TENURE, "demote"] },
        });
        prepared.launch.env.push(("POD_NAME".into(), name.into()));
        prepared.start()
    }

    fn replica(&self, name: &str) -> &Replica {
        self.replicas.iter().find(|replica| replica.name == name).expect("one of the replicas")
    }

    /// Starts each replica that has ended, as the kubelet does.
    async fn restart(&mut self) {
        for at in 0..self.replicas.len() {
            if !self.replicas[at].runs() {
                let name = self.replicas[at].name.clone();
                self.replicas[at] = self.start(&name).await;
            }
        }
    }

    async fn pods(&self) -> Vec<Value> {
        let (status, mut pods) =
            self.stage.api.call(Method::GET, &format!("/api/v1/namespaces/{}/pods", self.stage.namespace), None).await;
        assert_eq!(status, 200, "{pods}");
        pods["items"].as_array_mut().expect("pods").drain(..).collect()
    }

    async fn shared(&self) -> String {
        let path = format!("/api/v1/namespaces/{}/configmaps/shared", self.stage.namespace);
        let (_, shared) = self.stage.api.call(Method::GET, &path, None).await;
        shared["data"]["leader"].as_str().expect("a leader").to_owned()
    }

    /// The names of the pods that have the label.
    async fn labelled(&self) -> Vec<String> {
        let pods = self.pods().await;
        let labelled = pods.iter().map(|pod| &pod["metadata"]).filter(|metadata| {
            let has_cost = metadata.pointer("/annotations/controller.kubernetes.io~1pod-deletion-cost").is_some();
            assert_eq!(metadata["labels"]["role"] == "leader", has_cost, "half of a change: {metadata}");
            has_cost
        });
        labelled.map(|metadata| metadata["name"].as_str().expect("a name").to_owned()).collect()
    }

    /// Waits until the workload of a term after `before` runs, and only its pod is labelled. Returns the replica, the token and how long
    /// that took from the start of the workload.
    async fn settled(&self, before: &str) -> (String, String, Duration) {
        let settled = within(PATIENCE, "only the leader's pod is labelled", async {
            loop {
                let start = self.stage.witness.last_start().filter(|start| start.variable("TENURE_FENCING_TOKEN") != before);
                if let Some(start) = start
                    && self.replica(&start.replica).runs()
                    && self.labelled().await == [start.replica.clone()]
                    && self.shared().await.starts_with(&format!("{}_", start.replica))
                {
                    let took = clock::boot().since(start.at()).saturating_sub(stalls::since(start.at()));
                    break (start.replica.clone(), start.variable("TENURE_FENCING_TOKEN").to_owned(), took);
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        settled.await
    }

    /// Ends the term of this leader; returns what lets it go on once another leads.
    async fn end(&self, leader: &str, how: End) {
        let replica = self.replica(leader);
        match how {
            End::StepDown => self.stage.lease.ask_to_step_down().await,
            End::Kill => replica.signal(Signal::SIGKILL).await,
            End::KillInHook => {
                let begin = clock::boot();
                self.stage.lease.ask_to_step_down().await;
                self.kill_in_hook(leader, begin, fastrand::usize(1..9)).await;
            }
            End::Freeze => {
                for pid in [replica.elector().await, replica.init().await] {
                    kill(pid, Signal::SIGSTOP).expect("it lives");
                }
            }
            End::Cut => replica.proxy.cut(),
        }
    }

    /// Lets a former leader go on.
    async fn release(&self, leader: &str, how: End) {
        let replica = self.replica(leader);
        match how {
            End::Freeze if replica.runs() => {
                for pid in [replica.elector().await, replica.init().await] {
                    // The guards may have ended it.
                    let _ = kill(pid, Signal::SIGCONT);
                }
            }
            End::Cut => replica.proxy.mend().await,
            End::StepDown | End::Kill | End::KillInHook | End::Freeze => {}
        }
    }

    /// Kills the replica that leads next once its hook has sent so many requests.
    async fn kill_in_hook(&self, last: &str, begin: Instant, requests: usize) {
        let is_of_hook =
            |request: &Request| ["/pods/", "/secrets/", "/configmaps/"].iter().any(|kind| request.uri.contains(kind));
        let sent =
            |replica: &Replica| replica.proxy.log.since(begin).iter().filter(|exchange| is_of_hook(&exchange.request)).count();
        let others = || self.replicas.iter().filter(|replica| replica.name != last);
        let next = found("a hook that promotes", async || others().find(|replica| sent(replica) >= requests)).await;
        next.signal(Signal::SIGKILL).await;
        next.exit().await;
    }
}

async fn after_each_of_many_failovers_only_the_leaders_pod_is_labelled(stage: Stage) {
    stage.lease.create(released()).await;
    let mut set = Set::of(&stage).await;
    let before = set.pods().await;
    let (mut leader, mut token, _) = set.settled("").await;
    let mut took = Vec::new();
    let rounds = env::var("TENURE_TEST_FAILOVERS").map_or(ENDS.len(), |rounds| rounds.parse().expect("a number"));
    for round in 0..rounds {
        let how = ENDS[round % ENDS.len()];
        set.end(&leader, how).await;
        let last = leader;
        let span;
        (leader, token, span) = set.settled(&token).await;
        took.push((span, how));
        set.release(&last, how).await;
        set.restart().await;
        assert_eq!(set.labelled().await.len(), 1, "round {round}, {how:?}");
    }
    took.sort_by_key(|(span, _)| *span);
    let (worst, how) = took[took.len() - 1];
    let soon = took.iter().filter(|(span, _)| *span <= Duration::from_secs(1)).count();
    eprintln!(
        "{} failovers: only the leader's pod is labelled {:?} after the workload's start (median), {worst:?} at worst ({how:?}); {soon} within 1 s",
        took.len(),
        took[took.len() / 2].0,
    );

    for replica in set.replicas.iter().filter(|replica| replica.name != leader) {
        replica.stop().await;
    }
    // Its promotion may have changed everything and not be committed. A stop before that leaves the undo to the next leader.
    set.replica(&leader).said(&format!("token=\"{token}\"")).await;
    set.replica(&leader).stop().await;
    assert_eq!((set.labelled().await, set.shared().await), (Vec::new(), "none".to_owned()));
    let metadata = |pods: &[Value]| -> Vec<[Value; 3]> {
        let parts = |pod: &Value| ["name", "labels", "annotations"].map(|key| pod["metadata"][key].clone());
        pods.iter().map(parts).collect()
    };
    assert_eq!(metadata(&set.pods().await), metadata(&before), "the pods are as before");
}
