//! Measures takeovers: the leader is killed, with all its processes.

use support::{Behaviour, Server};
use tenure::time::Instant;

use crate::{
    contestant::{BOTH, Contestant, DEFAULT, PATIENT, Pace, Programs, SHORT},
    handover::{Trio, by, on_our_clock, settle},
    table::{Gap, gap, row, title},
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
    for pace in [DEFAULT, PATIENT] {
        title(&format!("The same, D = {:?}: from the last sign of life to the next workload", pace.duration));
        for who in [Contestant::Witnessed, Contestant::Tenure, Contestant::ClientGo] {
            // Without a witness each round takes as long as the Lease.
            let rounds = if who == Contestant::Witnessed { rounds } else { rounds.div_ceil(20) };
            row(who.name(), &gaps(server, programs, who, pace, rounds).await);
        }
    }
}

/// From the last sign of life of each leader that was killed to the first of the next.
async fn gaps(server: &Server, programs: &Programs, who: Contestant, pace: Pace, rounds: usize) -> Vec<Gap> {
    let mut trio = Trio::start(server, programs, who, pace, Behaviour::obedient(), false).await;
    let mut leader = trio.next_leader().await;
    let mut gaps = Vec::new();
    for _ in 0..rounds {
        settle().await;
        let mut old = trio.take(&leader);
        old.kill();
        let next = trio.next_leader().await;
        gaps.push(trio.gap(&leader, &next));
        trio.add(programs).await;
        leader = next;
    }
    gaps
}

/// The time, on our clock, when the API server answered the last write of this holder.
fn last_renewal(trio: &Trio, leader: &str) -> Instant {
    let records = trio.stage.audit();
    on_our_clock(
        records.iter().rev().filter(|record| record.status < 300).find(|record| by(record, leader)).expect("it renewed").answered,
    )
}
