//! The workload's notifications, and the report of its health to the elector.

use std::time::Duration;

use super::{Agent, shutdown::Shutdown};
use crate::{
    config::Runs,
    link::{Reason, ToElector},
    notification::Notification,
    supervision::term::ActiveTerm,
    time::Instant,
};

/// The last report to the elector.
#[derive(Clone, Debug, Hash)]
pub(super) struct ToldHealth {
    unready: Option<String>,
    status: String,
    /// The elector has sent a message since the last change was reported. Until then no further one is, so that a workload that
    /// changes often does not flood the link.
    pub(super) is_heard: bool,
    /// Since when, and how many, changes were reported of the [`CHANGES`] within a [`WHILE`].
    since: Instant,
    changes: u32,
    /// How many other reasons were reported since the last change.
    reasons: u32,
}

/// Limit on the reports of a change of readiness within a [`WHILE`]. Each costs a log line and a write of the EndpointSlice.
const CHANGES: u32 = 5;
const WHILE: Duration = Duration::from_secs(5);
/// From the last report, to within [`WHILE`], to one of another reason alone, once there were [`CHANGES`] of these.
const REASONS: Duration = Duration::from_secs(60);

impl ToldHealth {
    pub(super) const fn with(ready: bool) -> Self {
        let unready = if ready { None } else { Some(String::new()) };
        Self { unready, status: String::new(), is_heard: true, since: Instant::BOOT, changes: 0, reasons: 0 }
    }

    /// Returns from when on the next change may be reported.
    fn next_at(&self) -> Instant {
        if self.changes < CHANGES { Instant::BOOT } else { self.since + WHILE }
    }
}

impl Agent {
    /// Takes a notification of the workload.
    pub(super) fn notified(&mut self, said: Notification, now: Instant) {
        if self.workload.is_standby_command() {
            return;
        }
        // The workload must not extend a stop whose length the Lease, or a second signal, has set.
        let is_lost = self.term.as_ref().and_then(ActiveTerm::stopping).is_some_and(Reason::is_loss);
        if let Notification::ExtendTimeout(span) = said
            && !is_lost
            && !self.shutdown.as_ref().is_some_and(Shutdown::is_hastened)
        {
            self.workload.extend_stop(now + span);
        }
        self.workload.health.notified(&said, now);
        if let Notification::Status(status) = said {
            self.status = status;
        }
    }

    /// Reports a change of readiness to the elector, unless there were too many. A change of `STATUS` alone is reported only when the
    /// elector has just sent a message, which is often enough. So is another reason why the workload is not ready; after [`CHANGES`]
    /// of these one in [`REASONS`], because probes may fail in two ways by turns.
    pub(super) fn tell_health(&mut self, has_spoken: bool, now: Instant) {
        let unready = self.unready();
        let told = &self.told_health;
        let is_change = unready.is_some() != told.unready.is_some();
        let may_explain = told.reasons < CHANGES || told.since + REASONS <= now;
        let is_other = self.status != told.status || unready != told.unready && may_explain;
        let is_due = if is_change { told.next_at() <= now } else { has_spoken && is_other };
        if self.electors.is_alive() && told.is_heard && is_due {
            let (since, changes) = if told.since + WHILE <= now { (now, 0) } else { (told.since, told.changes) };
            let reasons = if is_change { 0 } else { told.reasons + u32::from(unready != told.unready) };
            self.told_health = ToldHealth {
                unready: unready.clone(),
                status: self.status.clone(),
                is_heard: !is_change,
                since,
                changes: changes + u32::from(is_change),
                reasons,
            };
            self.tell(ToElector::Health { unready, status: self.status.clone() });
        }
    }

    /// Returns when a change of readiness is to be reported, if that waits for nothing else.
    pub(super) fn health_due(&self) -> Option<Instant> {
        let told = &self.told_health;
        let waits = told.is_heard && self.electors.is_alive() && self.unready().is_some() != told.unready.is_some();
        waits.then(|| told.next_at())
    }

    /// Returns why the workload is not ready, if it is asked and is not.
    fn unready(&self) -> Option<String> {
        let config = &self.config.config.workload;
        let is_idle = config.runs == Runs::Leading && self.term.is_none();
        let is_asked = !is_idle && config.readiness.handler().is_some();
        if is_asked { self.workload.unready().map(str::to_owned) } else { None }
    }
}
