//! The Lease of each slot, in the register that the embedded API server has too.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure::{
    apiserver::register::{Change, Preconditions, Register, StatusError},
    election::{
        self,
        writes::{SLOTS, Sent},
    },
    request::{Answer, Refusal, Watched},
    slot::Slot,
};

/// The name of the first.
const NAME: &str = "lease";
/// The creation time of everything, which nobody looks at.
const CREATED: &str = "2027-01-15T08:00:00Z";

/// The Lease at the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// No Lease.
    Absent,
    /// A Lease without a spec: nobody gave it back (law 14).
    Free,
    /// Properly given back: taken at once.
    Released,
}

/// A request of anybody: the product lets only one room make its writes.
#[derive(Clone, Debug, PartialEq, Hash)]
pub enum Request {
    Get,
    List,
    Write(Sent),
}

impl From<election::Request> for Request {
    fn from(request: election::Request) -> Self {
        match request {
            election::Request::Get => Self::Get,
            election::Request::List => Self::List,
            election::Request::Write(write) => Self::Write(write.sent().clone()),
        }
    }
}

#[derive(Clone, Debug, Hash)]
pub struct Leases(Register);

impl Leases {
    /// With such a Lease for each slot.
    pub fn new(start: Start, slots: u8) -> Self {
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
        for slot in (0..slots).map(Slot) {
            let labels = if slots > 1 { json!({SLOTS: NAME}) } else { json!({}) };
            let metadata = json!({"name": name_of(slot), "namespace": "default", "labels": labels});
            let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec});
            register.create(&key(slot), lease.into(), CREATED).expect("it is a Lease");
        }
        Self(register)
    }

    pub fn lease(&self, slot: Slot) -> Option<&Arc<Value>> {
        self.0.get(&key(slot))
    }

    /// The version of the last change.
    pub const fn version(&self) -> u64 {
        self.0.version()
    }

    /// Carries a request out.
    pub fn carry_out(&mut self, slot: Slot, request: &Request) -> Answer {
        let key = &key(slot);
        let done = match request {
            Request::Get => self.lease(slot).cloned().ok_or(StatusError::NotFound),
            Request::List => {
                let objects = self.0.list("").filter(|lease| is_labelled(lease)).cloned().collect();
                return Answer::Listed { objects, resource_version: self.version().to_string() };
            }
            Request::Write(Sent::Create(object)) => self.0.create(key, Arc::clone(object), CREATED),
            Request::Write(Sent::Replace(object)) => self.0.replace(key, Arc::clone(object), CREATED),
            Request::Write(Sent::Delete { uid, resource_version }) => {
                let must = Preconditions { uid: Some(uid), resource_version: Some(resource_version) };
                return self.0.delete(key, must, CREATED).map_or_else(refused, |_| Answer::Deleted);
            }
        };
        done.map_or_else(refused, Answer::Object)
    }

    /// Somebody edits it, if it is there.
    pub fn edit(&mut self, slot: Slot, edit: impl FnOnce(&mut Value)) {
        if let Some(mut object) = self.lease(slot).map(|lease| Value::clone(lease)) {
            edit(&mut object);
            // What is against the rules is refused.
            let _ = self.0.replace(&key(slot), object.into(), CREATED);
        }
    }

    /// Somebody deletes it, if it is there.
    pub fn delete(&mut self, slot: Slot) {
        let _ = self.0.delete(&key(slot), Preconditions::default(), CREATED);
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

/// Returns whether a watch shows the Lease: that of one slot by its name, of several by the label.
pub fn is_shown(lease: &Value, slots: u8) -> bool {
    if slots > 1 { is_labelled(lease) } else { lease["metadata"]["name"] == NAME }
}

/// Returns what a watch of so many slots shows of a change: a Lease that loses its label is gone.
pub fn shown(change: &Change, slots: u8) -> Option<Watched> {
    match &change.after {
        Some(after) if is_shown(after, slots) => Some(Watched::Changed(Arc::clone(after))),
        Some(_) | None => {
            let gone = change.deleted().filter(|_| change.before.as_deref().is_some_and(|before| is_shown(before, slots)));
            gone.map(|gone| Watched::Deleted(gone.into()))
        }
    }
}

/// Returns whether a list of several slots shows the Lease.
pub fn is_labelled(lease: &Value) -> bool {
    lease["metadata"]["labels"][SLOTS] == NAME
}

/// The name of the Lease of this slot.
pub fn name_of(slot: Slot) -> String {
    if slot.0 == 0 { NAME.into() } else { format!("{NAME}-slot-{}", slot.0) }
}

fn key(slot: Slot) -> String {
    format!("default/{}", name_of(slot))
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
