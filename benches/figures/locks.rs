//! What a lock costs: round trips and wall time on a free Lease, and the API server's work for the processes that wait.

use std::{
    collections::BTreeMap,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::json;
use support::{Kept, LEASE, Server, Stage, programs, server::scratch};

use crate::{
    contestant::Programs,
    table::{quantile, row, title},
};

/// The number of slots, and of the processes that wait for one.
const POOLS: [(usize, usize); 2] = [(3, 7), (10, 100)];
const SPAN: Duration = Duration::from_secs(180);

pub async fn show(server: &Server, programs: &Programs, rounds: usize) {
    one(server, programs, rounds).await;
    for (slots, waiting) in POOLS {
        pool(server, programs, slots, waiting).await;
    }
}

/// Measures `lock -- true` on a released Lease, beside `flock -n`.
async fn one(server: &Server, programs: &Programs, rounds: usize) {
    title("`tenure lock -- true` on a free Lease beside `flock -n FILE true`, wall time, interleaved");
    let stage = Stage::set(server, &scratch("figures")).await;
    let released = json!({"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 0});
    stage.lease.create(released).await;
    stage.lease.edit(|lease| lease["metadata"]["annotations"] = json!({"tenure.dev/holder": ""})).await;
    let file = stage.directory().join("flock");
    // The first run leaves the Lease as tenure releases it.
    time(lock(programs, &stage, &["--wait"], &["true"]));
    let before = stage.audit().len();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        ours.push(time(lock(programs, &stage, &["--try"], &["true"])));
        theirs.push(time(Command::new("flock").arg("-n").arg(&file).arg("true")));
    }
    row("tenure lock --try", &ours);
    row("flock -n", &theirs);
    let mut verbs = BTreeMap::new();
    for record in stage.audit().into_iter().skip(before) {
        *verbs.entry(record.verb).or_insert(0.0) += 1.0 / rounds as f64;
    }
    println!("  requests of each: {verbs:.2?}; more than flock by {:.1} ms", quantile(&ours, 0.5) - quantile(&theirs, 0.5));
}

/// N processes hold a slot each and do nothing; W processes wait.
async fn pool(server: &Server, programs: &Programs, slots: usize, waiting: usize) {
    let minutes = SPAN.as_secs_f64() / 60.0;
    title(&format!("{slots} slots held, {waiting} waiting, D = 15 s: what the API server does for them in a minute"));
    let stage = Stage::set(server, &scratch("figures")).await;
    let idle = served(stage.kubeconfig());
    tokio::time::sleep(SPAN / 3).await;
    let own = since(&idle, &served(stage.kubeconfig()));

    let slots_text = slots.to_string();
    let options = ["--slots", &slots_text, "--set", "lease.creationWait=0s"];
    let replicas: Vec<_> =
        (0..slots + waiting).map(|_| Kept(start(lock(programs, &stage, &options, &["sleep", "inf"])))).collect();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let before = served(stage.kubeconfig());
    tokio::time::sleep(SPAN).await;
    let after = served(stage.kubeconfig());
    drop(replicas);

    for (what, count) in since(&before, &after) {
        let count = count / minutes - own.get(&what).copied().unwrap_or_default() / (minutes / 3.0);
        println!("  {what:<14} {count:>9.1}   of each {:>7.2}", count / (slots + waiting) as f64);
    }
}

fn lock(programs: &Programs, stage: &Stage, options: &[&str], command: &[&str]) -> Command {
    let mut line = Command::new("setpriv");
    line.args(["--pdeathsig", "TERM"]).arg(&programs.tenure).args(["lock", "--lease", LEASE, "--namespace", &stage.namespace]);
    line.args(options).arg("--").args(command);
    line.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("KUBECONFIG", stage.kubeconfig());
    line
}

pub fn time(mut command: impl std::borrow::BorrowMut<Command>) -> f64 {
    let began = tenure::clock::boot();
    let command = command.borrow_mut().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().expect("it runs");
    assert!(status.success(), "{command:?}: {status}");
    tenure::clock::boot().since(began).as_secs_f64() * 1e3
}

fn start(mut command: Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a lock")
}

/// How many requests by verb, and how many watch events, the API server counts for Leases in its own metrics.
pub fn served(kubeconfig: &Path) -> BTreeMap<String, f64> {
    let mut kubectl = Command::new(programs::path("kubectl"));
    let output = kubectl.arg("--kubeconfig").arg(kubeconfig).args(["get", "--raw", "/metrics"]).output().expect("kubectl");
    let mut served = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines().filter(|line| line.contains("\"leases\"")) {
        let Some((series, value)) = line.rsplit_once(' ') else { continue };
        let label = |name: &str| series.split(&format!("{name}=\"")).nth(1)?.split('"').next();
        let what = match series.split('{').next() {
            Some("apiserver_request_total") => label("verb").map(str::to_owned),
            Some("apiserver_watch_events_total") => Some("watch events".to_owned()),
            _ => None,
        };
        if let Some(what) = what {
            *served.entry(what).or_insert(0.0) += value.parse::<f64>().unwrap_or_default();
        }
    }
    served
}

pub fn since(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    after.iter().map(|(what, count)| (what.clone(), count - before.get(what).copied().unwrap_or_default())).collect()
}
