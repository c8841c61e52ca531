//! What all phases of an election share: what they want done, the request in flight, what was seen of the Lease, and the pace.

use std::{collections::VecDeque, time::Duration};

use pacing::Pacing;
pub(crate) use pacing::doubled;
use reports::Reports;
pub(crate) use reports::oddity;
use requests::Requests;
pub(crate) use requests::{Asked, Attempt};
pub(crate) use watching::News;
use watching::Watch;

use super::{
    Action, Event,
    elector::Next,
    observation::Observation,
    patience::Patience,
    record::LeaseRecord,
    recorder::Recorder,
    trace::TraceContext,
    writes::{LeaseWriter, Stamps},
};
use crate::{
    config::{AfterCrash, Candidate, HttpReady, OnFailure, Release},
    law::Timing,
    link::{InitialState, LastSeen, Slot, Term, Then, ToInit},
    time::{Instant, Now},
};

mod pacing;
mod reports;
mod requests;
mod watching;

/// Carries a nanosecond into all bits of a span's id.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

#[derive(Clone, Debug)]
pub(crate) struct Core {
    pub(crate) slot: Slot,
    /// A follower may write: it is not the turn of another slot.
    pub(crate) may_write: bool,
    pub(crate) writer: LeaseWriter,
    pub(crate) timing: Timing,
    pub(crate) release: Release,
    /// The interval of a task.
    pub(crate) every: Option<Duration>,
    pub(crate) on_failure: OnFailure,
    pub(crate) last_term: Term,
    pub(crate) shutdown: bool,
    /// None: what is waited for is waited for for ever.
    pub(crate) patience: Option<Patience>,
    /// A first read succeeded.
    pub(crate) ready: bool,
    /// The workload is ready, or not meant to run, as init last said.
    pub(crate) is_fit: bool,
    /// How much longer than others it leaves a free Lease alone while it is not.
    unfit_delay: Option<Duration>,
    /// `/readyz` answers for the replica alone.
    pub(crate) answers_unfit: bool,
    pub(crate) observation: Observation,
    /// What the next elector would be told.
    handed_on: LastSeen,
    pub(crate) requests: Requests,
    pub(crate) pacing: Pacing,
    watch: Watch,
    reports: Reports,
    pub(crate) recorder: Recorder,
    actions: VecDeque<Action>,
    step_downs: u64,
    stamps: Stamps,
    random: fastrand::Rng,
}

impl Core {
    pub(crate) fn new(initial: &InitialState, slot: Slot, seed: u64, now: Now) -> Self {
        let config = &initial.config;
        let nothing = || LastSeen { duration: config.lease.duration, held: None, named: false, not_before: Instant::BOOT };
        let last_seen = initial.last_seen.get(&slot).cloned().unwrap_or_else(nothing);
        let (identity, timing) = (initial.identity.clone(), config.timing());
        let every = initial.preset.task().map(|task| task.every);
        let crash_wait = every.filter(|_| config.task.after_crash == AfterCrash::Wait);
        let is_fit = config.workload.readiness.means().is_none();
        let mut recorder = Recorder::new(initial.resume.as_ref(), is_fit, now);
        if initial.preset.is_once() {
            recorder.waits();
        }
        Self {
            slot,
            may_write: true,
            observation: Observation::after(last_seen.clone(), identity.clone(), timing, &config.lease, crash_wait),
            writer: LeaseWriter {
                identity,
                name: config.lease.name.clone(),
                namespace: config.lease.namespace.clone(),
                kind: initial.preset.kind(),
                labels: config.lease.labels.clone(),
                annotations: config.lease.annotations.clone(),
                status: String::new(),
            },
            timing,
            release: config.lease.release,
            every,
            on_failure: config.task.on_failure,
            last_term: initial.last_term,
            shutdown: initial.shutdown,
            patience: initial.preset.patience().map(|bound| Patience::new(bound, initial.began)),
            // Its predecessor has read the Lease.
            ready: initial.resume.is_some(),
            is_fit,
            unfit_delay: Some(config.workload.unready_after).filter(|_| config.workload.candidate == Candidate::Ready),
            answers_unfit: config.http.ready == HttpReady::Always,
            handed_on: last_seen,
            requests: Requests::default(),
            pacing: Pacing::new(now),
            watch: Watch::new(),
            reports: Reports::default(),
            recorder,
            actions: VecDeque::new(),
            step_downs: 0,
            stamps: Stamps::new(initial.generation),
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// How long a free Lease is left to those whose workload is ready, if it is.
    pub(crate) fn deference(&self) -> Option<Duration> {
        self.unfit_delay.filter(|_| !self.is_fit)
    }

    pub(crate) fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    pub(crate) fn tell(&mut self, message: ToInit) {
        self.act(Action::Tell(message));
    }

    pub(crate) fn report(&mut self, event: Event) {
        self.act(Action::Report(event));
    }

    /// Reports what the recorder, told `what`, finds to be over.
    pub(crate) fn report_recorded(&mut self, what: impl FnOnce(&mut Recorder) -> Option<Event>) {
        what(&mut self.recorder).into_iter().for_each(|event| self.report(event));
    }

    fn act(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    /// The id of the next StepDown.
    pub(crate) const fn next_step_down(&mut self) -> u64 {
        self.step_downs += 1;
        self.step_downs
    }

    /// The time of the next write, above that of every earlier one and above `previous`.
    pub(crate) fn next_time(&mut self, now: Now, previous: Option<&str>) -> String {
        self.stamps.next(now.wall, previous)
    }

    /// The span of a campaign that begins `now`. A copy of this replica, as of a restored snapshot, has the same random numbers and
    /// wakes in the same millisecond, but not in the same nanosecond: by this their acquisitions are told apart (law 6).
    pub(crate) fn next_campaign(&mut self, parent: Option<TraceContext>, now: Now) -> TraceContext {
        let context = self.next_context(parent);
        let span_id = context.span_id ^ now.boot.as_nanos().wrapping_mul(SPREAD);
        TraceContext { span_id: span_id.max(1), ..context }
    }

    /// A span of a new trace, or of the trace of `parent`.
    pub(crate) fn next_context(&mut self, parent: Option<TraceContext>) -> TraceContext {
        let trace_id = match parent {
            Some(parent) => parent.trace_id,
            None => u128::from(self.random.u64(1..)) << 64 | u128::from(self.random.u64(..)),
        };
        TraceContext { trace_id, span_id: self.random.u64(1..) }
    }

    /// Takes in the record of a reply, which is always believed. If the watch has overtaken it, another read is due.
    pub(crate) fn saw(&mut self, record: LeaseRecord, now: Now) {
        self.succeeded(self.observation.is_past(&record), now);
        self.report_oddity(&record);
        self.report_seen(Some(&record));
        self.watch.resumes_from(Some(record.resource_version()));
        self.observation.read(record, now);
        self.hand_on();
        self.tick_watch(now);
    }

    /// A reply said that the Lease does not exist.
    pub(crate) fn saw_absence(&mut self, now: Now) {
        self.succeeded(false, now);
        self.watch.resumes_from(None);
        self.observation.absent(now.boot);
        self.report_seen(None);
        self.hand_on();
        self.tick_watch(now);
    }

    /// Tells init that `term` is over. What comes next depends on whether init ends.
    pub(crate) fn leave(&mut self, term: Term, then: Then, backoff: Option<Instant>) -> Next {
        self.requests.forget_all();
        self.tell(ToInit::Ended { term, backoff });
        self.report_recorded(Recorder::ended);
        match then {
            Then::Follow => Next::Follow { backoff },
            Then::Exit => Next::Finish,
        }
    }

    /// Tells init what must outlive this elector: the Lease may be gone before the next one sees it.
    fn hand_on(&mut self) {
        let last_seen = self.observation.last_seen();
        if last_seen != self.handed_on {
            self.handed_on = last_seen.clone();
            self.tell(ToInit::Saw { slot: self.slot, last_seen });
        }
    }

    fn succeeded(&mut self, wants_another: bool, now: Now) {
        self.pacing.succeeded(wants_another, now.boot);
        if !self.ready {
            self.ready = true;
            self.report(Event::Ready);
        }
    }
}
