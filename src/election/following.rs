//! The phase in which another replica leads, or none does.
//!
//! Owns the campaign. A Lease that was not given back is first written as held by nobody. Once the law allows it, one
//! compare-and-swap write takes the Lease. If that write has no answer, reads find out what became of it (law 6, 11 to 14).

use std::time::Duration;

use super::{
    AcquireReason, Event,
    asked::{Asked, Attempt, NOT_WHAT_WAS_SENT, Verdict},
    core::{Core, doubled},
    elector::Next,
    leading::Leading,
    observation::Eligibility,
    record::LeaseRecord,
    trace::TraceContext,
    wait_limit::WaitLimit,
    writes::{STEP_DOWN_TO, TRACEPARENT},
};
use crate::{
    law::RETRY_PAUSE,
    link::ToInit,
    request::{Answer, Operation, Refusal, RequestError, Watched},
    time::{Instant, Now},
};

/// The longest pause before a forbidden creation is tried again. The first pause is about R, each next one twice as long;
/// meanwhile the Lease is only read.
const LONGEST_NO_CREATION: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Following {
    campaign: Option<Campaign>,
    writes: Paced,
    /// Creations that were forbidden since there was last a Lease.
    creations: Paced,
}

/// The order in which slots are written, the first first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Candidacy {
    Released,
    Expired,
    Free,
    /// Not free yet: the Lease must first be written as held by nobody (law 14).
    Vacant,
}

/// The pace of repeated attempts: each pause is longer than the one before.
#[derive(Clone, Copy, Debug, Default, Hash)]
struct Paced {
    times: u32,
    not_before: Instant,
}

/// An attempt to lead. All its writes share a span.
#[derive(Clone, Debug, Hash)]
struct Campaign {
    context: TraceContext,
    /// The number of changes that its last write was based on.
    changes: u64,
    /// The last write is in flight, or had no answer: only a read tells whether it is stored.
    is_unsettled: bool,
    /// The record that acquired the Lease after S had passed, or after a later version was seen. It begins no term, and is
    /// written again (law 12).
    outdated: Option<LeaseRecord>,
}

impl Paced {
    fn after(self, pause: Duration, now: Now) -> Self {
        Self { times: self.times.saturating_add(1), not_before: now.boot + pause }
    }
}

impl Following {
    pub(crate) const fn creates_at(&self) -> Instant {
        self.creations.not_before
    }

    pub(crate) const fn create_at(&mut self, at: Instant) {
        self.creations.not_before = at;
    }

    pub(crate) fn tick(&mut self, core: &mut Core, now: Now) -> Option<Next> {
        if core.shutdown && !self.may_hold(core) {
            let context = core.next_context(None);
            core.report(Event::WaitedInVain { context });
            return Some(Next::Finish);
        }
        core.tick_watch(now);
        if core.observation.record().is_some() {
            self.creations = Paced::default();
        }
        if core.observation.is_led_by_another() {
            self.writes = Paced::default();
            if core.lease_backoff.failures == 0 {
                core.lease_backoff.until = Instant::BOOT;
            }
        }
        if core.requests.is_awaiting() {
            return None;
        }
        if !core.shutdown
            && let Some((code, message)) = core.give_up(&self.eligibility(core), self.is_unsettled(), now)
        {
            core.shutdown = true;
            core.tell(ToInit::GaveUp { code, message });
            return self.tick(core, now);
        }
        if now.boot < core.backoff.retry_at() {
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
                } else if self.preempts_at(core).is_some_and(|at| at <= now.boot) {
                    preempt(core, now);
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
        let retry = core.backoff.retry_at();
        let act = match self.act_at(core) {
            _ if self.is_unsettled() => retry,
            Some(at) if core.may_write => at.max(retry).min(core.next_read()),
            Some(_) | None => core.next_read(),
        };
        let preemption = self.preempts_at(core).map(|at| at.max(retry));
        let wait_limit = core.wait_limit.as_ref().filter(|_| !core.shutdown).and_then(WaitLimit::due);
        [watch, wait_limit, preemption].into_iter().flatten().chain([act]).min()
    }

    pub(crate) fn watched(&mut self, core: &mut Core, watched: Watched, now: Now) {
        let before = core.observation.changes();
        core.watched(watched, now);
        if core.observation.changes() != before && !self.is_unsettled() {
            self.lose(core);
        }
    }

    pub(crate) fn answered(&mut self, core: &mut Core, asked: &Asked, answer: Answer, now: Now) -> Option<Next> {
        let operation = asked.operation;
        match asked.judge(answer) {
            Verdict::Read(record) => return self.read(core, record, now),
            Verdict::Proved(record, attempt) if attempt.acquires.is_some() => return self.acquired(core, record, &attempt, now),
            Verdict::Proved(record, _) => core.observed(record, now),
            Verdict::Other(record, attempt) => {
                core.observed(record, now);
                if attempt.acquires.is_some() {
                    open(core, asked, NOT_WHAT_WAS_SENT.into(), None, now);
                }
            }
            Verdict::Absent | Verdict::Deleted => {
                core.requests.forget_all();
                core.observed_absence(now);
                self.settle(core);
            }
            // An own write without an answer may be the cause: a read tells.
            Verdict::Conflict if asked.attempt.is_some() => core.get(now),
            // A server that answers a read with 409 would do so again, so the next one comes after a pause.
            Verdict::Conflict => core.failed(operation, CONFLICTING.into(), None, now),
            Verdict::Refused(refusal, message) => {
                if asked.attempt.is_some() {
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
            Verdict::Open(message, retry_after) => open(core, asked, message, retry_after, now),
        }
        None
    }

    fn eligibility(&self, core: &Core) -> Eligibility {
        core.observation.eligibility(self.campaign.as_ref().and_then(|campaign| campaign.outdated.as_ref()))
    }

    /// Returns when the next write is due, and how it compares with the writes of other slots.
    pub(crate) fn candidacy(&self, core: &Core) -> Option<(Instant, Candidacy)> {
        let candidacy = match self.eligibility(core) {
            Eligibility::Open { why: AcquireReason::Released | AcquireReason::Died | AcquireReason::Due, .. } => {
                Candidacy::Released
            }
            Eligibility::Open { why: AcquireReason::Expired, .. } => Candidacy::Expired,
            Eligibility::Open { why: AcquireReason::Nobody | AcquireReason::Cleared, .. } => Candidacy::Free,
            Eligibility::Vacant { .. } => Candidacy::Vacant,
            Eligibility::Unknown | Eligibility::Closed => return None,
        };
        Some((self.act_at(core)?.max(core.backoff.retry_at()), candidacy))
    }

    /// Returns when the next write is due. None: not until something changes.
    fn act_at(&self, core: &Core) -> Option<Instant> {
        match self.eligibility(core) {
            Eligibility::Unknown => Some(Instant::BOOT),
            Eligibility::Closed => None,
            Eligibility::Vacant { from: None, .. } => Some(self.writes.not_before.max(self.creations.not_before)),
            Eligibility::Vacant { from: Some(_), .. } => Some(self.writes.not_before),
            // All replicas wait for the same due time, and another may have been faster. A read costs less than a write that
            // fails.
            Eligibility::Open { at, why: AcquireReason::Due, .. } if !core.backoff.has_asked_since(at) => None,
            Eligibility::Open { at, from, .. } => {
                let at = at + core.yield_delay().unwrap_or_default();
                // The pace of the writes for nobody does not delay a takeover.
                let retry = if self.campaign.is_some() { self.writes.not_before } else { Instant::BOOT };
                let is_named = from.annotation(STEP_DOWN_TO) == Some(&core.writer.identity);
                let others_until = if is_named { Instant::BOOT } else { core.lease_backoff.until };
                Some(at.max(retry).max(others_until))
            }
        }
    }

    /// Returns when this replica asks the holder to hand over (`lease.preempt`): once both have been what they are for that long.
    fn preempts_at(&self, core: &Core) -> Option<Instant> {
        let after = core.config.lease.preempt.filter(|_| core.is_workload_ready && !self.is_unsettled())?;
        let at = core.observation.preempts_at(core.config.lease.priority, after)?;
        Some(at.max(core.ready_since + after).max(core.lease_backoff.until))
    }

    /// Returns whether only a read can tell what became of the last write.
    fn is_unsettled(&self) -> bool {
        self.campaign.as_ref().is_some_and(|campaign| campaign.is_unsettled)
    }

    /// Returns whether the Lease may name this replica. If so, it has to be given back before the elector ends: by a term that
    /// ends as it begins.
    pub(crate) fn may_hold(&self, core: &Core) -> bool {
        let is_open = || matches!(self.eligibility(core), Eligibility::Open { .. });
        self.campaign.as_ref().is_some_and(|campaign| campaign.is_unsettled || campaign.outdated.is_some() && is_open())
    }

    /// Writes a Lease that was not given back as held by nobody, who is then waited for like any other holder (law 14).
    fn hold_for_nobody(&mut self, core: &mut Core, from: Option<&LeaseRecord>, duration: Duration, now: Now) {
        self.pace(core, now);
        // To a replica that missed a version in between, equal bytes would look like an unchanged Lease.
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
            if core.yield_delay().is_some() {
                let message = "no replica with a ready workload has taken the Lease: this one does, whose own is not ready";
                core.report(Event::Odd { message: message.into() });
            }
            let other = from.annotation(TRACEPARENT).and_then(TraceContext::parse);
            let context = core.next_campaign(other.filter(|_| why == AcquireReason::Released), now);
            core.report(Event::Campaigning { slot: core.slot, why, context, other });
            Campaign { context, changes: 0, is_unsettled: true, outdated: None }
        });
        (campaign.changes, campaign.is_unsettled) = (core.observation.changes(), true);
        let (context, outdated) = (campaign.context, campaign.outdated.clone());
        // If the Lease already names this replica, renewTime must still rise.
        let own = Some(from).filter(|record| record.is_held_by(&core.writer.identity));
        let time = core.next_time(now, own.and_then(LeaseRecord::renew_time));
        let fires = core.observation.fires(from, outdated.as_ref(), now.wall);
        let object = core.writer.acquire(from, core.timing, core.trigger.is_some(), fires, &time, context);
        core.replace(object, Some(context), now);
    }

    fn pace(&mut self, core: &Core, now: Now) {
        self.writes = self.writes.after(doubled(RETRY_PAUSE, self.writes.times, core.timing.renew_period), now);
    }

    /// Takes in a quorum read. It proves an unanswered write of this replica, or shows the current state (law 6).
    fn read(&mut self, core: &mut Core, record: LeaseRecord, now: Now) -> Option<Next> {
        if let Some(attempt) = core.requests.proved_by(&record).cloned() {
            return self.acquired(core, record, &attempt, now);
        }
        core.requests.forget_overtaken(&record);
        core.observed(record, now);
        self.settle(core);
        None
    }

    /// Begins a term, because `attempt` has acquired the Lease; unless it is too late for that (law 12, 15).
    fn acquired(&mut self, core: &mut Core, record: LeaseRecord, attempt: &Attempt, now: Now) -> Option<Next> {
        core.requests.forget_all();
        let is_overtaken = core.observation.is_past(&record);
        core.observed(record.clone(), now);
        let context = attempt.acquires?;
        if !is_overtaken && now.boot < core.timing.deadlines(attempt.sent).soft {
            return Some(Next::Lead(Box::new(Leading::begin(core, record, attempt.sent, context, now))));
        }
        self.writes = Paced::default();
        let changes = core.observation.changes();
        self.campaign = Some(Campaign { context, changes, is_unsettled: false, outdated: Some(record) });
        None
    }

    /// Notes that the last write was not stored. If the Lease has changed since that write was sent, the campaign is lost.
    fn settle(&mut self, core: &mut Core) {
        let Some(campaign) = &mut self.campaign else { return };
        campaign.is_unsettled = false;
        if campaign.changes != core.observation.changes() {
            self.lose(core);
        }
    }

    /// Ends the campaign, because the Lease has changed. If the change may be an own write that had no answer, a read decides.
    fn lose(&mut self, core: &mut Core) {
        let shows_own = core.observation.record().is_some_and(|record| core.requests.may_be(record));
        if !shows_own && self.campaign.take().is_some() {
            self.writes = Paced::default();
            core.report(Event::CampaignLost { slot: core.slot });
        }
    }
}

const CONFLICTING: &str = "a read was answered with a conflict";

/// Asks the holder to hand over. The write repeats the version and the spec that were read, so even a late one changes neither
/// the holder nor its times.
fn preempt(core: &mut Core, now: Now) {
    let Some(record) = core.observation.record() else { return };
    let (object, holder) = (core.writer.preempt(record), record.holder().unwrap_or_default().to_owned());
    core.report(Event::Preempts { holder });
    core.replace(object, None, now);
}

/// Takes in a request of which nothing is known. Only acquiring writes are remembered (law 14).
fn open(core: &mut Core, asked: &Asked, message: RequestError, retry_after: Option<Duration>, now: Now) {
    if let Some(attempt) = asked.attempt.as_ref().filter(|attempt| attempt.acquires.is_some()) {
        core.requests.remember(attempt.clone());
    }
    core.failed(asked.operation, message, retry_after, now);
}
