//! Judges every value where it stands, merges the layers, and hands the whole to `rules`.

use std::{collections::BTreeMap, ffi::OsString, fmt};

use figment::{
    Figment, Metadata, Profile, Provider,
    error::{Actual, Kind},
    value::{Dict, Map, Value},
};

use super::{
    Config,
    keys::Shape,
    rules::{self, Purpose},
    sources::{self, Entry, Layer},
};
use crate::cli::Settings;

/// A configuration that every room may rely on.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The values.
    pub config: Config,
    /// What is odd in it, one line each.
    pub notes: Vec<String>,
    /// Where each value came from that is not a default, by its path.
    pub origins: BTreeMap<String, Origin>,
    /// Whether the name of the Lease begins with a prefix that was set.
    pub(super) is_prefixed: bool,
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody said anything.
    Default,
    /// A line of a file.
    File {
        /// As it was named.
        path: String,
        /// Counted from 1.
        line: Option<u64>,
    },
    /// A variable of the environment.
    Variable(String),
    /// A flag, as it was typed.
    Flag(String),
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it was said.
    pub origin: Origin,
    /// The key; empty if it is about none.
    pub path: String,
    /// What is wrong, and the remedy.
    pub message: String,
}

/// A configuration that is refused, with everything that is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Invalid {
    /// Never empty.
    pub problems: Vec<Problem>,
}

/// Reads the configuration of this process (defaults, file, environment, flags) and judges what `purpose` needs of it.
///
/// # Errors
/// Everything that is wrong with it, at once.
pub fn load(settings: &Settings, command: &[String], purpose: Purpose) -> Result<Loaded, Invalid> {
    let ours = |(name, _): &(OsString, OsString)| name.as_encoded_bytes().starts_with(super::keys::PREFIX.as_bytes());
    load_from(settings, command, purpose, &std::env::vars_os().filter(ours).collect::<Vec<_>>())
}

/// The same with these variables for the environment.
pub(super) fn load_from(
    settings: &Settings,
    command: &[String],
    purpose: Purpose,
    variables: &[(OsString, OsString)],
) -> Result<Loaded, Invalid> {
    merge([sources::file(settings, variables), sources::environment(variables), sources::flags(settings, command)], purpose)
}

/// The same of a file with this text, for [`crate::fuzz`].
#[cfg(any(test, fuzzing))]
pub(crate) fn load_text(text: &str, format: super::Format, variables: &[(&str, &str)]) -> Result<Loaded, Invalid> {
    let variables: Vec<_> = variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
    merge([sources::text_of("fuzz".into(), text, format), sources::environment(&variables), Layer::default()], Purpose::Inspect)
}

fn merge(mut layers: [Layer; 3], purpose: Purpose) -> Result<Loaded, Invalid> {
    let mut problems: Vec<Problem> = layers.iter_mut().flat_map(refuse_bad_values).collect();
    let origins = layers.iter().flat_map(|layer| &layer.entries).map(|entry| (entry.path(), entry.origin.clone())).collect();
    if layers.iter().any(|layer| layer.unread) {
        return Err(Invalid { problems });
    }
    let merged = layers.iter().fold(Figment::new(), |figment, layer| figment.merge(layer));
    let mut config: Config = merged.extract().map_err(|error| Invalid { problems: vec![Problem::whole(&error)] })?;
    let judgement = rules::judge(&config, purpose);
    // A rule about a key whose value is refused already would only repeat that.
    let known: Vec<String> = problems.iter().map(|problem| problem.path.clone()).collect();
    let fresh = judgement
        .violations
        .into_iter()
        .filter(|violation| !violation.about.iter().any(|path| known.iter().any(|k| is_within(k, path))));
    problems.extend(fresh.map(|violation| violation.located(&origins)));
    if !problems.is_empty() {
        return Err(Invalid { problems });
    }
    let is_prefixed = rules::name_in_full(&mut config, purpose);
    Ok(Loaded { config, notes: judgement.notes, origins, is_prefixed })
}

/// Takes out of `layer` what the type of its key refuses.
fn refuse_bad_values(layer: &mut Layer) -> Vec<Problem> {
    let mut problems = std::mem::take(&mut layer.problems);
    layer.entries.retain(|entry| match Value::from(entry.nested()).deserialize::<Config>() {
        Ok(_) => true,
        Err(error) => {
            // What an entry of a map holds is a text.
            let shape = if entry.entry.is_some() { Shape::Text } else { entry.key.shape };
            let message = explain(&error.kind, shape);
            problems.push(Problem { origin: entry.origin.clone(), path: entry.path(), message });
            false
        }
    });
    problems
}

/// What a type says of a value, in the words of a configuration file.
fn explain(kind: &Kind, shape: Shape) -> String {
    if let Kind::Message(message) = kind {
        return message.clone();
    }
    if let Kind::UnknownVariant(wrong, known) = kind {
        return format!("{wrong:?} is none of {}", known.join(", "));
    }
    let (Kind::InvalidType(found, _) | Kind::InvalidValue(found, _)) = kind else { return kind.to_string() };
    let expected = match shape {
        Shape::Text => "a string",
        Shape::Truth => "true or false",
        Shape::Integer => "a whole number",
        Shape::List => "a list of strings",
        Shape::Map => "a map of strings",
    };
    if shape == Shape::Integer
        && let Some(number) = whole(found)
    {
        return format!("{number} is out of range");
    }
    let textual = !matches!(shape, Shape::Truth | Shape::Integer);
    let quotes = if textual && matches!(found, Actual::Bool(_) | Actual::Unsigned(_) | Actual::Signed(_) | Actual::Float(_)) {
        ": put it in quotes"
    } else if is_quoted(found, shape) {
        ": write it without quotes"
    } else {
        ""
    };
    format!("expected {expected}, found {}{quotes}", name(found))
}

/// Whether `path` is that of `of`, or of something in it.
fn is_within(path: &str, of: &str) -> bool {
    path.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Whether it would be right without its quotes.
fn is_quoted(found: &Actual, shape: Shape) -> bool {
    let Actual::Str(text) = found else { return false };
    match shape {
        Shape::Truth => text.parse::<bool>().is_ok(),
        Shape::Integer => text.parse::<i64>().is_ok(),
        Shape::Text | Shape::List | Shape::Map => false,
    }
}

fn whole(found: &Actual) -> Option<String> {
    if let Actual::Unsigned(number) = found {
        return Some(number.to_string());
    }
    if let Actual::Signed(number) = found { Some(number.to_string()) } else { None }
}

fn name(found: &Actual) -> String {
    if let Actual::Str(text) = found {
        return format!("{text:?}");
    }
    let kind = match found {
        Actual::Bool(_) => "a boolean",
        Actual::Unsigned(_) | Actual::Signed(_) => "a number",
        Actual::Float(_) => "a decimal number",
        Actual::Unit | Actual::Option => "nothing",
        Actual::Seq => "a list",
        Actual::Map => "a map",
        Actual::Char(_)
        | Actual::Str(_)
        | Actual::Bytes(_)
        | Actual::NewtypeStruct
        | Actual::Enum
        | Actual::UnitVariant
        | Actual::NewtypeVariant
        | Actual::TupleVariant
        | Actual::StructVariant
        | Actual::Other(_) => return found.to_string(),
    };
    kind.into()
}

impl Entry {
    /// Its key, and its entry if that is a map.
    fn path(&self) -> String {
        match &self.entry {
            Some(entry) => format!("{}.{entry}", self.key.path),
            None => self.key.path.into(),
        }
    }

    /// A tree with nothing else in it.
    fn nested(&self) -> Dict {
        let mut tree = Dict::new();
        self.insert(&mut tree);
        tree
    }

    fn insert(&self, tree: &mut Dict) {
        let mut steps: Vec<&str> = self.key.path.split('.').chain(self.entry.as_deref()).collect();
        let Some(last) = steps.pop() else { return };
        insert(tree, &steps, last, &self.value);
    }
}

fn insert(tree: &mut Dict, steps: &[&str], last: &str, value: &Value) {
    let Some((first, rest)) = steps.split_first() else {
        tree.insert(last.into(), value.clone());
        return;
    };
    let below = tree.entry((*first).into()).or_insert_with(|| Dict::new().into());
    if let Value::Dict(_, below) = below {
        insert(below, rest, last, value);
    }
}

impl Provider for &Layer {
    fn metadata(&self) -> Metadata {
        Metadata::default()
    }

    fn data(&self) -> figment::Result<Map<Profile, Dict>> {
        let mut tree = Dict::new();
        for entry in &self.entries {
            entry.insert(&mut tree);
        }
        Ok(Profile::Default.collect(tree))
    }
}

impl Problem {
    /// Values that are good alone and cannot be taken together; no key can be named.
    fn whole(error: &figment::Error) -> Self {
        Self { origin: Origin::Default, path: error.path.join("."), message: error.to_string() }
    }
}

impl rules::Violation {
    /// With the origin of the first of its keys that somebody set, or of something below it.
    fn located(self, origins: &BTreeMap<String, Origin>) -> Problem {
        let below = |path: &str| origins.iter().find(|(key, _)| key.strip_prefix(path).is_some_and(|rest| rest.starts_with('.')));
        let origin = |path: &str| origins.get(path).or_else(|| below(path).map(|(_, origin)| origin));
        let said = self.about.iter().find_map(|path| Some((path, origin(path)?)));
        let path = said.map(|(path, _)| path).or_else(|| self.about.first()).cloned().unwrap_or_default();
        Problem { origin: said.map_or(Origin::Default, |(_, origin)| origin.clone()), path, message: self.message }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line: Some(line) } => write!(f, "{path}:{line}"),
            Self::File { path, line: None } => f.write_str(path),
            Self::Variable(name) | Self::Flag(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::Default => {}
            Origin::File { .. } | Origin::Variable(_) | Origin::Flag(_) => write!(f, "{}: ", self.origin)?,
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// The number of problems, and each on a line of its own.
impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problems.len() {
            1 => f.write_str("the configuration is refused:")?,
            number => write!(f, "the configuration is refused for {number} reasons:")?,
        }
        self.problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}
