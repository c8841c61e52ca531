//! The one status of a replica. All that people and collectors see is a view of it.
//!
//! Owns how a [`Fact`] changes it; what it says of the election is the election's own [`View`]. The elector's loop takes the facts
//! in the order in which they happened, and shows each [`Change`] to the edges: log, metrics and traces, Kubernetes Events, pages
//! and EndpointSlice. Decides nothing but the content that the EndpointSlice should have (law 19). Reads no clock.

use std::time::Duration;

use super::{names::RequestOutcome, transition::Recorded};
use crate::{
    config::{HttpReady, Runs},
    election::{Event, View, publication::Wanted},
    link::{InitialState, Term, TermInfo, ToElector, ToInit},
    request::{Answer, Operation},
    role::Role,
    time::{Instant, Now},
};

/// What can change the status, or is to be shown.
#[derive(Debug)]
pub enum Fact {
    /// Init said this.
    Told(ToElector),
    /// Init is told this.
    Telling(ToInit),
    /// The election reported this.
    Event(Event),
    /// A part of a term is over.
    Recorded(Recorded),
    /// This is the state of the election after a turn.
    Elects(View),
    /// A request was answered, or a watch began or failed.
    Requested(Requested),
    /// A watch replaces the one before.
    WatchesAgain,
}

/// What became of a request, or of the beginning of a watch.
#[derive(Debug)]
pub struct Requested {
    pub(super) operation: Operation,
    pub(super) outcome: RequestOutcome,
    /// How long it took.
    pub(super) took: Duration,
    /// The API server has answered, with an error perhaps.
    is_answered: bool,
}

/// A fact, and the status before and after it.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The status before the fact.
    pub before: &'a Status,
    /// The status after the fact.
    pub after: &'a Status,
    /// The fact.
    pub fact: &'a Fact,
    /// When it happened.
    pub at: Now,
}

/// The status of a replica.
#[derive(Clone, Debug)]
pub struct Status {
    /// The state of the election after its last turn: role, deadlines, back-off, the last renewal.
    pub election: View,
    /// The last term that init was told of.
    pub term: Option<ToldTerm>,
    /// The role that the workload was started or promoted in. None: it does not run.
    pub role: Option<Role>,
    /// Why the workload is not ready; empty until init says why. None: it is ready, no probe asks it, or it is not meant to run.
    pub unready: Option<String>,
    /// The last `STATUS` of the workload.
    pub words: String,
    /// When init was last heard from.
    pub heard: Instant,
    /// The API server has not refused to let this replica update the Lease.
    pub is_permitted: bool,
    /// The API server answered the last request, or watch.
    pub is_answered: bool,
    /// A witness knows this replica.
    pub is_witnessed: bool,
    /// D of the configuration.
    pub duration: Duration,
    attempt_timeout: Duration,
    runs: Runs,
    http_ready: HttpReady,
}

/// A term, as the messages between init and elector tell it.
#[derive(Clone, Debug)]
pub struct ToldTerm {
    /// The number of the term.
    pub term: Term,
    /// The facts that the workload is told.
    pub info: TermInfo,
    /// S.
    soft: Instant,
    /// Init has told that the workload leads, and has not proved yet that it leads no longer.
    pub is_led: bool,
    /// A stop has begun.
    pub ends: bool,
}

impl Requested {
    /// A request was answered.
    pub const fn answer(operation: Operation, answer: &Answer, took: Duration) -> Self {
        let is_answered = match answer {
            Answer::Refused { message, .. } | Answer::Unknown { message, .. } => message.status.is_some(),
            Answer::Object(_) | Answer::Listed { .. } | Answer::Deleted | Answer::NotFound | Answer::Conflict => true,
        };
        Self { operation, outcome: RequestOutcome::of(answer), took, is_answered }
    }

    /// A watch began, or failed with this status.
    pub const fn watch(answer: Result<(), Option<u16>>, took: Duration) -> Self {
        let is_answered = !matches!(answer, Err(None));
        Self { operation: Operation::Watch, outcome: RequestOutcome::of_watch(answer), took, is_answered }
    }
}

impl Status {
    /// Begins from the state that init hands to a new elector, which init was heard with at `now`.
    pub fn new(initial: &InitialState, now: Instant) -> Self {
        let InitialState { config, resume, backoff, .. } = initial;
        let term = resume.as_ref().map(|resume| ToldTerm {
            term: resume.term,
            info: resume.info.clone(),
            soft: resume.confirmed.deadlines.soft,
            is_led: resume.told,
            ends: resume.stopping.is_some(),
        });
        let leads = resume.as_ref().and_then(|resume| resume.main).map(|_| Role::Leader);
        Self {
            election: View { backoff: backoff.unwrap_or_default(), ..View::default() },
            term,
            role: leads.or_else(|| standby(config.workload.runs)),
            unready: config.workload.readiness.handler().map(|_| String::new()),
            words: String::new(),
            heard: now,
            is_permitted: true,
            is_answered: true,
            is_witnessed: false,
            duration: config.lease.duration,
            attempt_timeout: config.lease.attempt_timeout,
            runs: config.workload.runs,
            http_ready: config.http.ready,
        }
    }

    /// Takes in a fact that happened at `at`. Returns true if a page may show something else now.
    pub fn apply(&mut self, fact: &Fact, at: Instant) -> bool {
        match fact {
            Fact::Told(message) => {
                self.heard = at;
                self.told(message)
            }
            Fact::Telling(message) => {
                self.telling(message);
                false
            }
            Fact::Event(Event::Failed { operation: Operation::Update, message, .. }) if message.is_forbidden() => {
                self.set_permitted(false)
            }
            Fact::Event(Event::Recovered { operation: Operation::Update }) => self.set_permitted(true),
            Fact::Elects(view) => std::mem::replace(&mut self.election, *view) != *view,
            Fact::Requested(Requested { is_answered, .. }) => {
                std::mem::replace(&mut self.is_answered, *is_answered) != *is_answered
            }
            Fact::Event(_) | Fact::Recorded(_) | Fact::WatchesAgain => false,
        }
    }

    /// The API server lets this replica update the Lease, or does not. Returns true if a page may show something else now.
    pub fn set_permitted(&mut self, is_permitted: bool) -> bool {
        std::mem::replace(&mut self.is_permitted, is_permitted) != is_permitted
    }

    /// A witness knows this replica (law 20), or does so no longer. No page shows that.
    pub const fn set_witnessed(&mut self, is_witnessed: bool) {
        self.is_witnessed = is_witnessed;
    }

    fn told(&mut self, message: &ToElector) -> bool {
        if let ToElector::Health { unready, status } = message {
            (self.unready, self.words) = (unready.clone(), status.clone());
            return true;
        }
        let Some(led) = &mut self.term else { return false };
        match message {
            ToElector::Started { term, .. } if *term == led.term => (self.role, led.is_led) = (Some(Role::Leader), true),
            ToElector::Restarting { term, .. } if *term == led.term => self.role = None,
            ToElector::Stopping { term, .. } if *term == led.term => led.ends = true,
            ToElector::Stopped { term, .. } if *term == led.term => (self.role, led.is_led) = (standby(self.runs), false),
            ToElector::InitialState(_)
            | ToElector::Acknowledged { .. }
            | ToElector::Started { .. }
            | ToElector::Restarting { .. }
            | ToElector::Stopping { .. }
            | ToElector::Stopped { .. }
            | ToElector::Unproved { .. }
            | ToElector::Shutdown
            | ToElector::Heartbeat
            | ToElector::Hooked { .. }
            | ToElector::Probe { .. }
            | ToElector::Health { .. }
            | ToElector::Warn(_) => return false,
        }
        true
    }

    fn telling(&mut self, message: &ToInit) {
        if let ToInit::Lead { term, info, confirmed } = message {
            let (term, info, soft) = (*term, info.clone(), confirmed.deadlines.soft);
            self.term = Some(ToldTerm { term, info, soft, is_led: false, ends: false });
        }
        let Some(led) = &mut self.term else { return };
        if let ToInit::Extend { confirmed, .. } = message {
            led.soft = led.soft.max(confirmed.deadlines.soft);
        }
        led.ends |= matches!(message, ToInit::StepDown { .. } | ToInit::Releasing { .. } | ToInit::Ended { .. });
    }

    /// Returns true if the workload is ready, or `http.ready` does not ask for that.
    pub fn is_workload_fit(&self) -> bool {
        self.http_ready == HttpReady::Always || self.unready.is_none()
    }

    /// Returns true if the workload runs, or is about to be started again. Elsewhere it is neither ready nor unready.
    pub(super) fn is_workload_meant_to_run(&self) -> bool {
        self.runs != Runs::Leading || self.role.is_some() || self.term.as_ref().is_some_and(|led| led.is_led)
    }

    /// Returns true if the workload leads. While one that has ended is not started again, nothing does.
    pub(crate) fn leads(&self) -> bool {
        self.role == Some(Role::Leader) && self.term.as_ref().is_some_and(|term| term.is_led)
    }

    /// Returns the content that the EndpointSlice should have; none before the first term. After a term it wants no endpoint until
    /// S - T: if no replica leads next, no other removes it.
    pub fn wanted(&self) -> Option<Wanted> {
        let ToldTerm { term, info, soft, ends, .. } = self.term.as_ref()?;
        let runs = self.leads();
        let serves = self.unready.is_none() && runs && !ends;
        let until = soft.before(self.attempt_timeout);
        Some(Wanted { term: *term, slot: info.slot, token: info.token.clone(), serves, ends: *ends, until })
    }
}

/// Returns the role of a workload on a standby.
fn standby(runs: Runs) -> Option<Role> {
    (runs != Runs::Leading).then_some(Role::Standby)
}

#[cfg(test)]
mod tests;
