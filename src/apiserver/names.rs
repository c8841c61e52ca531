//! The syntax of names, with the real server's error messages.
//!
//! Each function returns what is wrong with a text; nothing if it is well formed.

const LABEL_FORM: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const KEY_FORM: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

/// A DNS subdomain: the name of a Lease. The `prefix` of a generated name may end in a hyphen; upstream does not look at the
/// letter before that either.
pub(super) fn subdomain(name: &str, prefix: bool) -> Vec<String> {
    let masked = name.strip_suffix('-').filter(|_| prefix).and_then(|stem| stem.get(..stem.len().checked_sub(1)?));
    let masked = masked.map(|stem| format!("{stem}a"));
    let name = masked.as_deref().unwrap_or(name);
    let mut wrong = longer_than(name, 253, "characters");
    if !is_subdomain(name) {
        wrong.push(format!(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end \
             with an alphanumeric character (e.g. 'example.com', regex used for validation is '{LABEL_FORM}(\\.{LABEL_FORM})*')"
        ));
    }
    wrong
}

/// A valid single path segment of a URL.
pub(super) fn path_segment(name: &str, prefix: bool) -> Vec<String> {
    if !prefix && matches!(name, "." | "..") {
        return vec![format!("may not be '{name}'")];
    }
    ["/", "%"].iter().filter(|part| name.contains(**part)).map(|part| format!("may not contain '{part}'")).collect()
}

/// A DNS label: the name of a namespace.
pub(super) fn label(name: &str) -> Vec<String> {
    let mut wrong = longer_than(name, 63, "characters");
    if is_label(name) {
        return wrong;
    }
    wrong.push(if is_subdomain(name) {
        "must not contain dots".into()
    } else {
        format!(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an \
             alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{LABEL_FORM}')"
        )
    });
    wrong
}

/// A qualified name: the key of a label or an annotation, a finalizer.
pub(super) fn qualified(key: &str) -> Vec<String> {
    let form = format!(
        "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
         'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{KEY_FORM}')"
    );
    let mut wrong = Vec::new();
    let parts: Vec<&str> = key.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                wrong.push("prefix part must be non-empty".into());
            } else {
                wrong.extend(subdomain(prefix, false).iter().map(|rule| format!("prefix part {rule}")));
            }
            *name
        }
        _ => {
            return vec![format!(
                "a valid label key {form} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".into());
    }
    wrong.extend(longer_than(name, 63, "bytes").iter().map(|rule| format!("name part {rule}")));
    if !is_key(name) {
        wrong.push(format!("name part {form}"));
    }
    wrong
}

/// The value of a label.
pub(super) fn label_value(value: &str) -> Vec<String> {
    let mut wrong = longer_than(value, 63, "bytes");
    if !value.is_empty() && !is_key(value) {
        wrong.push(format!(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with \
             an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '({KEY_FORM})?')"
        ));
    }
    wrong
}

fn longer_than(text: &str, limit: usize, unit: &str) -> Vec<String> {
    if text.len() > limit { vec![format!("must be no more than {limit} {unit}")] } else { Vec::new() }
}

fn is_subdomain(name: &str) -> bool {
    name.split('.').all(is_label)
}

fn is_label(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    framed(name, plain, |byte| plain(byte) || byte == b'-')
}

fn is_key(name: &str) -> bool {
    framed(name, |byte| byte.is_ascii_alphanumeric(), |byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// Not empty, `ends` at both ends, `inner` throughout.
fn framed(text: &str, ends: impl Fn(u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    let (Some(first), Some(last)) = (text.bytes().next(), text.bytes().next_back()) else { return false };
    ends(first) && ends(last) && text.bytes().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subdomains_are_lower_case_and_dotted() {
        assert!(subdomain("a-b.c1", false).is_empty());
        assert!(subdomain("a-", true).is_empty());
        for bad in ["", "A", "a-", "a..b", ".a", "a_b"] {
            assert!(!subdomain(bad, false).is_empty(), "{bad:?}");
        }
    }

    #[test]
    fn qualified_names_have_at_most_one_prefix() {
        assert!(qualified("tenure.dev/step-down").is_empty());
        assert!(qualified("Plain_Name.1").is_empty());
        for bad in ["", "/a", "a/", "a/b/c", "UPPER/a", "-a"] {
            assert!(!qualified(bad).is_empty(), "{bad:?}");
        }
    }

    #[test]
    fn a_label_value_may_be_empty_but_not_odd() {
        assert!(label_value("").is_empty());
        assert!(!label_value("a b").is_empty());
        assert!(!label_value(&"a".repeat(64)).is_empty());
    }
}
