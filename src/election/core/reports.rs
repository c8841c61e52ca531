//! Reports about the Lease and about requests, each state once.

use std::collections::BTreeMap;

use super::Core;
use crate::{
    election::{
        Event,
        record::{LeaseRecord, LeaseState},
        writes::{STEP_DOWN, STEP_DOWN_TO},
    },
    request::{Operation, RequestError},
    time::Instant,
};

#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Reports {
    /// The operations whose last request failed, and why.
    failing: BTreeMap<Operation, RequestError>,
    holder: Option<String>,
    warning: Option<&'static str>,
}

impl Core {
    pub(crate) fn report_failure(&mut self, operation: Operation, sent: Instant, message: RequestError) {
        self.reports.failing.insert(operation, message.clone());
        self.report(Event::Failed { operation, sent, message });
    }

    /// Counts `operation` as succeeding until a failure is reported. Returns whether it was failing.
    pub(crate) fn expect_success(&mut self, operation: Operation) -> bool {
        self.reports.failing.remove(&operation).is_some()
    }

    /// Reports that an operation which `failed` before has recovered, unless it has failed again.
    pub(crate) fn report_recovery(&mut self, operation: Operation, failed: bool) {
        if failed && !self.reports.failing.contains_key(&operation) {
            self.report(Event::Recovered { operation });
        }
    }

    /// Returns why the last read or the last `write` failed, a denial first. Other writes do not count: they may have failed long
    /// ago, for another Lease.
    pub(crate) fn failure(&self, write: Option<Operation>) -> Option<&RequestError> {
        let needed = [Some(Operation::Get), Some(Operation::List), write];
        let failing = || self.reports.failing.iter().filter(|(operation, _)| needed.contains(&Some(**operation)));
        failing().find(|(_, error)| error.is_forbidden()).or_else(|| failing().next()).map(|(_, error)| error)
    }

    pub(super) fn report_warning(&mut self, record: &LeaseRecord) {
        let odd = warning(record, Some(&self.writer.identity));
        if let Some(message) = odd.filter(|_| odd != self.reports.warning) {
            self.report(Event::Odd { message: message.into() });
        }
        self.reports.warning = odd;
    }

    /// Reports the Lease as it was read, or found absent.
    pub(super) fn report_observed(&mut self, record: Option<&LeaseRecord>) {
        let nobody = record.filter(|record| record.state() == LeaseState::Nobody).map(|record| {
            let wait = self.observation.wait_for_nobody(record.duration().unwrap_or_default());
            self.timing.takeable(Instant::BOOT, wait).since(Instant::BOOT)
        });
        self.report(Event::Observed { slot: self.slot, record: record.cloned(), nobody });
        if let Some(record) = record {
            self.report_holder(record);
        }
    }

    fn report_holder(&mut self, record: &LeaseRecord) {
        let Some(holder) = record.holder().filter(|_| record.state() == LeaseState::Held) else { return };
        if holder == self.writer.identity {
            self.reports.holder = None;
            return;
        }
        if self.reports.holder.as_deref() == Some(holder) {
            return;
        }
        let holder = holder.to_owned();
        self.reports.holder = Some(holder.clone());
        self.report(Event::NewLeader { slot: self.slot, holder });
    }
}

/// Returns a warning if replicas wait for the Lease, or leave it alone, in a way that the user of `me` would not expect.
pub(crate) fn warning(record: &LeaseRecord, me: Option<&str>) -> Option<&'static str> {
    let is_held = record.state() == LeaseState::Held;
    let asked = record.annotation(STEP_DOWN).is_some_and(|holder| is_held && !record.is_held_by(holder));
    let promised = record.annotation(STEP_DOWN_TO).is_some_and(|candidate| !is_held && Some(candidate) != me);
    if record.is_being_deleted() {
        Some("the Lease is being deleted and waits for its finalizers: nobody acquires it before it is gone")
    } else if record.is_paused() {
        Some("the Lease is paused by its annotation tenure.dev/paused: nobody takes it but the holder that it names")
    } else if is_held && record.duration().is_none() {
        Some("the Lease is held without a valid leaseDurationSeconds: it is taken only after the longest known duration")
    } else if record.strategy().is_some() {
        Some("the Lease has a strategy, so a coordinator appoints its holders: tenure takes it only as its preferredHolder")
    } else if promised {
        Some(
            "the Lease is free for the replica that its annotation tenure.dev/step-down-to names: the others wait for lease.duration",
        )
    } else if asked {
        Some("the annotation tenure.dev/step-down of the Lease does not name its holder in full, so nobody steps down")
    } else {
        None
    }
}
