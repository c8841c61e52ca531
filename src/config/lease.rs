//! The keys of the Lease and the timing of the election.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    duration::Span,
    scalars::{Drift, Maybe},
};
use crate::slot::Slot;

/// The longest name of an object, and the longest prefix of a label.
pub(crate) const LONGEST_NAME: usize = 253;
/// With the zero after it, a path of this length fills the address of a socket.
pub(crate) const LONGEST_SOCKET: usize = 107;

section! {
    /// The Lease and the timing of the election.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(default, deny_unknown_fields, rename_all = "camelCase")]
    pub struct LeaseConfig {
        /// false makes tenure a plain init, which runs the workload at once and without a Lease. Flag: `--leader-election=off`.
        pub enabled: bool = true,
        /// The name of the Lease. It is required. tenure makes it a valid object name: lower case, hyphens, at most 253 characters.
        /// Flag: `--lease`.
        // Once validated, as it stands in the API: prefix included.
        pub name: String,
        /// Text that is put before the name. It keeps the applications of one namespace apart.
        // Empty once validated, being part of the name.
        pub prefix: String,
        /// The namespace of the Lease. If empty: the pod's, as a file of its service account says. Without that file: that of the
        /// kubeconfig's context, else `default`; without a kubeconfig tenure does not start. Flag: `--namespace`.
        pub namespace: String,
        /// The base of this replica's identity. If empty: POD_NAME, else the hostname. tenure always appends `_` and 32 random hex
        /// digits. Flag: `--identity`.
        pub identity: String,
        /// How long one renewal holds the Lease: whole seconds, at least 3s. After a crash, no other replica takes over before that.
        /// Flag: `--lease-duration`.
        #[serde(with = "Span")]
        pub duration: Duration = Duration::from_secs(15),
        /// The time from one renewal to the next: at least 1s, and at most a third of `lease.duration`.
        #[serde(with = "Span")]
        pub renew_period: Duration = Duration::from_secs(3),
        /// The longest time for one request, with the connection that it may need (name, TCP, TLS): at least 10ms.
        #[serde(with = "Span")]
        pub attempt_timeout: Duration = Duration::from_secs(2),
        /// By how much the rate of a machine's clock may be wrong: 0.01% to 20%. A time service does not change it. If client-go uses
        /// the Lease too: of both nodes' clocks together, and client-go's clock is slewed, by chrony up to 8.3 %.
        pub clock_drift: Drift,
        /// The number of Leases: each is held by another replica, so that at most so many workloads run, and at most 64. The second
        /// Lease is called `NAME-slot-1`. Several have the label `tenure.dev/slots: NAME`. Flag: `--slots`.
        #[schemars(range(min = 1, max = 64))]
        pub slots: u8 = 1,
        /// How far this replica stands back, from 0 to -10. It leaves a Lease that it may acquire to the others, one second for each
        /// step below 0.
        #[schemars(range(min = -10, max = 0))]
        pub priority: i8,
        /// A preference that gives this replica its priority.
        pub prefer: Prefer,
        /// How long a ready standby waits before it asks a leader of a lower priority to hand over: for so long the standby has been
        /// ready, and the leader has led. At least 1s. null: a leader keeps its Lease. It needs `lease.prefer`, or a
        /// `lease.priority` on each replica, also where that is 0.
        #[serde(with = "Maybe")]
        #[schemars(with = "Option<Span>")]
        pub preempt: Option<Duration>,
        /// true shows each standby on the Lease, with its health and version, for `tenure status`. A standby writes when it begins,
        /// when its health changes and every ten minutes, but at most once a minute under one leader.
        pub announce: bool,
        /// Labels of the Lease, beside `app.kubernetes.io/managed-by`, which is `tenure` unless somebody has set it.
        pub labels: BTreeMap<String, String>,
        /// Annotations of the Lease.
        pub annotations: BTreeMap<String, String>,
        /// Decides what tenure writes when a term ends.
        pub release: Release,
        /// How long a replica waits before it acquires a Lease that no holder released: one that is absent, or was cleared by hand.
        /// Its leader may still run. A healthy one stops within renewPeriod, lossGrace and killMargin. Whole seconds; null: the
        /// longest duration known; 0s: an unguarded start, beside which any leader may still run.
        #[serde(with = "Maybe")]
        #[schemars(with = "Option<Span>")]
        pub creation_wait: Option<Duration>,
        /// Decides whether a Lease counts as released once a holder that is not tenure has emptied it.
        pub foreign_release: ForeignRelease,
        /// Where `tenure witness` listens, in a second container of the pod: an absolute path on a volume that only the two mount, such
        /// as `/run/tenure/witness`, or `@NAME`. Every process of the pod's network can take such a name, and both containers need the
        /// same user. Once the kernel has ended every process of this container, the witness gives the Lease back, so that a replica
        /// that is killed is followed at once. The replica's identity must begin with the pod's name. null: a replica that is killed is
        /// waited for for `lease.duration`.
        pub witness: Option<String>,
    }
}

/// Gives a replica its `lease.priority` by a variable of its environment, such as the zone of its node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Prefer {
    /// The name of the variable. In a pod the downward API sets it.
    pub from: String,
    /// The values of the variable, the preferred first, at most 10. The first gives the priority 0, the next -1, and so on; any other
    /// value gives the one after the last.
    #[schemars(length(max = 10))]
    pub order: Vec<String>,
}

impl LeaseConfig {
    /// The name of the Lease of this slot.
    pub fn name_of(&self, slot: Slot) -> String {
        slot.of(&self.name)
    }

    /// Those of all slots.
    pub fn names(&self) -> impl Iterator<Item = String> {
        (0..self.slots.max(1)).map(|slot| self.name_of(Slot(slot)))
    }
}

/// Returns true if this can be a replica's name in a Lease.
pub fn can_stand(identity: &str) -> bool {
    identity.len() <= LONGEST_NAME && !identity.chars().any(char::is_control)
}

/// Returns true if a witness can listen there: an abstract name after `@`, or an absolute path.
pub fn is_socket(name: &str) -> bool {
    let is_named = matches!(name.as_bytes(), [b'@', _, ..] | [b'/', _, ..]);
    is_named && name.len() <= LONGEST_SOCKET && !name.contains('\0')
}

/// Decides what tenure writes when a term ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Release {
    /// An empty holder.
    #[default]
    Clear,
    /// An empty holder. Before tenure ends it deletes a Lease that nobody has acquired within 1.1 times `lease.renewPeriod` plus
    /// 0.2 s. That needs the rights to delete and to create Leases.
    Delete,
    /// Nothing. Another replica takes over as after a crash.
    Keep,
}

/// Decides whether a Lease counts as released once a holder that is not tenure has emptied it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Hash)]
#[serde(rename_all = "camelCase")]
pub enum ForeignRelease {
    /// No.
    #[default]
    Wait,
    /// Yes. Use it if that holder empties the Lease only after its work is over, as grelmicro does.
    Trust,
}
