//! The fields that a content names in an object, and the patches that change them.
//!
//! Named are the leaves of the content; in a list with keys, the leaves of the named items. A field that the server derives is none
//! of them: it is not written, not stored and not compared.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    MARK,
    paths::{Path, as_map, at, covers, is_shared, member, remove, set, shown},
};

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

/// A field that a change names. None: absent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Field {
    /// The steps that lead to it, as in `managedFields`.
    pub path: Vec<String>,
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
        let is_there = |steps: &usize| at(found, path.get(..*steps).unwrap_or_default()).is_none();
        let known = (1..=path.len()).find(is_there).unwrap_or(path.len() + 1) - 1;
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
    let mut naming = Naming { object, path: Path::new(), fields: Vec::new() };
    naming.enter(object, content, owned)?;
    Ok(naming.fields)
}

struct Naming<'a> {
    object: &'a Value,
    path: Path,
    fields: Vec<Field>,
}

impl Naming<'_> {
    fn enter(&mut self, found: &Value, content: &Value, owned: Option<&Value>) -> Result<(), String> {
        let is_one = owned.is_some_and(|owned| owned.as_object().is_none_or(Map::is_empty));
        match (content, found) {
            (Value::Object(content), Value::Object(map)) if map.is_empty() || !is_one => self.keys(found, content, owned),
            (Value::Object(content), Value::Null) if !content.is_empty() => self.keys(found, content, None),
            (Value::Array(items), Value::Array(list)) if !is_one && !list.is_empty() && owned.is_some() => {
                items.iter().try_for_each(|item| self.item(list, item, owned.unwrap_or(&Value::Null)))
            }
            (content, _) => {
                self.leaf(content);
                Ok(())
            }
        }
    }

    fn leaf(&mut self, content: &Value) {
        let value = if content.is_null() { None } else { Some(without_nulls(content)) };
        self.fields.push(Field::new(self.path.clone(), self.object, value));
    }

    fn keys(&mut self, found: &Value, content: &Map<String, Value>, owned: Option<&Value>) -> Result<(), String> {
        content.iter().try_for_each(|(key, content)| {
            let step = format!("f:{key}");
            let owned = owned.and_then(|owned| member(owned, &step)).map(|(_, owned)| owned);
            self.within(step, &found[key.as_str()], content, owned)
        })
    }

    fn within(&mut self, step: String, found: &Value, content: &Value, owned: Option<&Value>) -> Result<(), String> {
        self.path.push(step);
        self.enter(found, content, owned)?;
        self.path.pop();
        Ok(())
    }

    fn item(&mut self, list: &[Value], item: &Value, owned: &Value) -> Result<(), String> {
        let keys = |step: &String| serde_json::from_str::<Map<String, Value>>(step.strip_prefix("k:")?).ok();
        let Some(names) = owned.as_object().into_iter().flat_map(Map::keys).find_map(keys) else {
            self.path.push(format!("v:{item}"));
            self.leaf(item);
            self.path.pop();
            return Ok(());
        };
        let part: Map<String, Value> = names.keys().filter_map(|name| Some((name.clone(), item.get(name)?.clone()))).collect();
        let is_nameless = part.is_empty();
        let part = Value::Object(part);
        let mut same = list.iter().filter(|item| covers(item, &part));
        let names = || names.keys().map(String::as_str).collect::<Vec<_>>().join(" and ");
        if is_nameless {
            return Err(format!("{}: an item needs {}", shown(&self.path), names()));
        }
        let found = same.next().unwrap_or(&Value::Null);
        if same.next().is_some() {
            return Err(format!("{}: more than one item is {part}: give {}", shown(&self.path), names()));
        }
        let step = format!("k:{part}");
        let (step, owned) = member(owned, &step).map_or((&step, None), |(step, owned)| (step, Some(owned)));
        self.within(step.clone(), found, item, owned)
    }
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

/// Returns the first part of a requirement that an object does not have, with what it has there.
pub(super) fn lacks(object: &Value, part: &Value, path: &mut Path) -> Option<(String, Value, Value)> {
    let Value::Object(keys) = part else {
        return (part != object).then(|| (shown(path), part.clone(), object.clone()));
    };
    keys.iter().find_map(|(key, part)| {
        path.push(format!("f:{key}"));
        let lack = lacks(&object[key.as_str()], part, path);
        path.pop();
        lack
    })
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
