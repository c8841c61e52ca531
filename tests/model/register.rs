//! The one Lease: a register with compare-and-swap and a uid, as the API server keeps it.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure::election::{Answer, Request, Watched};

/// The time that a proper release leaves behind.
const EARLIER: &str = "2026-01-01T00:00:00.000000Z";

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Register {
    object: Option<Arc<Value>>,
    version: u64,
    uids: u64,
}

/// The content of the register when a model begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Properly released: taken, and the workload started, at once.
    Released,
    /// A Lease without a spec: taken at once, the workload started after the creation wait (law 14).
    Free,
    /// No Lease.
    Absent,
}

impl Register {
    /// With such a Lease.
    pub fn new(start: Start) -> Self {
        let mut register = Self::default();
        let mark = json!({
            "holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": EARLIER, "renewTime": EARLIER, "leaseTransitions": 4,
        });
        match start {
            Start::Released => register.create(json!({"spec": mark})),
            Start::Free => register.create(json!({"spec": {}})),
            Start::Absent => {}
        }
        register
    }

    /// The current Lease.
    pub const fn lease(&self) -> Option<&Arc<Value>> {
        self.object.as_ref()
    }

    /// The version of the last change.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Carries a request out.
    pub fn carry_out(&mut self, request: &Request) -> Answer {
        match (request, &self.object) {
            (Request::Get, Some(stored)) => Answer::Object(Arc::clone(stored)),
            (Request::Get | Request::Delete { .. }, None) => Answer::NotFound,
            (Request::Create(_), Some(_)) => Answer::Conflict,
            (Request::Create(object), None) => {
                self.create(Value::clone(object));
                self.read()
            }
            (Request::Replace(object), None) if object["metadata"]["uid"].is_null() => {
                self.create(Value::clone(object));
                self.read()
            }
            (Request::Replace(_), None) => Answer::Conflict,
            (Request::Replace(object), Some(stored)) => {
                let (asked, there) = (&object["metadata"], &stored["metadata"]);
                let uid = asked["uid"].is_null() || asked["uid"] == there["uid"];
                if !uid || asked["resourceVersion"] != there["resourceVersion"] {
                    return Answer::Conflict;
                }
                if stored != object {
                    self.object = Some(Arc::clone(object));
                    self.rise();
                }
                self.read()
            }
            (Request::Delete { uid, resource_version }, Some(stored)) => {
                if stored["metadata"]["uid"] != **uid || stored["metadata"]["resourceVersion"] != **resource_version {
                    return Answer::Conflict;
                }
                self.delete();
                Answer::Deleted
            }
        }
    }

    /// Somebody edits the spec.
    pub fn edit(&mut self, edit: impl FnOnce(&mut Value)) -> Option<Watched> {
        edit(Arc::make_mut(self.object.as_mut()?));
        self.rise();
        self.object.clone().map(Watched::Changed)
    }

    /// Somebody deletes the Lease.
    pub fn delete(&mut self) -> Option<Watched> {
        self.rise();
        self.object.take().map(Watched::Deleted)
    }

    fn read(&self) -> Answer {
        self.object.clone().map_or(Answer::NotFound, Answer::Object)
    }

    fn create(&mut self, mut object: Value) {
        self.uids += 1;
        object["metadata"]["uid"] = format!("uid-{}", self.uids).into();
        self.object = Some(object.into());
        self.rise();
    }

    fn rise(&mut self) {
        self.version += 1;
        if let Some(object) = &mut self.object {
            Arc::make_mut(object)["metadata"]["resourceVersion"] = self.version.to_string().into();
        }
    }
}
