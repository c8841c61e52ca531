//! The conformance cases: black-box tests, run unchanged against the embedded API server and a real one.
//!
//! The number in a test's name is the case's; a case that covers several situations has a test for each. Where the embedded server
//! lacks a behaviour, the proxy answers in its place, or the test runs against the real one only.

#![allow(clippy::expect_used, clippy::print_stderr, unreachable_pub, reason = "a test fails by panicking, and says why")]

use std::process::ExitCode;

mod acquire;
mod freezer;
mod frozen;
mod loss;
mod odd;
mod others;
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
    stage::{Prepared, Stage, timing},
    witness::Event,
};
use tenure::{clock, time::Instant};

fn main() -> ExitCode {
    case::main(vec![
        ("acquire", acquire::all()),
        ("odd", odd::all()),
        ("renew", renew::all()),
        ("loss", loss::all()),
        ("frozen", frozen::all()),
        ("others", others::all()),
        ("refusals", refusals::all()),
        ("races", races::all()),
        ("release", release::all()),
        ("surroundings", surroundings::all()),
    ])
}

/// A replica that leads after taking a released Lease, and the start of its workload.
async fn lead(stage: &Stage, prepared: Prepared) -> (Replica, Event) {
    stage.lease.create(spec::released()).await;
    let name = prepared.launch.name.clone();
    let me = prepared.start();
    let start = stage.witness.start(&name, 0).await;
    (me, start)
}

/// A replica's last write that the server confirmed before this instant.
fn last_confirmed(me: &Replica, before: Instant) -> Exchange {
    let confirmed = |e: &Exchange| e.request.is_held() && e.succeeded() && e.answered_at() < before;
    me.proxy.log.all().into_iter().rfind(confirmed).expect("a confirmed write")
}

/// A lower bound for the send time of the write from which S counts, in a replica that was cut off at `cut`: each write starts
/// from the one before it, and the reply to the last one may not have arrived.
fn counts_from(me: &Replica, cut: Instant) -> Instant {
    let last = last_confirmed(me, cut);
    let heard_of = last_confirmed(me, last.request.at);
    last_confirmed(me, heard_of.request.at).answered_at()
}

/// The first write of a replica that would make it the holder, answered.
async fn takeover(me: &Replica) -> Exchange {
    let is_it = |exchange: &Exchange| exchange.request.is_write() && exchange.answer.is_some();
    me.proxy.log.first("a takeover", is_it).await
}

/// How often a replica logged this.
fn said(me: &Replica, words: &str) -> usize {
    me.lines().iter().filter(|line| line.contains(words)).count()
}

/// The fencing token with which a workload was started.
fn token(start: &Event) -> u64 {
    start.variable("TENURE_FENCING_TOKEN").parse().expect("a resourceVersion")
}

fn is_renewal(request: &Request) -> bool {
    request.is_held()
}

/// # Panics
/// If anything of a replica's workload is alive at this moment, or soon after it.
async fn assert_dead_by(stage: &Stage, name: &str, end: Instant) {
    until(end + timing::KILL_MARGIN).await;
    let last = stage.witness.last_alive(name);
    assert!(last < end, "alive for {:?} too long", last.since(end));
}

/// Waits until this instant.
async fn until(instant: Instant) {
    tokio::time::sleep(instant.since(clock::boot())).await;
}
