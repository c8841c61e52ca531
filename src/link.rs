//! The messages between init and elector.
//!
//! Owns their types and their encoding. Never decides, and does no IO.
//!
//! A message is one datagram of a SOCK_SEQPACKET socket pair, whole or absent. Each side has its own end of the pair (`wire`).
//! Both sides are one program, because init starts electors from its own file, so the messages have no version. A message that is
//! longer than [`MAX_MESSAGE`] or does not decode is a [`LinkError`], and the receiver treats the sender as dead. Deadlines are
//! absolute instants, never spans from "now" (law 3). Every message about a term names that term (law 8).

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

pub use self::seen::LastSeen;
pub use self::term::{Confirmed, Exit, LeaseBackoff, Reason, Stop, Term, TermInfo};
use crate::{
    config::{Config, HookKind, Preset, ProbeKind},
    slot::Slot,
    time::Instant,
};

mod seen;
mod term;

/// The descriptor of the elector's end: the first after the standard ones.
pub const FD: i32 = 3;

/// How long the elector may take to export its last spans, before [`ToInit::Done`]: init waits for no collector longer than that.
pub const FLUSH: Duration = Duration::from_secs(2);

/// Largest encoded message in bytes; below the default send buffer of a local socket.
pub const MAX_MESSAGE: usize = 160 * 1024;

/// Messages from the elector to init.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub enum ToInit {
    /// First message of an elector.
    Hello,
    /// A term begins. Init starts (or promotes) the workload, and acknowledges serial 0.
    Lead {
        /// The new term: above every earlier one.
        term: Term,
        /// The facts of the term that the workload is told.
        info: TermInfo,
        /// The record and the deadlines of the acquiring write.
        confirmed: Confirmed,
    },
    /// A renewal was confirmed: the deadlines move on. Init acknowledges `serial`, unless it drops the extension (law 3).
    Extend {
        /// The renewed term. Init ignores a message about any other than the active one (law 8).
        term: Term,
        /// Rises with every message of the term that is acknowledged.
        serial: u64,
        /// The record and its deadlines.
        confirmed: Confirmed,
    },
    /// Stop the workload, prove it stopped, and answer [`ToElector::Stopped`] with this `request`; nothing of a leader starts
    /// before the next Lead.
    StepDown {
        /// The term that ends.
        term: Term,
        /// The answer names it. Init forgets it with the elector that asked, so that each elector may count from 1 (law 8).
        request: u64,
        /// Decides the grace.
        reason: Reason,
        /// The span of the transition, in W3C Trace Context format, for the next elector.
        traceparent: String,
    },
    /// The leader's address is withdrawn, or cannot be withdrawn now: a planned stop waits no longer (law 19).
    Withdrawn {
        /// The term whose stop waits for this.
        term: Term,
    },
    /// A release is about to be written: the deadlines are void. Acknowledged (law 8).
    Releasing {
        /// The term that is given back.
        term: Term,
        /// The acknowledgement names it.
        serial: u64,
    },
    /// The term is over, released or not; init forgets it. Sent after the proof only.
    Ended {
        /// The term that init forgets.
        term: Term,
        /// The other replicas go first for so long. None if the term was lost, or has done its run, and none before it failed.
        backoff: Option<LeaseBackoff>,
    },
    /// Reports a change of what the next elector must know about the Lease.
    Observed {
        /// The slot of that Lease.
        slot: Slot,
        /// The facts that the next elector must know.
        last_seen: LastSeen,
    },
    /// The answer to [`ToElector::Probe`].
    Probed {
        /// The kind of the probe.
        kind: ProbeKind,
        /// When the probe began.
        began: Instant,
        /// Why the probe failed; none: it succeeded.
        failure: Option<String>,
    },
    /// Sign of life, answered by [`ToElector::Heartbeat`].
    Heartbeat,
    /// Answer to [`ToElector::Shutdown`]: nothing is left to do towards the API server.
    Done,
    /// The limit of the wait for the Lease has passed ([`Preset::wait_limit`]). Init exits with `code`; there is no term.
    GaveUp {
        /// An exit code of [`crate::exit`], or the user's.
        code: u8,
        /// The reason, on one line.
        message: String,
    },
    /// The elector cannot work, and starting it again would not help. Init exits with `code` if nothing leads.
    Failed {
        /// An exit code of [`crate::exit`].
        code: u8,
        /// The fault, its place and its remedy, on one line.
        message: String,
    },
}

/// The state that a new elector takes over from the earlier one, in the middle of a term.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct Resume {
    /// The term that goes on.
    pub term: Term,
    /// The facts of that term.
    pub info: TermInfo,
    /// The last confirmed record; its deadlines are those in force. H is `NEVER` once the end of the term is proved.
    pub confirmed: Confirmed,
    /// The stop has begun, for this reason; the workload may be gone already.
    pub stopping: Option<Reason>,
    /// The span of that stop; empty if no StepDown named it.
    pub traceparent: String,
    /// E was void: a release had been announced.
    pub released: bool,
    /// The main process of the leading workload; `None` if nothing leads.
    pub main: Option<i32>,
    /// An elector was told of this term that the workload leads ([`ToElector::Started`]); otherwise that may still come.
    pub told: bool,
}

/// Messages from init to the elector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub enum ToElector {
    /// First message to an elector, with its whole configuration.
    InitialState(Box<InitialState>),
    /// Init has received the message with this serial, and acts on it.
    Acknowledged {
        /// The term of the acknowledged message.
        term: Term,
        /// The serial; 0 is that of Lead.
        serial: u64,
    },
    /// The workload runs (or was promoted, acknowledged).
    Started {
        /// The term in which the workload leads.
        term: Term,
        /// Its main process.
        pid: i32,
        /// When init saw that it runs, or was promoted.
        at: Instant,
    },
    /// The workload ended by itself and is started again in the same term.
    Restarting {
        /// The term, which goes on.
        term: Term,
        /// How its main process ended.
        exit: Exit,
        /// When init saw its end.
        at: Instant,
    },
    /// Init has begun a stop by itself, or begins it once the address is withdrawn (law 19). The elector answers with its StepDown.
    Stopping {
        /// The term that ends.
        term: Term,
        /// The cause: a signal, a deadline, or the workload.
        reason: Reason,
        /// When the stop began.
        at: Instant,
    },
    /// The answer to a StepDown: proved (law 8).
    Stopped {
        /// The term whose workload is proved stopped.
        term: Term,
        /// The StepDown that it answers.
        request: u64,
        /// The course of the stop.
        stop: Stop,
        /// The step after the release.
        then: Then,
    },
    /// Processes are left that SIGKILL did not remove. Nothing is released until a later scan proves their death.
    Unproved {
        /// The term that is not released yet.
        term: Term,
    },
    /// Init was told to end. End the term properly, write nothing as a follower, answer [`ToInit::Done`].
    Shutdown,
    /// Answer to [`ToInit::Heartbeat`].
    Heartbeat,
    /// A hook ended, however it went. To be reported, not acted on.
    Hooked {
        /// The hook that ended.
        hook: HookKind,
        /// When it was started.
        began: Instant,
        /// When nothing of it was left.
        ended: Instant,
        /// How its main process ended.
        exit: Exit,
    },
    /// Run this probe.
    Probe {
        /// The question: readiness or liveness.
        kind: ProbeKind,
        /// When the probe began. The answer names it, so that no answer is taken for that of another probe.
        began: Instant,
        /// When the program that is asked was started.
        since: Instant,
    },
    /// The health of the workload. After a change of readiness init sends no further Health before the next message of the
    /// elector, which comes at once.
    Health {
        /// Why the workload is not ready. None: it is ready, no probe asks it, or it is not meant to run.
        unready: Option<String>,
        /// The last `STATUS` of the workload, one line of bounded length. Empty: none was sent.
        status: String,
    },
    /// A warning of init for the log.
    Warn(String),
}

/// The consequence of a stopped workload for the election.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub enum Then {
    /// Go back to following. After a stop that was no loss, let the others go first for one D.
    Follow,
    /// Answer Done after the release: init exits.
    Exit,
}

/// A context of a kubeconfig, and the cluster that it named when this replica started. No elector uses another cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct KubeContext {
    /// The kubeconfig files, merged in this order.
    pub files: Vec<PathBuf>,
    /// The name of the context.
    pub name: String,
    /// The URL of the API server.
    pub server: String,
    /// A hash of how that server is verified: by which certificate authorities, under which name, or not at all.
    pub authority: u64,
}

/// First message to an elector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct InitialState {
    /// The validated configuration, without the keys that only init needs (command, env, hooks). Every elector of an init gets
    /// the same, so that D, rho, G and killMargin stay the same for a term (law 1).
    pub config: Config,
    /// The command that runs the workload.
    pub preset: Preset,
    /// When init began; a limit of the wait counts from then.
    pub began: Instant,
    /// Full identity, constant per init.
    pub identity: String,
    /// The kubeconfig context that this replica's Lease is in; none: the pod's own cluster. Constant per init.
    pub context: Option<KubeContext>,
    /// This elector's number. Rises with each elector of this init, and makes its specs unique (law 1).
    pub generation: u32,
    /// The highest term that any elector of this init began.
    pub last_term: Term,
    /// A term in progress.
    pub resume: Option<Resume>,
    /// The observations of earlier electors that still count, by slot. None: the elector goes by its own configuration.
    pub last_seen: BTreeMap<Slot, LastSeen>,
    /// The back-off after this replica's last term.
    pub backoff: Option<LeaseBackoff>,
    /// Init was told to end already.
    pub shutdown: bool,
    /// Init is PID 1: the elector's guard may kill all processes that it can signal (law 8).
    pub pid1: bool,
}

impl InitialState {
    /// Makes the state for the first elector of an init that is PID 1.
    pub fn first(config: Config, identity: String) -> Self {
        Self { config, identity, generation: 1, pid1: true, ..Self::default() }
    }
}

/// A message that the link cannot carry or understand.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The message would not arrive whole.
    #[error("a link message of {0} bytes is over the limit of {MAX_MESSAGE}")]
    TooLong(usize),
    /// The message does not decode, or leaves bytes over.
    #[error("a link message of {length} bytes does not decode")]
    Undecodable {
        /// The length of the message in bytes.
        length: usize,
        /// The error of the decoder.
        #[source]
        source: postcard::Error,
    },
    /// The message does not encode.
    #[error("a link message does not encode")]
    Unencodable(#[source] postcard::Error),
}

/// Encodes a message.
///
/// # Errors
/// [`LinkError::TooLong`] past [`MAX_MESSAGE`].
pub fn encode<M: Serialize>(message: &M) -> Result<Vec<u8>, LinkError> {
    let bytes = postcard::to_stdvec(message).map_err(LinkError::Unencodable)?;
    if bytes.len() > MAX_MESSAGE {
        return Err(LinkError::TooLong(bytes.len()));
    }
    Ok(bytes)
}

/// Decodes the message of one datagram.
///
/// # Errors
/// Fails if the message is too long, does not decode or leaves bytes over.
pub fn decode<M: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<M, LinkError> {
    if bytes.len() > MAX_MESSAGE {
        return Err(LinkError::TooLong(bytes.len()));
    }
    let undecodable = |source| LinkError::Undecodable { length: bytes.len(), source };
    let (message, rest) = postcard::take_from_bytes(bytes).map_err(undecodable)?;
    if !rest.is_empty() {
        return Err(undecodable(postcard::Error::DeserializeBadEncoding));
    }
    Ok(message)
}
