//! Values that are text in files and variables, and something shorter on the link.

use std::fmt;

use serde::{
    Deserializer,
    de::{Error, Visitor},
};

/// Hands what stands there to `parse`, a number or a truth value as the text that it is: `parse` knows best how to refuse it.
pub(super) fn required<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    parse: fn(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    deserializer.deserialize_any(Scalar(parse))
}

/// The same where it may be null.
pub(super) fn optional<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    parse: fn(&str) -> Result<T, String>,
) -> Result<Option<T>, D::Error> {
    deserializer.deserialize_option(Optional(parse))
}

struct Scalar<T>(fn(&str) -> Result<T, String>);

impl<T> Visitor<'_> for Scalar<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.0)(text).map_err(E::custom)
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<T, E> {
        self.visit_str(if truth { "true" } else { "false" })
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }
}

struct Optional<T>(fn(&str) -> Result<T, String>);

impl<'de, T> Visitor<'de> for Optional<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or null")
    }

    fn visit_none<E>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<T>, D::Error> {
        required(deserializer, self.0).map(Some)
    }
}
