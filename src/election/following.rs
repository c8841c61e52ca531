//! A phase of the election: somebody else leads, or nobody does.
//!
//! Owns observation and the campaign: one compare-and-swap write on what was seen, once the law allows it, and the reads that find
//! out what became of a write without an answer (law 6, 11 to 14).

use std::time::Duration;

use super::{
    Answer, Complaint, Event, Operation, Refusal, Vacancy, Watched,
    core::{Asked, Attempt, Campaign, Core, doubled},
    elector::Phase,
    leading::Leading,
    record::LeaseRecord,
    sight::Prospect,
    trace::TraceContext,
    writes::TRACEPARENT,
};
use crate::{
    law::{RETRY_PAUSE, Timing, longer, recorded},
    link::ToInit,
    time::{Instant, Now},
};

/// A forbidden creation is retried after about R, then after twice as long each time, up to about this long; until then the
/// Lease is only read.
const LONGEST_NO_CREATION: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Default)]
pub(crate) struct Following {
    /// No campaign before this: the Lease was just given up, or a campaign just tried.
    sit_out: Option<Instant>,
    /// No creation before this: it is forbidden, somebody else must create the Lease.
    no_creation: Option<Instant>,
    /// Creations that were forbidden since there was a Lease.
    forbidden: u32,
    /// An acquiring write is in flight, or its outcome is unknown.
    campaigning: bool,
    /// o of what the last write of the campaign was based on.
    campaigned_on: Instant,
    /// The span of the attempted transition, shared by all its writes.
    context: Option<TraceContext>,
    /// Its writes so far: the pause grows with each.
    attempts: u32,
}

impl Following {
    /// Follows as a fresh elector, after a term of its predecessor's that was given up voluntarily, if there was one.
    pub(crate) fn until(sit_out: Option<Instant>) -> Self {
        Self { sit_out, ..Self::default() }
    }

    /// Follows after a term of this `timing` that was given up voluntarily: the others go first, for one D.
    pub(crate) fn after_release(timing: Timing, now: Now) -> Self {
        Self::until(Some(timing.takeable(now.boot, timing.duration)))
    }

    pub(crate) fn tick(&mut self, core: &mut Core, now: Now) -> Option<Phase> {
        if core.shutdown && !self.campaigning {
            core.tell(ToInit::Done);
            return Some(Phase::Finished);
        }
        core.tick_watch(now);
        if core.sight.record().is_some() {
            (self.no_creation, self.forbidden) = (None, 0);
        }
        if core.is_awaiting() || now.boot < core.retry_at() {
            return None;
        }
        if self.campaigning {
            core.get(now);
            return None;
        }
        match self.prospect(core) {
            Prospect::Unknown => core.get(now),
            Prospect::Open { at, why, from, wait } if at <= now.boot => self.campaign(core, why, from.as_deref(), wait, now),
            Prospect::Open { .. } | Prospect::Closed => {
                if core.next_read() <= now.boot {
                    core.get(now);
                }
            }
        }
        None
    }

    pub(crate) fn timeout(&self, core: &Core) -> Option<Instant> {
        let watch = core.watch_timeout().unwrap_or(Instant::NEVER);
        if core.is_awaiting() {
            return Some(watch).filter(|watch| *watch != Instant::NEVER);
        }
        let act = match self.prospect(core) {
            Prospect::Open { .. } if self.campaigning => core.retry_at(),
            Prospect::Unknown => core.retry_at(),
            Prospect::Open { at, .. } => at.max(core.retry_at()).min(core.next_read()),
            Prospect::Closed => core.next_read(),
        };
        Some(watch.min(act))
    }

    pub(crate) fn watched(&mut self, core: &mut Core, watched: Watched, now: Now) {
        let before = core.sight.since();
        core.watched(watched, now);
        if core.sight.since() != before && !self.campaigning && !shows_own(core) {
            self.lost(core);
        }
    }

    pub(crate) fn answered(&mut self, core: &mut Core, asked: Asked, answer: Answer, now: Now) -> Option<Phase> {
        let operation = asked.operation;
        match (asked.attempt, answer) {
            (None, Answer::Object(object)) => match LeaseRecord::read(object) {
                Some(record) => return self.read(core, record, now),
                None => core.failed(operation, UNREADABLE.into(), None, now),
            },
            (Some(attempt), Answer::Object(object)) => match LeaseRecord::read(object) {
                Some(record) if attempt.campaign.is_some() && attempt.is_proved_by(&record) => {
                    return Some(self.won(core, record, &attempt, now));
                }
                Some(record) => {
                    core.saw(record, now);
                    self.unknown(core, attempt, operation, NOT_WHAT_WAS_SENT.into(), None, now);
                }
                None => self.unknown(core, attempt, operation, UNREADABLE.into(), None, now),
            },
            (_, Answer::NotFound) => {
                // A creation may still arrive: the next one then runs into it, and a read knows it by its spec.
                if core.sight.record().is_some() {
                    self.lost(core);
                }
                self.settled(core);
                core.unknown.retain(Attempt::creates);
                core.saw_absence(now);
            }
            (Some(_), Answer::Conflict) => {
                self.settled(core);
                core.get(now);
            }
            // A server that answers a read with 409 would do so again at once.
            (None, Answer::Conflict) => core.failed(operation, CONFLICTING.into(), None, now),
            (attempt, Answer::Refused { refusal, message }) => {
                if attempt.is_some() {
                    self.settled(core);
                }
                match refusal {
                    Refusal::Unauthorized => core.refused_credentials(operation, message, now),
                    Refusal::TooManyRequests { retry_after } => core.failed(operation, message, retry_after, now),
                    Refusal::Forbidden if attempt.is_some_and(|attempt| attempt.creates()) => {
                        let pause = doubled(core.timing.renew_period, self.forbidden, LONGEST_NO_CREATION);
                        self.forbidden = self.forbidden.saturating_add(1);
                        self.no_creation = Some(now.boot + core.jittered(pause));
                        core.failed(operation, message, None, now);
                    }
                    Refusal::Forbidden | Refusal::NoSuchPlace | Refusal::Invalid => core.failed(operation, message, None, now),
                }
            }
            (Some(attempt), Answer::Unknown { message, retry_after }) => {
                self.unknown(core, attempt, operation, message, retry_after, now);
            }
            (None, Answer::Unknown { message, retry_after }) => core.failed(operation, message, retry_after, now),
            (_, Answer::Deleted) => core.failed(operation, NOT_WHAT_WAS_SENT.into(), None, now),
        }
        None
    }

    fn prospect(&self, core: &Core) -> Prospect {
        match core.prospect() {
            Prospect::Open { at, why, from, wait } => {
                let no_creation = self.no_creation.filter(|_| from.is_none());
                let at = at.max(self.sit_out.unwrap_or(Instant::BOOT)).max(no_creation.unwrap_or(Instant::BOOT));
                Prospect::Open { at, why, from, wait: wait.filter(|wait| !wait.is_zero()) }
            }
            other @ (Prospect::Unknown | Prospect::Closed) => other,
        }
    }

    fn campaign(&mut self, core: &mut Core, why: Vacancy, from: Option<&LeaseRecord>, wait: Option<Duration>, now: Now) {
        let context = match self.context {
            Some(context) => context,
            None => {
                let other = from.and_then(|record| record.annotation(TRACEPARENT)).and_then(TraceContext::parse);
                let context = core.next_context(other.filter(|_| why == Vacancy::Released));
                core.report(Event::Campaigning { why, context, other });
                context
            }
        };
        core.hold_back(now);
        let duration = carried(core, wait, now);
        let campaign = Campaign { context, wait, duration };
        self.context = Some(context);
        self.campaigning = true;
        self.campaigned_on = core.sight.since();
        let pause = doubled(RETRY_PAUSE, self.attempts, core.timing.renew_period);
        self.attempts = self.attempts.saturating_add(1);
        self.sit_out = Some(now.boot + pause);
        let timing = core.timing.with_duration(duration);
        // If the holder stays the same its renewTime must rise, whoever wrote the last one.
        let own = from.filter(|record| record.is_held_by(&core.author.identity));
        let time = core.next_time(now, own.and_then(LeaseRecord::renew_time));
        match from {
            None => core.create(core.author.create(timing, &time, context), campaign, now),
            Some(record) => core.replace(core.author.acquire(record, timing, &time, context), Some(campaign), now),
        }
    }

    /// A quorum read: it proves an unanswered write of this replica, or shows the current state (law 6).
    fn read(&mut self, core: &mut Core, record: LeaseRecord, now: Now) -> Option<Phase> {
        if let Some(attempt) = core.unknown.iter().find(|attempt| attempt.is_proved_by(&record)).cloned() {
            return Some(self.won(core, record, &attempt, now));
        }
        let moved_on = |attempt: &Attempt| attempt.base().is_some_and(|base| base != record.resource_version());
        core.unknown.retain(|attempt| !moved_on(attempt));
        self.settled(core);
        if !core.sight.shows(&record) {
            self.lost(core);
        }
        core.doubt_watch(&record, now);
        core.saw(record, now);
        None
    }

    fn won(&mut self, core: &mut Core, record: LeaseRecord, attempt: &Attempt, now: Now) -> Phase {
        core.unknown.clear();
        let outdated = core.sight.is_past(&record);
        core.saw(record.clone(), now);
        Phase::Leading(Box::new(Leading::begin(core, record, attempt, outdated, now)))
    }

    fn unknown(
        &mut self,
        core: &mut Core,
        attempt: Attempt,
        operation: Operation,
        message: Complaint,
        retry_after: Option<Duration>,
        now: Now,
    ) {
        core.remember(attempt);
        core.failed(operation, message, retry_after, now);
    }

    /// No write of a campaign is under way any more. The Lease may have changed since the last one was sent.
    fn settled(&mut self, core: &mut Core) {
        if std::mem::take(&mut self.campaigning) && core.sight.since() != self.campaigned_on && !shows_own(core) {
            self.lost(core);
        }
    }

    /// The Lease is no longer what was campaigned for.
    fn lost(&mut self, core: &mut Core) {
        self.attempts = 0;
        if self.context.take().is_some() {
            core.report(Event::CampaignLost);
        }
    }
}

pub(crate) const UNREADABLE: &str = "the answer is not a Lease";
const CONFLICTING: &str = "a read was answered with a conflict";
pub(crate) const NOT_WHAT_WAS_SENT: &str = "the answer is not the Lease that was sent";

/// Whether what was last seen is a write of this replica that had no answer: a read will prove it.
fn shows_own(core: &Core) -> bool {
    core.sight.record().is_some_and(|record| core.unknown.iter().any(|attempt| attempt.is(record)))
}

/// D while a wait lasts, this one or the rest of an earlier one: the wait itself, but never less than D (law 14).
fn carried(core: &Core, wait: Option<Duration>, now: Now) -> Duration {
    core.timing.duration.max(left(core, now)).max(wait.unwrap_or_default())
}

/// What is left of an earlier wait. The drift is taken out of it, because whoever reads it in the record adds it again: otherwise
/// waits would grow from one loss to the next.
pub(crate) fn left(core: &Core, now: Now) -> Duration {
    core.not_before.map_or(Duration::ZERO, |end| recorded(end.since(now.boot), core.timing.drift))
}

/// When a wait ends whose acquisition was proved at `now` (law 14).
pub(crate) fn end_of_wait(core: &Core, wait: Duration, now: Now) -> Instant {
    now.boot + longer(wait, core.timing.drift)
}
