//! The merged result as a file, with the source of each value.

use std::fmt::Write as _;

use serde_json::Value;

use super::{
    Loaded,
    document::{self, Content, Node},
    keys::{self, Found},
    schema::DEFAULTS,
};

/// Before the source of a value, where it is not longer itself.
const COLUMN: usize = 39;

impl Loaded {
    /// The configuration in the form of a file that would give the same one, each value with where it came from.
    #[must_use]
    pub fn effective(&self) -> String {
        let mut text = String::new();
        // In the order in which people read them: the file of defaults has every key, which a test checks.
        if let Ok(defaults) = document::yaml(DEFAULTS) {
            self.write(&mut text, "", &defaults, &serde_json::to_value(&self.config).unwrap_or_default());
        }
        text
    }

    /// What is below `path`, in the order of `defaults`.
    fn write(&self, text: &mut String, path: &str, defaults: &Node, values: &Value) {
        let Content::Map(children) = &defaults.value else { return };
        let indent = if path.is_empty() { 0 } else { 2 * path.split('.').count() };
        for (name, below) in children {
            let name = &name.value;
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            if let Found::Section(_) = keys::find(&path) {
                let _ = writeln!(text, "{:indent$}{name}:", "");
                self.write(text, &path, below, &values[name]);
            } else {
                let line = format!("{:indent$}{name}: {}", "", written(&values[name]));
                let _ = writeln!(text, "{line:COLUMN$} # {}", self.sources(&path));
            }
        }
    }

    /// Where a key's value came from; where the key is a map, the sources of its entries.
    fn sources(&self, path: &str) -> String {
        // A prefix has become part of the name.
        let parts = if path == "lease.name" { &["lease.name", "lease.prefix"][..] } else { &[path] };
        let mut sources: Vec<_> = parts.iter().flat_map(|path| self.said(path)).collect();
        sources.dedup();
        if sources.is_empty() { "default".into() } else { sources.join(", ") }
    }

    /// Who said anything of a key.
    fn said(&self, path: &str) -> Vec<String> {
        let below = |said: &str| said.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        let mut said: Vec<_> =
            self.origins.iter().filter(|(said, _)| below(said)).map(|(_, origin)| origin.to_string()).collect();
        said.sort_unstable();
        said.dedup();
        said
    }
}

/// A value in YAML on one line. JSON is YAML; what is plainly a word needs no quotes.
fn written(value: &Value) -> String {
    value.as_str().filter(|word| is_plain(word)).map_or_else(|| value.to_string(), str::to_owned)
}

/// Whether YAML takes it for a text: it begins like a word, or is a number with a unit that is no digit of any base.
fn is_plain(word: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '%' | '/');
    let begins = word.starts_with(|c: char| c.is_ascii_alphabetic());
    let measures = word.starts_with(|c: char| c.is_ascii_digit()) && word.ends_with(['s', 'm', 'h', '%']);
    let reserved = ["null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf", "infinity"];
    (begins || measures) && word.chars().all(inside) && !reserved.iter().any(|r| word.eq_ignore_ascii_case(r))
}
