//! The watch: when one starts, its events, how it ends, and what follows a 410 (law 16).

use std::time::Duration;

use super::Reader;
use crate::{
    election::{Action, common::Common, pace::doubled, record::later},
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
pub(crate) struct Watch {
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

impl Watch {
    pub(super) const fn new() -> Self {
        Self { state: WatchState::Idle { at: Instant::BOOT, read_first: true }, failures: 0, version: None }
    }

    /// Notes that the Leases were read, so that no missed event matters.
    pub(crate) const fn caught_up(&mut self) {
        if let WatchState::Idle { read_first, .. } = &mut self.state {
            *read_first = false;
        }
    }

    /// Notes the version of a list, from which the next watch starts.
    pub(crate) fn listed(&mut self, version: String) {
        if matches!(self.state, WatchState::Idle { .. }) {
            self.version = Some(version);
        }
    }

    /// Notes a version that the watch has brought.
    pub(crate) fn brought(&mut self, version: &str) {
        if self.version.as_ref().is_none_or(|known| later(version, known)) {
            self.version = Some(version.to_owned());
        }
    }

    /// Returns when the watch is due, if no read is needed first.
    pub(crate) const fn due(&self) -> Option<Instant> {
        match self.state {
            WatchState::Idle { at, read_first: false } => Some(at),
            WatchState::Idle { read_first: true, .. } | WatchState::Running { .. } => None,
        }
    }
}

impl Reader {
    /// Starts the watch if it is due.
    pub(crate) fn tick_watch(&mut self, common: &mut Common, now: Now) {
        if self.watch.due().is_some_and(|at| at <= now.boot) {
            self.watch.state = WatchState::Running { started: now.boot, brought: false };
            common.act(Action::Watch { resource_version: self.watch.version.clone() });
        }
    }

    /// Takes in what an event says of the watch itself. Reports that the watch has recovered; one that fails again after a few
    /// events has not.
    pub(crate) fn watched(&mut self, common: &mut Common, watched: &Watched, now: Now) {
        let WatchState::Running { started, brought } = &mut self.watch.state else { return };
        let (works, end) = match watched {
            Watched::Changed(_) | Watched::Deleted(_) | Watched::Bookmark(_) => {
                *brought = true;
                (now.boot.since(*started) >= LONGEST_WATCH_PAUSE, None)
            }
            Watched::Ended(end) => (*end == WatchEnd::Closed, Some(end)),
        };
        if works {
            let failed = common.expect_success(Operation::Watch);
            common.report_recovery(Operation::Watch, failed);
        }
        let (started, brought) = (*started, *brought);
        if let Some(end) = end {
            self.watch_ended(common, end, started, brought, now);
        }
    }

    fn watch_ended(&mut self, common: &mut Common, end: &WatchEnd, started: Instant, brought: bool, now: Now) {
        let read_first = matches!(end, WatchEnd::Failed(_));
        let has_worked = now.boot.since(started) >= WORKED;
        let failures = if has_worked { 0 } else { self.watch.failures };
        // A server that has just started refuses everything with 403 until it has read its roles.
        let pause = doubled(LEAST_BETWEEN_WATCHES, failures, LONGEST_WATCH_PAUSE);
        self.watch.state = WatchState::Idle { at: (started + pause).max(now.boot), read_first };
        // A watch that ends at once each time counts as failed too. A proxy that holds streams back causes that.
        let in_vain = read_first || !brought && !has_worked;
        self.watch.failures = if in_vain { failures.saturating_add(1) } else { 0 };
        if read_first {
            self.watch.version = None;
        }
        // Missed events are made up for by a read at once. If watches keep failing, the reads keep their pace.
        if read_first && failures == 0 {
            self.want_read();
        }
        match end {
            WatchEnd::Closed => {}
            // 410: the server has forgotten the version. That is a failure only if it happens again and again.
            WatchEnd::Failed(RequestError { status: Some(410), .. }) if failures == 0 => {}
            WatchEnd::Failed(message) => {
                common.report_failure(Operation::Watch, now.boot, message.clone());
            }
        }
    }
}
