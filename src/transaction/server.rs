//! The surroundings of a driver: requests to the API server, the term, the clock, and reports.
//!
//! Owns the descriptions of requests. Whoever implements [`Server`] sends a request once, as described. The driver retries.

use std::{
    fmt::{self, Display, Formatter},
    time::Duration,
};

use super::{EntryType, State, Target, Verb};
use crate::{
    election::writes::LeaseWrite,
    request::{Answer, Refusal, RequestError},
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
    /// A write, as this `fieldManager`.
    Write(Target, Verb, String),
    /// A request about the journal beside the Lease of this place: a Secret.
    Journal(Place, Verb),
    /// GET of a Lease, or this write of it.
    Lease(Place, Option<LeaseWrite>),
    /// A SelfSubjectAccessReview, as the user that acts: is the verb allowed for the target? An object means yes.
    Review(Target, &'static str),
}

impl Request {
    /// Returns true if it changes nothing, and so may be sent again as it is.
    pub(super) const fn is_read(&self) -> bool {
        matches!(self, Self::Look(_) | Self::Journal(_, Verb::Get) | Self::Lease(_, None) | Self::Review(..))
    }

    /// Returns true if it is about what is the driver's own, and not a target.
    pub(super) const fn is_own(&self) -> bool {
        matches!(self, Self::Journal(..) | Self::Lease(..))
    }

    /// Returns true if it may succeed after such a refusal. A kind that is no longer served is not worth a retry; the API server itself is.
    pub(super) fn is_passing(&self, refusal: Refusal) -> bool {
        refusal.may_pass() || refusal == Refusal::NotServed && self.is_own()
    }

    /// Returns true if it is sent again after this answer: it may have been done, or was certainly not.
    pub(super) fn is_sent_again(&self, answer: &Answer) -> bool {
        match answer {
            Answer::Unknown { .. } => true,
            Answer::Refused { refusal, .. } => self.is_passing(*refusal),
            Answer::Object(_) | Answer::Listed { .. } | Answer::Deleted | Answer::NotFound | Answer::Conflict => false,
        }
    }
}

/// What the request is about.
impl Display for Request {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Look(target) | Self::Plan(target, _) | Self::Write(target, ..) => target.fmt(f),
            Self::Journal(place, _) => write!(f, "the journal, Secret {}/{}", place.namespace, place.journal()),
            Self::Lease(place, _) => write!(f, "Lease {place}"),
            Self::Review(target, verb) => write!(f, "an undo would have to {verb} {target}"),
        }
    }
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
    /// Something that does not stop the driver, on one line.
    Said(String),
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
        /// How far the change is.
        state: State,
    },
}
