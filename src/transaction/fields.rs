//! The fields that a content names in an object, and the patches that change them.
//!
//! Named are the leaves of the content; in a list with keys, the leaves of the named items. A field that the server derives is none
//! of them: it is not written, not stored and not compared.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    MARK,
    paths::{Path, Step, as_map, at, has, is_shared, keys_of, node, remove, set, shown},
};

/// Metadata that the API server does not set.
const METADATA: [&str; 7] = ["name", "namespace", "generateName", "labels", "annotations", "finalizers", "ownerReferences"];

/// A field that a change names. None: absent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Field {
    /// The steps that lead to it; at least one.
    pub path: Vec<Step>,
    /// The value that was found, which an undo puts back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// The value that the change makes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
    /// How many of the first steps were there already. An undo removes the map that was made for the field.
    pub known: usize,
}

/// The values of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Before,
    After,
}

impl Field {
    fn new(path: Path, found: &Value, after: Option<Value>) -> Self {
        let is_there = |steps: &usize| path.get(..*steps).and_then(|path| at(found, path)).is_some();
        let known = (1..=path.len()).take_while(is_there).count();
        Self { before: at(found, &path).cloned(), after, known, path }
    }

    pub(super) const fn value(&self, side: Side) -> Option<&Value> {
        match side {
            Side::Before => self.before.as_ref(),
            Side::After => self.after.as_ref(),
        }
    }

    /// Returns true if its value in `object` is that of this side.
    pub(super) fn is(&self, side: Side, object: &Value) -> bool {
        at(object, &self.path) == self.value(side)
    }

    /// Returns true if the change makes another value than was found.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.before != self.after
    }

    /// Its path for people.
    #[must_use]
    pub fn name(&self) -> String {
        shown(&self.path)
    }

    /// Brings it to a side in an object.
    fn put(&self, side: Side, object: &mut Value) {
        if let Some(value) = self.value(side) {
            return set(object, &self.path, value.clone());
        }
        // With the map that was made for it go the defaults that the server put there, unless others use it too.
        let made = self.path.get(..=self.known).unwrap_or(&self.path);
        let goes_whole = side == Side::Before && !is_shared(object, made);
        remove(object, if goes_whole { made } else { &self.path });
        let made = if side == Side::Before { self.known + 1..self.path.len() } else { 0..0 };
        for parent in made.rev().filter_map(|left| self.path.get(..left)) {
            if at(object, parent).and_then(Value::as_object).is_some_and(Map::is_empty) {
                remove(object, parent);
            }
        }
    }
}

/// Returns the object with all differing fields at the values of this side.
pub(super) fn with(object: &Value, fields: &[Field], side: Side) -> Value {
    let mut next = object.clone();
    for field in fields.iter().filter(|field| field.differs() && !field.is(side, object)) {
        field.put(side, &mut next);
    }
    next
}

/// Returns the object without status, the mark, and what the API server sets.
pub(super) fn comparable(object: &Value) -> Value {
    let mut object = object.clone();
    let Some(map) = object.as_object_mut() else { return object };
    map.remove("status");
    if let Some(Value::Object(metadata)) = map.get_mut("metadata") {
        metadata.retain(|key, _| METADATA.contains(&key.as_str()));
        if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
            annotations.remove(MARK);
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
    }
    object
}

/// Returns all of an object but metadata and status.
pub(super) fn body(object: &Value) -> Value {
    let all = object.as_object().into_iter().flatten().filter(|(key, _)| *key != "metadata" && *key != "status");
    all.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Returns the part of an object that contents are about. Applied to that object it changes nothing, and has the API server tell which
/// lists have keys and which values are one.
pub(super) fn shape(found: &Value, contents: &[&Value]) -> Value {
    match found {
        Value::Object(found) if contents.iter().any(|content| content.is_object()) => {
            let part = |(key, value): (&String, &Value)| {
                let contents = contents.iter().filter_map(|content| content.get(key));
                let named: Vec<&Value> = contents.filter(|content| !content.is_null()).collect();
                let is_scalar = !value.is_object() && !value.is_array();
                (is_scalar || !named.is_empty()).then(|| (key.clone(), shape(value, &named)))
            };
            let part: Map<String, Value> = found.iter().filter_map(part).collect();
            Value::Object(if part.is_empty() { found.clone() } else { part })
        }
        Value::Array(found) => {
            let items: Vec<&Value> = contents.iter().filter_map(|content| content.as_array()).flatten().collect();
            found.iter().map(|item| shape(item, &items)).collect()
        }
        Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => found.clone(),
    }
}

/// Lists the fields that a content names in an object, as server-side apply merges it; a null removes. `owned` is the node of `fieldsV1`
/// that tells which lists have keys.
///
/// # Errors
/// An item of a list cannot be told apart from others.
pub(super) fn named(object: &Value, content: &Value, owned: Option<&Value>) -> Result<Vec<Field>, String> {
    let leaves = leaves(&[], object, content, owned)?;
    Ok(leaves.into_iter().map(|(path, after)| Field::new(path, object, after)).collect())
}

/// A part of a content: the step to it, what was found there, its content, and its node of `fieldsV1`.
type Child<'a> = (Step, &'a Value, &'a Value, Option<&'a Value>);

/// Lists the leaves of a content at a path, with their values.
fn leaves(path: &[Step], found: &Value, content: &Value, owned: Option<&Value>) -> Result<Vec<(Path, Option<Value>)>, String> {
    let is_one = owned.is_some_and(|owned| owned.as_object().is_none_or(Map::is_empty));
    let is_entered = match found {
        Value::Object(map) => map.is_empty() || !is_one,
        Value::Null => !is_one && content.as_object().is_some_and(|content| !content.is_empty()),
        Value::Array(list) => !is_one && !list.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    };
    let children: Vec<Child<'_>> = match (content, found, owned) {
        (Value::Object(content), Value::Object(_) | Value::Null, _) if is_entered => {
            let child = |(key, content)| {
                let step = Step::Key(String::clone(key));
                let owned = owned.and_then(|owned| node(owned, &step));
                (step, found.get(key).unwrap_or(&Value::Null), content, owned)
            };
            content.iter().map(child).collect()
        }
        (Value::Array(items), Value::Array(list), Some(owned)) if is_entered => {
            let children = items.iter().map(|item| told_apart(item, list, owned)).collect::<Result<_, _>>();
            children.map_err(|why| format!("{}: {why}", shown(path)))?
        }
        _ => return Ok(vec![(path.to_vec(), (!content.is_null()).then(|| without_nulls(content)))]),
    };
    let below = children.into_iter().map(|(step, found, content, owned)| {
        let path = [path, &[step]].concat();
        leaves(&path, found, content, owned)
    });
    Ok(below.collect::<Result<Vec<_>, _>>()?.concat())
}

/// Tells an item of a list apart by its keys.
fn told_apart<'a>(item: &'a Value, list: &'a [Value], owned: &'a Value) -> Result<Child<'a>, String> {
    let known = owned.as_object().into_iter().flatten().filter_map(|(name, node)| Some((keys_of(name)?, node)));
    let known: Vec<_> = known.collect();
    let Some((keys, _)) = known.first() else {
        // A member of a set is one value.
        return Ok((Step::Member(item.clone()), &Value::Null, item, Some(&Value::Null)));
    };
    let names = keys.keys().map(String::as_str).collect::<Vec<_>>().join(" and ");
    let part: Map<String, Value> = keys.keys().filter_map(|name| Some((name.clone(), item.get(name)?.clone()))).collect();
    if part.is_empty() {
        return Err(format!("an item needs {names}"));
    }
    let mut same = list.iter().filter(|item| item.as_object().is_some_and(|item| has(item, &part)));
    let found = same.next().unwrap_or(&Value::Null);
    if same.next().is_some() {
        return Err(format!("more than one item is {}: give {names}", Value::Object(part)));
    }
    let known = known.into_iter().find(|(keys, _)| has(keys, &part));
    let (keys, owned) = known.map_or((part, None), |(keys, owned)| (keys, Some(owned)));
    Ok((Step::Item(keys), found, item, owned))
}

/// Returns the content of a patch that does what an update does: all but metadata and status becomes the content; labels and annotations
/// merge.
pub(super) fn updated(found: &Value, content: &Value) -> Value {
    let mut patch = merge_patch(&body(found), &body(content));
    let patched = as_map(&mut patch);
    patched.retain(|key, _| key != "apiVersion" && key != "kind");
    patched.extend(content.get("metadata").map(|metadata| ("metadata".to_owned(), metadata.clone())));
    patch
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

/// Returns a content without its nulls.
pub(super) fn without_nulls(content: &Value) -> Value {
    match content {
        Value::Object(map) => {
            map.iter().filter(|(_, value)| !value.is_null()).map(|(key, value)| (key.clone(), without_nulls(value))).collect()
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => content.clone(),
    }
}
