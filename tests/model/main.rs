//! Never two at once: the shipping machines under every schedule of a few faults.
//!
//! Where the simulation samples many thousand random worlds, this model explores all schedules of a small one: two or three
//! replicas, each with its elector's election machine and its init's agent with the processes under it, sharing one register with
//! compare-and-swap and a uid. [`family`] defines the models and how far each goes; [`checker`] the steps possible in a state;
//! [`fault`] what the adversary may do; [`judge`] what must hold. The law's monitor judges every step of each schedule.
//!
//! Time is exact and jumps from one instant at which anything is due to the next. The clocks of two replicas differ by as much as
//! rho allows, and the workload ignores its stop signal and dies as late as the law allows, so that not a nanosecond of slack lies
//! between the end of one term and the beginning of the next. A message takes no time unless a fault delays it; then it arrives at
//! any later instant at which something happens. Processes of one replica take their steps in any order, and faults come between
//! any two of them: a step takes in one input, or carries out one action.
//!
//! Where the kernel has no fuse, init is not stopped while its elector is stopped, dead or not yet there: the law does not cover
//! that stop, since nobody is left to kill at H. One family has the fuse, and stops both.
//!
//! `cargo test --test model` runs what CI has time for; `TENURE_MODEL=large cargo test --profile simulation --test model` allows
//! one more fault everywhere, which takes two hours. A family can be named: `cargo test --test model -- freezes`. The number of states
//! explored and the bounds are printed; a violation is shown step by step.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::print_stderr, unreachable_pub, reason = "it fails by panicking")]

use std::{fmt::Write, process::ExitCode, sync::atomic::Ordering::Relaxed};

use libtest_mimic::{Arguments, Failed, Trial};
use stateright::{Checker, Expectation, HasDiscoveries, Model};
use tenure_world::{client_go, clock, law::What, register, tree};

mod checker;
mod container;
mod digest;
mod elector;
mod family;
mod fault;
mod judge;
mod peer;
mod witness;
mod world;

use family::{Family, Size};

/// The transitions of the law that no model takes, because nobody in it writes so over a Lease, or no answer comes so late. The
/// simulation takes those that its own list does not name.
const ELSEWHERE: [What; 8] = [
    What::SeesLateAbsence,
    What::PeerTakes,
    What::Forgets,
    What::StoresPeersRelease,
    What::DropsName,
    What::StrangerCreates,
    What::StrangerReleases,
    What::EditsDuration,
];

fn main() -> ExitCode {
    let size = match std::env::var("TENURE_MODEL").as_deref() {
        Ok("large") => Size::Large,
        Ok(_) | Err(_) => Size::Small,
    };
    let trials: Vec<_> =
        family::families(size).into_iter().map(|family| Trial::test(family.name, move || explore(family))).collect();
    let all = trials.len() as u64;
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials);
    if conclusion.num_passed == all {
        let taken = judge::TAKEN.load(Relaxed);
        let untaken: Vec<_> =
            What::ALL.iter().filter(|what| taken & 1 << what.place() == 0 && !ELSEWHERE.contains(what)).collect();
        if !untaken.is_empty() {
            eprintln!("no schedule takes these transitions of the law: {untaken:?}");
            return ExitCode::FAILURE;
        }
    }
    conclusion.exit_code()
}

fn explore(family: Family) -> Result<(), Failed> {
    let began = tenure::clock::boot();
    let checker = family.clone().checker().finish_when(HasDiscoveries::AnyFailures).spawn_dfs().join();
    let (states, unique, depth) = (checker.state_count(), checker.unique_state_count(), checker.max_depth());
    let took = tenure::clock::boot().since(began).as_secs_f64();
    eprintln!(
        "{}: {} faults of {:?} until {} ms: {unique} states, {states} steps, depth {depth}, {took:.1} s",
        family.name,
        family.most,
        family.faults,
        family.until / clock::MS,
    );
    let mut found = checker.discoveries();
    if family.is_control {
        let reported = found.contains_key(checker::NEVER_TWO) || found.contains_key(checker::NEVER_LATE);
        return if reported { Ok(()) } else { Err("it goes unnoticed that two lead at once".into()) };
    }
    // A model in which nothing happens would pass otherwise.
    let must_happen = family.properties().into_iter().filter(|property| property.expectation == Expectation::Sometimes);
    let missing: Vec<_> = must_happen.map(|property| property.name).filter(|name| found.remove(name).is_none()).collect();
    let Some((name, path)) = found.into_iter().next() else {
        let struck = family.struck.lock().expect("nobody panics with it");
        let idle: Vec<_> = family.faults.iter().filter(|kind| !struck.contains(kind)).collect();
        let happens = missing.is_empty() && idle.is_empty();
        return if happens { Ok(()) } else { Err(format!("in no schedule: {missing:?}, and the faults {idle:?}").into()) };
    };
    let mut story = String::new();
    for (world, step) in path.into_vec() {
        let verdict = world.judge.verdict().unwrap_or_default();
        let step = step.map(|step| format!("{step:?}")).unwrap_or_default();
        writeln!(story, "{:>13.9}  {step}{verdict}", world.now as f64 / 1e9)?;
    }
    Err(format!("not so: {name}\n{story}").into())
}
