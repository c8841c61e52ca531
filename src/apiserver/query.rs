//! The query of a URL.

use std::{collections::BTreeMap, num::IntErrorKind};

use super::status::Status;

/// Decoded parameters; of a repeated one the first value counts, unless it is a list.
#[derive(Clone, Debug, Default)]
pub(super) struct Query(BTreeMap<String, Vec<String>>);

impl Query {
    /// Parses what follows the question mark.
    pub(super) fn parse(text: &str) -> Self {
        let mut parameters = BTreeMap::<_, Vec<_>>::new();
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            parameters.entry(name.into_owned()).or_default().push(value.into_owned());
        }
        Self(parameters)
    }

    /// A parameter; empty if absent.
    pub(super) fn text(&self, name: &str) -> &str {
        self.first(name).unwrap_or_default()
    }

    /// All values of a parameter that is a list.
    pub(super) fn list(&self, name: &str) -> &[String] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// A numeric parameter, if present.
    ///
    /// # Errors
    /// 400 in Go's words.
    pub(super) fn number(&self, name: &str) -> Result<Option<i64>, Status> {
        let refuse = |text: &str, why: &IntErrorKind| {
            let overflows = matches!(why, IntErrorKind::PosOverflow | IntErrorKind::NegOverflow);
            let why = if overflows { "value out of range" } else { "invalid syntax" };
            Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: {why}"))
        };
        self.first(name).map(|text| text.parse::<i64>().map_err(|why| refuse(text, why.kind()))).transpose()
    }

    /// Whether the parameter is present.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// A boolean parameter as Go reads it: true if present and not `0` or `false` in any case.
    pub(super) fn is_true(&self, name: &str) -> bool {
        self.first(name).is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    fn first(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(|values| values.first()).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone() {
        let query = Query::parse("fieldSelector=metadata.name%3Da&labelSelector=x+in+%28a%2Cb%29&watch&limit=0&continue=100%");

        assert_eq!(query.text("fieldSelector"), "metadata.name=a");
        assert_eq!(query.text("labelSelector"), "x in (a,b)");
        assert!(query.is_true("watch"));
        assert!(!query.is_true("limit"));
        assert_eq!(query.text("continue"), "100%");
    }
}
