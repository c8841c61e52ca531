//! The role of a replica.

use crate::words::worded;

worded! {
    /// The role that a replica has, that its workload is told, or that it says it has.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Role {
        /// Its workload leads.
        Leader = "leader",
        /// Its workload stands by, or none runs.
        Standby = "standby",
    }
}
