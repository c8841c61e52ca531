//! The surroundings of a driver: requests to the API server, the term, the clock, and reports.
//!
//! Owns the descriptions of requests. Whoever implements [`Server`] sends a request once, as described. The driver retries.

use std::{
    fmt::{self, Display, Formatter},
    time::Duration,
};

use super::{EntryType, Target, Verb};
use crate::{
    election::writes::LeaseWrite,
    request::{Answer, RequestError},
    time::Instant,
};

/// The surroundings of one driver.
pub trait Server {
    /// Sends a request once, and waits at most 10 s for its answer. Requests to targets are sent as the user `acting_as`, if there
    /// is one; those to journals and Leases never are.
    fn send(&self, request: Request, acting_as: Option<&str>) -> impl Future<Output = Answer>;
    /// Waits for this long.
    fn wait(&self, span: Duration) -> impl Future<Output = ()>;
    /// Reads the clock.
    fn now(&self) -> Instant;
    /// Returns true if SIGTERM or SIGINT has arrived, or the term is about to end. An undo goes on all the same.
    fn is_stopped(&self) -> bool;
    /// Reports an event to people and telemetry.
    fn report(&self, event: Event);
}

/// A request. Bodies are complete, and sent as they are.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// GET of a target without resourceVersion: a quorum read.
    Look(Target),
    /// A dry run: `dryRun=All&fieldManager=tenure` with `fieldValidation=Strict`, or `force=true` for an apply, which is only ever one. A
    /// DELETE has its dry run in its body.
    Plan(Target, Verb),
    /// A write: `fieldManager=tenure`.
    Write(Target, Verb),
    /// A request about the journal beside the Lease of this place: a Secret, whose text is in `stringData.journal` both when it is read and
    /// when it is written.
    Journal(Place, Verb),
    /// GET of a Lease, or this write of it.
    Lease(Place, Option<LeaseWrite>),
    /// A SelfSubjectAccessReview, as the user that acts: is the verb allowed for the target? An object means yes.
    Review(Target, &'static str),
}

/// Where a Lease is. Its journal is the Secret `LEASE-journal` beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The namespace of both.
    pub namespace: String,
    /// The name of the Lease.
    pub name: String,
}

impl Place {
    /// Returns the name of the journal.
    #[must_use]
    pub fn journal(&self) -> String {
        format!("{}-journal", self.name)
    }
}

impl Display for Place {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// An event of a driver, for people and telemetry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A driver before this one left its changes: they are undone first.
    Unfinished {
        /// The identity of the replica that made them.
        by: String,
    },
    /// A live mark of another transaction is on a target, and is waited for.
    Waiting {
        /// The target that bears the mark.
        target: Target,
        /// Whose it is, or why that is not known.
        why: String,
    },
    /// A request had no success, and is sent again.
    Retrying(RequestError),
    /// All changes are planned, and stored.
    Prepared,
    /// A driver has done with an object for now.
    Object {
        /// The object that the driver is done with.
        target: Target,
        /// The change of it.
        change: EntryType,
        /// What became of the change.
        fate: Fate,
    },
    /// Something that does not stop the driver.
    Warning {
        /// The target that the warning is about.
        target: Target,
        /// The warning, on one line.
        what: String,
    },
}

/// What a driver has done with one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The change was made.
    Changed,
    /// The change could not be made.
    Failed,
    /// The change was undone.
    Undone,
    /// The creation was undone, but a request of it that is late may still come.
    Doubtful,
    /// The object was left as it is.
    Left(String),
}

impl Fate {
    /// Returns the word for it in traces and metrics.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Failed => "failed",
            Self::Undone => "undone",
            Self::Doubtful => "doubtful",
            Self::Left(_) => "left",
        }
    }
}
