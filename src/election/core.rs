//! The parts that all phases of an election share: the actions, the request in flight, the observation of the Lease, and the
//! pace.

use std::{collections::VecDeque, time::Duration};

use backoff::Backoff;
pub(crate) use backoff::doubled;
use reports::Reports;
pub(crate) use reports::warning;
use requests::Requests;
use watch_policy::Watch;
pub(crate) use watch_policy::WatchEvent;

use super::{
    Action, Event,
    elector::Next,
    observation::Observation,
    random::Random,
    record::LeaseRecord,
    trace::TraceContext,
    wait_limit::WaitLimit,
    writes::{LeaseWriter, Stamps},
};
use crate::{
    config::{Candidate, SharedConfig, Trigger},
    law::Timing,
    link::{InitialState, LastSeen, LeaseBackoff, Term, Then, ToInit},
    slot::Slot,
    time::{Instant, Now},
};

mod backoff;
mod reports;
mod requests;
mod watch_policy;

/// Spreads a nanosecond over all bits of a span's id.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

#[derive(Clone, Debug, Hash)]
pub(crate) struct Core {
    pub(crate) slot: Slot,
    /// A follower may write: no other slot has its turn.
    pub(crate) may_write: bool,
    pub(crate) writer: LeaseWriter,
    pub(crate) config: SharedConfig,
    pub(crate) timing: Timing,
    /// When runs of a task are due.
    pub(crate) trigger: Option<Trigger>,
    pub(crate) last_term: Term,
    pub(crate) shutdown: bool,
    /// None: the wait for the Lease has no limit.
    pub(crate) wait_limit: Option<WaitLimit>,
    /// A first read succeeded.
    pub(crate) ready: bool,
    /// The workload is ready, or not meant to run, as init said last.
    pub(crate) is_workload_ready: bool,
    /// Since when the workload has been ready, if it is.
    pub(crate) ready_since: Instant,
    pub(crate) observation: Observation,
    /// The observation that init holds for the next elector.
    handed_on: LastSeen,
    pub(crate) requests: Requests,
    pub(crate) backoff: Backoff,
    pub(crate) lease_backoff: LeaseBackoff,
    watch: Watch,
    reports: Reports,
    actions: VecDeque<Action>,
    events: VecDeque<Event>,
    step_downs: u64,
    stamps: Stamps,
    random: Random,
}

impl Core {
    pub(crate) fn new(initial: &InitialState, slot: Slot, seed: u64, now: Now) -> Self {
        let config = SharedConfig::from(initial.config.clone());
        let nothing = || LastSeen { duration: config.lease.duration, held: None, named: false, not_before: Instant::BOOT };
        let last_seen = initial.last_seen.get(&slot).cloned().unwrap_or_else(nothing);
        let (identity, timing) = (initial.identity.clone(), config.timing());
        let trigger = initial.preset.task().map(|task| task.trigger.clone());
        let is_workload_ready = config.workload.readiness.handler().is_none();
        Self {
            slot,
            may_write: true,
            observation: Observation::after(last_seen.clone(), identity.clone(), timing, &config, trigger.clone()),
            writer: LeaseWriter { identity, config: config.clone(), kind: initial.preset.kind(), status: String::new() },
            config,
            timing,
            trigger,
            last_term: initial.last_term,
            shutdown: initial.shutdown,
            wait_limit: initial.preset.wait_limit().map(|bound| WaitLimit::new(bound, initial.began)),
            // With a term in progress, the predecessor has read the Lease.
            ready: initial.resume.is_some(),
            is_workload_ready,
            ready_since: now.boot,
            handed_on: last_seen,
            requests: Requests::default(),
            backoff: Backoff::new(now),
            lease_backoff: initial.backoff.unwrap_or_default(),
            watch: Watch::new(),
            reports: Reports::default(),
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

    pub(crate) fn tell(&mut self, message: ToInit) {
        self.act(Action::Tell(message));
    }

    pub(crate) fn report(&mut self, event: Event) {
        self.events.push_back(event);
    }

    fn act(&mut self, action: Action) {
        self.actions.push_back(action);
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

    /// Observes the record of a reply, which is always believed. If the watch has overtaken it, another read is due.
    pub(crate) fn observed(&mut self, record: LeaseRecord, now: Now) {
        self.succeeded(self.observation.is_past(&record), now);
        self.report_warning(&record);
        self.report_observed(Some(&record));
        self.watch.caught_up();
        self.observation.read(record, now);
        self.hand_on();
        self.tick_watch(now);
    }

    /// Observes that the Lease does not exist, as a reply said.
    pub(crate) fn observed_absence(&mut self, now: Now) {
        self.succeeded(false, now);
        self.watch.caught_up();
        self.observation.absent(now.boot);
        self.report_observed(None);
        self.hand_on();
        self.tick_watch(now);
    }

    /// Tells init that `term` is over, and returns the next phase. The other replicas go first until `until`.
    pub(crate) fn leave(&mut self, term: Term, then: Then, until: Option<Instant>) -> Next {
        self.requests.forget_all();
        self.lease_backoff.until = self.lease_backoff.until.max(until.unwrap_or_default());
        let backoff = Some(self.lease_backoff).filter(|backoff| *backoff != LeaseBackoff::default());
        self.tell(ToInit::Ended { term, backoff });
        self.report(Event::Ended);
        match then {
            Then::Follow => Next::Follow,
            Then::Exit => Next::Finish,
        }
    }

    /// Tells init the part of the observation that must outlive this elector: the Lease may be gone before the next one reads it.
    fn hand_on(&mut self) {
        let last_seen = self.observation.last_seen();
        if last_seen != self.handed_on {
            self.handed_on = last_seen.clone();
            self.tell(ToInit::Observed { slot: self.slot, last_seen });
        }
    }

    fn succeeded(&mut self, wants_another: bool, now: Now) {
        self.backoff.succeeded(wants_another, now.boot);
        if !self.ready {
            self.ready = true;
            self.report(Event::Ready);
        }
    }
}
