//! What a manifest was before: an annotation of the workload, from which `tenure inject --uninject` gives it back.
//!
//! Holds what cannot be read from the wrapped pod. What somebody has changed since beside that stays changed.

use serde_json::{Map, Value, json};

use super::{PROGRAM, TENURE, WITNESS, items, names::LEASE};
use crate::election::writes::as_map;

/// The fields of a container that are replaced.
const REPLACED: [&str; 5] = ["command", "args", "livenessProbe", "readinessProbe", "startupProbe"];

/// Notes what a template was before it was wrapped.
pub(super) fn of(old: &Value, new: &Value) -> Value {
    let is_wrapped = |container: &&Value| container["command"][0] == PROGRAM;
    let at = items(&new["spec"], "containers").iter().position(|container| is_wrapped(&container)).unwrap_or_default();
    let (was, is) = (&old["spec"]["containers"][at], &new["spec"]["containers"][at]);
    let names = |container| items(container, "env").iter().map(|variable| variable["name"].clone()).collect::<Vec<_>>();
    let had = names(was);
    json!({
        "container": was["name"],
        "fields": REPLACED.into_iter().map(|key| (key.to_owned(), was[key].clone())).collect::<Map<_, _>>(),
        "grace": old["spec"]["terminationGracePeriodSeconds"],
        "env": names(is).into_iter().filter(|name| !had.contains(name)).collect::<Vec<_>>(),
        "labelled": old["metadata"]["labels"][LEASE].is_string(),
    })
}

/// Gives a template back what [`of`] has noted, and takes out what was put in.
pub(super) fn restore(pod: &mut Value, before: &Value) {
    let is_ours = |item: &Value| item["name"] == TENURE || item["name"] == WITNESS;
    let spec = &mut pod["spec"];
    set(spec, "terminationGracePeriodSeconds", &before["grace"]);
    for key in ["volumes", "initContainers"] {
        keep(spec, key, |item| !is_ours(item));
    }
    for container in spec["containers"].as_array_mut().into_iter().flatten().filter(|one| one["name"] == before["container"]) {
        keep(container, "volumeMounts", |item| !is_ours(item));
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
    let kept: Vec<_> = items(object, key).iter().filter(|item| is_kept(item)).cloned().collect();
    let kept = if kept.is_empty() { Value::Null } else { kept.into() };
    set(object, key, &kept);
}
