//! Runs the mutants of the law: builds all, checks each, and compares the checks that find them with the list.

use std::{collections::VecDeque, env, process::ExitCode, sync::Mutex, thread};

use clap::Parser;

use crate::{
    check::{Checks, DECIDING, Reports},
    copy::Copy,
    list::{self, Mutant, room},
    matrix,
    weave::Change,
};

/// How many terms are simulated where the list does not say that the simulation finds the mutant; `TENURE_SIMULATION` sets more.
const TERMS: u64 = 20_000;
/// How many worlds of init's turn run where the list does not say that they find the mutant.
const WORLDS: u64 = 1_000;
/// How many of the unit tests that find a mutant are printed.
const PRINTED: usize = 3;

/// Runs the mutants of the law, all or some.
#[derive(Parser)]
#[command(name = "tests/mutants/run")]
struct Wanted {
    /// Runs every check, so that the list can be written.
    #[arg(long)]
    all: bool,
    /// Generates the mutants of these rooms or files of the product, prints which tests find each, and which tests alone find none.
    #[arg(long, conflicts_with = "all")]
    generated: bool,
    /// The number of a rule, or a mutant's name; a path such as src/election with --generated.
    #[arg(value_name = "RULE|NAME|PATH")]
    words: Vec<String>,
}

/// The checks that found a mutant.
#[derive(Debug, Default)]
struct Found {
    unit: Option<Vec<String>>,
    model: Option<String>,
    simulation: Option<Reports>,
    turns: Option<String>,
}

/// Runs the mutants named by their rules or names, or all.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    let Wanted { all: every, generated, words } = Wanted::parse_from([String::new()].iter().chain(arguments));
    if generated {
        return matrix::run(&words);
    }
    let listed = list::read();
    if let Some(word) = words.iter().find(|word| !listed.iter().any(|mutant| is_called(mutant, word))) {
        eprintln!("{word} is neither a rule that has mutants nor a mutant's name; tests/mutants/law has both");
        return ExitCode::FAILURE;
    }
    let is_wanted = |mutant: &Mutant| words.is_empty() || words.iter().any(|word| is_called(mutant, word));
    let mutants: VecDeque<(usize, Mutant)> = (1..).zip(listed).filter(|(_, mutant)| is_wanted(mutant)).collect();
    let changes: Result<Vec<Change>, String> = mutants.iter().map(|(number, mutant)| mutant.change(*number)).collect();
    let checks = match changes.and_then(|changes| Checks::build(&Copy::kept(), &changes)) {
        Ok(checks) => checks,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    };
    // What fails without a mutant in so many terms would be found with each.
    let terms = [("simulation", false), ("transaction", true)].map(|(name, of_transactions)| {
        let of_it = mutants.iter().filter(|(_, mutant)| mutant.is_of_transactions() == of_transactions);
        (name, of_it.filter_map(|(_, mutant)| Some(mutant.simulation.as_ref()?.terms)).max().unwrap_or(TERMS))
    });
    if let Err(why) = holds_without(&checks, terms) {
        eprintln!("{why}");
        return ExitCode::FAILURE;
    }
    println!("{:<4} {:<44} {:>4}  {:<10} what found it", "rule", "mutant", "s", "verdict");
    let bad = for_each(mutants, |(number, mutant)| {
        let began = tenure::clock::boot();
        let (verdict, good, what) = match checks.unviable.get(&number) {
            Some(why) => ("BROKEN", false, why.clone()),
            None => judge(&mutant, &check(&checks, number, &mutant, every)),
        };
        println!(
            "{:<4} {:<44} {:>4}  {verdict:<10} {what}",
            mutant.removes().0,
            mutant.name,
            tenure::clock::boot().since(began).as_secs()
        );
        !good
    });
    println!("{bad} are not as the list says");
    if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Does this for each, on all CPUs; returns for how many it was true.
pub(crate) fn for_each<T: Send>(all: VecDeque<T>, does: impl Fn(T) -> bool + Sync) -> usize {
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let all = Mutex::new(all);
    let next = || all.lock().expect("nobody panics with it").pop_front();
    let work = || std::iter::from_fn(next).filter_map(|one| does(one).then_some(())).count();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker ends")).sum()
    })
}

fn is_called(mutant: &Mutant, word: &str) -> bool {
    word.parse() == Ok(mutant.removes().0) || word == mutant.name
}

/// The first few of these names.
fn shorten(names: &[String]) -> String {
    match names.len().saturating_sub(PRINTED) {
        0 => names.join(" "),
        more => format!("{} and {more} more", names[..PRINTED].join(" ")),
    }
}

/// A check that fails without any mutant proves nothing.
fn holds_without(checks: &Checks, terms: [(&str, u64); 2]) -> Result<(), String> {
    let found = Found {
        unit: checks.unit(0, &DECIDING, None),
        model: checks.model(0, None),
        simulation: terms.into_iter().find_map(|(name, terms)| checks.simulation(name, 0, terms)),
        turns: checks.turns(0, WORLDS),
    };
    match found {
        Found { unit: None, model: None, simulation: None, turns: None } => Ok(()),
        Found { .. } => Err(format!("without any mutant: {found:?}")),
    }
}

/// Runs the checks that the list names, or all if it says that nothing finds the mutant. Model and simulation run what decides.
fn check(checks: &Checks, number: usize, mutant: &Mutant, every: bool) -> Found {
    let room = room(&mutant.file);
    let listed = mutant.simulation.as_ref().map(|reported| reported.terms);
    if mutant.is_of_transactions() {
        let simulation = listed.and_then(|terms| checks.simulation("transaction", number, terms));
        return Found { simulation, ..Found::default() };
    }
    if !DECIDING.contains(&room.as_str()) {
        let simulation = listed.and_then(|terms| checks.simulation("simulation", number, terms));
        return Found { unit: checks.unit(number, &[&room], mutant.unit.as_deref()), simulation, ..Found::default() };
    }
    let every = every || mutant.because.is_some();
    let terms = listed.or_else(|| every.then(|| terms().unwrap_or(TERMS)));
    let family = mutant.model.as_deref().filter(|_| !every);
    Found {
        unit: checks.unit(number, &DECIDING, mutant.unit.as_deref()),
        model: if every || family.is_some() { checks.model(number, family) } else { None },
        simulation: terms.and_then(|terms| checks.simulation("simulation", number, terms)),
        turns: mutant.turns.or_else(|| every.then_some(WORLDS)).and_then(|worlds| checks.turns(number, worlds)),
    }
}

fn judge(mutant: &Mutant, found: &Found) -> (&'static str, bool, String) {
    let Found { unit, model, simulation, turns } = found;
    let says = |name: &str, what: &Option<String>| what.as_ref().map(|what| format!("{name}: {what}"));
    let (units, worlds) = (unit.as_deref().map(shorten), simulation.as_ref().map(Reports::to_string));
    let said = [says("unit", &units), says("model", model), says("simulation", &worlds), says("turns", turns)];
    let mut what: Vec<String> = said.into_iter().flatten().collect();
    let unit_as_said = mutant.unit.as_ref().is_none_or(|name| unit.iter().flatten().any(|failed| failed.contains(name.as_str())));
    // What another judge reports is another finding, but several may see it.
    let is_simulated = mutant.simulation.as_ref().is_none_or(|listed| {
        let said = simulation.iter().flat_map(|reports| &reports.said);
        said.filter(|said| said.contains(&listed.says)).count() >= 2
    });
    let missed = [
        (!unit_as_said).then_some("unit"),
        (mutant.model.is_some() && model.is_none()).then_some("model"),
        (!is_simulated).then_some("simulation"),
        (mutant.turns.is_some() && turns.is_none()).then_some("turns"),
    ];
    let missed: Vec<&str> = missed.into_iter().flatten().collect();
    if !missed.is_empty() {
        what.push(format!("not by {}: {}", missed.join(", "), mutant.removes().1));
        return ("NOT FOUND", false, what.join("; "));
    }
    let Some(because) = &mutant.because else { return ("found", true, what.join("; ")) };
    let is_unfound = model.is_none() && simulation.is_none() && turns.is_none();
    let covered = is_unfound && unit.is_some() == mutant.unit.is_some();
    what.push(because.clone());
    (if covered { "explained" } else { "FOUND" }, covered, what.join("; "))
}

fn terms() -> Option<u64> {
    env::var("TENURE_SIMULATION").ok()?.parse().ok()
}
