//! Reports about the Lease, each state once.

use super::One;
use crate::{
    election::{
        Event,
        record::{LeaseRecord, LeaseState},
    },
    time::Instant,
};

impl One<'_> {
    pub(super) fn report_warning(&mut self, record: &LeaseRecord) {
        let odd = record.warning(Some(&self.common.writer.identity));
        if odd != self.lease.warning
            && let Some(message) = odd
        {
            self.common.report(Event::Odd { message: message.into() });
        }
        self.lease.warning = odd;
    }

    /// Reports the Lease as it was read, or found absent.
    pub(super) fn report_observed(&mut self, record: Option<&LeaseRecord>) {
        let nobody = record.filter(|record| record.state() == LeaseState::Nobody).map(|record| {
            let wait = self.lease.observation.wait_for_nobody(record.duration().unwrap_or_default());
            self.common.timing.takeable(Instant::BOOT, wait).since(Instant::BOOT)
        });
        self.common.report(Event::Observed { slot: self.lease.slot, record: record.cloned(), nobody });
        if let Some(record) = record {
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
