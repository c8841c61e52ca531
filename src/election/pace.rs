//! The pace of repeated attempts: each pause is longer than the one before.

use std::time::Duration;

use crate::time::Instant;

/// How often something was tried in a row, and when it may be tried again.
#[derive(Clone, Copy, Debug, Default, Hash)]
pub(crate) struct Paced {
    pub(crate) times: u32,
    pub(crate) not_before: Instant,
}

impl Paced {
    /// Counts one more time, before the next one at `not_before`.
    pub(crate) const fn until(self, not_before: Instant) -> Self {
        Self { times: self.times.saturating_add(1), not_before }
    }
}

/// Returns a pause that doubles each time, up to the longest.
pub(crate) fn doubled(first: Duration, times: u32, longest: Duration) -> Duration {
    first.saturating_mul(1 << times.min(8)).min(longest)
}
