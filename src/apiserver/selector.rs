//! Label and field selectors.
//!
//! Owns their language as far as Leases have it: all of the label selectors, and `metadata.name` and `metadata.namespace` as fields.

use super::{lease::Lease, names, status::Status};

/// Which Leases a LIST or a watch is about.
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
}

impl Selector {
    /// Both selectors of a request; either may be empty.
    ///
    /// # Errors
    /// 400 for what is no selector.
    pub(super) fn parse(labels: &str, fields: &str) -> Result<Self, Status> {
        let mut terms = Vec::new();
        for term in split(labels) {
            terms.push(label_term(term)?);
        }
        for term in split(fields) {
            terms.push(field_term(term)?);
        }
        Ok(Self { terms })
    }

    /// Whether `lease` is one of them.
    pub(super) fn matches(&self, lease: &Lease) -> bool {
        self.terms.iter().all(|term| {
            let value = match &term.subject {
                Subject::Name => Some(lease.name()),
                Subject::Namespace => Some(lease.namespace()),
                Subject::Label(key) => lease.texts("labels").find(|(name, _)| name == key).map(|(_, value)| value),
            };
            match &term.test {
                Test::Exists => value.is_some(),
                Test::Missing => value.is_none(),
                Test::In(values) => value.is_some_and(|value| values.iter().any(|one| one == value)),
                Test::NotIn(values) => value.is_none_or(|value| values.iter().all(|one| one != value)),
            }
        })
    }
}

/// At commas outside of parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    let parts = text.split(move |letter| {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    });
    parts.map(str::trim).filter(|part| !part.is_empty()).collect()
}

fn label_term(text: &str) -> Result<Term, Status> {
    let (subject, test) = label_test(text)?;
    let values = match &test {
        Test::In(values) | Test::NotIn(values) => values.as_slice(),
        Test::Exists | Test::Missing => &[],
    };
    let well_formed = names::qualified(&subject).is_empty() && values.iter().all(|value| names::label_value(value).is_empty());
    if well_formed { Ok(Term { subject: Subject::Label(subject), test }) } else { Err(refuse(text)) }
}

fn label_test(text: &str) -> Result<(String, Test), Status> {
    let label = |key: &str| key.trim().to_owned();
    let one = |value: &str| vec![label(value)];
    if let Some(key) = text.strip_prefix('!') {
        return Ok((label(key), Test::Missing));
    }
    if let Some((key, value)) = text.split_once("!=") {
        return Ok((label(key), Test::NotIn(one(value))));
    }
    if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return Ok((label(key), Test::In(one(value))));
    }
    let Some((head, list)) = text.split_once('(') else {
        if text.contains(char::is_whitespace) {
            return Err(refuse(text));
        }
        return Ok((label(text), Test::Exists));
    };
    let values = list.strip_suffix(')').ok_or_else(|| refuse(text))?;
    let values = values.split(',').map(|value| value.trim().to_owned()).collect();
    match head.split_whitespace().collect::<Vec<_>>().as_slice() {
        [key, "in"] => Ok((label(key), Test::In(values))),
        [key, "notin"] => Ok((label(key), Test::NotIn(values))),
        _ => Err(refuse(text)),
    }
}

fn field_term(text: &str) -> Result<Term, Status> {
    let (field, value, equal) = if let Some((field, value)) = text.split_once("!=") {
        (field, value, false)
    } else if let Some((field, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        (field, value, true)
    } else {
        return Err(Status::bad_request(format!("invalid selector: '{text}'; can't understand '{text}'")));
    };
    let subject = match field {
        "metadata.name" => Subject::Name,
        "metadata.namespace" => Subject::Namespace,
        _ => {
            return Err(Status::bad_request(format!(
                "{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
            )));
        }
    };
    let values = vec![value.to_owned()];
    Ok(Term { subject, test: if equal { Test::In(values) } else { Test::NotIn(values) } })
}

fn refuse(text: &str) -> Status {
    Status::bad_request(format!("unable to parse requirement: {text:?}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lease() -> Lease {
        Lease::new(json!({"metadata": {"name": "a", "namespace": "n", "labels": {"app": "x", "empty": ""}}}))
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
        for bad in ["a b", "a in (b", "a within (b)"] {
            assert_eq!(Selector::parse(bad, "").unwrap_err().code, 400, "{bad:?}");
        }
    }
}
