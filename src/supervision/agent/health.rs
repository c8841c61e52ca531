//! The workload's notifications, and the report of its health to the elector.

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
    ready: bool,
    status: String,
    /// The elector has sent a message since the last change was reported. Until then no further one is, so that a workload that
    /// changes often does not flood the link.
    pub(super) is_heard: bool,
}

impl ToldHealth {
    pub(super) const fn with(ready: bool) -> Self {
        Self { ready, status: String::new(), is_heard: true }
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
            && !self.shutdown.as_ref().is_some_and(Shutdown::is_urgent)
        {
            self.workload.extend_stop(now + span);
        }
        self.workload.health.notified(&said, now);
        if let Notification::Status(status) = said {
            self.status = status;
        }
    }

    /// Reports a change of readiness to the elector. A change of `STATUS` alone is reported only when the elector has just sent a
    /// message, which is often enough.
    pub(super) fn tell_health(&mut self, has_spoken: bool) {
        let config = &self.config.config.workload;
        let is_idle = config.runs == Runs::Leading && self.term.is_none();
        let is_asked = !is_idle && config.readiness.handler().is_some();
        let unready = if is_asked { self.workload.unready().map(str::to_owned) } else { None };
        let ToldHealth { ready, status, is_heard } = &self.told_health;
        let changes = unready.is_none() != *ready;
        if self.electors.is_alive() && *is_heard && (changes || has_spoken && self.status != *status) {
            self.told_health = ToldHealth { ready: unready.is_none(), status: self.status.clone(), is_heard: !changes };
            self.tell(ToElector::Health { unready, status: self.status.clone() });
        }
    }
}
