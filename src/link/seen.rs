//! What one elector hands on to the next of what it saw of the Lease.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::Instant;

/// What counts of what was seen of the Lease when it is gone, or names somebody else (law 11, 14).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastSeen {
    /// The duration with which it was last seen held; D, if it never was.
    pub duration: Duration,
    /// uid of the Lease if it was held when it was last seen.
    pub held: Option<String>,
    /// A name was beside the holder that was last seen.
    pub named: bool,
    /// Until when holders may run that the Lease does not name, whoever has held it since.
    pub not_before: Instant,
}
