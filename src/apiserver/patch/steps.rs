//! JSON Patch: RFC 6902.
//!
//! Owns its steps. Like upstream, does not say which of them failed, or why.

use serde_json::Value;

use crate::apiserver::{schema, status::Status};

/// The real server's limits on steps and on the bytes that they copy: repeated copies double the document.
const MOST: usize = 10_000;
const COPIES: usize = 3 * 1024 * 1024;

/// `object` after all steps of `patch`.
///
/// # Errors
/// 400 if the patch is not a list of steps, 413 for too many steps, 422 for a step that cannot be applied.
pub(super) fn apply(object: &Value, patch: &Value) -> Result<Value, Status> {
    let unreadable = |value: &Value, of: &str| {
        let given = schema::kind(value);
        let why = format!("json: cannot unmarshal {given} into Go value of type {of}handlers.jsonPatchOp");
        Status::bad_request(format!("error decoding patch: {why}"))
    };
    let steps = patch.as_array().ok_or_else(|| unreadable(patch, "[]"))?;
    if steps.len() > MOST {
        let given = steps.len();
        return Err(Status::too_much(&format!("The allowed maximum operations in a JSON patch is {MOST}, got {given}")));
    }
    let mut object = object.clone();
    let mut room = COPIES;
    for step in steps {
        if !step.is_object() {
            return Err(unreadable(step, ""));
        }
        take(step, &mut object, &mut room).ok_or_else(Status::rejected)?;
    }
    Ok(object)
}

/// `room`: how many more bytes may be copied.
fn take(step: &Value, object: &mut Value, room: &mut usize) -> Option<()> {
    let text = |name: &str| step.get(name).and_then(Value::as_str);
    let value = || step.get("value").cloned().unwrap_or_default();
    let path = text("path")?;
    match text("op")? {
        "add" => add(object, path, value()),
        "remove" => remove(object, path).map(drop),
        "replace" => replace(object, path, value()),
        "test" => (*tested(object, path)? == value()).then_some(()),
        "copy" => {
            let copied = object.pointer(text("from")?)?.clone();
            *room = room.checked_sub(copied.to_string().len())?;
            add(object, path, copied)
        }
        "move" => {
            let moved = remove(object, text("from")?)?;
            add(object, path, moved)
        }
        _ => None,
    }
}

/// A field that does not exist is null, but an item of a list, or a field of nothing, is an error.
fn tested<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let parent = || object.pointer(split(path)?.0);
    object.pointer(path).or_else(|| parent()?.is_object().then_some(&Value::Null))
}

fn add(object: &mut Value, path: &str, value: Value) -> Option<()> {
    if path.is_empty() {
        *object = value;
        return Some(());
    }
    let (parent, name) = split(path)?;
    match object.pointer_mut(parent)? {
        Value::Object(fields) => drop(fields.insert(name, value)),
        Value::Array(items) => {
            let place = if name == "-" { items.len() } else { name.parse().ok()? };
            (place <= items.len()).then(|| items.insert(place, value))?;
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
    }
    Some(())
}

/// The field need not exist; upstream does not check.
fn replace(object: &mut Value, path: &str, value: Value) -> Option<()> {
    match object.pointer_mut(path) {
        Some(there) => *there = value,
        None => {
            let (parent, name) = split(path)?;
            drop(object.pointer_mut(parent)?.as_object_mut()?.insert(name, value));
        }
    }
    Some(())
}

fn remove(object: &mut Value, path: &str) -> Option<Value> {
    let (parent, name) = split(path)?;
    match object.pointer_mut(parent)? {
        Value::Object(fields) => fields.remove(&name),
        Value::Array(items) => name.parse().ok().filter(|place| *place < items.len()).map(|place| items.remove(place)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn split(path: &str) -> Option<(&str, String)> {
    let (parent, name) = path.rsplit_once('/')?;
    Some((parent, name.replace("~1", "/").replace("~0", "~")))
}
