//! The terms of the store's interface: places, conditions, rules, changes.

use std::collections::BTreeSet;

use crate::apiserver::{lease::Lease, status::Status};

/// Which namespaces exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Namespaces {
    /// All that are asked for.
    #[default]
    Any,
    /// These; a creation elsewhere is 404.
    Only(BTreeSet<String>),
}

/// The store's behaviour where real servers differ.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Which namespaces exist.
    pub namespaces: Namespaces,
    /// The feature gate CoordinatedLeaderElection: without it, as by default upstream, `strategy` and `preferredHolder` of new
    /// writes are dropped.
    pub coordinated: bool,
}

/// Where a Lease is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
}

impl Place<'_> {
    /// Whether `lease`, by its name, belongs here.
    ///
    /// # Errors
    /// 400 if it is not.
    pub(in crate::apiserver) fn check_name(&self, lease: &Lease) -> Result<(), Status> {
        let message = match lease.name() {
            name if name == self.name => return Ok(()),
            "" => format!("the name of the object ({} based on URL) was undeterminable: name must be provided", self.name),
            name => format!("the name of the object ({name}) does not match the name on the URL ({})", self.name),
        };
        Err(Status::bad_request(message))
    }
}

/// What must hold for a DELETE.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// The Lease's uid.
    pub uid: Option<String>,
    /// Its resourceVersion.
    pub version: Option<String>,
}

/// What a DELETE does about objects that the Lease owns. Nothing collects them here: their finalizer keeps the Lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dependents {
    /// What the Lease's finalizers say.
    #[default]
    AsMarked,
    /// They are deleted after the Lease.
    Background,
    /// They are deleted before the Lease.
    Foreground,
    /// They stay without it.
    Orphan,
}

/// One change, as history keeps it.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The version that it created.
    pub version: u64,
    /// The Lease before it; none for a creation.
    pub before: Option<Lease>,
    /// The Lease after it; none for a deletion.
    pub after: Option<Lease>,
}
