//! What all phases of an election share: the one request in flight, the queue of actions, what was seen of the Lease.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use serde_json::Value;

pub(crate) use pacing::doubled;
pub(crate) use watching::News;
use watching::Watch;

use super::{
    Action, Complaint, Event, Operation, Request, RequestId,
    record::{LeaseRecord, later, metadata_of, spec_of},
    sight::{Prospect, Sight},
    trace::TraceContext,
    writes::{Author, STEP_DOWN, STEP_DOWN_TO, Stamps},
};
use crate::{
    config::{OnStrategy, Release},
    law::Timing,
    link::{LastSeen, Term, ToInit},
    time::{Instant, Now},
};

mod pacing;
mod watching;

/// How many unanswered writes are remembered. One that is forgotten and still arrives counts as a stranger's and is waited for
/// (law 13): safe, and even the longest outage does not exhaust memory.
const MOST_UNKNOWN: usize = 100;

#[derive(Clone, Debug)]
pub(crate) struct Core {
    pub(crate) author: Author,
    pub(crate) timing: Timing,
    pub(crate) release: Release,
    on_strategy: OnStrategy,
    pub(crate) last_term: Term,
    pub(crate) not_before: Option<Instant>,
    pub(crate) shutdown: bool,
    pub(crate) sight: Sight,
    /// What the next elector would be told.
    handed_on: LastSeen,
    pub(crate) unknown: Vec<Attempt>,
    pub(crate) ready: bool,
    actions: VecDeque<Action>,
    /// The latest of the `requests`, until its answer comes.
    awaited: Option<Asked>,
    requests: u64,
    step_downs: u64,
    stamps: Stamps,
    random: fastrand::Rng,
    /// Operations whose last request failed.
    failing: BTreeSet<Operation>,
    watch: Watch,
    /// Consecutive watches that failed early.
    watch_failures: u32,
    /// The version that a watch resumes from.
    version: Option<String>,
    /// When the watch last brought news.
    heard: Instant,
    /// What was last seen is known from a reply, and the watch has not brought it: it may be dead.
    overlooked: bool,
    /// When the last request was sent.
    asked_at: Instant,
    /// A follower reads as soon as it may.
    read_wanted: bool,
    failures: u32,
    /// The credentials were refused since a request last succeeded.
    credentials_refused: bool,
    retry_at: Instant,
    reported_holder: Option<String>,
    /// The oddity of the Lease that was reported last.
    odd: Option<&'static str>,
}

/// A write that was sent: what it carried, and when its first byte may have left.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Attempt {
    /// What it carried: a read that shows exactly its spec confirms it (law 6).
    object: Arc<Value>,
    /// a.
    pub(crate) sent: Instant,
    /// The campaign that it would win; none for a renewal or a release.
    pub(crate) campaign: Option<Campaign>,
}

/// An attempt to take the Lease.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Campaign {
    /// The transition's span.
    pub(crate) context: TraceContext,
    /// How long the workload waits, counted from the proof; none: it runs at once (law 14).
    pub(crate) wait: Option<Duration>,
    /// D of the record and of the term.
    pub(crate) duration: Duration,
}

/// What is known of a request when its answer comes.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) attempt: Option<Attempt>,
    pub(crate) operation: Operation,
    pub(crate) sent: Instant,
}

impl Attempt {
    /// Whether it was a POST, which is based on no version of a Lease.
    pub(crate) fn creates(&self) -> bool {
        self.base().is_none()
    }

    /// The resourceVersion that it was based on; none for a POST.
    pub(crate) fn base(&self) -> Option<&str> {
        self.metadata("resourceVersion")
    }

    fn metadata(&self, name: &str) -> Option<&str> {
        metadata_of(&self.object, name).and_then(Value::as_str)
    }

    /// Whether `record` is exactly what this write carried (law 6).
    pub(crate) fn is(&self, record: &LeaseRecord) -> bool {
        spec_of(&self.object) == record.spec() && self.metadata("uid").is_none_or(|uid| uid == record.uid())
    }

    /// Whether a 2xx with `record` proves this write: the spec as sent, at a higher version (law 1).
    pub(crate) fn is_proved_by(&self, record: &LeaseRecord) -> bool {
        let rose = self.base().is_none_or(|base| later(record.resource_version(), base));
        rose && self.is(record)
    }
}

impl Core {
    pub(crate) fn new(welcome: &crate::link::Welcome, seed: u64, now: Now) -> Self {
        let config = &welcome.config;
        let last_seen = welcome.last_seen.clone();
        let last_seen = last_seen.unwrap_or(LastSeen { duration: config.lease.duration, held: None, displaced_until: None });
        Self {
            author: Author {
                identity: welcome.identity.clone(),
                name: config.lease.name.clone(),
                namespace: config.lease.namespace.clone(),
                labels: config.lease.labels.clone(),
                annotations: config.lease.annotations.clone(),
            },
            timing: config.timing(),
            release: config.lease.release,
            on_strategy: config.lease.on_strategy,
            last_term: welcome.last_term,
            not_before: welcome.not_before,
            shutdown: welcome.shutdown,
            sight: Sight::after(last_seen.clone(), welcome.identity.clone(), config.timing(), config.lease.creation_wait),
            handed_on: last_seen,
            unknown: Vec::new(),
            // Its predecessor has read the Lease.
            ready: welcome.resume.is_some(),
            actions: VecDeque::new(),
            awaited: None,
            requests: 0,
            step_downs: 0,
            stamps: Stamps::new(welcome.generation),
            random: fastrand::Rng::with_seed(seed),
            watch: Watch::Idle { at: Instant::BOOT, read_first: true },
            failing: BTreeSet::new(),
            watch_failures: 0,
            version: None,
            heard: Instant::BOOT,
            overlooked: false,
            asked_at: now.boot,
            read_wanted: false,
            failures: 0,
            credentials_refused: false,
            retry_at: now.boot,
            reported_holder: None,
            odd: None,
        }
    }

    pub(crate) fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    pub(crate) fn tell(&mut self, message: ToInit) {
        self.actions.push_back(Action::Tell(message));
    }

    pub(crate) fn report(&mut self, event: Event) {
        self.actions.push_back(Action::Report(event));
    }

    pub(crate) fn report_failure(&mut self, operation: Operation, sent: Instant, message: Complaint) {
        self.failing.insert(operation);
        self.report(Event::Failed { operation, sent, message });
    }

    /// Assumes that `operation` succeeds until its failure is reported; returns whether it was failing.
    pub(crate) fn expect_success(&mut self, operation: Operation) -> bool {
        self.failing.remove(&operation)
    }

    /// Reports that an operation which `failed` before has recovered, unless this answer is a failure too.
    pub(crate) fn report_recovery(&mut self, operation: Operation, failed: bool) {
        if failed && !self.failing.contains(&operation) {
            self.report(Event::Recovered { operation });
        }
    }

    pub(crate) fn act(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    pub(crate) const fn is_awaiting(&self) -> bool {
        self.awaited.is_some()
    }

    /// The write whose answer is awaited.
    pub(crate) fn awaited_attempt(&self) -> Option<&Attempt> {
        self.awaited.as_ref()?.attempt.as_ref()
    }

    /// The id of the next StepDown.
    pub(crate) const fn next_step_down(&mut self) -> u64 {
        self.step_downs += 1;
        self.step_downs
    }

    pub(crate) fn next_time(&mut self, now: Now, previous: Option<&str>) -> String {
        self.stamps.next(now.wall, previous)
    }

    /// A span of a new trace, or of the trace of `parent`.
    pub(crate) fn next_context(&mut self, parent: Option<TraceContext>) -> TraceContext {
        let trace_id = match parent {
            Some(parent) => parent.trace_id,
            None => u128::from(self.random.u64(1..)) << 64 | u128::from(self.random.u64(..)),
        };
        TraceContext { trace_id, span_id: self.random.u64(1..) }
    }

    pub(crate) fn get(&mut self, now: Now) {
        self.request(Request::Get, Operation::Get, None, now);
    }

    pub(crate) fn create(&mut self, object: Value, campaign: Campaign, now: Now) {
        let object = Arc::new(object);
        let attempt = Attempt { object: Arc::clone(&object), sent: now.boot, campaign: Some(campaign) };
        self.request(Request::Create(object), Operation::Create, Some(attempt), now);
    }

    pub(crate) fn replace(&mut self, object: Value, campaign: Option<Campaign>, now: Now) {
        let object = Arc::new(object);
        let attempt = Attempt { object: Arc::clone(&object), sent: now.boot, campaign };
        self.request(Request::Replace(object), Operation::Update, Some(attempt), now);
    }

    pub(crate) fn delete(&mut self, record: &LeaseRecord, now: Now) {
        let (uid, resource_version) = (record.uid().to_owned(), record.resource_version().to_owned());
        self.request(Request::Delete { uid, resource_version }, Operation::Delete, None, now);
    }

    fn request(&mut self, request: Request, operation: Operation, attempt: Option<Attempt>, now: Now) {
        self.requests += 1;
        self.asked_at = now.boot;
        self.awaited = Some(Asked { attempt, operation, sent: now.boot });
        self.actions.push_back(Action::Request { id: RequestId(self.requests), request });
    }

    /// Remembers a write without an answer, which a read may still find stored (law 6).
    pub(crate) fn remember(&mut self, attempt: Attempt) {
        if self.unknown.len() == MOST_UNKNOWN {
            self.unknown.remove(0);
        }
        self.unknown.push(attempt);
    }

    /// The request that the answer `id` belongs to; none if it is not awaited.
    pub(crate) fn answered(&mut self, id: RequestId) -> Option<Asked> {
        let latest = RequestId(self.requests);
        self.awaited.take_if(|_| id == latest)
    }

    /// Awaits no answer any more: one that comes later says nothing.
    pub(crate) fn forgo_answer(&mut self) {
        self.awaited = None;
    }

    /// Takes in the record of a reply, which is always believed. If the watch has overtaken it, another read is due.
    pub(crate) fn saw(&mut self, record: LeaseRecord, now: Now) {
        self.succeeded(now);
        self.read_wanted = self.sight.is_past(&record);
        self.report_oddity(&record);
        self.report_holder(&record);
        self.version = Some(record.resource_version().to_owned());
        let seen = self.sight.record().map(LeaseRecord::resource_version);
        self.overlooked |= !self.read_wanted && seen.is_some_and(|seen| seen != record.resource_version());
        self.sight.read(record, now.boot);
        self.hand_on();
        self.read_for_watch(now);
    }

    /// Tells init what must outlive this elector: the Lease may be gone before the next one sees it.
    fn hand_on(&mut self) {
        let last_seen = self.sight.last_seen();
        if last_seen != self.handed_on {
            self.handed_on = last_seen.clone();
            self.tell(ToInit::Saw(last_seen));
        }
    }

    /// A reply said that the Lease does not exist.
    pub(crate) fn saw_absence(&mut self, now: Now) {
        self.succeeded(now);
        self.version = None;
        self.sight.absent(now.boot);
        self.hand_on();
        self.read_for_watch(now);
    }

    /// Holders that lost the Lease without giving it back are waited for.
    pub(crate) fn hold_back(&mut self, now: Now) {
        let until = self.sight.held_back_until().filter(|until| *until > now.boot);
        self.not_before = self.not_before.max(until);
    }

    /// When the Lease may be taken, judging by what was seen of it.
    pub(crate) fn prospect(&self) -> Prospect {
        self.sight.prospect(self.on_strategy)
    }

    fn succeeded(&mut self, now: Now) {
        self.failures = 0;
        self.credentials_refused = false;
        self.retry_at = now.boot;
        self.read_wanted = false;
        if !self.ready {
            self.ready = true;
            self.report(Event::Ready);
        }
    }

    fn report_oddity(&mut self, record: &LeaseRecord) {
        let odd = oddity(record, self.on_strategy, Some(&self.author.identity));
        if let Some(message) = odd.filter(|_| odd != self.odd) {
            self.report(Event::Odd { message: message.into() });
        }
        self.odd = odd;
    }

    fn report_holder(&mut self, record: &LeaseRecord) {
        let Some(holder) = record.holder() else { return };
        if holder == self.author.identity {
            self.reported_holder = None;
            return;
        }
        if self.reported_holder.as_deref() == Some(holder) {
            return;
        }
        let holder = holder.to_owned();
        self.reported_holder = Some(holder.clone());
        self.report(Event::NewLeader { holder });
    }
}

/// What makes replicas wait for the Lease, or leave it alone, in a way that people would not expect of `me`.
pub(crate) fn oddity(record: &LeaseRecord, on_strategy: OnStrategy, me: Option<&str>) -> Option<&'static str> {
    let asked = record.annotation(STEP_DOWN).is_some_and(|holder| record.holder().is_some_and(|held_by| held_by != holder));
    let promised = record.annotation(STEP_DOWN_TO).is_some_and(|candidate| record.holder().is_none() && Some(candidate) != me);
    if record.is_being_deleted() {
        Some("the Lease is being deleted and waits for its finalizers: nobody acquires it before it is gone")
    } else if record.is_paused() {
        Some("the Lease is paused by its annotation tenure.dev/paused: nobody takes it but the holder that it names")
    } else if record.holder().is_some() && record.duration().is_none() {
        Some("the Lease is held without a valid leaseDurationSeconds: it is taken only after the longest known duration")
    } else if record.strategy().is_some() {
        Some(match on_strategy {
            OnStrategy::Refuse => {
                "the Lease has a strategy, so a coordinator appoints its holders: tenure takes it only as its preferredHolder, \
                 or with lease.onStrategy: compete"
            }
            OnStrategy::Compete => {
                "the Lease has a strategy: its preferredHolder goes first, and is waited for, for up to lease.duration"
            }
        })
    } else if promised {
        Some(
            "the Lease is free for the replica that its annotation tenure.dev/step-down-to names: the others wait for lease.duration",
        )
    } else if asked {
        Some("the annotation tenure.dev/step-down of the Lease does not name its holder in full, so nobody steps down")
    } else {
        None
    }
}
