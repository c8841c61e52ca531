//! A phase of the election: somebody else leads, or nobody does.
//!
//! Owns observation and the campaign: what was not given back is first held by nobody; then one compare-and-swap write on what was
//! seen, once the law allows it, and the reads that find out what became of a write without an answer (law 6, 11 to 14).

use std::time::Duration;

use super::{
    AcquireReason, Answer, Event, Operation, Refusal, RequestError, Watched,
    core::{Asked, Attempt, Core, doubled},
    elector::Next,
    leading::Leading,
    observation::Eligibility,
    patience::Patience,
    record::LeaseRecord,
    recorder::Recorder,
    trace::TraceContext,
    writes::TRACEPARENT,
};
use crate::{
    law::RETRY_PAUSE,
    link::ToInit,
    time::{Instant, Now},
};

/// A forbidden creation is retried after about R, then after twice as long each time, up to about this long; until then the
/// Lease is only read.
const LONGEST_NO_CREATION: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Default)]
pub(crate) struct Following {
    /// No campaign before this: the Lease was given up voluntarily, and nobody else has led since.
    backoff: Option<Instant>,
    campaign: Option<Campaign>,
    writes: Paced,
    /// Creations that were forbidden since there was a Lease: somebody else must create it.
    creations: Paced,
}

/// The order in which slots are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Candidacy {
    Released,
    Expired,
    Free,
    /// Nobody's to be first.
    Vacant,
}

/// What is tried again and again, later each time.
#[derive(Clone, Copy, Debug)]
struct Paced {
    times: u32,
    not_before: Instant,
}

/// An attempted transition: all its writes share a span.
#[derive(Clone, Debug)]
struct Campaign {
    context: TraceContext,
    /// The sight that its last write was based on.
    sight: u64,
    /// Its last write is in flight, or had no answer: only a read tells.
    is_unsettled: bool,
    /// The Lease was acquired by this very record, but S had passed by then, or something later had been seen: it begins no term,
    /// and is written again (law 12).
    outdated: Option<LeaseRecord>,
}

impl Default for Paced {
    fn default() -> Self {
        Self { times: 0, not_before: Instant::BOOT }
    }
}

impl Paced {
    fn after(self, pause: Duration, now: Now) -> Self {
        Self { times: self.times.saturating_add(1), not_before: now.boot + pause }
    }
}

impl Following {
    /// Follows; until `backoff`, where a term was given up voluntarily, the others go first.
    pub(crate) fn until(backoff: Option<Instant>) -> Self {
        Self { backoff, ..Self::default() }
    }

    pub(crate) const fn sit_out(&mut self, until: Instant) {
        self.backoff = Some(until);
    }

    pub(crate) fn tick(&mut self, core: &mut Core, now: Now) -> Option<Next> {
        if core.shutdown && !self.may_hold(core) {
            let context = core.next_context(None);
            core.report_recorded(|recorder| recorder.waited_in_vain(context));
            return Some(Next::Finish);
        }
        core.tick_watch(now);
        if core.observation.record().is_some() {
            self.creations = Paced::default();
        }
        if core.observation.is_led_by_another() {
            (self.backoff, self.writes) = (None, Paced::default());
        }
        if core.requests.is_awaiting() {
            return None;
        }
        if !core.shutdown
            && let Some((code, message)) = core.gives_up(&self.eligibility(core), self.is_unsettled(), now)
        {
            core.shutdown = true;
            core.tell(ToInit::GaveUp { code, message });
            return self.tick(core, now);
        }
        if now.boot < core.pacing.retry_at() {
            return None;
        }
        if self.is_unsettled() {
            core.get(now);
            return None;
        }
        let act_at = self.act_at(core).filter(|_| core.may_write);
        match (self.eligibility(core), act_at) {
            (Eligibility::Unknown, _) => core.get(now),
            (Eligibility::Vacant { from, duration }, Some(at)) if at <= now.boot => {
                self.hold_for_nobody(core, from.as_ref(), duration, now);
            }
            (Eligibility::Open { why, from, .. }, Some(at)) if at <= now.boot => self.campaign(core, why, &from, now),
            (Eligibility::Vacant { .. } | Eligibility::Open { .. } | Eligibility::Closed, _) => {
                if core.next_read() <= now.boot {
                    core.get(now);
                }
            }
        }
        None
    }

    pub(crate) fn timeout(&self, core: &Core) -> Option<Instant> {
        let watch = core.watch_timeout();
        if core.requests.is_awaiting() {
            return watch;
        }
        let retry = core.pacing.retry_at();
        let act = match self.act_at(core) {
            _ if self.is_unsettled() => retry,
            Some(at) if core.may_write => at.max(retry).min(core.next_read()),
            Some(_) | None => core.next_read(),
        };
        let patience = core.patience.as_ref().filter(|_| !core.shutdown).and_then(Patience::due);
        [watch, patience].into_iter().flatten().chain([act]).min()
    }

    pub(crate) fn watched(&mut self, core: &mut Core, watched: Watched, now: Now) {
        let before = core.observation.sight();
        core.watched(watched, now);
        if core.observation.sight() != before && !self.is_unsettled() {
            self.lose(core);
        }
    }

    pub(crate) fn answered(&mut self, core: &mut Core, asked: Asked, answer: Answer, now: Now) -> Option<Next> {
        let operation = asked.operation;
        match (asked.attempt, answer) {
            (attempt, Answer::Object(object)) => match (LeaseRecord::read(object), attempt) {
                (Some(record), None) => return self.read(core, record, now),
                (Some(record), Some(attempt)) if attempt.acquires.is_none() => {
                    let wait = core.observation.wait_for_nobody(record.duration().unwrap_or_default());
                    core.report(Event::HeldByNobody { wait });
                    core.saw(record, now);
                }
                (Some(record), Some(attempt)) if attempt.is_proved_by(&record) => {
                    return self.acquired(core, record, &attempt, now);
                }
                (Some(record), attempt) => {
                    core.saw(record, now);
                    unknown(core, attempt, operation, NOT_WHAT_WAS_SENT.into(), None, now);
                }
                (None, attempt) => unknown(core, attempt, operation, UNREADABLE.into(), None, now),
            },
            (_, Answer::NotFound) => {
                core.requests.forget_all();
                core.saw_absence(now);
                self.settle(core);
            }
            // An unanswered write of its own may be the cause: the read tells.
            (Some(_), Answer::Conflict) => core.get(now),
            // A server that answers a read with 409 would do so again at once.
            (None, Answer::Conflict) => core.failed(operation, CONFLICTING.into(), None, now),
            (attempt, Answer::Refused { refusal, message }) => {
                if attempt.is_some() {
                    self.settle(core);
                }
                match refusal {
                    Refusal::Unauthorized => core.refused_credentials(operation, message, now),
                    Refusal::TooManyRequests { retry_after } => core.failed(operation, message, retry_after, now),
                    Refusal::Forbidden | Refusal::NoSuchPlace | Refusal::Invalid => {
                        if operation == Operation::Create && refusal == Refusal::Forbidden {
                            let pause = doubled(core.timing.renew_period, self.creations.times, LONGEST_NO_CREATION);
                            self.creations = self.creations.after(core.jittered(pause), now);
                        }
                        core.failed(operation, message, None, now);
                    }
                }
            }
            (attempt, Answer::Unknown { message, retry_after }) => unknown(core, attempt, operation, message, retry_after, now),
            (_, Answer::Deleted | Answer::Listed { .. }) => core.failed(operation, NOT_WHAT_WAS_SENT.into(), None, now),
        }
        None
    }

    fn eligibility(&self, core: &Core) -> Eligibility {
        core.observation.eligibility(self.campaign.as_ref().and_then(|campaign| campaign.outdated.as_ref()))
    }

    /// When the next write is due, and how it compares with those of other slots.
    pub(crate) fn candidacy(&self, core: &Core) -> Option<(Instant, Candidacy)> {
        let candidacy = match self.eligibility(core) {
            Eligibility::Open { why: AcquireReason::Released | AcquireReason::Due, .. } => Candidacy::Released,
            Eligibility::Open { why: AcquireReason::Expired, .. } => Candidacy::Expired,
            Eligibility::Open { why: AcquireReason::Nobody | AcquireReason::Cleared, .. } => Candidacy::Free,
            Eligibility::Vacant { .. } => Candidacy::Vacant,
            Eligibility::Unknown | Eligibility::Closed => return None,
        };
        Some((self.act_at(core)?.max(core.pacing.retry_at()), candidacy))
    }

    /// When the next write is due; none: never, unless something changes.
    fn act_at(&self, core: &Core) -> Option<Instant> {
        match self.eligibility(core) {
            Eligibility::Unknown => Some(Instant::BOOT),
            Eligibility::Closed => None,
            Eligibility::Vacant { from: None, .. } => Some(self.writes.not_before.max(self.creations.not_before)),
            Eligibility::Vacant { from: Some(_), .. } => Some(self.writes.not_before),
            // Many replicas know when it is due, and one of them may have taken it: a read costs less than a write in vain.
            Eligibility::Open { at, why: AcquireReason::Due, .. } if !core.pacing.has_asked_since(at) => None,
            Eligibility::Open { at, .. } => {
                let at = at + core.deference().unwrap_or_default();
                // The pace of nobody's hold holds up no takeover that need not wait.
                let retry = if self.campaign.is_some() { self.writes.not_before } else { Instant::BOOT };
                Some(at.max(retry).max(self.backoff.unwrap_or(Instant::BOOT)))
            }
        }
    }

    /// Only a read tells what became of the last write.
    fn is_unsettled(&self) -> bool {
        self.campaign.as_ref().is_some_and(|campaign| campaign.is_unsettled)
    }

    /// The Lease may name this replica, and is then to be given back: by a term that ends as it begins.
    pub(crate) fn may_hold(&self, core: &Core) -> bool {
        let is_open = || matches!(self.eligibility(core), Eligibility::Open { .. });
        self.campaign.as_ref().is_some_and(|campaign| campaign.is_unsettled || campaign.outdated.is_some() && is_open())
    }

    /// What was not given back is waited for like any other holder (law 14).
    fn hold_for_nobody(&mut self, core: &mut Core, from: Option<&LeaseRecord>, duration: Duration, now: Now) {
        self.pace(core, now);
        // Equal bytes would look unbroken to whoever saw the former and not what came between.
        let latest = core.observation.latest_time().map(str::to_owned);
        let time = core.next_time(now, latest.as_deref());
        let object = core.writer.nobody(from, duration, &time);
        match from {
            None => core.create(object, now),
            Some(_) => core.replace(object, None, now),
        }
    }

    fn campaign(&mut self, core: &mut Core, why: AcquireReason, from: &LeaseRecord, now: Now) {
        self.pace(core, now);
        let campaign = self.campaign.get_or_insert_with(|| {
            if core.deference().is_some() {
                let message = "no replica with a ready workload has taken the Lease: this one does, whose own is not ready";
                core.report(Event::Odd { message: message.into() });
            }
            let other = from.annotation(TRACEPARENT).and_then(TraceContext::parse);
            let context = core.next_campaign(other.filter(|_| why == AcquireReason::Released), now);
            core.recorder.campaigning(why, context, other);
            core.report(Event::Campaigning { why, context, other });
            Campaign { context, sight: 0, is_unsettled: true, outdated: None }
        });
        (campaign.sight, campaign.is_unsettled) = (core.observation.sight(), true);
        let context = campaign.context;
        // If the holder stays the same its renewTime must rise, whoever wrote the last one.
        let own = Some(from).filter(|record| record.is_held_by(&core.writer.identity));
        let time = core.next_time(now, own.and_then(LeaseRecord::renew_time));
        core.replace(core.writer.acquire(from, core.timing, &time, context), Some(context), now);
    }

    fn pace(&mut self, core: &Core, now: Now) {
        self.writes = self.writes.after(doubled(RETRY_PAUSE, self.writes.times, core.timing.renew_period), now);
    }

    /// A quorum read: it proves an unanswered write of this replica, or shows the current state (law 6).
    fn read(&mut self, core: &mut Core, record: LeaseRecord, now: Now) -> Option<Next> {
        if let Some(attempt) = core.requests.proved_by(&record).cloned() {
            return self.acquired(core, record, &attempt, now);
        }
        core.requests.forget_overtaken(&record);
        core.saw(record, now);
        self.settle(core);
        None
    }

    /// The Lease is this replica's, by `attempt`: a term begins, unless that would be too late (law 12, 15).
    fn acquired(&mut self, core: &mut Core, record: LeaseRecord, attempt: &Attempt, now: Now) -> Option<Next> {
        core.requests.forget_all();
        let is_overtaken = core.observation.is_past(&record);
        core.saw(record.clone(), now);
        let context = attempt.acquires?;
        if !is_overtaken && now.boot < core.timing.deadlines(attempt.sent).soft {
            return Some(Next::Lead(Box::new(Leading::begin(core, record, attempt.sent, context, now))));
        }
        self.writes = Paced::default();
        let sight = core.observation.sight();
        self.campaign = Some(Campaign { context, sight, is_unsettled: false, outdated: Some(record) });
        None
    }

    /// It is known what became of the last write: nothing. The Lease may have changed since it was sent.
    fn settle(&mut self, core: &mut Core) {
        let Some(campaign) = &mut self.campaign else { return };
        campaign.is_unsettled = false;
        if campaign.sight != core.observation.sight() {
            self.lose(core);
        }
    }

    /// The Lease is no longer what was campaigned for. If it is an own write that had no answer, a read will tell.
    fn lose(&mut self, core: &mut Core) {
        let shows_own = core.observation.record().is_some_and(|record| core.requests.may_be(record));
        if !shows_own && self.campaign.take().is_some() {
            self.writes = Paced::default();
            core.report_recorded(Recorder::lost);
        }
    }
}

pub(crate) const UNREADABLE: &str = "the answer is not a Lease";
const CONFLICTING: &str = "a read was answered with a conflict";
pub(crate) const NOT_WHAT_WAS_SENT: &str = "the answer is not the Lease that was sent";

/// Of the writes without an answer only acquisitions are remembered (law 14).
fn unknown(
    core: &mut Core,
    attempt: Option<Attempt>,
    operation: Operation,
    message: RequestError,
    retry_after: Option<Duration>,
    now: Now,
) {
    attempt.into_iter().filter(|attempt| attempt.acquires.is_some()).for_each(|attempt| core.requests.remember(attempt));
    core.failed(operation, message, retry_after, now);
}
