//! The leader is killed with everything it has.

use std::time::Duration;

use tenure::{clock, time::Instant};

use crate::{
    contestant::{BOTH, Programs, SHORT},
    handover::{Trio, settle},
    support::{audit, server::Server, workload::Behaviour},
    table::{gap, row, title},
};

pub async fn show(server: &Server, programs: &Programs, rounds: usize) {
    let lease = SHORT.duration;
    title(&format!("Takeover of a killed leader, D = {lease:?}: from the answer to its last renewal, less D"));
    for who in BOTH {
        let mut trio = Trio::start(server, programs, who, SHORT, Behaviour::obedient(), false).await;
        let mut leader = trio.next_leader().await;
        let mut beyond = Vec::new();
        for _ in 0..rounds {
            settle().await;
            let mut old = trio.take(&leader);
            old.kill();
            let answered = last_renewal(&trio, &leader);
            let next = trio.next_leader().await;
            let first = trio.stage.witness.lives().into_iter().find(|life| life.replica == next).expect("it lives").first;
            beyond.push(gap(answered + lease, first));
            trio.add(programs).await;
            leader = next;
        }
        row(who.name(), &beyond);
    }
    println!("  {:<20} D * rho of the follower alone is {:.1} ms", "", lease.as_secs_f64() * 10.0);
}

/// When the API server answered the last write of this holder, on our clock.
fn last_renewal(trio: &Trio, leader: &str) -> Instant {
    let records = trio.stage.audit();
    let is_its =
        |record: &&audit::Record| record.holder.as_deref().is_some_and(|holder| holder.split('_').next() == Some(leader));
    let record = records.iter().rev().filter(|record| record.status < 300).find(is_its).expect("it renewed");
    let ago = clock::wall() - record.answered;
    clock::boot() - Duration::from_micros(u64::try_from(ago).unwrap_or_default())
}
