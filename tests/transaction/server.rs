//! An API server in memory, on which the judge looks: versions, uids, dry runs, merge patches, preconditions.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tenure::{
    request::Answer,
    transaction::{MARK, Request, Storing, Write},
};

/// The objects and journals, by name.
#[derive(Debug, Default)]
pub struct Cluster {
    pub objects: BTreeMap<String, Value>,
    pub journals: BTreeMap<String, Value>,
    version: u64,
    uid: u64,
}

/// What a request would do.
#[derive(Debug)]
pub enum Effect {
    Nothing,
    Object { name: String, next: Option<Value> },
    Journal { name: String, next: Value },
}

impl Cluster {
    /// Answers a request, and returns its effect, which is not there yet.
    pub fn judge(&mut self, request: &Request) -> (Answer, Effect) {
        let answer = match request {
            Request::Look(target) => self.objects.get(&target.name).cloned().map_or(Answer::NotFound, found),
            Request::Plan(target, write) => {
                self.next(&target.name, write).map_or_else(|no| no, |next| found(next.unwrap_or_default()))
            }
            Request::Review(..) => found(json!({})),
            Request::Write(target, write) => match self.next(&target.name, write) {
                Ok(next) => {
                    let body = next.clone().unwrap_or_default();
                    return (found(body), Effect::Object { name: target.name.clone(), next });
                }
                Err(no) => no,
            },
            Request::Journal(place, storing) => match (storing, self.journals.get(&place.name)) {
                (Storing::Read, Some(journal)) => found(journal.clone()),
                (Storing::Read | Storing::Replace(_), None) => Answer::NotFound,
                (Storing::Create(_), Some(_)) => Answer::Conflict,
                (Storing::Replace(next), Some(old)) if version(next) != version(old) || uid(next) != uid(old) => Answer::Conflict,
                (Storing::Create(next) | Storing::Replace(next), _) => {
                    let mut next = next.clone();
                    if matches!(storing, Storing::Create(_)) {
                        next["metadata"]["uid"] = self.new_uid();
                    }
                    next["metadata"]["resourceVersion"] = self.new_version();
                    return (found(next.clone()), Effect::Journal { name: place.name.clone(), next });
                }
            },
        };
        (answer, Effect::Nothing)
    }

    pub fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::Nothing => {}
            Effect::Object { name, next: Some(next) } => drop(self.objects.insert(name, next)),
            Effect::Object { name, next: None } => drop(self.objects.remove(&name)),
            Effect::Journal { name, next } => drop(self.journals.insert(name, next)),
        }
    }

    /// The state of an object after a write. None: deleted.
    fn next(&mut self, name: &str, write: &Write) -> Result<Option<Value>, Answer> {
        let found = self.objects.get(name).cloned();
        match (write, found) {
            (Write::Create(_), Some(_)) => Err(Answer::Conflict),
            (Write::Create(body), None) => {
                let mut body = body.clone();
                body["metadata"]["uid"] = self.new_uid();
                body["metadata"]["resourceVersion"] = self.new_version();
                Ok(Some(body))
            }
            (Write::Apply(_) | Write::Merge(_) | Write::Delete(_), None) => Err(Answer::NotFound),
            (Write::Delete(options), Some(found)) => {
                let wanted = &options["preconditions"];
                let is_same =
                    ["uid", "resourceVersion"].iter().all(|key| wanted[key].is_null() || wanted[key] == found["metadata"][key]);
                if is_same { Ok(None) } else { Err(Answer::Conflict) }
            }
            (Write::Apply(patch) | Write::Merge(patch), Some(found)) => {
                let wanted = &patch["metadata"]["resourceVersion"];
                if !wanted.is_null() && wanted != &found["metadata"]["resourceVersion"] {
                    return Err(Answer::Conflict);
                }
                let mut next = found.clone();
                merge(&mut next, patch);
                next["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"].clone();
                // A write that changes nothing moves no version.
                if next != found {
                    next["metadata"]["resourceVersion"] = self.new_version();
                }
                Ok(Some(next))
            }
        }
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
        let metadata = json!({ "name": name, "namespace": "ns", "uid": self.new_uid(), "resourceVersion": self.new_version() });
        let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data });
        self.objects.insert(name.to_owned(), object);
    }
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
