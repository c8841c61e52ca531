//! `tenure task`: at most one run per interval, and never two at once.

use std::{collections::BTreeSet, process::Command, sync::Arc, time::Duration};

use nix::sys::signal::{Signal, kill};
use serde_json::json;
use support::{
    Behaviour, Case, Event, Exchange, Log, Prepared, Replica, Stage, Verb, cases,
    spec::{calm, held, released, time},
    stalls,
};
use tenure::time::Instant;

use super::{by, crowd::ended, grelmicro::python, running};
use crate::TENURE;

const REPLICAS: usize = 5;
const RUNS: usize = 50;
/// After so many runs somebody is killed.
const RUNS_A_KILL: usize = 8;

pub(super) fn all() -> Vec<Case> {
    cases![
        five_replicas_make_one_run_at_most_in_each_of_fifty_intervals_whoever_is_killed,
        a_single_run_leaves_a_rest_and_until_that_is_over_the_next_is_75,
        a_run_that_takes_too_long_is_stopped_counts_and_is_no_success,
        a_signal_while_waiting_ends_the_loop_with_0_and_a_single_run_with_143,
        a_failed_run_rests_or_is_left_to_another_replica,
        a_rest_is_held_for_grelmicro_until_it_is_over,
        a_fire_that_nobody_could_run_is_run_once_by_whichever_replica_comes_first,
    ]
}

async fn task(stage: &Stage, name: &str, options: &[&str]) -> Prepared {
    by(calm(stage.prepare(name).await).set("lease.attemptTimeout", "2s"), "task", options)
}

/// Starts a run that reports to the witness, and ends by itself.
async fn short(stage: &Stage, name: &str) -> Replica {
    let mut prepared = by(stage.prepare(name).await, "task", &["--every", "1s"]);
    let ending = ["timeout", "--preserve-status", "--signal=USR2", "0.15"].map(String::from);
    prepared.launch.workload.splice(0..0, ending);
    prepared.start()
}

/// When the write came by which the Lease was taken for this run.
pub(crate) fn taken<'a>(logs: impl IntoIterator<Item = &'a Arc<Log>>, start: &Event) -> Instant {
    let of = ["TENURE_IDENTITY", "TENURE_ACQUIRED_AT"].map(|name| start.variable(name));
    let is_its = |e: &Exchange| ["holderIdentity", "acquireTime"].map(|field| e.request.spec()[field].as_str()) == of.map(Some);
    logs.into_iter().flat_map(|log| log.all()).find(is_its).expect("an acquisition").request.at
}

async fn five_replicas_make_one_run_at_most_in_each_of_fifty_intervals_whoever_is_killed(stage: Stage) {
    stage.lease.create(released()).await;
    let (mut replicas, mut logs) = (Vec::new(), Vec::new());
    for number in 0..REPLICAS {
        replicas.push(short(&stage, &format!("r{number}")).await);
        logs.push(replicas[number].proxy.log.clone());
    }

    for run in 0..RUNS {
        let start = stage.witness.nth(run, "a run", |event| event.what == "start").await;
        if run % RUNS_A_KILL == RUNS_A_KILL - 1 {
            // Now the one that runs, now any.
            let runner = replicas.iter().position(|replica| replica.name == start.replica).expect("one of them");
            let at = if run % (2 * RUNS_A_KILL) < RUNS_A_KILL { runner } else { fastrand::usize(..REPLICAS) };
            kill(replicas[at].init().await, Signal::SIGKILL).expect("init lives");
            replicas[at].exit().await;
            replicas[at] = short(&stage, &format!("r{at}")).await;
            logs.push(replicas[at].proxy.log.clone());
        }
    }

    let starts: Vec<_> = stage.witness.all().into_iter().filter(|event| event.what == "start").collect();
    for pair in starts.windows(2) {
        let [first, next] = pair else { continue };
        // From one write to the next it is an interval: a busy machine starts the program late. It may also send the first write late.
        let written = taken(&logs, first);
        let apart = taken(&logs, next).since(written) + stalls::since(written);
        assert!(apart > Duration::from_millis(700), "two runs in one interval: {first:?}, {next:?}");
    }
    let ran: BTreeSet<_> = starts.iter().map(|start| &start.replica).collect();
    assert!(ran.len() > 1, "{ran:?}");
}

async fn a_single_run_leaves_a_rest_and_until_that_is_over_the_next_is_75(stage: Stage) {
    stage.lease.create(released()).await;
    let once = |options: &[&'static str]| [&["--every", "60s", "--once"], options].concat();
    let me = running(task(&stage, "me", &once(&[])).await, &["sh", "-c", "exit 7"]).start();
    assert_eq!(me.exit().await, 7);

    let left = stage.lease.read().await.expect("the Lease");
    let (spec, annotations) = (&left["spec"], &left["metadata"]["annotations"]);
    let text = |field: &str| spec[field].as_str().expect("a text").to_owned();
    assert!(text("holderIdentity").starts_with("me_") && text("acquireTime") < text("renewTime"), "{spec}");
    assert!(spec["leaseDurationSeconds"].as_i64().is_some_and(|seconds| (30..=60).contains(&seconds)), "{spec}");
    assert_eq!(annotations["tenure.dev/rests"], format!("{} {}", text("renewTime"), text("holderIdentity")));
    assert!(annotations["tenure.dev/holder"].is_null(), "{annotations}");

    for (name, options, code, level) in [
        ("early", &[][..], 75, "ERROR"),
        ("coded", &["-E", "9"], 9, "ERROR"),
        // For a trigger each night it is no failure.
        ("nightly", &["--conflict-exit-code=0"], 0, " INFO"),
    ] {
        let me = running(task(&stage, name, &once(options)).await, &["true"]).start();
        assert_eq!((me.exit().await, me.proxy.log.writes().len()), (code, 0));
        me.said(&format!("{level} not due: the last run began at ")).await;
    }

    let past = time(-90);
    stage
        .lease
        .edit(|lease| {
            lease["metadata"]["annotations"]["tenure.dev/rests"] = json!(format!("{past} {}", text("holderIdentity")));
            lease["spec"]["renewTime"] = json!(past);
        })
        .await;
    let due = running(task(&stage, "due", &once(&[])).await, &["true"]).start();
    assert_eq!(due.exit().await, 0);
    assert_eq!(stage.lease.read().await.expect("the Lease")["spec"]["leaseTransitions"], 5);

    stage.lease.set_spec(held("x_1", 60)).await;
    let beside = running(task(&stage, "beside", &once(&[])).await, &["true"]).start();
    assert_eq!(beside.exit().await, 75);
    beside.said("it is held by x_1").await;
}

async fn a_run_that_takes_too_long_is_stopped_counts_and_is_no_success(stage: Stage) {
    stage.lease.create(released()).await;
    let options = ["--every", "60s", "--limit", "1s", "--once", "--set", "task.onFailure=release"];
    let me = task(&stage, "me", &options).await.workload(&Behaviour::lingering(Duration::ZERO)).start();
    assert_eq!(me.exit().await, 143);
    let lived = stage.witness.last_alive("me").since(stage.witness.start("me", 0).await.at());
    assert!(lived > Duration::from_millis(500), "{lived:?}: not before its limit");
    assert_eq!(stage.lease.read().await.expect("the Lease")["spec"]["holderIdentity"].as_str().map(|who| &who[..3]), Some("me_"));

    let beside = stage.beside("loop").await;
    beside.lease.create(released()).await;
    let me = task(&beside, "me", &["--every", "2s", "--limit", "1s"]).await.workload(&Behaviour::stubborn()).start();
    let [first, next] = [beside.witness.start("me", 0).await, beside.witness.start("me", 1).await];
    assert!(next.at() > first.at() + Duration::from_secs(2));
    me.said("reason=\"limit\"").await;
    beside.witness.assert_no_overlap();
}

async fn a_signal_while_waiting_ends_the_loop_with_0_and_a_single_run_with_143(stage: Stage) {
    let mut abandoned = held("x_1", 60);
    abandoned["renewTime"] = json!(time(-90));
    abandoned["acquireTime"] = json!(time(-120));
    stage.lease.create(abandoned).await;
    for (name, options, code) in [("loop", &["--every", "60s"][..], 0), ("once", &["--every", "60s", "--once"], 143)] {
        let me = task(&stage, name, options).await.start();
        me.proxy.log.first("a watch", |e| e.request.verb == Verb::Watch && e.succeeded()).await;

        me.signal(Signal::SIGTERM).await;

        assert_eq!((me.exit().await, me.proxy.log.writes().len()), (code, 0));
    }
    assert!(stage.witness.all().is_empty(), "nothing ran");
}

async fn a_failed_run_rests_or_is_left_to_another_replica(stage: Stage) {
    stage.lease.create(released()).await;
    let fails = |prepared| running(prepared, &["sh", "-c", "exit 7"]);
    let first = fails(task(&stage, "first", &["--every", "60s", "--set", "task.onFailure=release"]).await).start();
    first.said("exit=\"exit code 7\"").await;
    let next = fails(task(&stage, "next", &["--every", "60s"]).await).start();
    next.said("the lock is kept until the next run is due").await;

    assert!(first.runs() && next.runs(), "a loop goes on");
    let left = stage.lease.read().await.expect("the Lease");
    assert!(left["spec"]["holderIdentity"].as_str().is_some_and(|holder| holder.starts_with("next_")), "{}", left["spec"]);
}

async fn a_rest_is_held_for_grelmicro_until_it_is_over(stage: Stage) {
    let lease = stage.api.lease(&stage.namespace, "tasklock-shared-report");
    lease.create(released()).await;
    let (kubeconfig, namespace) = (stage.kubeconfig().to_string_lossy().into_owned(), stage.namespace.clone());
    let says = |name| {
        let output = python("held.py", &[&kubeconfig, &namespace, name], "")?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    // The first call installs grelmicro, which may take longer than a rest.
    let Some(said) = says("Another.Report") else { return };
    assert_eq!(said, "runs");
    let mut command = Command::new(TENURE);
    command.args(["task", "--namespace", &stage.namespace, "Shared.Report", "--every", "60s", "--once", "--", "true"]);
    let child = command.env_clear().env("PATH", "/usr/bin:/bin").env("KUBECONFIG", stage.kubeconfig()).spawn().expect("tenure");
    assert_eq!(ended(child).await, Some(0));

    assert_eq!(says("Shared.Report").as_deref(), Some("held"));
    lease.edit(|lease| lease["spec"]["renewTime"] = json!(time(-90))).await;
    assert_eq!(says("Shared.Report").as_deref(), Some("runs"));
}

async fn a_fire_that_nobody_could_run_is_run_once_by_whichever_replica_comes_first(stage: Stage) {
    // The last run was for the fire of 2020.
    let past = time(-90);
    let mut spec = held("x_1", 60);
    spec["renewTime"] = json!(past);
    stage.lease.create(spec).await;
    let fired = json!({"tenure.dev/rests": format!("{past} x_1"), "tenure.dev/fire": "2020-01-01T00:00:00Z"});
    stage.lease.edit(|lease| lease["metadata"]["annotations"] = fired.clone()).await;
    let yearly = ["--schedule", "0 0 1 1 *", "--time-zone", "UTC", "--once"];

    let late = running(task(&stage, "late", &yearly).await, &["true"]).start();
    assert_eq!(late.exit().await, 0);
    late.said("a run has been due since 2021-01-01 00:00:00 UTC").await;
    let next = running(task(&stage, "next", &yearly).await, &["true"]).start();
    assert_eq!((next.exit().await, next.proxy.log.writes().len()), (75, 0));
    next.said("not due: the last run began at ").await;

    let annotations = stage.lease.read().await.expect("the Lease")["metadata"]["annotations"].clone();
    let year: i64 = time(0)[..4].parse().expect("a year");
    let fires = ["tenure.dev/fire", "tenure.dev/next-fire"].map(|name| annotations[name].as_str().expect("a fire").to_owned());
    assert_eq!(fires, [year, year + 1].map(|year| format!("{year}-01-01T00:00:00Z")));
}
