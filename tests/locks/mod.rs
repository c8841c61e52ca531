//! `tenure lock` and `tenure task`: what a script may rely on, with real processes on a real kube-apiserver.
//!
//! A lock's Lease is named by `--lease`, because the replicas' rights are for that of the stage; its configuration file is a
//! replica's. In [`grelmicro`] the names are the lock's own.

mod crowd;
mod grelmicro;
mod leases4s;
mod slots;
pub(crate) mod tasks;

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use serde_json::json;
use support::{
    Behaviour, Case, Fault, LEASE, Prepared, Replica, Stage, Times, Verb, Verbs, cases,
    spec::{calm, held, micros, released, wait, wall},
};
use tenure::clock;

use self::slots::{
    two_of_three_hold_a_slot_each_and_the_third_takes_the_one_that_is_given_back,
    where_a_list_is_forbidden_a_slot_is_read_by_its_name,
};

pub(crate) fn all() -> Vec<Case> {
    let cases = cases![
        a_try_is_in_vain_while_the_holder_may_live_and_takes_it_once_it_has_been_watched_for_its_duration,
        a_holder_that_is_cut_off_is_dead_before_the_next_runs_and_ends_with_76,
        a_signal_while_waiting_ends_it_with_128_and_more_and_writes_nothing,
        a_command_runs_once_and_its_end_is_the_end,
        a_lease_that_cannot_be_had_has_a_code_for_each_reason,
        a_lock_beside_a_replica_takes_of_its_configuration_what_applies,
        two_of_three_hold_a_slot_each_and_the_third_takes_the_one_that_is_given_back,
        where_a_list_is_forbidden_a_slot_is_read_by_its_name,
    ];
    let others = [crowd::all(), grelmicro::all(), leases4s::all(), tasks::all()];
    cases.into_iter().chain(others.into_iter().flatten()).collect()
}

fn locked(prepared: Prepared, options: &[&str]) -> Prepared {
    by(prepared, "lock", options)
}

/// Has this command of tenure run it, with these options, on the Lease of the stage.
pub(crate) fn by(mut prepared: Prepared, command: &str, options: &[&str]) -> Prepared {
    let launch = &mut prepared.launch;
    let config = launch.directory.join(&launch.name).join("tenure.json");
    let before = [&*launch.program, command, "--config", &config.to_string_lossy(), "--lease", LEASE].map(String::from);
    launch.runner =
        Some(before.into_iter().chain(options.iter().map(|option| (*option).to_owned())).chain(["--".into()]).collect());
    prepared
}

async fn lock(stage: &Stage, name: &str, options: &[&str]) -> Prepared {
    locked(stage.prepare(name).await, options)
}

/// The same where a request may take long: a try gives up when its first one fails.
async fn patient(stage: &Stage, name: &str, options: &[&str]) -> Prepared {
    calm(lock(stage, name, options).await).set("lease.attemptTimeout", "2s")
}

/// Sets the command to run in place of the workload that reports to the witness.
fn running(mut prepared: Prepared, command: &[&str]) -> Prepared {
    prepared.launch.workload = command.iter().map(|word| (*word).to_owned()).collect();
    prepared
}

/// Ends its workload with 7.
async fn end(me: &Replica) {
    kill(me.workload().await, Signal::SIGUSR1).expect("the workload lives");
    assert_eq!(me.exit().await, 7);
}

async fn a_try_is_in_vain_while_the_holder_may_live_and_takes_it_once_it_has_been_watched_for_its_duration(stage: Stage) {
    let (holder, _) = stage.lead(patient(&stage, "holder", &["--try"]).await).await;

    let early = patient(&stage, "early", &["--try"]).await.start();
    assert_eq!(early.exit().await, 75);
    early.said("the Lease main was not acquired: it is held by holder_").await;
    early.said("exiting with 75: the command did not run").await;
    kill(holder.init().await, Signal::SIGKILL).expect("init lives");
    holder.exit().await;
    let soon = patient(&stage, "soon", &["--try", "-E", "9"]).await.start();
    assert_eq!((soon.exit().await, soon.proxy.log.writes().len() + early.proxy.log.writes().len()), (9, 0));

    let left = stage.lease.read().await.expect("the holder's Lease");
    let expired = micros(left["spec"]["renewTime"].as_str().expect("a time")) + 10_000_000;
    let left = u64::try_from(expired - wall(clock::boot())).unwrap_or_default();
    tokio::time::sleep(Duration::from_micros(left + 10_000)).await;
    let late = patient(&stage, "late", &["--try"]).await.start();
    stage.witness.start("late", 0).await;

    let seen = late.proxy.log.first("a read", |e| e.request.verb == Verb::Get && e.succeeded()).await;
    let taken = late.proxy.log.first("a takeover", |e| e.request.is_held()).await;
    assert!(taken.request.at >= seen.request.at + wait(10.0), "by its own sight, whatever the wall clock says");
    late.said("looks abandoned").await;
    end(&late).await;
}

async fn a_holder_that_is_cut_off_is_dead_before_the_next_runs_and_ends_with_76(stage: Stage) {
    let (cut, _) = stage.lead(lock(&stage, "cut", &[]).await.workload(&Behaviour::stubborn())).await;
    let next = lock(&stage, "next", &["--timeout", "60s"]).await.start();
    next.proxy.log.first("a watch", |e| e.request.verb == Verb::Watch && e.succeeded()).await;

    cut.proxy.cut();

    let start = stage.witness.start("next", 0).await;
    stage.witness.assert_gone("cut", start.at());
    assert_eq!(cut.exit().await, 76);
    cut.said("the Lease main was lost (expired), held since 20").await;
    end(&next).await;
}

async fn a_signal_while_waiting_ends_it_with_128_and_more_and_writes_nothing(stage: Stage) {
    stage.lease.create(held("x_1", 60)).await;
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130), (Signal::SIGQUIT, 131), (Signal::SIGHUP, 129)] {
        let me = lock(&stage, &format!("me-{code}"), &[]).await.start();
        me.proxy.log.first("a watch", |e| e.request.verb == Verb::Watch && e.succeeded()).await;

        me.signal(signal).await;

        assert_eq!((me.exit().await, me.proxy.log.writes().len()), (code, 0));
    }
    assert!(stage.witness.all().is_empty(), "nothing ran");
}

async fn a_command_runs_once_and_its_end_is_the_end(stage: Stage) {
    stage.lease.create(released()).await;
    let commands: [(&[&str], i32); 5] = [
        (&["true"], 0),
        (&["sh", "-c", "exit 7"], 7),
        (&["sh", "-c", "kill -KILL $$"], 137),
        (&["/no/such/program"], 127),
        (&["/etc/passwd"], 126),
    ];
    for (at, (command, code)) in commands.into_iter().enumerate() {
        let me = running(patient(&stage, &format!("me-{at}"), &["--try"]).await, command).start();
        assert_eq!(me.exit().await, code, "{command:?}");
        let left = stage.lease.read().await.expect("the Lease");
        assert_eq!(left["spec"]["holderIdentity"], "", "{command:?}: it is given back, or never taken");
    }
    let me = lock(&stage, "asked", &[]).await.start();
    let start = stage.witness.start("asked", 0).await;
    let holder = start.variable("TENURE_IDENTITY").to_owned();
    stage.lease.edit(|lease| lease["metadata"]["annotations"]["tenure.dev/step-down"] = json!(holder)).await;
    assert_eq!((me.exit().await, stage.witness.starts("asked")), (76, 1), "it does not wait for its turn again");
}

async fn a_lease_that_cannot_be_had_has_a_code_for_each_reason(stage: Stage) {
    stage.lease.create(released()).await;
    let away = running(lock(&stage, "away", &["--timeout", "1s"]).await, &["true"]);
    away.proxy.refuse().await;
    let away = away.start();
    let unread = running(lock(&stage, "unread", &["--try"]).await, &["true"]);
    unread.proxy.on(|request| request.verb == Verb::Get, Times::Always, Fault::refused(403, "Forbidden"));
    let unread = unread.start();
    let unwritten = stage.prepare_with("unwritten", &Verbs::default().without("update")).await;
    let unwritten = running(calm(locked(unwritten, &["--timeout", "3s"])), &["true"]).start();

    assert_eq!((away.exit().await, unread.exit().await, unwritten.exit().await), (69, 77, 77));
    for (me, words) in [(&away, "refused"), (&unread, "403"), (&unwritten, "cannot update resource")] {
        me.said(words).await;
    }
    stage.lease.edit(|lease| lease["metadata"]["annotations"] = json!({"tenure.dev/paused": "true"})).await;
    let paused = running(patient(&stage, "paused", &["--try"]).await, &["true"]).start();
    assert_eq!(paused.exit().await, 75);
    paused.said("the Lease is paused").await;
}

async fn a_lock_beside_a_replica_takes_of_its_configuration_what_applies(stage: Stage) {
    stage.lease.create(released()).await;
    let (address, _kept) = stage.free_address();
    let shared = lock(&stage, "me", &[]).await.set("lease.name", "of-the-replica").set("http.listen", address.to_string());
    let shared =
        shared.set("workload.runs", "always").set("workload.command", json!(["serve"])).set("workload.env", json!({"A": "b"}));

    let me = shared.start();

    let start = stage.witness.start("me", 0).await;
    assert_eq!((start.variable("TENURE_LEASE"), start.variable("TENURE_ROLE")), (LEASE, "leader"));
    assert!(!me.lines().iter().any(|line| line.contains("serving probes")));
    end(&me).await;
}
