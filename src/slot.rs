//! The number of a Lease, where replicas share several.

use serde::{Deserialize, Serialize};

/// The number of one of the `lease.slots` Leases, from 0 on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Slot(pub u8);

impl Slot {
    /// Returns the name in this slot of an object that is called `name` in the first.
    pub fn of(self, name: &str) -> String {
        if self.0 == 0 { name.to_owned() } else { format!("{name}-slot-{}", self.0) }
    }
}
