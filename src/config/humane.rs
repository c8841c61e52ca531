//! Durations as people write them (`15s`, `1m30s`) in files, as seconds and nanoseconds on the link.

use std::time::Duration;

use jiff::{SignedDuration, fmt::friendly};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

static PRINTER: friendly::SpanPrinter = friendly::SpanPrinter::new().spacing(friendly::Spacing::None);

/// Writes `span` in the form that [`parse`] reads.
pub(crate) fn format(span: Duration) -> String {
    PRINTER.unsigned_duration_to_string(&span)
}

/// Reads `15s`, `1m30s`, `200ms`; a bare number is refused.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let refused = || format!("{text:?} is not a duration: write a number and a unit, such as 15s, 1m30s or 200ms");
    let span: SignedDuration = text.parse().map_err(|_| refused())?;
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
        return parse(&String::deserialize(deserializer)?).map_err(D::Error::custom);
    }
    Duration::deserialize(deserializer)
}

/// The same for a duration that may be absent.
pub(crate) mod option {
    use super::{Deserialize, Deserializer, Duration, Serialize, Serializer, format, parse};
    use serde::de::Error as _;

    pub(crate) fn serialize<S: Serializer>(span: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return span.map(format).serialize(serializer);
        }
        span.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        if deserializer.is_human_readable() {
            let text = Option::<String>::deserialize(deserializer)?;
            return text.map(|text| parse(&text)).transpose().map_err(D::Error::custom);
        }
        Option::deserialize(deserializer)
    }
}
