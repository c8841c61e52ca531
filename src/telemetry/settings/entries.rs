//! Variables that are lists: `NAME=VALUE,NAME=VALUE`, percent-encoded.
//!
//! An entry that cannot be used is reported by its position alone: these variables hold credentials.

use std::{borrow::Cow, collections::BTreeMap};

use http::{HeaderMap, HeaderName, HeaderValue};

/// Headers that go with each export.
pub(super) fn headers(variable: &str, list: &str, notes: &mut Vec<String>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (place, entry) in entries(list) {
        let header = pair(entry).and_then(|(name, raw)| {
            let text = decoded(raw);
            let value = HeaderValue::from_str(text.as_deref().unwrap_or(raw)).ok()?;
            Some((name.parse::<HeaderName>().ok()?, value, text.is_some()))
        });
        let Some((name, mut value, is_encoded)) = header else {
            notes.push(format!("{variable}: entry {place} is not a NAME=VALUE that a header can be made of: it is left out"));
            continue;
        };
        if !is_encoded {
            notes.push(format!("{variable}: entry {place} is not percent-encoded: it is taken as it stands"));
        }
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    headers
}

/// Resource attributes: none if one is malformed, as the standard says; one without a value is left out.
pub(super) fn attributes(variable: &str, list: &str, notes: &mut Vec<String>) -> BTreeMap<String, String> {
    let mut attributes = BTreeMap::new();
    for (place, entry) in entries(list) {
        let Some((key, value)) = pair(entry).and_then(|(key, value)| decoded(key).zip(decoded(value))) else {
            notes.push(format!("{variable}: entry {place} is not a percent-encoded KEY=VALUE: the whole value is discarded"));
            return BTreeMap::new();
        };
        if !value.is_empty() {
            attributes.insert(key, value);
        }
    }
    attributes
}

/// The entries with their positions, from 1; empty ones are left out.
fn entries(list: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(list.split(',').map(str::trim)).filter(|(_, entry)| !entry.is_empty())
}

fn pair(entry: &str) -> Option<(&str, &str)> {
    let (name, value) = entry.split_once('=')?;
    let name = name.trim();
    (!name.is_empty()).then_some((name, value.trim()))
}

/// Percent-decodes; `None` if an escape is malformed, or the result is not UTF-8.
fn decoded(text: &str) -> Option<String> {
    let is_escape = |part: &str| part.get(..2).is_some_and(|code| code.bytes().all(|digit| digit.is_ascii_hexdigit()));
    let well_formed = text.split('%').skip(1).all(is_escape);
    let decoded = percent_encoding::percent_decode_str(text).decode_utf8();
    decoded.ok().filter(|_| well_formed).map(Cow::into_owned)
}
