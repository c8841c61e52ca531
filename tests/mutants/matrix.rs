//! The kill matrix of generated mutants: which tests find each, what none finds, and which tests are never the only finder.

use std::{
    collections::{BTreeMap, VecDeque},
    process::ExitCode,
    sync::Mutex,
};

use crate::{
    check::{Checks, DECIDING},
    copy::Copy,
    generate::{Generated, generate},
    list::room,
    run::for_each,
    weave::Change,
};

/// How many terms are simulated, and how many worlds of init's turn run, for a mutant that no unit test finds.
const TERMS: u64 = 5_000;
const WORLDS: u64 = 300;

/// Prints the matrix of the mutants of these paths. It fails if nothing can be built.
pub(crate) fn run(paths: &[String]) -> ExitCode {
    let mutants: VecDeque<Generated> = generate(paths).into();
    let changes: Vec<Change> = mutants.iter().map(|mutant| mutant.change.clone()).collect();
    println!("{} mutants of {}", changes.len(), paths.join(", "));
    let checks = match Checks::build(&Copy::kept(), &changes) {
        Ok(checks) => checks,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    };
    let found: Mutex<BTreeMap<String, (usize, usize)>> = Mutex::new(BTreeMap::new());
    let survived = for_each(mutants, |Generated { name, change }| {
        if checks.unviable.contains_key(&change.number) {
            return false;
        }
        let finders = finders(&checks, &change);
        println!("{name}: {}", if finders.is_empty() { "SURVIVES".into() } else { finders.join(" ") });
        let mut found = found.lock().expect("nobody panics with it");
        for finder in &finders {
            let (all, alone) = found.entry(finder.clone()).or_default();
            (*all, *alone) = (*all + 1, *alone + usize::from(finders.len() == 1));
        }
        finders.is_empty()
    });
    println!("{:>6} {:>6}  test", "finds", "alone");
    for (test, (all, alone)) in found.into_inner().expect("nobody panics with it") {
        println!("{all:>6} {alone:>6}  {test}");
    }
    println!("{survived} of {} survive, {} do not compile", changes.len(), checks.unviable.len());
    ExitCode::SUCCESS
}

/// All unit tests that fail; if there are none, the worlds that do.
fn finders(checks: &Checks, change: &Change) -> Vec<String> {
    let room = room(&change.file);
    let is_deciding = DECIDING.contains(&room.as_str());
    let rooms: &[&str] = if is_deciding { &DECIDING } else { &[&room] };
    if let Some(tests) = checks.unit(change.number, rooms, Some("")) {
        return tests;
    }
    let worlds = [
        is_deciding.then(|| checks.turns(change.number, WORLDS)).flatten().map(|_| "turns"),
        is_deciding.then(|| checks.simulation("simulation", change.number, TERMS)).flatten().map(|_| "simulation"),
        (room == "transaction::")
            .then(|| checks.simulation("transaction", change.number, TERMS))
            .flatten()
            .map(|_| "transaction"),
    ];
    worlds.into_iter().flatten().map(str::to_owned).collect()
}
