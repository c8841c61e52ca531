//! Decides what one process does about a transaction: changes to several objects that are all made or all undone.
//!
//! Owns the [`Journal`], in which every change stands before it is made, and the driver that makes or undoes the changes. Never
//! reads a clock, does IO, or knows tokio or kube: a driver runs over a [`Server`]. Safety comes from versions and marks. The Lease
//! only decides who may begin.
//!
//! # Protocol
//!
//! A driver sends one request at a time, and none from T before H on. A mark is *live* while its journal exists with the same id and is
//! unsettled: prepared or undoing. To *look* means to read the target, then the journal, which still shows the driver's claim:
//! whoever claims the journal later writes to the target after that read.
//!
//! 1. A driver reads the journal, and ends if a later term has written it. Nothing more is written once the journal is deleted.
//! 2. An unsettled journal is claimed: it is stored with a claim higher by one, on the version that was read.
//! 3. Each target of an unsettled journal is looked at, and gets the mark with the new claim, on the version that was read. From then on
//!    no write of an earlier driver can commit, except a POST.
//! 4. An apply goes on with an unfinished transaction of the same changes, and first undoes any other. It takes off marks that a committed
//!    one has left. A promotion takes on the entries of the last one, and those in conflict. It takes no mark off.
//! 5. The changes are planned by dry runs; no object with a live mark of another is changed. The value to put back is the one that was
//!    found, or, where the taken-on entry knows the found value, its value to put back. Fields that only the taken-on entry names go back
//!    to what they were before it, and so do objects that only it names if they bear the mark. An undo that is not allowed refuses the
//!    change.
//! 6. All entries are stored as prepared before anything is changed.
//! 7. Each change is made on the version that it was planned on. After a write that did not succeed, a look decides: the change is made,
//!    is tried again on the new version, or cannot be made: another uid, a live mark of another, or a field that is neither as found nor
//!    as wanted. What needed no change is planned again, and must still need none. Then the journal is stored as committed.
//! 8. An undo stores the journal as undoing, and puts back each object in reverse. An own entry that was never sent is skipped, unless it
//!    was taken on. A target with an unanswered write is fenced first. An object with a field that somebody else has changed, or a live
//!    mark of another, stays as it is. A created object is deleted if it bears the mark or has the uid that was noted. An entry stays in
//!    doubt where a POST may still come. Then the journal is stored as undone, with what is in conflict or doubt.
//! 9. A recovery or demotion claims the journal, and undoes it. A committed journal is claimed by storing it as undoing.

use std::{
    fmt::{self, Display, Formatter},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    exit,
    request::RequestError,
    words::{counted, worded},
};

pub use self::{
    driver::{apply, demote, forget, preview, promote, recover, survey},
    fields::Field,
    journal::{Entry, EntryType, Journal, Kind, Phase},
    server::{Event, Fate, Place, Request, Server, Storing, Write},
};

mod change;
mod claim;
mod driver;
mod fields;
mod journal;
mod plan;
mod requests;
mod server;
mod undo;

/// Annotation of an object that a transaction changes: the journal, its id and the claim of the process that changes it.
pub const MARK: &str = "tenure.dev/change";
/// Type of the Secret that is a transaction's journal.
pub(super) const SECRET_TYPE: &str = "tenure.dev/journal";

/// An object that is changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// As in the object: `apps/v1`.
    pub api_version: String,
    /// As in the object: `Deployment`.
    pub kind: String,
    /// As in the URL: `deployments`.
    pub resource: String,
    /// None for an object of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// As in the object: `web`.
    pub name: String,
}

/// A change that somebody wants.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The object that is changed.
    pub target: Target,
    /// How it is changed.
    pub verb: Verb,
    /// The object or the part of it that is wanted, without apiVersion, kind, name and namespace. A null removes. `{}` for Delete.
    pub content: Value,
    /// A part of the object as it must be.
    pub require: Option<Value>,
}

worded! {
    /// How an object is changed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub enum Verb {
        /// Server-side apply decides the result; what is not mentioned stays.
        Patch = "patch",
        /// All but metadata and status becomes the content; labels and annotations merge.
        Update = "update",
        /// The object must not exist.
        Create = "create",
        /// An absent object is done.
        Delete = "delete",
        /// A plain manifest: Create where the object is absent, else Patch.
        #[serde(skip_deserializing)]
        Manifest = "apply",
    }
}

/// Who drives, and how long.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the journal is.
    pub journal: Place,
    /// The fencing token of the term.
    pub token: String,
    /// The identity of this replica.
    pub by: String,
    /// The user that changes the targets, if not tenure's own.
    pub acting_as: Option<String>,
    /// How long it may take to commit, and again to undo.
    pub limit: Duration,
    /// The time of the start, RFC 3339, for people.
    pub began: String,
    /// Random, for the ids of journals and writes.
    pub seed: u64,
}

/// How a driver ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// All changes are made.
    Committed(usize),
    /// Nothing differed, or nothing was left to undo.
    Nothing,
    /// A recovery or demotion has undone everything.
    Recovered(usize),
    /// The journal was dropped, and nothing restored.
    Forgotten {
        /// How many it held; none if it could not be read.
        changes: Option<usize>,
    },
    /// Refused before anything was changed.
    Refused(String),
    /// Everything is as before.
    Undone(Box<Self>),
    /// Not undone in full: these were left as they are. The journal stays.
    Stuck(Vec<(Target, String)>),
    /// Somebody deleted the journal meanwhile; nothing more was written.
    JournalGone,
    /// An object is another transaction's.
    Held {
        /// The object that bears the other's mark.
        target: Box<Target>,
        /// The mark of the other transaction.
        mark: String,
    },
    /// The term ends: nothing more may be sent.
    TermEnded,
    /// A later driver has taken over, and finishes.
    Superseded {
        /// The identity of the replica that drives now.
        by: String,
    },
    /// SIGTERM or SIGINT, or the limit is over.
    Stopped,
    /// The API server did not answer within the limit.
    Unavailable(RequestError),
    /// The API server does not permit it.
    NotPermitted(String),
    /// The journal is of the other kind, or cannot be read.
    Invalid(String),
}

impl Display for Target {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

impl Outcome {
    /// The word for it in traces and metrics, and the exit code.
    const fn told(&self) -> (&'static str, u8) {
        match self {
            Self::Committed(_) => ("committed", 0),
            Self::Nothing => ("nothing", 0),
            Self::Recovered(_) => ("recovered", 0),
            Self::Forgotten { .. } => ("forgotten", 0),
            Self::Refused(_) => ("refused", 1),
            Self::Undone(_) => ("undone", 1),
            Self::Stuck(_) => ("stuck", 2),
            Self::JournalGone => ("journal-gone", 2),
            Self::Held { .. } => ("held", exit::HELD),
            Self::TermEnded => ("term-ended", exit::LEADERSHIP_LOST),
            Self::Superseded { .. } => ("superseded", exit::LEADERSHIP_LOST),
            Self::Stopped => ("stopped", 1),
            Self::Unavailable(_) => ("unavailable", exit::UNAVAILABLE),
            Self::NotPermitted(_) => ("not-permitted", exit::NOT_PERMITTED),
            Self::Invalid(_) => ("invalid", exit::INVALID),
        }
    }

    /// Returns the word for it in traces and metrics.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        self.told().0
    }

    /// Returns the exit code of the command.
    #[must_use]
    pub const fn code(&self) -> u8 {
        self.told().1
    }

    /// Returns true if nothing more may be written after it.
    pub(crate) const fn is_final(&self) -> bool {
        matches!(self, Self::JournalGone | Self::TermEnded | Self::Superseded { .. })
    }

    /// Returns the outcome of an undo for this reason.
    pub(crate) fn undone(self) -> Self {
        Self::Undone(Box::new(self))
    }
}

impl Display for Outcome {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Committed(changes) => write!(f, "committed: {}", counted(*changes, "change")),
            Self::Nothing => f.write_str("nothing to do"),
            Self::Recovered(changes) => write!(f, "undone: {}", counted(*changes, "change")),
            Self::Forgotten { changes: Some(changes) } => {
                write!(f, "forgotten: {}; nothing is restored", counted(*changes, "change"))
            }
            Self::Forgotten { changes: None } => {
                f.write_str("forgotten: a journal that cannot be read; its changes and marks stay")
            }
            Self::Refused(why) | Self::NotPermitted(why) | Self::Invalid(why) => f.write_str(why),
            Self::Undone(why) => write!(f, "undone: {why}"),
            Self::Stuck(left) => {
                f.write_str("not undone in full")?;
                left.iter().try_for_each(|(target, why)| write!(f, "; {target}: {why}"))
            }
            Self::JournalGone => f.write_str("the journal was deleted meanwhile"),
            Self::Held { target, mark } => write!(f, "{target} is another transaction's: {mark}"),
            Self::TermEnded => f.write_str("the term ends"),
            Self::Superseded { by } => write!(f, "a later driver has taken over: {by}"),
            Self::Stopped => f.write_str("stopped by a signal or the limit"),
            Self::Unavailable(why) => write!(f, "no success within the limit, or before a signal: {why}"),
        }
    }
}
