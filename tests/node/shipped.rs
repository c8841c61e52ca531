//! What is shipped beside deploy/, on the node: the chart, by the real Helm, through a rollout; and the EndpointSlice of
//! deploy/examples/service.yaml, through a hand-over.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use serde_json::json;

use crate::{
    node::{Node, PATIENCE, Pod, await_some},
    stamps::{Run, Stamps, now},
};

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy");
/// Stamps as [`Stamps`] reads them.
const WRITER: &str = r#"say() { read -r clock idle </proc/uptime; echo "$clock $*"; }; trap 'say stops; exit' TERM
    say "starts on $POD_NAME with token $TENURE_FENCING_TOKEN"; while :; do sleep 0.02 & wait "$!"; say runs; done"#;

/// Installs the chart with three replicas and rolls out another configuration: one runs at a time.
pub(crate) fn chart(node: &Node, stamps: &Stamps) {
    let helm = |verb: &str, value: &str| {
        let args = format!("args={}", json!(["sh", "-c", WRITER]));
        let set = format!("image.repository=tenure-example,replicas=3,{value}");
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

/// Deletes the leader's pod while a client asks whoever the slice names: only leaders answer.
pub(crate) fn traffic(node: &Node) {
    node.kubectl(&["apply", "-f", &format!("{DEPLOY}/examples/service.yaml")]);
    node.kubectl(&["rollout", "status", "deployment/billing", "--timeout=60s"]);
    let first = await_some("an answer through the slice", PATIENCE, || ask(node.leader()?));
    let is_over = AtomicBool::new(false);
    let answers = thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut answers = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let Some(address) = node.leader() else { continue };
                let asked = (0..20).map(|_| ask(address).map(|pod| (now(), pod)));
                answers.extend(asked.flatten());
            }
            answers
        });
        node.kubectl(&["delete", "pod", &first]);
        await_some("an answer by another", PATIENCE, || ask(node.leader()?).filter(|pod| *pod != first));
        thread::sleep(Duration::from_secs(1));
        is_over.store(true, Ordering::Relaxed);
        client.join().expect("it does not panic")
    });
    let next = answers.iter().position(|(_, pod)| *pod != first).expect("another answered");
    let (old, new) = answers.split_at(next);
    assert!(new.iter().all(|(_, pod)| *pod == new[0].1), "answers by others than the leader: {answers:?}");
    let gap = new[0].0 - old.last().map_or(new[0].0, |(at, _)| *at);
    println!(
        "{:<34} {:>5}.{:02} s  {} answers, all by leaders",
        "service.yaml, pod deleted",
        gap / 100,
        gap % 100,
        answers.len()
    );
}

impl Node {
    /// Where the slice sends its clients.
    fn leader(&self) -> Option<SocketAddr> {
        let slice = self.get("endpointslice/billing-leader");
        let address = slice["endpoints"][0]["addresses"][0].as_str()?.parse().ok()?;
        Some(SocketAddr::new(address, u16::try_from(slice["ports"][0]["port"].as_u64()?).ok()?))
    }
}

/// The name of the pod that answers.
fn ask(address: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    Some(body.trim().to_owned()).filter(|pod| !pod.is_empty())
}
