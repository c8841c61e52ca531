//! What a manifest was before: an annotation of the workload, from which `tenure inject --uninject` gives it back.
//!
//! Holds what cannot be read from the wrapped pod. What somebody has changed since beside that stays changed.

use serde_json::{Map, Value, json};

use super::{OURS, items, names::LEASE, text};
use crate::election::writes::as_map;

/// The fields of a container that are replaced.
pub(super) const REPLACED: [&str; 5] = ["command", "args", "livenessProbe", "readinessProbe", "startupProbe"];

/// Notes what a template was before its container with this number was wrapped.
pub(super) fn of(old: &Value, new: &Value, at: usize) -> Value {
    let [was, is] = [old, new].map(|template| &template["spec"]["containers"][at]);
    let added = items(is, "env").iter().skip(items(was, "env").len());
    json!({
        "container": was["name"],
        "fields": REPLACED.into_iter().map(|key| (key.to_owned(), was[key].clone())).collect::<Map<_, _>>(),
        "grace": old["spec"]["terminationGracePeriodSeconds"],
        "env": added.map(|variable| &variable["name"]).collect::<Vec<_>>(),
        "labelled": old["metadata"]["labels"][LEASE].is_string(),
    })
}

/// Gives a template back what [`of`] has noted, and takes out what was put in.
pub(super) fn restore(pod: &mut Value, before: &Value) {
    let is_kept = |item: &Value| !OURS.contains(&text(&item["name"]));
    let Some(spec) = pod.get_mut("spec") else { return };
    set(spec, "terminationGracePeriodSeconds", &before["grace"]);
    for key in ["volumes", "initContainers"] {
        keep(spec, key, is_kept);
    }
    let containers = spec.get_mut("containers").and_then(Value::as_array_mut).into_iter().flatten();
    for container in containers.filter(|one| one["name"] == before["container"]) {
        keep(container, "volumeMounts", is_kept);
        keep(container, "env", |variable| !items(before, "env").contains(&variable["name"]));
        for key in REPLACED {
            set(container, key, &before["fields"][key]);
        }
    }
    if before["labelled"] == false {
        forget(pod, "labels", LEASE);
    }
}

/// Sets a label or an annotation.
pub(super) fn put(object: &mut Value, map: &str, key: &str, value: &str) {
    let metadata = as_map(&mut object["metadata"]).entry(map).or_insert(Value::Null);
    as_map(metadata).insert(key.into(), value.into());
}

/// Removes a label or an annotation, and the map if it held nothing else.
pub(super) fn forget(object: &mut Value, map: &str, key: &str) {
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else { return };
    let Some(Value::Object(entries)) = metadata.get_mut(map) else { return };
    entries.remove(key);
    if entries.is_empty() {
        metadata.remove(map);
    }
}

/// Sets a field; null removes it.
pub(super) fn set(object: &mut Value, key: &str, value: &Value) {
    let Value::Object(fields) = object else { return };
    if value.is_null() {
        fields.remove(key);
    } else {
        fields.insert(key.into(), value.clone());
    }
}

/// Keeps some items of a list, and no empty list.
fn keep(object: &mut Value, key: &str, is_kept: impl Fn(&Value) -> bool) {
    if let Some(Value::Array(list)) = object.get_mut(key) {
        list.retain(is_kept);
        if list.is_empty() {
            set(object, key, &Value::Null);
        }
    }
}
