//! A lock on a Lease that leases4s uses too: what its repository (Scala, on the JVM) writes, and deletes, is replayed.
//!
//! It creates a Lease without renewTime and leaseTransitions, replaces the whole object to renew, and deletes it to release. Its
//! cluster's members are `CLUSTER-membership-N-lease` with a host and a port for a holder.

use serde_json::{Value, json};
use support::{
    Case, Replica, Stage, Verb, cases,
    spec::{assert_acquires, calm, time, wait},
};
use tenure::clock;

use super::{end, lock};

pub(super) fn all() -> Vec<Case> {
    cases![what_leases4s_holds_is_waited_for_as_long_as_it_says, where_leases4s_overwrites_a_lease_its_command_ends_with_76]
}

/// As it writes the object, all of it, each time.
fn write(object: &mut Value, seconds: i64, renewed: bool) {
    let fresh = json!({"membership": "demo"});
    object["metadata"]["labels"] = fresh;
    object["metadata"]["annotations"] = Value::Null;
    let acquired = object["spec"]["acquireTime"].as_str().map_or_else(|| time(0), str::to_owned);
    let renewed = if renewed { json!(time(0)) } else { Value::Null };
    object["spec"] = json!({
        "holderIdentity": "10.0.0.7:9000", "leaseDurationSeconds": seconds, "acquireTime": acquired, "renewTime": renewed,
    });
}

async fn created(stage: &Stage, seconds: i64) {
    stage.lease.create(json!({})).await;
    stage.lease.edit(|lease| write(lease, seconds, false)).await;
}

async fn waiting(stage: &Stage) -> Replica {
    let me = calm(lock(stage, "me", &[]).await).start();
    me.proxy.log.first("a watch", |e| e.request.verb == Verb::Watch && e.succeeded()).await;
    me
}

async fn what_leases4s_holds_is_waited_for_as_long_as_it_says(stage: Stage) {
    created(&stage, 6).await;
    let me = waiting(&stage).await;

    let renewed = clock::boot();
    stage.lease.edit(|lease| write(lease, 3, true)).await;

    let taken = me.proxy.log.first("a takeover", |e| e.request.is_held()).await;
    assert!(taken.request.at >= renewed + wait(3.0), "its renewal counts, and the duration that it says");
    assert_acquires(&taken, "me", 1, renewed);
    assert_eq!(taken.request.body["metadata"]["labels"]["membership"], "demo", "what is its stays");
    stage.witness.start("me", 0).await;
    end(&me).await;
}

async fn where_leases4s_overwrites_a_lease_its_command_ends_with_76(stage: Stage) {
    let (me, _) = stage.lead(calm(lock(&stage, "me", &[]).await)).await;

    stage.lease.edit(|lease| write(lease, 10, false)).await;

    assert_eq!(me.exit().await, 76);
    me.said("was lost").await;
    let left = stage.lease.read().await.expect("its Lease");
    assert_eq!(left["spec"]["holderIdentity"], "10.0.0.7:9000", "and nobody writes over it");
}
