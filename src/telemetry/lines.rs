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

use super::{
    Fact,
    transition::{Campaign, Name, Outcome, Transition},
};
use crate::{
    election::{Complaint, Event, Given, Operation, trace::TraceContext},
    link::{Exit, Resume, ToElector, ToInit},
    role::Role,
    time::{Instant, Now},
    words::bounded,
};

/// The same failure is logged again after this long.
const AGAIN: Duration = Duration::from_secs(600);

/// So many different failures of one operation are told apart.
const STATES: usize = 8;

/// Writes log lines.
#[derive(Debug)]
pub(crate) struct Lines {
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

impl Lines {
    pub(crate) const fn new(lease: String, identity: String) -> Self {
        Self { lease, identity, failing: BTreeMap::new() }
    }

    /// An elector continues the term of the one before it.
    pub(crate) fn resumed(&self, resume: &Resume) {
        let Resume { facts, main, .. } = resume;
        info!(lease = self.lease, term = facts.transitions, token = facts.token, pid = main, "a new elector continues the term");
    }

    /// Writes the line that `fact` is worth by itself, if any.
    pub(crate) fn fact(&mut self, fact: Fact<'_>, now: Now) {
        match fact {
            Fact::Reported(event) => self.event(event, now),
            Fact::Sent(ToInit::Failed { code, message }) => error!(code, "{}", bounded(message)),
            Fact::Sent(message) => debug!(target: "tenure::link", "to init: {}", name(message)),
            Fact::Received(message) => heard(message),
        }
    }

    /// Writes the line about something that is over.
    pub(crate) fn outcome(&self, outcome: &Outcome) {
        match outcome {
            Outcome::Transition(transition) => self.transition(transition),
            Outcome::Lost(Campaign { reason, context, .. }) => {
                let (trace_id, span_id) = ids(*context);
                info!(
                    lease = self.lease,
                    reason = reason.as_str(),
                    trace_id,
                    span_id,
                    "did not acquire the Lease: somebody else has written it"
                );
            }
            Outcome::During { .. } => {}
        }
    }

    fn transition(&self, transition: &Transition) {
        let Transition { to, reason, term, token, context, from, until, margin, exit, demoted, error, .. } = transition;
        let (trace_id, span_id) = ids(*context);
        let (role, reason, lease) = (to.as_str(), reason.as_str(), self.lease.as_str());
        let token = token.as_deref().filter(|_| *to == Role::Leader);
        let margin_left = margin.map(|margin| readable(margin.0));
        let seconds = readable(until.since(*from).as_secs_f64());
        let took = |phase| transition.took(phase).map(|took| readable(took.as_secs_f64()));
        let (campaign, start) = (took(Name::Campaign), took(Name::WorkloadStart));
        let (stop, kill, proof) = (took(Name::WorkloadStop), took(Name::WorkloadKill), took(Name::WorkloadProof));
        let (release, exit) = (took(Name::Release), exit.map(|exit| exit.to_string()));
        // A field that is none is not written.
        macro_rules! line {
            ($level:ident, $($words:tt)*) => {
                $level!(
                    role, reason, lease, term, token, margin_left, seconds, campaign, start, exit, stop, kill, proof, release,
                    trace_id, span_id, $($words)*
                )
            };
        }
        match (to, error) {
            (Role::Leader, None) => line!(info, "leading: the workload is running"),
            (Role::Leader, Some(error)) => line!(warn, "held the Lease, but {error}"),
            (Role::Standby, None) if *demoted => line!(info, "standing by: the workload was demoted, and keeps running"),
            (Role::Standby, None) => line!(info, "standing by: the workload is gone"),
            (Role::Standby, Some(error)) => line!(warn, "stopped leading, but {error}"),
        }
    }

    fn event(&mut self, event: &Event, now: Now) {
        match event {
            Event::Ready => info!(lease = self.lease, identity = self.identity, "ready: the Lease was read"),
            Event::NewLeader { holder } => {
                info!(lease = self.lease, holder = &*bounded(holder), "another replica leads");
            }
            Event::Campaigning { why, context, .. } => {
                let (trace_id, span_id) = ids(*context);
                debug!(reason = why.as_str(), trace_id, span_id, "campaigning");
            }
            Event::CampaignLost | Event::Following => {}
            Event::Acquired { token, transitions, creation_wait } => match creation_wait {
                Some(wait) => info!(
                    lease = self.lease,
                    term = transitions,
                    token,
                    wait = wait.as_secs_f64(),
                    "acquired the Lease; waiting before the workload starts, because a holder that did not release it may still run"
                ),
                None => debug!(term = transitions, token, "acquired the Lease"),
            },
            Event::Renewed { latency } => debug!(latency = readable(latency.as_secs_f64()), "renewed"),
            Event::Failed { operation, message, .. } => self.failed(*operation, message, now.boot),
            Event::Recovered { operation } => self.recovered(*operation),
            Event::Stopping { reason, context } => {
                let (trace_id, span_id) = ids(*context);
                info!(lease = self.lease, reason = reason.as_str(), trace_id, span_id, "stopping the workload");
            }
            Event::Proved(stop) => debug!(?stop, "the workload is proved gone"),
            Event::Released { how: how @ Given::Unknown } => {
                warn!(
                    lease = self.lease,
                    how = how.as_str(),
                    "the release is unconfirmed: the next leader may have to wait until the Lease expires"
                );
            }
            Event::Released { how: how @ Given::NotOurs } => {
                info!(
                    lease = self.lease,
                    how = how.as_str(),
                    "the Lease does not carry this term's holder, acquireTime and leaseTransitions any more: it is left as it is"
                );
            }
            Event::Released { how } => debug!(how = how.as_str(), "released the Lease"),
            Event::Odd { message } => warn!(lease = self.lease, "{}", bounded(message)),
        }
    }

    fn failed(&mut self, operation: Operation, complaint: &Complaint, now: Instant) {
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
            Operation::Create | Operation::Delete | Operation::Watch => false,
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

fn heard(message: &ToElector) {
    match message {
        ToElector::Warn(line) => warn!("{}", bounded(line)),
        ToElector::Restarting { exit: Exit::Code(code), .. } => {
            warn!(exit_code = code, "the workload ended; restarting it");
        }
        ToElector::Restarting { exit: Exit::Signal(signal), .. } => {
            warn!(exit_signal = signal, "the workload ended; restarting it");
        }
        ToElector::Started { pid, .. } => debug!(pid, "the workload started"),
        ToElector::Hooked { hook, exit, .. } => debug!(hook = hook.name(), ?exit, "a hook ended"),
        ToElector::Shutdown => info!("shutting down"),
        ToElector::Welcome(_)
        | ToElector::Acknowledged { .. }
        | ToElector::Stopping { .. }
        | ToElector::Stopped { .. }
        | ToElector::Unproved { .. }
        | ToElector::Beat => {}
    }
}

const fn name(message: &ToInit) -> &'static str {
    match message {
        ToInit::Hello { .. } => "hello",
        ToInit::Lead { .. } => "lead",
        ToInit::Extend { .. } => "extend",
        ToInit::Shorten { .. } => "shorten",
        ToInit::StepDown { .. } => "step down",
        ToInit::Releasing { .. } => "releasing",
        ToInit::Ended { .. } => "ended",
        ToInit::Saw(_) => "saw",
        ToInit::Beat => "beat",
        ToInit::Done => "done",
        ToInit::Failed { .. } => "failed",
    }
}

/// As hexadecimal digits, the way collectors show them.
fn ids(context: TraceContext) -> (String, String) {
    (format!("{:032x}", context.trace_id), format!("{:016x}", context.span_id))
}

/// The part of a complaint that tells one state from another: digits are left out, because they may be times that differ in each.
fn state(complaint: &Complaint) -> (Option<u16>, String) {
    (complaint.status, complaint.words.chars().filter(|c| !c.is_ascii_digit()).collect())
}

/// Seconds, to the microsecond.
fn readable(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests;
