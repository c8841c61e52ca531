//! `tenure status --observe`: no wall clock is asked.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use support::{
    Case, LEASE, Stage, Verb, cases,
    spec::{held, released, time, wait},
};
use tenure::clock;

use super::Desk;

pub(super) fn all() -> Vec<Case> {
    cases![
        a_live_replica_is_0_and_a_dead_one_1_after_its_whole_duration,
        a_renewal_counts_whatever_time_it_names,
        a_holder_whose_time_is_in_the_future_is_not_alive_for_that,
        another_change_begins_a_new_wait,
        what_nobody_holds_is_1_at_once_and_what_is_gone_2,
    ]
}

const OBSERVE: &[&str] = &["status", LEASE, "--observe", "-o", "json"];

async fn a_live_replica_is_0_and_a_dead_one_1_after_its_whole_duration(stage: Stage) {
    let (me, _) = stage.lead(stage.prepare("me").await).await;
    let desk = Desk::of(&stage).await;

    let alive = desk.ends(OBSERVE).await;
    me.signal(Signal::SIGKILL).await;
    me.exit().await;
    let since = clock::boot();
    let dead = desk.ends(OBSERVE).await;

    assert_eq!((alive.code, &alive.json()["state"]), (0, &json!("held")), "{alive:?}");
    assert_eq!((dead.code, &dead.json()["state"]), (1, &json!("expired")), "{dead:?}");
    assert!(clock::boot().since(since) >= wait(4.0), "it was not watched for its whole duration");
}

/// Begins to observe, and edits the Lease once it was read twice.
async fn edited(stage: &Stage, line: &[&str], edit: impl Fn(&mut Value)) -> i32 {
    let desk = Desk::of(stage).await;
    let running = desk.starts(line);
    desk.proxy.log.nth(1, "the second look", |e| e.request.verb == Verb::Get && e.answer.is_some()).await;
    stage.lease.edit(edit).await;
    running.exit().await.0
}

async fn a_renewal_counts_whatever_time_it_names(stage: Stage) {
    let mut spec = held("slow-clock", 20);
    spec["renewTime"] = json!("2020-01-01T00:00:00.000000Z");
    stage.lease.create(spec).await;
    let renew = |object: &mut Value| object["spec"]["renewTime"] = json!("2020-01-01T00:00:03.000000Z");

    assert_eq!(edited(&stage, &[OBSERVE, &["--holder", "slow-clock"]].concat(), renew).await, 0);

    let desk = Desk::of(&stage).await;
    let asked = clock::boot();
    assert_eq!(desk.ends(&[OBSERVE, &["--holder", "slow"]].concat()).await.code, 1, "another holds it");
    assert!(clock::boot().since(asked) < wait(20.0));
}

async fn a_holder_whose_time_is_in_the_future_is_not_alive_for_that(stage: Stage) {
    let mut spec = held("fast-clock", 2);
    spec["renewTime"] = json!(time(3600));
    stage.lease.create(spec).await;
    let desk = Desk::of(&stage).await;

    let (hinted, observed) = (desk.ends(&["status", LEASE]).await, desk.ends(OBSERVE).await);

    assert_eq!((hinted.code, observed.code), (0, 1));
}

async fn another_change_begins_a_new_wait(stage: Stage) {
    stage.lease.create(held("me", 2)).await;
    let asked = clock::boot();

    assert_eq!(edited(&stage, OBSERVE, |object| object["spec"]["leaseDurationSeconds"] = json!(3)).await, 1);
    assert!(clock::boot().since(asked) >= wait(3.0));
}

async fn what_nobody_holds_is_1_at_once_and_what_is_gone_2(stage: Stage) {
    let desk = Desk::of(&stage).await;
    assert_eq!(desk.ends(OBSERVE).await.code, 2);
    let mut nobodys = held("tenure.dev/nobody", 600);
    stage.lease.create(released()).await;
    for spec in [released(), nobodys.take(), json!({})] {
        stage.lease.set_spec(spec.clone()).await;
        let before = desk.proxy.log.all().len();
        assert_eq!(desk.ends(OBSERVE).await.code, 1, "{spec}");
        assert_eq!(desk.proxy.log.all().len(), before + 1, "{spec}: one look is enough");
    }

    stage.lease.set_spec(held("me", 600)).await;
    let (running, before) = (desk.starts(OBSERVE), desk.proxy.log.all().len());
    desk.proxy.log.nth(before, "a look", |e| e.answer.is_some()).await;
    stage.lease.delete().await;
    assert_eq!(running.exit().await.0, 2);
}
