//! Reads a file or a piece of text into a tree that knows its lines.
//!
//! Owns the format, YAML 1.2, of which JSON is a part. Judges only the syntax.

use std::{fmt, iter};

use figment::value::{Dict, Empty, Value};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::{Error, Spanned, UserMessageFormatter};

/// A value and its place.
pub(super) type Node = Spanned<Content>;

/// The kinds of values.
#[derive(Debug)]
pub(super) enum Content {
    /// A value without parts.
    Scalar(Value),
    /// A list.
    List(Vec<Node>),
    /// A map in the order of the text. Each key has its own line.
    Map(Vec<(Spanned<String>, Node)>),
}

/// An error of the syntax.
#[derive(Debug)]
pub(super) struct Malformed {
    /// The line, counted from 1, if it is known.
    pub(super) line: Option<u64>,
    /// The fault, on one line.
    pub(super) message: String,
}

/// As in serde_json, which reads the objects again.
const DEEPEST: usize = 100;

/// What is said of a text that other readers of YAML take for a boolean.
const AMBIGUOUS: &str = "is ambiguous: quote it, or write true or false";

/// What is said of a text of which YAML takes a word for a tag or an anchor, and nothing is left of the text.
const SIGNED: &str = "a text that begins with ! or & has to be quoted";

/// Reads YAML, and refuses what is ambiguous.
pub(super) fn yaml(text: &str) -> Result<Node, Malformed> {
    let [node, lenient] = readings(text)?;
    ambiguities(&node, &lenient).into_iter().next().map_or(Ok(node), Err)
}

/// Reads YAML in both ways: as YAML 1.2 is, and with the booleans of YAML 1.1.
pub(super) fn readings(text: &str) -> Result<[Node; 2], Malformed> {
    Ok([read(text, true)?, read(text, false)?])
}

/// The parts that the two readings take for different things. y and n are texts, as YAML 1.2 says, and the chart refuses them.
pub(super) fn ambiguities(strict: &Node, lenient: &Node) -> Vec<Malformed> {
    let message = || format!("an unquoted yes, no, on or off {AMBIGUOUS}");
    ambiguous(strict, lenient, 2).into_iter().map(|(line, _)| Malformed { line: Some(line), message: message() }).collect()
}

/// Reads the documents of a manifest, as kubectl does: YAML with 0644 in octal. Refuses what is ambiguous.
///
/// # Errors
/// The fault, on one line.
pub(crate) fn documents(text: &str) -> Result<Vec<serde_json::Value>, String> {
    let (strict, lenient) = (read_all::<Node>(text, true)?, read_all(text, false)?);
    if let Some(line) = strict.iter().find_map(|node| anchored_nothing(node, text)) {
        return Err(format!("{SIGNED} at line {line}"));
    }
    match strict.iter().zip(&lenient).find_map(|(strict, lenient)| ambiguous(strict, lenient, 1).into_iter().next()) {
        Some((line, text)) => Err(format!("line {line}: an unquoted {text} {AMBIGUOUS}")),
        None => read_all(text, true),
    }
}

/// The first line with an anchor of nothing.
fn anchored_nothing(node: &Node, text: &str) -> Option<u64> {
    match &node.value {
        Content::Scalar(Value::Empty(..)) => {
            let at = |count: u64| usize::try_from(count).ok()?.checked_sub(1);
            let line = text.lines().nth(at(node.referenced.line())?)?;
            let before: String = line.chars().take(at(node.referenced.column())?).collect();
            let word = before.rsplit(|c: char| c.is_whitespace() || "[{,".contains(c)).next()?;
            word.starts_with('&').then_some(node.referenced.line())
        }
        Content::Scalar(_) => None,
        Content::List(nodes) => nodes.iter().find_map(|node| anchored_nothing(node, text)),
        Content::Map(entries) => entries.iter().find_map(|(_, node)| anchored_nothing(node, text)),
    }
}

fn read_all<T: DeserializeOwned>(text: &str, strict_booleans: bool) -> Result<Vec<T>, String> {
    let options = serde_saphyr::options! {
        with_snippet: false,
        strict_booleans: strict_booleans,
        legacy_octal_numbers: true,
        reject_unsupported_tags: true,
        budget: serde_saphyr::budget! {
            max_depth: DEEPEST,
            max_documents: usize::MAX,
            max_events: usize::MAX,
            max_nodes: usize::MAX,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 100_000 },
    };
    serde_saphyr::from_multiple_with_options(text, options).map_err(|error| said(error.without_snippet()))
}

/// What an error says.
fn said(error: &Error) -> String {
    // The parser's own words for these two quote the text.
    if let Error::UnsupportedTag { location, .. } = error {
        return format!("{SIGNED} at line {}", location.line());
    }
    if let Error::NonFiniteFloat { location, .. } = error {
        return format!("a number that is not finite: quote it, if it is a text, at line {}", location.line());
    }
    error.render_with_formatter(&UserMessageFormatter)
}

/// The lines of the texts of this length or more that Helm and kubectl, which read YAML 1.1, take for a boolean, and the texts: two
/// readings differ there.
fn ambiguous<'a>(strict: &'a Node, lenient: &Node, least: usize) -> Vec<(u64, &'a str)> {
    match (&strict.value, &lenient.value) {
        (Content::Scalar(Value::String(_, text)), Content::Scalar(Value::Bool(..))) if text.len() >= least => {
            vec![(strict.referenced.line(), text)]
        }
        (Content::List(a), Content::List(b)) => a.iter().zip(b).flat_map(|(a, b)| ambiguous(a, b, least)).collect(),
        (Content::Map(a), Content::Map(b)) => a.iter().zip(b).flat_map(|((_, a), (_, b))| ambiguous(a, b, least)).collect(),
        (Content::Scalar(_) | Content::List(_) | Content::Map(_), _) => Vec::new(),
    }
}

fn read(text: &str, strict_booleans: bool) -> Result<Node, Malformed> {
    let options = serde_saphyr::options! { with_snippet: false, strict_booleans: strict_booleans, reject_unsupported_tags: true };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let message = said(error.without_snippet());
        let message = message.split(" at line ").next().unwrap_or_default();
        let line = error.location().map(|at| at.line());
        if message.contains("mapping values are not allowed") || message.contains("illegal placement of ':'") {
            return Malformed {
                line,
                message: format!("{message}: indent it as its neighbours are, or put a text with a colon in quotes"),
            };
        }
        if !message.contains("tab") {
            return Malformed { line, message: message.to_owned() };
        }
        Malformed { line: line.map(|line| tab_from(text, line)), message: format!("{message}: indent with spaces") }
    })
}

/// The first line from this one on that is indented with a tab. A tab after a value is reported at the value's line.
fn tab_from(text: &str, line: u64) -> u64 {
    let is_tab = |line: &str| line.chars().take_while(|c| c.is_whitespace()).any(|c| c == '\t');
    let lines = text.lines().zip(1..).skip_while(|(_, number)| *number < line);
    lines.filter(|(line, _)| is_tab(line)).map(|(_, number)| number).next().unwrap_or(line)
}

impl Content {
    /// The same without the lines.
    pub(super) fn value(&self) -> Value {
        match self {
            Self::Scalar(value) => value.clone(),
            Self::List(nodes) => nodes.iter().map(|node| node.value.value()).collect::<Vec<_>>().into(),
            Self::Map(entries) => {
                entries.iter().map(|(key, node)| (key.value.clone(), node.value.value())).collect::<Dict>().into()
            }
        }
    }

    /// Returns true if there is nothing: `null`, or a section whose keys are all comments.
    pub(super) const fn is_null(&self) -> bool {
        matches!(self, Self::Scalar(Value::Empty(..)))
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any)
    }
}

macro_rules! scalars {
    ($($visit:ident: $type:ty),+) => {
        $(fn $visit<E>(self, value: $type) -> Result<Content, E> {
            Ok(Content::Scalar(value.into()))
        })+
    };
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Content;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Content, E> {
        Ok(Content::Scalar(Empty::None.into()))
    }

    scalars! { visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Content, A::Error> {
        iter::from_fn(|| items.next_element().transpose()).collect::<Result<_, _>>().map(Content::List)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Content, A::Error> {
        iter::from_fn(|| entries.next_entry().transpose()).collect::<Result<_, _>>().map(Content::Map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_yaml_takes_for_a_tag_is_refused_with_its_line_and_not_quoted() {
        let refused = yaml("a: 1\nb: !c\n").unwrap_err();

        assert_eq!((refused.line, refused.message.as_str()), (Some(2), SIGNED));
    }
}
