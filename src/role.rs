//! What a replica is.

use crate::words::worded;

worded! {
    /// What a replica is, and what its workload is told, asked to be, or says it is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Role {
        /// It leads.
        Leader = "leader",
        /// It stands by.
        Standby = "standby",
    }
}
