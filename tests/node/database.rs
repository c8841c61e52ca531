//! The database of docs/images-and-pods.md on the node, by the real Helm: PostgreSQL in a StatefulSet of one replica, with one volume. Its
//! servers are counted from outside, many times a second, and no row is lost.

use std::{
    cell::Cell,
    collections::BTreeSet,
    fs,
    path::Path,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    thread,
    time::Duration,
};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use support::{fences, not_run};

use crate::node::{NAMESPACE, Node, PATIENCE, Pod, await_some};

const PAGE: &str = include_str!("../../docs/images-and-pods.md");
const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/helm/tenure");
const PODS: &str = "app.kubernetes.io/instance=shop,app.kubernetes.io/name=ledger";

/// Installs it, kills, hands over, upgrades; panics where two servers run at once, or one does not come back.
pub(crate) fn run(node: &Node, directory: &Path) {
    if !node.has_image("docker.io/library/postgres:18-alpine") {
        return not_run("PostgreSQL by the chart", "there is no PostgreSQL to make an image of");
    }
    let begin = tenure::clock::boot();
    let database = Database { node, rows: Cell::new(0) };
    let claim = json!({ "namespace": NAMESPACE, "name": "data-shop-ledger-0" });
    node.offer_volume("ledger", json!({ "capacity": { "storage": "10Gi" }, "claimRef": claim }));
    node.kubectl(&["create", "secret", "generic", "ledger-password", "--from-literal=POSTGRES_PASSWORD=secret"]);
    node.tag("docker.io/library/tenure:latest", "registry.example/tenure:0.1.0");
    let values = directory.join("ledger.yaml");
    fs::write(&values, fences::file(PAGE, "ledger.yaml").replace("REGISTRY", "registry.example")).unwrap();
    let helm = |verb: &str, more: &[&str]| {
        node.helm(&[&[verb, "shop", CHART, "--values", values.to_str().unwrap()], more].concat());
        node.kubectl(&["rollout", "status", "statefulset/shop-ledger", "--timeout=120s"]);
    };
    let (over, most) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                most.fetch_max(servers().len(), Relaxed);
                thread::sleep(Duration::from_millis(2));
            }
        });
        // Also where something panics.
        let _over = Over(&over);
        helm("install", &[]);
        let mut leader = database.answers(None);
        for _ in 0..2 {
            leader = database.follows(&leader, "SIGKILL of its container", |leader| node.signal(leader, Signal::SIGKILL));
        }
        leader = database.follows(&leader, "tenure step-down", |_| {
            assert!(node.tenure(&["step-down", "shop-ledger"]).status.success());
        });
        leader = database.follows(&leader, "kubectl delete pod", |leader| {
            node.kubectl(&["delete", "pod", leader.name(), "--wait=false"]);
        });
        helm("upgrade", &["--set", "config.workload.stop.grace=50s"]);
        database.answers(Some(&leader));
    });
    assert_eq!(most.into_inner(), 1, "servers at once");
    node.helm(&["uninstall", "shop", "--wait"]);
    println!(
        "node: PostgreSQL by the chart, never two servers at once, in {:.0} s",
        tenure::clock::boot().since(begin).as_secs_f64()
    );
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

struct Database<'a> {
    node: &'a Node,
    /// That were taken, and must not be lost.
    rows: Cell<u64>,
}

/// The pod that leads, and the beginning of its term.
struct Leader {
    pod: Pod,
    since: Value,
}

impl Database<'_> {
    /// Ends a term, and waits until the server of the next one answers.
    fn follows(&self, leader: &Leader, what: &str, act: impl FnOnce(&Pod)) -> Leader {
        let begin = tenure::clock::boot();
        act(&leader.pod);
        let next = self.answers(Some(leader));
        println!("{what:<34} {:>8.2} s  then {} answers", tenure::clock::boot().since(begin).as_secs_f64(), next.pod.name());
        next
    }

    /// Waits until the server of another term than `last` takes a row, and has all that were taken before.
    fn answers(&self, last: Option<&Leader>) -> Leader {
        await_some("a database that takes a row", PATIENCE, || {
            let [pod] = self.node.pods(PODS).try_into().ok()?;
            let lease = self.node.get("lease/shop-ledger");
            let (holder, since) = (lease["spec"]["holderIdentity"].as_str()?, lease["spec"]["acquireTime"].clone());
            let is_another = last.is_none_or(|last| last.since != since);
            let leads = is_another && holder.starts_with(&format!("{}_", pod.name())) && pod.is_ready();
            let rows = if leads { self.takes_row(&pod) } else { None }?;
            assert_eq!(self.rows.replace(rows) + 1, rows, "a row is lost");
            Some(Leader { pod, since })
        })
    }

    /// How many rows there are then; none if it does not answer.
    fn takes_row(&self, pod: &Pod) -> Option<u64> {
        let statement = "CREATE TABLE IF NOT EXISTS t (n bigint); INSERT INTO t VALUES (1); SELECT count(*) FROM t";
        let psql = "--container=ledger -- psql -h /var/run/postgresql -U postgres -qtAc";
        let psql: Vec<_> = ["exec", pod.name()].into_iter().chain(psql.split(' ')).chain([statement]).collect();
        let output = self.node.try_kubectl(&psql);
        let text = if output.status.success() { String::from_utf8(output.stdout).ok()? } else { return None };
        text.trim().parse().ok()
    }
}

/// The PID namespaces in which a PostgreSQL server lives.
fn servers() -> BTreeSet<std::path::PathBuf> {
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let is_server = |process: &std::path::PathBuf| {
        fs::read_link(process.join("exe")).is_ok_and(|program| program.ends_with("bin/postgres"))
            && fs::read(process.join("cmdline")).is_ok_and(|line| line == b"postgres\0")
    };
    processes.filter(is_server).filter_map(|process| fs::read_link(process.join("ns/pid")).ok()).collect()
}
