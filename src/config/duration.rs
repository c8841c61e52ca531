//! Reads and writes durations as people do: `15s`, `1m30s`.

use std::time::Duration;

use jiff::{SignedDuration, fmt::friendly};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserializer, Serialize, Serializer};

use super::scalars::{Text, text};

static PRINTER: friendly::SpanPrinter = friendly::SpanPrinter::new().spacing(friendly::Spacing::None);

/// Writes `span` in the form that [`parse`] reads.
pub(crate) fn format(span: Duration) -> String {
    PRINTER.unsigned_duration_to_string(&span)
}

/// Reads `15s`, `1m30s`, `200ms`. Refuses a number without a unit.
pub(crate) fn parse(written: &str) -> Result<Duration, String> {
    let refused = || format!("{written:?} is not a duration: write a number and a unit, such as 15s, 1m30s or 200ms");
    let span: SignedDuration = written.parse().map_err(|_| refused())?;
    Duration::try_from(span).map_err(|_| refused())
}

impl Text for Duration {
    fn read(written: &str) -> Result<Self, String> {
        parse(written)
    }

    fn written(&self) -> String {
        format(*self)
    }
}

/// A duration in a field, and in the schema.
pub(super) struct Span;

impl Span {
    pub(super) fn serialize<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        span.written().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        text(deserializer)
    }
}

impl JsonSchema for Span {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        // No bare number, and nothing negative.
        json_schema!({ "type": "string", "pattern": "^[^-].*[A-Za-z:]", "examples": ["15s", "1m30s", "200ms"] })
    }
}
