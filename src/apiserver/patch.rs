//! Patches: JSON merge patch, and strategic merge patch as far as a Lease's lists need it.
//!
//! Owns how a patch changes an object. Whether the result is a Lease is decided elsewhere.

use serde_json::{Map, Value};

use super::status::Status;

/// How a patch is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// RFC 7386: lists are replaced.
    Merge,
    /// Kubernetes' own: finalizers are a set, owner references have their uid as key.
    Strategic,
}

/// `object` changed by `patch`.
///
/// # Errors
/// 400 for a patch that is no object or gives an order of another kind.
pub(super) fn apply(form: Form, object: &Value, patch: &Value) -> Result<Value, Status> {
    let Value::Object(patch) = patch else { return Err(Status::bad_request("Invalid JSON Patch")) };
    let mut object = object.as_object().cloned().unwrap_or_default();
    merge(form, &mut object, patch)?;
    Ok(object.into())
}

fn merge(form: Form, object: &mut Map<String, Value>, patch: &Map<String, Value>) -> Result<(), Status> {
    for (name, change) in patch {
        if form == Form::Strategic && name.starts_with('$') {
            directive(object, name, change)?;
            continue;
        }
        match change {
            Value::Null => {
                object.shift_remove(name);
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

/// Texts are united; objects with the same uid are merged, or removed by `$patch: delete`. What the patch names comes first.
fn merge_list(target: &mut Vec<Value>, items: &[Value]) {
    let mut named = Vec::new();
    for item in items {
        let same = |there: &Value| match item.get("uid") {
            Some(uid) => there.get("uid") == Some(uid),
            None => there == item,
        };
        let there = target.iter().position(same).map(|place| target.remove(place));
        if item.get("$patch").and_then(Value::as_str) == Some("delete") {
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

fn directive(object: &mut Map<String, Value>, name: &str, change: &Value) -> Result<(), Status> {
    let unknown = || Status::bad_request(format!("unknown strategic merge patch directive {name:?}"));
    match name.split_once('/') {
        None if name == "$patch" && change == "replace" => object.clear(),
        None if name == "$retainKeys" => {
            let kept = change.as_array().ok_or_else(unknown)?;
            object.retain(|name, _| kept.iter().any(|kept| kept == name.as_str()));
        }
        Some(("$deleteFromPrimitiveList", list)) => {
            let gone = change.as_array().ok_or_else(unknown)?;
            if let Some(Value::Array(items)) = object.get_mut(list) {
                items.retain(|item| !gone.contains(item));
            }
        }
        Some(("$setElementOrder", _)) => {}
        Some(_) | None => return Err(unknown()),
    }
    Ok(())
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
