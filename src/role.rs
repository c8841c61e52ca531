//! What a replica is.

/// What a replica is, and what its workload is told, asked to be, or says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It leads.
    Leader,
    /// It stands by.
    Standby,
}

impl Role {
    /// The word in `TENURE_ROLE`, in `X_TENURE_ROLE`, in the log and in traces.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Standby => "standby",
        }
    }
}
