//! When the next request is sent, after answers and after failures (law 5, 16); and how long a replica whose terms fail leaves
//! the Lease to the others.

use std::time::Duration;

use super::Core;
use crate::{
    config::Trigger,
    election::{Event, observation::Eligibility, writes::micros},
    law::{RETRY_PAUSE, Timing},
    link::{Exit, LeaseBackoff, Reason, TermInfo},
    request::{Operation, RequestError},
    time::{Instant, Now},
};

/// The least time between the starts of two attempts of a leader, even if they are refused at once. It is T + b if that is less,
/// because the law counts attempts by T + b.
const LEAST_BETWEEN_ATTEMPTS: Duration = Duration::from_millis(500);
/// A follower sends a request within this time, because servers close connections that are idle for a minute.
const KEEP_WARM: Duration = Duration::from_secs(55);
/// The longest Retry-After that is honoured while the Lease was not read yet, or must not be taken.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The longest time for which a replica leaves the Lease to the others after a term that failed, as the kubelet's longest back-off.
const LONGEST_LEFT: Duration = Duration::from_secs(300);
/// A term of this length makes the failures before it forgotten, as the kubelet forgets them.
const FORGIVING: Duration = Duration::from_secs(600);

#[derive(Clone, Debug, Hash)]
pub(crate) struct Backoff {
    /// When the watch last brought a new version.
    heard: Instant,
    /// When the last request was sent.
    asked: Instant,
    /// A follower reads as soon as `retry_at` allows.
    read_wanted: bool,
    /// Consecutive failures of a follower's requests.
    failures: u32,
    /// Returns the instant before which a follower sends no request.
    retry_at: Instant,
    /// The credentials were refused since a request last succeeded.
    credentials_refused: bool,
}

impl Backoff {
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

    /// Notes that the watch has brought a new version. A request that was refused for long is tried again within R (law 16).
    pub(super) fn heard(&mut self, timing: Timing, now: Instant) {
        self.heard = now;
        self.retry_at = self.retry_at.min(now + timing.renew_period);
    }

    /// Notes that a request has succeeded, and whether another read is wanted.
    pub(super) const fn succeeded(&mut self, wants_another: bool, now: Instant) {
        (self.failures, self.retry_at) = (0, now);
        (self.credentials_refused, self.read_wanted) = (false, wants_another);
    }

    pub(crate) const fn want_read(&mut self) {
        self.read_wanted = true;
    }

    /// Returns the instant before which a follower sends no request.
    pub(crate) const fn retry_at(&self) -> Instant {
        self.retry_at
    }

    pub(crate) fn has_asked_since(&self, at: Instant) -> bool {
        self.asked >= at
    }

    /// Notes that the credentials were refused. Returns true the first time since a request succeeded: the edge reads them again,
    /// and one attempt follows at once (law 5).
    pub(crate) const fn note_refused_credentials(&mut self) -> bool {
        !std::mem::replace(&mut self.credentials_refused, true)
    }

    /// Returns when a follower reads if the watch brings nothing: soon after the watch should have brought the next renewal, and
    /// every R from then on, so that a dead watch delays a takeover by R at most (law 16). In the quiet time of a task the Lease
    /// is read only to keep the connection open.
    fn next_read(&self, timing: Timing, quiet: Option<[Instant; 2]>) -> Instant {
        if self.read_wanted {
            return self.retry_at;
        }
        if let Some([_, due]) = quiet.filter(|[since, due]| self.has_asked_since(*since) && !self.has_asked_since(*due)) {
            return due.min(self.asked + KEEP_WARM).max(self.retry_at);
        }
        let period = timing.renew_period;
        let silent = if self.heard >= self.asked { self.heard + period + period / 10 } else { self.asked + period };
        silent.min(self.asked + KEEP_WARM).max(self.retry_at)
    }
}

impl Core {
    /// Takes in how a term ended. If it failed, the other replicas go first for twice as long as after the failure before: D at
    /// first, five minutes at most, and no longer than the interval of a task.
    pub(crate) fn judge_term(&mut self, info: &TermInfo, reason: Reason, exit: Option<Exit>, now: Now) {
        let began = micros(&info.acquired_at).unwrap_or(now.wall);
        let forgiving = i64::try_from(FORGIVING.as_micros()).unwrap_or(i64::MAX);
        let before = if now.wall.saturating_sub(began) < forgiving { self.lease_backoff.failures } else { 0 };
        if !reason.is_failure(exit) {
            self.lease_backoff.failures = before;
            return;
        }
        let first = self.timing.takeable(now.boot, self.timing.duration).since(now.boot);
        let longest = match self.trigger {
            Some(Trigger::Every(interval)) => interval.min(LONGEST_LEFT),
            Some(Trigger::Schedule(_)) | None => LONGEST_LEFT,
        };
        let until = now.boot + doubled(first, before, longest.max(first));
        self.lease_backoff = LeaseBackoff { until, failures: before.saturating_add(1) };
        self.report(Event::BacksOff(self.lease_backoff));
    }

    /// Returns when a follower reads if the watch brings nothing.
    pub(crate) fn next_read(&self) -> Instant {
        self.backoff.next_read(self.timing, self.observation.quiet())
    }

    /// Notes that a follower's credentials were refused.
    pub(crate) fn refused_credentials(&mut self, operation: Operation, message: RequestError, now: Now) {
        if !self.backoff.note_refused_credentials() {
            return self.failed(operation, message, None, now);
        }
        self.backoff.retry_at = now.boot;
        self.backoff.read_wanted = true;
        self.report_failure(operation, now.boot, message);
    }

    /// Notes a failed request, and when a follower tries again. If the Lease may be taken, now or later, a Retry-After delays it
    /// by R at most: a renewal must be observed within R to keep the takeover in time (law 16).
    pub(crate) fn failed(&mut self, operation: Operation, message: RequestError, retry_after: Option<Duration>, now: Now) {
        let period = self.timing.renew_period;
        let pause = doubled(RETRY_PAUSE, self.backoff.failures, period.max(RETRY_PAUSE));
        let soon = now.boot + self.jittered(pause).min(period);
        let longest = match self.observation.eligibility(None) {
            Eligibility::Open { .. } | Eligibility::Vacant { .. } => period,
            Eligibility::Unknown | Eligibility::Closed => LONGEST_PAUSE,
        };
        self.backoff.failures = self.backoff.failures.saturating_add(1);
        self.backoff.retry_at = soon.max(now.boot + retry_after.unwrap_or_default().min(longest));
        self.backoff.read_wanted = true;
        self.report_failure(operation, now.boot, message);
    }

    /// Returns when a leader retries an attempt that was sent at `sent`: soon, without flooding the server, and so that one more
    /// attempt fits before `end`, which is S or the end of a release (law 5).
    pub(crate) fn leader_retry(&mut self, sent: Instant, retry_after: Option<Duration>, end: Instant, now: Now) -> Instant {
        let pause = self.jittered(RETRY_PAUSE).min(RETRY_PAUSE);
        let least = (LEAST_BETWEEN_ATTEMPTS + self.jittered(RETRY_PAUSE)).min(self.timing.attempt_timeout + RETRY_PAUSE);
        let soon = (now.boot + pause).max(sent + least);
        let Some(retry_after) = retry_after else { return soon };
        let last = end.before(self.timing.attempt_timeout);
        soon.max((now.boot + retry_after).min(last))
    }

    pub(crate) fn jittered(&mut self, pause: Duration) -> Duration {
        self.random.around(pause)
    }
}

/// Returns a pause that doubles each time, up to the longest.
pub(crate) fn doubled(first: Duration, times: u32, longest: Duration) -> Duration {
    first.saturating_mul(1 << times.min(8)).min(longest)
}
