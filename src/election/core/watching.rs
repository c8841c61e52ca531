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

#[derive(Clone, Debug)]
pub(super) struct Watch {
    state: State,
    /// Consecutive watches that failed early.
    failures: u32,
    /// The version to resume from.
    version: Option<String>,
}

#[derive(Clone, Copy, Debug)]
enum State {
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

impl Watch {
    pub(super) const fn new() -> Self {
        Self { state: State::Idle { at: Instant::BOOT, read_first: true }, failures: 0, version: None }
    }

    /// A read has provided a version to watch from; none: there is no Lease.
    pub(super) fn resumes_from(&mut self, version: Option<&str>) {
        self.version = version.map(str::to_owned);
        if let State::Idle { read_first, .. } = &mut self.state {
            *read_first = false;
        }
    }
}

impl Core {
    /// Takes in a watch event; returns the record if it was news. A deletion is passed on even if that Lease was not the last one
    /// seen: an old event of another may have come in between.
    pub(crate) fn watched(&mut self, watched: Watched, now: Now) -> Option<News> {
        self.note_recovery(&watched, now);
        if let (State::Running { brought, .. }, Watched::Changed(_) | Watched::Deleted(_) | Watched::Bookmark(_)) =
            (&mut self.watch.state, &watched)
        {
            *brought = true;
        }
        match watched {
            Watched::Changed(object) => {
                let record = LeaseRecord::read(object)?;
                self.watch.version = Some(record.resource_version().to_owned());
                let is_news = self.observation.watched(record.clone(), now);
                self.hand_on();
                if !is_news {
                    return None;
                }
                self.pacing.heard(self.timing, now.boot);
                self.report_seen(Some(&record));
                Some(News::Changed(record))
            }
            Watched::Deleted(object) => {
                let record = LeaseRecord::read(object)?;
                self.watch.version = Some(record.resource_version().to_owned());
                if self.observation.deleted(&record, now.boot) {
                    self.pacing.heard(self.timing, now.boot);
                    self.hand_on();
                    self.report_seen(None);
                }
                Some(News::Deleted(record))
            }
            Watched::Bookmark(version) => {
                self.watch.version = Some(version);
                None
            }
            Watched::Ended(end) => {
                self.watch_ended(end, now);
                None
            }
        }
    }

    fn watch_ended(&mut self, end: WatchEnd, now: Now) {
        let State::Running { started, brought } = self.watch.state else { return };
        let (read_first, forbidden) = match end {
            WatchEnd::Closed => (false, false),
            WatchEnd::Forbidden(_) => (true, true),
            WatchEnd::Failed(_) => (true, false),
        };
        let failures = if now.boot.since(started) < WORKED { self.watch.failures } else { 0 };
        let slowing = doubled(LEAST_BETWEEN_WATCHES, failures, LONGEST_WATCH_PAUSE);
        let pause = if forbidden { LONGEST_WATCH_PAUSE } else { slowing };
        self.watch.state = State::Idle { at: (started + pause).max(now.boot), read_first };
        // What ends at once each time, as behind a proxy that holds streams back, is no watch either.
        let in_vain = read_first || !brought && now.boot.since(started) < WORKED;
        self.watch.failures = if in_vain { failures.saturating_add(1) } else { 0 };
        // What it missed is read at once. If watches keep failing, the reads keep their pace.
        if read_first && !forbidden && failures == 0 {
            self.pacing.want_read();
        }
        match end {
            WatchEnd::Closed => {}
            WatchEnd::Forbidden(message) | WatchEnd::Failed(message) => self.report_failure(Operation::Watch, now.boot, message),
        }
    }

    /// A watch that keeps failing after a few events has not recovered.
    fn note_recovery(&mut self, watched: &Watched, now: Now) {
        let State::Running { started, .. } = self.watch.state else { return };
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
        if let State::Idle { at, read_first: false } = self.watch.state
            && at <= now.boot
        {
            self.watch.state = State::Running { started: now.boot, brought: false };
            self.act(Action::Watch { resource_version: self.watch.version.clone() });
        }
    }

    /// When the watch is due, if no read is needed first.
    pub(crate) const fn watch_timeout(&self) -> Option<Instant> {
        match self.watch.state {
            State::Idle { at, read_first: false } => Some(at),
            State::Idle { read_first: true, .. } | State::Running { .. } => None,
        }
    }
}
