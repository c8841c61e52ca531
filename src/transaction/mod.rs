//! Decides what one process does about a transaction: changes to several objects that are all made or all undone.
//!
//! Owns the [`Journal`], in which every change stands before it is made, and the driver that makes or undoes the changes. Never
//! reads a clock, does IO, or knows tokio or kube: a driver runs over a [`Server`]. Safety comes from versions and marks. The Lease
//! only decides who may begin.
//!
//! # Protocol
//!
//! A driver sends one request at a time. Its journal is the Secret beside its Lease. A mark on an object names that Lease, the id of
//! the journal and the claim of the driver. It is *live* while the Lease announces this id with this claim or a lower one. To *look*
//! means to read the target, then the journal, which still shows the driver's claim: whoever claims the journal later writes to the
//! target after that read.
//!
//! 1. A driver reads the journal, and ends if a later term has written it. Nothing more is written once the journal is deleted.
//! 2. A journal is claimed by its first write: with a claim higher by one, on the version that was read.
//! 3. Nobody resumes. An unsettled journal (prepared or undoing) is claimed, and undone. So is what the last promotion left. Then the
//!    driver begins anew. An apply ends if something stays in conflict. A promotion keeps that in its journal. What the same changes
//!    have committed, and stands, is not changed again. Marks that a committed one has left are taken off.
//! 4. The changes are planned by dry runs, each on a version. No object with a live mark of another is changed. The fields are those
//!    that the content names. A change whose undo is not allowed refuses all.
//! 5. The Lease announces the id and the claim. Then all entries are stored as prepared, before anything is changed.
//! 6. Each change is made on the version that it was planned on. After a write that did not succeed, a look decides: the change is
//!    made, is tried again on the new version, or cannot be made: another uid, a live mark of another, or a field that is neither as
//!    found nor as wanted. What needed no change is read again, and must still need none. Then the journal is stored as committed.
//! 7. An undo stores the journal as undoing, and puts back each object in reverse. An own entry that was never sent is skipped. An
//!    object with a field that somebody else has changed, or a live mark of another, stays as it is. An object that is as before, but
//!    may have a write under way, is marked first: so no write of an earlier driver can commit, except a POST. A created object is
//!    deleted if it is the one that was made, and as it was made. An entry stays in doubt where a POST may still come, for five
//!    minutes. What is back is given back to its managers. Then the journal is stored as undone, with what is in conflict or doubt.
//! 8. A recovery or demotion claims the journal by storing it as undoing, and undoes it. One that holds only creations that have not
//!    come is not written.
//!
//! Once a journal is settled, the announcement is taken off the Lease, and then the marks of a transaction.

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
    server::{Event, Fate, Place, Request, Server},
};
pub(crate) use self::{
    journal::is_settled,
    paths::{entry_of, list_of},
    requests::exactly,
};
pub use crate::request::{Place as Target, Verb};

mod change;
mod claim;
mod driver;
mod fields;
mod journal;
mod paths;
mod plan;
mod requests;
mod server;
mod undo;

/// Annotation of an object that a transaction changes: the Lease, the id of the journal and the claim of the process that changes it.
pub const MARK: &str = "tenure.dev/change";
/// The field manager of all writes.
pub(crate) const MANAGER: &str = "tenure";
/// Type of the Secret that is a transaction's journal.
pub(super) const SECRET_TYPE: &str = "tenure.dev/journal";

/// A change that somebody wants.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The object that is changed.
    pub target: Target,
    /// How it is changed.
    pub verb: ChangeType,
    /// The object or the part of it that is wanted, without apiVersion, kind, name and namespace. A null removes. `{}` for Delete.
    pub content: Value,
    /// A part of the object as it must be.
    pub require: Option<Value>,
}

worded! {
    /// How an object is changed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub enum ChangeType {
        /// Lists that have keys merge, a null removes, and what is not mentioned stays.
        Patch = "patch",
        /// All but metadata and status becomes the content; labels and annotations merge.
        Update = "update",
        /// The object must not exist.
        Create = "create",
        /// An absent object is done.
        Delete = "delete",
    }
}

/// Who drives, and how long.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The Lease of the term; the journal is beside it.
    pub lease: Place,
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
    /// The same changes are committed, and stand.
    Already,
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
        /// Whose it is, or why that is not known.
        why: String,
    },
    /// A later driver has taken over, and finishes.
    Superseded {
        /// The identity of the replica that drives now.
        by: String,
    },
    /// SIGTERM or SIGINT, or the limit is over, or the term ends.
    Stopped,
    /// The API server did not answer within the limit.
    Unavailable(RequestError),
    /// The API server does not permit it.
    NotPermitted(String),
    /// The journal is of the other kind, or cannot be read.
    Invalid(String),
}

/// Returns true if others may put objects into one of this kind: what goes with it cannot be brought back.
pub(crate) fn holds_others(api_version: &str, kind: &str) -> bool {
    let is_definition = kind == "CustomResourceDefinition" && api_version.starts_with("apiextensions.k8s.io/");
    is_definition || kind == "Namespace" && api_version == "v1"
}

impl Outcome {
    /// The word for it in traces and metrics, and the exit code.
    fn told(&self) -> (&'static str, u8) {
        match self {
            Self::Committed(_) => ("committed", 0),
            Self::Already => ("already", 0),
            Self::Nothing => ("nothing", 0),
            Self::Recovered(_) => ("recovered", 0),
            Self::Forgotten { .. } => ("forgotten", 0),
            Self::Refused(_) => ("refused", 1),
            Self::Undone(why) => ("undone", if matches!(**why, Self::Held { .. }) { exit::HELD } else { 1 }),
            Self::Stuck(_) => ("stuck", 2),
            Self::JournalGone => ("journal-gone", 2),
            Self::Held { .. } => ("held", exit::HELD),
            Self::Superseded { .. } => ("superseded", exit::LEADERSHIP_LOST),
            Self::Stopped => ("stopped", 1),
            Self::Unavailable(_) => ("unavailable", exit::UNAVAILABLE),
            Self::NotPermitted(_) => ("not-permitted", exit::NOT_PERMITTED),
            Self::Invalid(_) => ("invalid", exit::INVALID),
        }
    }

    /// Returns the word for it in traces and metrics.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        self.told().0
    }

    /// Returns the exit code of the command.
    #[must_use]
    pub fn code(&self) -> u8 {
        self.told().1
    }

    /// Returns true if nothing more may be written after it.
    pub(crate) const fn is_final(&self) -> bool {
        matches!(self, Self::JournalGone | Self::Superseded { .. })
    }
}

impl Display for Outcome {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Committed(changes) => write!(f, "committed: {}", counted(*changes, "change")),
            Self::Already => f.write_str("committed already"),
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
            Self::Held { target, why } => write!(f, "{target}: {why}"),
            Self::Superseded { by } => write!(f, "a later driver has taken over: {by}"),
            Self::Stopped => f.write_str("stopped by a signal, the limit or the end of the term"),
            Self::Unavailable(why) => write!(f, "no success within the limit, or before a signal: {why}"),
        }
    }
}
