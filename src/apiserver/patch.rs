//! Patches: JSON merge patch, JSON Patch, and as much of strategic merge patch as a Lease's lists need.
//!
//! Owns how a patch changes an object. Whether the result is a Lease is decided elsewhere.

mod steps;

use serde_json::{Map, Value};

use super::status::Status;

/// The type of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// RFC 7386: lists are replaced.
    Merge,
    /// Kubernetes' own: finalizers are a set, owner references have their uid as merge key.
    Strategic,
    /// RFC 6902: a list of steps.
    Steps,
}

/// What becomes of the complaints of strict field validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validation {
    /// They fail the patch.
    Strict,
    /// They are warnings.
    Warn,
    /// Nobody learns of them.
    Ignore,
}

/// A patch as it was sent.
#[derive(Clone, Debug)]
pub struct Patch {
    /// Its type.
    pub form: Form,
    /// What it says.
    pub change: Value,
    /// Complaints of strict field validation.
    pub complaints: Vec<String>,
    /// What becomes of them.
    pub validation: Validation,
}

/// `object` changed by `patch`.
///
/// # Errors
/// 400 for a patch of the wrong shape, 422 for a step that fails, 500 for an unknown directive.
pub(super) fn apply(form: Form, object: &Value, patch: &Value) -> Result<Value, Status> {
    if form == Form::Steps {
        return steps::apply(object, patch);
    }
    let Value::Object(patch) = patch else { return Err(Status::bad_request("Invalid JSON Patch")) };
    let mut object = object.as_object().cloned().unwrap_or_default();
    merge(form, &mut object, patch)?;
    Ok(object.into())
}

fn merge(form: Form, object: &mut Map<String, Value>, patch: &Map<String, Value>) -> Result<(), Status> {
    if form == Form::Strategic
        && let Some(order) = patch.get("$patch")
    {
        object.clear();
        match order.as_str() {
            Some("delete") => return Ok(()),
            Some("replace") => {}
            _ => return Err(unknown_order(order, patch)),
        }
    }
    for (name, change) in patch {
        if form == Form::Strategic && is_carried_out(object, name, change) {
            continue;
        }
        match change {
            Value::Null => {
                object.remove(name);
            }
            Value::Object(change) => {
                let target = object.entry(name.clone()).or_insert_with(|| Map::new().into());
                if !target.is_object() {
                    *target = Map::new().into();
                }
                if let Some(target) = target.as_object_mut() {
                    merge(form, target, change)?;
                }
            }
            Value::Array(items) if form == Form::Strategic && matches!(name.as_str(), "finalizers" | "ownerReferences") => {
                let target = object.entry(name.clone()).or_insert_with(|| Vec::<Value>::new().into());
                if let Some(target) = target.as_array_mut() {
                    merge_list(target, items);
                }
            }
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                object.insert(name.clone(), change.clone());
            }
        }
    }
    Ok(())
}

/// Strings are united; objects with the same uid are merged, or removed by `$patch: delete`. Items named in the patch come first.
fn merge_list(target: &mut Vec<Value>, items: &[Value]) {
    let is = |item: &Value, order: &str| item.get("$patch").is_some_and(|given| given == order);
    if items.iter().any(|item| is(item, "replace")) {
        target.clear();
    }
    let mut named = Vec::<Value>::new();
    for item in items.iter().filter(|item| !is(item, "replace")) {
        let same = |there: &Value| match item.get("uid") {
            Some(uid) => there.get("uid") == Some(uid),
            None => there == item,
        };
        let before = named.iter().position(same).map(|place| named.remove(place));
        let there = before.or_else(|| target.iter().position(same).map(|place| target.remove(place)));
        if is(item, "delete") {
            continue;
        }
        named.push(match (there, item) {
            (Some(Value::Object(mut there)), Value::Object(item)) => {
                there.extend(item.clone());
                there.into()
            }
            (Some(_) | None, _) => item.clone(),
        });
    }
    named.append(target);
    *target = named;
}

/// Whether `name` is a directive rather than a field; if so, it is carried out.
fn is_carried_out(object: &mut Map<String, Value>, name: &str, change: &Value) -> bool {
    let listed = |value: &Value| change.as_array().is_some_and(|listed| listed.contains(value));
    match name.split_once('/') {
        None if name == "$patch" => {}
        None if name == "$retainKeys" => object.retain(|name, _| listed(&name.as_str().into())),
        Some(("$deleteFromPrimitiveList", list)) => {
            if let Some(Value::Array(items)) = object.get_mut(list) {
                items.retain(|item| !listed(item));
            }
        }
        Some(("$setElementOrder", _)) => {}
        Some(_) | None => return false,
    }
    true
}

/// In Go's words, which include the patch as Go prints a map.
fn unknown_order(order: &Value, patch: &Map<String, Value>) -> Status {
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut entries: Vec<String> = patch.iter().map(|(name, value)| format!("{name}:{}", plain(value))).collect();
    entries.sort();
    Status::unexplained(format!("unknown patch type: {} in map: map[{}]", plain(order), entries.join(" ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn null_removes_and_objects_merge() {
        let object = json!({"metadata": {"annotations": {"a": "1", "b": "2"}}});

        let patched = apply(Form::Merge, &object, &json!({"metadata": {"annotations": {"a": null, "c": "3"}}})).unwrap();

        assert_eq!(patched, json!({"metadata": {"annotations": {"b": "2", "c": "3"}}}));
    }

    #[test]
    fn a_merge_patch_replaces_lists_and_a_strategic_one_unites_them() {
        let object = json!({"metadata": {"finalizers": ["a/b"]}});
        let patch = json!({"metadata": {"finalizers": ["c/d"]}});

        assert_eq!(apply(Form::Merge, &object, &patch).unwrap(), json!({"metadata": {"finalizers": ["c/d"]}}));
        assert_eq!(apply(Form::Strategic, &object, &patch).unwrap(), json!({"metadata": {"finalizers": ["c/d", "a/b"]}}));
    }

    #[test]
    fn kubectl_edit_can_take_a_finalizer_away() {
        let object = json!({"metadata": {"finalizers": ["a/b"]}});
        let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/b"], "$setElementOrder/finalizers": []}});

        assert_eq!(apply(Form::Strategic, &object, &patch).unwrap(), json!({"metadata": {"finalizers": []}}));
    }

    #[test]
    fn a_patch_that_is_no_object_is_a_bad_request() {
        assert_eq!(apply(Form::Merge, &json!({}), &json!([])).unwrap_err().code, 400);
    }
}
