//! What is shipped beside deploy/, on the node: the chart, by the real Helm, through a rollout; and the Service of
//! deploy/examples/service.yaml, by way of the real kube-proxy, through a hand-over and a crash.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
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
const BILLING: &str = "app.kubernetes.io/name=billing";
/// Stamps as [`Stamps`] reads them.
const WRITER: &str = r#"say() { read -r clock idle </proc/uptime; echo "$clock $*"; }; trap 'say stops; exit' TERM
    say "starts on $POD_NAME with token $TENURE_FENCING_TOKEN"; while :; do sleep 0.02 & wait "$!"; say runs; done"#;

/// Installs the chart with three replicas and rolls out another configuration: one runs at a time.
pub(crate) fn chart(node: &Node, stamps: &Stamps) {
    let helm = |verb: &str, value: &str| {
        let args = format!("args={}", json!(["sh", "-c", WRITER]));
        let set = format!("image.repository=tenure-example,image.tag=latest,replicas=3,{value}");
        node.helm(&[verb, "writer", &format!("{DEPLOY}/helm/tenure"), "--set", &set, "--set-json", &args]);
        node.kubectl(&["rollout", "status", "deployment/writer-tenure", "--timeout=90s"]);
    };
    let runs = || -> Vec<Run> { stamps.runs().into_iter().filter(|run| run.pod.starts_with("writer-tenure-")).collect() };
    let settled = || {
        await_some("three replicas ready, and one at work", PATIENCE, || {
            let pods = node.pods("app.kubernetes.io/instance=writer");
            let run = runs().pop().filter(|run| run.last + 250 > now())?;
            (pods.len() == 3 && pods.iter().all(Pod::is_ready) && pods.iter().any(|pod| pod.name() == run.pod)).then_some(run)
        })
    };
    helm("install", "config.workload.stop.grace=5s");
    let before = settled();
    helm("upgrade", "config.workload.stop.grace=6s");
    let after = settled();
    let runs = runs();
    assert!(after.token > before.token && after.pod != before.pod, "it was not rolled out: {runs:?}");
    assert!(runs.windows(2).all(|pair| pair[0].last <= pair[1].first), "two at once: {runs:?}");
    let gap = runs.windows(2).map(|pair| pair[1].first - pair[0].last).max().unwrap();
    println!("{:<34} {:>5}.{:02} s  {} lives in a rollout of three", "helm upgrade", gap / 100, gap % 100, runs.len());
    node.helm(&["uninstall", "writer"]);
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
