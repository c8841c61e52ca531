//! Durations as people write them (`15s`, `1m30s`) in files, as seconds and nanoseconds on the link.

use std::time::Duration;

use jiff::{SignedDuration, fmt::friendly};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::text;

static PRINTER: friendly::SpanPrinter = friendly::SpanPrinter::new().spacing(friendly::Spacing::None);

/// Writes `span` in the form that [`parse`] reads.
pub(crate) fn format(span: Duration) -> String {
    PRINTER.unsigned_duration_to_string(&span)
}

/// Reads `15s`, `1m30s`, `200ms`; a bare number is refused.
pub(crate) fn parse(written: &str) -> Result<Duration, String> {
    let refused = || format!("{written:?} is not a duration: write a number and a unit, such as 15s, 1m30s or 200ms");
    let span: SignedDuration = written.parse().map_err(|_| refused())?;
    Duration::try_from(span).map_err(|_| refused())
}

pub(crate) fn serialize<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    if serializer.is_human_readable() {
        return serializer.serialize_str(&format(*span));
    }
    span.serialize(serializer)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    if deserializer.is_human_readable() {
        return text::required(deserializer, parse);
    }
    Duration::deserialize(deserializer)
}

/// A duration in the schema.
pub(crate) struct Written;

impl JsonSchema for Written {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "minLength": 1, "pattern": pattern(), "examples": ["15s", "1m30s", "200ms"] })
    }
}

/// What [`parse`] reads: units from the largest to the smallest, `01:30:00`, or ISO 8601. Without look-ahead, which not every
/// validator has, it cannot tell that one unit is needed, nor that only the last may have a fraction.
fn pattern() -> String {
    let number = "[0-9]+([.,][0-9]{1,9})?";
    let [millis, micros, nanos] =
        [("m", "milli"), ("[uµ]", "micro"), ("n", "nano")].map(|(short, long)| format!("({short}s(ecs?)?|{long}(s(econds?)?)?)"));
    let units = ["h((ou)?rs?)?", "m(in(ute)?s?)?", "s(ec(ond)?s?)?", &millis, &micros, &nanos];
    let units = units.map(|unit| format!(r"({number}\s*{unit}(,?\s+)?)?")).concat();
    format!(r"^\+?({units}|[0-9]+:[0-9]+:{number}\s*|[Pp][Tt]({number}[HhMmSs])+)$")
}

/// The same for a duration that may be absent.
pub(crate) mod option {
    use super::{Deserialize, Deserializer, Duration, Serialize, Serializer, format, parse, text};

    pub(crate) fn serialize<S: Serializer>(span: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return span.map(format).serialize(serializer);
        }
        span.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        if deserializer.is_human_readable() {
            return text::optional(deserializer, parse);
        }
        Option::deserialize(deserializer)
    }
}
