//! The keys of the Lease and the timing of the election.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    humane::{MaybeSpan, Span},
    scalars::Drift,
};
use crate::link::Slot;

/// The Lease and the timing of the election.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct LeaseConfig {
    /// False: a plain init that runs the workload at once, without a Lease.
    pub enabled: bool,
    /// Required; made a valid object name: lower case, hyphens, at most 253 characters.
    // Once validated, as it stands in the API: prefix included.
    pub name: String,
    /// Prepended to the name, keeps applications of one namespace apart.
    // Empty once validated, being part of the name.
    pub prefix: String,
    /// Empty: the pod's, and where a pod does not tell it, it is refused; elsewhere the kubeconfig context's, then "default".
    pub namespace: String,
    /// Base name. Empty: POD_NAME or the hostname. "_" and 32 random digits are always appended.
    pub identity: String,
    /// How long the Lease is valid without a renewal; whole seconds, at least 2s.
    #[serde(with = "Span")]
    pub duration: Duration,
    /// From one renewal to the next; at least 1s.
    #[serde(with = "Span")]
    pub renew_period: Duration,
    /// How long one request may take; at least 10ms.
    #[serde(with = "Span")]
    pub attempt_timeout: Duration,
    /// Bound on the error of a clock's rate; with client-go replicas on the Lease, of both nodes' together. chrony may slew by
    /// 8.3 %: set maxslewrate 5000 in chrony.conf, or 10% here.
    pub clock_drift: Drift,
    /// How many Leases there are to hold, each by one replica: at most so many workloads run, 64 at most. The second is called
    /// NAME-slot-1.
    pub slots: u8,
    /// 0 to -10: for each below 0 a Lease that may be taken is left to the others for one second.
    #[schemars(range(min = -10, max = 0))]
    pub priority: i8,
    /// Whether a replica that follows shows itself on the Lease, with its health and version: for `tenure status`.
    pub announce: bool,
    /// Put on the Lease beside `app.kubernetes.io/managed-by`, which is `tenure` unless somebody has set it.
    pub labels: BTreeMap<String, String>,
    /// Put on the Lease.
    pub annotations: BTreeMap<String, String>,
    /// What is written when a term ends.
    pub release: Release,
    /// How long nobody is waited for: a Lease that no holder gave back (absent, cleared by hand) may have a leader that is cut off.
    /// Whole seconds. Null: the longest duration known; 0s: opt out.
    #[serde(with = "MaybeSpan")]
    #[schemars(with = "Option<Span>")]
    pub creation_wait: Option<Duration>,
    /// Whether a Lease that was emptied, not deleted, by a holder that is no tenure counts as given back: grelmicro leaves no other
    /// sign of it.
    pub foreign_release: ForeignRelease,
}

impl LeaseConfig {
    /// The name of the Lease of this slot.
    #[must_use]
    pub fn name_of(&self, slot: Slot) -> String {
        slot.of(&self.name)
    }
}

impl Default for LeaseConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            name: String::new(),
            prefix: String::new(),
            namespace: String::new(),
            identity: String::new(),
            duration: Duration::from_secs(15),
            renew_period: Duration::from_secs(3),
            attempt_timeout: Duration::from_secs(2),
            clock_drift: Drift::default(),
            slots: 1,
            priority: 0,
            announce: false,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            release: Release::Clear,
            creation_wait: None,
            foreign_release: ForeignRelease::Wait,
        }
    }
}

/// What is written when a term ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Release {
    /// Empty the holder.
    #[default]
    Clear,
    /// Clear, then delete.
    Delete,
    /// Write nothing.
    Keep,
}

/// Whether a Lease that a holder without tenure has emptied counts as given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ForeignRelease {
    /// It is waited for like any that nobody gave back.
    #[default]
    Wait,
    /// It does.
    Trust,
}
