//! Several slots: so many run and no more, each under a Lease of its own.

use std::net::Ipv4Addr;

use support::{LEASE, Stage};

pub async fn two_of_three_hold_a_slot_each_and_the_third_takes_the_one_that_is_given_back(stage: Stage) {
    // Beside the case's own stage, where nobody may run at a time.
    let pool = stage.beside("pool").await;
    let mut replicas = Vec::new();
    for name in ["a", "b", "c"] {
        // It may do everything in its namespace.
        let prepared = pool.prepare_at(name, pool.api.token().to_owned(), Ipv4Addr::LOCALHOST).await;
        replicas.push(prepared.set("lease.slots", 2).start());
    }
    let first = pool.witness.first("a start", |event| event.what == "start").await;
    let second = pool.witness.first("another", |event| event.what == "start" && event.replica != first.replica).await;
    let mut slots = [first.variable("TENURE_SLOT"), second.variable("TENURE_SLOT")];
    slots.sort_unstable();
    assert_eq!((slots, first.variable("TENURE_SLOTS")), (["0", "1"], "2"));
    let name = |slot: &str| if slot == "0" { LEASE.to_owned() } else { format!("{LEASE}-slot-{slot}") };
    for event in [&first, &second] {
        let lease = name(event.variable("TENURE_SLOT"));
        assert_eq!(event.variable("TENURE_LEASE"), lease);
        let object = pool.api.lease(&pool.namespace, &lease).read().await.expect("it is there");
        assert_eq!(object["metadata"]["labels"]["tenure.dev/slots"], LEASE);
        assert_eq!(object["spec"]["holderIdentity"], event.variable("TENURE_IDENTITY"));
    }

    let leader = replicas.iter().position(|replica| replica.name == first.replica).expect("it is one of them");
    let leader = replicas.remove(leader);
    assert_eq!(leader.stop().await, 0);
    let third = pool
        .witness
        .first("the third starts", |event| event.what == "start" && ![&first.replica, &second.replica].contains(&&event.replica))
        .await;
    assert_eq!(third.variable("TENURE_SLOT"), first.variable("TENURE_SLOT"));
    pool.witness.assert_gone(&first.replica, third.at());
    assert_eq!(pool.witness.starts(&second.replica), 1, "nobody else noticed");
}

pub async fn where_a_list_is_forbidden_a_slot_is_read_by_its_name(stage: Stage) {
    let me = stage.prepare("me").await.set("lease.slots", 2).start();

    let start = stage.witness.start("me", 0).await;

    assert_eq!((start.variable("TENURE_SLOT"), start.variable("TENURE_LEASE")), ("0", LEASE));
    me.said("list").await;
}
