//! The watch: when one starts, its events, and how it ends (law 16).

use std::time::Duration;

use super::{Core, doubled};
use crate::{
    election::{
        Action,
        record::{LeaseRecord, later},
    },
    request::{Operation, RequestError, WatchEnd, Watched},
    time::{Instant, Now},
};

/// The least time between the starts of two watches.
const LEAST_BETWEEN_WATCHES: Duration = Duration::from_secs(1);
/// A watch that is forbidden, or keeps failing, is tried again after this long at most.
const LONGEST_WATCH_PAUSE: Duration = Duration::from_secs(60);
/// A watch that lasted this long counts as working.
const WORKED: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, Hash)]
pub(super) struct Watch {
    state: WatchState,
    /// Consecutive watches that failed early.
    failures: u32,
    /// The version to resume from: the latest that the watch has brought since it last failed. The server may have forgotten the
    /// version of the Lease itself, if there were many writes of other Leases since.
    version: Option<String>,
}

#[derive(Clone, Copy, Debug, Hash)]
enum WatchState {
    /// Not started yet, or ended. The next one starts at `at`, after a read if events may have been missed.
    Idle { at: Instant, read_first: bool },
    Running {
        started: Instant,
        /// The watch has brought an event.
        brought: bool,
    },
}

/// A new version of the Lease that the watch brought.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum WatchEvent {
    Changed(LeaseRecord),
    Deleted(LeaseRecord),
}

impl Watch {
    pub(super) const fn new() -> Self {
        Self { state: WatchState::Idle { at: Instant::BOOT, read_first: true }, failures: 0, version: None }
    }

    /// Notes that the Lease was read, so that no missed event matters.
    pub(super) const fn caught_up(&mut self) {
        if let WatchState::Idle { read_first, .. } = &mut self.state {
            *read_first = false;
        }
    }

    fn brought(&mut self, version: &str) {
        if self.version.as_ref().is_none_or(|known| later(version, known)) {
            self.version = Some(version.to_owned());
        }
    }
}

impl Core {
    /// Takes in a watch event. Returns the record if it is new. A deletion is passed on even if it is about another uid than the
    /// last observed: an old event of another Lease may have come in between.
    pub(crate) fn watched(&mut self, watched: Watched, now: Now) -> Option<WatchEvent> {
        self.note_recovery(&watched, now);
        if let (WatchState::Running { brought, .. }, Watched::Changed(_) | Watched::Deleted(_) | Watched::Bookmark(_)) =
            (&mut self.watch.state, &watched)
        {
            *brought = true;
        }
        match watched {
            Watched::Changed(object) => {
                let record = LeaseRecord::read(object)?;
                self.watch.brought(record.resource_version());
                let is_news = self.observation.watched(record.clone(), now);
                self.hand_on();
                if !is_news {
                    return None;
                }
                self.backoff.heard(self.timing, now.boot);
                self.report_observed(Some(&record));
                Some(WatchEvent::Changed(record))
            }
            Watched::Deleted(object) => {
                let record = LeaseRecord::read(object)?;
                self.watch.brought(record.resource_version());
                if self.observation.deleted(&record, now.boot) {
                    self.backoff.heard(self.timing, now.boot);
                    self.hand_on();
                    self.report_observed(None);
                }
                Some(WatchEvent::Deleted(record))
            }
            Watched::Bookmark(version) => {
                self.watch.brought(&version);
                None
            }
            Watched::Ended(end) => {
                self.watch_ended(end, now);
                None
            }
        }
    }

    fn watch_ended(&mut self, end: WatchEnd, now: Now) {
        let WatchState::Running { started, brought } = self.watch.state else { return };
        let (read_first, forbidden) = match end {
            WatchEnd::Closed => (false, false),
            WatchEnd::Forbidden(_) => (true, true),
            WatchEnd::Failed(_) => (true, false),
        };
        let failures = if now.boot.since(started) < WORKED { self.watch.failures } else { 0 };
        let slowing = doubled(LEAST_BETWEEN_WATCHES, failures, LONGEST_WATCH_PAUSE);
        let pause = if forbidden { LONGEST_WATCH_PAUSE } else { slowing };
        self.watch.state = WatchState::Idle { at: (started + pause).max(now.boot), read_first };
        // A watch that ends at once each time counts as failed too. A proxy that holds streams back causes that.
        let in_vain = read_first || !brought && now.boot.since(started) < WORKED;
        self.watch.failures = if in_vain { failures.saturating_add(1) } else { 0 };
        self.watch.version.take_if(|_| read_first);
        // Missed events are made up for by a read at once. If watches keep failing, the reads keep their pace.
        if read_first && !forbidden && failures == 0 {
            self.backoff.want_read();
        }
        match end {
            WatchEnd::Closed => {}
            // 410: the server has forgotten the version. That is a failure only if it happens again and again.
            WatchEnd::Failed(RequestError { status: Some(410), .. }) if failures == 0 => {}
            WatchEnd::Forbidden(message) | WatchEnd::Failed(message) => self.report_failure(Operation::Watch, now.boot, message),
        }
    }

    /// Reports that the watch has recovered. One that fails again after a few events has not.
    fn note_recovery(&mut self, watched: &Watched, now: Now) {
        let WatchState::Running { started, .. } = self.watch.state else { return };
        let works = match watched {
            Watched::Changed(_) | Watched::Deleted(_) | Watched::Bookmark(_) => now.boot.since(started) >= LONGEST_WATCH_PAUSE,
            Watched::Ended(WatchEnd::Closed) => true,
            Watched::Ended(WatchEnd::Forbidden(_) | WatchEnd::Failed(_)) => false,
        };
        if works {
            let failed = self.expect_success(Operation::Watch);
            self.report_recovery(Operation::Watch, failed);
        }
    }

    /// Starts the watch if it is due.
    pub(crate) fn tick_watch(&mut self, now: Now) {
        if let WatchState::Idle { at, read_first: false } = self.watch.state
            && at <= now.boot
        {
            self.watch.state = WatchState::Running { started: now.boot, brought: false };
            self.act(Action::Watch { resource_version: self.watch.version.clone() });
        }
    }

    /// Returns when the watch is due, if no read is needed first.
    pub(crate) const fn watch_timeout(&self) -> Option<Instant> {
        match self.watch.state {
            WatchState::Idle { at, read_first: false } => Some(at),
            WatchState::Idle { read_first: true, .. } | WatchState::Running { .. } => None,
        }
    }
}
