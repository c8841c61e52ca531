//! Judges every value where it stands, merges the layers, and hands the whole to `rules`.

use std::{collections::BTreeMap, ffi::OsString};

use figment::{
    Error,
    error::Kind,
    value::{Dict, Value},
};

use super::{
    keys::Shape,
    preset,
    problem::{Invalid, Origin, Problem},
    rules::{self, Purpose, Validation},
    sources::{self, Entry, Layer},
};
use crate::{
    cli::ConfigFlags,
    config::{Config, Preset},
};

/// A valid configuration.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The merged values. The Lease has its full name.
    pub config: Config,
    /// The command that runs the workload.
    pub preset: Preset,
    /// Warnings, one line each.
    pub notes: Vec<String>,
    /// The origin of each value that is not a default, by its path.
    pub origins: BTreeMap<String, Origin>,
}

/// Reads the configuration of this process (defaults, file, environment, flags) and judges the keys that `purpose` needs.
///
/// # Errors
/// All reasons to refuse it, at once.
pub fn load(flags: &ConfigFlags, command: &[String], purpose: Purpose) -> Result<Loaded, Invalid> {
    load_from(flags, command, purpose, &std::env::vars_os().collect::<Vec<_>>())
}

/// Does the same with these variables for the environment.
pub(super) fn load_from(
    flags: &ConfigFlags,
    command: &[String],
    purpose: Purpose,
    variables: &[(OsString, OsString)],
) -> Result<Loaded, Invalid> {
    let mut layers = [sources::file(flags, variables), sources::environment(variables), sources::flags(flags, command)];
    preset::narrow(&flags.preset, &mut layers);
    merge(layers, flags, purpose, variables)
}

/// Judges the configuration of a process somewhere else, of which only these variables and flags are known.
///
/// # Errors
/// All reasons to refuse it, at once.
pub(crate) fn load_elsewhere(
    flags: &ConfigFlags,
    command: &[String],
    variables: &[(OsString, OsString)],
) -> Result<Loaded, Invalid> {
    let mut layers = [Layer::default(), sources::environment(variables), sources::flags(flags, command)];
    preset::narrow(&flags.preset, &mut layers);
    merge(layers, flags, Purpose::Run, variables)
}

pub(super) fn merge(
    mut layers: [Layer; 3],
    flags: &ConfigFlags,
    purpose: Purpose,
    variables: &[(OsString, OsString)],
) -> Result<Loaded, Invalid> {
    let mut problems: Vec<Problem> = layers.iter_mut().flat_map(refuse_bad_values).collect();
    let origins = layers.iter().flat_map(|layer| &layer.entries).map(|entry| (entry.path(), entry.origin.clone()));
    let mut origins: BTreeMap<_, _> = origins.collect();
    if layers.iter().any(|layer| layer.unread) {
        return Err(Invalid { problems });
    }
    let mut merged = Dict::new();
    for entry in layers.iter().flat_map(|layer| &layer.entries) {
        entry.insert(&mut merged, &entry.value);
    }
    let config = Value::from(merged).deserialize();
    let mut config: Config = config.map_err(|error| Invalid { problems: vec![whole(&error)] })?;
    let mut validation = Validation::default();
    let preset = preset::fix(flags, &mut config, &mut validation);
    rules::prefer(&mut config.lease, purpose, variables, &mut origins, &mut validation);
    rules::judge(&config, purpose, &mut validation);
    // A rule about a key whose value is refused already would only repeat that.
    let known: Vec<String> = problems.iter().map(|problem| problem.path.clone()).collect();
    let fresh = validation
        .diagnostics
        .into_iter()
        .filter(|diagnostic| !diagnostic.about.iter().any(|path| known.iter().any(|k| is_within(k, path))));
    problems.extend(fresh.map(|diagnostic| diagnostic.located(&origins)));
    if !problems.is_empty() {
        return Err(Invalid { problems });
    }
    rules::name_in_full(&mut config, purpose);
    // After the rules, which would warn of it.
    preset::spare_wait(flags, &mut config.lease);
    Ok(Loaded { config, preset, notes: validation.notes, origins })
}

/// Removes from `layer` the values that the type of their key refuses.
fn refuse_bad_values(layer: &mut Layer) -> Vec<Problem> {
    let mut problems = std::mem::take(&mut layer.problems);
    for entry in std::mem::take(&mut layer.entries) {
        match entry.refused() {
            None => layer.entries.push(entry),
            Some(message) => problems.push(Problem { path: entry.path(), origin: entry.origin, message }),
        }
    }
    problems
}

/// Returns true if `path` is `of`, or lies below it.
pub(super) fn is_within(path: &str, of: &str) -> bool {
    path.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl Entry {
    /// The path of its key, and of its entry if the key is a map.
    fn path(&self) -> String {
        match &self.entry {
            Some(entry) => format!("{}.{entry}", self.key.path),
            None => self.key.path.clone(),
        }
    }

    /// Why the type of its key refuses it, in the words of a configuration file. None if it does not.
    fn refused(&self) -> Option<String> {
        // The entry of a map holds text.
        let shape = if self.entry.is_some() { Shape::Text } else { self.key.shape };
        let Error { kind, path, .. } = self.judged(&self.value)?;
        if self.key.path == "service.ports" {
            let why = if let Kind::UnknownField(field, _) = &kind {
                format!("a port has no key {field}")
            } else if matches!(kind, Kind::InvalidValue(..)) || path.last().is_some_and(|field| field == "port") {
                "a port is a number from 1 to 65535".into()
            } else if matches!(kind, Kind::InvalidType(..)) {
                let field = path.get(3).map(|field| format!("the {field} of a port is a string"));
                field.unwrap_or_else(|| "this is not a list of ports".into())
            } else {
                explain(&kind)
            };
            return Some(format!("{why}: write ports such as [{{ name: http, port: 8080 }}]"));
        }
        if !matches!(kind, Kind::InvalidType(..) | Kind::InvalidValue(..)) {
            return Some(explain(&kind));
        }
        let items = if shape == Shape::List { self.value.as_array() } else { None };
        let element = items.and_then(|items| items.iter().zip(1..).find(|(item, _)| item.as_str().is_none()));
        let (wrong, at) = element.map_or((&self.value, String::new()), |(item, at)| (item, format!(" as element {at}")));
        let unquoted = matches!(wrong, Value::Bool(..) | Value::Num(..));
        let expected = match shape {
            Shape::Text => "a string",
            Shape::Truth => "true or false",
            Shape::Integer if is_whole(wrong) => return Some(format!("{} is out of range", plain(wrong))),
            Shape::Integer => "a whole number",
            Shape::List => "a list of strings",
            Shape::Map => "a map of strings",
        };
        // The type knows best what is wrong with a text.
        if let (Shape::Text, true, Some(error)) = (shape, unquoted, self.judged(&plain(wrong).into())) {
            return Some(explain(&error.kind));
        }
        let is_quoted = wrong.as_str().is_some_and(|text| match shape {
            Shape::Truth => text.parse::<bool>().is_ok(),
            Shape::Integer => text.parse::<i64>().is_ok(),
            Shape::Text | Shape::List | Shape::Map => false,
        });
        let remedy = match shape {
            Shape::Text | Shape::List if unquoted => ": put it in quotes",
            Shape::Truth | Shape::Integer if is_quoted => ": write it without quotes",
            Shape::Text | Shape::Truth | Shape::Integer | Shape::List | Shape::Map => "",
        };
        Some(format!("expected {expected}, found {}{at}{remedy}", name(wrong)))
    }

    /// Why the type of its key refuses `value` in its place. None if it does not.
    fn judged(&self, value: &Value) -> Option<Error> {
        let mut tree = Dict::new();
        self.insert(&mut tree, value);
        Value::from(tree).deserialize::<Config>().err()
    }

    fn insert(&self, tree: &mut Dict, value: &Value) {
        let mut steps: Vec<&str> = self.key.path.split('.').chain(self.entry.as_deref()).collect();
        let Some(last) = steps.pop() else { return };
        insert(tree, &steps, last, value);
    }
}

fn explain(kind: &Kind) -> String {
    if let Kind::Message(message) = kind {
        return message.clone();
    }
    let Kind::UnknownVariant(wrong, known) = kind else { return kind.to_string() };
    format!("{wrong:?} is not one of {}", known.join(", "))
}

fn name(value: &Value) -> String {
    match value {
        Value::String(_, text) => return format!("{text:?}"),
        Value::Char(_, text) => return format!("{text:?}"),
        Value::Bool(..) => "a boolean",
        Value::Num(..) if is_whole(value) => "a number",
        Value::Num(..) => "a decimal number",
        Value::Empty(..) => "nothing",
        Value::Dict(..) => "a map",
        Value::Array(..) => "a list",
    }
    .into()
}

fn is_whole(value: &Value) -> bool {
    value.to_i128().is_some() || value.to_u128().is_some()
}

/// A number or a truth value as the text that it is.
fn plain(value: &Value) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Puts `value` where the steps lead, in place of what is there. An empty map takes nothing away: maps are merged by their entries.
fn insert(tree: &mut Dict, steps: &[&str], last: &str, value: &Value) {
    let Some((first, rest)) = steps.split_first() else {
        if value.as_dict().is_none_or(|map| !map.is_empty()) || !tree.contains_key(last) {
            tree.insert(last.into(), value.clone());
        }
        return;
    };
    let below = tree.entry((*first).into()).or_insert_with(|| Dict::new().into());
    if let Value::Dict(_, below) = below {
        insert(below, rest, last, value);
    }
}

/// A problem of values that are good alone but not together. No key can be named.
fn whole(error: &Error) -> Problem {
    Problem { origin: Origin::Default, path: error.path.join("."), message: error.to_string() }
}

impl rules::Diagnostic {
    /// Finds the place to name: that of the first key of the rule that somebody set, or of a key below it. If the message is about
    /// another key, both are named.
    fn located(self, origins: &BTreeMap<String, Origin>) -> Problem {
        let origin = |path: &str| origins.iter().find(|(key, _)| is_within(key, path)).map(|(_, origin)| origin);
        let path = self.about.first().cloned().unwrap_or_default();
        let (path, origin) = match self.about.iter().find_map(|said| Some((said, origin(said)?))) {
            Some((said, origin)) if *said != path => (format!("{path} (because of {said})"), origin.clone()),
            Some((_, origin)) => (path, origin.clone()),
            None => (path, Origin::Default),
        };
        Problem { origin, path, message: self.message }
    }
}
