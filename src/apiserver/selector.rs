//! Label and field selectors.
//!
//! Owns what they select, and the syntax of field selectors, of which Leases support two: `metadata.name` and
//! `metadata.namespace`.

mod labels;

use super::{lease::Lease, status::Status};

/// Which Leases a LIST or watch covers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Selector {
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    subject: Subject,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Subject {
    Name,
    Namespace,
    Label(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Exists,
    Missing,
    In(Vec<String>),
    NotIn(Vec<String>),
    Above(i64),
    Below(i64),
}

impl Selector {
    /// Both selectors of a request; either may be empty.
    ///
    /// # Errors
    /// 400 if one is not a selector.
    pub(super) fn parse(labels: &str, fields: &str) -> Result<Self, Status> {
        let mut terms = labels::parse(labels).map_err(Status::bad_request)?;
        terms.extend(field_terms(fields).map_err(Status::bad_request)?);
        Ok(Self { terms })
    }

    /// Whether it selects everything.
    pub(super) const fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Whether `lease` is selected.
    pub(super) fn matches(&self, lease: &Lease) -> bool {
        self.terms.iter().all(|term| {
            let value = match &term.subject {
                Subject::Name => Some(lease.name()),
                Subject::Namespace => Some(lease.namespace()),
                Subject::Label(key) => lease.texts("labels").find(|(name, _)| name == key).map(|(_, value)| value),
            };
            let number = || value.and_then(|value| value.parse::<i64>().ok());
            match &term.test {
                Test::Exists => value.is_some(),
                Test::Missing => value.is_none(),
                Test::In(values) => value.is_some_and(|value| values.iter().any(|one| one == value)),
                Test::NotIn(values) => value.is_none_or(|value| values.iter().all(|one| one != value)),
                Test::Above(limit) => number().is_some_and(|number| number > *limit),
                Test::Below(limit) => number().is_some_and(|number| number < *limit),
            }
        })
    }
}

/// Splits at commas that no backslash precedes.
fn field_terms(text: &str) -> Result<Vec<Term>, String> {
    let mut escaped = false;
    let terms = text.split(move |letter| {
        let splits = letter == ',' && !escaped;
        escaped = letter == '\\' && !escaped;
        splits
    });
    terms.filter(|term| !term.is_empty()).map(field_term).collect()
}

fn field_term(text: &str) -> Result<Term, String> {
    let operators = [("!=", false), ("==", true), ("=", true)];
    let split = text.char_indices().find_map(|(place, _)| {
        let (field, rest) = text.split_at(place);
        operators.iter().find_map(|(operator, equal)| Some((field, *equal, rest.strip_prefix(operator)?)))
    });
    let (field, equal, value) = split.ok_or_else(|| format!("invalid selector: '{text}'; can't understand '{text}'"))?;
    let values = vec![unescaped(value)?];
    let subject = match field {
        "metadata.name" => Subject::Name,
        "metadata.namespace" => Subject::Namespace,
        _ => return Err(format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")),
    };
    Ok(Term { subject, test: if equal { Test::In(values) } else { Test::NotIn(values) } })
}

fn unescaped(value: &str) -> Result<String, String> {
    let mut plain = String::new();
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some(letter @ ('\\' | ',' | '=')) => plain.push(letter),
                other => {
                    let other = other.map(String::from).unwrap_or_default();
                    return Err(format!("invalid field selector: invalid escape sequence: \\{other}"));
                }
            },
            // As a number, which is how Go prints it.
            ',' | '=' => {
                let number = u32::from(letter);
                return Err(format!("invalid field selector: unescaped character in value: {number}"));
            }
            other => plain.push(other),
        }
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lease() -> Lease {
        Lease::new(json!({"metadata": {"name": "a", "namespace": "n", "labels": {"app": "x", "empty": "", "rank": "5"}}}))
    }

    #[test]
    fn label_selectors_select() {
        for (selector, expected) in [
            ("", true),
            ("app=x", true),
            ("app == x", true),
            ("app=y", false),
            ("app!=y", true),
            ("other!=y", true),
            ("app", true),
            ("!app", false),
            ("!other", true),
            ("empty=", true),
            ("app in (w, x),empty", true),
            ("app notin (x)", false),
            ("other notin (x)", true),
            ("app in (x),app=y", false),
            ("app in (,x)", true),
            ("app notin ()", true),
            ("rank>4,rank < 6", true),
            ("rank>5", false),
            ("app>1", false),
        ] {
            assert_eq!(Selector::parse(selector, "").unwrap().matches(&lease()), expected, "{selector:?}");
        }
    }

    #[test]
    fn field_selectors_know_name_and_namespace() {
        for (selector, expected) in [("metadata.name=a", true), ("metadata.name!=a", false), ("metadata.namespace=n", true)] {
            assert_eq!(Selector::parse("", selector).unwrap().matches(&lease()), expected, "{selector:?}");
        }
        assert_eq!(Selector::parse("", "spec.holderIdentity=a").unwrap_err().code, 400);
    }

    #[test]
    fn what_is_no_selector_is_a_bad_request() {
        for bad in ["a b", "a in (b", "a within (b)", "a,", ",", "!", "!a=b", "a=b c", "a>x", "-a", "a=-"] {
            assert_eq!(Selector::parse(bad, "").unwrap_err().code, 400, "{bad:?}");
        }
    }
}
