//! What a Lease looks like, and how JSON becomes one.
//!
//! Owns the fields, their order and their types. Decoding is as strict about types and as forgetful about unknown fields as the
//! real server's, and complains in Go's words. Knows no rule beyond types: those are `validation`'s.

use serde_json::{Map, Value};

use super::gotime::{Precision, normalise};

/// A Lease as it is stored and served, and what was dropped on the way.
#[derive(Debug)]
pub(super) struct Decoded {
    /// Every field known, typed and in order; empty ones absent where Go omits them.
    pub(super) object: Value,
    /// Paths of the unknown fields that were dropped.
    pub(super) unknown: Vec<String>,
}

/// `value` as a Lease.
///
/// # Errors
/// Go's message for a field of the wrong type.
pub(super) fn decode(value: &Value) -> Result<Decoded, String> {
    let object = object(value, "Lease", LEASE, "")?;
    let mut unknown = Vec::new();
    find_unknown(value, LEASE, "", &mut unknown);
    Ok(Decoded { object, unknown })
}

struct Field {
    name: &'static str,
    of: Type,
    /// A pointer in Go: kept although empty, absent only if it was not given.
    pointer: bool,
}

enum Type {
    Text(&'static str),
    Int32,
    Int64,
    Bool,
    Time(Precision),
    TextMap,
    TextList,
    ObjectList(&'static str, &'static [Field]),
    Object(&'static str, &'static [Field]),
    Dropped,
}

const fn field(name: &'static str, of: Type) -> Field {
    Field { name, of, pointer: false }
}

const fn pointer(name: &'static str, of: Type) -> Field {
    Field { name, of, pointer: true }
}

const LEASE: &[Field] = &[
    field("kind", Type::Text("string")),
    field("apiVersion", Type::Text("string")),
    pointer("metadata", Type::Object("ObjectMeta", METADATA)),
    pointer("spec", Type::Object("LeaseSpec", SPEC)),
];

const METADATA: &[Field] = &[
    field("name", Type::Text("string")),
    field("generateName", Type::Text("string")),
    field("namespace", Type::Text("string")),
    field("selfLink", Type::Dropped),
    field("uid", Type::Text("types.UID")),
    field("resourceVersion", Type::Text("string")),
    field("generation", Type::Int64),
    field("creationTimestamp", Type::Time(Precision::Seconds)),
    pointer("deletionTimestamp", Type::Time(Precision::Seconds)),
    pointer("deletionGracePeriodSeconds", Type::Int64),
    field("labels", Type::TextMap),
    field("annotations", Type::TextMap),
    field("ownerReferences", Type::ObjectList("OwnerReference", OWNER)),
    field("finalizers", Type::TextList),
    field("managedFields", Type::Dropped),
];

const OWNER: &[Field] = &[
    pointer("apiVersion", Type::Text("string")),
    pointer("kind", Type::Text("string")),
    pointer("name", Type::Text("string")),
    pointer("uid", Type::Text("types.UID")),
    pointer("controller", Type::Bool),
    pointer("blockOwnerDeletion", Type::Bool),
];

const SPEC: &[Field] = &[
    pointer("holderIdentity", Type::Text("string")),
    pointer("leaseDurationSeconds", Type::Int32),
    pointer("acquireTime", Type::Time(Precision::Micros)),
    pointer("renewTime", Type::Time(Precision::Micros)),
    pointer("leaseTransitions", Type::Int32),
    pointer("strategy", Type::Text("v1.CoordinatedLeaseStrategy")),
    pointer("preferredHolder", Type::Text("string")),
];

impl Type {
    fn go(&self) -> String {
        match self {
            Self::Text(name) => (*name).into(),
            Self::Int32 => "int32".into(),
            Self::Int64 => "int64".into(),
            Self::Bool => "bool".into(),
            Self::Time(_) => "string".into(),
            Self::TextMap => "map[string]string".into(),
            Self::TextList => "[]string".into(),
            Self::ObjectList(name, _) => format!("[]v1.{name}"),
            Self::Object(name, _) => format!("v1.{name}"),
            Self::Dropped => String::new(),
        }
    }
}

fn object(value: &Value, go: &str, fields: &[Field], path: &str) -> Result<Value, String> {
    let empty = Map::new();
    let given = match value {
        Value::Object(given) => given,
        Value::Null => &empty,
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err(format!("json: cannot unmarshal {} into Go value of type v1.{go}", kind(value)));
        }
    };
    let mut object = Map::new();
    for field in fields {
        let value = given.get(field.name).unwrap_or(&Value::Null);
        if let Some(value) = typed(value, field, go, &join(path, field.name))? {
            object.insert(field.name.into(), value);
        }
    }
    Ok(object.into())
}

/// None: absent from the object.
fn typed(value: &Value, field: &Field, go: &str, path: &str) -> Result<Option<Value>, String> {
    let mismatch = |value: &Value, of: &str| {
        let given = match value.as_number() {
            Some(number) if of.starts_with("int") => format!("number {number}"),
            Some(_) | None => kind(value).into(),
        };
        let path = path.split(']').map(|part| part.split('[').next().unwrap_or_default()).collect::<String>();
        format!("json: cannot unmarshal {given} into Go struct field {go}.{path} of type {of}")
    };
    let refuse = || Err(mismatch(value, &field.of.go()));
    let typed = match (&field.of, value) {
        (Type::Object(name, fields), Value::Null | Value::Object(_)) => object(value, name, fields, path)?,
        (Type::Dropped, _) | (_, Value::Null) => return Ok(None),
        (Type::Text(_), Value::String(_)) | (Type::Bool, Value::Bool(_)) => value.clone(),
        (Type::Int32, Value::Number(number)) => match number.as_i64().filter(|number| i32::try_from(*number).is_ok()) {
            Some(number) => number.into(),
            None => return refuse(),
        },
        (Type::Int64, Value::Number(number)) => match number.as_i64() {
            Some(number) => number.into(),
            None => return refuse(),
        },
        (Type::Time(precision), Value::String(text)) => normalise(text, *precision)?.into(),
        (Type::TextMap, Value::Object(entries)) => {
            let mut entries: Vec<_> = entries.iter().collect();
            entries.sort_by_key(|(name, _)| *name);
            let mut map = Map::new();
            for (name, value) in entries {
                map.insert(name.clone(), text(value).ok_or_else(|| mismatch(value, "string"))?);
            }
            map.into()
        }
        (Type::TextList, Value::Array(items)) => {
            let texts = items.iter().map(|item| text(item).ok_or_else(|| mismatch(item, "string")));
            texts.collect::<Result<Vec<_>, _>>()?.into()
        }
        (Type::ObjectList(name, fields), Value::Array(items)) => {
            let mut list = Vec::new();
            for (index, item) in items.iter().enumerate() {
                list.push(object(item, name, fields, &format!("{path}[{index}]"))?);
            }
            list.into()
        }
        (
            Type::Text(_)
            | Type::Int32
            | Type::Int64
            | Type::Bool
            | Type::Time(_)
            | Type::TextMap
            | Type::TextList
            | Type::ObjectList(..)
            | Type::Object(..),
            _,
        ) => return refuse(),
    };
    Ok((field.pointer || !is_empty(&typed)).then_some(typed))
}

/// In the order in which they stand in the document.
fn find_unknown(value: &Value, fields: &[Field], path: &str, unknown: &mut Vec<String>) {
    for (name, value) in value.as_object().into_iter().flatten() {
        let path = join(path, name);
        match fields.iter().find(|field| field.name == name).map(|field| &field.of) {
            None => unknown.push(path),
            Some(Type::Object(_, fields)) => find_unknown(value, fields, &path, unknown),
            Some(Type::ObjectList(_, fields)) => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    find_unknown(item, fields, &format!("{path}[{index}]"), unknown);
                }
            }
            Some(
                Type::Text(_)
                | Type::Int32
                | Type::Int64
                | Type::Bool
                | Type::Time(_)
                | Type::TextMap
                | Type::TextList
                | Type::Dropped,
            ) => {}
        }
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.into() } else { format!("{path}.{name}") }
}

/// Null is Go's empty string inside maps and lists.
fn text(value: &Value) -> Option<Value> {
    match value {
        Value::String(_) => Some(value.clone()),
        Value::Null => Some("".into()),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

const fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_fields_are_dropped_and_named() {
        let decoded = decode(&json!({"spec": {"futureField": 1, "leaseTransitions": 2}, "extra": {}})).unwrap();

        assert_eq!(decoded.object, json!({"metadata": {}, "spec": {"leaseTransitions": 2}}));
        assert_eq!(decoded.unknown, ["spec.futureField", "extra"]);
    }

    #[test]
    fn an_empty_holder_stays_and_a_null_one_goes() {
        let decoded = decode(&json!({"spec": {"holderIdentity": "", "preferredHolder": null}})).unwrap();

        assert_eq!(decoded.object["spec"], json!({"holderIdentity": ""}));
    }

    #[test]
    fn a_wrong_type_is_refused_in_the_words_of_go() {
        let text = decode(&json!({"spec": {"leaseDurationSeconds": "15"}})).unwrap_err();
        let fraction = decode(&json!({"spec": {"leaseDurationSeconds": 1.5}})).unwrap_err();
        let large = decode(&json!({"spec": {"leaseTransitions": 2_147_483_648_i64}})).unwrap_err();
        let label = decode(&json!({"metadata": {"labels": {"a": 1}}})).unwrap_err();

        assert_eq!(text, "json: cannot unmarshal string into Go struct field LeaseSpec.spec.leaseDurationSeconds of type int32");
        assert!(fraction.contains("cannot unmarshal number 1.5 into"));
        assert!(large.contains("cannot unmarshal number 2147483648 into"));
        assert_eq!(label, "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string");
    }

    #[test]
    fn fields_come_out_in_one_order_whatever_order_they_came_in() {
        let decoded = decode(&json!({"spec": {"renewTime": "2024-01-01T00:00:00.000000Z", "holderIdentity": "a"}})).unwrap();

        let text = decoded.object["spec"].to_string();
        assert_eq!(text, r#"{"holderIdentity":"a","renewTime":"2024-01-01T00:00:00.000000Z"}"#);
    }
}
