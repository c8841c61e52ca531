//! When a Lease is written, a single one too, and which of several is next (law 18).
//!
//! While a write to one Lease is not settled, no other is written. A Lease that was given back comes first. Equal ones are written
//! in an order that differs between replicas.

use std::time::Duration;

use super::Following;
use crate::{
    election::{AcquireReason, core::Core, lease::Lease, observation::Eligibility, writes::STEP_DOWN_TO},
    slot::Slot,
    time::{Instant, Now},
};

/// The longest random wait before one of several Leases is written, so that replicas which see the same do not all write the same.
const SPREAD: Duration = Duration::from_millis(50);

/// The order in which Leases are written, the first first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Candidacy {
    Released,
    Expired,
    Free,
    /// Not free yet: the Lease must first be written as held by nobody (law 14).
    Vacant,
}

impl Following {
    /// Returns the Lease that may name this replica. If there is one, it has to be given back before the elector ends: by a term
    /// that ends as it begins.
    pub(super) fn busy(&self, core: &Core) -> Option<Slot> {
        let acquired = || core.leases.iter().find(|lease| lease.is_acquired_too_late()).map(|lease| lease.slot);
        self.unsettled.or_else(acquired)
    }

    /// Returns the Lease that is written now. One of several is planned first, unless it is the only one that may be written.
    pub(super) fn due(&mut self, core: &mut Core, now: Now) -> Option<Slot> {
        let next = self.candidates(core).filter(|(at, ..)| *at <= now.boot).map(|(_, order, slot)| (order, slot)).min();
        let next = next.map(|(_, slot)| slot);
        if core.count() == 1 || self.busy(core).is_some() {
            self.plan = None;
            return next;
        }
        if self.plan.map(|(planned, _)| planned) != next {
            self.plan = next.map(|next| (next, now.boot + core.common.part_of(SPREAD)));
        }
        self.plan.filter(|(_, at)| *at <= now.boot).map(|(planned, _)| planned)
    }

    /// Returns when the next write is due.
    pub(super) fn next_write(&self, core: &Core) -> Option<Instant> {
        self.plan.map(|(_, at)| at).or_else(|| self.candidates(core).map(|(at, ..)| at).min())
    }

    /// Returns when each Lease that may be written is due, and its place in the order.
    fn candidates(&self, core: &Core) -> impl Iterator<Item = (Instant, (Candidacy, u8), Slot)> {
        let (busy, count) = (self.busy(core), core.count());
        let own = move |lease: &&Lease| busy.map_or_else(|| !lease.has_given_up(), |busy| busy == lease.slot);
        core.leases.iter().filter(own).filter_map(move |lease| {
            let (at, candidacy) = self.candidacy(lease, core)?;
            let place = (lease.slot.0 + (count - core.first)) % count;
            Some((at, (candidacy, place), lease.slot))
        })
    }

    /// Returns when the next write of this Lease is due, and how it compares with the others. None: not until something changes.
    fn candidacy(&self, lease: &Lease, core: &Core) -> Option<(Instant, Candidacy)> {
        let not_before = lease.writes.not_before;
        let (at, candidacy) = match lease.eligibility() {
            Eligibility::Unknown | Eligibility::Closed => return None,
            Eligibility::Vacant { from: None, .. } => (not_before.max(self.creations.not_before), Candidacy::Vacant),
            Eligibility::Vacant { from: Some(_), .. } => (not_before, Candidacy::Vacant),
            // All replicas wait for the same due time, and another may have been faster. A read costs less than a write that
            // fails.
            Eligibility::Open { at, why: AcquireReason::Due, .. } if !core.reader.has_asked_since(at) => return None,
            Eligibility::Open { at, why, from, .. } => {
                let at = at + core.common.yield_delay().unwrap_or_default();
                // The pace of the writes for nobody does not delay a takeover.
                let retry = if lease.campaign.is_some() { not_before } else { Instant::BOOT };
                let is_named = from.annotation(STEP_DOWN_TO) == Some(&core.common.writer.identity);
                let others_until = if is_named { Instant::BOOT } else { core.common.lease_backoff.until };
                let candidacy = match why {
                    AcquireReason::Released | AcquireReason::Died | AcquireReason::Due => Candidacy::Released,
                    AcquireReason::Expired => Candidacy::Expired,
                    AcquireReason::Nobody | AcquireReason::Cleared => Candidacy::Free,
                };
                (at.max(retry).max(others_until), candidacy)
            }
        };
        Some((at.max(core.reader.retry_at()), candidacy))
    }
}
