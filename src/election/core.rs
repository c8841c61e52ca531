//! What every phase of an election shares: the one awaited request, the queue of actions, the sight of the Lease.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use serde_json::Value;

use super::{
    Action, Event, Request, RequestId, Watched,
    law::{RETRY_PAUSE, Timing},
    record::{LeaseRecord, later, metadata_of, spec_of},
    sight::Sight,
    trace::TraceContext,
    writes::{Author, Stamps},
};
use crate::{
    config::Release,
    link::{Term, ToInit},
    time::{Instant, Now},
};

/// No two attempts while leading start closer together than this, however quickly they are refused.
const LEAST_BETWEEN_ATTEMPTS: Duration = Duration::from_millis(500);
/// A follower's connection for writes is closed by the server when it is idle for longer.
const KEEP_WARM: Duration = Duration::from_secs(55);
/// No watch starts sooner after the one before.
const LEAST_BETWEEN_WATCHES: Duration = Duration::from_secs(1);
/// A watch that was forbidden may be allowed later.
const FORBIDDEN_WATCH_PAUSE: Duration = Duration::from_secs(60);
/// A follower's longest pause after failures, and the longest Retry-After that it honours.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// So many writes without an answer are remembered. One that is forgotten and yet arrives is a stranger's, and waited for (law 13):
/// safe, and no outage of whatever length takes all memory.
const MOST_UNKNOWN: usize = 100;

#[derive(Clone, Debug)]
pub(crate) struct Core {
    pub(crate) author: Author,
    pub(crate) timing: Timing,
    pub(crate) release: Release,
    pub(crate) creation_wait: Option<Duration>,
    pub(crate) last_term: Term,
    pub(crate) not_before: Option<Instant>,
    pub(crate) shutdown: bool,
    pub(crate) sight: Sight,
    pub(crate) unknown: Vec<Attempt>,
    pub(crate) ready: bool,
    actions: VecDeque<Action>,
    awaited: Option<Awaited>,
    requests: u64,
    step_downs: u64,
    stamps: Stamps,
    random: fastrand::Rng,
    watch: Watch,
    /// The version that a watch resumes from.
    version: Option<String>,
    heard: Instant,
    read_at: Instant,
    failures: u32,
    retry_at: Instant,
    reported_holder: Option<String>,
    /// The Lease is held without a sound duration, and that was said.
    odd: bool,
}

/// A write that was sent: what it carried, and when its first byte may have left.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Attempt {
    /// What it carried: the spec is found again word for word (law 6).
    object: Arc<Value>,
    /// a.
    pub(crate) sent: Instant,
    /// The campaign that it would win; none for a renewal or a release.
    pub(crate) campaign: Option<Campaign>,
}

/// A Lease that is being taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Campaign {
    /// The transition's span.
    pub(crate) context: TraceContext,
    /// How long the workload waits, counted from the proof; none: it runs at once (law 14).
    pub(crate) wait: Option<Duration>,
}

#[derive(Clone, Debug)]
struct Awaited {
    id: RequestId,
    attempt: Option<Attempt>,
    operation: &'static str,
    sent: Instant,
}

/// What was awaited, when its answer comes.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) attempt: Option<Attempt>,
    pub(crate) operation: &'static str,
    pub(crate) sent: Instant,
}

#[derive(Clone, Copy, Debug)]
enum Watch {
    /// Not yet, or ended: start no earlier than `at`, and after a read where the last version cannot be trusted.
    Idle {
        at: Instant,
        read_first: bool,
    },
    Running {
        started: Instant,
    },
}

impl Attempt {
    /// Whether it was a POST: it was not written on any version of a Lease.
    pub(crate) fn creates(&self) -> bool {
        self.base().is_none()
    }

    /// The resourceVersion that it was written on; none for a POST.
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

    /// Whether a 2xx with `record` proves this write: the spec as sent, and a version that rose (law 1).
    pub(crate) fn is_proved_by(&self, record: &LeaseRecord) -> bool {
        let rose = self.base().is_none_or(|base| later(record.resource_version(), base));
        rose && self.is(record)
    }
}

impl Core {
    pub(crate) fn new(welcome: &crate::link::Welcome, seed: u64, now: Now) -> Self {
        let config = &welcome.config;
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
            creation_wait: config.lease.creation_wait,
            last_term: welcome.last_term,
            not_before: welcome.not_before,
            shutdown: welcome.shutdown,
            sight: Sight::default(),
            unknown: Vec::new(),
            ready: false,
            actions: VecDeque::new(),
            awaited: None,
            requests: 0,
            step_downs: 0,
            stamps: Stamps::new(welcome.generation),
            random: fastrand::Rng::with_seed(seed),
            watch: Watch::Idle { at: Instant::BOOT, read_first: true },
            version: None,
            heard: now.boot,
            read_at: now.boot,
            failures: 0,
            retry_at: now.boot,
            reported_holder: None,
            odd: false,
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

    pub(crate) fn act(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    pub(crate) const fn is_awaiting(&self) -> bool {
        self.awaited.is_some()
    }

    /// The spec of the write whose answer is awaited.
    pub(crate) fn awaited_attempt(&self) -> Option<&Attempt> {
        self.awaited.as_ref().and_then(|awaited| awaited.attempt.as_ref())
    }

    /// Names the next StepDown.
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
        self.request(Request::Get, "get", None, now);
    }

    pub(crate) fn create(&mut self, object: Value, campaign: Campaign, now: Now) {
        let object = Arc::new(object);
        let attempt = Attempt { object: Arc::clone(&object), sent: now.boot, campaign: Some(campaign) };
        self.request(Request::Create(object), "create", Some(attempt), now);
    }

    pub(crate) fn replace(&mut self, object: Value, campaign: Option<Campaign>, now: Now) {
        let object = Arc::new(object);
        let attempt = Attempt { object: Arc::clone(&object), sent: now.boot, campaign };
        self.request(Request::Replace(object), "update", Some(attempt), now);
    }

    pub(crate) fn delete(&mut self, record: &LeaseRecord, now: Now) {
        let (uid, resource_version) = (record.uid().to_owned(), record.resource_version().to_owned());
        self.request(Request::Delete { uid, resource_version }, "delete", None, now);
    }

    fn request(&mut self, request: Request, operation: &'static str, attempt: Option<Attempt>, now: Now) {
        self.requests += 1;
        let id = RequestId(self.requests);
        self.awaited = Some(Awaited { id, attempt, operation, sent: now.boot });
        self.actions.push_back(Action::Request { id, request });
    }

    /// Remembers a write without an answer, which may yet be found stored (law 6).
    pub(crate) fn remember(&mut self, attempt: Attempt) {
        if self.unknown.len() == MOST_UNKNOWN {
            self.unknown.remove(0);
        }
        self.unknown.push(attempt);
    }

    /// What the answer `id` answers; none if that is not awaited.
    pub(crate) fn answered(&mut self, id: RequestId) -> Option<Asked> {
        let awaited = self.awaited.take_if(|awaited| awaited.id == id)?;
        Some(Asked { attempt: awaited.attempt, operation: awaited.operation, sent: awaited.sent })
    }

    /// Takes in what a reply brought: it is believed, and there is something to hear of.
    pub(crate) fn saw(&mut self, record: LeaseRecord, now: Now) {
        self.succeeded(now);
        self.report_holder(&record);
        self.version = Some(record.resource_version().to_owned());
        self.sight.read(record, now.boot);
        self.read_for_watch(now);
    }

    /// A reply said that the Lease does not exist.
    pub(crate) fn saw_absence(&mut self, now: Now) {
        self.succeeded(now);
        self.version = None;
        self.sight.absent(now.boot);
        self.read_for_watch(now);
    }

    fn succeeded(&mut self, now: Now) {
        self.failures = 0;
        self.retry_at = now.boot;
        self.heard = now.boot;
        self.read_at = now.boot;
        if !self.ready {
            self.ready = true;
            self.report(Event::Ready);
        }
    }

    fn report_holder(&mut self, record: &LeaseRecord) {
        let Some(holder) = record.holder() else { return };
        let odd = record.duration().is_none();
        if odd && !self.odd {
            let message =
                "the Lease is held without a sound leaseDurationSeconds: the longest duration in sight is waited for".into();
            self.report(Event::Odd { message });
        }
        self.odd = odd;
        if holder == self.author.identity || self.reported_holder.as_deref() == Some(holder) {
            return;
        }
        let holder = holder.to_owned();
        self.reported_holder = Some(holder.clone());
        self.report(Event::NewLeader { holder });
    }

    /// Takes in what the watch brought; the record, if it was news. A deletion is passed on even of a Lease that was not the last
    /// one seen: an old event of another may have come in between.
    pub(crate) fn watched(&mut self, watched: Watched, now: Now) -> Option<News> {
        match watched {
            Watched::Changed(object) => {
                let record = LeaseRecord::read(object)?;
                self.version = Some(record.resource_version().to_owned());
                if !self.sight.watched(record.clone(), now.boot) {
                    return None;
                }
                self.heard = now.boot;
                self.report_holder(&record);
                Some(News::Changed(record))
            }
            Watched::Deleted(object) => {
                let record = LeaseRecord::read(object)?;
                self.version = Some(record.resource_version().to_owned());
                if self.sight.deleted(&record, now.boot) {
                    self.heard = now.boot;
                }
                Some(News::Deleted(record))
            }
            Watched::Bookmark(version) => {
                self.version = Some(version);
                None
            }
            Watched::Ended { expired, forbidden, message } => {
                let Watch::Running { started } = self.watch else { return None };
                let pause = if forbidden { FORBIDDEN_WATCH_PAUSE } else { LEAST_BETWEEN_WATCHES };
                let read_first = expired || message.is_some();
                self.watch = Watch::Idle { at: (started + pause).max(now.boot), read_first };
                if read_first && !forbidden {
                    self.read_at = now.boot.before(KEEP_WARM);
                }
                if let Some(message) = message {
                    self.report(Event::Failed { operation: "watch", message });
                }
                None
            }
        }
    }

    /// A read has made the version good to watch from.
    fn read_for_watch(&mut self, now: Now) {
        if let Watch::Idle { read_first, .. } = &mut self.watch {
            *read_first = false;
        }
        self.tick_watch(now);
    }

    /// Starts the watch where it is due.
    pub(crate) fn tick_watch(&mut self, now: Now) {
        if let Watch::Idle { at, read_first: false } = self.watch
            && at <= now.boot
        {
            self.watch = Watch::Running { started: now.boot };
            self.act(Action::Watch { resource_version: self.version.clone() });
        }
    }

    /// When the watch is due, where no read is needed first.
    pub(crate) const fn watch_timeout(&self) -> Option<Instant> {
        match self.watch {
            Watch::Idle { at, read_first: false } => Some(at),
            Watch::Idle { read_first: true, .. } | Watch::Running { .. } => None,
        }
    }

    /// When a follower reads, if nothing is heard before: soon after a renewal should have been heard of, so that a dead watch
    /// delays a takeover by about R at most (law 16), and before the connection goes cold.
    pub(crate) fn next_read(&self) -> Instant {
        let patience = self.timing.renew_period + self.timing.renew_period / 10;
        let silent = self.heard.max(self.read_at) + patience;
        silent.min(self.read_at + KEEP_WARM).max(self.retry_at)
    }

    /// Notes that the credentials were refused: the edge has read them again, one attempt follows at once.
    pub(crate) fn refused_credentials(&mut self, operation: &'static str, message: String, now: Now) {
        if self.failures > 0 {
            return self.failed(operation, message, None, now);
        }
        self.failures = 1;
        self.retry_at = now.boot;
        self.read_at = now.boot.before(KEEP_WARM);
        self.report(Event::Failed { operation, message });
    }

    /// Notes a failed request, and when a follower tries again.
    pub(crate) fn failed(&mut self, operation: &'static str, message: String, retry_after: Option<Duration>, now: Now) {
        let pause = RETRY_PAUSE.saturating_mul(1 << self.failures.min(8)).min(self.timing.renew_period.max(RETRY_PAUSE));
        self.failures = self.failures.saturating_add(1);
        let pause = self.jittered(pause).max(retry_after.unwrap_or_default().min(LONGEST_PAUSE));
        self.retry_at = now.boot + pause;
        self.read_at = now.boot.before(KEEP_WARM);
        self.report(Event::Failed { operation, message });
    }

    /// No request of a follower before this.
    pub(crate) const fn retry_at(&self) -> Instant {
        self.retry_at
    }

    /// When a leader whose attempt was sent at `sent` tries again: soon, not in a storm, and so that one more fits before S (law 5).
    pub(crate) fn leader_retry(&mut self, sent: Instant, retry_after: Option<Duration>, soft: Instant, now: Now) -> Instant {
        let pause = self.jittered(RETRY_PAUSE).min(RETRY_PAUSE);
        let soon = (now.boot + pause).max(sent + LEAST_BETWEEN_ATTEMPTS);
        let Some(retry_after) = retry_after else { return soon };
        let last = soft.before(self.timing.attempt_timeout);
        soon.max((now.boot + retry_after).min(last))
    }

    fn jittered(&mut self, pause: Duration) -> Duration {
        pause.mul_f64(0.75 + self.random.f64() * 0.5)
    }
}

/// What the watch brought and nobody knew.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum News {
    Changed(LeaseRecord),
    Deleted(LeaseRecord),
}
