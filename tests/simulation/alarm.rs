//! When a process has something to do: as few events as it takes.

use crate::clock::Ns;

/// See the module. Of the events that were asked for none is taken back; one that comes too early is not heeded.
#[derive(Debug)]
pub struct Alarm {
    /// It is to ring then.
    wanted: Ns,
    /// Events that are under way, the next one last.
    asked: Vec<Ns>,
}

impl Alarm {
    /// It does not ring.
    pub const fn off() -> Self {
        Self { wanted: Ns::MAX, asked: Vec::new() }
    }

    /// Rings at `at`, or earlier if it was to; the event that this takes.
    #[must_use]
    pub fn set(&mut self, at: Ns) -> Option<Ns> {
        self.wanted = self.wanted.min(at);
        self.ask()
    }

    /// Rings no more until it is set again.
    pub fn clear(&mut self) {
        self.wanted = Ns::MAX;
    }

    /// An event has come. True if it rings; else the event that it takes instead.
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
