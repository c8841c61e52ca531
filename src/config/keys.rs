//! Every key: its path, its form as text, and its name in the environment.
//!
//! Owns the list, which a test holds equal to the types. What a value may be is the types' business.

use super::Signal;

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
    pub(super) path: &'static str,
    /// Its form as text.
    pub(super) shape: Shape,
    /// Whether it (or, in a map, what an entry holds) may be null, which is `null` as text.
    pub(super) nullable: bool,
}

impl Key {
    /// An entry of this map under the one name by which layers are merged: a signal has several.
    pub(super) fn entry(&self, name: String) -> String {
        if !self.path.starts_with("signals.rewrite.") {
            return name;
        }
        Signal::parse(&name).map_or(name, Signal::name)
    }
}

/// Every key, in the order in which people read them.
pub(super) const KEYS: &[Key] = &[
    key("lease.enabled", Shape::Truth),
    key("lease.name", Shape::Text),
    key("lease.prefix", Shape::Text),
    key("lease.namespace", Shape::Text),
    key("lease.identity", Shape::Text),
    key("lease.duration", Shape::Text),
    key("lease.renewPeriod", Shape::Text),
    key("lease.attemptTimeout", Shape::Text),
    key("lease.clockDrift", Shape::Text),
    key("lease.labels", Shape::Map),
    key("lease.annotations", Shape::Map),
    key("lease.release", Shape::Text),
    key("lease.onStrategy", Shape::Text),
    nullable("lease.creationWait"),
    key("workload.command", Shape::List),
    key("workload.runs", Shape::Text),
    nullable("workload.acknowledge"),
    key("workload.env", Shape::Map),
    key("workload.oomScoreAdjust", Shape::Integer),
    key("workload.onExit", Shape::Text),
    key("workload.onLoss", Shape::Text),
    key("workload.stop.signal", Shape::Text),
    key("workload.stop.grace", Shape::Text),
    key("workload.stop.lossGrace", Shape::Text),
    key("workload.stop.killMode", Shape::Text),
    key("workload.stop.killMargin", Shape::Text),
    key("workload.restart.policy", Shape::Text),
    key("workload.restart.delay", Shape::Text),
    key("workload.restart.maxDelay", Shape::Text),
    key("workload.restart.burst", Shape::Integer),
    key("workload.restart.interval", Shape::Text),
    nullable("signals.onLead"),
    nullable("signals.onFollow"),
    Key { path: "signals.rewrite.leader", shape: Shape::Map, nullable: true },
    Key { path: "signals.rewrite.standby", shape: Shape::Map, nullable: true },
    key("hooks.afterLead.command", Shape::List),
    key("hooks.afterLead.timeout", Shape::Text),
    key("hooks.beforeFollow.command", Shape::List),
    key("hooks.beforeFollow.timeout", Shape::Text),
    nullable("http.listen"),
    key("log.level", Shape::Text),
    key("log.format", Shape::Text),
];

const fn key(path: &'static str, shape: Shape) -> Key {
    Key { path, shape, nullable: false }
}

const fn nullable(path: &'static str) -> Key {
    Key { path, shape: Shape::Text, nullable: true }
}

/// What stands at a path.
#[derive(Debug)]
pub(super) enum Found {
    /// A key.
    Key(&'static Key),
    /// Keys below it; the first of them.
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
    KEYS.iter().find(below).map_or_else(|| Found::Unknown(closest(path)), |first| Found::Section(first.path))
}

/// What `--set` names by `text`, and the entry that follows where that is a map.
pub(super) fn named(text: &str) -> (Found, Option<&str>) {
    let entry =
        |map: &'static Key| Some((map, text.strip_prefix(map.path)?.strip_prefix('.').filter(|entry| !entry.is_empty())?));
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
    let is_entry = |key: &&Key| name.strip_prefix(&variable(key.path)).is_some_and(|rest| rest.starts_with("__"));
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

/// The key or section that somebody may have meant by `path`: its last word is spelt alike, and so are the others, but for some
/// too many or too few. What has another section as well is another key, perhaps one of a later version.
fn closest(path: &str) -> Option<&'static str> {
    let wrong = plain(path);
    let distance = |known: &&'static str| {
        let known = plain(known);
        let is_meant = is_alike(last(&wrong), last(&known)) && (is_within(&wrong, &known) || is_within(&known, &wrong));
        is_meant.then(|| (strsim::osa_distance(last(&known), last(&wrong)), strsim::osa_distance(&known, &wrong)))
    };
    paths().filter_map(|known| Some((distance(&known)?, known))).min().map(|(_, known)| known)
}

/// Keys and sections.
fn paths() -> impl Iterator<Item = &'static str> {
    let ends = |path: &'static str| path.match_indices('.').map(|(at, _)| at).chain([path.len()]);
    KEYS.iter().flat_map(move |key| ends(key.path).filter_map(|end| key.path.get(..end)))
}

/// Whether somebody may have written the one for the other.
fn is_alike(wrong: &str, known: &str) -> bool {
    strsim::osa_distance(wrong, known) <= (wrong.chars().count() / 3).min(2)
}

/// Whether each word of `short` is alike to one of `long`, in the same order.
fn is_within(short: &str, long: &str) -> bool {
    let mut words = long.split('.');
    short.split('.').all(|word| words.any(|other| is_alike(word, other)))
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
            ("standby.command", None),
            ("lease.priority", None),
            ("workload.readiness.interval", None),
            ("hooks.beforeLead.command", None),
            ("hooks.afterFollow.timeout", None),
            ("kubernetes.events", None),
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
        for key in KEYS {
            assert!(matches!(of_variable(&variable(key.path)), Found::Key(found) if found.path == key.path), "{}", key.path);
        }
    }

    #[test]
    fn what_follows_a_map_is_its_entry_dots_and_all() {
        let (Found::Key(key), entry) = named("lease.labels.app.kubernetes.io/part-of") else { panic!("no key") };
        assert_eq!((key.path, entry), ("lease.labels", Some("app.kubernetes.io/part-of")));
        for none in ["lease.name.x", "lease.labels."] {
            assert!(matches!(named(none), (Found::Unknown(_), None)), "{none}");
        }
    }
}
