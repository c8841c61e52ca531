//! What an object was before: an annotation, from which `tenure inject --uninject` gives it back.
//!
//! A note says by key, in a list by the name of an item, what leads back. Null removes, with what an API server has put there. What
//! somebody has changed since beside that stays changed.

use serde_json::{Map, Value};

use super::{Changed, items, names::BEFORE, shown, text};
use crate::election::writes::{annotations_of, as_map};

/// Puts `new` in the place of an object, and notes in it what was there. Named items are never taken out of a list.
pub(super) fn replace(object: &mut Value, mut new: Value) {
    annotations_of(&mut new).insert(BEFORE.into(), "".into());
    let note = note(&new, object).to_string();
    annotations_of(&mut new).insert(BEFORE.into(), note.into());
    *object = new;
}

/// Takes out what `inject` has put in.
pub(crate) fn uninject(objects: Vec<Value>) -> Changed {
    let mut restored = Vec::new();
    for mut object in objects {
        match object["metadata"]["annotations"][BEFORE].as_str().map(serde_json::from_str::<Value>) {
            None => {}
            Some(Ok(Value::Null)) => continue,
            Some(Ok(note)) if note["metadata"]["annotations"].get(BEFORE).is_some() => undo(&mut object, &note),
            Some(_) => return Err(vec![format!("{}: the annotation {BEFORE} is not what tenure inject wrote", shown(&object))]),
        }
        restored.push(object);
    }
    Ok((restored, Vec::new()))
}

fn note(new: &Value, old: &Value) -> Value {
    match (new, old) {
        // Labels, annotations, or the metadata with them: others may add theirs.
        (Value::Object(map), Value::Null) if map.values().all(|value| value.is_string() || is_texts(value)) => {
            note(new, &Map::new().into())
        }
        (Value::Object(_), Value::Object(_)) => {
            let keys = [new, old].into_iter().filter_map(Value::as_object).flat_map(Map::keys);
            keys.filter(|key| new[*key] != old[*key]).map(|key| (key.clone(), note(&new[key], &old[key]))).collect()
        }
        (Value::Array(list), Value::Array(_) | Value::Null)
            if !list.is_empty() && list.iter().all(|item| item["name"].is_string()) =>
        {
            let was = |item: &Value| items(old).iter().find(|was| was["name"] == item["name"]);
            let changed = list.iter().filter(|item| !items(old).contains(item));
            changed.map(|item| (text(&item["name"]), was(item).map_or(Value::Null, |was| note(item, was)))).collect()
        }
        _ => old.clone(),
    }
}

fn undo(now: &mut Value, note: &Value) {
    let Value::Object(notes) = note else {
        *now = note.clone();
        return;
    };
    if let Value::Array(list) = now {
        for item in &mut *list {
            notes.get(text(&item["name"])).inspect(|note| undo(item, note));
        }
        list.retain(|item| !item.is_null());
    } else {
        let map = as_map(now);
        for (key, note) in notes {
            undo(map.entry(key).or_insert(Value::Null), note);
        }
        map.retain(|key, value| !notes.contains_key(key) || !is_empty(value));
    }
}

fn is_texts(value: &Value) -> bool {
    value.as_object().is_some_and(|map| map.values().all(Value::is_string))
}

fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(Map::is_empty)
}
