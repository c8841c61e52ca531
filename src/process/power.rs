//! What this container allows tenure to do to processes, for `tenure check`.
//!
//! Owns the probes. Requires nothing, changes nothing that lasts.

use std::fmt;

use nix::unistd::Pid;

/// The kill power of this container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Power {
    /// Whether this process is PID 1 of its namespace.
    pub pid1: bool,
}

impl Power {
    /// Asks the kernel.
    #[must_use]
    pub fn probe() -> Self {
        Self { pid1: Pid::this().as_raw() == 1 }
    }
}

/// One line for each finding.
impl fmt::Display for Power {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "PID 1: {}", if self.pid1 { "yes" } else { "no" })
    }
}
