//! Runs the mutants that cargo-mutants makes of the deciding modules, and compares the survivors with the list of explained ones.
//!
//! Only cargo-mutants' list is used: all its mutants are built together ([`crate::weave`]), which takes a minute instead of hours.

use std::{
    collections::{BTreeMap, VecDeque},
    fs,
    process::{Command, ExitCode},
    sync::Mutex,
};

use serde::Deserialize;
use serde_json::Value;

use crate::{
    check::Checks,
    copy::{Copy, original},
    list,
    run::for_each,
    weave::Change,
};

/// How many terms are simulated of a mutant that neither the unit tests nor the model find.
const TERMS: u64 = 20_000;

/// Without optimisation a thousand more function bodies are built in a minute.
const QUICK: [&str; 2] = ["profile.simulation.package.tenure.opt-level=1", "profile.simulation.package.tenure.debug=false"];

/// Mutants that change nothing observable, or nothing that matters.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Survivor {
    /// cargo-mutants' name for it, without the line number.
    name: String,
    /// How many mutants have that name.
    times: Option<usize>,
    #[allow(dead_code, reason = "for people")]
    because: String,
}

/// A mutant with cargo-mutants' name for it.
type Named = (String, Change);

#[derive(Deserialize)]
struct Survivors {
    survivor: Vec<Survivor>,
}

/// Runs those that have one of these texts in their names, or all.
pub(crate) fn run(wanted: &[String]) -> ExitCode {
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|text| name.contains(text.as_str()));
    let mutants: Vec<Named> = match generate() {
        Ok(mutants) => mutants.into_iter().filter(|(name, _)| is_wanted(name)).collect(),
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    };
    if mutants.is_empty() {
        eprintln!("no mutant has {} in its name", wanted.join(" or "));
        return ExitCode::FAILURE;
    }
    let changes: Vec<Change> = mutants.iter().map(|(_, change)| change.clone()).collect();
    let checks = match Checks::build(&Copy::kept(), &changes, &QUICK) {
        Ok(checks) => checks,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    };
    if let Some(why) = checks
        .unit(0, None)
        .map(|names| names.join(" "))
        .or_else(|| checks.model(0, None))
        .or_else(|| checks.simulation(0, TERMS))
    {
        eprintln!("without any mutant: {why}");
        return ExitCode::FAILURE;
    }
    let (unviable, viable): (Vec<_>, Vec<_>) =
        mutants.into_iter().partition(|(_, change)| checks.unviable.contains_key(&change.number));
    println!("{} do not compile", unviable.len());
    let left = survivors(viable, "a unit test", |number| checks.unit(number, None).is_some());
    for (name, _) in &left {
        println!("no unit test: {name}");
    }
    let left = survivors(left, "the simulation", |number| checks.simulation(number, TERMS).is_some());
    for (name, _) in &left {
        println!("no simulation: {name}");
    }
    let left = survivors(left, "the model only", |number| checks.model(number, None).is_some());
    let mut missed: BTreeMap<String, usize> = BTreeMap::new();
    for (name, _) in &left {
        *missed.entry(without_line(name)).or_default() += 1;
    }
    compare(missed, is_wanted)
}

/// The mutants that `check` does not find.
fn survivors(all: Vec<Named>, what: &str, check: impl Fn(usize) -> bool + Sync) -> Vec<Named> {
    let left = Mutex::new(Vec::new());
    let caught = for_each(VecDeque::from(all), |mutant| {
        let found = check(mutant.1.number);
        if !found {
            left.lock().expect("nobody panics with it").push(mutant);
        }
        found
    });
    let left = left.into_inner().expect("nobody panicked");
    println!("{caught} found by {what}, {} left", left.len());
    left
}

fn compare(mut missed: BTreeMap<String, usize>, is_wanted: impl Fn(&str) -> bool) -> ExitCode {
    let text = fs::read_to_string(list::root().join("tests/mutants/survivors.toml")).expect("the list is there");
    let Survivors { survivor } = toml::from_str(&text).expect("it is one");
    let mut good = true;
    for Survivor { name, times, .. } in survivor.into_iter().filter(|survivor| is_wanted(&survivor.name)) {
        let (explained, survive) = (times.unwrap_or(1), missed.remove(&name).unwrap_or(0));
        if explained != survive {
            println!("{survive} survive where {explained} are explained: {name}");
            good = false;
        }
    }
    for (name, times) in &missed {
        println!("{times} survive and are not explained: {name}");
    }
    if good && missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// cargo-mutants' mutants of the deciding modules.
fn generate() -> Result<Vec<Named>, String> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(list::root()).env_remove("CARGO_MANIFEST_DIR");
    cargo.args(["mutants", "--list", "--json", "--file", "src/election/**", "--file", "src/supervision/**"]);
    let listed = cargo.output().map_err(|error| format!("cargo does not run: {error}"))?;
    if !listed.status.success() {
        let said = String::from_utf8_lossy(&listed.stderr).into_owned();
        return Err(format!("cargo-mutants makes no list; cargo install --locked cargo-mutants: {said}"));
    }
    let all: Vec<Value> = serde_json::from_slice(&listed.stdout).map_err(|error| format!("not its list: {error}"))?;
    let read = |(number, mutant): (usize, &Value)| {
        let (name, file) = (mutant["name"].as_str()?, mutant["file"].as_str()?);
        let text = String::from_utf8(original(file.as_ref())).ok()?;
        let place = |end: &str| {
            let of = |what: &str| usize::try_from(mutant["span"][end][what].as_u64()?).ok();
            offset(&text, of("line")?, of("column")?)
        };
        let span = place("start")?..place("end")?;
        Some((name.to_owned(), Change { number, file: file.into(), span, text: mutant["replacement"].as_str()?.to_owned() }))
    };
    // A change outside every function cannot be switched on at run time.
    let inside = |mutant: &&Value| !mutant["function"].is_null();
    let read: Option<Vec<_>> = (1..).zip(all.iter().filter(inside)).map(read).collect();
    read.ok_or_else(|| "the list of cargo-mutants has another form".into())
}

fn offset(text: &str, line: usize, column: usize) -> Option<usize> {
    let start = text.split_inclusive('\n').take(line.checked_sub(1)?).map(str::len).sum::<usize>();
    let chars = text.get(start..)?.chars().take(column.checked_sub(1)?);
    Some(start + chars.map(char::len_utf8).sum::<usize>())
}

fn without_line(name: &str) -> String {
    let mut parts = name.splitn(4, ':');
    match (parts.next(), parts.nth(2)) {
        (Some(file), Some(rest)) => format!("{file}:{rest}"),
        (_, _) => name.to_owned(),
    }
}
