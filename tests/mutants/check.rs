//! The checks that must find a mutant: the modules' unit tests in virtual time, the model, the simulation, the worlds of turns.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    io::{self, BufRead, BufReader},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use serde_json::Value;

use crate::{
    copy::{Copy, original},
    weave::{Change, Woven, weave},
};

/// The prefixes of the unit tests of the modules that decide, which model and simulation run too.
pub(crate) const DECIDING: [&str; 6] = ["law::", "election::", "supervision::", "link::", "wire::", "time::"];
/// A mutant that allocates memory without end fails; in kilobytes of address space.
const MEMORY: u32 = 8_000_000;

/// How many worlds with a violation end a simulation: one may be an accident of its seed.
const VIOLATIONS: usize = 5;

/// What a simulation reports of a mutant.
#[derive(Debug)]
pub(crate) struct Reports {
    /// How many terms were simulated.
    after: String,
    /// The violation of each world that has one.
    pub(crate) said: Vec<String>,
}

impl fmt::Display for Reports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { after, said } = self;
        write!(f, "{} worlds of {after} terms, such as: {}", said.len(), said.first().map_or("", String::as_str))
    }
}

/// The test binaries built with all mutants.
pub(crate) struct Checks {
    executables: BTreeMap<String, PathBuf>,
    /// The mutants that do not compile, and why.
    pub(crate) unviable: BTreeMap<usize, String>,
}

impl Checks {
    /// Builds them. Those that do not compile are left out; an error is the compiler's message about anything else.
    pub(crate) fn build(copy: &Copy, changes: &[Change]) -> Result<Self, String> {
        let mut unviable = BTreeMap::new();
        // Compile errors show soonest in the library alone.
        settle(copy, changes, &["build", "--lib"], &mut unviable)?;
        let build = ["--test", "model", "--test", "simulation", "--test", "transaction", "--test", "turns"];
        let build = [&["test", "--no-run", "--lib"][..], &build].concat();
        let messages = settle(copy, changes, &build, &mut unviable)?;
        Ok(Self { executables: messages.iter().filter_map(executable).collect(), unviable })
    }

    /// The unit tests that fail, or the first of them if none is `named`; what was said last if they failed without a name. One
    /// that takes all memory or time takes the results of the others with it: then the named one is run alone.
    pub(crate) fn unit(&self, mutant: usize, rooms: &[&str], named: Option<&str>) -> Option<Vec<String>> {
        let ran = |which: &[&str]| {
            let mut command = self.command("tenure", mutant, 20);
            command.args(which);
            watch(command, |line| named.is_none() && failed(line).is_some())
        };
        let mut printed = ran(rooms);
        if !printed.success && !printed.lines.iter().any(|line| failed(line).is_some()) {
            printed = named.map_or(printed, |named| ran(&[named]));
        }
        let Printed { success, lines } = printed;
        let failed = lines.iter().filter_map(|line| failed(line));
        let names: Vec<String> = failed.map(|name| name.rsplit("::").next().unwrap_or(name).to_owned()).collect();
        (!success).then(|| if names.is_empty() { vec![last(&lines)] } else { names })
    }

    /// The family of the model that fails first, among those with this text in their name.
    pub(crate) fn model(&self, mutant: usize, family: Option<&str>) -> Option<String> {
        let mut command = self.command("model", mutant, 300);
        command.args(family);
        let Printed { lines, .. } = watch(command, |line| failed(line).is_some());
        // A mutant whose states take too long to explore counts as not found.
        lines.iter().find_map(|line| failed(line)).map(str::to_owned)
    }

    /// Runs this simulation for at most so many terms, or until [`VIOLATIONS`] have a violation; returns what it reports if it fails.
    pub(crate) fn simulation(&self, name: &str, mutant: usize, terms: u64) -> Option<Reports> {
        let mut command = self.command(name, mutant, 3_600);
        command.env("TENURE_SIMULATION", terms.to_string()).env("VIOLATIONS", VIOLATIONS.to_string()).arg("--nocapture");
        let Printed { success, lines } = watch(command, |_| false);
        let of_a_world = |line: &String| {
            let (seed, violation) = line.strip_prefix("SEED=")?.split_once(": ")?;
            Some((seed.to_owned(), violation.to_owned()))
        };
        let mut said: BTreeMap<String, String> = lines.iter().filter_map(of_a_world).collect();
        if said.is_empty() {
            // Tests of one schedule, or what takes all memory or time: so would each world.
            let tests: Vec<&str> = lines.iter().filter_map(|line| failed(line)).collect();
            let why = if tests.is_empty() { last(&lines) } else { tests.join(" ") };
            said.extend((0..VIOLATIONS).map(|world| (world.to_string(), why.clone())));
        }
        let after = lines.iter().rev().find_map(|line| Some(line.split_once(" worlds, ")?.1.split_once(" terms")?.0));
        (!success).then(|| Reports { after: after.unwrap_or("?").into(), said: said.into_values().collect() })
    }

    /// Runs this many worlds of init's turn; returns which fails and why.
    pub(crate) fn turns(&self, mutant: usize, worlds: u64) -> Option<String> {
        let mut command = self.command("turns", mutant, 600);
        command.env("TURNS", worlds.to_string());
        let Printed { success, lines } = watch(command, |_| false);
        let wrong = lines.iter().find(|line| line.starts_with("seed "));
        (!success).then(|| wrong.cloned().unwrap_or_else(|| last(&lines)))
    }

    /// A check of this mutant, limited to this many CPU seconds: a unit test or simulated world that takes longer hangs, which is
    /// a finding too.
    fn command(&self, name: &str, mutant: usize, seconds: u32) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -v {MEMORY}; ulimit -t {seconds}; exec \"$0\" \"$@\"")]);
        command.arg(self.executables.get(name).map_or_else(|| Path::new("/nonexistent"), PathBuf::as_path));
        command.env_remove("SEED").env_remove("FROM").env_remove("TENURE_MODEL").env("RUST_BACKTRACE", "0");
        command.env("TENURE_MUTANT", mutant.to_string());
        command
    }
}

/// Runs cargo repeatedly, each time without the mutants that do not compile, until it succeeds; returns its output then.
fn settle(
    copy: &Copy,
    changes: &[Change],
    command: &[&str],
    unviable: &mut BTreeMap<usize, String>,
) -> Result<Vec<Value>, String> {
    loop {
        let viable: Vec<&Change> = changes.iter().filter(|change| !unviable.contains_key(&change.number)).collect();
        let woven = woven(&viable)?;
        copy.make(&woven);
        let mut cargo = copy.cargo();
        cargo.args(command).args(["--profile", "simulation", "--message-format", "json"]);
        let Printed { success, lines } = watch(cargo, |_| false);
        let messages: Vec<Value> = lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
        if success {
            return Ok(messages);
        }
        let known = unviable.len();
        let errors = || messages.iter().map(|message| &message["message"]).filter(|message| message["level"] == "error");
        for error in errors() {
            let text = error["message"].as_str().unwrap_or_default();
            unviable.extend(culprits(error, &woven).into_iter().map(|number| (number, text.to_owned())));
        }
        if unviable.len() == known {
            let text = errors().find_map(|error| error["rendered"].as_str());
            return Err(text.map_or_else(|| lines.join("\n"), str::to_owned));
        }
    }
}

/// The woven files that have mutants.
fn woven(changes: &[&Change]) -> Result<BTreeMap<PathBuf, Woven>, String> {
    let files: BTreeSet<&PathBuf> = changes.iter().map(|change| &change.file).collect();
    let weave = |file: &PathBuf| {
        let own: Vec<&Change> = changes.iter().copied().filter(|change| change.file == *file).collect();
        let ask = if file.starts_with("src") { "crate::mutant()" } else { "tenure::mutant()" };
        Ok((file.clone(), weave(&String::from_utf8_lossy(&original(file)), &own, ask)?))
    };
    files.into_iter().map(weave).collect()
}

fn executable(message: &Value) -> Option<(String, PathBuf)> {
    // The program is named as the library is, and built beside its tests.
    if message["profile"]["test"] != true || message["target"]["kind"][0] == "bin" {
        return None;
    }
    let path = message["executable"].as_str()?;
    Some((message["target"]["name"].as_str()?.to_owned(), path.into()))
}

/// The mutants to which a compiler message points.
fn culprits(error: &Value, woven: &BTreeMap<PathBuf, Woven>) -> BTreeSet<usize> {
    let spans = error["spans"].as_array().into_iter().flatten();
    let of = |span: &Value| {
        let woven = woven.get(Path::new(span["file_name"].as_str()?))?;
        let line = usize::try_from(span["line_start"].as_u64()?).ok()?;
        woven.lines.iter().find(|(lines, _)| lines.contains(&line)).map(|(_, number)| *number)
    };
    let (first, rest): (Vec<&Value>, Vec<&Value>) = spans.partition(|span| span["is_primary"] == true);
    let first: BTreeSet<usize> = first.into_iter().filter_map(of).collect();
    if first.is_empty() { rest.into_iter().filter_map(of).collect() } else { first }
}

struct Printed {
    success: bool,
    lines: Vec<String>,
}

/// Runs a command to its end, or to a line at which it may `stop`.
fn watch(mut command: Command, stop: impl Fn(&str) -> bool) -> Printed {
    let (reader, writer) = io::pipe().expect("a pipe");
    let twin = writer.try_clone().expect("twice");
    let mut child = command.stdin(Stdio::null()).stdout(twin).stderr(writer).process_group(0).spawn().expect("it runs");
    // The pipe is closed only with its last writer.
    drop(command);
    let mut lines = Vec::new();
    for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line).into_owned();
        let enough = stop(&line);
        lines.push(line);
        if enough {
            let _ = killpg(Pid::from_raw(i32::try_from(child.id()).expect("a pid")), Signal::SIGKILL);
            break;
        }
    }
    let success = child.wait().is_ok_and(|status| status.success());
    Printed { success, lines }
}

/// The test that failed according to this line, which other output may precede.
fn failed(line: &str) -> Option<&str> {
    let (_, name) = line.strip_suffix("FAILED")?.rsplit_once("test ")?;
    Some(name.trim_end().trim_end_matches("...").trim_end())
}

fn last(lines: &[String]) -> String {
    lines.iter().rfind(|line| !line.trim().is_empty()).cloned().unwrap_or_else(|| "nothing was said".into())
}
