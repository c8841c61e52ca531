//! One Lease: the requests about it, what is observed of it, and what is reported of that, each state once.
//! Ends a campaign that is lost.

use std::sync::Arc;

use super::{One, WatchEvent};
use crate::{
    election::{
        Event, Request,
        asked::Attempt,
        pace::{Paced, doubled},
        record::{IS_PAUSED, IS_PAUSED_AND_EXPIRED, LeaseRecord, LeaseState},
        trace::TraceContext,
        writes::LeaseWrite,
    },
    law::RETRY_PAUSE,
    link::{LeaseBackoff, Term, Then, ToInit},
    time::{Instant, Now},
};

impl One<'_> {
    pub(crate) fn get(&mut self, now: Now) {
        self.send(Request::Get, None, now);
    }

    /// Sends a write. `acquires` is the span of the transition, if the write is to begin a term: never a POST (law 12).
    pub(crate) fn write(&mut self, write: LeaseWrite, acquires: Option<TraceContext>, now: Now) {
        let attempt = write.object().map(|object| Attempt { object: Arc::clone(object), sent: now.boot, acquires });
        self.send(Request::Write(write), attempt, now);
    }

    fn send(&mut self, request: Request, attempt: Option<Attempt>, now: Now) {
        self.reader.send(self.common, Some(self.lease.slot), request, attempt, now);
    }

    /// Returns the latest renewTime of the writes that may still be stored, in microseconds.
    pub(crate) fn latest_time(&self) -> Option<i64> {
        self.lease.unanswered.latest_time().max(self.reader.awaited_attempt().and_then(Attempt::time))
    }

    /// Observes the record of a reply, which is always believed. If the watch has overtaken it, another read is due.
    pub(crate) fn observed(&mut self, record: LeaseRecord, now: Now) {
        self.succeeded(now);
        if self.lease.observation.is_past(&record) {
            self.reader.want_read();
        }
        self.report_observed(Some(&record), now.boot);
        self.lease.observation.read(record, now);
        self.lease.forget_request(&self.common.writer.identity);
        self.hand_on();
        self.caught_up(now);
    }

    /// Observes that the Lease does not exist, as a reply said.
    pub(crate) fn observed_absence(&mut self, now: Now) {
        self.succeeded(now);
        self.lease.observation.absent(now.boot);
        self.report_observed(None, now.boot);
        self.hand_on();
        self.caught_up(now);
    }

    fn succeeded(&mut self, now: Now) {
        self.reader.succeeded(now.boot);
        if !std::mem::replace(&mut self.common.ready, true) {
            self.common.report(Event::Ready);
        }
    }

    fn caught_up(&mut self, now: Now) {
        self.reader.watch.caught_up();
        self.reader.tick_watch(self.common, now);
    }

    /// Takes in a version that the watch brought. Returns it if it is new.
    pub(super) fn saw(&mut self, record: LeaseRecord, now: Now) -> Option<WatchEvent> {
        let is_news = self.lease.observation.watched(record.clone(), now);
        self.hand_on();
        if !is_news {
            return None;
        }
        self.lease.forget_request(&self.common.writer.identity);
        self.heard(now);
        self.report_observed(Some(&record), now.boot);
        Some(WatchEvent::Changed(record))
    }

    /// Takes in a deletion. It is passed on even if it is about another uid than the last observed: an old event of another Lease
    /// may have come in between.
    pub(super) fn saw_deleted(&mut self, record: LeaseRecord, now: Now) -> WatchEvent {
        if self.lease.observation.deleted(&record, now.boot) {
            self.heard(now);
            self.hand_on();
            self.report_observed(None, now.boot);
        }
        WatchEvent::Deleted(record)
    }

    fn heard(&mut self, now: Now) {
        self.lease.heard = now.boot;
        self.reader.heard(self.common.timing, now.boot);
    }

    /// Tells init the part of the observation that must outlive this elector: the Lease may be gone before the next one reads it.
    fn hand_on(&mut self) {
        let last_seen = self.lease.observation.last_seen();
        if last_seen != self.lease.handed_on {
            self.lease.handed_on = last_seen.clone();
            self.common.tell(ToInit::Observed { slot: self.lease.slot, last_seen });
        }
    }

    /// Counts a follower's write: the next one comes after a longer pause.
    pub(crate) fn pace(&mut self, now: Now) {
        let writes = self.lease.writes;
        self.lease.writes = writes.until(now.boot + doubled(RETRY_PAUSE, writes.times, self.common.timing.renew_period));
    }

    /// Ends the campaign if the Lease has changed since its last write. If the change may be an own write that had no answer, a
    /// read decides.
    pub(crate) fn settle(&mut self) {
        let changes = self.lease.observation.changes();
        let has_changed = self.lease.campaign.as_ref().is_some_and(|campaign| campaign.changes != changes);
        if has_changed && !self.lease.may_show_own_write() {
            (self.lease.campaign, self.lease.writes) = (None, Paced::default());
            self.common.report(Event::CampaignLost { slot: self.lease.slot });
        }
    }

    /// Tells init that `term` is over. The other replicas go first until `until`.
    pub(crate) fn leave(&mut self, term: Term, then: Then, until: Option<Instant>) -> Then {
        let common = &mut *self.common;
        common.lease_backoff.until = common.lease_backoff.until.max(until.unwrap_or_default());
        let backoff = Some(common.lease_backoff).filter(|backoff| *backoff != LeaseBackoff::default());
        common.tell(ToInit::Ended { term, backoff });
        common.report(Event::Ended);
        then
    }

    fn report_warning(&mut self, record: &LeaseRecord, now: Instant) {
        let odd = match record.warning(Some(&self.common.writer.identity)) {
            Some(IS_PAUSED) if self.lease.observation.has_expired(record, now) => Some(IS_PAUSED_AND_EXPIRED),
            odd => odd,
        };
        match (std::mem::replace(&mut self.lease.warning, odd), odd) {
            (before, Some(message)) if before != odd => self.common.report(Event::Odd { message: message.into() }),
            (Some(IS_PAUSED | IS_PAUSED_AND_EXPIRED), None) => self.common.report(Event::Unpaused),
            (_, Some(_) | None) => {}
        }
    }

    /// Reports the Lease as it was read, or found absent.
    fn report_observed(&mut self, record: Option<&LeaseRecord>, now: Instant) {
        let nobody = record.filter(|record| record.state() == LeaseState::Nobody).map(|record| {
            let wait = self.lease.observation.wait_for_nobody(record.duration().unwrap_or_default());
            self.common.timing.takeable(Instant::BOOT, wait).since(Instant::BOOT)
        });
        self.common.report(Event::Observed { slot: self.lease.slot, record: record.cloned(), nobody });
        if let Some(record) = record {
            self.report_warning(record, now);
            self.report_holder(record);
        }
    }

    fn report_holder(&mut self, record: &LeaseRecord) {
        if record.state() != LeaseState::Held {
            return;
        }
        let other = record.holder().filter(|holder| *holder != self.common.writer.identity).map(str::to_owned);
        if other != self.lease.holder
            && let Some(holder) = other.clone()
        {
            self.common.report(Event::NewLeader { slot: self.lease.slot, holder });
        }
        self.lease.holder = other;
    }
}
