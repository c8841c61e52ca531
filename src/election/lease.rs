//! What is known of one Lease.
//!
//! Owns no decision: it keeps what the observation, the unanswered writes, the campaign and the reports of one Lease are. What is
//! known of one Lease says nothing of another (law 18).

use super::{
    asked::Attempt,
    observation::{Eligibility, Observation},
    pace::Paced,
    record::{LeaseRecord, later},
    trace::TraceContext,
    wait_limit::WaitLimit,
    writes::STEP_DOWN_TO,
};
use crate::{link::LastSeen, slot::Slot, time::Instant};

/// How many unanswered writes are remembered, so that no outage exhausts memory. A write that was forgotten and is still stored
/// counts as a stranger's and is waited for, which is safe (law 13).
const MOST_UNANSWERED: usize = 100;

#[derive(Clone, Debug, Hash)]
pub(crate) struct Lease {
    pub(crate) slot: Slot,
    pub(crate) observation: Observation,
    /// The observation that init holds for the next elector.
    pub(super) handed_on: LastSeen,
    pub(crate) unanswered: Unanswered,
    /// The attempt to lead, until a term begins or somebody else was faster.
    pub(crate) campaign: Option<Campaign>,
    /// The pace of a follower's writes.
    pub(crate) writes: Paced,
    /// When this replica last asked the holder to hand over, and the request was stored, undone or forbidden.
    pub(super) asked: Instant,
    /// The version onto which it wrote such a request, which may be stored without an answer. None: no Lease can have it any more.
    pub(super) asked_on: Option<String>,
    /// When the watch last brought a new version.
    pub(super) heard: Instant,
    /// None: the wait for the Lease has no limit.
    pub(crate) wait_limit: Option<WaitLimit>,
    /// The other holder that was reported last.
    pub(super) holder: Option<String>,
    /// The warning that was reported last.
    pub(super) warning: Option<&'static str>,
}

/// An attempt to lead. All its writes share a span.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Campaign {
    pub(crate) context: TraceContext,
    /// The number of changes that its last write was based on.
    pub(crate) changes: u64,
    /// The record that acquired the Lease after S had passed, or after a later version was seen. It begins no term, and is
    /// written again (law 12).
    pub(crate) outdated: Option<LeaseRecord>,
}

/// The acquisitions and renewals whose outcome is unknown (law 6).
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Unanswered(Vec<Attempt>);

impl Lease {
    /// Begins without a read of the Lease.
    pub(crate) fn new(slot: Slot, observation: Observation, wait_limit: Option<WaitLimit>) -> Self {
        Self {
            slot,
            handed_on: observation.last_seen(),
            observation,
            unanswered: Unanswered::default(),
            campaign: None,
            writes: Paced::default(),
            asked: Instant::BOOT,
            asked_on: None,
            heard: Instant::BOOT,
            wait_limit,
            holder: None,
            warning: None,
        }
    }

    /// Returns what the law allows a follower.
    pub(crate) fn eligibility(&self) -> Eligibility {
        self.observation.eligibility(self.campaign.as_ref().and_then(|campaign| campaign.outdated.as_ref()))
    }

    /// Returns when the Lease may be taken, or its task's next run is due.
    pub(crate) fn free_at(&self) -> Option<Instant> {
        match self.eligibility() {
            Eligibility::Open { due, .. } => Some(due),
            Eligibility::Unknown | Eligibility::Closed | Eligibility::Vacant { .. } => None,
        }
    }

    /// Returns true if the Lease names this replica, which has acquired it too late to lead by that.
    pub(crate) fn is_acquired_too_late(&self) -> bool {
        let is_outdated = self.campaign.as_ref().is_some_and(|campaign| campaign.outdated.is_some());
        is_outdated && matches!(self.eligibility(), Eligibility::Open { .. })
    }

    /// Returns true if the wait for this Lease is over, without it.
    pub(crate) fn has_given_up(&self) -> bool {
        self.wait_limit.as_ref().is_some_and(|limit| limit.has_given_up)
    }

    /// Forgets its request to hand over once a later version does not name it: what names it after that is somebody else's.
    pub(super) fn forget_request(&mut self, me: &str) {
        let Some(record) = self.observation.record() else { return };
        if record.annotation(STEP_DOWN_TO) != Some(me) {
            self.asked_on.take_if(|version| later(record.resource_version(), version));
        }
    }

    /// Returns true if the last version may come from an unanswered write. A read will tell.
    pub(crate) fn may_show_own_write(&self) -> bool {
        self.observation.record().is_some_and(|record| self.unanswered.0.iter().any(|attempt| attempt.is(record)))
    }
}

impl Unanswered {
    /// Remembers a write without an answer: a read may find it stored (law 6).
    pub(crate) fn remember(&mut self, attempt: Attempt) {
        if self.0.len() == MOST_UNANSWERED {
            self.0.remove(0);
        }
        self.0.push(attempt);
    }

    /// Returns the unanswered write that a quorum read of `record` proves.
    pub(crate) fn proved_by(&self, record: &LeaseRecord) -> Option<Attempt> {
        self.0.iter().find(|attempt| attempt.is_proved_by(record) && attempt.left_its_span_on(record)).cloned()
    }

    /// Forgets the writes that can no longer be stored, because the version that they replace is gone.
    pub(crate) fn forget_overtaken(&mut self, record: &LeaseRecord) {
        self.0.retain(|attempt| attempt.base() == Some(record.resource_version()));
    }

    /// Forgets all writes: no later read proves one of them.
    pub(crate) fn forget_all(&mut self) {
        self.0.clear();
    }

    /// Returns the latest renewTime, in microseconds.
    pub(crate) fn latest_time(&self) -> Option<i64> {
        self.0.iter().filter_map(Attempt::time).max()
    }
}
