//! PID 1: the loop that owns the workload, its deadlines and the signals. No network.

use crate::config::Config;

/// Runs the workload by `config` until it is over; the exit code.
#[must_use]
pub fn run(config: Config) -> u8 {
    drop(config);
    70
}
