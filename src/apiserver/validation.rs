//! The rules that a Lease must keep, in the real server's order and wording.
//!
//! Owns them for creations and updates. Types were checked before (`schema`); nothing here changes the object.

use serde_json::Value;

use super::{
    admission::{FOREGROUND, ORPHAN},
    lease::Lease,
    names,
    status::Cause,
};

const ANNOTATIONS_LIMIT: usize = 256 * 1024;
/// Upstream repeats the field in its path.
const STRATEGY: &str = "spec.strategy.strategy";
const STRATEGIES: &str = "\"OldestEmulationVersion\"";

/// What is wrong with a new Lease.
pub(super) fn create(lease: &Lease) -> Vec<Cause> {
    let mut causes = metadata(lease, names::subdomain);
    spec(lease, &mut causes);
    if causes.is_empty() {
        causes = metadata(lease, names::path_segment);
    }
    causes
}

/// What is wrong with a Lease that is to replace `old`.
pub(super) fn update(lease: &Lease, old: &Lease) -> Vec<Cause> {
    let mut causes = metadata(lease, names::path_segment);
    // Twice, as in the real server: once for any kind of object, once for Leases.
    metadata_update(lease, old, &mut causes);
    metadata_update(lease, old, &mut causes);
    spec(lease, &mut causes);
    causes
}

fn metadata(lease: &Lease, name_rule: fn(&str, bool) -> Vec<String>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let prefix = lease.meta("generateName");
    if !prefix.is_empty() {
        causes.extend(name_rule(prefix, true).iter().map(|rule| quoted("metadata.generateName", prefix, rule)));
    }
    let name = lease.name();
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else {
        causes.extend(name_rule(name, false).iter().map(|rule| quoted("metadata.name", name, rule)));
    }
    let namespace = lease.namespace();
    causes.extend(names::label(namespace).iter().map(|rule| quoted("metadata.namespace", namespace, rule)));
    if let Some(generation) = lease.metadata("generation").and_then(Value::as_i64).filter(|generation| *generation < 0) {
        causes.push(Cause::invalid("metadata.generation", &generation.to_string(), "must be greater than or equal to 0"));
    }
    maps_and_owners(lease, &mut causes);
    let finalizers = lease.finalizers();
    for finalizer in &finalizers {
        causes.extend(names::qualified(finalizer).iter().map(|rule| quoted("metadata.finalizers", finalizer, rule)));
    }
    if finalizers.contains(&ORPHAN) && finalizers.contains(&FOREGROUND) {
        let shown = Value::from(finalizers).to_string();
        let rule = format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set");
        causes.push(Cause::invalid("metadata.finalizers", &shown, &rule));
    }
    causes
}

fn metadata_update(lease: &Lease, old: &Lease, causes: &mut Vec<Cause>) {
    if old.is_deleting() {
        let known = old.finalizers();
        let new: Vec<String> =
            lease.finalizers().iter().filter(|name| !known.contains(name)).map(|name| format!("{name:?}")).collect();
        if !new.is_empty() {
            let rule = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                new.join(", ")
            );
            causes.push(Cause::forbidden("metadata.finalizers", &rule));
        }
    }
    for field in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let new = lease.metadata(field);
        if new != old.metadata(field) {
            let shown = new.map_or_else(|| "null".into(), Value::to_string);
            causes.push(Cause::invalid(format!("metadata.{field}"), &shown, "field is immutable"));
        }
    }
    maps_and_owners(lease, causes);
}

fn maps_and_owners(lease: &Lease, causes: &mut Vec<Cause>) {
    for (key, value) in lease.texts("labels") {
        causes.extend(names::qualified(key).iter().map(|rule| quoted("metadata.labels", key, rule)));
        causes.extend(names::label_value(value).iter().map(|rule| quoted("metadata.labels", value, rule)));
    }
    let mut size = 0;
    for (key, value) in lease.texts("annotations") {
        size += key.len() + value.len();
        let lower = key.to_lowercase();
        causes.extend(names::qualified(&lower).iter().map(|rule| quoted("metadata.annotations", key, rule)));
    }
    if size > ANNOTATIONS_LIMIT {
        causes.push(Cause::too_long("metadata.annotations", ANNOTATIONS_LIMIT));
    }
    owners(lease, causes);
}

fn owners(lease: &Lease, causes: &mut Vec<Cause>) {
    let Some(all) = lease.metadata("ownerReferences") else { return };
    let mut controller: Option<String> = None;
    for owner in all.as_array().into_iter().flatten() {
        let text = |field: &str| owner.get(field).and_then(Value::as_str).unwrap_or_default();
        let (group, version) = group_version(text("apiVersion"));
        if version.is_empty() {
            causes.push(quoted("metadata.ownerReferences.apiVersion", text("apiVersion"), "version must not be empty"));
        }
        for field in ["kind", "name", "uid"] {
            if text(field).is_empty() {
                causes.push(quoted(&format!("metadata.ownerReferences.{field}"), "", "must not be empty"));
            }
        }
        if (group, version, text("kind")) == ("", "v1", "Event") {
            let rule = "/v1, Kind=Event is disallowed from being an owner";
            causes.push(Cause::invalid("metadata.ownerReferences", &owner.to_string(), rule));
        }
        if owner.get("controller") == Some(&Value::Bool(true)) {
            let this = format!("{}/{}", text("kind"), text("name"));
            if let Some(first) = &controller {
                let rule = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                );
                causes.push(Cause::invalid("metadata.ownerReferences", &all.to_string(), &rule));
            } else {
                controller = Some(this);
            }
        }
    }
}

/// Both are empty if the text cannot be parsed.
fn group_version(text: &str) -> (&str, &str) {
    match text.split('/').collect::<Vec<_>>().as_slice() {
        [version] => ("", version),
        [group, version] => (group, version),
        _ => ("", ""),
    }
}

fn spec(lease: &Lease, causes: &mut Vec<Cause>) {
    let number = |field| lease.spec(field).and_then(Value::as_i64);
    let text = |field| lease.spec(field).and_then(Value::as_str);
    if let Some(duration) = number("leaseDurationSeconds").filter(|duration| *duration <= 0) {
        causes.push(Cause::invalid("spec.leaseDurationSeconds", &duration.to_string(), "must be greater than 0"));
    }
    if let Some(transitions) = number("leaseTransitions").filter(|transitions| *transitions < 0) {
        causes.push(Cause::invalid("spec.leaseTransitions", &transitions.to_string(), "must be greater than or equal to 0"));
    }
    let strategy = text("strategy");
    if let Some(strategy) = strategy {
        strategy_name(strategy, causes);
    }
    if text("preferredHolder").is_some_and(|holder| !holder.is_empty()) && strategy.unwrap_or_default().is_empty() {
        causes.push(Cause::forbidden("spec.preferredHolder", "may only be specified if `strategy` is defined"));
    }
}

/// A name without a slash is Kubernetes' own and must be known; one with a slash belongs to somebody else.
fn strategy_name(strategy: &str, causes: &mut Vec<Cause>) {
    let parts: Vec<&str> = strategy.split('/').collect();
    match parts.as_slice() {
        [_] if strategy != "OldestEmulationVersion" => {
            causes.push(Cause::unsupported(STRATEGY, strategy, STRATEGIES));
        }
        [_] => {}
        _ => causes.extend(names::qualified(strategy).iter().map(|rule| quoted(STRATEGY, strategy, rule))),
    }
}

fn quoted(field: &str, value: &str, rule: &str) -> Cause {
    Cause::invalid(field, &format!("{value:?}"), rule)
}
