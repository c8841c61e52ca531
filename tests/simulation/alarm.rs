//! When a process next has something to do, with as few events as possible.

use tenure::time::Instant;

use crate::clock::Ns;

/// See the module. Events that were scheduled are not cancelled; one that comes too early is ignored.
#[derive(Clone, Debug)]
pub struct Alarm {
    /// When it is to ring.
    wanted: Ns,
    /// Scheduled events, the next one last.
    asked: Vec<Ns>,
}

/// A deadline that has passed, and over how many turns.
#[derive(Clone, Debug, Default)]
pub struct Overdue {
    at: Option<Instant>,
    turns: u32,
}

impl Overdue {
    /// A turn has ended at `now`, after which `due` is the next deadline. True if turn after turn has ended without acting on it.
    pub fn stays(&mut self, due: Option<Instant>, now: Instant) -> bool {
        let at = due.filter(|due| *due < now);
        let again = at.is_some() && at == self.at;
        *self = Self { at, turns: if again { self.turns + 1 } else { 0 } };
        self.turns > 2
    }
}

impl Alarm {
    /// An alarm that is off.
    pub const fn off() -> Self {
        Self { wanted: Ns::MAX, asked: Vec::new() }
    }

    /// Rings at `at`, or earlier if already set so; returns the event to schedule for it.
    #[must_use]
    pub fn set(&mut self, at: Ns) -> Option<Ns> {
        self.wanted = self.wanted.min(at);
        self.ask()
    }

    /// Does not ring until it is set again.
    pub fn clear(&mut self) {
        self.wanted = Ns::MAX;
    }

    /// An event has come. True if it rings; an error is the event to schedule instead.
    pub fn comes(&mut self, now: Ns) -> Result<bool, Ns> {
        while self.asked.pop_if(|at| *at <= now).is_some() {}
        if self.wanted <= now {
            self.wanted = Ns::MAX;
            return Ok(true);
        }
        self.ask().map_or(Ok(false), Err)
    }

    fn ask(&mut self) -> Option<Ns> {
        let covered = self.wanted == Ns::MAX || self.asked.last().is_some_and(|at| *at <= self.wanted);
        (!covered).then(|| {
            self.asked.push(self.wanted);
            self.wanted
        })
    }
}
