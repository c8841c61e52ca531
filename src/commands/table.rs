//! The one printer of tables: rows for people; the same fields as JSON or YAML for programs.

use std::fmt::Write as _;

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::{
    cli::Output,
    election::writes::{API_VERSION, KIND},
    words::{bounded, is_unseen},
};

/// The fields for programs, in the order in which they are shown.
#[derive(Debug)]
pub(super) struct Document(pub(super) Vec<(&'static str, Value)>);

impl Document {
    /// `RESOURCE.GROUP/NAME`; what names no kind is a Lease.
    pub(super) fn name(&self) -> String {
        let version = self.text("apiVersion").unwrap_or(API_VERSION);
        let group = version.split_once('/').map_or_else(String::new, |(group, _)| format!(".{group}"));
        let kind = self.text("kind").unwrap_or(KIND).to_lowercase();
        bounded(&format!("{kind}{group}/{}", self.text("name").unwrap_or_default())).into_owned()
    }

    fn text(&self, wanted: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| *key == wanted).and_then(|(_, value)| value.as_str())
    }
}

impl Serialize for Document {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

/// A row of a table, and the same for programs.
pub(super) type Line<const N: usize> = ([String; N], Document);

/// Returns the lines in this form. A line that is the only one and not one of `many` is an object, not a list.
pub(super) fn shown<const N: usize>(output: Output, many: bool, head: [&str; N], lines: &[Line<N>]) -> String {
    match output {
        Output::Table | Output::Wide if lines.is_empty() => String::new(),
        Output::Table | Output::Wide => table(head, lines),
        Output::Name => names(lines),
        Output::Json => json(lines, many),
        Output::Yaml => yaml(lines, many),
    }
}

/// Returns JSON in whose texts the characters are escaped that a terminal does not show: JSON itself escapes only some of them.
/// YAML readers refuse the surrogate pairs of JSON.
pub(super) fn escaped(json: &str, is_yaml: bool) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if c == '\n' || !is_unseen(c) {
            text.push(c);
        } else if is_yaml {
            text += &format!("\\U{:08x}", u32::from(c));
        } else {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| text += &format!("\\u{unit:04x}"));
        }
    }
    text
}

fn table<const N: usize>(head: [&str; N], lines: &[Line<N>]) -> String {
    let mut head = head.map(String::from);
    for (at, cell) in head.iter_mut().enumerate() {
        // A column that nobody fills is not there.
        if lines.iter().all(|(row, _)| row[at].is_empty()) {
            cell.clear();
        }
    }
    let lines: Vec<_> = lines.iter().map(|(row, _)| row.each_ref().map(|cell| bounded(cell).into_owned())).collect();
    let rows = || [&head].into_iter().chain(&lines);
    let mut widths = [0; N];
    for row in rows() {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in rows() {
        let cells = row.iter().zip(widths).filter(|(_, width)| *width > 0);
        let line: String = cells.map(|(cell, width)| format!("{cell:width$}   ")).collect();
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// A line for each object, as `kubectl get` takes it.
fn names<const N: usize>(lines: &[Line<N>]) -> String {
    let mut names: Vec<_> = lines.iter().map(|(_, document)| (document.text("namespace"), document.name())).collect();
    names.dedup();
    names.into_iter().map(|(_, name)| name + "\n").collect()
}

fn json<const N: usize>(lines: &[Line<N>], many: bool) -> String {
    let text = match lines {
        [(_, document)] if !many => serde_json::to_string_pretty(document),
        lines => serde_json::to_string_pretty(&lines.iter().map(|(_, document)| document).collect::<Vec<_>>()),
    };
    format!("{}\n", escaped(&text.unwrap_or_default(), false))
}

/// The same as JSON; but for what is escaped, a JSON scalar is a YAML scalar too.
fn yaml<const N: usize>(lines: &[Line<N>], many: bool) -> String {
    let mut text = if lines.is_empty() { "[]\n".to_owned() } else { String::new() };
    for (_, document) in lines {
        for (at, (key, value)) in document.0.iter().enumerate() {
            let before = match at {
                _ if !many => "",
                0 => "- ",
                _ => "  ",
            };
            let _ = writeln!(text, "{before}{key}: {}", escaped(&value.to_string(), true));
        }
    }
    text
}
