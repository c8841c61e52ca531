//! Decides who leads, as the law says.
//!
//! Owns the [`Elector`] machine and the [`LeaseRecord`] that it reads and writes. The deadlines come from
//! [`crate::law`]. Never reads a clock, does IO, or knows tokio or kube. The elector process feeds it [`Input`]s with the time at
//! which they arrived, and carries out each [`Action`] at once and in order. It wakes the machine at [`Elector::poll_timeout`],
//! and whenever it has drained the link.
//!
//! Inputs, actions and events are in this file. At most one request is in flight at a time. [`Answer`] tells what the edge must do
//! after a failure.
//!
//! | file | what it owns |
//! |---|---|
//! | `elector` | the machine: it takes an [`Input`], and gives it to the phase |
//! | `following`, `leading`, `releasing` | the three phases |
//! | `core`, `common`, `lease` | what the phases share: all of it, what is known of this replica, and of one Lease |
//! | `reader`, `asked`, `pace` | the one request in flight, also of a write, the reads and the watch; what an answer says; how pauses double |
//! | `observation` | what a follower has seen of a Lease, and from when on it may be taken |
//! | `task`, `wait_limit` | when a task's next run is due; when a wait for the Lease is given up |
//! | `record`, `names`, `writes` | reading a Lease, its annotations, and the only room that writes one |
//! | `turn` | the order of the elector's steps; the product, the simulation and the model run it |
//! | `guard_deadline` | H, as the second guard knows it |
//! | `obituary` | the witness's machine |
//! | `publication` | what the EndpointSlice says |
//! | `trace`, `random` | trace contexts; jitter and ids from one seed |

use std::{
    hash::{Hash, Hasher},
    time::Duration,
};

use crate::{
    law::Deadlines,
    link::{LeaseBackoff, Reason, Stop, TermInfo, ToElector, ToInit},
    request::{Answer, Operation, RequestError, Watched},
    slot::Slot,
    time::Instant,
    words::worded,
};

use self::{record::LeaseRecord, trace::TraceContext, writes::LeaseWrite};

pub use self::elector::{Elector, LeaderView, View};

mod asked;
mod common;
mod core;
mod elector;
mod following;
pub mod guard_deadline;
mod leading;
mod lease;
mod names;
pub mod obituary;
mod observation;
mod pace;
pub mod publication;
mod random;
mod reader;
pub mod record;
mod releasing;
mod task;
pub mod trace;
pub mod turn;
mod wait_limit;
pub mod writes;

/// What a server that answers reads and no writes most likely means.
pub const ONLY_READS: &str = "reads are answered, writes are not: a webhook on Leases?";

/// Matches an answer to its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// An action that the machine asks for.
#[derive(Clone, Debug, PartialEq, Hash)]
pub enum Action {
    /// Send this request once and unchanged, within the attempt timeout, and report its outcome as [`Input::Answered`].
    Request {
        /// The Lease; [`Request::List`] is for all of them.
        slot: Slot,
        /// The answer names it.
        id: RequestId,
        /// The request to send.
        request: Request,
    },
    /// Watch the Lease, or the Leases of all slots, from this version on, in place of any earlier watch.
    Watch {
        /// The version of the last object read. None: start from the current state.
        resource_version: Option<String>,
    },
    /// Tell init.
    Tell(ToInit),
}

/// A request for the Lease.
#[derive(Clone, Debug, PartialEq, Hash)]
pub enum Request {
    /// GET, a quorum read (no resourceVersion parameter).
    Get,
    /// LIST of the Leases with the label of the slots, a quorum read.
    List,
    /// A write.
    Write(LeaseWrite),
}

impl Request {
    /// Returns the operation, as in RBAC.
    pub const fn operation(&self) -> Operation {
        match self {
            Self::Get => Operation::Get,
            Self::List => Operation::List,
            Self::Write(write) => write.sent().operation(),
        }
    }
}

/// An input of the machine.
#[derive(Clone, Debug, PartialEq, Hash)]
pub enum Input {
    /// The answer to a request.
    Answered {
        /// The id of the request.
        id: RequestId,
        /// The outcome of the request.
        answer: Answer,
    },
    /// An event of the watch.
    Watched(Watched),
    /// A message of init.
    Told(ToElector),
}

/// A fact for people and telemetry. Nothing waits for its report, so it makes no difference between two states.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The first read has succeeded: the replica is ready.
    Ready,
    /// Another replica holds the Lease now (client-go's OnNewLeader). Reported once per holder.
    NewLeader {
        /// The slot of the Lease.
        slot: Slot,
        /// The identity of the holder.
        holder: String,
    },
    /// A reply or the watch has shown the Lease.
    Observed {
        /// The slot of the Lease.
        slot: Slot,
        /// The Lease; none: it does not exist.
        record: Option<LeaseRecord>,
        /// How long it is waited for, if it is held by nobody (law 14).
        nobody: Option<Duration>,
    },
    /// A campaign began: the Lease may be taken.
    Campaigning {
        /// Which Lease.
        slot: Slot,
        /// Why the Lease is free.
        why: AcquireReason,
        /// The transition's own span.
        context: TraceContext,
        /// The old leader's span, if it is annotated. After a release it is the remote parent, so that one trace spans both
        /// replicas; otherwise a link.
        other: Option<TraceContext>,
    },
    /// Another client took or changed the Lease first.
    CampaignLost {
        /// Which Lease.
        slot: Slot,
    },
    /// A term begins.
    Acquired {
        /// The term.
        info: TermInfo,
        /// When the acquiring write was sent.
        sent: Instant,
        /// S, H and E.
        deadlines: Deadlines,
    },
    /// A renewal was confirmed.
    Renewed {
        /// When it was sent.
        sent: Instant,
        /// S, as it was until then.
        soft: Instant,
    },
    /// The deadlines of the term have moved on.
    Extended {
        /// S, H and E.
        deadlines: Deadlines,
    },
    /// A request failed. For metrics, and for one log line per state.
    Failed {
        /// The operation that failed.
        operation: Operation,
        /// When it was sent.
        sent: Instant,
        /// The failure, in words.
        message: RequestError,
    },
    /// An operation that had failed succeeds again.
    Recovered {
        /// The operation. Others may still be failing.
        operation: Operation,
    },
    /// The term ends. A later one replaces the reason.
    Stopping {
        /// The cause of the stop.
        reason: Reason,
        /// The transition's own span.
        context: TraceContext,
    },
    /// The workload is proved gone.
    Proved(Stop),
    /// The release is over.
    Released(ReleaseResult),
    /// The term is over.
    Ended,
    /// A term of this replica failed, and it leaves the Lease to the others for a while.
    BacksOff(LeaseBackoff),
    /// This replica asks a holder of a lower priority to hand over.
    Preempts {
        /// The identity of the holder.
        holder: String,
    },
    /// The replica stops waiting for the Lease, without it.
    WaitedInVain {
        /// The span of the wait.
        context: TraceContext,
    },
    /// The Lease is no longer paused.
    Unpaused,
    /// A warning about the Lease, reported once per state.
    Odd {
        /// The warning, on one line.
        message: String,
    },
}

impl Hash for Event {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

worded! {
    /// Why a Lease is free.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum AcquireReason {
        /// The holder released it.
        Released = "released",
        /// Its holder died, and the witness or `tenure confirm-dead` gave it back (law 20).
        Died = "died",
        /// The holder has not renewed it in time.
        Expired = "expired",
        /// The Lease was not released, and an earlier holder is dead by now (law 14).
        Nobody = "nobody",
        /// The interval of its task is over, and the last run is dead.
        Due = "due",
        /// The Lease was not released, and `lease.creationWait: 0s` skips the wait.
        Cleared = "cleared",
    }
}

worded! {
    /// The outcome of a release.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ReleaseResult {
        /// The holder is empty.
        Clear = "clear",
        /// The Lease is deleted.
        Delete = "delete",
        /// The Lease rests until its task is due.
        Rest = "rest",
        /// No write was sent: `lease.release: keep`.
        Keep = "keep",
        /// Not written: the Lease no longer belonged to this term.
        NotOurs = "not-ours",
        /// Unknown: no answer came.
        Unknown = "unknown",
    }
}

#[cfg(test)]
#[expect(clippy::wildcard_enum_match_arm, reason = "a test looks for one message among many")]
mod tests;
