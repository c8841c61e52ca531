//! Never two at once: the shipping machines in a simulated world, many terms in a few seconds.
//!
//! Each replica is its elector and its init, each with the shipping turn, joined by a simulated link, above a simulated
//! process tree; they share a register that answers as the embedded API server does, over networks that lose, delay and cut.
//! Clocks run at different rates. Init, elector or both are stopped and killed, nodes suspended, and a snapshot of a replica is started
//! beside it. People delete, clear, steal, lengthen and pause the Lease, and ask to step down. A second API server lags behind. In some
//! worlds a client-go replica competes for the Lease, a witness is told of half of the replicas, slots become more or fewer, or a
//! stranger continues one process of a frozen standby. [`judge`] says what must hold.
//!
//! ```text
//! cargo test --test simulation                                      a few seconds
//! TENURE_SIMULATION=100000000 cargo test --profile simulation --test simulation -- --nocapture
//!                                                                   so many terms, on all cores (TENURE_SIMULATION_THREADS: fewer)
//! SEED=42 cargo test --test simulation                              tells the story of one world
//! SEED=42 SHRINK=1 cargo test --profile simulation --test simulation
//!                                                                   tells it with few of its faults, after a minute at most
//! ```
//!
//! A failure prints its seed and its story, which ends with the faults that took effect and with the last two D, and replays exactly.
//! FROM is the first seed. A run ends with the first violation, or with the VIOLATIONS-th. A long one reports its progress every minute.
//! A run ends with how often each judge had something to judge, and fails where that was too seldom.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::print_stderr, unreachable_pub, reason = "it fails by panicking")]

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
};

mod alarm;
mod container;
mod elector;
mod engine;
mod hygiene;
mod judge;
mod nemesis;
mod network;
mod operator;
mod peer;
mod plan;
mod progress;
mod server;
mod shrink;
mod sights;
mod tally;
mod traffic;
mod witness;
mod world;

use tenure_world::{client_go, clock, lawful, number, register, tree};

use clock::{Ns, S};
use plan::Control;
use progress::Progress;
use tally::Tally;
use world::World;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Terms to simulate unless another number is requested.
const TERMS: u64 = 15_000;
/// How many worlds a control breaks.
const CONTROLS: u64 = 100;
/// Worlds between two progress checks.
const BATCH: u64 = 16;

#[test]
fn two_never_run_at_once_and_somebody_runs_in_the_end() {
    if let Some(seed) = number("SEED") {
        return tell(seed);
    }
    let terms = number("TENURE_SIMULATION").unwrap_or(TERMS);
    let threads = number("TENURE_SIMULATION_THREADS").unwrap_or_else(cores);
    let progress = Progress::new(terms, number("FROM").unwrap_or(0), number("VIOLATIONS").unwrap_or(1));
    let tallies: Vec<Tally> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(|| work(&progress))).collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker ends")).collect()
    });
    let total = tallies.into_iter().fold(Tally::default(), Tally::and);
    eprintln!("{total}, in {:.1} s", progress.seconds());
    if let [(seed, wrong), ..] = &total.wrong[..] {
        total.wrong.iter().for_each(|(seed, wrong)| eprintln!("SEED={seed}: {wrong}"));
        tell(*seed);
        panic!("SEED={seed}: {wrong}");
    }
    let missing = total.missing();
    assert!(terms < TERMS || missing.is_empty(), "these faults never took effect: {missing:?}");
    let untaken = total.untaken(terms);
    assert!(terms < TERMS || untaken.is_empty(), "these transitions of the law were never taken: {untaken:?}");
    let unarmed = total.unarmed(terms);
    assert!(unarmed.is_empty(), "these judges were armed too seldom: {unarmed:?}");
}

/// A judge that reports nothing proves nothing.
#[test]
fn what_breaks_a_bound_of_the_law_is_reported() {
    for (control, least) in Control::ALL {
        let reports = |seed: &u64| {
            let mut world = World::new(*seed, false, Some(control));
            world.run(Ns::MAX);
            world.e.judge.verdict().is_some_and(|wrong| wrong.starts_with("two at once"))
        };
        let reported = (0..CONTROLS).filter(reports).count();
        eprintln!("{control:?}: reported in {reported} of {CONTROLS} worlds");
        assert!(reported >= least, "{control:?} is reported in {reported} of {CONTROLS} worlds, not in {least}");
    }
}

/// Simulates worlds until there are enough terms, or a violation.
fn work(progress: &Progress) -> Tally {
    let mut tally = Tally::default();
    while let Some(first) = progress.next(BATCH) {
        let before = (tally.terms, tally.strikes());
        for seed in first..first + BATCH {
            let mut world = World::new(seed, false, None);
            let violations = tally.wrong.len();
            // What panics is a violation of its own.
            match catch_unwind(AssertUnwindSafe(|| world.run(Ns::MAX))) {
                Ok(()) => tally.add(seed, &world.e),
                Err(_) => tally.wrong.push((seed, "a panic".into())),
            }
            if tally.wrong.len() > violations {
                progress.fail();
            }
        }
        progress.add(tally.terms - before.0, tally.strikes() - before.1);
    }
    tally.measure();
    tally
}

/// Prints the story of a seed. If there is a violation, it lists the strikes and marks the last two D.
fn tell(seed: u64) {
    let mut world = World::new(seed, true, None);
    world.run(Ns::MAX);
    if world.e.judge.verdict().is_some() && number("SHRINK").is_some() {
        world = shrink::smallest(seed, &world).unwrap_or(world);
    }
    let story = world.e.story();
    let Some(wrong) = world.e.judge.verdict() else { return story.iter().for_each(|line| eprintln!("{line}")) };
    // A line begins with its second, in five places.
    let since = format!("{:>5}", world.e.now.saturating_sub(world.e.judge.longest * 2) / S);
    let (before, near) = story.split_at(story.partition_point(|line| line[..5] < since[..]));
    before.iter().for_each(|line| eprintln!("{line}"));
    eprintln!("\nTHE STRIKES");
    story.iter().filter(|line| line.contains(" STRIKE: ")).for_each(|line| eprintln!("{line}"));
    eprintln!("\nTHE LAST TWO D");
    near.iter().for_each(|line| eprintln!("{line}"));
    eprintln!("SEED={seed}: {wrong}");
    panic!("SEED={seed}: {wrong}");
}

fn cores() -> u64 {
    thread::available_parallelism().map_or(1, |cores| cores.get() as u64)
}
