//! The law is one: its words in `src/law.rs`, its proof in `proof/law.py`, the monitor in tests/law, and the mutants of the code.
//!
//! The texts share no code. Here they are compared: their names, what they quote, and what they say of each step of the runs in
//! `proof/stories.toml`. `.ci/nightly proof` asks Z3 about the same runs.

#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking, and says why")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use serde::Deserialize;
use tenure_world::law::{Law, Step, What};

#[path = "mutants/list.rs"]
#[expect(dead_code, reason = "for the mutants")]
mod list;
#[path = "mutants/weave.rs"]
#[expect(dead_code, reason = "for the mutants")]
mod weave;

/// A second of a story.
const S: u64 = 1_000_000_000;
/// The replicas of the stories; the last is a client-go.
const REPLICAS: [&str; 4] = ["A", "B", "C", "F"];

#[derive(Deserialize)]
struct File {
    durations: BTreeMap<String, u64>,
    fragments: BTreeMap<String, Vec<String>>,
    stories: BTreeMap<String, Vec<String>>,
    without: Vec<Without>,
}

/// A half-sentence of the law, and a run that it forbids.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Without {
    name: String,
    /// Quoted; none of what the law does not cover.
    sentence: Option<String>,
    #[serde(default)]
    mutants: Vec<String>,
    /// Why it has no mutant.
    because: Option<String>,
    #[serde(default)]
    durations: BTreeMap<String, u64>,
    /// The step that it forbids, counted from 1.
    illegal: usize,
    steps: Vec<String>,
}

#[test]
fn the_monitor_and_the_proof_have_the_same_transitions_and_half_sentences() {
    let (file, proof) = (read(), text("proof/law.py"));
    let quoted = |call: &str| -> BTreeSet<String> {
        let parts = proof.split(call).skip(1).filter(|part| part.starts_with('"'));
        parts.filter_map(|part| part.split('"').nth(1)).map(str::to_owned).collect()
    };
    let transitions: BTreeSet<String> = What::ALL.iter().map(|what| what.name().to_owned()).collect();
    let happens: BTreeSet<String> =
        file.stories.values().flat_map(|steps| flat(&file, steps)).map(|line| parse(&line).what.name().to_owned()).collect();
    let halves: BTreeSet<String> = ["need(", "on(", "assume("].into_iter().flat_map(quoted).collect();

    assert_eq!(transitions, quoted("yield "), "transitions of tests/law and of proof/law.py");
    assert_eq!(transitions, happens, "transitions, and those that happen in a story");
    let named: BTreeSet<String> = file.without.iter().map(|without| without.name.clone()).collect();
    assert_eq!(named, halves, "half-sentences of proof/stories.toml and of proof/law.py");
}

#[test]
fn every_half_sentence_is_quoted_from_its_rule_and_missed_by_a_mutant_that_is_found() {
    let (file, law, mutants) = (read(), list::law("src/law.rs"), list::read());
    for Without { name, sentence, mutants: without, because, .. } in &file.without {
        let number = name.split(' ').next().and_then(|number| number.parse::<usize>().ok());
        assert_eq!(number.is_some(), sentence.is_some(), "{name}: a half-sentence of the law has a rule and is quoted");
        let Some((number, sentence)) = number.zip(sentence.as_ref()) else { continue };
        assert!(law[number].contains(sentence), "{name}: rule {number} does not say {sentence:?}");
        assert!(without.is_empty() == because.is_some(), "{name}: say why it has no mutant, if it has none");
        for mutant in without {
            assert!(mutants.iter().any(|listed| listed.name == *mutant), "{name}: there is no mutant {mutant}");
        }
    }
}

#[test]
fn the_monitor_allows_every_story() {
    let file = read();
    for (name, steps) in &file.stories {
        assert_eq!(first_illegal(&file, &BTreeMap::new(), steps), None, "{name}");
    }
}

#[test]
fn the_monitor_refuses_each_run_without_half_a_sentence_where_the_proof_does() {
    let file = read();
    let found = |without: &Without| (without.illegal, first_illegal(&file, &without.durations, &without.steps));
    let all = file.without.iter().map(|without| (&without.name, found(without)));
    let wrong: Vec<_> = all.filter(|(_, (illegal, found))| found.as_ref().map(|(number, _)| number) != Some(illegal)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The number of the first step of a run that the monitor refuses, and what it breaks.
fn first_illegal(file: &File, durations: &BTreeMap<String, u64>, steps: &[String]) -> Option<(usize, String)> {
    let mut law = Law::new(1);
    for name in REPLICAS {
        law.adds(durations.get(name).unwrap_or_else(|| &file.durations[name]) * S, name == "F");
    }
    for (number, line) in (1..).zip(flat(file, steps)) {
        let step = parse(&line);
        if let Err(what) = law.allows(&step) {
            return Some((number, format!("{line}: {what}")));
        }
        law.take(&step);
    }
    None
}

/// The steps, with fragments and other stories in their places.
fn flat(file: &File, steps: &[String]) -> Vec<String> {
    let inner = |step: &String| {
        let Some(call) = step.strip_prefix('@') else { return vec![step.clone()] };
        let mut words = call.split(' ');
        let name = words.next().unwrap_or_default();
        let (values, body) = (words.collect::<Vec<_>>(), file.fragments.get(name).or_else(|| file.stories.get(name)));
        let body = body.unwrap_or_else(|| panic!("there is no {name}"));
        let filled = |line: &String| {
            let numbered = values.iter().enumerate();
            numbered.fold(line.clone(), |line, (number, value)| line.replace(&format!("{{{number}}}"), value))
        };
        flat(file, &body.iter().map(filled).collect::<Vec<_>>())
    };
    steps.iter().flat_map(inner).collect()
}

/// A step: the name of a transition, and its arguments by their first letters.
fn parse(line: &str) -> Step {
    let is_called = |what: &&What| line.strip_prefix(what.name()).is_some_and(|rest| rest.is_empty() || rest.starts_with(": "));
    let what = *What::ALL.iter().find(is_called).unwrap_or_else(|| panic!("{line:?} is no transition"));
    let mut step = Step::of(what);
    let words = line[what.name().len()..].trim_start_matches(": ");
    for word in words.split_whitespace() {
        if let Some(replica) = REPLICAS.iter().position(|name| *name == word) {
            step.r = replica;
            continue;
        }
        let number = |of: &str| of.parse::<u64>().unwrap_or_else(|_| panic!("{word:?} in {line:?} is no argument"));
        match word.trim_end_matches(char::is_numeric) {
            "q" => {
                step.q = usize::try_from(number(&word[1..])).ok();
                // What it says is its own, unless that is told.
                step.text = number(&word[1..]);
            }
            "v" => step.k = number(&word[1..]),
            "t" => step.t = number(&word[1..]) * S,
            "on" => step.base = number(&word[2..]),
            "for" => step.asks = number(&word[3..]) * S,
            "as" => step.text = number(&word[2..]),
            _ => panic!("{word:?} in {line:?} is no argument"),
        }
    }
    step
}

fn read() -> File {
    toml::from_str(&text("proof/stories.toml")).expect("proof/stories.toml is a list of runs")
}

fn text(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
