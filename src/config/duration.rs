//! Reads and writes durations as people do: `15s`, `1m30s`. Owns their form in the schema too.

use std::time::Duration;

use jiff::{
    SignedDuration,
    fmt::friendly::{FractionalUnit, Spacing, SpanPrinter},
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserializer, Serialize, Serializer};

use super::scalars::{Text, text};

const WHOLE: SpanPrinter = SpanPrinter::new().spacing(Spacing::None);
const DECIMAL: SpanPrinter = WHOLE.fractional(Some(FractionalUnit::Second));

/// Writes `span` in the form that [`parse`] reads and all texts have: `15.15s`, `1m30s`, `200ms`.
pub(crate) fn format(span: Duration) -> String {
    let printer = if span < Duration::from_secs(1) { &WHOLE } else { &DECIMAL };
    printer.unsigned_duration_to_string(&span)
}

/// Writes a span that was measured: to the hundredth of a second, and below a second to the millisecond.
pub(crate) fn measured(span: Duration) -> String {
    let unit = if span < Duration::from_secs(1) { 1 } else { 10 };
    let rounded = (span.as_micros() + 500 * unit) / (1000 * unit) * unit;
    format(Duration::from_millis(u64::try_from(rounded).unwrap_or(u64::MAX)))
}

/// Reads `15s`, `1m30s`, `200ms`. Refuses a number without a unit.
pub(crate) fn parse(written: &str) -> Result<Duration, String> {
    let refused =
        || format!("{written:?} is not a duration: write a number and a unit (h, m, s or ms), such as 15s, 1m30s or 200ms");
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
        // As jiff reads it, but for the order of the units. A day has no fixed length.
        let number = "[0-9]+([.,][0-9]+)?";
        let unit = "(h|hrs?|hours?|m|mins?|minutes?|s|secs?|seconds?|[mµun]s(ecs?)?|(milli|micro|nano)(s|seconds?)?)";
        let pattern = format!("^[+]?(({number} *{unit},? *)+|[0-9]+:[0-9]+:{number}|[Pp][Tt]({number}[HMShms])+)$");
        json_schema!({ "type": "string", "pattern": pattern, "examples": ["15s", "1m30s", "200ms"] })
    }
}
