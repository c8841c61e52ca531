//! What a person reads at night: the lines of two replicas, merged by time, say who ran when, and never look like two at once.
//!
//! The reader knows the sentences, not the code behind them. Where the log cannot tell an end (a killed container), it says so.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use serde_json::json;
use support::{
    Behaviour, Case, Fault, Life, Prepared, Replica, Request, Stage, Times, cases,
    spec::{micros, wall},
};
use tenure::clock;

use super::{late, until};

pub fn all() -> Vec<Case> {
    cases![
        a_night_with_a_frozen_container,
        a_night_with_a_frozen_elector,
        a_night_with_a_cut_network,
        a_night_with_a_killed_container,
        a_night_with_a_program_that_hangs,
        a_night_with_rights_that_are_gone,
        a_night_with_a_lost_server,
        a_night_with_a_hook_that_fails,
        a_night_with_a_paused_lease,
        a_night_with_a_preemption,
    ]
}

/// In each line about the beginning of a term.
const LEADS: &str = " leading: ";
/// In each line about the end of a term.
const STANDBY: &str = " role=\"standby\" ";

/// When one replica ran, as its log says it, in microseconds of the wall clock.
#[derive(Debug)]
struct Told {
    begins: i64,
    /// None: the log does not say when.
    ends: Option<i64>,
}

fn told(replica: &Replica) -> Vec<Told> {
    let mut told: Vec<Told> = Vec::new();
    for line in replica.lines() {
        let Some(at) = line.split_whitespace().next().filter(|word| word.starts_with("20")).map(micros) else { continue };
        if line.contains(LEADS) {
            told.push(Told { begins: at, ends: None });
        } else if let Some(last) = told.last_mut().filter(|last| last.ends.is_none() && line.contains(STANDBY)) {
            let time = |words: &str| Some(micros(line.split_once(words)?.1.split([',', ' ']).next()?));
            last.ends =
                Some(time(" was dead at ").or_else(|| time(" stopped at ")).or_else(|| time(" killed at ")).unwrap_or(at));
        }
    }
    told
}

/// Compares what the logs say with what the programs themselves have written.
fn judge(stage: &Stage, replicas: [&Replica; 2]) {
    let since = stage.witness.lives()[0].first;
    let mut merged: Vec<_> = replicas.iter().flat_map(|replica| told(replica)).collect();
    merged.sort_by_key(|told| told.begins);
    let text = || replicas.map(|replica| format!("{}:\n{}", replica.name, replica.lines().join("\n"))).join("\n");
    // A line may come so much later than what it tells.
    let late = i64::try_from(late(since).as_micros()).expect("not long");
    for pair in merged.windows(2) {
        assert!(pair[0].ends.is_none_or(|ends| ends <= pair[1].begins + late), "two at once: {pair:?}\n{}", text());
    }
    for replica in replicas {
        let lives: Vec<Life> = stage.witness.lives().into_iter().filter(|life| life.replica == replica.name).collect();
        let told = told(replica);
        assert_eq!(told.len(), lives.len(), "{}", text());
        for (told, life) in told.iter().zip(&lives) {
            let (first, last) = (wall(life.first), wall(life.last));
            assert!((told.begins - first).abs() < late, "{told:?} began at {first}\n{}", text());
            // The kernel kills a moment after the deadline, which the line names.
            assert!(
                told.ends.is_none_or(|ends| last - 100_000 <= ends && ends < last + late),
                "{told:?} ended at {last}\n{}",
                text()
            );
        }
    }
}

/// One of them leads, something happens to it, the other follows; `after` is what then becomes of the first.
async fn night(
    stage: &Stage,
    me: Prepared,
    ends: bool,
    happens: impl AsyncFn(&Replica, &Replica),
    after: impl AsyncFn(&Replica),
) {
    let (me, _) = stage.lead(me).await;
    let x = stage.start("x").await;
    x.said("another replica holds the Lease").await;
    happens(&me, &x).await;
    stage.witness.start("x", 0).await;
    x.said(LEADS).await;
    after(&me).await;
    if ends {
        me.said(STANDBY).await;
    }
    judge(stage, [&me, &x]);
}

async fn nothing(_: &Replica) {}

async fn a_night_with_a_frozen_container(stage: Stage) {
    let me = stage.prepare("me").await.workload(&Behaviour::stubborn());
    let signal = async |me: &Replica, signal| {
        for pid in [me.elector().await, me.init().await] {
            kill(pid, signal).expect("it lives");
        }
    };
    let wake = async |me: &Replica| {
        until(clock::boot() + Duration::from_secs(2)).await;
        signal(me, Signal::SIGCONT).await;
    };
    night(&stage, me, true, async |me, _| signal(me, Signal::SIGSTOP).await, wake).await;
}

async fn a_night_with_a_frozen_elector(stage: Stage) {
    let me = stage.prepare("me").await;
    let freeze = async |me: &Replica, _: &Replica| kill(me.elector().await, Signal::SIGSTOP).expect("it lives");
    night(&stage, me, true, freeze, nothing).await;
}

async fn a_night_with_a_cut_network(stage: Stage) {
    let me = stage.prepare("me").await.workload(&Behaviour::stubborn());
    night(&stage, me, true, async |me, _| me.proxy.cut(), async |me| me.proxy.mend().await).await;
}

async fn a_night_with_a_killed_container(stage: Stage) {
    let me = stage.prepare("me").await;
    night(&stage, me, false, async |me, _| me.signal(Signal::SIGKILL).await, nothing).await;
}

async fn a_night_with_a_program_that_hangs(stage: Stage) {
    let file = stage.directory().join("hangs");
    let asks = json!({ "exec": { "command": ["test", "!", "-e", file.to_str().expect("UTF-8")] }, "period": "100ms", "failureThreshold": 1 });
    let me = stage.prepare("me").await.set("workload.liveness", asks);
    night(&stage, me, true, async |_, _| std::fs::write(&file, "").expect("a file"), nothing).await;
}

async fn a_night_with_rights_that_are_gone(stage: Stage) {
    let me = stage.prepare("me").await;
    let refuse =
        async |me: &Replica, _: &Replica| me.proxy.on(Request::is_write, Times::Always, Fault::refused(403, "Forbidden"));
    night(&stage, me, true, refuse, nothing).await;
}

async fn a_night_with_a_lost_server(stage: Stage) {
    let me = stage.prepare("me").await;
    let lose = async |me: &Replica, x: &Replica| {
        me.proxy.refuse().await;
        x.proxy.refuse().await;
        me.said(STANDBY).await;
        x.proxy.mend().await;
    };
    night(&stage, me, true, lose, async |me| me.proxy.mend().await).await;
}

async fn a_night_with_a_hook_that_fails(stage: Stage) {
    let me = stage.prepare("me").await.set("hooks.beforeLead", json!({ "command": ["false"] }));
    stage.lease.create(support::spec::released()).await;
    let me = me.start();
    me.said("held the Lease, but the term ended before the program led").await;
    let x = stage.start("x").await;
    stage.witness.start("x", 0).await;
    x.said(LEADS).await;
    judge(&stage, [&me, &x]);
}

async fn a_night_with_a_paused_lease(stage: Stage) {
    let me = stage.prepare("me").await;
    let pause = async |me: &Replica, x: &Replica| {
        let paused =
            async |is: &str| stage.lease.edit(|lease| lease["metadata"]["annotations"]["tenure.dev/paused"] = is.into()).await;
        paused("true").await;
        x.said("the Lease is paused").await;
        me.signal(Signal::SIGKILL).await;
        x.said("the holder of the paused Lease has not renewed it in time").await;
        paused("false").await;
    };
    night(&stage, me, false, pause, nothing).await;
}

async fn a_night_with_a_preemption(stage: Stage) {
    let me = stage.prepare("me").await.set("lease.priority", -1);
    let (me, _) = stage.lead(me).await;
    let x = stage.prepare("x").await.set("lease.priority", 0).set("lease.preempt", "1s").start();
    stage.witness.start("x", 0).await;
    x.said(LEADS).await;
    me.said(STANDBY).await;
    judge(&stage, [&me, &x]);
}
