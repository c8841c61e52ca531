//! Requests and what they bring: the one in flight, the reads of a follower, their retry, and the watch.
//!
//! There is one for all Leases. At most one request is in flight. A follower of one Lease reads it by its name; of several, one list
//! reads them all. Of those, a Lease is read by its name if the list or the watch shows it no longer: it is deleted, or has only
//! lost its label (law 18). Where lists are forbidden, each Lease is read in its turn.

use std::{collections::VecDeque, time::Duration};

use super::{
    Action, Request, RequestId,
    asked::{Asked, Attempt},
    common::Common,
    pace::Paced,
};
use crate::{
    law::Timing,
    slot::Slot,
    time::{Instant, Now},
};

mod watch;

use watch::Watch;

/// A follower sends a request within this time, because servers close connections that are idle for a minute.
const KEEP_WARM: Duration = Duration::from_secs(55);
/// A forbidden list is tried again after this.
const LIST_AGAIN: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Hash)]
pub(crate) struct Reader {
    sent: u64,
    /// The latest request, until its answer comes.
    in_flight: Option<Flight>,
    /// When the last request was sent.
    asked: Instant,
    /// A follower reads as soon as `retry` allows.
    is_wanted: bool,
    /// Consecutive failures of a follower's requests, and the instant before which it sends none.
    pub(super) retry: Paced,
    /// The credentials were refused since a request last succeeded.
    credentials_refused: bool,
    pub(super) watch: Watch,
    lists: Lists,
}

/// A request whose answer is awaited.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Flight {
    /// The Lease; none: all of them, as a list.
    pub(crate) slot: Option<Slot>,
    pub(crate) asked: Asked,
}

/// The reads of several Leases.
#[derive(Clone, Debug, Default, Hash)]
struct Lists {
    /// Leases to read by their names.
    by_name: VecDeque<Slot>,
    /// The Lease whose turn it is: it is read by its name even if it was absent, and a list does not show it.
    turn: u8,
    /// A list is forbidden, and is not tried again before this instant.
    forbidden_until: Option<Instant>,
    /// One beside a list failed, which says nothing of the list: none is sent before this instant.
    by_name_after: Instant,
}

impl Reader {
    pub(crate) fn new(now: Now) -> Self {
        Self {
            sent: 0,
            in_flight: None,
            asked: now.boot,
            is_wanted: false,
            retry: Paced { times: 0, not_before: now.boot },
            credentials_refused: false,
            watch: Watch::new(),
            lists: Lists::default(),
        }
    }

    /// Sends a request for this Lease, or for all of them.
    pub(crate) fn send(&mut self, common: &mut Common, slot: Option<Slot>, request: Request, attempt: Option<Attempt>, now: Now) {
        self.sent += 1;
        self.asked = now.boot;
        let asked = Asked { attempt, operation: request.operation(), sent: now.boot };
        self.in_flight = Some(Flight { slot, asked });
        common.act(Action::Request { slot: slot.unwrap_or_default(), id: RequestId(self.sent), request });
    }

    pub(crate) const fn is_awaiting(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Returns the write whose answer is awaited.
    pub(crate) fn awaited_attempt(&self) -> Option<&Attempt> {
        self.in_flight.as_ref()?.asked.attempt.as_ref()
    }

    /// Takes the request of the answer `id`. None if that answer is not awaited.
    pub(crate) fn answered(&mut self, id: RequestId) -> Option<Flight> {
        let latest = RequestId(self.sent);
        self.in_flight.take_if(|_| id == latest)
    }

    /// Awaits no answer any more. One that comes later decides nothing.
    pub(crate) fn forgo_answer(&mut self) {
        self.in_flight = None;
    }

    /// Notes that a request has succeeded.
    pub(crate) const fn succeeded(&mut self, now: Instant) {
        self.retry = Paced { times: 0, not_before: now };
        (self.credentials_refused, self.is_wanted) = (false, false);
    }

    /// Notes that a follower's request has failed, and when the next one may be sent.
    pub(crate) const fn failed(&mut self, retry_at: Instant) {
        self.retry = self.retry.until(retry_at);
        self.is_wanted = true;
    }

    /// Notes that the watch has brought a new version. A request that was refused for long is tried again within R (law 16).
    pub(crate) fn heard(&mut self, timing: Timing, now: Instant) {
        self.retry.not_before = self.retry.not_before.min(now + timing.renew_period);
    }

    pub(crate) const fn want_read(&mut self) {
        self.is_wanted = true;
    }

    pub(crate) const fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// Returns the instant before which a follower sends no request.
    pub(crate) const fn retry_at(&self) -> Instant {
        self.retry.not_before
    }

    pub(crate) fn has_asked_since(&self, at: Instant) -> bool {
        self.asked >= at
    }

    /// Notes that the credentials were refused. Returns true the first time since a request succeeded: the edge reads them again,
    /// and one attempt follows at once (law 5).
    pub(crate) const fn note_refused_credentials(&mut self) -> bool {
        !std::mem::replace(&mut self.credentials_refused, true)
    }

    /// Makes a follower read at once.
    pub(crate) const fn retry_now(&mut self, now: Instant) {
        (self.retry.not_before, self.is_wanted) = (now, true);
    }

    /// Returns when a follower reads a Lease of which the watch brings nothing: soon after the watch should have brought the next
    /// renewal, and every R from then on, so that a dead watch delays a takeover by R at most (law 16). In the quiet time of a
    /// task the Lease is read only to keep the connection open.
    pub(crate) fn next_read(&self, heard: Instant, quiet: Option<[Instant; 2]>, period: Duration) -> Instant {
        if let Some([_, due]) = quiet.filter(|[since, due]| self.has_asked_since(*since) && !self.has_asked_since(*due)) {
            return due.min(self.asked + KEEP_WARM).max(self.retry_at());
        }
        let silent = if heard >= self.asked { heard + period + period / 10 } else { self.asked + period };
        silent.min(self.asked + KEEP_WARM).max(self.retry_at())
    }

    /// Makes a follower read this Lease by its name.
    pub(crate) fn look_for(&mut self, slot: Slot) {
        if !self.lists.by_name.contains(&slot) {
            self.lists.by_name.push_back(slot);
        }
    }

    /// Returns when the next read by name is due, if that does not depend on what is known of the Leases.
    pub(crate) fn next_by_name(&self, period: Duration) -> Option<Instant> {
        if !self.lists.by_name.is_empty() {
            return Some(self.retry_at().max(self.lists.by_name_after));
        }
        // All Leases together get as many reads as one would.
        self.lists.forbidden_until.map(|_| (self.asked + period).max(self.retry_at()))
    }

    /// Notes that a read by name has failed. Where lists succeed, the next one is sent `after` this.
    pub(crate) fn failed_by_name(&mut self, after: Instant) {
        if self.lists.forbidden_until.is_none() {
            self.lists.by_name_after = after;
        }
    }

    /// Returns the one of `count` Leases that is read next; none: a list reads all of them.
    pub(crate) fn take_next(&mut self, count: u8, now: Instant) -> Option<Slot> {
        if count == 1 {
            return Some(Slot::default());
        }
        let may_list = self.lists.forbidden_until.is_none_or(|until| until <= now);
        self.lists.by_name.pop_front().or_else(|| (!may_list).then(|| self.take_turn(count)))
    }

    /// Returns the one of `count` Leases whose turn it is.
    pub(crate) const fn take_turn(&mut self, count: u8) -> Slot {
        let turn = self.lists.turn % count;
        self.lists.turn = turn + 1;
        Slot(turn)
    }

    /// Notes that lists are forbidden. Returns true if they were not before.
    pub(crate) fn forbid_lists(&mut self, now: Instant) -> bool {
        self.is_wanted = true;
        self.lists.forbidden_until.replace(now + LIST_AGAIN).is_none()
    }

    /// Returns true if lists were forbidden, and notes that they are not.
    pub(crate) const fn allow_lists(&mut self) -> bool {
        self.lists.forbidden_until.take().is_some()
    }
}
