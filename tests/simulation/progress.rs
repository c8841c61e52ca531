//! The progress of a run shared by many threads, reported once a minute.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub struct Progress {
    began: tenure::time::Instant,
    wanted: u64,
    next: AtomicU64,
    terms: AtomicU64,
    faults: AtomicU64,
    /// How many more violations end the run.
    bearable: AtomicU64,
    /// Minutes reported so far.
    told: AtomicU64,
}

impl Progress {
    /// A run of this many terms, from this seed on, which this many worlds with a violation end.
    pub fn new(wanted: u64, seed: u64, violations: u64) -> Self {
        Self {
            began: tenure::clock::boot(),
            wanted,
            next: AtomicU64::new(seed),
            terms: AtomicU64::new(0),
            faults: AtomicU64::new(0),
            bearable: AtomicU64::new(violations),
            told: AtomicU64::new(0),
        }
    }

    /// The first of the next `seeds` seeds; none if enough has been simulated, or violated.
    pub fn next(&self, seeds: u64) -> Option<u64> {
        let over = self.terms.load(Ordering::Relaxed) >= self.wanted || self.bearable.load(Ordering::Relaxed) == 0;
        (!over).then(|| self.next.fetch_add(seeds, Ordering::Relaxed))
    }

    /// Adds what was simulated.
    pub fn add(&self, terms: u64, faults: u64) {
        let terms = self.terms.fetch_add(terms, Ordering::Relaxed) + terms;
        let faults = self.faults.fetch_add(faults, Ordering::Relaxed) + faults;
        let minute = tenure::clock::boot().since(self.began).as_secs() / 60;
        if self.told.fetch_max(minute, Ordering::Relaxed) < minute {
            let seed = self.next.load(Ordering::Relaxed);
            eprintln!("after {minute} min: {terms} of {} terms, {faults} faults, seeds below {seed}", self.wanted);
        }
    }

    /// Records a world with a violation.
    pub fn fail(&self) {
        let _ = self.bearable.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |more| Some(more.saturating_sub(1)));
    }

    /// How long it has run.
    pub fn seconds(&self) -> f64 {
        tenure::clock::boot().since(self.began).as_secs_f64()
    }
}
