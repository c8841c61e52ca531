//! What is known of how the workload is, and who is told.

use super::{Agent, shutdown::Shutdown};
use crate::{
    config::Runs,
    link::{Reason, ToElector},
    notification::Notification,
    supervision::term::ActiveTerm,
    time::Instant,
};

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
    /// spoken: that is often enough, and never too often.
    pub(super) fn tell_health(&mut self, has_spoken: bool) {
        let config = &self.config.config.workload;
        let is_idle = config.runs == Runs::Leading && self.term.is_none();
        let unready = self.workload.unready().filter(|_| !is_idle && config.readiness.means().is_some()).map(str::to_owned);
        let (was_ready, told) = &self.told_health;
        if self.electors.is_alive() && (unready.is_none() != *was_ready || has_spoken && self.status != *told) {
            self.told_health = (unready.is_none(), self.status.clone());
            self.tell(ToElector::Health { unready, status: self.status.clone() });
        }
    }
}
