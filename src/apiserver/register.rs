//! Leases and their versions: what etcd and the registry are to a real API server.
//!
//! Owns the objects, one version for all of them, uids, preconditions, finalizers, the rules of a Lease's spec, and the history
//! that feeds watches. Pure: the embedded server, the simulation and the election's unit tests share it. It reads no clock, does no
//! IO and knows no HTTP; times and the seed of the uids are arguments.
//!
//! A key is `namespace/name`. Objects are JSON, shared and never changed in place.
//!
//! Invariants: the version rises by one with every change, and never otherwise; a write that changes nothing is not a change; the
//! history holds every change after `compacted`, in order.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    sync::Arc,
};

use serde_json::{Map, Value, json};

/// How many changes are kept for watches.
const HISTORY: usize = 1_000;

/// The stored objects, their versions, and the history of their changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Register {
    objects: BTreeMap<String, Arc<Value>>,
    history: VecDeque<Change>,
    version: u64,
    compacted: u64,
    seed: u32,
    uids: u64,
}

/// A change of a single object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Change {
    /// The version that it made.
    pub version: u64,
    /// The object before it; none if it was created.
    pub before: Option<Arc<Value>>,
    /// The object after it; none if it was deleted.
    pub after: Option<Arc<Value>>,
}

/// Conditions that must hold for a DELETE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preconditions<'a> {
    /// `metadata.uid`.
    pub uid: Option<&'a str>,
    /// `metadata.resourceVersion`.
    pub resource_version: Option<&'a str>,
}

/// Why nothing was done, by the reason that a `Status` gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusError {
    /// 404.
    NotFound,
    /// 409 to a POST.
    AlreadyExists,
    /// 409: what this names is another than the sender believes.
    Conflict(&'static str),
    /// 422.
    Invalid {
        /// The path of the field, such as `spec.leaseDurationSeconds`.
        field: &'static str,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// 410: the changes that were asked for are forgotten.
    Expired,
}

impl Register {
    /// An empty one; equal seeds give equal uids.
    pub const fn new(seed: u32) -> Self {
        Self { objects: BTreeMap::new(), history: VecDeque::new(), version: 1, compacted: 0, seed, uids: 0 }
    }

    /// The version of the last change.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Returns the object that is stored under `key`.
    pub fn get(&self, key: &str) -> Option<&Arc<Value>> {
        self.objects.get(key)
    }

    /// All whose keys begin with this: `namespace/`, or nothing for all namespaces.
    pub fn list(&self, prefix: &str) -> impl Iterator<Item = &Arc<Value>> {
        let from = self.objects.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        from.take_while(move |(key, _)| key.starts_with(prefix)).map(|(_, object)| object)
    }

    /// POST; `now` becomes the time of creation.
    ///
    /// # Errors
    /// AlreadyExists, Invalid.
    pub fn create(&mut self, key: &str, object: Arc<Value>, now: &str) -> Result<Arc<Value>, StatusError> {
        let mut object = tidied(object);
        check(&object)?;
        if self.objects.contains_key(key) {
            return Err(StatusError::AlreadyExists);
        }
        self.uids += 1;
        let uid = format!("{:08x}-0000-4000-8000-{:012x}", self.seed, self.uids);
        let metadata = fields(&mut object, "metadata");
        metadata.insert("uid".into(), uid.into());
        metadata.insert("creationTimestamp".into(), now.into());
        metadata.remove("deletionTimestamp");
        metadata.remove("deletionGracePeriodSeconds");
        Ok(self.commit(key, object))
    }

    /// PUT. One without uid creates what is not there; one that takes the last finalizer of a deleted object removes it.
    ///
    /// # Errors
    /// Conflict, Invalid.
    pub fn replace(&mut self, key: &str, object: Arc<Value>, now: &str) -> Result<Arc<Value>, StatusError> {
        let uid = text(&object, "uid");
        let Some(old) = self.objects.get(key) else {
            return if uid.is_empty() { self.create(key, object, now) } else { Err(StatusError::Conflict("uid")) };
        };
        if !uid.is_empty() && uid != text(old, "uid") {
            return Err(StatusError::Conflict("uid"));
        }
        match text(&object, "resourceVersion") {
            "" | "0" => {
                return Err(StatusError::Invalid { field: "metadata.resourceVersion", rule: "must be specified for an update" });
            }
            version if version != text(old, "resourceVersion") => return Err(StatusError::Conflict("resourceVersion")),
            _ => {}
        }
        let mut object = tidied(object);
        let metadata = fields(&mut object, "metadata");
        for field in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
            match old["metadata"].get(field) {
                Some(value) => metadata.insert(field.into(), value.clone()),
                None => metadata.remove(field),
            };
        }
        check(&object)?;
        if is_deleting(old) && !has_finalizers(&object) {
            self.remove(key);
            return Ok(object.into());
        }
        if object == **old {
            return Ok(Arc::clone(old));
        }
        Ok(self.commit(key, object))
    }

    /// DELETE; what has finalizers is marked with `now`, returned, and stays until they are gone.
    ///
    /// # Errors
    /// NotFound, Conflict.
    pub fn delete(&mut self, key: &str, must: Preconditions<'_>, now: &str) -> Result<Option<Arc<Value>>, StatusError> {
        let old = self.objects.get(key).ok_or(StatusError::NotFound)?;
        for (field, wanted) in [("uid", must.uid), ("resourceVersion", must.resource_version)] {
            if wanted.is_some_and(|wanted| wanted != text(old, field)) {
                return Err(StatusError::Conflict(field));
            }
        }
        if !has_finalizers(old) {
            self.remove(key);
            return Ok(None);
        }
        if is_deleting(old) {
            return Ok(Some(Arc::clone(old)));
        }
        let mut marked = Value::clone(old);
        let metadata = fields(&mut marked, "metadata");
        metadata.insert("deletionTimestamp".into(), now.into());
        metadata.insert("deletionGracePeriodSeconds".into(), json!(0));
        Ok(Some(self.commit(key, marked)))
    }

    /// Stores it there under a new version, whatever the rules say: what no client can do.
    pub fn commit(&mut self, key: &str, mut object: Value) -> Arc<Value> {
        self.version += 1;
        fields(&mut object, "metadata").insert("resourceVersion".into(), self.version.to_string().into());
        let object = Arc::new(object);
        let before = self.objects.insert(key.into(), Arc::clone(&object));
        self.remember(before, Some(Arc::clone(&object)));
        object
    }

    /// Removes what is there, whatever its finalizers say.
    pub fn remove(&mut self, key: &str) {
        if let Some(before) = self.objects.remove(key) {
            self.version += 1;
            self.remember(Some(before), None);
        }
    }

    /// The changes after this version.
    ///
    /// # Errors
    /// Expired.
    pub fn changes_since(&self, version: u64) -> Result<impl Iterator<Item = &Change>, StatusError> {
        if version < self.compacted {
            return Err(StatusError::Expired);
        }
        let known = self.history.partition_point(|change| change.version <= version);
        Ok(self.history.iter().skip(known))
    }

    /// Forgets all changes: watches from earlier versions are expired.
    pub fn compact(&mut self) {
        self.history.clear();
        self.compacted = self.version;
    }

    fn remember(&mut self, before: Option<Arc<Value>>, after: Option<Arc<Value>>) {
        self.history.push_back(Change { version: self.version, before, after });
        if self.history.len() > HISTORY {
            self.compacted = self.history.pop_front().map_or(self.compacted, |change| change.version);
        }
    }
}

impl Change {
    /// The object of a DELETED event: the last that there was, with the version of this change.
    pub fn deleted(&self) -> Option<Value> {
        let mut object = Value::clone(self.before.as_deref()?);
        fields(&mut object, "metadata").insert("resourceVersion".into(), self.version.to_string().into());
        Some(object)
    }
}

/// A copy without what Go leaves out: nulls and empty lists.
fn tidied(object: Arc<Value>) -> Value {
    let mut object = Arc::unwrap_or_clone(object);
    for part in ["metadata", "spec"] {
        fields(&mut object, part).retain(|_, value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty()));
    }
    object
}

fn check(object: &Value) -> Result<(), StatusError> {
    let least = |name: &str, least| object["spec"].get(name).is_none_or(|it| it.as_i64().is_some_and(|it| it >= least));
    let is_set = |name: &str| object["spec"][name].as_str().is_some_and(|text| !text.is_empty());
    let rules = [
        (least("leaseDurationSeconds", 1), "spec.leaseDurationSeconds", "must be greater than 0"),
        (least("leaseTransitions", 0), "spec.leaseTransitions", "must be greater than or equal to 0"),
        (
            !is_set("preferredHolder") || is_set("strategy"),
            "spec.preferredHolder",
            "may only be specified if `strategy` is defined",
        ),
    ];
    let broken = rules.into_iter().find(|(holds, ..)| !holds);
    broken.map_or(Ok(()), |(_, field, rule)| Err(StatusError::Invalid { field, rule }))
}

fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

fn has_finalizers(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty())
}

fn text<'v>(object: &'v Value, field: &str) -> &'v str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// `metadata` or `spec` of an object.
fn fields<'v>(object: &'v mut Value, part: &str) -> &'v mut Map<String, Value> {
    let value = &mut object[part];
    if !value.is_object() {
        *value = Map::new().into();
    }
    let Value::Object(fields) = value else { unreachable!("made one just above") };
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "default/a";
    const NOW: &str = "2026-01-01T00:00:00Z";

    fn held(holder: &str) -> Arc<Value> {
        json!({"metadata": {"name": "a"}, "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15}}).into()
    }

    fn edited(object: &Value, pointer: &str, value: Value) -> Arc<Value> {
        let mut object = object.clone();
        *object.pointer_mut(pointer).unwrap() = value;
        object.into()
    }

    #[test]
    fn the_version_rises_with_every_change_and_never_otherwise() {
        let mut register = Register::new(7);
        let first = register.create(KEY, held("x"), NOW).unwrap();
        let same = register.replace(KEY, edited(&first, "/spec/holderIdentity", json!("x")), NOW).unwrap();
        let second = register.replace(KEY, edited(&first, "/spec/holderIdentity", json!("y")), NOW).unwrap();
        assert_eq!(register.replace(KEY, Arc::clone(&first), NOW), Err(StatusError::Conflict("resourceVersion")));
        assert_eq!(register.delete(KEY, Preconditions::default(), NOW), Ok(None));

        assert_eq!((&same, text(&first, "resourceVersion"), text(&second, "resourceVersion")), (&first, "2", "3"));
        let versions: Vec<u64> = register.changes_since(1).unwrap().map(|change| change.version).collect();
        assert_eq!((versions, register.version()), (vec![2, 3, 4], 4));
        assert_eq!(register.changes_since(3).unwrap().next().unwrap().deleted().unwrap()["metadata"]["resourceVersion"], "4");
    }

    #[test]
    fn an_object_made_anew_is_another() {
        let mut register = Register::new(7);
        let old = register.create(KEY, held("x"), NOW).unwrap();
        register.remove(KEY);
        assert_eq!(register.replace(KEY, Arc::clone(&old), NOW), Err(StatusError::Conflict("uid")));
        let new = register.create(KEY, held("x"), NOW).unwrap();

        assert_ne!(text(&old, "uid"), text(&new, "uid"));
        assert_eq!(register.replace(KEY, Arc::clone(&old), NOW), Err(StatusError::Conflict("uid")));
        let stale = Preconditions { uid: Some(text(&new, "uid")), resource_version: Some(text(&old, "resourceVersion")) };
        assert_eq!(register.delete(KEY, stale, NOW), Err(StatusError::Conflict("resourceVersion")));
    }

    #[test]
    fn finalizers_keep_an_object_until_the_last_is_taken() {
        let mut register = Register::new(7);
        let object = json!({"metadata": {"name": "a", "finalizers": ["example.com/f"]}, "spec": {}});
        register.create(KEY, object.into(), NOW).unwrap();
        let marked = register.delete(KEY, Preconditions::default(), NOW).unwrap().unwrap();
        let again = register.delete(KEY, Preconditions::default(), NOW).unwrap().unwrap();
        register.replace(KEY, edited(&marked, "/metadata/finalizers", json!([])), NOW).unwrap();

        assert_eq!((&again, &marked["metadata"]["deletionTimestamp"]), (&marked, &json!(NOW)));
        assert_eq!(register.get(KEY), None);
    }

    #[test]
    fn what_is_forgotten_is_expired() {
        let mut register = Register::new(7);
        for _ in 0..=HISTORY {
            register.commit(KEY, Value::clone(&held("x")));
        }

        assert_eq!(register.changes_since(1).map(Iterator::count), Err(StatusError::Expired));
        assert_eq!(register.changes_since(2).map(Iterator::count), Ok(HISTORY));
        register.compact();
        assert_eq!(register.changes_since(register.version()).map(Iterator::count), Ok(0));
        assert_eq!(register.changes_since(2).map(Iterator::count), Err(StatusError::Expired));
    }

    #[test]
    fn a_namespace_is_listed_without_its_neighbours() {
        let mut register = Register::new(7);
        for key in ["a-b/x", "a/x", "a/y", "ab/x"] {
            register.create(key, held(key), NOW).unwrap();
        }

        let holders: Vec<_> = register.list("a/").map(|lease| lease["spec"]["holderIdentity"].clone()).collect();
        assert_eq!(holders, ["a/x", "a/y"]);
        assert_eq!(register.list("").count(), 4);
    }
}
