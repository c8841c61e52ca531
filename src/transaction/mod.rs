//! Decides what one process does about a transaction: changes to several objects that are all made or all undone.
//!
//! Owns the [`Journal`], in which every change stands before it is made, and the driver that makes or undoes the changes. Never
//! reads a clock, does IO, or knows tokio or kube: a driver runs over a [`Server`]. Safety comes from versions and marks. The Lease
//! only decides who may begin. What is wanted ([`ChangeType`]) is here, and what is done and undone ([`EntryType`]) in `journal`;
//! `plan` turns one into the other.
//!
//! # Protocol
//!
//! A driver sends one request at a time. Its journal is the Secret beside its Lease. A mark on an object names that Lease, the id of
//! the journal and the claim of the driver. It is *live* while the Lease announces this id with this claim or a lower one. To *look*
//! means to read the target, then the journal, which still shows the driver's claim: whoever claims the journal later writes to the
//! target after that read. A mark of the driver's own Lease with another id is of a journal that was deleted, and never live.
//!
//! 1. A driver reads the journal, and ends if a later term has written it. Nothing more is written once the journal is deleted.
//! 2. A journal is claimed by its first write: with a claim higher by one, on the version that was read.
//! 3. Nobody resumes. An unsettled journal (prepared or undoing) is claimed, and undone. So is what the last promotion left. Then the
//!    driver begins anew. An apply ends if something stays in conflict. A promotion keeps that in its journal, until one changes the
//!    same field again. What the same changes have committed, and stands, is not changed again. Marks that a committed one has left
//!    are taken off, where the objects can be read.
//! 4. The changes are planned by dry runs, each on a version. No object with a live mark of another is changed. The fields are those
//!    that the content names. A change whose undo is not allowed refuses all. So does one of which the dry run does not show a
//!    field.
//! 5. The Lease announces the id and the claim. Then all entries are stored as prepared, before anything is changed; a creation as
//!    the dry run has stored it.
//! 6. Each change is made on the version that it was planned on. After a write that did not succeed, a look decides: the change is
//!    made, is tried again on the new version, or cannot be made: another uid, a live mark of another, or a field that is neither as
//!    found nor as wanted, or not as required. What needed no change is read again, and must still need none. Then the journal is
//!    stored as committed.
//! 7. An undo stores the journal as undoing, and puts back each object in reverse. An own entry that was never sent is skipped.
//!    So is an object that others have changed or marked, if nothing in it is of the change, the Lease still announced it, and the
//!    journal does not say that it was made. An object with a field that somebody else has changed, or a live mark of another,
//!    stays as it is. An object that is as before, but may have a write under way, is marked first: so no write of an earlier
//!    driver can commit, except a POST. A created object is deleted if it is the one that was made, and as it was made. An entry
//!    stays in doubt where a POST may still come: for five minutes, by the wall clocks of both drivers. What is back is given back
//!    to its managers. Then the journal is stored as undone, with what is in conflict or doubt. A map or an item that was made for
//!    a field goes with what the server derived in it: a map keeps what others have added, and what is derived anew beside that; an
//!    item that has more is a conflict. An undo that leaves a map to others writes as a field manager of its entry's own: what only
//!    that has there was derived. Before it is given back, the journal is stored with what is undone.
//!    An object of another uid is never written. An object is left if the server makes something else of what is put back or made
//!    again. Without its Lease an undo goes on: no mark is live then. An object for which the server fails comes after the others,
//!    until the limit. What is denied at first is asked again: a server that starts knows no rights. If it fails still, the journal
//!    stays as undoing; a promotion keeps it as in conflict, where the server has answered.
//! 8. A recovery or demotion claims the journal by storing it as undoing, and undoes it. One that holds only creations that have not
//!    come, and may still, is not written.
//!
//! Once a journal is settled, the announcement is taken off the Lease, and then the marks of a transaction: after a commit within
//! the limit again, whatever signal comes. So is the announcement of a journal that was deleted or of which nothing was stored, by the
//! driver that holds the Lease, if the journal is still as it was read. Who forgets a journal stores it once more without entries after that.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    exit,
    request::RequestError,
    time::Instant,
    words::{counted, worded},
};

pub use self::{
    driver::{Job, drive, plan, read},
    fields::Field,
    journal::{Entry, EntryType, Journal, Kind, Phase, State},
    paths::Step,
    server::{Event, Place, Request, Server},
};
pub(crate) use self::{
    journal::is_settled,
    paths::{entry_of, list_of},
    requests::deletion,
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
/// The field manager of all other writes.
pub(crate) const MANAGER: &str = "tenure";
/// What the field manager of an undo that leaves a map to others begins with.
pub(super) const UNDO_PREFIX: &str = "tenure-undo-";
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
    /// With these flags `recover` finds this Lease.
    pub flags: String,
    /// The user that changes the targets, if not tenure's own.
    pub acting_as: Option<String>,
    /// How long it may take to commit, and again to undo.
    pub limit: Duration,
    /// When the limit begins.
    pub started: Instant,
    /// The wall clock at the start, RFC 3339. What of an earlier driver may still come is judged by it.
    pub began: String,
    /// Random, for the ids of journals and writes.
    pub seed: u64,
}

/// How a driver ended.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Outcome {
    /// All changes are made.
    #[error("committed: {}", counted(*.0, "change"))]
    Committed(usize),
    /// The same changes are committed, and stand.
    #[error("committed already")]
    Already,
    /// Nothing differed, or nothing was left to undo.
    #[error("nothing to do")]
    Nothing,
    /// A recovery or demotion has undone everything.
    #[error("undone: {}", counted(*.0, "change"))]
    Recovered(usize),
    /// The journal was dropped, and nothing restored.
    #[error("forgotten: {}", changes.map_or_else(unread, |changes| counted(changes, "change") + "; nothing is restored"))]
    Forgotten {
        /// How many it held; none if it could not be read.
        changes: Option<usize>,
    },
    /// Refused before anything was changed.
    #[error("{0}")]
    Refused(String),
    /// Everything is as before.
    #[error("undone: {0}")]
    Undone(Box<Self>),
    /// Not undone in full: these were left as they are. The journal stays.
    #[error("not undone in full{}", .0.iter().map(|(target, why)| format!("; {target}: {why}")).collect::<String>())]
    Stuck(Vec<(Target, String)>),
    /// Somebody deleted the journal meanwhile; nothing more was written.
    #[error("the journal was deleted meanwhile")]
    JournalGone,
    /// An object is another transaction's.
    #[error("{target}: {why}")]
    Held {
        /// The object that bears the other's mark.
        target: Box<Target>,
        /// Whose it is, or why that is not known.
        why: String,
    },
    /// Somebody else wrote the journal, or an object that is planned. Never the end: that begins anew.
    #[error("overtaken")]
    Overtaken,
    /// A later driver has taken over, and finishes.
    #[error("a later driver has taken over: {by}")]
    Superseded {
        /// The identity of the replica that drives now.
        by: String,
    },
    /// SIGTERM or SIGINT, or the limit is over, or the term ends.
    #[error("stopped by a signal, the limit or the end of the term")]
    Stopped,
    /// The API server did not answer within the limit.
    #[error("no success within the limit, or before a signal: {0}")]
    Unavailable(RequestError),
    /// The API server does not permit it.
    #[error("{0}")]
    NotPermitted(String),
    /// The journal is of the other kind, or cannot be read.
    #[error("{0}")]
    Invalid(String),
}

fn unread() -> String {
    "a journal that cannot be read; its changes and marks stay".into()
}

/// Returns true if others may put objects into one of this kind: what goes with it cannot be brought back.
pub(crate) fn holds_others(target: &Target) -> bool {
    [("apiextensions.k8s.io", "CustomResourceDefinition"), ("", "Namespace")].contains(&(target.group(), &target.kind))
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
            Self::Superseded { .. } | Self::Overtaken => ("superseded", exit::LEADERSHIP_LOST),
            Self::Stopped => ("stopped", 1),
            Self::Unavailable(_) => ("unavailable", exit::UNAVAILABLE),
            Self::NotPermitted(_) => ("not-permitted", exit::NOT_PERMITTED),
            Self::Invalid(_) => ("invalid", exit::INVALID),
        }
    }

    /// Returns the word for it in traces and metrics.
    pub fn as_str(&self) -> &'static str {
        self.told().0
    }

    /// Returns the exit code of the command.
    pub fn code(&self) -> u8 {
        self.told().1
    }

    /// Returns true if nothing more may be written after it.
    pub(crate) const fn is_final(&self) -> bool {
        matches!(self, Self::JournalGone | Self::Superseded { .. })
    }
}
