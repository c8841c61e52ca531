//! When a follower tries again after a failure (law 5, 16).

use std::time::Duration;

use super::Core;
use crate::{
    election::{lease::Lease, observation::Eligibility, pace::doubled},
    law::RETRY_PAUSE,
    request::{Operation, RequestError},
    time::Now,
};

/// The longest Retry-After that is honoured while no Lease was read yet, or none may be taken.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

impl Core {
    /// Notes that a follower's credentials were refused.
    pub(crate) fn refused_credentials(&mut self, operation: Operation, message: RequestError, now: Now) {
        if !self.reader.note_refused_credentials() {
            return self.failed(operation, message, None, now);
        }
        self.reader.retry_now(now.boot);
        self.common.report_failure(operation, now.boot, message);
    }

    /// Notes a failed request, and when a follower tries again. If a Lease may be taken, now or later, a Retry-After delays it by R
    /// at most: a renewal must be observed within R to keep the takeover in time (law 16).
    pub(crate) fn failed(&mut self, operation: Operation, message: RequestError, retry_after: Option<Duration>, now: Now) {
        let period = self.common.timing.renew_period;
        let pause = doubled(RETRY_PAUSE, self.reader.retry.times, period.max(RETRY_PAUSE));
        let soon = now.boot + self.common.jittered(pause).min(period);
        let may_be_taken = |lease: &Lease| match lease.observation.eligibility(None) {
            Eligibility::Open { .. } | Eligibility::Vacant { .. } => true,
            Eligibility::Unknown | Eligibility::Closed => false,
        };
        let longest = if self.leases.iter().any(may_be_taken) { period } else { LONGEST_PAUSE };
        self.reader.failed(soon.max(now.boot + retry_after.unwrap_or_default().min(longest)));
        self.common.report_failure(operation, now.boot, message);
    }
}
