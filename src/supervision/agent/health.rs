//! What is known of how the workload is, and who is told.

use super::{Agent, shutdown::Shutdown};
use crate::{
    config::Runs,
    link::{Reason, ToElector},
    notification::Notification,
    supervision::term::ActiveTerm,
    time::Instant,
};

/// What the elector was last told.
#[derive(Clone, Debug)]
pub(super) struct ToldHealth {
    ready: bool,
    status: String,
    /// It has spoken since it was told of a change. Until then it is told nothing further, however often a workload changes its mind.
    pub(super) is_heard: bool,
}

impl ToldHealth {
    pub(super) const fn with(ready: bool) -> Self {
        Self { ready, status: String::new(), is_heard: true }
    }
}

impl Agent {
    /// The workload said it.
    pub(super) fn notified(&mut self, said: Notification, now: Instant) {
        if self.workload.is_standby_command() {
            return;
        }
        // The Lease's limits, and those of somebody in a hurry, are no matter of its.
        let is_lost = self.term.as_ref().and_then(ActiveTerm::stopping).is_some_and(Reason::is_loss);
        if let Notification::ExtendTimeout(span) = said
            && !is_lost
            && !self.shutdown.as_ref().is_some_and(Shutdown::is_urgent)
        {
            self.workload.take_longer(now + span);
        }
        self.workload.health.notified(&said, now);
        if let Notification::Status(status) = said {
            self.status = status;
        }
    }

    /// Tells the elector what has changed; of what the workload says of itself only the latest, and only when the elector has just
    /// spoken, because that is often enough.
    pub(super) fn tell_health(&mut self, has_spoken: bool) {
        let config = &self.config.config.workload;
        let is_idle = config.runs == Runs::Leading && self.term.is_none();
        let unready = self.workload.unready().filter(|_| !is_idle && config.readiness.means().is_some()).map(str::to_owned);
        let ToldHealth { ready, status, is_heard } = &self.told_health;
        let changes = unready.is_none() != *ready;
        if self.electors.is_alive() && *is_heard && (changes || has_spoken && self.status != *status) {
            self.told_health = ToldHealth { ready: unready.is_none(), status: self.status.clone(), is_heard: !changes };
            self.tell(ToElector::Health { unready, status: self.status.clone() });
        }
    }
}
