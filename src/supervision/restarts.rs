//! The restart policy: when a workload that has ended is started again.

use std::{collections::VecDeque, time::Duration};

use crate::{
    config::{Restart, RestartPolicy},
    link::Exit,
    time::Instant,
};

/// The restarts of one term, or of one standby.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Restarts {
    policy: Restart,
    recent: VecDeque<Instant>,
    streak: u32,
}

impl Restarts {
    pub(crate) fn new(policy: Restart) -> Self {
        Self { policy, recent: VecDeque::new(), streak: 0 }
    }

    /// Forgets everything: a new term.
    pub(crate) fn reset(&mut self) {
        self.recent.clear();
        self.streak = 0;
    }

    /// Returns true if the policy restarts after this exit.
    pub(crate) fn covers(&self, exit: Exit) -> bool {
        match self.policy.policy {
            RestartPolicy::Always => true,
            RestartPolicy::OnFailure => exit != Exit::Code(0),
        }
    }

    /// Returns the time of the restart after a run from `since` to `now`; none if the burst is used up.
    ///
    /// The delay doubles with each restart, and starts over after a run as long as the interval.
    pub(crate) fn next(&mut self, since: Instant, now: Instant) -> Option<Instant> {
        while self.recent.front().is_some_and(|&at| now.since(at) >= self.policy.interval) {
            self.recent.pop_front();
        }
        if self.recent.len() >= usize::try_from(self.policy.burst).unwrap_or(usize::MAX) {
            return None;
        }
        let at = self.delayed(since, now);
        self.recent.push_back(at);
        Some(at)
    }

    /// The same without a limit on the number, for a standby.
    pub(crate) fn delayed(&mut self, since: Instant, now: Instant) -> Instant {
        if now.since(since) >= self.policy.interval {
            self.streak = 0;
        }
        let doubled = 2_u32.checked_pow(self.streak).unwrap_or(u32::MAX);
        self.streak = self.streak.saturating_add(1);
        let delay = self.policy.delay.checked_mul(doubled).unwrap_or(Duration::MAX).min(self.policy.max_delay);
        now + delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(n: u64) -> Instant {
        Instant::from_nanos(n * 1_000_000_000)
    }

    fn restarts(burst: u32) -> Restarts {
        let max_delay = Duration::from_secs(5);
        Restarts::new(Restart { burst, max_delay, ..Restart::default() })
    }

    #[test]
    fn the_delay_doubles_up_to_its_limit() {
        let mut restarts = restarts(9);
        let delays: Vec<_> = (0..5).map(|_| restarts.next(second(0), second(0)).unwrap()).collect();
        assert_eq!(delays, [second(1), second(2), second(4), second(5), second(5)]);
    }

    #[test]
    fn a_run_as_long_as_the_interval_starts_the_delay_over() {
        let mut restarts = restarts(9);
        restarts.next(second(0), second(0));
        restarts.next(second(0), second(1));
        assert_eq!(restarts.next(second(10), second(70)), Some(second(71)));
    }

    #[test]
    fn one_more_than_the_burst_within_the_interval_is_the_end() {
        let mut restarts = restarts(2);
        assert!(restarts.next(second(0), second(0)).is_some());
        assert!(restarts.next(second(1), second(2)).is_some());
        assert_eq!(restarts.next(second(4), second(5)), None);
        assert!(restarts.next(second(4), second(61)).is_some(), "the first restart, at 1 s, has left the interval");
    }

    #[test]
    fn a_standby_that_crashes_for_ever_is_not_remembered_for_ever() {
        let mut restarts = restarts(2);
        for at in 0..1000 {
            restarts.delayed(second(at), second(at));
        }
        assert!(restarts.recent.is_empty());
    }

    #[test]
    fn on_failure_does_not_cover_success() {
        let restarts = restarts(1);
        assert!(!restarts.covers(Exit::Code(0)));
        assert!(restarts.covers(Exit::Code(1)));
        assert!(restarts.covers(Exit::Signal(15)));
    }
}
