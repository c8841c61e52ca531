//! The deadlines of a machine, each under its key.

use std::collections::BTreeMap;

use crate::time::Instant;

/// A small table of deadlines. Those that are not set never come.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Timers<K>(BTreeMap<K, Instant>);

impl<K> Default for Timers<K> {
    /// Nothing is set.
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Copy + Ord> Timers<K> {
    /// Sets the deadline.
    pub fn set(&mut self, key: K, at: Instant) {
        self.0.insert(key, at);
    }

    /// Sets the deadline, unless it is set.
    pub fn begin(&mut self, key: K, at: Instant) {
        self.0.entry(key).or_insert(at);
    }

    /// Sets the deadline, or moves it to `at` if that is earlier.
    pub fn set_by(&mut self, key: K, at: Instant) {
        self.set(key, at.or_earlier(self.at(key)));
    }

    /// Moves the deadline to `at` if that is earlier. One that is not set stays unset.
    pub fn hasten(&mut self, key: K, at: Instant) {
        if let Some(due) = self.0.get_mut(&key) {
            *due = at.min(*due);
        }
    }

    /// Moves the deadline to `at` if that is later. One that is not set stays unset.
    pub fn delay(&mut self, key: K, at: Instant) {
        if let Some(due) = self.0.get_mut(&key) {
            *due = at.max(*due);
        }
    }

    /// Removes the deadline.
    pub fn stop(&mut self, key: K) {
        self.0.remove(&key);
    }

    /// Returns the deadline, if it is set.
    pub fn at(&self, key: K) -> Option<Instant> {
        self.0.get(&key).copied()
    }

    /// Returns true if the deadline is set.
    pub fn is_set(&self, key: K) -> bool {
        self.0.contains_key(&key)
    }

    /// Returns true if the deadline is set and has come.
    pub fn is_due(&self, key: K, now: Instant) -> bool {
        self.at(key).is_some_and(|at| at <= now)
    }

    /// Removes the deadline if it has come. Returns true then.
    pub fn take_due(&mut self, key: K, now: Instant) -> bool {
        let is_due = self.is_due(key, now);
        if is_due {
            self.stop(key);
        }
        is_due
    }

    /// Returns the first of the deadlines.
    pub fn next(&self) -> Option<Instant> {
        self.0.values().min().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn the_first_deadline_is_next_and_comes_once() {
        let mut timers = Timers::default();
        assert_eq!(timers.next(), None);
        timers.set('b', at(5));
        timers.set('a', at(7));

        assert_eq!((timers.next(), timers.is_due('b', at(4)), timers.is_due('b', at(5))), (Some(at(5)), false, true));
        assert_eq!([4, 5, 6].map(|now| timers.take_due('b', at(now))), [false, true, false]);
        timers.stop('a');
        assert_eq!((timers.next(), timers.is_set('a')), (None, false));
        timers.begin('a', at(8));
        timers.begin('a', at(1));
        assert_eq!(timers.next(), Some(at(8)));
    }

    #[test]
    fn only_what_is_set_is_moved() {
        let mut timers = Timers::default();
        timers.hasten('a', at(1));
        timers.delay('a', at(1));
        assert_eq!(timers.at('a'), None);

        let moved = [(5, 5), (7, 5), (3, 3)].map(|(by, expected)| {
            timers.set_by('a', at(by));
            timers.at('a') == Some(at(expected))
        });
        timers.hasten('a', at(4));
        timers.delay('a', at(2));
        assert_eq!((moved, timers.at('a')), ([true; 3], Some(at(3))));
        timers.delay('a', at(9));
        timers.hasten('a', at(8));
        assert_eq!(timers.at('a'), Some(at(8)));
    }
}
