//! Reads the layers: the file, the environment, the flags.
//!
//! Owns how a value is found and written in each, and its [`Origin`]. Whether it is good is judged elsewhere.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, ErrorKind, Read as _},
    os::{
        fd::AsFd as _,
        unix::fs::{FileTypeExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
};

use figment::value::{Dict, Empty, Value};
use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    poll::{PollFd, PollFlags, poll},
};

use super::{
    document::{self, Content, Format, Malformed, Node},
    keys::{self, Found, Key, Shape},
    load::{Origin, Problem},
};
use crate::cli::Settings;

/// Read where no other file is named, if it exists.
const DEFAULT_FILE: &str = "/etc/tenure/tenure.yaml";
const FILE_VARIABLE: &str = "TENURE_CONFIG";
/// More than any sensible file, and an end for a device that has none.
const LARGEST_FILE: u64 = 1 << 20;

/// For the first byte of a pipe, in milliseconds: what writes it may have to start, or to ask somebody.
const PIPE_PATIENCE: u16 = 10_000;

/// A value at one place.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Its key.
    pub(super) key: &'static Key,
    /// Its entry, where the key is a map.
    pub(super) entry: Option<String>,
    /// What was written there.
    pub(super) value: Value,
    /// Where.
    pub(super) origin: Origin,
}

/// What one source says, and what is wrong with how it says it.
#[derive(Debug, Default)]
pub(super) struct Layer {
    /// Values.
    pub(super) entries: Vec<Entry>,
    /// Everything that is no value of a key.
    pub(super) problems: Vec<Problem>,
    /// Nobody knows what it says as a whole.
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

    /// A map as its entries; an empty one as itself, so that it counts as said.
    fn map(&mut self, key: &'static Key, entries: impl IntoIterator<Item = (String, Value, Origin)>, origin: Origin) {
        let before = self.entries.len();
        let entries = entries.into_iter().map(|(entry, value, origin)| (key.entry(entry), value, origin));
        self.entries.extend(entries.map(|(entry, value, origin)| Entry { key, entry: Some(entry), value, origin }));
        if self.entries.len() == before {
            self.value(key, Dict::new().into(), origin);
        }
    }

    /// A value that was written where there is only text.
    fn text(&mut self, key: &'static Key, entry: Option<&str>, text: &str, origin: Origin) {
        if let Some(entry) = entry {
            return self.map(key, [(entry.to_owned(), none_or(key, text.into()), origin.clone())], origin);
        }
        match key.shape {
            Shape::Text => self.value(key, none_or(key, text.into()), origin),
            Shape::Truth | Shape::Integer => self.value(key, scalar(text), origin),
            Shape::List => match document::yaml(text) {
                Ok(node) if matches!(node.content, Content::List(_)) => self.value(key, node.value(), origin),
                other => {
                    let form = "is a list: write it in YAML or JSON, such as [\"sleep\", \"10\"]";
                    self.problem(origin, key.path, format!("{form}{}", reason(other)));
                }
            },
            Shape::Map => match document::yaml(text) {
                Ok(Node { content: Content::Map(entries), .. }) => {
                    let value = |node: &Node| none_or(key, node.value());
                    let entries = entries.iter().map(|(entry, _, node)| (entry.clone(), value(node), origin.clone()));
                    self.map(key, entries.collect::<Vec<_>>(), origin);
                }
                other => {
                    let form = "is a map: write it in YAML or JSON, such as {\"a\": \"b\"}";
                    self.problem(origin, key.path, format!("{form}{}", reason(other)));
                }
            },
        }
    }
}

/// The file that is to be read, and who named it.
pub(super) fn file(settings: &Settings, variables: &[(OsString, OsString)]) -> Layer {
    let variable = || variables.iter().find(|(name, path)| name == FILE_VARIABLE && !path.is_empty());
    match (&settings.config, variable()) {
        (Some(path), _) => read(path, Some(Origin::Flag("--config".into()))),
        (None, Some((_, path))) => read(&PathBuf::from(path), Some(Origin::Variable(FILE_VARIABLE.into()))),
        (None, None) => read(Path::new(DEFAULT_FILE), None),
    }
}

fn read(path: &Path, named_by: Option<Origin>) -> Layer {
    let mut layer = Layer::default();
    let mut text = String::new();
    let read = open(path).and_then(|file| file.take(LARGEST_FILE + 1).read_to_string(&mut text));
    let shown = path.display().to_string();
    match (read, named_by) {
        (Ok(_), _) => {}
        (Err(error), None) if error.kind() == ErrorKind::NotFound => return layer,
        (Err(error), named_by) => {
            let origin = named_by.unwrap_or_else(|| Origin::File { path: shown.clone(), line: None });
            layer.unreadable(origin, format!("the configuration file {shown:?} cannot be read: {error}"));
            return layer;
        }
    }
    if text.len() as u64 > LARGEST_FILE {
        layer.unreadable(Origin::File { path: shown, line: None }, "the configuration file is longer than 1 MiB");
        return layer;
    }
    text_of(shown, &text, Format::of(path))
}

/// Opens a file, but no pipe that stays empty: the wait for it would have no end.
fn open(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    let mut ready = [PollFd::new(file.as_fd(), PollFlags::POLLIN)];
    if file.metadata()?.file_type().is_fifo() && poll(&mut ready, PIPE_PATIENCE)? == 0 {
        return Err(io::Error::new(ErrorKind::TimedOut, "it is a pipe, and nobody wrote to it within 10 s"));
    }
    // What comes in parts is waited for.
    let flags = OFlag::from_bits_retain(fcntl(&file, FcntlArg::F_GETFL)?);
    fcntl(&file, FcntlArg::F_SETFL(flags - OFlag::O_NONBLOCK))?;
    Ok(file)
}

/// What the file that is `shown` under this name says.
pub(super) fn text_of(shown: String, text: &str, format: Format) -> Layer {
    let mut layer = Layer::default();
    match format.read(text) {
        Ok(root) => {
            walk(&mut layer, &shown, "", &root);
            refuse_twice(&mut layer);
        }
        Err(Malformed { line, message }) => layer.unreadable(Origin::File { path: shown, line }, message),
    }
    layer
}

/// Takes in everything that stands below `path`.
fn walk(layer: &mut Layer, file: &str, path: &str, node: &Node) {
    let origin = |line| Origin::File { path: file.into(), line: Some(line) };
    if node.is_null() {
        return;
    }
    let Content::Map(children) = &node.content else {
        let what = if path.is_empty() { "the configuration" } else { "this" };
        return layer.problem(origin(node.line), path, format!("{what} is a section: write keys and values below it"));
    };
    for (name, line, child) in children {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let found = keys::find(&path);
        match found {
            // It is no way to a key: TOML's own were taken apart by its parser.
            Found::Section(_) | Found::Key(_) if name.contains('.') => {
                let (above, last) = path.rsplit_once('.').unwrap_or_default();
                layer.problem(origin(*line), &path, format!("there is no such key: write {last} below {above}"));
            }
            Found::Section(_) => walk(layer, file, &path, child),
            Found::Unknown(meant) => layer.problem(origin(*line), &path, unknown(meant)),
            Found::Key(key) => match &child.content {
                Content::Map(entries) if key.shape == Shape::Map => {
                    let value = |node: &Node| none_or(key, node.value());
                    let entries = entries.iter().map(|(entry, line, node)| (entry.clone(), value(node), origin(*line)));
                    layer.map(key, entries, origin(*line));
                }
                Content::Scalar(_) if key.shape == Shape::Map && child.is_null() => {
                    layer.value(key, Dict::new().into(), origin(*line));
                }
                Content::Scalar(_) | Content::List(_) | Content::Map(_) => {
                    layer.value(key, none_or(key, child.value()), origin(*line));
                }
            },
        }
    }
}

/// What a file takes it for; as text, where that is nothing or has parts, it is refused like any other.
fn scalar(text: &str) -> Value {
    match document::yaml(text) {
        Ok(Node { content: Content::Scalar(value), .. }) if !matches!(value, Value::Empty(..)) => value,
        _ => text.into(),
    }
}

/// None where `null` is written as a text and the key may be null, as in variables, flags and TOML, which has no other null.
fn none_or(key: &Key, value: Value) -> Value {
    if key.nullable && value.as_str() == Some("null") { Empty::None.into() } else { value }
}

/// The variables that name a key. Those without two underscores together are somebody else's: service links of Kubernetes, or
/// what an outer tenure told its workload.
pub(super) fn environment(variables: &[(OsString, OsString)]) -> Layer {
    let mut layer = Layer::default();
    for (name, value) in variables {
        let name = name.to_string_lossy();
        if !name.starts_with(keys::PREFIX) || !name.contains("__") {
            continue;
        }
        let origin = Origin::Variable(name.clone().into_owned());
        match (keys::of_variable(&name), value.to_str()) {
            (Found::Key(key), Some(text)) => layer.text(key, None, text, origin),
            (Found::Key(key), None) => layer.problem(origin, key.path, "its value is not UTF-8"),
            (Found::Section(first), _) => layer.problem(origin, "", section(&keys::variable(first))),
            (Found::Unknown(meant), _) => {
                let remedy = keys::map_of_variable(&name).map(|map| {
                    let variable = keys::variable(map.path);
                    format!("there is no such key: all entries go into one variable, such as {variable}={{\"a\": \"b\"}}")
                });
                layer.problem(origin, "", remedy.unwrap_or_else(|| unknown(meant.map(keys::variable).as_deref())));
            }
        }
    }
    refuse_twice(&mut layer);
    layer
}

/// The flags, and the workload's command.
pub(super) fn flags(settings: &Settings, command: &[String]) -> Layer {
    let mut layer = Layer::default();
    let named = [
        ("--lease", "lease.name", &settings.lease),
        ("LEASE", "lease.name", &settings.lease_argument),
        ("--namespace", "lease.namespace", &settings.namespace),
        ("--identity", "lease.identity", &settings.identity),
        ("--lease-duration", "lease.duration", &settings.lease_duration),
        ("--log-level", "log.level", &settings.log_level),
        ("--log-format", "log.format", &settings.log_format),
    ];
    for (flag, path, value) in named {
        if let (Some(value), Found::Key(key)) = (value, keys::find(path)) {
            layer.text(key, None, value, Origin::Flag(flag.into()));
        }
    }
    if let (Some(election), Found::Key(key)) = (&settings.leader_election, keys::find("lease.enabled")) {
        let origin = Origin::Flag("--leader-election".into());
        match election.as_str() {
            "on" => layer.value(key, true.into(), origin),
            "off" => layer.value(key, false.into(), origin),
            other => layer.problem(origin, "", format!("{other:?} is neither on nor off")),
        }
    }
    if let (false, Found::Key(key)) = (command.is_empty(), keys::find("workload.command")) {
        layer.value(key, command.to_vec().into(), Origin::Flag("the command line".into()));
    }
    for set in &settings.set {
        let Some((path, text)) = set.split_once('=') else {
            layer.problem(Origin::Flag(format!("--set {set}")), "", "write a key, = and a value, such as lease.duration=30s");
            continue;
        };
        let origin = Origin::Flag(format!("--set {path}"));
        match keys::named(path) {
            (Found::Key(key), entry) => layer.text(key, entry, text, origin),
            (Found::Section(first), _) => layer.problem(origin, "", section(first)),
            (Found::Unknown(meant), _) => layer.problem(origin, "", unknown(meant)),
        }
    }
    refuse_twice(&mut layer);
    layer
}

/// Two flags for one key contradict each other, whatever their order; so do two names for one signal.
fn refuse_twice(layer: &mut Layer) {
    let same = |a: &Entry, b: &Entry| a.key.path == b.key.path && (a.entry == b.entry || a.key.shape != Shape::Map);
    let mut twice = Vec::new();
    for (at, entry) in layer.entries.iter().enumerate() {
        if let Some(first) = layer.entries.iter().take(at).find(|first| same(first, entry)) {
            twice.push((entry.origin.clone(), entry.key.path, format!("is also set by {}: set it only once", first.origin)));
        }
    }
    for (origin, path, message) in twice {
        layer.problem(origin, path, message);
    }
}

/// Why it could not be read, if that is why it is refused.
fn reason(read: Result<Node, Malformed>) -> String {
    read.err().map(|malformed| format!(" ({})", malformed.message)).unwrap_or_default()
}

fn section(first: &str) -> String {
    format!("this is a section: name a key below it, such as {first}")
}

fn unknown(meant: Option<&str>) -> String {
    match meant {
        Some(meant) => format!("there is no such key: did you mean {meant}?"),
        None => "there is no such key: `tenure config default` lists them all".into(),
    }
}
