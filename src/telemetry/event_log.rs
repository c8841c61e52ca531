//! What is written to the log, and at which level.
//!
//! Owns the wording. One line for each transition (the one with a `role`), one when a state is entered that somebody may have to
//! act on, and none over and over for the same state. What others wrote (the API server, other holders of the Lease) is cut to
//! one line of a bounded length.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use tracing::{debug, error, info, warn};

use crate::{
    election::{
        Event, Operation, ReleaseResult, RequestError,
        trace::TraceContext,
        transition::{LostCampaign, Outcome, Transition},
    },
    link::{Exit, Resume, Slot, ToElector},
    role::Role,
    time::Instant,
    words::bounded,
};

/// The same failure is logged again after this long.
const AGAIN: Duration = Duration::from_secs(600);

/// So many different failures of one operation are told apart.
const STATES: usize = 8;

/// Writes log lines.
#[derive(Debug)]
pub(super) struct EventLog {
    lease: String,
    /// The full one, which people need for a handover to this replica.
    identity: String,
    /// By operation.
    failing: BTreeMap<Operation, Failing>,
}

/// Since the operation last succeeded.
#[derive(Debug, Default)]
struct Failing {
    /// What [`state`] made of the latest complaints, and when that was logged: two may alternate.
    told: VecDeque<((Option<u16>, String), Instant)>,
    failures: u64,
}

impl EventLog {
    pub(super) const fn new(lease: String, identity: String) -> Self {
        Self { lease, identity, failing: BTreeMap::new() }
    }

    /// An elector continues the term of the one before it.
    pub(super) fn resumed(&self, resume: &Resume) {
        let Resume { info, main, .. } = resume;
        info!(lease = self.lease, term = info.transitions, token = info.token, pid = main, "a new elector continues the term");
    }

    /// Writes the line that `event` is worth, if any.
    pub(super) fn event(&mut self, event: &Event, now: Instant) {
        let Self { lease, identity, .. } = &*self;
        match event {
            Event::Ready => info!(lease, identity, "ready: the Lease was read"),
            Event::NewLeader { slot, holder } => {
                info!(lease, slot = further(*slot), holder = &*bounded(holder), "another replica leads");
            }
            Event::HeldByNobody { wait } => info!(
                lease,
                wait = wait.as_secs_f64(),
                "the Lease was not given back: nobody holds it for as long as whoever had it may still run, and then it is taken"
            ),
            Event::Campaigning { why, context, .. } => {
                let (trace_id, span_id) = ids(*context);
                debug!(reason = why.as_str(), trace_id, span_id, "campaigning");
            }
            Event::CampaignLost(campaign) => {
                let LostCampaign { reason, context, .. } = **campaign;
                let ((trace_id, span_id), reason) = (ids(context), reason.as_str());
                info!(lease, reason, trace_id, span_id, "did not acquire the Lease: somebody else has written it");
            }
            Event::Renewed { latency, margin } => {
                debug!(latency = readable(latency.as_secs_f64()), margin_left = readable(margin.0), "renewed");
            }
            Event::Failed { operation, message, .. } => self.failed(*operation, message, now),
            Event::Recovered { operation } => self.recovered(*operation),
            Event::Stopping { reason, context } => {
                let (trace_id, span_id) = ids(*context);
                info!(lease, reason = reason.as_str(), trace_id, span_id, "stopping the workload");
            }
            Event::Transitioned(transition) => self.transitioned(transition),
            Event::HolderChanged { .. } | Event::WithinTerm(_) | Event::WaitedInVain { .. } => {}
            Event::Odd { message } => warn!(lease, "{}", bounded(message)),
        }
    }

    fn transitioned(&self, transition: &Transition) {
        let Transition { to, reason, slot, term, token, context, from, until, margin, exit, release, outcome, .. } = transition;
        let (trace_id, span_id) = ids(*context);
        let (role, reason, lease) = (to.as_str(), reason.as_str(), self.lease.as_str());
        let slot = further(*slot);
        let token = Some(token.as_str()).filter(|_| *to == Role::Leader);
        let margin_left = margin.map(|margin| readable(margin.0));
        let seconds = readable(until.since(*from).as_secs_f64());
        let took = |phase| transition.took(phase).map(|took| readable(took.as_secs_f64()));
        let (campaign, start) = (took("campaign"), took("workload.start"));
        let (stop, kill, proof) = (took("workload.stop"), took("workload.kill"), took("workload.proof"));
        let (released, exit) = (took("release"), exit.map(|exit| exit.to_string()));
        // A field that is none is not written.
        macro_rules! line {
            ($level:ident, $($words:tt)*) => {
                $level!(
                    role, reason, lease, slot, term, token, margin_left, seconds, campaign, start, exit, stop, kill, proof,
                    release = released, trace_id, span_id, $($words)*
                )
            };
        }
        let words = match (to, outcome) {
            (_, Outcome::NeverLed) => return line!(warn, "held the Lease, but the term ended before the workload led"),
            (Role::Leader, Outcome::Complete | Outcome::Demoted) => return line!(info, "leading: the workload is running"),
            (Role::Standby, Outcome::Demoted) => "standing by: the workload was demoted, and keeps running",
            (Role::Standby, Outcome::Complete) => "standing by: the workload is gone",
        };
        match release {
            Some(ReleaseResult::Unknown) => {
                line!(warn, "{words}; the release is unconfirmed: the next leader may have to wait until the Lease expires");
            }
            Some(ReleaseResult::NotOurs) => line!(info, "{words}; the Lease is no longer this term's, and left as it is"),
            Some(ReleaseResult::Rest) => line!(info, "{words}; the Lease rests until the next run is due"),
            Some(ReleaseResult::Clear | ReleaseResult::Delete | ReleaseResult::Keep) | None => line!(info, "{words}"),
        }
    }

    /// Writes the line that what init said is worth, if any.
    pub(super) fn heard(&self, message: &ToElector) {
        match message {
            ToElector::Warn(line) => warn!("{}", bounded(line)),
            ToElector::Restarting { exit: Exit::Code(code), .. } => {
                warn!(exit_code = code, "the workload ended; restarting it");
            }
            ToElector::Restarting { exit: Exit::Signal(signal), .. } => {
                warn!(exit_signal = signal, "the workload ended; restarting it");
            }
            ToElector::Shutdown => info!("shutting down"),
            ToElector::Health { unready, status } => info!(unready, status, "how the workload is"),
            ToElector::InitialState(_)
            | ToElector::Acknowledged { .. }
            | ToElector::Started { .. }
            | ToElector::Hooked { .. }
            | ToElector::Stopping { .. }
            | ToElector::Stopped { .. }
            | ToElector::Unproved { .. }
            | ToElector::Probe { .. }
            | ToElector::Heartbeat => {}
        }
    }

    fn failed(&mut self, operation: Operation, complaint: &RequestError, now: Instant) {
        let (state, message) = (state(complaint), complaint.to_string());
        let message = bounded(&message);
        let failing = self.failing.entry(operation).or_default();
        failing.failures += 1;
        if failing.told.iter().any(|(told, at)| *told == state && now.since(*at) < AGAIN) {
            debug!(operation = operation.as_str(), "{message}");
            return;
        }
        failing.told.retain(|(told, _)| *told != state);
        failing.told.truncate(STATES - 1);
        failing.told.push_front((state, now));
        let (lease, operation_name) = (self.lease.as_str(), operation.as_str());
        let is_needed = match operation {
            Operation::Get | Operation::Update => true,
            Operation::Create | Operation::List | Operation::Delete | Operation::Watch => false,
        };
        if is_needed && complaint.is_forbidden() {
            error!(
                lease,
                operation = operation_name,
                "a request to the API server failed: {message} (`tenure check` tells which permissions are missing)"
            );
        } else {
            warn!(lease, operation = operation_name, "a request to the API server failed: {message}");
        }
    }

    fn recovered(&mut self, operation: Operation) {
        if let Some(Failing { failures, .. }) = self.failing.remove(&operation) {
            info!(lease = self.lease, operation = operation.as_str(), failures, "requests to the API server work again");
        }
    }
}

/// As hexadecimal digits, the way collectors show them.
fn ids(context: TraceContext) -> (String, String) {
    (format!("{:032x}", context.trace_id), format!("{:016x}", context.span_id))
}

/// The part of a complaint that tells one state from another: digits are left out, because they may be times that differ in each.
fn state(complaint: &RequestError) -> (Option<u16>, String) {
    (complaint.status, complaint.words.chars().filter(|c| !c.is_ascii_digit()).collect())
}

/// Seconds, to the microsecond.
fn readable(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}

/// The slot, if it is not the first, which is the Lease of that name itself.
fn further(slot: Slot) -> Option<u8> {
    Some(slot.0).filter(|slot| *slot > 0)
}

#[cfg(test)]
mod tests;
