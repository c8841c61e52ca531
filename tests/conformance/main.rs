//! The conformance cases: black box, the same code against the embedded API server and a real one.
//!
//! One case, one test; the number in its name is the case's.

#![allow(clippy::expect_used, clippy::print_stderr, unreachable_pub, reason = "a test fails by panicking, and says why")]

use std::process::ExitCode;

mod acquire;
mod freezer;
mod races;
mod refusals;
mod release;
mod renew;
mod spec;
#[path = "../support/mod.rs"]
mod support;
mod surroundings;

use support::{
    case,
    proxy::log::{Exchange, Request},
    replica::Replica,
    stage::{Prepared, Stage},
    witness::Event,
};
use tenure::{clock, time::Instant};

fn main() -> ExitCode {
    case::main(vec![
        ("acquire", acquire::all()),
        ("renew", renew::all()),
        ("refusals", refusals::all()),
        ("races", races::all()),
        ("release", release::all()),
        ("surroundings", surroundings::all()),
    ])
}

/// A replica that leads from a released Lease, and the start of its workload.
async fn lead(stage: &Stage, prepared: Prepared) -> (Replica, Event) {
    stage.lease.create(spec::released()).await;
    let name = prepared.launch.name.clone();
    let me = prepared.start();
    let start = stage.witness.start(&name, 0).await;
    (me, start)
}

/// The last write of a replica that the server confirmed before this.
fn last_confirmed(me: &Replica, before: Instant) -> Exchange {
    let confirmed = |e: &Exchange| e.request.is_held() && e.succeeded() && e.answered_at() < before;
    me.proxy.log.all().into_iter().rfind(confirmed).expect("a confirmed write")
}

fn is_renewal(request: &Request) -> bool {
    request.is_held()
}

/// Lets the time pass until then.
async fn until(instant: Instant) {
    tokio::time::sleep(instant.since(clock::boot())).await;
}
