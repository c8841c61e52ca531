//! When the next request is sent, after answers and after failures (law 5, 16).

use std::time::Duration;

use super::Core;
use crate::{
    election::{Operation, RequestError, observation::Eligibility},
    law::{RETRY_PAUSE, Timing},
    time::{Instant, Now},
};

/// While leading or releasing, two attempts start at least this far apart, however quickly they are refused; or as far as the law
/// counts on, if that is less.
const LEAST_BETWEEN_ATTEMPTS: Duration = Duration::from_millis(500);
/// The server closes a follower's connection for writes if it is idle for longer.
const KEEP_WARM: Duration = Duration::from_secs(55);
/// The longest Retry-After that is honoured while the Lease is unknown, or closed to this replica.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub(crate) struct Pacing {
    /// When the watch last brought news.
    heard: Instant,
    /// When the last request was sent.
    asked: Instant,
    /// A follower reads as soon as it may.
    read_wanted: bool,
    /// Consecutive failures of a follower's requests.
    failures: u32,
    /// No request of a follower before this.
    retry_at: Instant,
    /// The credentials were refused since a request last succeeded.
    credentials_refused: bool,
}

impl Pacing {
    pub(super) const fn new(now: Now) -> Self {
        Self {
            heard: Instant::BOOT,
            asked: now.boot,
            read_wanted: false,
            failures: 0,
            retry_at: now.boot,
            credentials_refused: false,
        }
    }

    pub(super) const fn asked(&mut self, now: Instant) {
        self.asked = now;
    }

    /// The watch has brought news. What was refused for long may be granted now (law 16).
    pub(super) fn heard(&mut self, timing: Timing, now: Instant) {
        self.heard = now;
        self.retry_at = self.retry_at.min(now + timing.renew_period);
    }

    /// A request has succeeded, and `wants_another` read.
    pub(super) const fn succeeded(&mut self, wants_another: bool, now: Instant) {
        (self.failures, self.retry_at) = (0, now);
        (self.credentials_refused, self.read_wanted) = (false, wants_another);
    }

    pub(crate) const fn want_read(&mut self) {
        self.read_wanted = true;
    }

    /// No request of a follower before this.
    pub(crate) const fn retry_at(&self) -> Instant {
        self.retry_at
    }

    pub(crate) fn has_asked_since(&self, at: Instant) -> bool {
        self.asked >= at
    }

    /// Notes that the credentials were refused; true if that is the first time since a request succeeded: the edge reads them
    /// again, and one attempt follows at once (law 5).
    pub(crate) const fn are_first_refused(&mut self) -> bool {
        !std::mem::replace(&mut self.credentials_refused, true)
    }

    /// When a follower reads if it hears nothing before: soon after the watch should have brought the next renewal; every R from
    /// then on, so that a dead watch delays a takeover by R at most (law 16); and before the connection is idle for too long. One
    /// that is not due is left alone but for the latter.
    fn next_read(&self, timing: Timing, due: Option<Instant>) -> Instant {
        if self.read_wanted {
            return self.retry_at;
        }
        if let Some(due) = due.filter(|due| !self.has_asked_since(*due)) {
            return due.min(self.asked + KEEP_WARM).max(self.retry_at);
        }
        let period = timing.renew_period;
        let silent = if self.heard >= self.asked { self.heard + period + period / 10 } else { self.asked + period };
        silent.min(self.asked + KEEP_WARM).max(self.retry_at)
    }
}

impl Core {
    /// When a follower reads if it hears nothing before.
    pub(crate) fn next_read(&self) -> Instant {
        self.pacing.next_read(self.timing, self.observation.due_at())
    }

    /// Notes that a follower's credentials were refused.
    pub(crate) fn refused_credentials(&mut self, operation: Operation, message: RequestError, now: Now) {
        if !self.pacing.are_first_refused() {
            return self.failed(operation, message, None, now);
        }
        self.pacing.retry_at = now.boot;
        self.pacing.read_wanted = true;
        self.report_failure(operation, now.boot, message);
    }

    /// Notes a failed request, and when a follower tries again. Where the Lease may be taken, now or later, a Retry-After delays
    /// it by R at most: a holder that renews meanwhile and then dies must have been seen by then (law 16).
    pub(crate) fn failed(&mut self, operation: Operation, message: RequestError, retry_after: Option<Duration>, now: Now) {
        let period = self.timing.renew_period;
        let pause = doubled(RETRY_PAUSE, self.pacing.failures, period.max(RETRY_PAUSE));
        let soon = now.boot + self.jittered(pause).min(period);
        let longest = match self.observation.eligibility(None) {
            Eligibility::Open { .. } | Eligibility::Vacant { .. } => period,
            Eligibility::Unknown | Eligibility::Closed => LONGEST_PAUSE,
        };
        self.pacing.failures = self.pacing.failures.saturating_add(1);
        self.pacing.retry_at = soon.max(now.boot + retry_after.unwrap_or_default().min(longest));
        self.pacing.read_wanted = true;
        self.report_failure(operation, now.boot, message);
    }

    /// When a leader retries an attempt sent at `sent`: soon, without flooding the server, and so that one more fits before `end`,
    /// which is S, or the end of a release (law 5).
    pub(crate) fn leader_retry(&mut self, sent: Instant, retry_after: Option<Duration>, end: Instant, now: Now) -> Instant {
        let pause = self.jittered(RETRY_PAUSE).min(RETRY_PAUSE);
        let least = (LEAST_BETWEEN_ATTEMPTS + self.jittered(RETRY_PAUSE)).min(self.timing.attempt_timeout + RETRY_PAUSE);
        let soon = (now.boot + pause).max(sent + least);
        let Some(retry_after) = retry_after else { return soon };
        let last = end.before(self.timing.attempt_timeout);
        soon.max((now.boot + retry_after).min(last))
    }

    pub(crate) fn jittered(&mut self, pause: Duration) -> Duration {
        pause.mul_f64(0.75 + self.random.f64() * 0.5)
    }
}

/// A pause that doubles with each time, up to the longest.
pub(crate) fn doubled(first: Duration, times: u32, longest: Duration) -> Duration {
    first.saturating_mul(1 << times.min(8)).min(longest)
}
