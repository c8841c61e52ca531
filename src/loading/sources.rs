//! Reads the layers: the file, the environment, the flags.
//!
//! Owns how a value is found and written in each layer, and its [`Origin`]. Refuses a key that one layer sets twice, and
//! what YAML 1.1 and 1.2 read in two ways. Whether a value is good is judged in other files.

use std::{
    ffi::OsString,
    fs::File,
    io::{ErrorKind, Read as _},
    path::{Path, PathBuf},
};

use figment::value::{Dict, Empty, Value};
use serde_saphyr::Spanned;

use super::{
    document::{self, Content, Malformed, Node},
    keys::{self, Found, Key, Shape},
    problem::{Origin, Problem},
};
use crate::{
    cli::{ConfigFlags, Preset, Task},
    environment as names,
};

/// The file that is read if none is named and this one exists.
const DEFAULT_FILE: &str = "/etc/tenure/tenure.yaml";
const FILE_VARIABLE: &str = "TENURE_CONFIG";
/// More than any sensible file. A limit is needed for devices that never end.
const LARGEST_FILE: u64 = 1 << 20;

/// A value at one place.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: &'static Key,
    /// The name of the entry, where the key is a map.
    pub(super) entry: Option<String>,
    /// The value as it was written.
    pub(super) value: Value,
    /// The place of the value.
    pub(super) origin: Origin,
}

/// The values of one source, and what is wrong with their form.
#[derive(Debug, Default)]
pub(super) struct Layer {
    /// The values of keys.
    pub(super) entries: Vec<Entry>,
    /// Everything that cannot be the value of a key.
    pub(super) problems: Vec<Problem>,
    /// True if the source could not be read as a whole.
    pub(super) unread: bool,
}

impl Layer {
    fn value(&mut self, key: &'static Key, value: Value, origin: Origin) {
        self.entries.push(Entry { key, entry: None, value, origin });
    }

    fn unreadable(&mut self, origin: Origin, message: impl Into<String>) {
        self.unread = true;
        self.problem(origin, "", message);
    }

    fn problem(&mut self, origin: Origin, path: &str, message: impl Into<String>) {
        self.problems.push(Problem { origin, path: path.into(), message: message.into() });
    }

    /// Adds the entries of a map. An empty map is added itself, so that it has an origin.
    fn map(&mut self, key: &'static Key, entries: Vec<(String, Value, Origin)>, origin: Origin) {
        if entries.is_empty() {
            return self.value(key, Dict::new().into(), origin);
        }
        self.entries.extend(entries.into_iter().map(|(entry, value, origin)| {
            let entry = Some(key.entry(entry));
            Entry { key, entry, value, origin }
        }));
    }

    /// Adds the value of a key from a file, of which each line has an origin.
    fn node(&mut self, key: &'static Key, node: &Node, here: Origin, origin: impl Fn(u64) -> Origin) {
        match &node.value {
            Content::Map(entries) if key.shape == Shape::Map => {
                let entry = |(name, node): &(Spanned<String>, Node)| {
                    (name.value.clone(), node.value.value(), origin(name.referenced.line()))
                };
                self.map(key, entries.iter().map(entry).collect(), here);
            }
            nothing if key.shape == Shape::Map && nothing.is_null() => self.map(key, Vec::new(), here),
            Content::Scalar(_) | Content::List(_) | Content::Map(_) => self.value(key, node.value.value(), here),
        }
    }

    /// Takes in `KEY=text`, as `--set` has it.
    fn set(&mut self, path: &str, text: &str, origin: Origin) {
        match keys::named(path) {
            (Found::Key(key), None) => self.text(key, text, origin),
            (Found::Key(key), Some(entry)) => self.map(key, vec![(entry.into(), none_or(key, text), origin.clone())], origin),
            (Found::Section(below), _) => self.problem(origin, "", section(below)),
            (Found::Unknown(meant), _) => {
                self.problem(origin, "", unknown(meant.map(|path| keys::one(path, str::to_owned)).as_deref()))
            }
        }
    }

    /// Adds a value from a place that holds only text.
    fn text(&mut self, key: &'static Key, text: &str, origin: Origin) {
        let read = match key.shape {
            Shape::Text => return self.value(key, none_or(key, text), origin),
            Shape::Truth | Shape::Integer | Shape::List | Shape::Map => document::yaml(text),
        };
        let (form, example) = match (key.shape, read.as_ref().map(|node| &node.value)) {
            (Shape::Map, Ok(Content::Map(entries))) => {
                let entry = |(name, node): &(Spanned<String>, Node)| (name.value.clone(), node.value.value(), origin.clone());
                return self.map(key, entries.iter().map(entry).collect(), origin);
            }
            (Shape::List, Ok(list @ Content::List(_))) => return self.value(key, list.value(), origin),
            (Shape::Map, _) => ("a map", r#"{"a": "b"}"#),
            (Shape::List, _) if key.path == "service.ports" => ("a list", r#"[{"port": 8080}]"#),
            (Shape::List, _) => ("a list", r#"["sleep", "10"]"#),
            // Nothing, or a value with parts, is refused later, as text.
            (Shape::Text | Shape::Truth | Shape::Integer, Ok(Content::Scalar(value))) if !matches!(value, Value::Empty(..)) => {
                return self.value(key, value.clone(), origin);
            }
            (Shape::Text | Shape::Truth | Shape::Integer, _) => return self.value(key, text.into(), origin),
        };
        let reason = read.err().map(|malformed| format!(" ({})", malformed.message)).unwrap_or_default();
        self.problem(origin, &key.path, format!("this key is {form}: write it in YAML or JSON, such as {example}{reason}"));
    }
}

/// Turns the text `null` into none, where the key may be null.
fn none_or(key: &Key, text: &str) -> Value {
    if key.nullable && text == "null" { Empty::None.into() } else { text.into() }
}

/// Reads the file that a flag or a variable names, else the default one.
pub(super) fn file(flags: &ConfigFlags, variables: &[(OsString, OsString)]) -> Layer {
    let variable = || variables.iter().find(|(name, path)| name == FILE_VARIABLE && !path.is_empty());
    match (&flags.config, variable()) {
        (Some(path), _) => read(path, Some(Origin::Flag("--config".into()))),
        (None, Some((_, path))) => read(&PathBuf::from(path), Some(Origin::Variable(FILE_VARIABLE.into()))),
        (None, None) => read(Path::new(DEFAULT_FILE), None),
    }
}

fn read(path: &Path, named_by: Option<Origin>) -> Layer {
    let mut layer = Layer::default();
    let mut text = String::new();
    let shown = path.display().to_string();
    let whole = || Origin::File { path: shown.clone(), line: None };
    match File::open(path).and_then(|file| file.take(LARGEST_FILE + 1).read_to_string(&mut text)) {
        // A link to nowhere is a file that its mount lacks.
        Err(error) if named_by.is_none() && error.kind() == ErrorKind::NotFound && path.symlink_metadata().is_err() => {}
        Err(error) => {
            let message = format!("the configuration file {shown:?} cannot be read: {error}");
            layer.unreadable(named_by.unwrap_or_else(whole), message);
        }
        Ok(_) if text.len() as u64 > LARGEST_FILE => layer.unreadable(whole(), "the configuration file is longer than 1 MiB"),
        Ok(_) => return text_of(shown, &text),
    }
    layer
}

/// Reads the text of a file, which errors call by the name `shown`.
pub(super) fn text_of(shown: String, text: &str) -> Layer {
    let mut layer = Layer::default();
    match document::readings(text) {
        Ok([root, lenient]) => {
            walk(&mut layer, &shown, "", [&root, &lenient]);
            refuse_twice(&mut layer);
        }
        Err(Malformed { line, message }) => layer.unreadable(Origin::File { path: shown, line }, message),
    }
    layer
}

/// Adds everything below `path`, of which there are two readings.
fn walk(layer: &mut Layer, file: &str, path: &str, [node, lenient]: [&Node; 2]) {
    let origin = |line| Origin::File { path: file.into(), line: Some(line) };
    let (Content::Map(children), Content::Map(again)) = (&node.value, &lenient.value) else {
        if !node.value.is_null() {
            let what = if path.is_empty() { "the configuration" } else { "this" };
            let message = format!("{what} is a section: write keys and values below it");
            layer.problem(origin(node.referenced.line()), path, message);
        }
        return;
    };
    for ((name, child), (_, lenient)) in children.iter().zip(again) {
        let here = origin(name.referenced.line());
        let path = if path.is_empty() { name.value.clone() } else { format!("{path}.{}", name.value) };
        // Below a probe, `{}` has a meaning.
        let asks = path.starts_with("workload.readiness.") || path.starts_with("workload.liveness.");
        match keys::find(&path) {
            Found::Section(_) | Found::Key(_) if name.value.contains('.') => {
                let (above, last) = path.rsplit_once('.').unwrap_or_default();
                layer.problem(here, &path, format!("there is no such key: write {last} below {above}"));
            }
            Found::Section(below) if asks && is_empty(&child.value) => {
                layer.problem(here, &path, format!("this section is empty: write a key below it, such as {below}"));
            }
            Found::Key(key) if asks && key.shape == Shape::Truth && is_empty(&child.value) => layer.value(key, true.into(), here),
            Found::Section(_) => walk(layer, file, &path, [child, lenient]),
            Found::Unknown(meant) => layer.problem(here, &path, unknown(meant)),
            Found::Key(key) => {
                let ambiguous = document::ambiguities(child, lenient);
                if ambiguous.is_empty() {
                    layer.node(key, child, here, origin);
                }
                for Malformed { line, message } in ambiguous {
                    layer.problem(Origin::File { path: file.into(), line }, &path, message);
                }
            }
        }
    }
}

/// Returns true for `{}`.
fn is_empty(value: &Content) -> bool {
    matches!(value, Content::Map(entries) if entries.is_empty())
}

/// Reads the variables that name a key. A variable without two underscores together belongs to somebody else, unless it only lacks
/// them or what follows them: it is a service link of Kubernetes, or comes from an outer tenure.
pub(super) fn environment(variables: &[(OsString, OsString)]) -> Layer {
    let mut layer = Layer::default();
    let has = |own: &str| variables.iter().any(|(name, _)| name == own);
    let is_inside = has(names::ROLE) || has(names::LEASE) && has(names::NAMESPACE);
    for (name, value) in variables {
        let name = name.to_string_lossy();
        if !name.starts_with(keys::PREFIX) {
            continue;
        }
        let origin = Origin::Variable(name.clone().into_owned());
        if !name.contains("__") {
            if let Some(meant) = keys::meant(&name, is_inside) {
                layer.problem(origin, "", format!("this variable sets nothing: write {meant}"));
            }
            continue;
        }
        match (keys::of_variable(&name), value.to_str()) {
            (Found::Key(key), Some(text)) => layer.text(key, text, origin),
            (Found::Key(key), None) => layer.problem(origin, &key.path, "the value is not UTF-8: write it in UTF-8"),
            (Found::Section(below), _) => layer.problem(origin, "", section(&keys::variable(below))),
            (Found::Unknown(meant), _) => {
                if let Some(map) = keys::map_of_variable(&name) {
                    let variable = keys::variable(&map.path);
                    let remedy = format!("write all entries into one variable, such as {variable}={{\"a\": \"b\"}}");
                    layer.problem(origin, "", format!("there is no such key: {remedy}"));
                } else if !is_link(&name, has) {
                    let meant = meant.map(|path| keys::one(path, keys::variable));
                    layer.problem(origin, "", unknown(meant.as_deref()));
                }
            }
        }
    }
    refuse_twice(&mut layer);
    layer
}

/// Returns true for a variable that Kubernetes makes of a Service, beside its `_SERVICE_HOST`: those of one called tenure-a--b have two
/// underscores together too.
fn is_link(name: &str, has: impl Fn(&str) -> bool) -> bool {
    let mut ends = ["_SERVICE_HOST", "_SERVICE_PORT", "_PORT"].into_iter().flat_map(|end| name.match_indices(end));
    ends.any(|(at, _)| name.get(..at).is_some_and(|service| has(&format!("{service}_SERVICE_HOST"))))
}

/// Reads the flags, and the workload's command. A flag for one key is an alias of `--set KEY=`.
pub(super) fn flags(flags: &ConfigFlags, command: &[String]) -> Layer {
    let mut layer = Layer::default();
    let argument = if flags.preset == Preset::Run { "LEASE" } else { "NAME" };
    let task = if let Preset::Task(task) = &flags.preset { task } else { &Task::default() };
    let of_commands = [
        (argument, "lease.name", &flags.lease_argument),
        ("--schedule", "task.schedule", &task.schedule),
        ("--time-zone", "task.timeZone", &task.time_zone),
    ];
    for (flag, path, text) in flags.keys().into_iter().chain(of_commands) {
        if let Some(text) = text {
            layer.set(path, text, Origin::Flag(flag.into()));
        }
    }
    let election = Origin::Flag("--leader-election".into());
    match flags.leader_election.as_deref() {
        Some("on") => layer.set("lease.enabled", "true", election),
        Some("off") => layer.set("lease.enabled", "false", election),
        Some(other) => layer.problem(election, "", format!("{other:?} is neither on nor off")),
        None => {}
    }
    if let (false, Found::Key(key)) = (command.is_empty(), keys::find("workload.command")) {
        layer.value(key, command.to_vec().into(), Origin::Flag("the command line".into()));
    }
    for set in &flags.set {
        match set.split_once('=') {
            Some((path, text)) => layer.set(path, text, Origin::Flag(format!("--set {path}"))),
            None => {
                layer.problem(Origin::Flag(format!("--set {set}")), "", "write a key, = and a value, such as lease.duration=30s")
            }
        }
    }
    refuse_twice(&mut layer);
    layer
}

/// Refuses a second value for one key. Two flags for one key contradict each other in any order, and so do two names of one signal.
fn refuse_twice(layer: &mut Layer) {
    let same = |a: &Entry, b: &Entry| a.key.path == b.key.path && (a.entry == b.entry || a.key.shape != Shape::Map);
    let twice = layer.entries.iter().enumerate().filter_map(|(at, entry)| {
        let first = layer.entries.iter().take(at).find(|first| same(first, entry))?;
        let message = format!("this key is also set by {}: set it only once", first.origin);
        Some(Problem { origin: entry.origin.clone(), path: entry.key.path.clone(), message })
    });
    layer.problems.extend(twice);
}

fn section(below: &str) -> String {
    format!("this is a section: name a key below it, such as {below}")
}

fn unknown(meant: Option<&str>) -> String {
    match meant {
        Some(meant) => format!("there is no such key: did you mean {meant}?"),
        None => "there is no such key: `tenure config default` lists them all".into(),
    }
}
