//! The one Lease, in the register that the embedded API server has too.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure::{
    apiserver::register::{Change, Preconditions, Register, StatusError},
    election::{Answer, Refusal, Request},
};

const KEY: &str = "default/lease";
/// The creation time of everything, which nobody looks at.
const CREATED: &str = "2027-01-15T08:00:00Z";

/// What there is in the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// No Lease.
    Absent,
    /// A Lease without a spec: nobody gave it back (law 14).
    Free,
    /// Properly given back: taken at once.
    Released,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct TheLease(Register);

impl TheLease {
    /// With such a Lease.
    pub fn new(start: Start) -> Self {
        let mut register = Register::new(0);
        let time = "2026-01-01T00:00:00.000000Z";
        let mark = json!({
            "holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": time, "renewTime": time, "leaseTransitions": 4,
        });
        let spec = match start {
            Start::Absent => return Self(register),
            Start::Free => json!({}),
            Start::Released => mark,
        };
        let metadata = json!({"name": "lease", "namespace": "default"});
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec});
        register.create(KEY, lease.into(), CREATED).expect("it is a Lease");
        Self(register)
    }

    pub fn lease(&self) -> Option<&Arc<Value>> {
        self.0.get(KEY)
    }

    /// The version of the last change.
    pub const fn version(&self) -> u64 {
        self.0.version()
    }

    /// Carries a request out.
    pub fn carry_out(&mut self, request: &Request) -> Answer {
        let done = match request {
            Request::List => unreachable!("there is one Lease"),
            Request::Get => self.lease().cloned().ok_or(StatusError::NotFound),
            Request::Create(object) => self.0.create(KEY, Arc::clone(object), CREATED),
            Request::Replace(object) => self.0.replace(KEY, Arc::clone(object), CREATED),
            Request::Delete { uid, resource_version } => {
                let must = Preconditions { uid: Some(uid), resource_version: Some(resource_version) };
                return self.0.delete(KEY, must, CREATED).map_or_else(refused, |_| Answer::Deleted);
            }
        };
        done.map_or_else(refused, Answer::Object)
    }

    /// Somebody edits it, if it is there.
    pub fn edit(&mut self, edit: impl FnOnce(&mut Value)) {
        if let Some(mut object) = self.lease().map(|lease| Value::clone(lease)) {
            edit(&mut object);
            // What is against the rules is refused.
            let _ = self.0.replace(KEY, object.into(), CREATED);
        }
    }

    /// Somebody deletes it, if it is there.
    pub fn delete(&mut self) {
        let _ = self.0.delete(KEY, Preconditions::default(), CREATED);
    }

    /// The changes after `version`; none if some of them are forgotten.
    pub fn changes_since(&self, version: u64) -> Option<impl Iterator<Item = &Change>> {
        self.0.changes_since(version).ok()
    }

    /// Forgets all changes.
    pub fn compact(&mut self) {
        self.0.compact();
    }
}

fn refused(why: StatusError) -> Answer {
    match why {
        StatusError::NotFound => Answer::NotFound,
        StatusError::AlreadyExists | StatusError::Conflict(_) => Answer::Conflict,
        StatusError::Invalid { .. } | StatusError::Expired => {
            Answer::Refused { refusal: Refusal::Invalid, message: format!("{why:?}").into() }
        }
    }
}
