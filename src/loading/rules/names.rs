//! Judges whether the Lease can carry its name, namespace, identity, labels and annotations.

use super::Validation;
use crate::config::{LONGEST_NAME, LONGEST_SOCKET, LeaseConfig, can_stand, is_socket};

/// The longest name of a namespace, and the longest name and value of a label.
const LONGEST_LABEL: usize = 63;
/// All annotations and labels together: they travel over the link with everything else.
const LARGEST_METADATA: usize = 64 * 1024;
/// Each slot is read and written on its own.
pub(super) const MOST_SLOTS: u8 = 64;
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const OWN_PREFIX: &str = "tenure.dev/";

pub(super) fn judge(lease: &LeaseConfig, validation: &mut Validation) {
    judge_name(lease, validation);
    let LeaseConfig { slots, priority, identity, .. } = lease;
    refuse! { validation;
        !(1..=MOST_SLOTS).contains(slots) => ["lease.slots"] => format!("{slots} is out of range: write a number from 1 to {MOST_SLOTS}");
        (2..=MOST_SLOTS).contains(slots) && called(lease).len() > LONGEST_LABEL => ["lease.name", "lease.slots"] =>
            "with several slots the name is also the value of a label: write at most 63 characters, lease.prefix included";
        !(-10..=0).contains(priority) => ["lease.priority"] => format!("{priority} is out of range: write a number from -10 to 0");
    }
    judge_namespace(lease, validation);
    refuse! { validation;
        identity.starts_with(OWN_PREFIX) => ["lease.identity"] => reserved();
        !can_stand(identity) => ["lease.identity"] => "an identity has at most 253 bytes and no control characters: choose another";
    }
    judge_metadata(lease, validation);
}

fn reserved() -> String {
    format!("names that begin with {OWN_PREFIX} are reserved: choose another")
}

pub(super) fn judge_namespace(lease: &LeaseConfig, validation: &mut Validation) {
    let namespace = &lease.namespace;
    refuse! { validation;
        !namespace.is_empty() && !is_label(namespace) => ["lease.namespace"] =>
            format!("{namespace:?} is not a valid namespace: use at most 63 of a to z, 0 to 9 and, between them, hyphens");
    }
}

pub(super) fn judge_socket(lease: &LeaseConfig, validation: &mut Validation) {
    if let Some(name) = lease.witness.as_deref().filter(|name| !is_socket(name)) {
        let message = format!("{name:?} is no socket: write @NAME or an absolute path, of at most {LONGEST_SOCKET} bytes");
        validation.refuse(&["lease.witness"], message);
    }
}

fn judge_name(lease: &LeaseConfig, validation: &mut Validation) {
    let LeaseConfig { name, prefix, .. } = lease;
    let (wanted, nothing_left) = (format!("{prefix}{name}"), made_valid(name).is_empty());
    let too_long = !nothing_left && !prefix.is_empty() && wanted.chars().count() > LONGEST_NAME;
    refuse! { validation;
        name.is_empty() => ["lease.name"] =>
            "the Lease needs a name: set --lease NAME, TENURE_LEASE__NAME, or lease.name in a file";
        !name.is_empty() && nothing_left => ["lease.name"] => format!(
            "{name:?} has no character that the name of an object may begin with: use a to z and 0 to 9, with hyphens and dots between");
        too_long => ["lease.prefix", "lease.name"] =>
            "prefix and name together are longer than 253 characters, the longest name of an object: shorten one";
    }
    let called = called(lease);
    if !nothing_left && !too_long && called != wanted {
        validation.note(format!("lease.name: the Lease is called {called}, for {wanted:?} cannot be the name of an object"));
    }
}

/// The name of the Lease in the API.
pub(super) fn called(lease: &LeaseConfig) -> String {
    made_valid(&format!("{}{}", lease.prefix, lease.name))
}

/// The closest name that an object can have. Empty if nothing is left.
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

/// Makes a name by grelmicro's rule, so that both programs use the same Lease.
pub(in crate::loading) fn dashed(wanted: &str) -> String {
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

fn judge_metadata(lease: &LeaseConfig, validation: &mut Validation) {
    for (key, value) in &lease.labels {
        let path = format!("lease.labels.{key}");
        judge_key(&path, key, validation);
        refuse! { validation;
            key == MANAGED_BY => [&path] => "tenure sets this label itself: choose another name";
            !value.is_empty() && !is_qualified(value) => [&path] =>
                format!("{value:?} is not a valid value of a label: use at most 63 letters, digits and, between them, hyphens, dots and underscores");
        }
    }
    for key in lease.annotations.keys() {
        // As the API server does, which leaves labels as they are.
        judge_key(&format!("lease.annotations.{key}"), &key.to_ascii_lowercase(), validation);
    }
    let all = lease.labels.iter().chain(&lease.annotations);
    refuse! { validation;
        all.map(|(key, value)| key.len() + value.len()).sum::<usize>() > LARGEST_METADATA => ["lease.annotations", "lease.labels"] =>
            "labels and annotations together are longer than 64 KiB: shorten them";
    }
}

fn judge_key(path: &str, key: &str, validation: &mut Validation) {
    let is_own = key.starts_with(OWN_PREFIX);
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let prefix_is_good = prefix.is_none_or(|prefix| prefix.len() <= LONGEST_NAME && prefix.split('.').all(is_label));
    refuse! { validation;
        is_own => [path] => reserved();
        !is_own && (!prefix_is_good || !is_qualified(name)) => [path] =>
            "this is not a valid name of a label or an annotation: use at most 63 letters, digits, -, _ and ., optionally after a DNS domain and /";
    }
}

/// Returns true for a DNS label (RFC 1123).
pub(crate) fn is_label(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    text.len() <= LONGEST_LABEL && text.bytes().all(inside) && !text.is_empty() && !text.starts_with('-') && !text.ends_with('-')
}

/// Returns true for the name of a label without its prefix, and for its value.
fn is_qualified(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= LONGEST_LABEL && bytes.iter().copied().all(inside) && ends(bytes.first()) && ends(bytes.last())
}
