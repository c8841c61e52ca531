//! Which Leases a LIST or WATCH is about.
//!
//! Owns labelSelector and fieldSelector: equality and inequality, of labels and of name and namespace, and whether there is a label.

use serde_json::Value;

use super::status::Status;

/// The requirements that a Lease has to meet.
#[derive(Clone, Debug)]
pub(super) struct Selector(Vec<Requirement>);

#[derive(Clone, Debug)]
struct Requirement {
    /// The JSON pointer to the value in the Lease.
    pointer: String,
    /// The wanted value. None: any.
    value: Option<String>,
    equal: bool,
}

impl Selector {
    /// # Errors
    /// 400 for anything else.
    pub(super) fn parse(labels: &str, fields: &str) -> Result<Self, Status> {
        let mut requirements = Vec::new();
        for (text, place) in [(labels, "/metadata/labels/"), (fields, "/")] {
            for part in text.split(',').filter(|part| !part.is_empty()) {
                let requirement = Requirement::parse(part, place);
                let refused = || Status::bad_request(format!("the selector {part:?} is none that this server knows"));
                requirements.push(requirement.ok_or_else(refused)?);
            }
        }
        Ok(Self(requirements))
    }

    pub(super) fn matches(&self, lease: &Value) -> bool {
        let holds = |it: &Requirement| {
            let said = lease.pointer(&it.pointer).and_then(Value::as_str);
            let holds = match &it.value {
                Some(value) => said == Some(value),
                None => said.is_some(),
            };
            holds == it.equal
        };
        self.0.iter().all(holds)
    }
}

impl Requirement {
    fn parse(text: &str, place: &str) -> Option<Self> {
        let (key, value, equal) = match text.split_once('=') {
            Some((key, value)) => {
                let (key, equal) = key.strip_suffix('!').map_or((key, true), |key| (key, false));
                (key.trim(), Some(value.strip_prefix('=').unwrap_or(value).trim()), equal)
            }
            None if place == "/" => return None,
            None => {
                let key = text.trim();
                (key.trim_start_matches('!').trim(), None, !key.starts_with('!'))
            }
        };
        let is_plain = |text: &str| text.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_./".contains(letter));
        let pointer = match (place, key) {
            ("/", "metadata.name" | "metadata.namespace") => key.replace('.', "/"),
            ("/", _) => return None,
            _ => key.replace('/', "~1"),
        };
        let requirement = Self { pointer: format!("{place}{pointer}"), value: value.map(str::to_owned), equal };
        (!key.is_empty() && is_plain(key) && value.is_none_or(is_plain)).then_some(requirement)
    }
}
