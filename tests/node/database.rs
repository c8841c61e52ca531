//! The database of docs/images-and-pods.md on the node, by the real Helm: PostgreSQL in a StatefulSet, each replica with a volume of its
//! own. Its servers are counted from outside, many times a second.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    thread,
    time::Duration,
};

use nix::sys::signal::Signal;
use serde_json::json;
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
    let database = Database { node };
    database.offer_volumes(directory);
    node.kubectl(&["create", "secret", "generic", "ledger-password", "--from-literal=POSTGRES_PASSWORD=secret"]);
    node.tag("docker.io/library/tenure:latest", "registry.example/tenure:0.1.0");
    let values = directory.join("ledger.yaml");
    fs::write(&values, fences::file(PAGE, "ledger.yaml").replace("REGISTRY", "registry.example")).unwrap();
    let helm = |verb: &str, more: &str| {
        node.helm(&[verb, "shop", CHART, "--values", values.to_str().unwrap(), "--set", more]);
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
        helm("install", "replicas=2");
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
        helm("upgrade", "config.workload.stop.grace=50s");
        database.answers(None);
        drop(leader);
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
}

impl Database<'_> {
    /// One for the claim of each replica.
    fn offer_volumes(&self, directory: &Path) {
        for replica in 0..2 {
            let path = directory.join(format!("ledger-{replica}"));
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
            let claim = json!({ "namespace": NAMESPACE, "name": format!("data-shop-ledger-{replica}") });
            let spec = json!({
                "capacity": { "storage": "10Gi" }, "accessModes": ["ReadWriteOnce"], "hostPath": { "path": path }, "claimRef": claim,
            });
            let metadata = json!({ "name": format!("ledger-{replica}") });
            let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec });
            let file = directory.join(format!("ledger-{replica}.json"));
            fs::write(&file, volume.to_string()).unwrap();
            self.node.kubectl(&["apply", "-f", file.to_str().unwrap()]);
        }
    }

    /// Ends a leader, and waits until the next one answers.
    fn follows(&self, leader: &Pod, what: &str, act: impl FnOnce(&Pod)) -> Pod {
        let begin = tenure::clock::boot();
        act(leader);
        let next = self.answers(Some(leader));
        println!("{what:<34} {:>8.2} s  then {} answers", tenure::clock::boot().since(begin).as_secs_f64(), next.name());
        next
    }

    /// Waits until a server other than that of `last` takes a row, and all replicas are ready.
    fn answers(&self, last: Option<&Pod>) -> Pod {
        await_some("a database that takes a row", PATIENCE, || {
            let pods = self.node.pods(PODS);
            let holder = self.node.get("lease/shop-ledger")["spec"]["holderIdentity"].take();
            let holds = |pod: &&Pod| holder.as_str().is_some_and(|holder| holder.starts_with(&format!("{}_", pod.name())));
            let leader = pods.iter().find(holds)?;
            let is_another = last.is_none_or(|last| last.name() != leader.name());
            (is_another && pods.len() == 2 && pods.iter().all(Pod::is_ready) && self.takes_row(leader)).then(|| leader.clone())
        })
    }

    fn takes_row(&self, pod: &Pod) -> bool {
        let statement = "CREATE TABLE IF NOT EXISTS t (n bigint); INSERT INTO t VALUES (1);";
        let psql = [
            "exec",
            pod.name(),
            "--container=ledger",
            "--",
            "psql",
            "-h",
            "/var/run/postgresql",
            "-U",
            "postgres",
            "-c",
            statement,
        ];
        self.node.try_kubectl(&psql).status.success()
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
