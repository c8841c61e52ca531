//! Which failures of requests are told: each new state at once, the same state again after a while.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use crate::{
    config::duration,
    request::{Operation, RequestError},
    time::Instant,
    words::bounded,
};

/// Time after which the same failure is logged again.
const AGAIN: Duration = Duration::from_secs(60);
/// The same of what a replica can do without.
const SELDOM: Duration = Duration::from_secs(600);

/// A server that has just started may refuse for this long what it allows afterwards.
const STARTING: Duration = Duration::from_secs(5);

/// Count of different failures of one operation that are remembered.
const STATES: usize = 8;

/// Failures since each operation last succeeded.
#[derive(Debug, Default)]
pub(super) struct Failures(BTreeMap<Operation, Failing>);

/// Since the operation last succeeded.
#[derive(Debug)]
struct Failing {
    /// The latest failures, as [`state`] tells them apart, with the time at which each is logged again. Several, because two may
    /// alternate.
    told: VecDeque<((Option<u16>, String), Instant)>,
    failures: u64,
    since: Instant,
}

/// A failure, in words.
pub(super) enum Told {
    /// This state was told lately.
    Before(String),
    /// The replica needs a right that it lacks.
    Lacks(String),
    /// Any other.
    Failed(String),
}

impl Failures {
    pub(super) fn failed(&mut self, operation: Operation, complaint: &RequestError, now: Instant) -> Told {
        let state = state(complaint);
        let failing = self.0.entry(operation).or_insert(Failing { told: VecDeque::new(), failures: 0, since: now });
        failing.failures += 1;
        let message = complaint.to_string();
        let mut words = bounded(&message).into_owned();
        if failing.told.iter().any(|(told, again)| *told == state && now < *again) {
            return Told::Before(words);
        }
        let span = now.since(failing.since);
        let is_needed = match operation {
            Operation::Get | Operation::Update => true,
            Operation::Create | Operation::List | Operation::Delete | Operation::Watch => false,
        };
        let lacks_right = is_needed && complaint.is_forbidden();
        // A server that has just started answers so before it has read its rules.
        let may_pass = lacks_right && span < STARTING;
        let again = match (may_pass, is_needed) {
            (true, _) => STARTING,
            (false, true) => AGAIN,
            (false, false) => SELDOM,
        };
        let known = failing.told.len();
        failing.told.retain(|(told, _)| *told != state);
        if failing.told.len() < known {
            words += &format!("; {} failures in {}", failing.failures, duration::measured(span));
        }
        failing.told.truncate(STATES - 1);
        failing.told.push_front((state, now + again));
        if lacks_right && !may_pass { Told::Lacks(words) } else { Told::Failed(words) }
    }

    /// Forgets the failures of an operation that has succeeded. Returns their count, if there were any.
    pub(super) fn recovered(&mut self, operation: Operation) -> Option<u64> {
        self.0.remove(&operation).map(|failing| failing.failures)
    }
}

/// Returns the part of an error that tells one state from another. Words with digits are left out: they may be times or ids that
/// differ in each.
fn state(complaint: &RequestError) -> (Option<u16>, String) {
    let is_plain = |word: &&str| !word.contains(|c: char| c.is_ascii_digit());
    (complaint.status, complaint.words.split_whitespace().filter(is_plain).collect::<Vec<_>>().join(" "))
}
