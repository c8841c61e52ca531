//! Never two at once: the shipping machines in a simulated world, many thousand terms in a few seconds.
//!
//! Each replica is the election machine of its elector process and the agent of its init, joined by a simulated link, above a
//! simulated process tree; they share the store of the embedded API server over roads that lose, delay and cut. Clocks run at
//! rates of their own, processes are stopped and killed, people edit the Lease. [`judge`] says what must hold.
//!
//! SEEDS says how many worlds are tried, FROM the first one. A failure prints its seed; SEED=... tells the story of one seed.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    unreachable_pub,
    missing_docs,
    reason = "a test fails by panicking, and says why"
)]

use std::time::Instant;

mod clock;
mod container;
mod elector;
mod engine;
mod judge;
mod nemesis;
mod network;
mod plan;
mod server;
mod tree;
mod world;

use world::World;

#[test]
fn two_never_run_at_once_and_somebody_runs_in_the_end() {
    if let Some(seed) = number("SEED") {
        return tell(seed);
    }
    let (from, seeds) = (number("FROM").unwrap_or(0), number("SEEDS").unwrap_or(150));
    let began = Instant::now();
    let (mut terms, mut runs, mut events, mut seconds) = (0, 0, 0, 0);
    for seed in from..from + seeds {
        let mut world = World::new(seed, false);
        world.run();
        if let Some(wrong) = world.e.judge.verdict() {
            let wrong = wrong.to_owned();
            tell(seed);
            panic!("SEED={seed}: {wrong}");
        }
        terms += world.e.judge.terms;
        runs += world.e.judge.runs;
        events += world.e.events;
        seconds += world.e.now / clock::S;
    }
    let took = began.elapsed().as_secs_f64();
    eprintln!(
        "{seeds} worlds, {terms} terms, {runs} of which ran something, {events} events, {seconds} virtual seconds in {took:.1} s"
    );
}

/// Tells the story of a seed.
fn tell(seed: u64) {
    let mut world = World::new(seed, true);
    world.run();
    for line in world.e.story() {
        eprintln!("{line}");
    }
    if let Some(wrong) = world.e.judge.verdict() {
        panic!("SEED={seed}: {wrong}");
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}
