//! An API server in memory, on which the judge looks: versions, uids, dry runs, merge patches, preconditions, field managers.
//!
//! It derives fields: a default, one in a map once that is there, an allocation, which a dry run makes too, and a stamp on each write.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tenure::{
    election::writes::Sent,
    request::Answer,
    transaction::{MARK, Request, Verb},
};

/// The objects, and by the name of the Lease: the journals, and what the Leases announce.
#[derive(Debug, Default)]
pub struct Cluster {
    pub objects: BTreeMap<String, Value>,
    pub journals: BTreeMap<String, Value>,
    pub leases: BTreeMap<String, Value>,
    version: u64,
    uid: u64,
}

/// What a request would do.
#[derive(Debug)]
pub enum Effect {
    Nothing,
    Object { name: String, next: Option<Value> },
    Journal { name: String, next: Value },
    Lease { name: String, next: Value },
}

impl Cluster {
    /// Answers a request, and returns its effect, which is not there yet.
    pub fn judge(&mut self, request: &Request) -> (Answer, Effect) {
        let answer = match request {
            Request::Look(target) => self.objects.get(&target.name).cloned().map_or(Answer::NotFound, found),
            Request::Plan(target, write) => {
                self.next(&target.name, write, "tenure").map_or_else(|no| no, |next| found(next.unwrap_or_default()))
            }
            Request::Review(..) => found(json!({})),
            Request::Write(target, write, manager) => match self.next(&target.name, write, manager) {
                Ok(next) => {
                    let body = next.clone().unwrap_or_default();
                    return (found(body), Effect::Object { name: target.name.clone(), next });
                }
                Err(no) => no,
            },
            Request::Journal(place, storing) => match (storing, self.journals.get(&place.name)) {
                (Verb::Get, Some(journal)) => found(journal.clone()),
                (Verb::Get | Verb::Replace(_), None) => Answer::NotFound,
                (Verb::Create(_), Some(_)) => Answer::Conflict,
                (Verb::Replace(next), Some(old)) if version(next) != version(old) || uid(next) != uid(old) => Answer::Conflict,
                (Verb::Create(next) | Verb::Replace(next), _) => {
                    let mut next = Value::clone(next);
                    if matches!(storing, Verb::Create(_)) {
                        next["metadata"]["uid"] = self.new_uid();
                    }
                    next["metadata"]["resourceVersion"] = self.new_version();
                    return (found(next.clone()), Effect::Journal { name: place.name.clone(), next });
                }
                (other, _) => unreachable!("{other:?} of a journal"),
            },
            Request::Lease(place, write) => {
                let lease = self.lease(&place.name);
                match write.as_ref().map(|write| write.sent()) {
                    None => found(lease),
                    Some(Sent::Replace(next)) if version(next) == version(&lease) => {
                        let mut next = Value::clone(next);
                        next["metadata"]["resourceVersion"] = self.new_version();
                        return (found(next.clone()), Effect::Lease { name: place.name.clone(), next });
                    }
                    Some(_) => Answer::Conflict,
                }
            }
        };
        (answer, Effect::Nothing)
    }

    /// The Lease of this name: there is always one.
    pub fn lease(&mut self, name: &str) -> Value {
        if !self.leases.contains_key(name) {
            let metadata =
                json!({ "name": name, "namespace": "ns", "uid": self.new_uid(), "resourceVersion": self.new_version() });
            self.leases.insert(name.to_owned(), json!({ "metadata": metadata, "spec": {} }));
        }
        self.leases[name].clone()
    }

    pub fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::Nothing => {}
            Effect::Object { name, next: Some(next) } => drop(self.objects.insert(name, next)),
            Effect::Object { name, next: None } => drop(self.objects.remove(&name)),
            Effect::Journal { name, next } => drop(self.journals.insert(name, next)),
            Effect::Lease { name, next } => drop(self.leases.insert(name, next)),
        }
    }

    /// The state of an object after a write. None: deleted.
    fn next(&mut self, name: &str, write: &Verb, manager: &str) -> Result<Option<Value>, Answer> {
        let found = self.objects.get(name).cloned();
        match (write, found) {
            (Verb::Get | Verb::List | Verb::Replace(_), _) => unreachable!("{write:?} of a target"),
            (Verb::Create(_), Some(_)) => Err(Answer::Conflict),
            (Verb::Create(body), None) => {
                let mut body = Value::clone(body);
                body["metadata"]["uid"] = self.new_uid();
                self.version += 1;
                if body["spec"]["allocated"].is_null() {
                    body["spec"]["allocated"] = json!(self.version);
                }
                Ok(Some(self.written(&json!({}), body, manager)))
            }
            (Verb::Apply(_) | Verb::Merge(_) | Verb::Delete(_), None) => Err(Answer::NotFound),
            (Verb::Delete(options), Some(found)) => {
                let wanted = &options["preconditions"];
                let is_same =
                    ["uid", "resourceVersion"].iter().all(|key| wanted[key].is_null() || wanted[key] == found["metadata"][key]);
                if is_same { Ok(None) } else { Err(Answer::Conflict) }
            }
            (Verb::Apply(patch) | Verb::Merge(patch), Some(found)) => {
                let wanted = &patch["metadata"]["resourceVersion"];
                if !wanted.is_null() && wanted != &found["metadata"]["resourceVersion"] {
                    return Err(Answer::Conflict);
                }
                let mut next = found.clone();
                if matches!(write, Verb::Apply(_)) {
                    let mut managers = next["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
                    managers.push(json!({ "manager": manager, "operation": "Apply", "fieldsV1": named(patch) }));
                    next["metadata"]["managedFields"] = managers.into();
                    return Ok(Some(next));
                }
                merge(&mut next, patch);
                next["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"].clone();
                // A write that changes nothing moves no version.
                Ok(Some(if next == found { next } else { self.written(&found, next, manager) }))
            }
        }
    }

    /// An object as it is stored: with a new version, with what is derived, and with who owns what.
    pub fn written(&mut self, found: &Value, mut next: Value, manager: &str) -> Value {
        next["metadata"]["resourceVersion"] = self.new_version();
        let stamp = next["metadata"]["resourceVersion"].clone();
        next["metadata"]["annotations"]["stamp"] = stamp.clone();
        if next["spec"]["default"].is_null() {
            next["spec"]["default"] = json!("default");
        }
        if next["data"]["m"].is_object() && next["data"]["m"]["d"].is_null() {
            next["data"]["m"]["d"] = json!("default");
        }
        // A webhook lets nobody set it.
        if let Some(data) = next["data"].as_object_mut() {
            data.remove("dropped");
        }
        if next["metadata"]["managedFields"] != found["metadata"]["managedFields"] {
            return next;
        }
        let mut managers = next["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let mut changed = named(&next);
        without(&mut changed, &next, found);
        for other in &mut managers {
            subtract(&mut other["fieldsV1"], &changed, &next);
        }
        let is_it = |other: &Value| other["manager"] == manager && other["operation"] == "Update";
        let mut own = managers.iter().find(|other| is_it(other)).map_or_else(|| json!({}), |other| other["fieldsV1"].clone());
        merge(&mut own, &changed);
        managers.retain(|other| (changed == json!({}) || !is_it(other)) && other["fieldsV1"] != json!({}));
        if changed != json!({}) {
            managers.push(json!({ "manager": manager, "operation": "Update", "time": stamp, "fieldsV1": own }));
        }
        next["metadata"]["managedFields"] = managers.into();
        next
    }

    pub fn new_version(&mut self) -> Value {
        self.version += 1;
        json!(self.version.to_string())
    }

    pub fn new_uid(&mut self) -> Value {
        self.uid += 1;
        json!(format!("uid-{}", self.uid))
    }

    /// Puts an object of somebody else there.
    pub fn plant(&mut self, name: &str, data: Value) {
        let metadata = json!({ "name": name, "namespace": "ns", "uid": self.new_uid() });
        let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data });
        let object = self.written(&json!({}), object, "kubectl");
        self.objects.insert(name.to_owned(), object);
    }

    /// Has somebody else edit an object.
    pub fn edit(&mut self, name: &str, manager: &str, edit: impl FnOnce(&mut Value)) {
        let found = self.objects[name].clone();
        let mut next = found.clone();
        edit(&mut next);
        let next = self.written(&found, next, manager);
        self.objects.insert(name.to_owned(), next);
    }
}

/// The fields of an object, as a server tells them. Lists whose items have a name are merged by it; others are one value.
fn named(value: &Value) -> Value {
    let mut fields = Map::new();
    match value {
        Value::Object(map) => {
            for (key, value) in
                map.iter().filter(|(key, _)| !["apiVersion", "kind", "metadata", "status"].contains(&key.as_str()))
            {
                fields.insert(format!("f:{key}"), named(value));
                // Who makes a map owns the map too.
                if value.is_object() && key != "data" && key != "spec" {
                    fields[&format!("f:{key}")]["."] = json!({});
                }
            }
            if let Some(annotations) = map.get("metadata").and_then(|metadata| metadata.get("labels")) {
                fields.insert("f:metadata".into(), json!({ "f:labels": named(annotations) }));
            }
        }
        Value::Array(items) if items.iter().all(|item| item["name"].is_string()) => {
            fields.extend(items.iter().map(|item| (format!("k:{}", json!({ "name": item["name"] })), named(item))));
        }
        Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    fields.into()
}

/// Takes from fields those whose value did not change.
fn without(fields: &mut Value, next: &Value, found: &Value) {
    let Value::Object(fields) = fields else { return };
    fields.retain(|step, below| {
        if step == "." {
            return !found.is_object();
        }
        let [next, found] = [next, found].map(|value| child(value, step).cloned().unwrap_or_default());
        without(below, &next, &found);
        next != found && (below != &json!({}) || !next.is_object() || next == json!({}))
    });
}

/// Takes from fields those that others own now, and those that are gone.
fn subtract(fields: &mut Value, others: &Value, value: &Value) {
    let Value::Object(fields) = fields else { return };
    fields.retain(|step, below| {
        let (other, child) = (others.get(step), child(value, step));
        if step == "." || below == &json!({}) {
            return step == "." || child.is_some() && other != Some(&json!({}));
        }
        subtract(below, other.unwrap_or(&Value::Null), child.unwrap_or(&Value::Null));
        // Alone it is left out.
        let is_left = below != &json!({});
        if below == &json!({ ".": {} }) {
            *below = json!({});
        }
        is_left && child.is_some() && other != Some(&json!({}))
    });
}

fn child<'a>(value: &'a Value, step: &str) -> Option<&'a Value> {
    if let Some(key) = step.strip_prefix("f:") {
        return value.get(key).filter(|value| !value.is_null());
    }
    let keys: Value = serde_json::from_str(step.trim_start_matches("k:")).unwrap_or_default();
    value.as_array().and_then(|items| items.iter().find(|item| item["name"] == keys["name"]))
}

pub fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

pub fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

pub fn mark(object: &Value) -> Option<&str> {
    object["metadata"]["annotations"][MARK].as_str()
}

fn found(object: Value) -> Answer {
    Answer::Object(object.into())
}

/// RFC 7396.
fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (key, patch) in patch {
        if patch.is_null() {
            object.as_object_mut().map(|map| map.remove(key));
        } else {
            merge(&mut object[key.as_str()], patch);
        }
    }
}
