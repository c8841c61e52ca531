//! Decides what a witness does: it gives back what a dead replica holds (law 20).
//!
//! Owns what the witness was told of each replica (the fields of the datagram), until the replica is dead and whatever named it was
//! given back. Only a readable pidfd says that a replica is dead. Has no clock and no deadline: it is given the wall clock's time to
//! write, and asks for a pause before a retry. Never creates or deletes a Lease, and never writes one that names another holder.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{
    Request, RequestId,
    asked::Verdict,
    pace::doubled,
    random::Random,
    record::{LeaseRecord, LeaseState},
    writes::{HOLDER, OBITUARY, Stamps, obituary},
};
use crate::{
    law::RETRY_PAUSE,
    request::{Answer, Refusal, RequestError},
};

/// How many replicas are remembered at most. A pod has few containers, and each restarts seldom.
pub const MOST_REPLICAS: usize = 256;
/// The longest pause after a request without an answer: as long as a leader's.
const LONGEST_UNANSWERED: Duration = Duration::from_millis(500);

/// A replica, as its elector tells the witness of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct Replica {
    /// Full identity.
    pub identity: String,
    /// Namespace of the Leases.
    pub namespace: String,
    /// Names of the Leases: one for each slot.
    pub leases: Vec<String>,
    /// T.
    pub attempt_timeout: Duration,
    /// R.
    pub renew_period: Duration,
}

/// Input of the witness.
#[derive(Clone, Debug, PartialEq, Hash)]
pub enum Input {
    /// An elector handed over a pidfd of its init, which replaces that of an earlier elector of the replica. Forgotten unless
    /// [`Witness::believes`] it.
    Told(Replica),
    /// The connection of the elector that was believed ended.
    Disconnected {
        /// Full identity of its replica.
        identity: String,
    },
    /// The pidfd is readable: no process of the replica is left.
    Died {
        /// Full identity of the replica.
        identity: String,
    },
    /// The answer to a request.
    Answered {
        /// The id of the request.
        id: RequestId,
        /// The outcome of the request.
        answer: Answer,
    },
    /// The witness is told to end: what is certainly refused is not tried again.
    Ending,
}

/// Work that the witness wants done.
#[derive(Clone, Debug, PartialEq, Hash)]
pub enum Action {
    /// Send this request once, after a pause, within the replica's T, and report its outcome as [`Input::Answered`].
    Request {
        /// Returned in the answer.
        id: RequestId,
        /// The dead replica.
        replica: Arc<Replica>,
        /// Name of the Lease.
        lease: String,
        /// The request to send: a GET or a PUT.
        request: Request,
        /// How long to wait before.
        pause: Duration,
    },
    /// A request failed, and is sent again; reported once per state.
    Failed {
        /// Full identity of the dead replica.
        identity: String,
        /// Name of the Lease.
        lease: String,
        /// The failure, in words.
        message: RequestError,
    },
    /// Everything is done for a dead replica, which is forgotten.
    Ended {
        /// Its full identity.
        identity: String,
        /// Names of the Leases that were given back.
        given_back: Vec<String>,
    },
}

/// The machine of one witness.
#[derive(Clone, Debug, Hash)]
pub struct Witness {
    replicas: BTreeMap<String, Entry>,
    is_ending: bool,
    asked: u64,
    stamps: Stamps,
    random: Random,
    actions: VecDeque<Action>,
}

#[derive(Clone, Debug, Hash)]
struct Entry {
    replica: Arc<Replica>,
    /// The elector that told of it is connected.
    is_connected: bool,
    /// The Leases that are not settled, once the replica is dead; none while it lives.
    open: Option<Vec<Step>>,
    given_back: Vec<String>,
}

/// How far the witness is with one Lease.
#[derive(Clone, Debug, Hash)]
struct Step {
    lease: String,
    awaited: RequestId,
    /// The awaited request is the PUT.
    clears: bool,
    failures: u32,
    failed: Option<RequestError>,
    /// The token was refused, and has been read again since.
    was_denied: bool,
}

/// The step after an answer.
enum Next {
    Read,
    Clear(LeaseRecord),
    Done {
        given_back: bool,
    },
    /// At once, with a token that is read again.
    Reauthenticate(RequestError),
    Retry {
        message: RequestError,
        retry_after: Option<Duration>,
        longest: Duration,
    },
}

impl Witness {
    /// Nobody is known yet.
    pub fn new(seed: u64) -> Self {
        let (stamps, random) = (Stamps::new(0), Random::of(seed));
        Self { replicas: BTreeMap::new(), is_ending: false, asked: 0, stamps, random, actions: VecDeque::new() }
    }

    /// Takes in what happened; `wall` is the wall clock in microseconds.
    pub fn handle(&mut self, input: Input, wall: i64) {
        match input {
            Input::Told(replica) => self.told(replica),
            // It says nothing of the processes (law 20).
            Input::Disconnected { identity } => {
                self.replicas.entry(identity).and_modify(|entry| entry.is_connected = false);
            }
            Input::Died { identity } => self.died(&identity),
            Input::Answered { id, answer } => self.answered(id, answer, wall),
            Input::Ending => self.is_ending = true,
        }
    }

    /// The next thing to do, in order.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Returns true if an elector of this replica is believed that connects now. While an earlier one is connected nobody else is: two
    /// electors of one init never are, so somebody borrows its name.
    pub fn believes(&self, identity: &str) -> bool {
        match self.replicas.get(identity) {
            Some(entry) => entry.open.is_none() && !entry.is_connected,
            None => self.replicas.len() < MOST_REPLICAS,
        }
    }

    /// Returns true if this replica is known: it lives, or not everything is done yet.
    pub fn knows(&self, identity: &str) -> bool {
        self.replicas.contains_key(identity)
    }

    /// Returns true if no replica is known.
    pub fn is_idle(&self) -> bool {
        self.replicas.is_empty()
    }

    fn told(&mut self, replica: Replica) {
        if self.believes(&replica.identity) {
            let entry = Entry { replica: replica.into(), is_connected: true, open: None, given_back: Vec::new() };
            self.replicas.insert(entry.replica.identity.clone(), entry);
        }
    }

    fn died(&mut self, identity: &str) {
        let Some(entry) = self.replicas.get(identity).filter(|entry| entry.open.is_none()) else { return };
        let replica = Arc::clone(&entry.replica);
        let read = |lease: &String| {
            let awaited = self.ask(&replica, lease, Request::Get, Duration::ZERO);
            Step { lease: lease.clone(), awaited, clears: false, failures: 0, failed: None, was_denied: false }
        };
        let open = replica.leases.iter().map(read).collect();
        self.replicas.entry(identity.into()).and_modify(|entry| entry.open = Some(open));
        self.end(identity);
    }

    fn answered(&mut self, id: RequestId, answer: Answer, wall: i64) {
        let open = |entry: &mut Entry| {
            let steps = entry.open.as_mut()?;
            let at = steps.iter().position(|step| step.awaited == id)?;
            Some((Arc::clone(&entry.replica), steps.swap_remove(at)))
        };
        let Some((replica, mut step)) = self.replicas.values_mut().find_map(open) else { return };
        let (request, pause) = match next(&replica, &step, answer, self.is_ending) {
            Next::Done { given_back } => {
                if given_back && let Some(entry) = self.replicas.get_mut(&replica.identity) {
                    entry.given_back.push(step.lease);
                }
                return self.end(&replica.identity);
            }
            Next::Read => (Request::Get, Duration::ZERO),
            Next::Clear(record) => {
                let time = self.stamps.next(wall, record.renew_time());
                (Request::Write(obituary(&record, &replica.identity, &replica.namespace, &time)), Duration::ZERO)
            }
            Next::Reauthenticate(message) => {
                step.was_denied = true;
                self.failed(&replica, &mut step, message);
                (Request::Get, Duration::ZERO)
            }
            Next::Retry { message, retry_after, longest } => {
                self.failed(&replica, &mut step, message);
                let pause = self.random.around(doubled(RETRY_PAUSE, step.failures, longest));
                (Request::Get, pause.max(retry_after.unwrap_or_default().min(replica.renew_period)))
            }
        };
        step.clears = matches!(request, Request::Write(_));
        step.failures += u32::from(!step.clears);
        step.awaited = self.ask(&replica, &step.lease, request, pause);
        if let Some(entry) = self.replicas.get_mut(&replica.identity)
            && let Some(open) = &mut entry.open
        {
            open.push(step);
        }
    }

    /// Reports a failure, unless it is the one before.
    fn failed(&mut self, replica: &Replica, step: &mut Step, message: RequestError) {
        if step.failed.as_ref() != Some(&message) {
            let (identity, lease) = (replica.identity.clone(), step.lease.clone());
            self.actions.push_back(Action::Failed { identity, lease, message: message.clone() });
        }
        step.failed = Some(message);
    }

    fn ask(&mut self, replica: &Arc<Replica>, lease: &str, request: Request, pause: Duration) -> RequestId {
        self.asked += 1;
        let id = RequestId(self.asked);
        let (replica, lease) = (Arc::clone(replica), lease.to_owned());
        self.actions.push_back(Action::Request { id, replica, lease, request, pause });
        id
    }

    /// Forgets the replica once nothing is left to do for it.
    fn end(&mut self, identity: &str) {
        let is_done = |entry: &Entry| entry.open.as_ref().is_some_and(Vec::is_empty);
        if self.replicas.get(identity).is_some_and(is_done)
            && let Some((identity, Entry { given_back, .. })) = self.replicas.remove_entry(identity)
        {
            self.actions.push_back(Action::Ended { identity, given_back });
        }
    }
}

fn next(replica: &Replica, step: &Step, answer: Answer, is_ending: bool) -> Next {
    let longest = LONGEST_UNANSWERED.min(replica.attempt_timeout.saturating_add(RETRY_PAUSE));
    match Verdict::of(None, answer) {
        Verdict::Read(_) | Verdict::Proved(..) | Verdict::Other(..) if step.clears => Next::Done { given_back: true },
        Verdict::Read(record) | Verdict::Proved(record, _) | Verdict::Other(record, _) => match record.annotation(HOLDER) {
            // Written by hand into the Lease of another, which may still be stopping.
            Some(named) if named != replica.identity => Next::Done { given_back: false },
            Some(_) | None if record.state() == LeaseState::Held && record.is_held_by(&replica.identity) => Next::Clear(record),
            // By a PUT whose answer was lost.
            Some(_) | None => Next::Done { given_back: record.annotation(OBITUARY) == Some(&replica.identity) },
        },
        Verdict::Absent | Verdict::Deleted => Next::Done { given_back: false },
        // Usually the dead replica's own last renewal.
        Verdict::Conflict if step.failures == 0 => Next::Read,
        Verdict::Conflict => Next::Retry { message: "somebody else writes the Lease".into(), retry_after: None, longest },
        // Without credentials the server was not asked.
        Verdict::Refused(Refusal::Unauthorized, message @ RequestError { status: None, .. }) if is_ending => {
            Next::Retry { message, retry_after: None, longest }
        }
        Verdict::Refused(Refusal::Unauthorized, message) if !step.was_denied => Next::Reauthenticate(message),
        // Whoever uninstalls a replica takes its rights first.
        Verdict::Refused(refusal, _) if is_ending && !refusal.may_pass() => Next::Done { given_back: false },
        Verdict::Refused(refusal, message) => {
            Next::Retry { message, retry_after: refusal.retry_after(), longest: longest.max(replica.renew_period) }
        }
        Verdict::Open(message, retry_after) => Next::Retry { message, retry_after, longest },
    }
}
