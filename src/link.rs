//! The few messages between init and elector.
//!
//! Owns their types and their encoding. Never decides, and does no IO.
//!
//! A message is one datagram of a SOCK_SEQPACKET socket pair, whole or absent; each side has its own end of the pair (`wire`). Both
//! are one program, because init starts electors from its own file, so the messages have no version. Each is length-checked by
//! [`MAX_MESSAGE`]: a longer or undecodable message is [`LinkError`], and the receiver treats the sender as dead. Deadlines are
//! absolute CLOCK_BOOTTIME instants, never spans from "now" (law 3), and every message about a term names it, so that nothing said
//! of one term is taken for another (law 8).

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

pub use self::seen::LastSeen;
pub use self::term::{Confirmed, Exit, Reason, Slot, Stop, Term, TermInfo};
use crate::{
    config::{Config, HookKind, Preset, ProbeKind},
    time::Instant,
};

mod seen;
mod term;

/// Where the elector finds its end: the first descriptor after the standard ones.
pub const FD: i32 = 3;

/// How long the elector may take to export its last spans, before [`ToInit::Done`]: init waits for no collector longer than that.
pub const FLUSH: Duration = Duration::from_secs(2);

/// Largest encoded message in bytes; below the default send buffer of a local socket.
pub const MAX_MESSAGE: usize = 160 * 1024;

/// What the elector tells init.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToInit {
    /// First message of an elector.
    Hello,
    /// A term begins. Init starts (or promotes) the workload, and acknowledges serial 0.
    Lead {
        /// The new term: above every earlier one.
        term: Term,
        /// What the workload is told.
        info: TermInfo,
        /// The record and the deadlines of the acquiring write.
        confirmed: Confirmed,
    },
    /// A renewal was confirmed: the deadlines move on. Init acknowledges `serial`, unless it drops the extension (law 3).
    Extend {
        /// The term.
        term: Term,
        /// Rises with every message of the term that is acknowledged.
        serial: u64,
        /// The record and its deadlines.
        confirmed: Confirmed,
    },
    /// Stop the workload, prove it stopped, and answer [`ToElector::Stopped`] with this `request`; nothing of a leader starts
    /// before the next Lead.
    StepDown {
        /// The term.
        term: Term,
        /// Names this very request in the answer. Init forgets it with the elector that asked, so that each may count from 1 (law
        /// 8).
        request: u64,
        /// Decides the grace.
        reason: Reason,
        /// The span of the transition, in W3C Trace Context format, for the next elector.
        traceparent: String,
    },
    /// The leader's address is no longer published, or that cannot be had now: a planned stop waits for it no longer (law 19).
    Withdrawn {
        /// The term.
        term: Term,
    },
    /// A release is about to be written: the deadlines are void. Acknowledged (law 8).
    Releasing {
        /// The term.
        term: Term,
        /// Acknowledged.
        serial: u64,
    },
    /// The term is over, released or not; init forgets it. Sent after the proof only.
    Ended {
        /// The term.
        term: Term,
        /// Until when the others go first; none if it was lost, or has done its run.
        backoff: Option<Instant>,
    },
    /// What the next elector needs of what was seen of the Lease has changed.
    Saw {
        /// Of which Lease.
        slot: Slot,
        /// What was seen of it.
        last_seen: LastSeen,
    },
    /// The answer to [`ToElector::Probe`].
    Probed {
        /// What was asked.
        kind: ProbeKind,
        /// And when.
        began: Instant,
        /// Why it failed; none: it did not.
        failure: Option<String>,
    },
    /// Sign of life; answered by [`ToElector::Heartbeat`].
    Heartbeat,
    /// Answer to [`ToElector::Shutdown`]: nothing is left to do towards the API server.
    Done,
    /// The Lease is waited for no longer, as [`Preset::patience`] has it. Init exits with `code`; there is no term.
    GaveUp {
        /// One of [`crate::exit`], or the user's.
        code: u8,
        /// One line: why.
        message: String,
    },
    /// The elector cannot work, and starting it again would not help. Init exits with `code` if nothing leads.
    Failed {
        /// One of [`crate::exit`].
        code: u8,
        /// One line: what, where, the remedy.
        message: String,
    },
}

/// What a fresh elector takes over from the one before it, in the middle of a term.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resume {
    /// The term that goes on.
    pub term: Term,
    /// Its info.
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

/// What init tells the elector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToElector {
    /// First message to an elector; all that it ever learns of the configuration.
    InitialState(Box<InitialState>),
    /// Init has received the message of that term and serial, and acts on it.
    Acknowledged {
        /// The term.
        term: Term,
        /// The serial; 0 is Lead.
        serial: u64,
    },
    /// The workload runs (or was promoted, acknowledged).
    Started {
        /// The term.
        term: Term,
        /// Its main process.
        pid: i32,
        /// When.
        at: Instant,
    },
    /// The workload ended by itself and is started again in the same term.
    Restarting {
        /// The term.
        term: Term,
        /// How it ended.
        exit: Exit,
        /// When.
        at: Instant,
    },
    /// Init has begun a stop by itself. The elector answers with its StepDown.
    Stopping {
        /// The term.
        term: Term,
        /// Why.
        reason: Reason,
        /// When.
        at: Instant,
    },
    /// The answer to a StepDown: proved (law 8).
    Stopped {
        /// The term.
        term: Term,
        /// The StepDown that it answers.
        request: u64,
        /// How it went.
        stop: Stop,
        /// What comes after the release.
        then: Then,
    },
    /// Processes are left that SIGKILL did not remove; there will be no release.
    Unproved {
        /// The term.
        term: Term,
        /// Some of them, for the log.
        pids: Vec<i32>,
    },
    /// Init was told to end. End the term properly, write nothing as a follower, answer [`ToInit::Done`].
    Shutdown,
    /// Answer to [`ToInit::Heartbeat`].
    Heartbeat,
    /// A hook ended, however it went. To be reported, not acted on.
    Hooked {
        /// Which.
        hook: HookKind,
        /// When it was started.
        began: Instant,
        /// When nothing of it was left.
        ended: Instant,
        /// How its main process ended.
        exit: Exit,
    },
    /// Ask the workload, as this probe says.
    Probe {
        /// Which.
        kind: ProbeKind,
        /// When; the answer names it, so that none is taken for that to another question.
        began: Instant,
    },
    /// How the workload is. After a change of readiness nothing more is said of it before the elector has spoken, which it does at once.
    Health {
        /// Why it is not ready; none: it is, or nothing is asked, or none is meant to run.
        unready: Option<String>,
        /// What it last said of itself (`STATUS`): one line, bounded; empty: nothing.
        status: String,
    },
    /// A warning of init's for the log.
    Warn(String),
}

/// What a stopped workload means for the election.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Then {
    /// Go back to following; sit out one D first, where the stop was not a loss.
    Follow,
    /// Answer Done after the release: init exits.
    Exit,
}

/// A context of a kubeconfig, and which cluster it named when this replica started: no elector goes to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubeContext {
    /// Its name.
    pub name: String,
    /// The URL of the API server.
    pub server: String,
    /// A hash of how that server is verified: by which certificate authorities, under which name, or not at all.
    pub authority: u64,
}

/// First message to an elector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InitialState {
    /// The validated configuration, without what only init needs (command, env, hooks). Every elector of an init gets the same, so
    /// that D, rho, G and killMargin stay the same for a term and are init's (law 1).
    pub config: Config,
    /// Which command runs the workload.
    pub preset: Preset,
    /// When init began: it may wait for so long.
    pub began: Instant,
    /// Full identity, constant per init.
    pub identity: String,
    /// The kubeconfig context that this replica's Lease is in; none: the pod's own cluster. Constant per init.
    pub context: Option<KubeContext>,
    /// This elector's number; rises with each elector of this init and is unique in its specs (law 1).
    pub generation: u32,
    /// The highest term that any elector of this init began.
    pub last_term: Term,
    /// A term in progress.
    pub resume: Option<Resume>,
    /// What counts of what earlier electors saw of each Lease; none: nothing but what each finds in its own configuration.
    pub last_seen: BTreeMap<Slot, LastSeen>,
    /// No campaign before this: the Lease was given up voluntarily.
    pub backoff: Option<Instant>,
    /// Whether init was told to end already.
    pub shutdown: bool,
    /// Init is PID 1: the elector's own guard may kill all that it sees (law 8).
    pub pid1: bool,
}

impl InitialState {
    /// The initial of the first elector of an init that is PID 1: there is nothing to hand on.
    #[must_use]
    pub const fn first(config: Config, identity: String) -> Self {
        Self {
            config,
            preset: Preset::Run,
            began: Instant::BOOT,
            identity,
            context: None,
            generation: 1,
            last_term: Term(0),
            resume: None,
            last_seen: BTreeMap::new(),
            backoff: None,
            shutdown: false,
            pid1: true,
        }
    }
}

/// A message that the link cannot carry or understand.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// It would not arrive whole.
    #[error("a link message of {0} bytes is over the limit of {MAX_MESSAGE}")]
    TooLong(usize),
    /// It does not decode, or leaves bytes over.
    #[error("a link message of {length} bytes does not decode")]
    Undecodable {
        /// Its length.
        length: usize,
        /// Why.
        #[source]
        source: postcard::Error,
    },
    /// It does not encode.
    #[error("a link message does not encode")]
    Unencodable(#[source] postcard::Error),
}

/// Bytes of a message.
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

/// The message of one datagram.
///
/// # Errors
/// It is too long, does not decode or leaves bytes over.
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
