//! What users rely on (docs/compatibility.md): a line for each name, with what is promised of it. And the rule that nothing of it goes
//! without a word in the changelog.

use std::collections::{BTreeMap, BTreeSet};

use clap::Command;
use serde_json::Value;
use tenure::{cli::manual, loading};

/// Each name, such as `key lease.duration`, with what is promised of it.
pub(crate) type Contract = BTreeMap<String, BTreeSet<String>>;

const HEAD: &str = "\
# What users of tenure rely on (docs/compatibility.md). `cargo run --example manual` writes this file from the code.
# A name, and what is promised of it. Nothing goes or changes without its name below \"### Breaking\" in CHANGELOG.md.
";

/// The contract of this code. `reference` is the page of that name, `values` the schema of the chart's values.
pub(crate) fn of_the_code(reference: &str, values: &str) -> Contract {
    let mut all = Contract::new();
    let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    let (schema, mut values) = (parsed(&loading::schema()), parsed(values));
    keys(&mut all, "key", &schema, &schema, "");
    values["properties"]["config"] = Value::Null;
    keys(&mut all, "chart value", &values, &values, "");
    for face in manual::faces() {
        command(&mut all, &face);
    }
    of_tables(&mut all, reference);
    for line in include_str!("../../src/exit.rs").lines().filter_map(|line| line.strip_prefix("pub const ")) {
        let (name, code) = line.split_once(": u8 = ").unwrap_or_default();
        all.insert(format!("exit code {}", code.trim_end_matches(';')), [name.to_owned()].into());
    }
    let between = |source: &'static str, before, after| {
        let (_, rest) = source.split_once(before).unwrap_or_default();
        rest.split(after).next().unwrap_or_default()
    };
    let texts = |text: &'static str| text.split('"').skip(1).step_by(2);
    let variables = super::quoted(include_str!("../../src/environment.rs")).into_iter().map(|[name, _]| name.replace('`', ""));
    let mut add = |kind: &str, name: &str| drop(all.insert(format!("{kind} {name}"), BTreeSet::new()));
    variables.for_each(|name| add("variable", &name));
    add("variable", "TENURE_CONFIG");
    texts(between(include_str!("../../src/http/board.rs"), "json!({\n", "\n        })")).for_each(|name| add("/status", name));
    let paths = between(include_str!("../../src/http/server.rs"), "there are /", "\"").split([',', ' ']);
    ["/"].into_iter().chain(paths.filter(|word| word.starts_with('/'))).for_each(|path| add("HTTP", path));
    let fields = between(include_str!("../../src/telemetry/event_log.rs"), "$level!(", "$($words)*").split(',');
    let fields = fields.filter_map(|field| field.split('=').next()).map(str::trim).filter(|field| !field.is_empty());
    fields.for_each(|name| add("log field", name));
    let events = include_str!("../../src/elector/kubernetes_events.rs").split("self.tell(held, \"").skip(1);
    events.filter_map(|rest| rest.split('"').next()).chain(["NotReady"]).for_each(|name| add("Event", name));
    all
}

/// The columns that explain. Their words may change.
const EXPLAINS: [&str; 2] = ["meaning", "what it covers"];

/// The file of a contract.
pub(crate) fn written(contract: &Contract) -> String {
    let lines = contract.iter().map(|(name, facts)| match facts.iter().map(String::as_str).collect::<Vec<_>>() {
        facts if facts.is_empty() => format!("{name}\n"),
        facts => format!("{name}: {}\n", facts.join("; ")),
    });
    HEAD.chars().chain(lines.collect::<String>().chars()).collect()
}

/// The contract of a file.
pub(crate) fn read(file: &str) -> Contract {
    let lines = file.lines().filter(|line| !line.starts_with('#'));
    let entry = |line: &str| match line.split_once(": ") {
        None => (line.to_owned(), BTreeSet::new()),
        Some((name, facts)) => (name.to_owned(), facts.split("; ").map(str::to_owned).collect()),
    };
    lines.map(entry).collect()
}

/// What was promised `before`, does not hold `now`, and is not named below "### Breaking" of the changelog's first version.
pub(crate) fn broken(before: &Contract, now: &Contract, changelog: &str) -> Vec<String> {
    let version = changelog.split("\n## ").nth(1).unwrap_or_default();
    let (_, said) = version.split_once("### Breaking").unwrap_or_default();
    let said = said.split("\n### ").next().unwrap_or_default();
    let is_said = |name: &str| name.split(' ').next_back().is_some_and(|name| said.contains(&format!("`{name}`")));
    let mut lost = Vec::new();
    for (name, facts) in before.iter().filter(|(name, _)| !is_said(name)) {
        match now.get(name) {
            None => lost.push(name.clone()),
            Some(kept) => lost.extend(facts.difference(kept).map(|fact| format!("{name}: {fact}"))),
        }
    }
    lost
}

/// The keys below a part of a schema, with their types, defaults and words.
fn keys(all: &mut Contract, kind: &str, root: &Value, node: &Value, path: &str) {
    let target = |node: &Value| node["$ref"].as_str().and_then(|at| root.pointer(at.trim_start_matches('#'))).cloned();
    let options = node["anyOf"].as_array().cloned().unwrap_or_else(|| vec![node.clone()]);
    let resolved: Vec<_> = options.into_iter().map(|option| target(&option).unwrap_or(option)).collect();
    let mut facts = BTreeSet::new();
    for part in &resolved {
        if let Some(properties) = part["properties"].as_object() {
            for (name, below) in properties {
                keys(all, kind, root, below, &format!("{path}{}{name}", if path.is_empty() { "" } else { "." }));
            }
            return;
        }
        if part["items"]["$ref"].is_string() {
            keys(all, kind, root, &part["items"], &format!("{path}[]"));
        }
        let words = part["oneOf"].as_array().into_iter().flatten().map(|word| &word["const"]);
        facts.extend(
            words.chain(part["enum"].as_array().into_iter().flatten()).filter_map(|word| Some(word.as_str()?.to_owned())),
        );
        let types = part["type"].as_array().cloned().unwrap_or_else(|| vec![part["type"].clone()]);
        facts.extend(types.iter().filter_map(|of| Some(format!("takes {}", of.as_str()?))));
    }
    if let Some(default) = node.get("default") {
        facts.insert(format!("default {default}"));
    }
    all.insert(format!("{kind} {path}"), facts);
}

/// A command, its arguments and its flags.
fn command(all: &mut Contract, face: &Command) {
    let name = face.get_bin_name().unwrap_or("tenure");
    let arguments = face.get_positionals().map(|argument| argument.get_id().to_string());
    let about = face.get_long_about().map(ToString::to_string).unwrap_or_default();
    let (_, codes) = about.split_once("Exit codes: ").unwrap_or_default();
    let codes = codes.split([';', '.']).filter_map(|code| code.split_whitespace().next()?.parse::<u8>().ok());
    // Those of signals are 128 + N.
    let codes = codes.filter(|code| *code < 128).map(|code| format!("exits with {code}"));
    all.insert(format!("command {name}"), arguments.chain(codes).collect());
    // What is hidden is refused.
    let flags = face.get_arguments().filter(|flag| !flag.is_hide_set());
    for (long, flag) in flags.filter_map(|flag| Some((flag.get_long()?, flag))) {
        let facts = all.entry(format!("flag --{long}")).or_default();
        facts.insert(name.strip_prefix("tenure ").unwrap_or(name).to_owned());
        facts.extend(flag.get_short().map(|short| format!("-{short}")));
        facts.extend(flag.get_possible_values().iter().map(|value| format!("takes {}", value.get_name())));
    }
}

/// The first cells of the reference's tables, with the others but what explains them.
fn of_tables(all: &mut Contract, reference: &str) {
    let (mut title, mut head) = ("", Vec::new());
    let lines: Vec<_> = reference.lines().collect();
    for two in lines.windows(2) {
        title = two[0].strip_prefix("## ").unwrap_or(title);
        if !two[0].starts_with("| ") || title == "Exit codes" {
            continue;
        }
        let cells: Vec<_> = two[0].trim_matches('|').split(" |").map(|cell| cell.trim().replace('`', "")).collect();
        if two[1].starts_with("|-") {
            head = cells;
            continue;
        }
        let kind = match (title, head[0].as_str()) {
            ("Names on a Lease", _) => "on a Lease",
            ("Names on a pod", _) => "on a pod",
            (_, "it began" | "it ended") => "reason",
            (_, other) => other,
        };
        let own = if kind.starts_with("on a") { cells[1].split([' ', ':']).next().map(str::to_owned) } else { None };
        let facts = head.iter().zip(&cells).skip(1).filter(|(head, cell)| !EXPLAINS.contains(&head.as_str()) && !cell.is_empty());
        let facts = facts.map(|(head, cell)| format!("{head} {cell}")).chain(own);
        all.entry(format!("{kind} {}", cells[0])).or_default().extend(facts);
    }
}
