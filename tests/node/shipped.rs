//! What is shipped beside deploy/, on the node: the chart, by the real Helm, through a rollout, and through an upgrade and a rollback of
//! tenure itself; and the Service of deploy/examples/service.yaml, by way of the real kube-proxy, through a hand-over and a crash.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::mpsc,
    thread,
    time::Duration,
};

use nix::sys::signal::Signal;
use serde_json::json;
use support::not_run;

use crate::{
    node::{Node, PATIENCE, Pod, await_some},
    stamps::{Run, Stamps, now},
};

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy");
const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/helm/tenure");
const BILLING: &str = "app.kubernetes.io/name=billing";
/// Stamps as [`Stamps`] reads them.
const WRITER: &str = r#"say() { read -r clock idle </proc/uptime; echo "$clock $*"; }; trap 'say stops; exit' TERM
    say "starts on $POD_NAME with token $TENURE_FENCING_TOKEN"; while :; do sleep 0.02 & wait "$!"; say runs; done"#;

/// Rolls out another configuration of the chart: one runs at a time.
pub(crate) fn chart(node: &Node, stamps: &Stamps) {
    let rollout = Rollout { node, stamps, release: "writer" };
    rollout.installed(CHART, &["--set", "image.repository=tenure-example,config.workload.stop.grace=5s"]);
    rollout.step(&["upgrade", "writer", CHART, "--reuse-values", "--set", "config.workload.stop.grace=6s"]);
    rollout.ended("helm upgrade");
}

/// Rolls out this tenure over an earlier one, each with its own chart, and back again: one runs at a time.
pub(crate) fn upgrade(node: &Node, stamps: &Stamps, directory: &Path) {
    let earlier = directory.join("stand-ins/earlier-deploy/deploy/helm/tenure");
    if !node.has_image("docker.io/library/tenure-earlier:latest") {
        not_run("an upgrade from an earlier tenure", "this clone does not have its commit");
        return;
    }
    let rollout = Rollout { node, stamps, release: "keeper" };
    rollout.installed(earlier.to_str().expect("text"), &["--set", "image.repository=tenure-earlier"]);
    rollout.step(&["upgrade", "keeper", CHART, "--reset-then-reuse-values", "--set", "image.repository=tenure-example"]);
    rollout.step(&["rollback", "keeper", "1"]);
    rollout.ended("helm upgrade and rollback of tenure");
}

/// A release of the chart with three replicas.
struct Rollout<'a> {
    node: &'a Node,
    stamps: &'a Stamps,
    release: &'a str,
}

impl Rollout<'_> {
    fn installed(&self, chart: &str, words: &[&str]) {
        let args = format!("args={}", json!(["sh", "-c", WRITER]));
        let all = ["install", self.release, chart, "--set", "image.tag=latest,replicas=3", "--set-json", &args];
        self.node.helm(&[&all, words].concat());
        self.settled();
    }

    /// Another replica leads once all of them are new.
    fn step(&self, words: &[&str]) {
        let before = self.settled();
        self.node.helm(words);
        let after = self.settled();
        assert!(after.token > before.token && after.pod != before.pod, "it was not rolled out: {:?}", self.runs());
    }

    /// No two have run at once.
    fn ended(&self, what: &str) {
        let runs = self.runs();
        assert!(runs.windows(2).all(|pair| pair[0].last <= pair[1].first), "two at once: {runs:?}");
        assert!(runs.windows(2).all(|pair| pair[0].token < pair[1].token), "tokens do not rise: {runs:?}");
        let gap = runs.windows(2).map(|pair| pair[1].first - pair[0].last).max().unwrap();
        println!("{what:<34} {:>5}.{:02} s  {} lives in three replicas", gap / 100, gap % 100, runs.len());
        self.node.helm(&["uninstall", self.release]);
    }

    fn settled(&self) -> Run {
        let deployment = format!("deployment/{}-tenure", self.release);
        self.node.kubectl(&["rollout", "status", &deployment, "--timeout=90s"]);
        await_some("three replicas ready, and one at work", PATIENCE, || {
            let pods = self.node.pods(&format!("app.kubernetes.io/instance={}", self.release));
            let run = self.runs().pop().filter(|run| run.last + 250 > now())?;
            (pods.len() == 3 && pods.iter().all(Pod::is_ready) && pods.iter().any(|pod| pod.name() == run.pod)).then_some(run)
        })
    }

    fn runs(&self) -> Vec<Run> {
        let pods = format!("{}-tenure-", self.release);
        self.stamps.runs().into_iter().filter(|run| run.pod.starts_with(&pods)).collect()
    }
}

/// Hands over, and kills, while a client asks through the Service: only leaders answer.
pub(crate) fn traffic(node: &Node) {
    if !node.has_kube_proxy() {
        not_run("traffic by way of kube-proxy", "there is no iptables that works");
    }
    node.kubectl(&["apply", "-f", &format!("{DEPLOY}/examples/service.yaml")]);
    requests(node, "kubectl delete pod", |leader| {
        node.kubectl(&["delete", "pod", leader.name(), "--wait=false"]);
    });
    requests(node, "SIGKILL of its container", |leader| node.signal(leader, Signal::SIGKILL));
}

/// Asks again and again, a hundred times before `act`, and until another leader has answered as often.
fn requests(node: &Node, what: &str, act: impl FnOnce(&Pod)) {
    node.kubectl(&["rollout", "status", "deployment/billing", "--timeout=60s"]);
    let first = await_some("an answer", PATIENCE, || ask(node.way()?));
    let leader = node.pods(BILLING).into_iter().find(|pod| pod.name() == first).expect("the pod that answers");
    let (begun, has_begun) = mpsc::channel();
    let answers = thread::scope(|scope| {
        let first = &first;
        let client = scope.spawn(move || {
            let (mut answers, mut by_others) = (Vec::new(), 0);
            await_some("answers by another", PATIENCE, || {
                let way = node.way()?;
                // Nobody answers for many at a time.
                for pod in (0..20).map_while(|_| ask(way)) {
                    by_others += usize::from(pod != *first);
                    answers.push((now(), pod));
                }
                if answers.len() >= 100 {
                    begun.send(()).expect("it is awaited");
                }
                (by_others >= 100).then_some(())
            });
            answers
        });
        has_begun.recv().expect("a hundred answers");
        act(&leader);
        client.join().expect("it does not panic")
    });
    let next = answers.iter().position(|(_, pod)| *pod != first).expect("another answered");
    let (old, new) = answers.split_at(next);
    let strangers = new.iter().filter(|(_, pod)| *pod != new[0].1).count();
    assert_eq!(strangers, 0, "answers by others than the leader: {answers:?}");
    let holder = node.get("lease/billing")["spec"]["holderIdentity"].to_string();
    assert!(holder.contains(&new[0].1), "{holder} holds the Lease, and {} answers", new[0].1);
    let gap = new[0].0 - old.last().map_or(new[0].0, |(at, _)| *at);
    let by = if node.has_kube_proxy() { "kube-proxy" } else { "the slice" };
    println!(
        "{what:<34} {:>5}.{:02} s  {} answers by way of {by}, {strangers} not by the leader",
        gap / 100,
        gap % 100,
        answers.len()
    );
}

impl Node {
    /// Where clients of the Service go: to its address, or where there is no kube-proxy, to that which the slice has.
    fn way(&self) -> Option<SocketAddr> {
        let (at, place) = if self.has_kube_proxy() {
            (self.get("service/billing"), ["/spec/clusterIP", "/spec/ports/0/port"])
        } else {
            (self.get("endpointslice/billing-leader"), ["/endpoints/0/addresses/0", "/ports/0/port"])
        };
        let [address, port] = place.map(|place| at.pointer(place));
        Some(SocketAddr::new(address?.as_str()?.parse().ok()?, u16::try_from(port?.as_u64()?).ok()?))
    }
}

/// The name of the pod that answers.
pub(crate) fn ask(address: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    Some(body.trim().to_owned()).filter(|pod| !pod.is_empty())
}
