//! A file or a piece of text as a tree that knows its lines.
//!
//! Owns the three formats. Judges nothing but their syntax.

use std::{fmt, path::Path};

use figment::value::{Empty, Value};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::{Spanned, UserMessageFormatter};
use toml::de::{DeTable, DeValue};

/// What a file is read as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// And JSON, which is a part of it.
    Yaml,
    /// TOML 1.
    Toml,
}

impl Format {
    /// By the end of its name.
    pub(super) fn of(path: &Path) -> Self {
        if path.extension().is_some_and(|end| end.eq_ignore_ascii_case("toml")) { Self::Toml } else { Self::Yaml }
    }

    /// What stands in such a file.
    pub(super) fn read(self, text: &str) -> Result<Node, Malformed> {
        match self {
            Self::Yaml => yaml(text),
            Self::Toml => toml(text),
        }
    }
}

/// A value and where it stands.
#[derive(Debug)]
pub(super) struct Node {
    /// Counted from 1.
    pub(super) line: u64,
    /// What stands there.
    pub(super) content: Content,
}

/// What stands there.
#[derive(Debug)]
pub(super) enum Content {
    /// A value without parts.
    Scalar(Value),
    /// A list.
    List(Vec<Node>),
    /// A map, in its order; each key with its own line.
    Map(Vec<(String, u64, Node)>),
}

/// Text that is not of its format.
#[derive(Debug)]
pub(super) struct Malformed {
    /// Counted from 1, where it is known.
    pub(super) line: Option<u64>,
    /// One line.
    pub(super) message: String,
}

impl Node {
    /// The same without the lines.
    pub(super) fn value(&self) -> Value {
        match &self.content {
            Content::Scalar(value) => value.clone(),
            Content::List(nodes) => Value::from(nodes.iter().map(Self::value).collect::<Vec<_>>()),
            Content::Map(entries) => {
                Value::from(entries.iter().map(|(key, _, node)| (key.clone(), node.value())).collect::<figment::value::Dict>())
            }
        }
    }

    /// Whether there is nothing: `null`, or a section whose keys are all comments.
    pub(super) const fn is_null(&self) -> bool {
        matches!(self.content, Content::Scalar(Value::Empty(..)))
    }
}

/// Reads YAML 1.2, of which JSON is a part.
pub(super) fn yaml(text: &str) -> Result<Node, Malformed> {
    let options = serde_saphyr::options! { with_snippet: false, strict_booleans: true };
    let root: Spanned<Content> = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let message = error.without_snippet().render_with_formatter(&UserMessageFormatter);
        let message = message.split(" at line ").next().unwrap_or_default();
        Malformed { line: error.location().map(|at| at.line()), message: message.to_owned() }
    })?;
    Ok(node(root))
}

/// Reads TOML 1.
fn toml(text: &str) -> Result<Node, Malformed> {
    let table = DeTable::parse(text).map_err(|error| Malformed {
        line: error.span().map(|span| line(text, span.start)),
        message: error.message().to_owned(),
    })?;
    Ok(Node { line: 1, content: toml_table(text, table.get_ref()) })
}

fn toml_table(text: &str, table: &DeTable<'_>) -> Content {
    let entry = |(key, value): (&toml::Spanned<_>, &toml::Spanned<_>)| {
        let name: &std::borrow::Cow<'_, str> = key.get_ref();
        (name.clone().into_owned(), line(text, key.span().start), toml_node(text, value))
    };
    Content::Map(table.iter().map(entry).collect())
}

fn toml_node(text: &str, value: &toml::Spanned<DeValue<'_>>) -> Node {
    let content = match value.get_ref() {
        DeValue::String(text) => Content::Scalar(text.clone().into_owned().into()),
        DeValue::Boolean(truth) => Content::Scalar((*truth).into()),
        // A number beyond 64 bits fits no key; as text it is refused like any other.
        DeValue::Integer(digits) => Content::Scalar(
            i64::from_str_radix(digits.as_str(), digits.radix()).map_or_else(|_| digits.as_str().into(), Value::from),
        ),
        DeValue::Float(digits) => {
            Content::Scalar(digits.as_str().parse::<f64>().map_or_else(|_| digits.as_str().into(), Value::from))
        }
        DeValue::Datetime(time) => Content::Scalar(time.to_string().into()),
        DeValue::Array(items) => Content::List(items.iter().map(|item| toml_node(text, item)).collect()),
        DeValue::Table(table) => toml_table(text, table),
    };
    Node { line: line(text, value.span().start), content }
}

fn line(text: &str, offset: usize) -> u64 {
    let newlines = text.bytes().take(offset).filter(|byte| *byte == b'\n').count();
    u64::try_from(newlines).unwrap_or(u64::MAX).saturating_add(1)
}

fn node(spanned: Spanned<Content>) -> Node {
    Node { line: spanned.referenced.line(), content: spanned.value }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any)
    }
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

    fn visit_none<E>(self) -> Result<Content, E> {
        Ok(Content::Scalar(Empty::None.into()))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Content, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Content, E> {
        Ok(Content::Scalar(truth.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Content, E> {
        Ok(Content::Scalar(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Content, E> {
        Ok(Content::Scalar(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Content, E> {
        Ok(Content::Scalar(number.into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Content, E> {
        Ok(Content::Scalar(text.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Content, A::Error> {
        let mut nodes = Vec::new();
        while let Some(item) = items.next_element()? {
            nodes.push(node(item));
        }
        Ok(Content::List(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Content, A::Error> {
        let mut nodes = Vec::new();
        while let Some((key, value)) = entries.next_entry::<Spanned<String>, _>()? {
            nodes.push((key.value, key.referenced.line(), node(value)));
        }
        Ok(Content::Map(nodes))
    }
}
