//! All Leases of the embedded server and every change to them: what etcd and the registry are to the real one.
//!
//! Owns versions, uids, preconditions and the history that watches read. Pure: the wall time is an argument, uids come from a
//! seed, and nothing blocks, so a simulator can run it unchanged.
//!
//! Invariants: the version rises by one with every change and never otherwise; a write that changes nothing is not a change;
//! history holds every change after `compacted`, in order.

mod terms;

use std::collections::{BTreeMap, VecDeque};

use fastrand::Rng;
use serde_json::{Map, Value};

use super::{
    admission,
    document::Document,
    gotime,
    lease::{self, Lease},
    patch::{self, Patch, Validation},
    schema,
    status::{self, Cause, Status},
    validation,
    warnings::of_owners,
};

pub use terms::{Change, Dependents, Namespaces, Place, Preconditions, Rules};

/// Maximum number of changes in the history; a test compacts earlier.
const HISTORY: usize = 10_000;

const MODIFIED: &str = "the object has been modified; please apply your changes to the latest version and try again";

/// See the module.
#[derive(Clone, Debug)]
pub struct Store {
    rules: Rules,
    leases: BTreeMap<(String, String), Lease>,
    history: VecDeque<Change>,
    version: u64,
    compacted: u64,
    rng: Rng,
}

impl Store {
    /// An empty store whose uids follow from `seed`.
    #[must_use]
    pub fn new(rules: Rules, seed: u64) -> Self {
        let (leases, history) = (BTreeMap::new(), VecDeque::new());
        Self { rules, leases, history, version: 1, compacted: 0, rng: Rng::with_seed(seed) }
    }

    /// The version of the last change.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// The Lease there.
    ///
    /// # Errors
    /// 404.
    pub fn get(&self, place: Place<'_>) -> Result<&Lease, Status> {
        self.leases.get(&key(place)).ok_or_else(|| Status::not_found(place.name))
    }

    /// All Leases of a namespace, or of all namespaces, by name.
    pub fn list(&self, namespace: Option<&str>) -> impl Iterator<Item = &Lease> {
        self.leases.iter().filter(move |((there, _), _)| namespace.is_none_or(|asked| asked == there)).map(|(_, lease)| lease)
    }

    /// All Leases of a namespace, or of all namespaces, as of `version`, keyed by their paths within what was asked for.
    ///
    /// # Errors
    /// 410 if changes after it were compacted.
    pub(super) fn list_at(&self, namespace: Option<&str>, version: u64) -> Result<BTreeMap<String, &Lease>, Status> {
        let path = |lease: &Lease| match namespace {
            Some(_) => lease.name().to_owned(),
            None => format!("{}/{}", lease.namespace(), lease.name()),
        };
        let of_it = |lease: &&Lease| namespace.is_none_or(|namespace| namespace == lease.namespace());
        let mut leases: BTreeMap<_, _> = self.list(namespace).map(|lease| (path(lease), lease)).collect();
        for change in self.changes_since(version)?.rev() {
            if let Some(after) = change.after.as_ref().filter(of_it) {
                leases.remove(&path(after));
            }
            if let Some(before) = change.before.as_ref().filter(of_it) {
                leases.insert(path(before), before);
            }
        }
        Ok(leases)
    }

    /// The changes after `version`.
    ///
    /// # Errors
    /// 410 if some of them were compacted.
    pub fn changes_since(&self, version: u64) -> Result<impl DoubleEndedIterator<Item = &Change>, Status> {
        if version < self.compacted {
            return Err(Status::expired(format!("too old resource version: {version} ({})", self.compacted)));
        }
        let known = self.history.partition_point(|change| change.version <= version);
        Ok(self.history.iter().skip(known))
    }

    /// Every change that the history still holds.
    pub fn history(&self) -> impl Iterator<Item = &Change> {
        self.history.iter()
    }

    /// Forgets the changes up to now: watches from earlier versions get 410.
    pub fn compact(&mut self) {
        self.history.clear();
        self.compacted = self.version;
    }

    /// A disposable copy, without the history, which no write reads.
    pub(super) fn scratch(&self) -> Self {
        let (rules, leases, rng) = (self.rules.clone(), self.leases.clone(), self.rng.clone());
        Self { rules, leases, history: VecDeque::new(), version: self.version, compacted: self.version, rng }
    }

    /// POST.
    ///
    /// # Errors
    /// 404 for the namespace, 409 if it exists, 422 for a broken rule, 500 for a given resourceVersion that is one.
    pub fn create(&mut self, namespace: &str, mut lease: Lease, wall: i64) -> Result<Lease, Status> {
        for field in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
            lease.set(field, None);
        }
        if lease.name().is_empty() && !lease.meta("generateName").is_empty() {
            let stem: String = lease.meta("generateName").chars().take(58).collect();
            lease.set("name", Some((stem + &admission::suffix(&mut self.rng)).into()));
        }
        let given_version = lease::number(lease.version()).is_ok_and(|version| version > 0);
        let lease = self.admit_new(namespace, lease, wall)?;
        if given_version {
            return Err(Status::unexplained("resourceVersion should not be set on objects to be created"));
        }
        let name = lease.name().to_owned();
        if let Ok(existing) = self.get(Place { namespace, name: &name }) {
            return Err(Status::already_exists(&name, existing.is_deleting()));
        }
        Ok(self.commit(lease))
    }

    /// PUT; true with the answer if it created the Lease.
    ///
    /// # Errors
    /// 409 for another uid or version, 404 for the namespace, 422 for a broken rule or a missing version.
    pub fn replace(&mut self, place: Place<'_>, lease: Lease, wall: i64) -> Result<(Lease, bool), Status> {
        let given = number(lease.version())?;
        let old = self.leases.get(&key(place)).cloned();
        let there = old.as_ref().map_or("", Lease::uid);
        if !lease.uid().is_empty() && lease.uid() != there {
            let why = format!(
                "StorageError: invalid object, Code: 4, Key: /registry/leases/{}/{}, ResourceVersion: 0, AdditionalErrorMsg: \
                 Precondition failed: UID in precondition: {}, UID in object meta: {there}",
                place.namespace,
                place.name,
                lease.uid()
            );
            return Err(Status::conflict(place.name, &why));
        }
        match old {
            Some(old) => Ok((self.update(place, &old, lease, given)?, false)),
            None => {
                let lease = self.admit_new(place.namespace, lease, wall)?;
                Ok((self.commit(lease), true))
            }
        }
    }

    /// PATCH; it warns even if it fails afterwards.
    ///
    /// # Errors
    /// 404 if there is no such Lease, 400 or 422 for a patch that does not fit, and those of a PUT.
    pub fn patch(&mut self, place: Place<'_>, patch: &Patch, warnings: &mut Vec<String>) -> Result<Lease, Status> {
        let old = self.get(place)?.clone();
        let patched = patch::apply(patch.form, old.json(), &patch.change)?;
        let decoded =
            schema::decode(&patched, &schema::LEASE).map_err(|why| Status::invalid_patch(&patched.to_string(), &why))?;
        let head = |field: &str| patched.get(field).or_else(|| old.json().get(field));
        if let (Some(kind), Some(version)) = (head("kind"), head("apiVersion"))
            && (head("kind"), head("apiVersion")) != (old.json().get("kind"), old.json().get("apiVersion"))
        {
            let why = format!("no kind {kind} is registered for version {version} in scheme \"pkg/runtime/scheme.go:110\"");
            return Err(Status::invalid_patch(&patched.to_string(), &why));
        }
        let unknown = schema::complaints(&Document::from(&patched), Some(&schema::LEASE));
        let found = [patch.complaints.as_slice(), &unknown].concat();
        match patch.validation {
            Validation::Strict if !found.is_empty() => {
                let why = format!("strict decoding error: {}", found.join(", "));
                return Err(Status::invalid_patch(&patched.to_string(), &why));
            }
            Validation::Warn => warnings.extend(found),
            Validation::Strict | Validation::Ignore => {}
        }
        let mut new = Lease::new(decoded);
        place.check_name(&new)?;
        if !new.namespace().is_empty() && new.namespace() != place.namespace {
            return Err(Status::another_namespace());
        }
        warnings.extend(of_owners(&admission::unite_owners(&mut new), true));
        let given = number(new.version())?;
        self.update(place, &old, new, given)
    }

    /// DELETE: the answer is a `Status`, or the Lease if it waits for its finalizers.
    ///
    /// # Errors
    /// 404 if there is no such Lease, 409 if a precondition does not hold.
    pub fn delete(&mut self, place: Place<'_>, must: &Preconditions, wall: i64) -> Result<Value, Status> {
        self.delete_with(Dependents::AsMarked, place, must, wall)
    }

    /// As [`Self::delete`], with a policy for the Lease's dependents.
    ///
    /// # Errors
    /// As there.
    pub fn delete_with(
        &mut self,
        dependents: Dependents,
        place: Place<'_>,
        must: &Preconditions,
        wall: i64,
    ) -> Result<Value, Status> {
        let old = self.get(place)?.clone();
        let mut lease = old.clone();
        if let Some(uid) = must.uid.as_deref().filter(|uid| *uid != lease.uid()) {
            let why = format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then \
                 recreated",
                lease.uid()
            );
            return Err(Status::precondition(place.name, &why));
        }
        if let Some(version) = must.version.as_deref().filter(|version| *version != lease.version()) {
            let why = format!(
                "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). The object \
                 might have been modified",
                lease.version()
            );
            return Err(Status::precondition(place.name, &why));
        }
        admission::mark(&mut lease, dependents);
        if lease.finalizers().is_empty() {
            self.remove(place);
            return Ok(status::deleted(place.name, lease.uid()));
        }
        if !lease.is_deleting() {
            if let Some(generation) = lease.metadata("generation").and_then(Value::as_i64).filter(|generation| *generation > 0) {
                lease.set("generation", Some((generation + 1).into()));
            }
            lease.set("deletionTimestamp", Some(gotime::seconds(wall).into()));
            lease.set("deletionGracePeriodSeconds", Some(0.into()));
        }
        let lease = if lease == old { old } else { self.commit(lease) };
        Ok(lease.json().clone())
    }

    /// Stores `object` there bypassing all rules, as no client could, so that a test can plant nonsense. Sets its name, namespace,
    /// a new version and, if it has none, a uid.
    pub fn plant(&mut self, place: Place<'_>, object: Value) -> Lease {
        let mut lease = Lease::new(object);
        lease.set("name", Some(place.name.into()));
        lease.set("namespace", Some(place.namespace.into()));
        if lease.uid().is_empty() {
            let uid = match self.get(place) {
                Ok(old) => old.uid().to_owned(),
                Err(_) => admission::uid(&mut self.rng),
            };
            lease.set("uid", Some(uid.into()));
        }
        self.record(key(place), Some(lease)).unwrap_or_else(|| Lease::new(Map::new().into()))
    }

    /// Removes the Lease there, whatever its finalizers say.
    pub fn remove(&mut self, place: Place<'_>) {
        if self.leases.contains_key(&key(place)) {
            self.record(key(place), None);
        }
    }

    fn admit_new(&mut self, namespace: &str, mut lease: Lease, wall: i64) -> Result<Lease, Status> {
        lease.set("namespace", Some(namespace.into()));
        match &self.rules.namespaces {
            Namespaces::Only(known) if !known.contains(namespace) => return Err(Status::no_namespace(namespace)),
            Namespaces::Only(_) | Namespaces::Any => {}
        }
        lease.set("uid", Some(admission::uid(&mut self.rng).into()));
        lease.set("creationTimestamp", Some(gotime::seconds(wall).into()));
        if !self.rules.coordinated {
            admission::close_gate(&mut lease, None);
        }
        let causes = validation::create(&lease);
        if !causes.is_empty() {
            return Err(Status::invalid(lease.name(), "Lease", &causes));
        }
        Ok(lease)
    }

    fn update(&mut self, place: Place<'_>, old: &Lease, mut new: Lease, given: u64) -> Result<Lease, Status> {
        if given == 0 {
            let cause = Cause::invalid("metadata.resourceVersion", "0", "must be specified for an update");
            return Err(Status::invalid(place.name, "leases", &[cause]));
        }
        if Ok(given) != old.version().parse() {
            return Err(Status::conflict(place.name, MODIFIED));
        }
        new.set("resourceVersion", Some(old.version().into()));
        admission::inherit(&mut new, old);
        if !self.rules.coordinated {
            admission::close_gate(&mut new, Some(old));
        }
        let causes = validation::update(&new, old);
        if !causes.is_empty() {
            return Err(Status::invalid(place.name, "Lease", &causes));
        }
        if old.is_deleting() && new.finalizers().is_empty() {
            self.remove(place);
            return Ok(new);
        }
        if new == *old {
            return Ok(new);
        }
        Ok(self.commit(new))
    }

    fn commit(&mut self, lease: Lease) -> Lease {
        let key = (lease.namespace().to_owned(), lease.name().to_owned());
        self.record(key, Some(lease.clone())).unwrap_or(lease)
    }

    /// The only place where the version rises.
    fn record(&mut self, key: (String, String), mut after: Option<Lease>) -> Option<Lease> {
        self.version += 1;
        if let Some(after) = &mut after {
            after.set("resourceVersion", Some(self.version.to_string().into()));
        }
        let before = match &after {
            Some(after) => self.leases.insert(key, after.clone()),
            None => self.leases.remove(&key),
        };
        self.history.push_back(Change { version: self.version, before, after: after.clone() });
        if self.history.len() > HISTORY {
            self.compacted = self.history.pop_front().map_or(self.compacted, |change| change.version);
        }
        after
    }
}

/// A resourceVersion as the real server reads it; 0 means none.
fn number(version: &str) -> Result<u64, Status> {
    if version.is_empty() {
        return Ok(0);
    }
    lease::number(version).map_err(Status::unexplained)
}

fn key(place: Place<'_>) -> (String, String) {
    (place.namespace.into(), place.name.into())
}

#[cfg(test)]
mod tests;
