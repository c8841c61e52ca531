//! Decides who leads, as the law says.
//!
//! Owns the [`Elector`] machine and the [`LeaseRecord`](record::LeaseRecord) it reads and writes; the deadlines are
//! [`crate::law`]'s. Never reads a clock, does IO, or knows tokio or kube: the elector process feeds it [`Input`]s with the time
//! at which they arrived, carries out each [`Action`] at once and in order, and wakes it at [`Elector::poll_timeout`], and whenever
//! it has read all that waited on the link.
//!
//! At most one request is in flight at a time. What the edge must do after a request failed is documented at [`Answer`].

use std::{
    fmt::{self, Display, Formatter},
    sync::Arc,
    time::Duration,
};

use serde_json::Value;

use crate::{
    link::{Reason, Slot, ToElector, ToInit},
    words::worded,
};

use self::{
    trace::TraceContext,
    transition::{Anchor, LostCampaign, Margin, Phase, TermPhase, Transition},
};

pub(crate) use self::core::oddity;
pub use self::elector::{Elector, Led, View};
pub use self::pool::Pool;

pub mod armed;
mod core;
mod elector;
mod following;
mod leading;
mod observation;
mod patience;
mod pool;
pub mod record;
mod recorder;
mod releasing;
pub mod trace;
pub mod traffic;
pub mod transition;
pub mod writes;

/// Matches an answer to its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What a machine wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Send this request, within the attempt timeout, and report its outcome as [`Input::Answered`]. Retry and add nothing.
    Request {
        /// For which Lease; [`Request::List`] is for all.
        slot: Slot,
        /// Returned in the answer.
        id: RequestId,
        /// What to send.
        request: Request,
    },
    /// Watch the Lease, or all of several slots, from this version on; replaces any earlier watch.
    Watch {
        /// The version of the last object read; none: start from the current state.
        resource_version: Option<String>,
    },
    /// Tell init.
    Tell(ToInit),
    /// Something that people and telemetry want to know.
    Report(Event),
}

/// A request for the Lease.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// GET, a quorum read (no resourceVersion parameter).
    Get,
    /// LIST of the Leases with the label of the slots, a quorum read.
    List,
    /// POST.
    Create(Arc<Value>),
    /// PUT of the whole object with uid and resourceVersion.
    Replace(Arc<Value>),
    /// DELETE with both preconditions.
    Delete {
        /// Precondition.
        uid: String,
        /// Precondition.
        resource_version: String,
    },
}

impl Request {
    /// What it asks for.
    #[must_use]
    pub const fn operation(&self) -> Operation {
        match self {
            Self::Get => Operation::Get,
            Self::List => Operation::List,
            Self::Create(_) => Operation::Create,
            Self::Replace(_) => Operation::Update,
            Self::Delete { .. } => Operation::Delete,
        }
    }
}

worded! {
    /// What the API server is asked to do, named as in RBAC.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Operation {
        /// A read.
        Get = "get",
        /// A read of several.
        List = "list",
        /// POST.
        Create = "create",
        /// PUT.
        Update = "update",
        /// DELETE.
        Delete = "delete",
        /// The one that keeps streaming after its answer.
        Watch = "watch",
    }
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// 2xx with an object that could be read.
    Object(Arc<Value>),
    /// 2xx of a LIST.
    Listed {
        /// Those that could be read, of whatever name.
        objects: Vec<Arc<Value>>,
        /// That of the list.
        resource_version: String,
    },
    /// 2xx of a DELETE.
    Deleted,
    /// 404 for this very Lease.
    NotFound,
    /// 409, AlreadyExists included.
    Conflict,
    /// It was certainly not done: the server said so (401, 403, 422, 429, 404 for namespace or API group), or nothing was sent.
    Refused {
        /// What kind of refusal.
        refusal: Refusal,
        /// What the server said, or why nothing was sent.
        message: RequestError,
    },
    /// Unknown outcome (timeout, reset, refused connection, 5xx, a body that cannot be read). The edge has dropped its
    /// connections, so that the next attempt uses a new one.
    Unknown {
        /// What happened.
        message: RequestError,
        /// From a Retry-After header.
        retry_after: Option<Duration>,
    },
}

/// Why a request failed: words for people, and the status by which the edges and the log tell one failure from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestError {
    /// The HTTP status, if the API server answered.
    pub status: Option<u16>,
    /// What it said, or what happened if it did not answer; one line.
    pub words: String,
}

impl RequestError {
    /// Whether the API server denied it (403).
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        self.status == Some(403)
    }
}

impl Display for RequestError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match (self.status, self.words.as_str()) {
            (None, words) => f.write_str(words),
            (Some(status), "") => write!(f, "the API server answered {status}"),
            (Some(status), words) => write!(f, "the API server answered {status}: {words}"),
        }
    }
}

impl From<String> for RequestError {
    fn from(words: String) -> Self {
        Self { status: None, words }
    }
}

impl From<&str> for RequestError {
    fn from(words: &str) -> Self {
        Self::from(words.to_owned())
    }
}

/// Why the server did not do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// 401. The edge re-reads its credentials before the next request.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 404 for the namespace or the API group.
    NoSuchPlace,
    /// 400, 422 and other 4xx: the same body would be refused again.
    Invalid,
    /// 429.
    TooManyRequests {
        /// From its Retry-After header.
        retry_after: Option<Duration>,
    },
}

impl Refusal {
    /// How long the server asks to wait before a retry.
    pub(crate) const fn retry_after(self) -> Option<Duration> {
        match self {
            Self::TooManyRequests { retry_after } => retry_after,
            Self::Unauthorized | Self::Forbidden | Self::NoSuchPlace | Self::Invalid => None,
        }
    }
}

/// What arrived.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The answer to a request.
    Answered {
        /// Which.
        id: RequestId,
        /// What it is.
        answer: Answer,
    },
    /// From the watch.
    Watched(Watched),
    /// From init.
    Told(ToElector),
}

/// What the watch brought.
#[derive(Clone, Debug, PartialEq)]
pub enum Watched {
    /// ADDED or MODIFIED.
    Changed(Arc<Value>),
    /// DELETED, with the last state and the version of the deletion.
    Deleted(Arc<Value>),
    /// BOOKMARK: no further event up to this version.
    Bookmark(String),
    /// It ended, or could not start.
    Ended(WatchEnd),
}

/// How a watch ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEnd {
    /// Normally: no event was missed.
    Closed,
    /// 403: there is no permission to watch.
    Forbidden(RequestError),
    /// By an error, or because the version to watch from is gone: events may have been missed.
    Failed(RequestError),
}

/// What people and telemetry want to know; nothing waits for it.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A first read succeeded: the replica is ready.
    Ready,
    /// Somebody else holds the Lease now (client-go's OnNewLeader); reported once per holder, never for a Lease without one.
    NewLeader {
        /// Which Lease.
        slot: Slot,
        /// Its identity.
        holder: String,
    },
    /// The Lease names another term than before, or none: the history that `/` shows.
    HolderChanged {
        /// Which Lease.
        slot: Slot,
        /// Who has it; none: nobody has taken it.
        holder: Option<String>,
        /// leaseTransitions.
        term: i32,
        /// When, in microseconds by a wall clock: that of who has it; if nobody has, this one's, when that was seen.
        at: i64,
        /// What became of the term before, if there was one.
        before: Option<TermEnd>,
    },
    /// A campaign began: the Lease may be taken.
    Campaigning {
        /// Why it is free.
        why: AcquireReason,
        /// The transition's own span.
        context: TraceContext,
        /// The old leader's span, if annotated: after a proper release the remote parent, so that one trace spans both replicas;
        /// otherwise a link.
        other: Option<TraceContext>,
    },
    /// Somebody else took or changed it first.
    CampaignLost(Box<LostCampaign>),
    /// What was not given back is now held by nobody, and waited for (law 14).
    HeldByNobody {
        /// For how long.
        wait: Duration,
    },
    /// A renewal was confirmed.
    Renewed {
        /// From the send to the answer.
        latency: Duration,
        /// What was left before S.
        margin: Margin,
    },
    /// A request failed; for metrics, and for one log line per state.
    Failed {
        /// Which.
        operation: Operation,
        /// Why.
        message: RequestError,
    },
    /// What had failed succeeds again.
    Recovered {
        /// Which; others may still be failing.
        operation: Operation,
    },
    /// The term ends.
    Stopping {
        /// Why.
        reason: Reason,
        /// The transition's own span.
        context: TraceContext,
    },
    /// This replica leads, or stands by again.
    Transitioned(Box<Transition>),
    /// Something within a term is over, outside its transitions.
    WithinTerm(Box<TermPhase>),
    /// What runs once waits for the Lease no longer.
    WaitedInVain {
        /// Its span.
        context: TraceContext,
        /// Ties it to the wall clock.
        anchor: Anchor,
        /// From when until when, and for whom.
        wait: Phase,
    },
    /// Something unusual about the Lease, reported once per state.
    Odd {
        /// One line.
        message: String,
    },
}

worded! {
    /// How a term ended, as far as the Lease shows it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum TermEnd {
        /// It was given back.
        Released = "released",
        /// It was over when the next one began.
        Expired = "expired",
        /// The next one began before it was over: what was between them was not seen.
        Replaced = "replaced",
        /// Somebody emptied the Lease.
        Cleared = "cleared",
        /// Somebody deleted it.
        Deleted = "deleted",
    }
}

worded! {
    /// Why a Lease is free.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum AcquireReason {
        /// Its holder gave it back.
        Released = "released",
        /// Its holder has not renewed it in time.
        Expired = "expired",
        /// It was not given back, and whoever had it is dead by now (law 14).
        Nobody = "nobody",
        /// The interval of its task is over, and whatever ran is dead.
        Due = "due",
        /// It was not given back, and nobody is to be waited for: `lease.creationWait` is 0.
        Cleared = "cleared",
    }
}

worded! {
    /// How a Lease was given back.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ReleaseResult {
        /// It names no holder.
        Clear = "clear",
        /// It is deleted.
        Delete = "delete",
        /// It waits to be due.
        Rest = "rest",
        /// Not at all: configured so.
        Keep = "keep",
        /// Not at all: it no longer belonged to this term.
        NotOurs = "not-ours",
        /// It is unknown whether it was.
        Unknown = "unknown",
    }
}

#[cfg(test)]
#[expect(clippy::wildcard_enum_match_arm, reason = "a test looks for one message among many")]
mod tests;
