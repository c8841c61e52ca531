//! Whether the Lease can carry its name, namespace, identity, labels and annotations.

use super::Judgement;
use crate::config::LeaseConfig;

/// Of an object and of a prefix of a label.
const LONGEST_NAME: usize = 253;
/// Of a namespace, of a label's name and of its value.
const LONGEST_LABEL: usize = 63;
/// All annotations and labels together: they travel over the link with everything else.
const LARGEST_METADATA: usize = 64 * 1024;
/// Each is read and written on its own.
const MOST_SLOTS: u8 = 64;
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const OWN_PREFIX: &str = "tenure.dev/";

pub(super) fn judge(lease: &LeaseConfig, judgement: &mut Judgement) {
    judge_name(lease, judgement);
    judge_slots(lease, judgement);
    if !(-10..=0).contains(&lease.priority) {
        judgement.refuse(&["lease.priority"], format!("{} is not a priority from 0 down to -10", lease.priority));
    }
    judge_namespace(lease, judgement);
    if lease.identity.starts_with(OWN_PREFIX) {
        judgement.refuse(&["lease.identity"], "names below tenure.dev/ are tenure's own: choose another");
    }
    if !can_stand(&lease.identity) {
        judgement.refuse(&["lease.identity"], "must be at most 253 bytes long, without control characters");
    }
    judge_metadata(lease, judgement);
}

/// Whether this can be a replica's name in a Lease.
#[must_use]
pub fn can_stand(identity: &str) -> bool {
    identity.len() <= LONGEST_NAME && !identity.chars().any(char::is_control)
}

pub(super) fn judge_namespace(lease: &LeaseConfig, judgement: &mut Judgement) {
    if !lease.namespace.is_empty() && !is_label(&lease.namespace) {
        let message = format!("{:?} is not a valid namespace: at most 63 of a to z, 0 to 9 and hyphens within", lease.namespace);
        judgement.refuse(&["lease.namespace"], message);
    }
}

fn judge_slots(lease: &LeaseConfig, judgement: &mut Judgement) {
    if !(1..=MOST_SLOTS).contains(&lease.slots) {
        judgement.refuse(&["lease.slots"], format!("{} is not a number of slots from 1 to {MOST_SLOTS}", lease.slots));
    } else if lease.slots > 1 && called(lease).len() > LONGEST_LABEL {
        let message =
            "the name is the value of a label where there are several slots: it may have 63 characters, prefix included";
        judgement.refuse(&["lease.name", "lease.slots"], message);
    }
}

fn judge_name(lease: &LeaseConfig, judgement: &mut Judgement) {
    if lease.name.is_empty() {
        judgement.refuse(&["lease.name"], "the Lease needs a name: --lease NAME, TENURE_LEASE__NAME or lease.name in a file");
        return;
    }
    if made_valid(&lease.name).is_empty() {
        let message = format!(
            "{:?} has no character that the name of an object may begin with: use a to z and 0 to 9, with hyphens and dots between",
            lease.name
        );
        judgement.refuse(&["lease.name"], message);
        return;
    }
    let wanted = format!("{}{}", lease.prefix, lease.name);
    if !lease.prefix.is_empty() && wanted.chars().count() > LONGEST_NAME {
        let message = "prefix and name are longer together than the name of an object, which has at most 253 characters";
        judgement.refuse(&["lease.prefix", "lease.name"], message);
        return;
    }
    let name = called(lease);
    if name != wanted {
        judgement.note(format!("lease.name: the Lease is called {name}, for {wanted:?} cannot be the name of an object"));
    }
}

/// What the Lease is called in the API.
pub(super) fn called(lease: &LeaseConfig) -> String {
    made_valid(&format!("{}{}", lease.prefix, lease.name))
}

/// The closest name that an object can have; empty if nothing is left.
pub(super) fn made_valid(wanted: &str) -> String {
    let allowed = |c: char| match c.to_ascii_lowercase() {
        c @ ('a'..='z' | '0'..='9' | '.') => c,
        _ => '-',
    };
    let spelt: String = wanted.chars().map(allowed).collect();
    let parts = spelt.split('.').map(|part| part.trim_matches('-')).filter(|part| !part.is_empty());
    let mut name = parts.collect::<Vec<_>>().join(".");
    name.truncate(LONGEST_NAME);
    name.truncate(name.trim_end_matches(['-', '.']).len());
    name
}

/// grelmicro's rule, so that both mean the same Lease.
pub(in crate::config) fn dashed(wanted: &str) -> String {
    let mut name = String::new();
    for c in wanted.to_lowercase().chars() {
        match c {
            'a'..='z' | '0'..='9' => name.push(c),
            _ if name.ends_with('-') => {}
            _ => name.push('-'),
        }
    }
    name.truncate(LONGEST_NAME);
    name.trim_matches('-').to_owned()
}

fn judge_metadata(lease: &LeaseConfig, judgement: &mut Judgement) {
    for (key, value) in &lease.labels {
        let path = format!("lease.labels.{key}");
        judge_key(&path, key, judgement);
        if key == MANAGED_BY {
            judgement.refuse(&[&path], "is tenure's own: choose another name");
        }
        if !value.is_empty() && !is_qualified(value) {
            let message = format!(
                "{value:?} is not a valid value of a label: at most 63 letters, digits and, within, hyphens, dots and underscores"
            );
            judgement.refuse(&[&path], message);
        }
    }
    for key in lease.annotations.keys() {
        // As the API server does, which leaves labels as they are.
        judge_key(&format!("lease.annotations.{key}"), &key.to_ascii_lowercase(), judgement);
    }
    let all = lease.labels.iter().chain(&lease.annotations);
    if all.map(|(key, value)| key.len() + value.len()).sum::<usize>() > LARGEST_METADATA {
        judgement.refuse(&["lease.annotations", "lease.labels"], "labels and annotations are longer than 64 KiB together");
    }
}

fn judge_key(path: &str, key: &str, judgement: &mut Judgement) {
    if key.starts_with(OWN_PREFIX) {
        judgement.refuse(&[path], "names below tenure.dev/ are tenure's own: choose another");
        return;
    }
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let prefix_is_good = prefix.is_none_or(|prefix| prefix.len() <= LONGEST_NAME && prefix.split('.').all(is_label));
    if !prefix_is_good || !is_qualified(name) {
        judgement.refuse(
            &[path],
            "is not a valid name of a label or annotation: at most 63 letters, digits, -, _ and ., optionally after a DNS domain and /",
        );
    }
}

/// A DNS label (RFC 1123).
pub(super) fn is_label(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    text.len() <= LONGEST_LABEL && text.bytes().all(inside) && !text.is_empty() && !text.starts_with('-') && !text.ends_with('-')
}

/// The name of a label without its prefix, or its value.
fn is_qualified(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= LONGEST_LABEL && bytes.iter().copied().all(inside) && ends(bytes.first()) && ends(bytes.last())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(change: impl FnOnce(&mut LeaseConfig)) -> (LeaseConfig, Judgement) {
        let mut lease = LeaseConfig { name: "billing".into(), ..LeaseConfig::default() };
        change(&mut lease);
        let mut judgement = Judgement::default();
        judge(&lease, &mut judgement);
        (lease, judgement)
    }

    fn is_refused(change: impl FnOnce(&mut LeaseConfig)) -> bool {
        !judged(change).1.violations.is_empty()
    }

    #[test]
    fn a_name_is_made_valid_and_that_is_said() {
        for (prefix, name, made) in [
            ("", "Billing_Writer", "billing-writer"),
            ("shop-", "-x-", "shop--x"),
            ("", "a..b.-c-", "a.b.c"),
            ("", "Übung 1", "bung-1"),
            ("Shop.", "007", "shop.007"),
        ] {
            let (lease, judgement) = judged(|lease| (lease.prefix, lease.name) = (prefix.into(), name.into()));
            assert_eq!(called(&lease), made);
            assert!(judgement.violations.is_empty() && judgement.notes[0].contains(made), "{judgement:?}");
        }
    }

    #[test]
    fn a_valid_name_stays_and_nothing_is_said() {
        let (lease, judgement) = judged(|lease| lease.prefix = "shop-".into());
        assert_eq!((called(&lease).as_str(), judgement.notes.len()), ("shop-billing", 0));
    }

    #[test]
    fn a_long_name_is_cut_to_253_and_ends_well() {
        let (lease, _) = judged(|lease| lease.name = format!("{}.{}", "a".repeat(252), "b"));
        assert_eq!(called(&lease), "a".repeat(252));
    }

    #[test]
    fn a_prefix_that_leaves_too_little_of_the_name_is_refused() {
        assert!(is_refused(|lease| lease.prefix = "a".repeat(250)));
        assert!(!is_refused(|lease| lease.prefix = "a".repeat(246)));
    }

    #[test]
    fn a_name_of_which_nothing_is_left_is_refused_whatever_the_prefix() {
        for name in ["", "___", "日本", ".-."] {
            assert!(is_refused(|lease| (lease.prefix, lease.name) = ("shop-".into(), name.into())), "{name}");
        }
    }

    #[test]
    fn a_namespace_is_a_dns_label_or_empty() {
        for namespace in ["kube-system", "0", &"a".repeat(63)] {
            assert!(!is_refused(|lease| lease.namespace = namespace.into()), "{namespace}");
        }
        for namespace in ["Prod", "a.b", "-a", "a-", "a_b", &"a".repeat(64)] {
            assert!(is_refused(|lease| lease.namespace = namespace.into()), "{namespace}");
        }
    }

    #[test]
    fn labels_and_annotations_are_those_that_the_api_takes_and_not_our_own() {
        let label = |key: &str, value: &str| is_refused(|lease| drop(lease.labels.insert(key.into(), value.into())));
        assert!(!label("app.kubernetes.io/part-of", "shop_1.x") && !label("team", ""));
        assert!(label("team", "a b") && label("team", "-a") && label("Team/x", "a") && label("a/b/c", "a") && label("", "a"));
        assert!(label("app.kubernetes.io/managed-by", "me") && label("tenure.dev/x", "a"));
        assert!(is_refused(|lease| drop(lease.annotations.insert("tenure.dev/paused".into(), "x".into()))));
        assert!(!is_refused(|lease| drop(lease.annotations.insert("Example.com/note".into(), "any text: é".into()))));
    }

    #[test]
    fn labels_and_annotations_may_be_as_long_as_the_api_takes_and_no_longer() {
        let label = |key: String, value: String| is_refused(|lease| drop(lease.labels.insert(key, value)));
        let a = |times| "a".repeat(times);
        assert!(!label("team".into(), a(63)) && label("team".into(), a(64)), "a value");
        assert!(!label(a(63), String::new()) && label(a(64), String::new()), "a name");
        let prefix = |last| format!("{0}.{0}.{0}.{1}/x", a(63), a(last));
        assert!(!label(prefix(61), String::new()) && label(prefix(62), String::new()), "a prefix");
        let note = |length: usize| is_refused(|lease| drop(lease.annotations.insert("note".into(), a(length))));
        assert!(!note(64 * 1024 - 4) && note(64 * 1024 - 3), "all together");
    }

    #[test]
    fn an_identity_has_no_control_characters_and_an_end() {
        assert!(is_refused(|lease| lease.identity = "a\nb".into()) && is_refused(|lease| lease.identity = "a".repeat(254)));
        assert!(is_refused(|lease| lease.identity = "tenure.dev/nobody".into()), "it is reserved");
        assert!(!is_refused(|lease| lease.identity = "pod-1".into()) && !is_refused(|lease| lease.identity = "a".repeat(253)));
    }
}
