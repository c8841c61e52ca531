//! Every key: its path, its form as text, and its name in the environment.
//!
//! Owns no list: the keys are those of the built-in defaults.

use std::{collections::BTreeSet, sync::LazyLock};

use serde_json::Value;

use super::{Config, Signal};

/// How a value is written where there is only text: a variable or a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// As it is.
    Text,
    /// `true` or `false`.
    Truth,
    /// Digits.
    Integer,
    /// YAML or JSON: `["sleep", "10"]`.
    List,
    /// YAML or JSON: `{"team": "billing"}`.
    Map,
}

/// One key.
#[derive(Debug)]
pub(super) struct Key {
    /// Its path in a file, levels separated by dots.
    pub(super) path: String,
    /// Its form as text.
    pub(super) shape: Shape,
    /// Whether it (or, in a map, what an entry holds) may be null, which is `null` as text.
    pub(super) nullable: bool,
}

impl Key {
    /// An entry of this map under the one name by which layers are merged: a signal has several.
    pub(super) fn entry(&self, name: String) -> String {
        if is_rewrite(&self.path) { Signal::parse(&name).map_or(name, Signal::name) } else { name }
    }
}

fn is_rewrite(path: &str) -> bool {
    path.starts_with("signals.rewrite.")
}

/// Every key. Whatever has no parts in the defaults is one; an empty map is one too, as its entries are the user's.
pub(super) static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| {
    let mut keys = Vec::new();
    if let Ok(defaults) = serde_json::to_value(Config::default()) {
        collect(&mut keys, String::new(), &defaults);
    }
    keys
});

fn collect(keys: &mut Vec<Key>, path: String, default: &Value) {
    let shape = match default {
        Value::Object(sections) if !sections.is_empty() => {
            let below = |name: &String| if path.is_empty() { name.clone() } else { [path.as_str(), name].join(".") };
            return sections.iter().for_each(|(name, default)| collect(keys, below(name), default));
        }
        Value::Object(_) => Shape::Map,
        Value::Array(_) => Shape::List,
        Value::Bool(_) => Shape::Truth,
        Value::Number(_) => Shape::Integer,
        Value::String(_) | Value::Null => Shape::Text,
    };
    let nullable = default.is_null() || is_rewrite(&path);
    keys.push(Key { path, shape, nullable });
}

/// What stands at a path.
#[derive(Debug)]
pub(super) enum Found {
    /// A key.
    Key(&'static Key),
    /// Keys below it; one of them.
    Section(&'static str),
    /// Nothing; the path that may have been meant.
    Unknown(Option<&'static str>),
}

/// What stands at `path` in a file.
pub(super) fn find(path: &str) -> Found {
    if let Some(key) = KEYS.iter().find(|key| key.path == path) {
        return Found::Key(key);
    }
    let below = |key: &&Key| key.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
    KEYS.iter().find(below).map_or_else(|| Found::Unknown(closest(path)), |first| Found::Section(&first.path))
}

/// What `--set` names by `text`, and the entry that follows where that is a map.
pub(super) fn named(text: &str) -> (Found, Option<&str>) {
    let entry = |map: &'static Key| {
        Some((map, text.strip_prefix(map.path.as_str())?.strip_prefix('.').filter(|entry| !entry.is_empty())?))
    };
    let entry = KEYS.iter().filter(|key| key.shape == Shape::Map).find_map(entry);
    entry.map_or_else(|| (find(text), None), |(map, entry)| (Found::Key(map), Some(entry)))
}

/// What a variable of the environment names.
pub(super) fn of_variable(name: &str) -> Found {
    let meant = || closest(&name.strip_prefix(PREFIX).unwrap_or(name).replace("__", "."));
    paths().find(|path| variable(path) == name).map_or_else(|| Found::Unknown(meant()), find)
}

/// The map of which a variable by this name would be an entry; there are none.
pub(super) fn map_of_variable(name: &str) -> Option<&'static Key> {
    let is_entry = |key: &&Key| name.strip_prefix(&variable(&key.path)).is_some_and(|rest| rest.starts_with("__"));
    KEYS.iter().filter(|key| key.shape == Shape::Map).find(is_entry)
}

/// What the name of each variable begins with.
pub(super) const PREFIX: &str = "TENURE_";

/// `lease.renewPeriod` is `TENURE_LEASE__RENEW_PERIOD`.
pub(super) fn variable(path: &str) -> String {
    let mut name = String::from(PREFIX);
    for c in path.chars() {
        match c {
            '.' => name.push_str("__"),
            'A'..='Z' => name.extend(['_', c]),
            _ => name.push(c.to_ascii_uppercase()),
        }
    }
    name
}

/// The key or section that somebody may have meant by `path`: spelt nearly so, or with too many or too few sections before it. What
/// has another section is another key, perhaps one of a later version.
fn closest(path: &str) -> Option<&'static str> {
    let wrong = plain(path);
    let distance = |known: &str| {
        let known = plain(known);
        let (typed, meant): (BTreeSet<_>, BTreeSet<_>) = (wrong.split('.').collect(), known.split('.').collect());
        let is_moved = last(&wrong) == last(&known) && (typed.is_subset(&meant) || meant.is_subset(&typed));
        let far = strsim::osa_distance(&known, &wrong);
        (is_moved || far <= (wrong.len() / 3).min(2)).then_some(far)
    };
    paths().filter_map(|known| Some((distance(known)?, known))).min().map(|(_, known)| known)
}

/// Keys and sections.
fn paths() -> impl Iterator<Item = &'static str> {
    let ends = |path: &'static str| path.match_indices('.').map(|(at, _)| at).chain([path.len()]);
    KEYS.iter().flat_map(move |key| ends(&key.path).filter_map(|end| key.path.get(..end)))
}

fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// Without what people write in different ways.
fn plain(path: &str) -> String {
    path.chars().filter(|c| !matches!(c, '_' | '-')).map(|c| c.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_key_suggests_the_one_that_was_meant() {
        for (wrong, meant) in [
            ("lease.duratoin", Some("lease.duration")),
            ("lease.renew_period", Some("lease.renewPeriod")),
            ("leese", Some("lease")),
            ("lossGrace", Some("workload.stop.lossGrace")),
            ("workload.lossGrace", Some("workload.stop.lossGrace")),
            ("workload.stop.onExit", Some("workload.onExit")),
            ("lease.zzz", None),
            ("standby.hook", None),
            ("workload.readiness.interval", None),
            ("hooks.beforeStart.command", None),
            ("hooks.afterStop.timeout", None),
            ("kubernetes.events", Some("events")),
            ("x", None),
        ] {
            assert_eq!(closest(wrong), meant, "{wrong}");
        }
        assert!(matches!(of_variable("TENURE_LEASE__RENEWPERIOD"), Found::Unknown(Some("lease.renewPeriod"))));
        assert!(matches!(named("workload.stop.graze"), (Found::Unknown(Some("workload.stop.grace")), None)));
    }

    #[test]
    fn a_name_in_the_environment_is_the_path_in_upper_snake_case() {
        assert_eq!(variable("workload.stop.lossGrace"), "TENURE_WORKLOAD__STOP__LOSS_GRACE");
        for key in KEYS.iter() {
            assert!(matches!(of_variable(&variable(&key.path)), Found::Key(found) if found.path == key.path), "{}", key.path);
        }
    }

    #[test]
    fn what_follows_a_map_is_its_entry_dots_and_all() {
        let (Found::Key(key), entry) = named("lease.labels.app.kubernetes.io/part-of") else { panic!("no key") };
        assert_eq!((key.path.as_str(), entry), ("lease.labels", Some("app.kubernetes.io/part-of")));
        for none in ["lease.name.x", "lease.labels."] {
            assert!(matches!(named(none), (Found::Unknown(_), None)), "{none}");
        }
    }
}
