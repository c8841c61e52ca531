//! The fields that a content names in an object, and the patches that change them.
//!
//! Named are the leaves of the content; in a list with keys, the leaves of the named items. A field that the server derives is none
//! of them: it is not written, not stored and not compared.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    MARK,
    paths::{Path, as_map, at, covers, entry_of, is_shared, member, remove, set, shown},
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
    pub(super) fn new(path: Path, found: &Value, answer: &Value) -> Self {
        let is_there = |steps: &usize| at(found, path.get(..*steps).unwrap_or_default()).is_none();
        let known = (1..=path.len()).find(is_there).unwrap_or(path.len() + 1) - 1;
        Self { before: at(found, &path).cloned(), after: at(answer, &path).cloned(), known, path }
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

/// Returns the part of an object that a content is about. Applied to that object it changes nothing, and has the API server tell
/// which lists have keys and which values are one.
pub(super) fn shape(found: &Value, content: &Value) -> Value {
    let is_scalar = |value: &Value| !value.is_object() && !value.is_array() && !value.is_null();
    match (found, content) {
        (Value::Object(found), Value::Object(content)) => {
            let part = |(key, value): (&String, &Value)| match content.get(key) {
                _ if is_scalar(value) => Some((key.clone(), value.clone())),
                Some(content) if !content.is_null() => Some((key.clone(), shape(value, content))),
                Some(_) | None => None,
            };
            let part: Map<String, Value> = found.iter().filter_map(part).collect();
            Value::Object(if part.is_empty() { found.clone() } else { part })
        }
        (Value::Array(found), Value::Array(content)) => {
            let mut any = Value::Null;
            content.iter().for_each(|item| unite(&mut any, item));
            found.iter().map(|item| if item.is_object() && any.is_object() { shape(item, &any) } else { item.clone() }).collect()
        }
        (found, _) => found.clone(),
    }
}

/// Adds to one content what another one is about.
fn unite(all: &mut Value, more: &Value) {
    match (all, more) {
        (Value::Object(all), Value::Object(more)) => {
            more.iter().for_each(|(key, more)| unite(all.entry(key.as_str()).or_insert(Value::Null), more));
        }
        (Value::Array(all), Value::Array(more)) => all.extend(more.iter().cloned()),
        (all, more) if all.is_null() => *all = more.clone(),
        _ => {}
    }
}

/// Merges a content into an object as server-side apply does; a null removes. `fields` tells the lists that have keys. Returns the
/// paths that the content names.
///
/// # Errors
/// An item of a list cannot be told apart from others.
pub(super) fn merge(object: &mut Value, content: &Value, fields: Option<&Value>) -> Result<Vec<Path>, String> {
    let mut merging = Merging::default();
    merging.enter(object, content, fields)?;
    Ok(merging.paths)
}

#[derive(Default)]
struct Merging {
    path: Path,
    paths: Vec<Path>,
}

impl Merging {
    fn enter(&mut self, object: &mut Value, content: &Value, fields: Option<&Value>) -> Result<(), String> {
        let is_leaf = fields.is_some_and(|fields| fields.as_object().is_none_or(Map::is_empty));
        match (content, &mut *object) {
            (Value::Null, _) => {
                *object = Value::Null;
                self.paths.push(self.path.clone());
            }
            (Value::Object(content), Value::Object(map)) if map.is_empty() || !is_leaf => {
                for (key, content) in content {
                    let step = format!("f:{key}");
                    let fields = fields.and_then(|fields| member(fields, &step)).map(|(_, fields)| fields);
                    self.within(step, map.entry(key.as_str()).or_insert(Value::Null), content, fields)?;
                }
                map.retain(|_, value| !value.is_null());
            }
            (Value::Object(content), Value::Null) if !content.is_empty() => {
                *object = Value::Object(Map::new());
                self.enter(object, &Value::Object(content.clone()), None)?;
            }
            (Value::Array(items), Value::Array(list)) if !is_leaf && !list.is_empty() && fields.is_some() => {
                for item in items {
                    self.item(list, item, fields.unwrap_or(&Value::Null))?;
                }
            }
            (content, _) => {
                *object = without_nulls(content);
                self.paths.push(self.path.clone());
            }
        }
        Ok(())
    }

    fn within(&mut self, step: String, object: &mut Value, content: &Value, fields: Option<&Value>) -> Result<(), String> {
        self.path.push(step);
        self.enter(object, content, fields)?;
        self.path.pop();
        Ok(())
    }

    fn item(&mut self, list: &mut Vec<Value>, item: &Value, fields: &Value) -> Result<(), String> {
        let keys = |step: &String| serde_json::from_str::<Map<String, Value>>(step.strip_prefix("k:")?).ok();
        let Some(names) = fields.as_object().into_iter().flat_map(Map::keys).find_map(keys) else {
            if !list.contains(item) {
                list.push(item.clone());
            }
            self.paths.push(self.path.iter().cloned().chain([format!("v:{item}")]).collect());
            return Ok(());
        };
        let part: Map<String, Value> = names.keys().filter_map(|name| Some((name.clone(), item.get(name)?.clone()))).collect();
        let part = Value::Object(part);
        let is_it = |item: &Value| covers(item, &part);
        let names = || names.keys().map(String::as_str).collect::<Vec<_>>().join(" and ");
        if part.as_object().is_none_or(Map::is_empty) {
            return Err(format!("{}: an item needs {}", shown(&self.path), names()));
        }
        if list.iter().filter(|item| is_it(item)).count() > 1 {
            return Err(format!("{}: more than one item is {part}: give {}", shown(&self.path), names()));
        }
        let at = list.iter().position(is_it).unwrap_or(list.len());
        if at == list.len() {
            list.push(Value::Null);
        }
        let Some(found) = list.get_mut(at) else { return Ok(()) };
        let step = format!("k:{part}");
        let (step, fields) = member(fields, &step).map_or((&step, None), |(step, fields)| (step, Some(fields)));
        self.within(step.clone(), found, item, fields)
    }
}

/// Returns the object that an update makes of another one, and the paths in which they differ: all but metadata and status becomes
/// the content; labels and annotations merge.
pub(super) fn updated(found: &Value, content: &Value) -> (Value, Vec<Path>) {
    let mut next = content.clone();
    let kept = ["apiVersion", "kind", "metadata", "status"].into_iter();
    as_map(&mut next).extend(kept.filter_map(|key| Some((key.to_owned(), found.get(key)?.clone()))));
    for key in ["labels", "annotations"] {
        for (name, value) in content["metadata"][key].as_object().into_iter().flatten() {
            as_map(entry_of(entry_of(&mut next, "metadata"), key)).insert(name.clone(), value.clone());
        }
    }
    let mut paths = Vec::new();
    differ(&mut Vec::new(), found, &next, &mut paths);
    (next, paths)
}

fn differ(path: &mut Path, found: &Value, next: &Value, paths: &mut Vec<Path>) {
    match (found, next) {
        _ if found == next => {}
        (Value::Object(_) | Value::Null, Value::Object(map)) if !map.is_empty() => {
            let mut keys: Vec<&String> = found.as_object().into_iter().flatten().chain(map).map(|(key, _)| key).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                path.push(format!("f:{key}"));
                differ(path, &found[key.as_str()], &next[key.as_str()], paths);
                path.pop();
            }
        }
        _ => paths.push(path.clone()),
    }
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
