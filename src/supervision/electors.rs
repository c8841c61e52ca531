//! The electors, one after the other: when one is started, and when one is given up (law 10). The agent says how long one may be
//! silent.

use std::time::Duration;

use crate::time::Instant;

/// The pause before a restart, if two electors ended within [`SOON`]; and the wait for a killed elector to be reaped.
const PAUSE: Duration = Duration::from_secs(1);
/// Extra time for an elector to speak, if init itself did not run when the silence ended. The machine or the container may have
/// been suspended, and the elector with it.
const WAKING: Duration = Duration::from_secs(1);
/// Init wakes this late only if it was suspended or stopped.
const LATE: Duration = Duration::from_millis(200);
/// Two ends within this time count as one fault, so the next start is delayed.
const SOON: Duration = Duration::from_secs(10);

/// The current elector, and the count of the starts.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Electors {
    generation: u32,
    silence: Duration,
    state: State,
    last_end: Option<Instant>,
}

#[derive(Clone, Debug, Hash)]
enum State {
    /// No elector runs; the next one may start at `at`.
    Absent { at: Instant },
    /// The start was ordered.
    Starting,
    /// The last message came at `heard`. `roused` is set if init was suspended since, and gives it [`WAKING`] more.
    Alive { heard: Instant, greeted: bool, roused: Option<Instant> },
    /// SIGKILL was sent, the link is closed.
    Dying { since: Instant },
}

/// An order about electors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    /// Start one.
    Start,
    /// Kill the elector, which was silent for D.
    Kill,
}

impl Electors {
    /// An elector that is silent for `silence` is killed.
    pub(crate) fn new(silence: Duration) -> Self {
        Self { generation: 0, silence, state: State::Absent { at: Instant::BOOT }, last_end: None }
    }

    /// Count of the starts so far.
    pub(crate) const fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns true if an elector runs that messages can be sent to.
    pub(crate) fn is_alive(&self) -> bool {
        matches!(self.state, State::Alive { .. })
    }

    /// Returns true if an elector runs that has said Hello.
    pub(crate) fn is_greeted(&self) -> bool {
        matches!(self.state, State::Alive { greeted: true, .. })
    }

    pub(crate) fn started(&mut self, now: Instant) {
        self.state = State::Alive { heard: now, greeted: false, roused: None };
    }

    pub(crate) fn heard(&mut self, now: Instant) {
        if let State::Alive { heard, roused, .. } = &mut self.state {
            (*heard, *roused) = (now, None);
        }
    }

    pub(crate) fn greeted(&mut self) {
        if let State::Alive { greeted, .. } = &mut self.state {
            *greeted = true;
        }
    }

    /// Records that the caller kills it now. Returns false if there is none to kill.
    pub(crate) fn give_up(&mut self, now: Instant) -> bool {
        let alive = self.is_alive();
        if alive {
            self.state = State::Dying { since: now };
        }
        alive
    }

    /// Records that the elector was reaped, or could not be started.
    pub(crate) fn ended(&mut self, now: Instant) {
        let again = self.last_end.replace(now).is_some_and(|before| now.since(before) < SOON);
        self.state = State::Absent { at: if again { now + PAUSE } else { now } };
    }

    /// Returns the time of the next order. A start counts only if it is `wanted`.
    pub(crate) fn due(&self, wanted: bool) -> Option<Instant> {
        match self.state {
            State::Absent { at } => wanted.then_some(at),
            State::Starting => None,
            State::Alive { roused: Some(at), .. } => Some(at + WAKING),
            State::Alive { heard, roused: None, .. } => Some(heard + self.silence),
            State::Dying { since } => Some(since + PAUSE),
        }
    }

    /// Returns the order that is due at `now`.
    pub(crate) fn step(&mut self, wanted: bool, now: Instant) -> Option<Move> {
        let due = self.due(wanted)?;
        if due > now {
            return None;
        }
        match &mut self.state {
            State::Alive { roused: roused @ None, .. } if now.since(due) > LATE => {
                *roused = Some(now);
                None
            }
            State::Alive { .. } => {
                self.state = State::Dying { since: now };
                Some(Move::Kill)
            }
            State::Dying { .. } => {
                self.last_end = Some(now);
                self.state = State::Absent { at: now };
                self.step(wanted, now)
            }
            State::Absent { .. } => {
                self.generation += 1;
                self.state = State::Starting;
                Some(Move::Start)
            }
            State::Starting => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Instant {
        Instant::from_nanos(n * 1_000_000)
    }

    fn alive(at: Instant) -> Electors {
        let mut electors = Electors::new(Duration::from_secs(15));
        assert_eq!(electors.step(true, at), Some(Move::Start));
        electors.started(at);
        electors
    }

    #[test]
    fn one_that_slept_with_init_through_a_gap_has_a_second_to_say_something_and_no_second_one() {
        let mut silent = alive(ms(0));
        assert_eq!(silent.step(true, ms(60_000)), None);
        let mut speaks = silent.clone();
        assert_eq!((silent.due(true), silent.step(true, ms(60_999))), (Some(ms(61_000)), None));
        assert_eq!(silent.step(true, ms(61_900)), Some(Move::Kill));

        speaks.heard(ms(60_010));
        assert_eq!(speaks.step(true, ms(75_009)), None);
        assert_eq!(speaks.step(true, ms(75_010)), Some(Move::Kill));
    }

    #[test]
    fn init_that_only_wakes_late_has_slept_through_no_gap() {
        for (at, kill) in [(ms(15_200), Some(Move::Kill)), (ms(15_200) + Duration::from_nanos(1), None)] {
            let mut electors = alive(ms(0));
            assert_eq!(electors.step(true, at), kill);
        }
    }

    #[test]
    fn the_next_one_starts_at_once_the_first_time_and_after_a_second_when_that_ends_soon() {
        let mut electors = alive(ms(0));
        electors.ended(ms(5000));
        assert_eq!(electors.step(true, ms(5000)), Some(Move::Start));
        electors.started(ms(5000));
        electors.ended(ms(5010));
        assert_eq!(electors.step(true, ms(6009)), None);
        assert_eq!(electors.step(true, ms(6010)), Some(Move::Start));
        electors.started(ms(6010));
        electors.ended(ms(60_000));
        assert_eq!(electors.step(true, ms(60_000)), Some(Move::Start));
    }

    #[test]
    fn two_ends_ten_seconds_apart_do_not_have_one_cause() {
        let soon = ms(15_000).before(Duration::from_nanos(1));
        for (second, next) in [(soon, soon + PAUSE), (ms(15_000), ms(15_000))] {
            let mut electors = alive(ms(0));
            electors.ended(ms(5000));
            electors.ended(second);
            assert_eq!(electors.due(true), Some(next));
        }
    }

    #[test]
    fn none_is_started_that_is_not_wanted() {
        let mut electors = Electors::new(Duration::from_secs(15));
        assert_eq!(electors.due(false), None);
        assert_eq!(electors.step(false, ms(1)), None);
    }
}
