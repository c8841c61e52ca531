//! Prints the merged configuration as a file, with the source of each value.

use std::{collections::BTreeSet, fmt::Write as _};

use serde_json::Value;

use super::{
    Loaded,
    document::{self, Content, Node},
    keys::{self, Found},
    load::is_within,
    schema::DEFAULTS,
};
use crate::words::is_unseen;

/// The source of a value that nobody has set.
const DEFAULT: &str = "default";

/// The column of the sources, unless a value is longer.
const COLUMN: usize = 39;

impl Loaded {
    /// Returns the configuration as a file, with the source of each value. Without defaults, only what somebody has set.
    pub fn effective(&self, with_defaults: bool) -> String {
        let mut text = String::new();
        // In the order of the file of defaults, which people read. A test checks that it has every key.
        if let Ok(defaults) = document::yaml(DEFAULTS) {
            let values = serde_json::to_value(&self.config).unwrap_or_default();
            self.write(&mut text, "", &defaults, &values, with_defaults);
        }
        text
    }

    /// Writes the keys below `path`, in the order of `defaults`.
    fn write(&self, text: &mut String, path: &str, defaults: &Node, values: &Value, with_defaults: bool) {
        let Content::Map(children) = &defaults.value else { return };
        let indent = if path.is_empty() { 0 } else { 2 * path.split('.').count() };
        for (name, below) in children {
            let name = &name.value;
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            if let Found::Section(_) = keys::find(&path) {
                let before = text.len();
                let _ = writeln!(text, "{:indent$}{name}:", "");
                let title = text.len();
                self.write(text, &path, below, &values[name], with_defaults);
                if text.len() == title {
                    text.truncate(before);
                }
            } else {
                let (line, sources) = (format!("{:indent$}{name}: {}", "", written(&values[name])), self.sources(&path));
                if with_defaults || sources != DEFAULT {
                    let _ = writeln!(text, "{line:COLUMN$} # {sources}");
                }
            }
        }
    }

    /// The source of a key's value. If the key is a map, the sources of its entries.
    pub(super) fn sources(&self, path: &str) -> String {
        // A prefix has become part of the name.
        let parts = if path == "lease.name" { &["lease.name", "lease.prefix"][..] } else { &[path] };
        let mut sources: Vec<_> = parts.iter().flat_map(|path| self.said(path)).collect();
        sources.dedup();
        if sources.is_empty() { DEFAULT.into() } else { sources.join(", ") }
    }

    /// The origins of a key, and of all below it.
    fn said(&self, path: &str) -> BTreeSet<String> {
        self.origins.iter().filter(|(said, _)| is_within(said, path)).map(|(_, origin)| origin.to_string()).collect()
    }
}

/// A value in YAML on one line. JSON is YAML, and a plain word needs no quotes. JSON does not escape all that a terminal obeys.
fn written(value: &Value) -> String {
    let text = value.as_str().filter(|word| is_plain(word)).map_or_else(|| value.to_string(), str::to_owned);
    text.chars().map(|c| if is_unseen(c) { format!("\\U{:08x}", u32::from(c)) } else { c.into() }).collect()
}

/// Returns true if YAML reads it as text: it begins like a word, or is a number with a unit that is no digit of any base.
fn is_plain(word: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '%' | '/');
    let begins = word.starts_with(|c: char| c.is_ascii_alphabetic());
    let measures = word.starts_with(|c: char| c.is_ascii_digit()) && word.ends_with(['s', 'm', 'h', '%']);
    let reserved = ["null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf", "infinity"];
    (begins || measures) && word.chars().all(inside) && !reserved.iter().any(|r| word.eq_ignore_ascii_case(r))
}
