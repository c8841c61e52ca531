//! Finds keys by their path, and by their name in the environment.
//!
//! Has no list of its own: the keys are those of the built-in defaults.

use std::{collections::BTreeSet, sync::LazyLock};

use serde_json::Value;

use crate::{
    config::{Config, Signal},
    environment,
};

/// The form of a value in a place that holds only text: a variable or a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// The text itself.
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

#[derive(Debug)]
pub(super) struct Key {
    /// Its path in a file, levels separated by dots.
    pub(super) path: String,
    /// Its form as text.
    pub(super) shape: Shape,
    /// True if the value (of a map: the value of an entry) may be null. As text that is `null`.
    pub(super) nullable: bool,
}

impl Key {
    /// The one name of an entry of this map, by which layers are merged. A signal has several names.
    pub(super) fn entry(&self, name: String) -> String {
        if is_rewrite(&self.path) { Signal::parse(&name).map_or(name, Signal::name) } else { name }
    }
}

fn is_rewrite(path: &str) -> bool {
    path.starts_with("signals.rewrite.")
}

/// Every key. A value of the defaults without parts is a key. So is an empty map: its entries are the user's.
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
            for (name, default) in sections {
                collect(keys, below(name), default);
            }
            return;
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

/// The result of looking up a path.
#[derive(Debug)]
pub(super) enum Found {
    Key(&'static Key),
    /// A section. Holds one of the keys below it.
    Section(&'static str),
    /// Nothing. Holds the path that may have been meant.
    Unknown(Option<&'static str>),
}

/// Looks up the `path` of a key in a file.
pub(super) fn find(path: &str) -> Found {
    if let Some(key) = KEYS.iter().find(|key| key.path == path) {
        return Found::Key(key);
    }
    let below = |key: &&Key| key.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
    KEYS.iter().find(below).map_or_else(|| Found::Unknown(closest(path)), |first| Found::Section(&first.path))
}

/// Looks up the key that `--set` names by `text`. If it is a map, the entry that follows is returned too.
pub(super) fn named(text: &str) -> (Found, Option<&str>) {
    let entry = |map: &'static Key| {
        Some((map, text.strip_prefix(map.path.as_str())?.strip_prefix('.').filter(|entry| !entry.is_empty())?))
    };
    let entry = KEYS.iter().filter(|key| key.shape == Shape::Map).find_map(entry);
    entry.map_or_else(|| (find(text), None), |(map, entry)| (Found::Key(map), Some(entry)))
}

/// Looks up the key that a variable of the environment names.
pub(super) fn of_variable(name: &str) -> Found {
    let meant = || closest(&name.strip_prefix(PREFIX).unwrap_or(name).replace("__", "."));
    paths().find(|path| variable(path) == name).map_or_else(|| Found::Unknown(meant()), find)
}

/// What to write for `path` in a place that holds one key, as `name` names it there.
pub(super) fn one(path: &'static str, name: impl Fn(&str) -> String) -> String {
    match find(path) {
        Found::Section(below) => format!("a key of the section {path}, such as {}", name(below)),
        Found::Key(_) | Found::Unknown(_) => name(path),
    }
}

/// The key or section whose variable this would be with its underscores in other places.
fn folded(name: &str) -> Option<&'static str> {
    let fold = |name: &str| name.replace('_', "");
    paths().find(|path| fold(&variable(path)) == fold(name))
}

/// The path that a variable means which names no key. It may be in lower case.
pub(super) fn path_of_variable(name: &str) -> String {
    let spelt = || name.strip_prefix(PREFIX).unwrap_or(name).replace("__", ".").to_lowercase();
    folded(name).map_or_else(spelt, str::to_owned)
}

/// The map of which a variable of this name would be an entry. There are no such variables.
pub(super) fn map_of_variable(name: &str) -> Option<&'static Key> {
    let is_entry = |key: &&Key| name.strip_prefix(&variable(&key.path)).is_some_and(|rest| rest.starts_with("__"));
    KEYS.iter().filter(|key| key.shape == Shape::Map).find(is_entry)
}

/// The beginning of the name of each variable.
pub(super) const PREFIX: &str = "TENURE_";

/// The name of a key in the environment: `lease.renewPeriod` is `TENURE_LEASE__RENEW_PERIOD`.
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

/// The names of Kubernetes, client-go and servers, and those that tenure has for the same.
const KUBERNETES: [(&str, &str); 15] = [
    ("httpGet", "http"),
    ("tcpSocket", "tcp"),
    ("periodSeconds", "period"),
    ("timeoutSeconds", "timeout"),
    ("gracePeriod", "grace"),
    ("gracePeriodSeconds", "grace"),
    ("terminationGracePeriodSeconds", "grace"),
    ("readinessProbe", "readiness"),
    ("livenessProbe", "liveness"),
    ("leaseDuration", "duration"),
    ("leaseDurationSeconds", "duration"),
    ("retryPeriod", "renewPeriod"),
    ("port", "listen"),
    ("address", "listen"),
    ("host", "listen"),
];

/// The key or section that somebody may have meant by `path`, whose name may be one of Kubernetes.
fn closest(path: &str) -> Option<&'static str> {
    let (section, name) = path.split_at(path.rfind('.').map_or(0, |dot| dot + 1));
    let ours = KUBERNETES.iter().find(|(theirs, _)| plain(theirs) == plain(name)).map(|(_, ours)| format!("{section}{ours}"));
    ours.and_then(|ours| nearest(&ours)).or_else(|| nearest(path))
}

/// The key or section with a similar spelling, or with more or fewer sections before it. A key in another section is never suggested:
/// it may be a key of a later version.
fn nearest(path: &str) -> Option<&'static str> {
    let wrong = plain(path);
    let section = wrong.split('.').next().filter(|section| paths().any(|path| path == *section));
    let distance = |known: &str| {
        let known = plain(known);
        let (typed, meant): (BTreeSet<_>, BTreeSet<_>) = (wrong.split('.').collect(), known.split('.').collect());
        let lacks = typed.is_subset(&meant) && section.is_none_or(|section| known.split('.').next() == Some(section));
        let is_moved = last(&wrong) == last(&known) && (lacks || meant.is_subset(&typed));
        let far = strsim::osa_distance(&known, &wrong);
        (is_moved || far <= (wrong.len() / 3).min(2)).then_some(far)
    };
    // Of keys that are as near, the workload's was meant more often than that of a hook or a standby, and whether it is ready is asked
    // more often than whether it is live.
    let rare = |known: &str| (!known.starts_with("workload."), known.starts_with("workload.liveness"));
    let rank = |known: &'static str| distance(known).map(|far| (far.min(3), rare(known), far, known));
    paths().filter_map(rank).min().map(|(.., known)| known)
}

/// The names that other tools have for variables of tenure, and what tenure reads.
const MEANT: [(&str, &str); 3] = [
    ("TENURE_CONFIG_FILE", "TENURE_CONFIG"),
    ("TENURE_NAME", "TENURE_LEASE__NAME"),
    ("TENURE_COMMAND", "TENURE_WORKLOAD__COMMAND"),
];

/// The variables of a workload that are also the names of keys, and those keys.
const OF_WORKLOADS: [(&str, &str); 4] = [
    (environment::LEASE, "lease.name"),
    (environment::NAMESPACE, "lease.namespace"),
    (environment::SLOTS, "lease.slots"),
    (environment::IDENTITY, "lease.identity"),
];

/// What to write in place of this variable, which sets nothing. `is_inside` tells that a tenure runs this process, and has told it what
/// it tells its workloads.
pub(super) fn meant(name: &str, is_inside: bool) -> Option<String> {
    if let Some((_, path)) = OF_WORKLOADS.iter().find(|(own, _)| *own == name) {
        return (!is_inside).then(|| variable(path));
    }
    let other = MEANT.iter().find(|(theirs, _)| *theirs == name).map(|(_, ours)| (*ours).to_owned());
    other.or_else(|| Some(one(folded(name)?, variable)))
}

/// The paths of all keys and sections.
fn paths() -> impl Iterator<Item = &'static str> {
    let ends = |path: &'static str| path.match_indices('.').map(|(at, _)| at).chain([path.len()]);
    KEYS.iter().flat_map(move |key| ends(&key.path).filter_map(|end| key.path.get(..end)))
}

fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// The path without the characters that people write in different ways.
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
            ("command", Some("workload.command")),
            ("env", Some("workload.env")),
            ("workload.lossGrace", Some("workload.stop.lossGrace")),
            ("workload.stop.onExit", Some("workload.onExit")),
            ("lease.zzz", None),
            ("standby.hook", None),
            ("workload.readiness.interval", None),
            ("hooks.beforeStart.command", None),
            ("hooks.afterStop.timeout", None),
            ("kubernetes.events", Some("events")),
            ("x", None),
            ("workload.readiness.httpGet", Some("workload.readiness.http")),
            ("workload.liveness.periodSeconds", Some("workload.liveness.period")),
            ("workload.stop.gracePeriod", Some("workload.stop.grace")),
            ("lease.retryPeriod", Some("lease.renewPeriod")),
            ("lease.leaseDuration", Some("lease.duration")),
            ("workload.terminationGracePeriodSeconds", Some("workload.stop.grace")),
            ("workload.gracePeriodSeconds", Some("workload.stop.grace")),
            ("workload.readinessProbe", Some("workload.readiness")),
            ("livenessProbe", Some("workload.liveness")),
            ("http.port", Some("http.listen")),
            ("http.address", Some("http.listen")),
            ("http.host", Some("http.listen")),
            ("http.path", None),
            ("workload.port", Some("workload.readiness.tcp.port")),
            ("service.port", Some("service.ports")),
        ] {
            assert_eq!(closest(wrong), meant, "{wrong}");
        }
        assert!(matches!(of_variable("TENURE_LEASE__RENEWPERIOD"), Found::Unknown(Some("lease.renewPeriod"))));
        assert!(matches!(of_variable("TENURE_HTTP__PORT"), Found::Unknown(Some("http.listen"))));
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
    fn a_variable_with_its_underscores_in_other_places_names_the_key_that_was_meant() {
        assert_eq!(folded("TENURE_LEASE_DURATION"), Some("lease.duration"));
        assert_eq!(folded("TENURE_WORKLOAD_STOP_LOSSGRACE"), Some("workload.stop.lossGrace"));
        assert_eq!(meant("TENURE_CONFIG_FILE", true).as_deref(), Some("TENURE_CONFIG"));
        for own in ["TENURE_SERVICE_HOST", "TENURE_SERVICE_PORT", "TENURE_PORT_80_TCP", "TENURE_TERM", "TENURE_SLOTS"] {
            assert_eq!(folded(own), None, "{own}");
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
