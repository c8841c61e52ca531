//! The phase in which this replica holds no Lease.
//!
//! Owns the campaigns, and which Lease is written next (law 18). A Lease that was not given back is first written as held by
//! nobody. Once the law allows it, one compare-and-swap write takes the Lease. If that write has no answer, reads find out what
//! became of it (law 6, 11 to 14), and until then no other Lease is written. A holder of lower priority is asked to hand over (law
//! 17).
//!
//! The way of an event of the watch: the core has the observation take it in, and `watched` only ends a campaign that is lost. The
//! tick that follows asks [`due`], which names the Lease that the law allows (`Lease::eligibility`), and `write` sends it. The
//! answer comes to `answered`, and `acquired` begins the next phase.

use std::time::Duration;

use super::{
    AcquireReason, Event,
    asked::{Asked, Attempt, NOT_WHAT_WAS_SENT, Verdict},
    common::Common,
    core::{Core, One},
    leading::Leading,
    lease::{Campaign, Lease},
    observation::Eligibility,
    pace::{Paced, doubled},
    record::LeaseRecord,
    trace::TraceContext,
    writes::{LeaseWrite, STEP_DOWN_TO, TRACEPARENT},
};
use crate::{
    link::ToInit,
    request::{Answer, Operation, Refusal, RequestError},
    slot::Slot,
    time::{Instant, Now},
};

mod due;
mod lists;

/// The longest pause before a forbidden creation is tried again. The first pause is about R, each next one twice as long;
/// meanwhile the Lease is only read.
const LONGEST_NO_CREATION: Duration = Duration::from_secs(60);
/// A standby that ends makes so many requests to find its request to hand over, and to take it back.
const TAKES_BACK: u8 = 2;
/// After so many writes of one campaign people are told of a conflict.
const MANY: u32 = 4;
const OVERTAKEN: &str = "no write has succeeded: somebody else writes the Lease first, or a webhook refuses each write";
const CONFLICTING: &str = "a read was answered with a conflict";

#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Following {
    /// The Lease whose last acquiring write is in flight, or had no answer: only a read tells whether it is stored.
    unsettled: Option<Slot>,
    /// The one of several Leases that is written next, and when.
    plan: Option<(Slot, Instant)>,
    /// Creations that were forbidden since all Leases were there.
    creations: Paced,
    /// Requests to find its request to hand over, and to take it back, at the end.
    taken_back: u8,
}

impl Following {
    /// Does what is due. Returns true if nothing is left to do.
    pub(crate) fn tick(&mut self, core: &mut Core, now: Now) -> bool {
        if core.common.shutdown && self.busy(core).is_none() {
            if let Some((slot, is_stored)) = self.own_request(core) {
                if !core.reader.is_awaiting() {
                    self.taken_back += 1;
                    let mut one = core.one(slot);
                    if is_stored { take_back(&mut one, now) } else { one.get(now) }
                }
                core.reader.tick_watch(&mut core.common, now);
                return false;
            }
            let context = core.common.next_context(None);
            core.common.report(Event::WaitedInVain { context });
            return true;
        }
        core.reader.tick_watch(&mut core.common, now);
        self.relax(core);
        let due = self.due(core, now);
        if core.reader.is_awaiting() {
            return false;
        }
        if !core.common.shutdown
            && let Some((code, message)) = core.give_up(self.unsettled, now)
        {
            core.common.shutdown = true;
            core.common.tell(ToInit::GaveUp { code, message });
            return self.tick(core, now);
        }
        if now.boot < core.reader.retry_at() {
            return false;
        }
        if let Some(slot) = self.unsettled {
            core.one(slot).get(now);
        } else if let Some(slot) = due {
            self.write(core, slot, now);
        } else if core.next_read() <= now.boot {
            lists::ask(core, now);
        } else if let Some((_, slot)) = self.preemption(core).filter(|(at, _)| *at <= now.boot) {
            preempt(&mut core.one(slot), now);
        }
        false
    }

    pub(crate) fn timeout(&self, core: &Core) -> Option<Instant> {
        let watch = core.reader.watch.due();
        if core.reader.is_awaiting() {
            return watch;
        }
        let retry = core.reader.retry_at();
        let next = if self.unsettled.is_some() { retry } else { core.next_read().or_earlier(self.next_write(core)) };
        let preemption = self.preemption(core).map(|(at, _)| at.max(retry));
        let wait_limit = core.leases.iter().filter_map(|lease| lease.wait_limit.as_ref()?.due()).min();
        let wait_limit = if core.common.shutdown { None } else { wait_limit };
        [watch, wait_limit, preemption].into_iter().flatten().chain([next]).min()
    }

    /// Takes in that the watch has brought news of this Lease.
    pub(crate) fn watched(&self, one: &mut One<'_>) {
        if self.unsettled != Some(one.lease.slot) {
            one.settle();
        }
    }

    pub(crate) fn answered(
        &mut self,
        core: &mut Core,
        slot: Slot,
        asked: &Asked,
        answer: Answer,
        now: Now,
    ) -> Option<Box<Leading>> {
        let operation = asked.operation;
        let mut one = core.one(slot);
        match asked.judge(answer) {
            Verdict::Read(record) => return self.read(&mut one, record, now),
            Verdict::Proved(record, attempt) if attempt.acquires.is_some() => {
                return self.acquired(&mut one, record, &attempt, now);
            }
            Verdict::Proved(record, _) => {
                one.lease.asked = now.boot;
                one.observed(record, now);
            }
            Verdict::Other(record, attempt) => {
                one.observed(record, now);
                if attempt.acquires.is_some() {
                    open(core, slot, asked, NOT_WHAT_WAS_SENT.into(), None, now);
                } else {
                    one.lease.asked = now.boot;
                }
            }
            Verdict::Absent | Verdict::Deleted => self.absent(&mut one, now),
            // An own write without an answer may be the cause: a read tells.
            Verdict::Conflict if asked.attempt.is_some() => {
                if one.lease.writes.times == MANY {
                    one.common.report(Event::Failed { operation, sent: asked.sent, message: OVERTAKEN.into() });
                }
                one.get(now);
            }
            // A server that answers a read with 409 would do so again, so the next one comes after a pause.
            Verdict::Conflict => core.failed(operation, CONFLICTING.into(), None, now),
            Verdict::Refused(refusal, message) => {
                if let Some(attempt) = &asked.attempt {
                    if attempt.acquires.is_none() && !refusal.may_pass() && refusal != Refusal::Unauthorized {
                        one.lease.asked = now.boot;
                    }
                    self.settle(&mut one);
                }
                if operation == Operation::Create && refusal == Refusal::Forbidden {
                    let pause = doubled(one.common.timing.renew_period, self.creations.times, LONGEST_NO_CREATION);
                    self.creations = self.creations.until(now.boot + one.common.jittered(pause));
                }
                core.refused(operation, refusal, message, now);
            }
            Verdict::Open(message, retry_after) => open(core, slot, asked, message, retry_after, now),
        }
        None
    }

    /// Returns when this replica asks the holder to hand over (`lease.preempt`): once both have been what they are for that long.
    fn preempts_at(&self, lease: &Lease, common: &Common) -> Option<Instant> {
        if !common.is_workload_ready || self.unsettled.is_some() {
            return None;
        }
        let after = common.config.lease.preempt?;
        let at = lease.observation.preempts_at(common.config.lease.priority, after)?;
        // Somebody may undo each request.
        Some(at.max(common.ready_since.max(lease.asked) + after).max(common.lease_backoff.until).max(lease.writes.not_before))
    }

    /// Returns the Lease that has this replica's request to hand over, and true; or that may have it, as nothing later was seen.
    fn own_request(&self, core: &Core) -> Option<(Slot, bool)> {
        let me = core.common.writer.identity.as_str();
        // Nobody waits for whom the Lease itself names, and an equal record is none that a follower may write.
        let asks = |seen: &LeaseRecord| seen.annotation(STEP_DOWN_TO) == Some(me) && !seen.is_held_by(me);
        let own = |lease: &Lease| {
            let (asked_on, seen) = (lease.asked_on.as_ref()?, lease.observation.record()?);
            (asks(seen) || seen.resource_version() == asked_on).then(|| (lease.slot, asks(seen)))
        };
        core.leases.iter().find_map(own).filter(|_| self.taken_back < TAKES_BACK || core.reader.is_awaiting())
    }

    /// Returns the next preemption.
    fn preemption(&self, core: &Core) -> Option<(Instant, Slot)> {
        core.leases.iter().filter_map(|lease| Some((self.preempts_at(lease, &core.common)?, lease.slot))).min()
    }

    /// Forgets what slowed this replica down, where it has no reason to be slow any more.
    fn relax(&mut self, core: &mut Core) {
        if core.leases.iter().all(|lease| lease.observation.record().is_some()) {
            self.creations = Paced::default();
        }
        for lease in &mut core.leases {
            // The pace of preemptions stays until there is nobody to preempt, and that of a campaign until it is over.
            if lease.campaign.is_none()
                && lease.observation.is_led_by_another()
                && self.preempts_at(lease, &core.common).is_none()
            {
                lease.writes = Paced::default();
            }
        }
        if core.common.lease_backoff.failures == 0 && core.leases.iter().all(|lease| lease.observation.is_led_by_another()) {
            core.common.lease_backoff.until = Instant::BOOT;
        }
    }

    fn write(&mut self, core: &mut Core, slot: Slot, now: Now) {
        let mut one = core.one(slot);
        match one.lease.eligibility() {
            Eligibility::Vacant { from, duration } => hold_for_nobody(&mut one, from.as_ref(), duration, now),
            Eligibility::Open { .. } if one.lease.observation.is_skipped(now.wall) => one.get(now),
            Eligibility::Open { why, from, .. } => {
                self.unsettled = Some(slot);
                campaign(&mut one, why, &from, now);
            }
            Eligibility::Unknown | Eligibility::Closed => {}
        }
    }

    /// Takes in a quorum read. It proves an unanswered write of this replica, or shows the current state (law 6).
    fn read(&mut self, one: &mut One<'_>, record: LeaseRecord, now: Now) -> Option<Box<Leading>> {
        if let Some(attempt) = one.lease.unanswered.proved_by(&record) {
            return self.acquired(one, record, &attempt, now);
        }
        one.lease.unanswered.forget_overtaken(&record);
        one.observed(record, now);
        self.settle(one);
        None
    }

    /// Takes in that there is no such Lease.
    fn absent(&mut self, one: &mut One<'_>, now: Now) {
        one.lease.unanswered.forget_all();
        one.observed_absence(now);
        self.settle(one);
    }

    /// Begins a term, because `attempt` has acquired the Lease; unless it is too late for that (law 12, 15).
    fn acquired(&mut self, one: &mut One<'_>, record: LeaseRecord, attempt: &Attempt, now: Now) -> Option<Box<Leading>> {
        one.lease.unanswered.forget_all();
        let is_overtaken = one.lease.observation.is_past(&record);
        one.observed(record.clone(), now);
        let context = attempt.acquires?;
        if !is_overtaken && now.boot < one.common.timing.deadlines(attempt.sent).soft {
            return Some(Box::new(Leading::begin(one, record, attempt.sent, context, now)));
        }
        one.lease.writes = Paced::default();
        let changes = one.lease.observation.changes();
        one.lease.campaign = Some(Campaign { context, changes, outdated: Some(record) });
        self.settle(one);
        None
    }

    /// Notes that the last write was not stored. If the Lease has changed since that write was sent, the campaign is lost.
    fn settle(&mut self, one: &mut One<'_>) {
        if self.unsettled == Some(one.lease.slot) {
            self.unsettled = None;
        }
        one.settle();
    }
}

/// Writes a Lease that was not given back as held by nobody, who is then waited for like any other holder (law 14).
fn hold_for_nobody(one: &mut One<'_>, from: Option<&LeaseRecord>, duration: Duration, now: Now) {
    let latest = one.lease.observation.latest_time().map(str::to_owned);
    let time = one.common.next_time_of_nobody(now, latest.as_deref());
    let write = one.common.writer.nobody(from, one.lease.slot, duration, &time);
    put(one, write, None, now);
}

fn campaign(one: &mut One<'_>, why: AcquireReason, from: &LeaseRecord, now: Now) {
    let (lease, common) = (&mut *one.lease, &mut *one.common);
    let campaign = lease.campaign.get_or_insert_with(|| {
        if common.yield_delay().is_some() {
            let message = "no replica with a ready workload has taken the Lease: this one does, whose own is not ready";
            common.report(Event::Odd { message: message.into() });
        }
        let other = from.annotation(TRACEPARENT).and_then(TraceContext::parse);
        let context = common.next_campaign(if why == AcquireReason::Released { other } else { None }, now);
        common.report(Event::Campaigning { slot: lease.slot, why, context, other });
        Campaign { context, changes: 0, outdated: None }
    });
    campaign.changes = lease.observation.changes();
    // If the Lease already names this replica, renewTime must still rise.
    let own = Some(from).filter(|record| record.is_held_by(&common.writer.identity));
    let time = common.next_time(now, own.and_then(LeaseRecord::renew_time));
    let fires = lease.observation.fires(from, campaign.outdated.as_ref(), now.wall);
    let write = common.writer.acquire(from, common.timing, common.trigger.is_some(), fires, &time, campaign.context);
    let acquires = Some(campaign.context);
    put(one, write, acquires, now);
}

/// Asks the holder to hand over. The write repeats the version and the spec that were read, so even a late one changes neither
/// the holder nor its times.
fn preempt(one: &mut One<'_>, now: Now) {
    let Some(record) = one.lease.observation.record() else { return };
    let (write, holder) = (one.common.writer.preempt(record), record.holder().unwrap_or_default().to_owned());
    one.common.report(Event::Preempts { holder });
    one.lease.asked_on = Some(record.resource_version().to_owned());
    put(one, write, None, now);
}

/// Takes the request back, so that nobody hands over to a replica that ends, nor waits for it.
fn take_back(one: &mut One<'_>, now: Now) {
    let Some(record) = one.lease.observation.record() else { return };
    let write = one.common.writer.take_back(record);
    put(one, write, None, now);
}

/// Sends a follower's write, at the pace of all of them.
fn put(one: &mut One<'_>, write: LeaseWrite, acquires: Option<TraceContext>, now: Now) {
    one.pace(now);
    one.write(write, acquires, now);
}

/// Takes in a request of which nothing is known. Only acquiring writes are remembered (law 14).
fn open(core: &mut Core, slot: Slot, asked: &Asked, message: RequestError, retry_after: Option<Duration>, now: Now) {
    if let Some(attempt) = asked.attempt.as_ref().filter(|attempt| attempt.acquires.is_some()) {
        core.one(slot).lease.unanswered.remember(attempt.clone());
    }
    core.failed(asked.operation, message, retry_after, now);
}
