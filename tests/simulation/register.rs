//! One Lease as the API server keeps it: a register with compare-and-swap, uid, finalizers and a history for watches.
//!
//! The embedded server's own store gives the same answers ([`Twin`]), in some worlds side by side; this one only copies less.

use std::{collections::VecDeque, sync::Arc};

use serde_json::{Map, Value};
use tenure::{
    apiserver::{Lease, Preconditions, Rules, Status, Store},
    election::{Answer, Refusal, Request},
};

use crate::server::{CREATED, PLACE};

/// How many changes are kept for watches.
const HISTORY: usize = 500;

/// See the module.
#[derive(Default)]
pub struct Register {
    lease: Option<Arc<Value>>,
    version: u64,
    compacted: u64,
    uids: u32,
    history: VecDeque<Change>,
}

/// One change.
pub struct Change {
    pub version: u64,
    pub before: Option<Arc<Value>>,
    pub after: Option<Arc<Value>>,
}

impl Register {
    /// An empty one, at the version at which the embedded server begins.
    pub fn new() -> Self {
        Self { version: 1, ..Self::default() }
    }

    pub fn lease(&self) -> Option<&Arc<Value>> {
        self.lease.as_ref()
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    /// Carries a request out.
    pub fn carry_out(&mut self, request: &Request) -> Answer {
        match request {
            Request::Get => self.lease.clone().map_or(Answer::NotFound, Answer::Object),
            Request::Create(object) => match &self.lease {
                Some(_) => Answer::Conflict,
                None => self.create(Arc::clone(object)),
            },
            Request::Replace(object) => self.replace(Arc::clone(object)),
            Request::Delete { uid, resource_version } => self.delete(Some((uid, resource_version))),
        }
    }

    /// PUT.
    pub fn replace(&mut self, object: Arc<Value>) -> Answer {
        let uid = text(&object, "uid");
        let Some(old) = &self.lease else {
            return if uid.is_empty() { self.create(object) } else { Answer::Conflict };
        };
        if !uid.is_empty() && uid != text(old, "uid") {
            return Answer::Conflict;
        }
        match text(&object, "resourceVersion") {
            "" => return invalid(),
            version if version != text(old, "resourceVersion") => return Answer::Conflict,
            _ => {}
        }
        // The sender keeps what it has sent.
        let mut object = Arc::unwrap_or_clone(object);
        tidy(&mut object);
        for field in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
            match old["metadata"].get(field) {
                Some(value) => object["metadata"][field] = value.clone(),
                None => drop(object["metadata"].as_object_mut().and_then(|metadata| metadata.remove(field))),
            }
        }
        if !is_sound(&object) {
            return invalid();
        }
        if !old["metadata"]["deletionTimestamp"].is_null() && object["metadata"]["finalizers"].is_null() {
            self.record(None);
            return Answer::Object(object.into());
        }
        if object == **old {
            return Answer::Object(object.into());
        }
        self.record(Some(object))
    }

    /// DELETE, with or without preconditions.
    pub fn delete(&mut self, must: Option<(&str, &str)>) -> Answer {
        let Some(lease) = &self.lease else { return Answer::NotFound };
        if must.is_some_and(|must| must != (text(lease, "uid"), text(lease, "resourceVersion"))) {
            return Answer::Conflict;
        }
        if lease["metadata"]["finalizers"].is_null() {
            self.record(None);
        } else if lease["metadata"]["deletionTimestamp"].is_null() {
            let mut lease = (**lease).clone();
            lease["metadata"]["deletionTimestamp"] = CREATED.into();
            lease["metadata"]["deletionGracePeriodSeconds"] = 0.into();
            self.record(Some(lease));
        }
        Answer::Deleted
    }

    /// The changes after `version`; none if some of them are forgotten.
    pub fn changes_since(&self, version: u64) -> Option<impl Iterator<Item = &Change>> {
        let known = self.history.partition_point(|change| change.version <= version);
        (version >= self.compacted).then(|| self.history.iter().skip(known))
    }

    /// Forgets all changes.
    pub fn compact(&mut self) {
        self.history.clear();
        self.compacted = self.version;
    }

    fn create(&mut self, object: Arc<Value>) -> Answer {
        let mut object = Arc::unwrap_or_clone(object);
        tidy(&mut object);
        if !is_sound(&object) {
            return invalid();
        }
        self.uids += 1;
        object["metadata"]["uid"] = format!("uid-{}", self.uids).into();
        object["metadata"]["creationTimestamp"] = CREATED.into();
        self.record(Some(object))
    }

    fn record(&mut self, mut after: Option<Value>) -> Answer {
        self.version += 1;
        if let Some(after) = &mut after {
            after["metadata"]["resourceVersion"] = self.version.to_string().into();
        }
        let after = after.map(Arc::new);
        let answer = after.clone().map_or(Answer::Deleted, Answer::Object);
        let before = std::mem::replace(&mut self.lease, after.clone());
        self.history.push_back(Change { version: self.version, before, after });
        if self.history.len() > HISTORY {
            self.compacted = self.history.pop_front().map_or(self.compacted, |change| change.version);
        }
        answer
    }
}

/// Removes what Go omits.
fn tidy(object: &mut Value) {
    if let Some(spec) = object["spec"].as_object_mut() {
        spec.retain(|_, value| !value.is_null());
    } else {
        object["spec"] = Map::new().into();
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|_, value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty()));
    }
}

fn is_sound(object: &Value) -> bool {
    let spec = &object["spec"];
    let least = |field: &str, least| spec.get(field).is_none_or(|value| value.as_i64().is_some_and(|value| value >= least));
    least("leaseDurationSeconds", 1) && least("leaseTransitions", 0)
}

fn invalid() -> Answer {
    Answer::Refused { refusal: Refusal::Invalid, message: "422".into() }
}

fn text<'v>(object: &'v Value, field: &str) -> &'v str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// The embedded server's store, which is given the same requests.
pub struct Twin(Store);

impl Twin {
    pub fn new(seed: u64) -> Self {
        Self(Store::new(Rules::default(), seed))
    }

    /// How it differs from the register's answer to the same request, if it does.
    pub fn differs(&mut self, request: &Request, answer: &Answer) -> Option<String> {
        let theirs = self.carry_out(&self.translated(request));
        self.compared(request, answer, theirs)
    }

    /// The same for an edit from outside, which has no version.
    pub fn differs_after_edit(&mut self, object: Arc<Value>, answer: &Answer) -> Option<String> {
        self.differs(&Request::Replace(object), answer)
    }

    /// The same for a DELETE without preconditions.
    pub fn differs_after_delete(&mut self, answer: &Answer) -> Option<String> {
        let done = self.0.delete(PLACE, &Preconditions::default(), 0);
        self.compared(&Request::Get, answer, done.map_or_else(|status| refused(&status), |_| Answer::Deleted))
    }

    fn compared(&self, request: &Request, answer: &Answer, theirs: Answer) -> Option<String> {
        let same = match (&theirs, answer) {
            (Answer::Object(theirs), Answer::Object(ours)) => {
                theirs["spec"] == ours["spec"]
                    && theirs["metadata"]["resourceVersion"] == ours["metadata"]["resourceVersion"]
                    && theirs["metadata"]["annotations"] == ours["metadata"]["annotations"]
            }
            (Answer::Refused { .. }, Answer::Refused { .. }) => true,
            (theirs, ours) => theirs == ours,
        };
        (!same).then(|| format!("the embedded server answers {theirs:?} to {request:?}, not {answer:?}"))
    }

    fn carry_out(&mut self, request: &Request) -> Answer {
        let done = match request {
            Request::Get => self.0.get(PLACE).map(object_of),
            Request::Create(object) => {
                Lease::decode(object).and_then(|lease| self.0.create(PLACE.namespace, lease, 0)).map(|lease| object_of(&lease))
            }
            Request::Replace(object) => {
                Lease::decode(object).and_then(|lease| self.0.replace(PLACE, lease, 0)).map(|(lease, _)| object_of(&lease))
            }
            Request::Delete { uid, resource_version } => {
                let must = Preconditions { uid: Some(uid.clone()), version: Some(resource_version.clone()) };
                self.0.delete(PLACE, &must, 0).map(|_| Answer::Deleted)
            }
        };
        done.unwrap_or_else(|status| refused(&status))
    }

    /// The same request, with this store's uid wherever it refers to the Lease.
    fn translated(&self, request: &Request) -> Request {
        let there = self.0.get(PLACE).ok().map(Lease::json);
        let Some(there) = there else { return request.clone() };
        let (version, uid) = (text(there, "resourceVersion"), text(there, "uid"));
        match request {
            Request::Replace(object) if text(object, "resourceVersion") == version && !text(object, "uid").is_empty() => {
                let mut object = Value::clone(object);
                for field in ["uid", "creationTimestamp", "deletionTimestamp"] {
                    object["metadata"][field] = there["metadata"][field].clone();
                }
                Request::Replace(object.into())
            }
            Request::Delete { resource_version, .. } if resource_version == version => {
                Request::Delete { uid: uid.into(), resource_version: version.into() }
            }
            Request::Get | Request::Create(_) | Request::Replace(_) | Request::Delete { .. } => request.clone(),
        }
    }
}

fn object_of(lease: &Lease) -> Answer {
    Answer::Object(lease.json().clone().into())
}

fn refused(status: &Status) -> Answer {
    match status.code {
        404 => Answer::NotFound,
        409 => Answer::Conflict,
        500.. => Answer::Unknown { message: status.message.clone().into(), retry_after: None },
        _ => Answer::Refused { refusal: Refusal::Invalid, message: status.message.clone().into() },
    }
}
