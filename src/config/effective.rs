//! The merged result as a file, with the source of each value.

use std::fmt::Write as _;

use serde_json::Value;

use super::{Loaded, keys::KEYS};

/// Before the source of a value, where it is not longer itself.
const COLUMN: usize = 39;
const PREFIX: &str = "lease.prefix";

impl Loaded {
    /// The configuration in the form of a file that would give the same one, each value with where it came from.
    #[must_use]
    pub fn effective(&self) -> String {
        let mut text = String::new();
        let mut before: Vec<&str> = Vec::new();
        let tree = self.tree();
        for key in KEYS {
            let mut sections: Vec<&str> = key.path.split('.').collect();
            let Some(name) = sections.pop() else { continue };
            let common = sections.iter().zip(&before).take_while(|(a, b)| a == b).count();
            for (depth, section) in sections.iter().enumerate().skip(common) {
                let _ = writeln!(text, "{:1$}{section}:", "", depth * 2);
            }
            // A key that is in KEYS is in the type: a test holds them equal.
            let value = tree.pointer(&format!("/{}", key.path.replace('.', "/"))).unwrap_or(&Value::Null);
            let line = format!("{:1$}{name}: {2}", "", sections.len() * 2, written(value));
            let _ = writeln!(text, "{line:COLUMN$} # {}", self.sources(key.path));
            before = sections;
        }
        text
    }

    /// All values as a file would have them.
    fn tree(&self) -> Value {
        let mut config = self.config.clone();
        config.hooks.after_lead.get_or_insert_default();
        config.hooks.before_follow.get_or_insert_default();
        serde_json::to_value(&config).unwrap_or_default()
    }

    /// Where a key's value came from; where the key is a map, the sources of its entries.
    fn sources(&self, path: &str) -> String {
        let sources = match path {
            "lease.name" if self.is_prefixed => [self.said(path), self.said(PREFIX)].concat(),
            PREFIX if self.is_prefixed => {
                self.said(path).into_iter().map(|source| format!("{source}, now part of the name")).collect()
            }
            _ => self.said(path),
        };
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
    match value.as_str() {
        Some(word) if is_plain(word) => word.into(),
        _ => value.to_string(),
    }
}

/// Whether YAML takes it for a text: it begins like a word or is a number with a unit.
fn is_plain(word: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '%' | '/');
    let number = word.parse::<f64>().is_ok() || word.starts_with("0x") || word.starts_with("0o") || word.starts_with("0b");
    let reserved = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"].iter().any(|r| word.eq_ignore_ascii_case(r));
    word.starts_with(|c: char| c.is_ascii_alphanumeric()) && word.chars().all(inside) && !number && !reserved
}
