//! Runs mutants: builds each, runs what must find it, and says what did.

use std::{
    fs,
    io::Read,
    os::unix::process::CommandExt,
    process::{Child, Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

use crate::{
    copy::Copy,
    list::{self, Check, Mutant},
};

/// So many terms are simulated unless `TENURE_SIMULATION` says another number.
const TERMS: &str = "2000000";
/// A check that takes longer than this hangs, and that is a finding too.
const PATIENCE: Duration = Duration::from_secs(1_800);

/// What became of a check.
enum Verdict {
    /// It failed: what it said.
    Found(String),
    /// It passed.
    Passed,
    /// Neither: what is wrong.
    Broken(String),
}

/// Runs the mutants that are named by their rules or names, or all.
pub(crate) fn run(wanted: &[String]) -> ExitCode {
    let all = list::read();
    let chosen: Vec<&Mutant> = all.iter().filter(|mutant| wanted.is_empty() || is_wanted(mutant, wanted)).collect();
    if chosen.is_empty() {
        eprintln!("no mutant has such a rule or name: {wanted:?}");
        return ExitCode::FAILURE;
    }
    let copy = Copy::make();
    if let Err(why) = holds_without(&copy, &chosen) {
        eprintln!("{why}");
        return ExitCode::FAILURE;
    }
    println!("{:<5} {:<44} {:<10} {:>6}  by what", "rule", "mutant", "verdict", "s");
    let mut bad = 0;
    for mutant in chosen {
        let began = Instant::now();
        let verdict = match copy.mutate(mutant) {
            Ok(()) => check(&copy, mutant.caught_by, mutant.test.as_deref()),
            Err(why) => Verdict::Broken(why),
        };
        copy.restore(mutant);
        let (word, what, good) = match (mutant.caught_by, verdict) {
            (_, Verdict::Broken(why)) => ("BROKEN", why, false),
            (Check::Nothing, Verdict::Passed) => ("covered", mutant.because.clone().unwrap_or_default(), true),
            (Check::Nothing, Verdict::Found(what)) => ("FOUND", format!("though listed as covered: {what}"), false),
            (Check::Simulation | Check::Model | Check::Unit, Verdict::Found(what)) => ("found", what, true),
            (Check::Simulation | Check::Model | Check::Unit, Verdict::Passed) => ("NOT FOUND", mutant.sentence.clone(), false),
        };
        bad += u32::from(!good);
        println!("{:<5} {:<44} {word:<10} {:>6}  {what}", mutant.rule, mutant.name, began.elapsed().as_secs());
    }
    if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn is_wanted(mutant: &Mutant, wanted: &[String]) -> bool {
    wanted.iter().any(|word| word.parse() == Ok(mutant.rule) || *word == mutant.name)
}

/// A check that fails without any mutant proves nothing.
fn holds_without(copy: &Copy, chosen: &[&Mutant]) -> Result<(), String> {
    let mut checks: Vec<Check> = chosen.iter().map(|mutant| mutant.caught_by).collect();
    checks.sort();
    checks.dedup_by_key(|check| if *check == Check::Nothing { Check::Simulation } else { *check });
    for kind in checks {
        match check(copy, kind, None) {
            Verdict::Passed => {}
            Verdict::Found(what) | Verdict::Broken(what) => return Err(format!("without any mutant {kind:?} fails: {what}")),
        }
    }
    Ok(())
}

fn check(copy: &Copy, check: Check, test: Option<&str>) -> Verdict {
    let arguments: &[&str] = match check {
        Check::Simulation | Check::Nothing => &["--profile", "simulation", "--test", "simulation"],
        Check::Model => &["--profile", "simulation", "--test", "model"],
        Check::Unit => &["--lib"],
    };
    let mut build = copy.cargo();
    build.arg("test").arg("--locked").args(arguments).arg("--no-run");
    match finish(build, copy, PATIENCE) {
        Some((true, _)) => {}
        Some((false, output)) => return Verdict::Broken(format!("it does not compile: {}", first(&output, "error"))),
        None => return Verdict::Broken("its compilation hangs".into()),
    }
    let mut command = copy.cargo();
    command.arg("test").arg("--locked").args(arguments).args(["--"].iter().chain(test.iter()));
    if std::env::var_os("TENURE_SIMULATION").is_none() {
        command.env("TENURE_SIMULATION", TERMS);
    }
    match finish(command, copy, PATIENCE) {
        Some((true, _)) => Verdict::Passed,
        Some((false, output)) => Verdict::Found(said(&output)),
        None => Verdict::Found(format!("hangs for {} s", PATIENCE.as_secs())),
    }
}

/// Runs a command to its end, and what it printed; none if it hangs.
fn finish(mut command: Command, copy: &Copy, patience: Duration) -> Option<(bool, String)> {
    let path = copy.output();
    let file = fs::File::create(path).expect("the output can be kept");
    let twin = file.try_clone().expect("twice");
    let mut child = command.stdin(Stdio::null()).stdout(file).stderr(twin).process_group(0).spawn().expect("cargo runs");
    let ended = wait(&mut child, patience);
    let mut output = Vec::new();
    fs::File::open(path).and_then(|mut file| file.read_to_end(&mut output)).expect("the output can be read");
    let output = String::from_utf8_lossy(&output).into_owned();
    ended.map(|success| (success, output))
}

fn wait(child: &mut Child, patience: Duration) -> Option<bool> {
    let end = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            return Some(status.success());
        }
        if Instant::now() > end {
            let group = Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
            let _ = killpg(group, Signal::SIGKILL);
            drop(child.wait());
            return None;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// The finding: the seed of a simulation, the failed tests otherwise.
fn said(output: &str) -> String {
    let seed = output.lines().find(|line| line.starts_with("SEED="));
    seed.map_or_else(|| first(output, "test "), str::to_owned)
}

/// The first line that begins with `word` and is no success.
fn first(output: &str, word: &str) -> String {
    let mut lines = output.lines().filter(|line| line.starts_with(word) && !line.ends_with(" ok"));
    lines.next().or_else(|| output.lines().last()).unwrap_or("nothing was said").to_owned()
}
