//! The fields in which two states of an object differ, and the patches that change them.
//!
//! Maps are entered; a list or a scalar is one value; null is absent. A map that is absent on one side is a field too, with `{}` as its
//! value, so that an undo removes an empty map with its last entry. `{}` stands for a map with any entries.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::MARK;

/// Metadata that the API server sets.
const SERVERS: [&str; 7] = [
    "uid",
    "resourceVersion",
    "generation",
    "managedFields",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

/// A field that changes. None: absent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Field {
    /// The keys that lead to it.
    pub path: Vec<String>,
    /// The value when it was planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<Value>,
    /// The value that is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
    /// The value that undo puts back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
}

/// The values of a field.
#[derive(Clone, Copy, Debug)]
pub(super) enum Side {
    Found,
    After,
    Before,
}

impl Field {
    pub(super) const fn value(&self, side: Side) -> Option<&Value> {
        match side {
            Side::Found => self.found.as_ref(),
            Side::After => self.after.as_ref(),
            Side::Before => self.before.as_ref(),
        }
    }

    /// Returns true if its value in `object` is that of one of these sides.
    pub(super) fn is_any(&self, object: &Value, sides: &[Side]) -> bool {
        let current = at(object, &self.path);
        sides.iter().any(|side| is_same(current, self.value(*side)))
    }

    /// Its path for people.
    pub(super) fn name(&self) -> String {
        self.path.join(".")
    }
}

/// Returns the object without status, the mark, and what the API server sets.
pub(super) fn comparable(object: &Value) -> Value {
    let mut object = object.clone();
    let Some(map) = object.as_object_mut() else { return object };
    map.remove("status");
    if let Some(Value::Object(metadata)) = map.get_mut("metadata") {
        metadata.retain(|key, _| !SERVERS.contains(&key.as_str()));
        if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
            annotations.remove(MARK);
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
    }
    object
}

/// Returns the fields that lead from one state of an object to another; `before` is what was found.
pub(super) fn differences(found: &Value, after: &Value) -> Vec<Field> {
    let mut fields = Vec::new();
    compare(&mut Vec::new(), Some(&comparable(found)), Some(&comparable(after)), &mut fields);
    fields
}

fn compare(path: &mut Vec<String>, found: Option<&Value>, after: Option<&Value>, fields: &mut Vec<Field>) {
    let (found, after) = (found.filter(|value| !value.is_null()), after.filter(|value| !value.is_null()));
    let field = |path: &[String], found: Option<Value>, after| Field { path: path.to_vec(), before: found.clone(), found, after };
    if ![found, after].into_iter().flatten().all(Value::is_object) {
        if found != after {
            fields.push(field(path, found.cloned(), after.cloned()));
        }
        return;
    }
    if found.is_some() != after.is_some() {
        fields.push(field(path, found.map(|_| json!({})), after.map(|_| json!({}))));
    }
    let maps = [found, after].map(|side| side.and_then(Value::as_object));
    let keys: BTreeSet<&String> = maps.iter().flatten().flat_map(|map| map.keys()).collect();
    for key in keys {
        path.push(key.clone());
        compare(path, maps[0].and_then(|map| map.get(key)), maps[1].and_then(|map| map.get(key)), fields);
        path.pop();
    }
}

/// Returns the object with all fields at the values of this side. A map that others have filled stays.
pub(super) fn with(object: &Value, fields: &[Field], side: Side) -> Value {
    let mut object = object.clone();
    for field in fields {
        if let Some(value) = field.value(side)
            && !is_same(at(&object, &field.path), Some(value))
        {
            *parent(&mut object, &field.path) = value.clone();
        }
    }
    // Entries go before the map that holds them.
    for field in fields.iter().rev() {
        let Some((last, parents)) = field.path.split_last() else { continue };
        let is_filled = at(&object, &field.path).and_then(Value::as_object).is_some_and(|map| !map.is_empty());
        if field.value(side).is_none()
            && !is_filled
            && let Some(map) = at_mut(&mut object, parents).and_then(Value::as_object_mut)
        {
            map.remove(last);
        }
    }
    object
}

/// Returns the merge patch that leads from one state to another.
pub(super) fn merge_patch(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else { return to.clone() };
    let mut patch: Map<String, Value> =
        from.keys().filter(|key| !to.contains_key(*key)).map(|key| (key.clone(), Value::Null)).collect();
    for (key, value) in to {
        let change = match from.get(key) {
            Some(old) if old == value => continue,
            Some(old) => merge_patch(old, value),
            None => value.clone(),
        };
        patch.insert(key.clone(), change);
    }
    Value::Object(patch)
}

/// Returns true if the object has this part. A null in it is absent.
pub(super) fn contains(object: Option<&Value>, part: &Value) -> bool {
    match (object, part) {
        (None | Some(Value::Null), Value::Null) => true,
        (Some(Value::Object(object)), Value::Object(part)) => part.iter().all(|(key, part)| contains(object.get(key), part)),
        (Some(object), part) => object == part,
        (None, _) => false,
    }
}

/// Returns true if a content says something about this path.
pub(super) fn names(content: &Value, path: &[String]) -> bool {
    match (content, path.split_first()) {
        (Value::Object(map), Some((key, rest))) => map.get(key).is_some_and(|content| names(content, rest)),
        (_, Some(_) | None) => true,
    }
}

/// Returns a content without its nulls.
pub(super) fn without_nulls(content: &Value) -> Value {
    let Value::Object(map) = content else { return content.clone() };
    map.iter().filter(|(_, value)| !value.is_null()).map(|(key, value)| (key.clone(), without_nulls(value))).collect()
}

/// Removes from an object what is null in a content.
pub(super) fn remove_nulls(object: &mut Value, content: &Value) {
    let (Value::Object(object), Value::Object(content)) = (object, content) else { return };
    for (key, content) in content {
        if content.is_null() {
            object.remove(key);
        } else if let Some(object) = object.get_mut(key) {
            remove_nulls(object, content);
        }
    }
}

/// Returns the value at a path of an object. A null is absent.
pub(super) fn at<'a>(object: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(object, |object, key| object.get(key)).filter(|value| !value.is_null())
}

fn at_mut<'a>(object: &'a mut Value, path: &[String]) -> Option<&'a mut Value> {
    path.iter().try_fold(object, |object, key| object.get_mut(key))
}

/// Returns the place of a path, below maps that are made where they are missing.
fn parent<'a>(object: &'a mut Value, path: &[String]) -> &'a mut Value {
    path.iter().fold(object, |object, key| {
        if !object.is_object() {
            *object = json!({});
        }
        &mut object[key.as_str()]
    })
}

fn is_same(current: Option<&Value>, wanted: Option<&Value>) -> bool {
    let is_map = |value: Option<&Value>| value.is_some_and(Value::is_object);
    let is_any_map = wanted.and_then(Value::as_object).is_some_and(Map::is_empty);
    current == wanted || is_any_map && is_map(current)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_undo_puts_back_exactly_what_was_found_and_keeps_what_others_added() {
        let found = json!({"spec": {"strategy": {"type": "Recreate"}, "list": [1]}, "status": {"x": 1}});
        let after =
            json!({"spec": {"strategy": {"type": "Rolling", "rolling": {"surge": 1}}, "list": [1, 2]}, "status": {"x": 2}});
        let fields = differences(&found, &after);
        let mut edited = with(&found, &fields, Side::After);
        assert_eq!(edited["spec"], after["spec"]);
        edited["spec"]["strategy"]["rolling"]["others"] = json!(2);

        let clean = merge_patch(&after, &with(&after, &fields, Side::Before));
        let kept = merge_patch(&edited, &with(&edited, &fields, Side::Before));

        assert_eq!(clean, json!({"spec": {"list": [1], "strategy": {"type": "Recreate", "rolling": null}}}));
        assert_eq!(kept, json!({"spec": {"list": [1], "strategy": {"type": "Recreate", "rolling": {"surge": null}}}}));
        assert!(fields.iter().all(|field| field.is_any(&edited, &[Side::After])));
    }
}
