//! The fields that a content names in an object, and the patches that change them.
//!
//! Named are the leaves of the content; in a list with keys, the leaves of the named items. A field that the server derives is none
//! of them: it is not written, not stored and not compared.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    MARK,
    paths::{Path, Step, as_map, at, has, keys_of, managers, node, owners, remove, set, shown},
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
    /// The value that is sent, where a dry run shows that the server adds to it: at the write it may add other node ports.
    #[serde(skip)]
    pub asked: Option<Value>,
    /// How many of the first steps were there already. An undo removes the map that was made for the field.
    pub known: usize,
    /// What the server put into that map. Noted at one of the fields for which it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub derived: Option<Value>,
}

/// The values of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Before,
    After,
}

impl Field {
    fn new(path: Path, found: &Value, after: Option<Value>) -> Self {
        let known = known(&path, found);
        Self { before: at(found, &path).cloned(), after, asked: None, known, derived: None, path }
    }

    pub(super) const fn value(&self, side: Side) -> Option<&Value> {
        match side {
            Side::Before => self.before.as_ref(),
            Side::After => self.after.as_ref(),
        }
    }

    /// Returns true if its value in `object` is that of this side. Where the item of a list is gone that had it, it is not changed.
    pub(super) fn is(&self, side: Side, object: &Value) -> bool {
        at(object, &self.path) == self.value(side) && (side == Side::Before || !self.has_lost_its_item(object))
    }

    /// Returns true if an item of a list on the way to it was there, and is not any more.
    pub(super) fn has_lost_its_item(&self, object: &Value) -> bool {
        let on_the_way = (1..self.path.len()).take(self.known).filter_map(|steps| self.path.get(..steps));
        on_the_way.filter(|path| matches!(path, [.., Step::Item(_)])).any(|path| at(object, path).is_none())
    }

    /// Returns true if it is in a map that was made for it, which is still there.
    pub(super) fn keeps_its_map(&self, object: &Value) -> bool {
        let is_in_new_map = self.before.is_none() && self.known.saturating_add(1) < self.path.len() && !self.is_in_new_item();
        is_in_new_map && at(object, self.root()).is_some()
    }

    /// Returns true if the change makes another value than was found.
    pub fn differs(&self) -> bool {
        self.before != self.after
    }

    /// Its path for people.
    pub fn name(&self) -> String {
        shown(&self.path)
    }

    /// Returns the path of the map or the item that was made for it, or its own.
    fn root(&self) -> &[Step] {
        self.path.get(..=self.known).unwrap_or(&self.path)
    }

    /// Returns true if an item of a list was made for it. Without its keys the rest of an item is none.
    fn is_in_new_item(&self) -> bool {
        matches!(self.root().last(), Some(Step::Item(_)))
    }

    /// Removes it, and the maps that were made for it where only what the server put there is left.
    fn take(&self, object: &mut Value, derived: Option<&Value>) {
        let is_key = matches!(self.path.as_slice(), [.., Step::Item(keys), Step::Key(key)] if keys.contains_key(key));
        if !is_key {
            remove(object, &self.path);
        }
        for left in (self.known.saturating_add(1)..self.path.len()).rev() {
            let Some(made) = self.path.get(..left) else { continue };
            let known = derived.and_then(|derived| at(derived, made.get(self.known + 1..)?));
            if at(object, made).is_some_and(|map| map.is_object() && extras(map, known).next().is_none()) {
                remove(object, made);
            }
        }
    }
}

/// Returns how many of the first steps are there. A list is made and goes with its items.
fn known(path: &[Step], object: &Value) -> usize {
    let is_there = |steps: &usize| path.get(..*steps).and_then(|path| at(object, path)).is_some();
    let there = (1..=path.len()).take_while(is_there).count();
    there + usize::from(matches!(path.get(there + 1), Some(Step::Item(_) | Step::Member(_))))
}

/// Notes anew which maps are there on the way to the fields. Returns true if somebody else has made or removed one. If a write
/// of this driver may have committed, it has made those of the fields that have changed.
pub(super) fn find_anew(fields: &mut [Field], object: &Value, may_be_mine: bool) -> bool {
    let mut is_new = false;
    for field in fields.iter_mut().filter(|field| !may_be_mine || field.is(Side::Before, object)) {
        let known = known(&field.path, object);
        if known != field.known {
            (field.known, field.derived, is_new) = (known, None, true);
        }
    }
    is_new
}

/// Splits fields into those for which the same map or item was made.
fn made_together(fields: &[Field]) -> impl Iterator<Item = (&[Field], Option<&Value>)> {
    let made = fields.chunk_by(|a, b| a.root() == b.root());
    made.map(|fields| (fields, fields.iter().find_map(|field| field.derived.as_ref())))
}

/// Returns the object with all differing fields at the values of this side.
pub(super) fn with(object: &Value, fields: &[Field], side: Side) -> Value {
    let mut next = object.clone();
    for (fields, derived) in made_together(fields) {
        let is_due = |field: &&Field| {
            field.differs() && !field.is(side, object) && (side == Side::After || !field.has_lost_its_item(object))
        };
        for field in fields.iter().filter(is_due) {
            let asked = field.asked.as_ref().filter(|_| side == Side::After);
            match asked.or_else(|| field.value(side)) {
                Some(value) => set(&mut next, &field.path, value.clone()),
                None if side == Side::After => remove(&mut next, &field.path),
                None if field.is_in_new_item() => remove(&mut next, field.root()),
                None => field.take(&mut next, derived),
            }
        }
    }
    next
}

/// Lists the leaves of a value that are not the same in `known`, where none is as good as an empty map. A null is no leaf.
fn extras(value: &Value, known: Option<&Value>) -> impl Iterator<Item = Path> + use<> {
    let known = known.map_or_else(|| json!({}), without_nulls);
    let leaves = named(&known, value, None).unwrap_or_default();
    leaves.into_iter().filter(Field::differs).map(|field| field.path)
}

/// Returns true if a map that was made for one of these fields is still there.
pub(super) fn keeps_a_map(fields: &[Field], object: &Value) -> bool {
    fields.iter().any(|field| field.keeps_its_map(object))
}

/// Returns an object without what the server derived anew as an undo of these fields left a map to others: only that manager has it.
pub(super) fn underived(object: Value, fields: &[Field], undo: &str) -> Value {
    let is_anew = |field: &&Field| {
        // Whoever has made the map has a node without this field, which is empty once all else of it is gone.
        let has_it = |entry: &&Value| field.path.iter().try_fold(&entry["fieldsV1"], node).is_some();
        let mut owners = managers(&object).iter().filter(has_it).peekable();
        let is_undos = owners.peek().is_some() && owners.all(|entry| entry["manager"] == undo);
        is_undos && field.keeps_its_map(&object)
    };
    let mut next = object.clone();
    fields.iter().filter(is_anew).for_each(|field| remove(&mut next, &field.path));
    next
}

/// Returns what others have set in an item of a list that was made for these fields.
pub(super) fn foreign(object: &Value, fields: &[Field]) -> Option<String> {
    made_together(fields).find_map(|(fields, derived)| {
        let root = fields.first().filter(|field| field.is_in_new_item())?.root();
        let mut rest = object.clone();
        fields.iter().for_each(|field| field.take(&mut rest, derived));
        let mut paths = extras(at(&rest, root)?, derived).map(|path| [root, &path].concat());
        // What nobody owns was allocated by the server. Without managers nobody can tell.
        let path = paths.find(|path| managers(object).is_empty() || owners(object, path, |_| true).next().is_some())?;
        Some(format!("others have set {}", shown(&path)))
    })
}

/// Notes what a change of `found` has made of its fields, or would make in a dry run, and what the server put into the maps that were
/// made for them.
pub(super) fn note(fields: &mut [Field], found: &Value, made: &Value, is_rehearsal: bool) {
    let mut rest = made.clone();
    for field in fields.iter_mut() {
        let made = at(made, &field.path);
        field.asked = field.after.take().filter(|asked| is_rehearsal && made.is_some_and(|made| made != asked));
        field.after = made.cloned();
        field.take(&mut rest, None);
    }
    for fields in fields.chunk_by_mut(|a, b| a.root() == b.root()) {
        if let Some(field) = fields.iter_mut().find(|field| field.differs() && at(found, field.root()).is_none()) {
            field.derived = at(&rest, field.root()).cloned();
        }
    }
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
/// lists have keys and which values are one. An item of a list that has none may be invalid without all of it: then `lists` are whole.
pub(super) fn shape(found: &Value, contents: &[&Value], lists: Lists) -> Value {
    match found {
        Value::Object(found) if contents.iter().any(|content| content.is_object()) => {
            let part = |(key, value): (&String, &Value)| {
                let contents = contents.iter().filter_map(|content| content.get(key));
                let named: Vec<&Value> = contents.filter(|content| !content.is_null()).collect();
                let is_scalar = !value.is_object() && !value.is_array();
                (is_scalar || !named.is_empty()).then(|| (key.clone(), shape(value, &named, lists)))
            };
            let part: Map<String, Value> = found.iter().filter_map(part).collect();
            Value::Object(if part.is_empty() { found.clone() } else { part })
        }
        Value::Array(found) if lists == Lists::InPart => {
            let items: Vec<&Value> = contents.iter().filter_map(|content| content.as_array()).flatten().collect();
            found.iter().map(|item| shape(item, &items, lists)).collect()
        }
        Value::Object(_) | Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => found.clone(),
    }
}

/// How much of the items of found lists [`shape`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lists {
    /// What contents name.
    InPart,
    /// All.
    Whole,
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

/// Splits a list with keys that a change makes into the fields of its items: others may add to it. `owned` is the node of `fieldsV1`
/// that tells which lists have keys, of a dry run of the change.
pub(super) fn in_items(fields: Vec<Field>, object: &Value, owned: Option<&Value>) -> Vec<Field> {
    let split = |field: Field| {
        let owned = field.path.iter().try_fold(owned?, node).filter(|_| field.known + 1 == field.path.len());
        let items = leaves(&field.path, &json!([]), field.after.as_ref().filter(|after| after.is_array())?, Some(owned?)).ok()?;
        Some(items.into_iter().map(|(path, after)| Field::new(path, object, after)).collect())
    };
    fields.into_iter().flat_map(|field| split(field.clone()).unwrap_or_else(|| vec![field])).collect()
}

/// A part of a content: the step to it, what was found there, its content, and its node of `fieldsV1`.
type Child<'a> = (Step, &'a Value, &'a Value, Option<&'a Value>);

/// Lists the leaves of a content at a path, with their values.
fn leaves(path: &[Step], found: &Value, content: &Value, owned: Option<&Value>) -> Result<Vec<(Path, Option<Value>)>, String> {
    let is_one = owned.is_some_and(|owned| owned.as_object().is_none_or(Map::is_empty));
    let is_entered = match found {
        Value::Object(map) => map.is_empty() || !is_one,
        Value::Null => !is_one && content.as_object().is_some_and(|content| !content.is_empty()),
        Value::Array(_) => !is_one,
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
            let children = items.iter().map(|item| told_apart(item, list, owned)).collect::<Result<Vec<_>, _>>();
            let children = children.map_err(|why| format!("{}: {why}", shown(path)))?;
            let is_twice = |(n, (step, ..)): &(usize, &Child<'_>)| children.iter().take(*n).any(|(before, ..)| before == step);
            if let Some((_, (step, ..))) = children.iter().enumerate().find(is_twice) {
                return Err(format!("{}: it is there twice", shown(&[path.to_vec(), vec![step.clone()]].concat())));
            }
            children
        }
        (Value::Object(_), Value::Object(_), _) if without_nulls(content) != *content => {
            return Err(format!("{}: it is replaced as a whole: write all that it is to have, and no null", shown(path)));
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
    let Some(keys) = owned.as_object().into_iter().flatten().find_map(|(name, _)| keys_of(name)) else {
        // A member of a set is one value.
        return Ok((Step::Member(item.clone()), &Value::Null, item, Some(&Value::Null)));
    };
    let names = keys.keys().map(String::as_str).collect::<Vec<_>>().join(" and ");
    let part: Map<String, Value> =
        keys.keys().filter_map(|name| Some((name.clone(), item.get(name).filter(|key| !key.is_null())?.clone()))).collect();
    if part.len() < keys.len() {
        // The server's default for a missing key may make it another item.
        return Err(format!("give {names}: an item is named by all its keys"));
    }
    let mut same = list.iter().filter(|item| item.as_object().is_some_and(|item| has(item, &part)));
    let found = same.next().unwrap_or(&Value::Null);
    if same.next().is_some() {
        return Err(format!("more than one item is {}", Value::Object(part)));
    }
    let step = Step::Item(part);
    let owned = node(owned, &step);
    Ok((step, found, item, owned))
}

/// Returns the content of a patch that does what an update does: all but metadata and status becomes the content; labels and annotations
/// merge.
pub(super) fn updated(found: &Value, content: &Value) -> Value {
    let mut patch = replacing(&body(found), &body(content));
    let patched = as_map(&mut patch);
    patched.retain(|key, _| key != "apiVersion" && key != "kind");
    patched.extend(content.get("metadata").map(|metadata| ("metadata".to_owned(), metadata.clone())));
    patch
}

/// Returns a value with nulls for what else was found.
fn replacing(found: &Value, value: &Value) -> Value {
    let (Value::Object(found), Value::Object(value)) = (found, value) else { return value.clone() };
    let removed = found.keys().map(|key| (key.clone(), Value::Null));
    let kept = value.iter().map(|(key, value)| (key.clone(), replacing(found.get(key).unwrap_or(&Value::Null), value)));
    removed.chain(kept).collect()
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
