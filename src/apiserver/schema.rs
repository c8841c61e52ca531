//! What the API's kinds look like, and how JSON becomes one.
//!
//! Owns the fields, their order and their types. Decoding is as strict about types and as lenient about unknown fields as the real
//! server's, with Go's error messages. Knows no rule beyond types: those are in `validation`.

mod kinds;
mod openapi;

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{
    document::Document,
    gotime::{Precision, normalise},
};

pub(super) use kinds::{DELETE_OPTIONS, HEAD, LEASE, REVIEW};
pub(super) use openapi::describe;

/// The real server reports at most this many per document.
const COMPLAINTS: usize = 100;

/// A kind of object.
pub(super) struct Kind {
    /// Its name, here and in Go.
    pub(super) name: &'static str,
    /// Its group and version.
    pub(super) version: &'static str,
    fields: &'static [Field],
}

/// `value` as an object of this kind: known fields only, typed and in order; empty ones omitted where Go omits them.
///
/// # Errors
/// Go's message for a field of the wrong type.
pub(super) fn decode(value: &Value, of: &Kind) -> Result<Value, String> {
    object(value, of.name, of.fields, "")
}

/// Complaints of strict field validation: fields that an object of this kind does not have, and duplicate fields. Each is named
/// once, in the order of the document, up to the real server's limit. Without a kind, every field is known.
pub(super) fn complaints(document: &Document, of: Option<&Kind>) -> Vec<String> {
    let mut found = Vec::new();
    complain(document, of.map(|kind| kind.fields), "", &mut found);
    found
}

struct Field {
    name: &'static str,
    of: Type,
    kept: Kept,
}

enum Kept {
    /// Unless it is empty.
    Filled,
    /// A pointer in Go: if it was given, even if empty.
    Given,
    /// A struct in Go: even if it was not given.
    Always,
    Never,
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
    Anything,
}

const fn field(name: &'static str, of: Type) -> Field {
    Field { name, of, kept: Kept::Filled }
}

const fn pointer(name: &'static str, of: Type) -> Field {
    Field { name, of, kept: Kept::Given }
}

const fn always(name: &'static str, of: Type) -> Field {
    Field { name, of, kept: Kept::Always }
}

const fn never(name: &'static str, of: Type) -> Field {
    Field { name, of, kept: Kept::Never }
}

/// What Go calls the struct that it reads [`HEAD`] into.
const UNNAMED: &str = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;

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
            Self::Anything => "v1.FieldsV1".into(),
        }
    }

    /// Those of an object, or of the objects in a list.
    const fn fields(&self) -> Option<&'static [Field]> {
        match self {
            Self::ObjectList(_, fields) | Self::Object(_, fields) => Some(fields),
            Self::Text(_)
            | Self::Int32
            | Self::Int64
            | Self::Bool
            | Self::Time(_)
            | Self::TextMap
            | Self::TextList
            | Self::Anything => None,
        }
    }
}

fn object(value: &Value, go: &str, fields: &[Field], path: &str) -> Result<Value, String> {
    let empty = Map::new();
    let given = match value {
        Value::Object(given) => given,
        Value::Null => &empty,
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            let of = if go.is_empty() { UNNAMED.into() } else { format!("v1.{go}") };
            return Err(format!("json: cannot unmarshal {} into Go value of type {of}", kind(value)));
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

/// None: omitted from the object.
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
        (Type::Object(name, fields), Value::Null) if matches!(field.kept, Kept::Always) => object(value, name, fields, path)?,
        (_, Value::Null) => return Ok(None),
        (Type::Object(name, fields), Value::Object(_)) => object(value, name, fields, path)?,
        (Type::Anything, _) | (Type::Text(_), Value::String(_)) | (Type::Bool, Value::Bool(_)) => value.clone(),
        (Type::Int32, Value::Number(number)) => match number.as_i64().filter(|number| i32::try_from(*number).is_ok()) {
            Some(number) => number.into(),
            None => return refuse(),
        },
        (Type::Int64, Value::Number(number)) => match number.as_i64() {
            Some(number) => number.into(),
            None => return refuse(),
        },
        (Type::Time(precision), Value::String(text)) => normalise(text, *precision)?.map_or(Value::Null, Into::into),
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
    let kept = match field.kept {
        Kept::Filled => !is_empty(&typed),
        Kept::Given | Kept::Always => true,
        Kept::Never => false,
    };
    Ok(kept.then_some(typed))
}

fn complain(document: &Document, known: Option<&[Field]>, path: &str, found: &mut Vec<String>) {
    let entries = match document {
        Document::Object(entries) => entries,
        Document::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                complain(item, known, &format!("{path}[{index}]"), found);
            }
            return;
        }
        Document::Plain(_) => return,
    };
    let mut seen = HashSet::new();
    for (name, value) in entries {
        if found.len() == COMPLAINTS {
            return;
        }
        let path = join(path, name);
        let field = known.and_then(|known| known.iter().find(|field| field.name == name));
        let is_unknown = known.is_some() && field.is_none();
        let wrong = if is_unknown { "unknown" } else { "duplicate" };
        let complaint = format!("{wrong} field {path:?}");
        if (!seen.insert(name) || is_unknown) && !found.contains(&complaint) {
            found.push(complaint);
        }
        if !is_unknown {
            complain(value, field.and_then(|field| field.of.fields()), &path, found);
        }
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.into() } else { format!("{path}.{name}") }
}

/// Inside maps and lists, Go reads null as an empty string.
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

/// Go's name for a value of this type.
pub(super) const fn kind(value: &Value) -> &'static str {
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

    fn lease(object: &Value) -> Result<Value, String> {
        decode(object, &LEASE)
    }

    #[test]
    fn unknown_fields_are_dropped_and_named() {
        let written: Document =
            serde_json::from_str(r#"{"spec": {"futureField": 1, "leaseTransitions": 2}, "extra": {}}"#).unwrap();

        assert_eq!(lease(&written.united()).unwrap(), json!({"metadata": {}, "spec": {"leaseTransitions": 2}}));
        let complaints = complaints(&written, Some(&LEASE));
        assert_eq!(complaints, [r#"unknown field "spec.futureField""#, r#"unknown field "extra""#]);
    }

    #[test]
    fn an_empty_holder_stays_and_a_null_one_goes() {
        let decoded = lease(&json!({"spec": {"holderIdentity": "", "preferredHolder": null}})).unwrap();

        assert_eq!(decoded["spec"], json!({"holderIdentity": ""}));
    }

    #[test]
    fn a_wrong_type_is_refused_in_the_words_of_go() {
        let text = lease(&json!({"spec": {"leaseDurationSeconds": "15"}})).unwrap_err();
        let fraction = lease(&json!({"spec": {"leaseDurationSeconds": 1.5}})).unwrap_err();
        let large = lease(&json!({"spec": {"leaseTransitions": 2_147_483_648_i64}})).unwrap_err();
        let label = lease(&json!({"metadata": {"labels": {"a": 1}}})).unwrap_err();

        assert_eq!(text, "json: cannot unmarshal string into Go struct field LeaseSpec.spec.leaseDurationSeconds of type int32");
        assert!(fraction.contains("cannot unmarshal number 1.5 into"));
        assert!(large.contains("cannot unmarshal number 2147483648 into"));
        assert_eq!(label, "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string");
    }

    #[test]
    fn fields_come_out_in_one_order_whatever_order_they_came_in() {
        let decoded = lease(&json!({"spec": {"renewTime": "2024-01-01T00:00:00.000000Z", "holderIdentity": "a"}})).unwrap();

        let text = decoded["spec"].to_string();
        assert_eq!(text, r#"{"holderIdentity":"a","renewTime":"2024-01-01T00:00:00.000000Z"}"#);
    }
}
