//! What the elections for all Leases share: what this replica is, what it was told, what it says and does, and how soon a leader
//! retries.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use super::{
    Action, Event,
    random::{Random, hash_of},
    trace::TraceContext,
    writes::{LeaseWriter, SLOTS, Stamps},
};
use crate::{
    config::{Candidate, SharedConfig, Trigger},
    law::{RETRY_PAUSE, Timing},
    link::{InitialState, LeaseBackoff, Term, ToInit},
    request::{Operation, RequestError},
    time::{Instant, Now},
};

/// The least time between the starts of two attempts of a leader, even if they are refused at once. It is T + b if that is less,
/// because the law counts attempts by T + b.
const LEAST_BETWEEN_ATTEMPTS: Duration = Duration::from_millis(500);
/// Spreads a nanosecond over all bits of a span's id.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

#[derive(Clone, Debug, Hash)]
pub(crate) struct Common {
    pub(crate) writer: LeaseWriter,
    pub(crate) config: SharedConfig,
    pub(crate) timing: Timing,
    /// When runs of a task are due.
    pub(crate) trigger: Option<Trigger>,
    pub(crate) last_term: Term,
    pub(crate) shutdown: bool,
    /// A first read succeeded.
    pub(crate) ready: bool,
    /// The workload is ready, or not meant to run, as init said last.
    pub(crate) is_workload_ready: bool,
    /// Since when the workload has been ready, if it is.
    pub(crate) ready_since: Instant,
    pub(crate) lease_backoff: LeaseBackoff,
    /// The operations whose last request failed, and why.
    failing: BTreeMap<Operation, RequestError>,
    actions: VecDeque<Action>,
    events: VecDeque<Event>,
    step_downs: u64,
    stamps: Stamps,
    random: Random,
}

impl Common {
    pub(crate) fn new(initial: &InitialState, seed: u64, now: Now) -> Self {
        let mut config = initial.config.clone();
        if config.lease.slots > 1 {
            config.lease.labels.insert(SLOTS.into(), config.lease.name.clone());
        }
        let config = SharedConfig::from(config);
        let is_workload_ready = config.workload.readiness.handler().is_none();
        let (identity, kind) = (initial.identity.clone(), initial.preset.kind());
        Self {
            writer: LeaseWriter { identity, config: config.clone(), kind, status: String::new() },
            timing: config.timing(),
            config,
            trigger: initial.preset.task().map(|task| task.trigger.clone()),
            last_term: initial.last_term,
            shutdown: initial.shutdown,
            // With a term in progress, the predecessor has read the Lease.
            ready: initial.resume.is_some(),
            is_workload_ready,
            ready_since: now.boot,
            lease_backoff: initial.backoff.unwrap_or_default(),
            failing: BTreeMap::new(),
            actions: VecDeque::new(),
            events: VecDeque::new(),
            step_downs: 0,
            stamps: Stamps::new(initial.generation),
            random: Random::of(seed),
        }
    }

    /// Returns how long a free Lease is left to replicas whose workload is ready; none if this one's is.
    pub(crate) fn yield_delay(&self) -> Option<Duration> {
        let is_asked = self.config.workload.candidate == Candidate::Ready;
        (is_asked && !self.is_workload_ready).then_some(self.config.workload.unready_after)
    }

    pub(crate) fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(crate) fn act(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    pub(crate) fn tell(&mut self, message: ToInit) {
        self.act(Action::Tell(message));
    }

    pub(crate) fn report(&mut self, event: Event) {
        self.events.push_back(event);
    }

    pub(crate) fn report_failure(&mut self, operation: Operation, sent: Instant, message: RequestError) {
        self.failing.insert(operation, message.clone());
        self.report(Event::Failed { operation, sent, message });
    }

    /// Counts `operation` as succeeding until a failure is reported. Returns true if it was failing.
    pub(crate) fn expect_success(&mut self, operation: Operation) -> bool {
        self.failing.remove(&operation).is_some()
    }

    /// Reports that an operation which `failed` before has recovered, unless it has failed again.
    pub(crate) fn report_recovery(&mut self, operation: Operation, failed: bool) {
        if failed && !self.failing.contains_key(&operation) {
            self.report(Event::Recovered { operation });
        }
    }

    /// Returns why the last read or the last `write` failed, a denial first. Other writes do not count: they may have failed long
    /// ago, for another Lease.
    pub(crate) fn failure(&self, write: Option<Operation>) -> Option<&RequestError> {
        let needed = [Some(Operation::Get), Some(Operation::List), write];
        let failing = || self.failing.iter().filter(|(operation, _)| needed.contains(&Some(**operation)));
        failing().find(|(_, error)| error.is_forbidden()).or_else(|| failing().next()).map(|(_, error)| error)
    }

    /// Returns the id of the next StepDown.
    pub(crate) const fn next_step_down(&mut self) -> u64 {
        self.step_downs += 1;
        self.step_downs
    }

    /// Returns the time of the next write, later than those of all earlier ones and than `previous`.
    pub(crate) fn next_time(&mut self, now: Now, previous: Option<&str>) -> String {
        self.stamps.next(now.wall, previous)
    }

    /// Returns the time of the next write for nobody. All replicas write the same holder, so each has a time of its own: to one
    /// that has missed the versions in between, equal bytes would look like an unchanged Lease (law 14).
    pub(crate) fn next_time_of_nobody(&mut self, now: Now, previous: Option<&str>) -> String {
        let apart = hash_of(self.writer.identity.bytes());
        self.stamps.next_apart(now.wall, previous, i64::from(apart))
    }

    /// Makes the span of a campaign that begins `now`. A copy of this replica, from a restored snapshot, has the same random
    /// numbers and wakes in the same millisecond, but not in the same nanosecond. So their acquiring writes differ (law 6).
    pub(crate) fn next_campaign(&mut self, parent: Option<TraceContext>, now: Now) -> TraceContext {
        let context = self.next_context(parent);
        let span_id = context.span_id ^ now.boot.as_nanos().wrapping_mul(SPREAD);
        TraceContext { span_id: span_id.max(1), ..context }
    }

    /// Makes a span of a new trace, or of the trace of `parent`.
    pub(crate) fn next_context(&mut self, parent: Option<TraceContext>) -> TraceContext {
        let trace_id = match parent {
            Some(parent) => parent.trace_id,
            None => u128::from(self.random.id()) << 64 | u128::from(self.random.number()),
        };
        TraceContext { trace_id, span_id: self.random.id() }
    }

    pub(crate) fn jittered(&mut self, pause: Duration) -> Duration {
        self.random.around(pause)
    }

    /// Returns a random part of `span`.
    pub(crate) fn part_of(&mut self, span: Duration) -> Duration {
        self.random.part_of(span)
    }

    /// Returns when a leader retries an attempt that was sent at `sent`: soon, without flooding the server, and so that one more
    /// attempt fits before `end`, which is S or the end of a release (law 5).
    pub(crate) fn leader_retry(&mut self, sent: Instant, retry_after: Option<Duration>, end: Instant, now: Now) -> Instant {
        let pause = self.jittered(RETRY_PAUSE).min(RETRY_PAUSE);
        let least = (LEAST_BETWEEN_ATTEMPTS + self.jittered(RETRY_PAUSE)).min(self.timing.attempt_timeout + RETRY_PAUSE);
        let soon = (now.boot + pause).max(sent + least);
        let Some(retry_after) = retry_after else { return soon };
        let last = end.before(self.timing.attempt_timeout);
        soon.max((now.boot + retry_after).min(last))
    }
}
