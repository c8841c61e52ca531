//! What was simulated, in numbers.

use std::{collections::BTreeMap, fmt, time::Duration};

use nix::time::{ClockId, clock_gettime};

use crate::{clock::S, engine::Engine, nemesis::Fault};

/// Sums over worlds.
#[derive(Debug, Default)]
pub struct Tally {
    pub worlds: u64,
    /// Terms that some init was told of.
    pub terms: u64,
    /// Terms under which something ran.
    pub runs: u64,
    pub events: u64,
    /// Virtual seconds.
    pub seconds: u64,
    pub faults: BTreeMap<Fault, u64>,
    /// Overlaps that the law does not cover: init and elector were both stopped.
    pub exposed: u64,
    /// CPU time of the threads.
    pub cpu: Duration,
    /// The first world with a violation, and the violation.
    pub wrong: Option<(u64, String)>,
}

impl Tally {
    /// Adds the outcome of a world.
    pub fn add(&mut self, seed: u64, e: &Engine) {
        self.worlds += 1;
        self.terms += e.judge.terms;
        self.runs += e.judge.runs;
        self.events += e.events;
        self.seconds += e.now / S;
        self.exposed += e.judge.exposed;
        for (fault, times) in &e.faults {
            *self.faults.entry(*fault).or_default() += times;
        }
        if let Some(wrong) = e.judge.verdict() {
            self.wrong = Some((seed, wrong.to_owned()));
        }
    }

    /// Faults of all kinds.
    pub fn strikes(&self) -> u64 {
        self.faults.values().sum()
    }

    /// Records the CPU time of this thread.
    #[expect(clippy::disallowed_methods, reason = "the time of a thread, by which nothing is decided")]
    pub fn measure(&mut self) {
        if let Ok(time) = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID) {
            self.cpu += Duration::from(time);
        }
    }

    /// The sum of both.
    pub fn and(mut self, other: Self) -> Self {
        self.worlds += other.worlds;
        self.terms += other.terms;
        self.runs += other.runs;
        self.events += other.events;
        self.seconds += other.seconds;
        self.exposed += other.exposed;
        self.cpu += other.cpu;
        for (fault, times) in other.faults {
            *self.faults.entry(fault).or_default() += times;
        }
        self.wrong = self.wrong.or(other.wrong);
        self
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (fault, times) in &self.faults {
            writeln!(f, "{times:>12} {fault:?}")?;
        }
        let Self { worlds, terms, runs, events, seconds, exposed, .. } = self;
        let faults = self.strikes();
        #[allow(clippy::cast_precision_loss, reason = "for people")]
        let speed = *terms as f64 / self.cpu.as_secs_f64().max(0.001) * 60.0;
        let overlaps = u32::from(self.wrong.as_ref().is_some_and(|(_, wrong)| wrong.starts_with("two at once")));
        write!(
            f,
            "{worlds} worlds, {terms} terms ({runs} of which ran something), {faults} faults, {events} events, \
             {seconds} virtual seconds, \
             {overlaps} overlaps ({exposed} more that the law does not cover), \
             {speed:.0} terms per CPU-minute"
        )
    }
}
