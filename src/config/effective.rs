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

/// A value in YAML on one line. JSON is YAML, but for characters that YAML wants escaped; what is plainly a word needs no quotes.
fn written(value: &Value) -> String {
    if let Some(word) = value.as_str().filter(|word| is_plain(word)) {
        return word.into();
    }
    let mut text = String::new();
    for c in value.to_string().chars() {
        match c {
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
                let _ = write!(text, "\\u{:04x}", u32::from(c));
            }
            c => text.push(c),
        }
    }
    text
}

/// Whether YAML takes it for a text: it begins like a word, or is a number with a unit that is no digit of any base.
fn is_plain(word: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '%' | '/');
    let begins = word.starts_with(|c: char| c.is_ascii_alphabetic());
    let measures = word.starts_with(|c: char| c.is_ascii_digit()) && word.ends_with(['s', 'm', 'h', '%']);
    let reserved = ["null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf", "infinity"];
    (begins || measures) && word.chars().all(inside) && !reserved.iter().any(|r| word.eq_ignore_ascii_case(r))
}
