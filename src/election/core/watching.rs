//! The watch as a phase sees it: when one starts, what its events bring, how it ends (law 16).

use std::time::Duration;

use super::{Core, doubled};
use crate::{
    election::{Action, Operation, WatchEnd, Watched, record::LeaseRecord},
    time::{Instant, Now},
};

/// The least time between the starts of two watches.
const LEAST_BETWEEN_WATCHES: Duration = Duration::from_secs(1);
/// A watch that is forbidden, or keeps failing, is tried again after this long at most.
const LONGEST_WATCH_PAUSE: Duration = Duration::from_secs(60);
/// A watch that lasted this long has worked.
const WORKED: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug)]
pub(super) enum Watch {
    /// Not yet started, or ended: start no earlier than `at`, and after a read if the last version cannot be trusted.
    Idle { at: Instant, read_first: bool },
    Running {
        started: Instant,
        /// It has brought anything.
        brought: bool,
    },
}

/// News from the watch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum News {
    Changed(LeaseRecord),
    Deleted(LeaseRecord),
}

impl Core {
    /// Takes in a watch event; returns the record if it was news. A deletion is passed on even if that Lease was not the last one
    /// seen: an old event of another may have come in between.
    pub(crate) fn watched(&mut self, watched: Watched, now: Now) -> Option<News> {
        self.note_recovery(&watched, now);
        if let (Watch::Running { brought, .. }, Watched::Changed(_) | Watched::Deleted(_) | Watched::Bookmark(_)) =
            (&mut self.watch, &watched)
        {
            *brought = true;
        }
        match watched {
            Watched::Changed(object) => {
                let record = LeaseRecord::read(object)?;
                self.version = Some(record.resource_version().to_owned());
                let is_news = self.sight.watched(record.clone(), now.boot);
                self.overlooked &= self.sight.record().is_none_or(|seen| seen.resource_version() != record.resource_version());
                if !is_news {
                    return None;
                }
                self.has_heard(now);
                self.hand_on();
                self.report_holder(&record);
                Some(News::Changed(record))
            }
            Watched::Deleted(object) => {
                let record = LeaseRecord::read(object)?;
                self.version = Some(record.resource_version().to_owned());
                if self.sight.deleted(&record, now.boot) {
                    self.has_heard(now);
                    self.hand_on();
                }
                Some(News::Deleted(record))
            }
            Watched::Bookmark(version) => {
                self.version = Some(version);
                None
            }
            Watched::Ended(end) => {
                let Watch::Running { started, brought } = self.watch else { return None };
                let (read_first, forbidden) = match end {
                    WatchEnd::Closed => (false, false),
                    WatchEnd::Forbidden(_) => (true, true),
                    WatchEnd::Failed(_) => (true, false),
                };
                let failures = if now.boot.since(started) < WORKED { self.watch_failures } else { 0 };
                let slowing = doubled(LEAST_BETWEEN_WATCHES, failures, LONGEST_WATCH_PAUSE);
                let pause = if forbidden { LONGEST_WATCH_PAUSE } else { slowing };
                self.watch = Watch::Idle { at: (started + pause).max(now.boot), read_first };
                // What ends at once each time, as behind a proxy that holds streams back, is no watch either.
                let in_vain = read_first || !brought && now.boot.since(started) < WORKED;
                self.watch_failures = if in_vain { failures.saturating_add(1) } else { 0 };
                // What it missed is read at once. If watches keep failing, the reads keep their pace.
                if read_first && !forbidden && failures == 0 {
                    self.read_wanted = true;
                }
                match end {
                    WatchEnd::Closed => {}
                    WatchEnd::Forbidden(message) | WatchEnd::Failed(message) => {
                        self.report_failure(Operation::Watch, now.boot, message)
                    }
                }
                None
            }
        }
    }

    /// Takes in that a read brought `record`. If reads bring what changes, and the watch does not, that is started anew: a proxy may
    /// keep the connection of a watch that is dead.
    pub(crate) fn doubt_watch(&mut self, record: &LeaseRecord, now: Now) {
        let missed = self.sight.record().is_some_and(|seen| seen.resource_version() != record.resource_version());
        if missed
            && self.overlooked
            && let Watch::Running { started, .. } = self.watch
            && now.boot.since(started) >= LONGEST_WATCH_PAUSE
        {
            self.watch = Watch::Idle { at: now.boot, read_first: false };
        }
    }

    /// A watch that keeps failing after a few events has not recovered.
    fn note_recovery(&mut self, watched: &Watched, now: Now) {
        let Watch::Running { started, .. } = self.watch else { return };
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

    /// A read has provided a version to watch from.
    pub(super) fn read_for_watch(&mut self, now: Now) {
        if let Watch::Idle { read_first, .. } = &mut self.watch {
            *read_first = false;
        }
        self.tick_watch(now);
    }

    /// Starts the watch if it is due.
    pub(crate) fn tick_watch(&mut self, now: Now) {
        if let Watch::Idle { at, read_first: false } = self.watch
            && at <= now.boot
        {
            self.watch = Watch::Running { started: now.boot, brought: false };
            self.act(Action::Watch { resource_version: self.version.clone() });
        }
    }

    /// When the watch is due, if no read is needed first.
    pub(crate) const fn watch_timeout(&self) -> Option<Instant> {
        match self.watch {
            Watch::Idle { at, read_first: false } => Some(at),
            Watch::Idle { read_first: true, .. } | Watch::Running { .. } => None,
        }
    }
}
