//! The observation of the Lease that one elector hands on to the next.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::Instant;

/// The part of an observation that still counts when the Lease is gone, or names another holder (law 11, 14).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct LastSeen {
    /// The duration of the last held record, or a longer one recorded since by a Lease without a leader; D, if there was none.
    pub duration: Duration,
    /// uid of the Lease that was last observed held, unless that Lease is known to be gone.
    pub held: Option<String>,
    /// The last holder had its name in the annotation `tenure.dev/holder` too, and has not given the Lease back.
    pub named: bool,
    /// Until then holders may run that the Lease no longer names.
    pub not_before: Instant,
}
