//! Counts what was simulated.

use std::{collections::BTreeMap, fmt, time::Duration};

use nix::time::{ClockId, clock_gettime};

use tenure_world::law::What;

use crate::{clock::S, engine::Engine, judge::Uncovered, lawful::Counts, nemesis::Fault};

/// The transitions of the law that fewer terms than these need not take, and why.
const SELDOM: [(What, u64, &str); 6] = [
    (What::PeerTakes, u64::MAX, "a client-go is a stranger to the law of a simulation"),
    (What::StoresPeersRelease, u64::MAX, "a client-go is a stranger to the law of a simulation"),
    (What::Forgets, u64::MAX, "an elector that forgets a write tells nobody: the law remembers it until the term ends"),
    (What::SeesLateAbsence, 1_000_000, "an answer that the Lease is absent comes after the watch event of its creation"),
    (What::StrangerReleases, 1_000_000, "somebody who is dead was written over a Lease without a name beside it"),
    (What::TakesAgain, 1_000_000, "an acquisition is proved after S, and nothing was written since"),
];

/// Sums over worlds.
#[derive(Debug, Default)]
pub struct Tally {
    pub worlds: u64,
    /// Terms that some init was told of.
    pub terms: u64,
    /// Terms under which something ran.
    pub runs: u64,
    /// Leases that a witness gave back.
    pub obituaries: u64,
    /// Holders that were asked to hand over to a replica of a higher priority.
    pub preempted: u64,
    pub events: u64,
    /// Virtual seconds.
    pub seconds: u64,
    pub faults: BTreeMap<Fault, u64>,
    /// Overlaps that the law does not cover.
    pub exposed: BTreeMap<Uncovered, u64>,
    /// Worlds that the law judged, and what it saw there.
    pub judged: u64,
    pub law: Counts,
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
        self.obituaries += e.judge.obituaries;
        self.preempted += e.judge.preempted;
        self.events += e.events;
        self.seconds += e.now / S;
        add(&mut self.exposed, &e.judge.exposed);
        add(&mut self.faults, &e.counts);
        if let Some(law) = &e.judge.law {
            self.judged += 1;
            add_law(&mut self.law, &law.counts);
        }
        if let Some(wrong) = e.judge.verdict() {
            self.wrong = Some((seed, wrong.to_owned()));
        }
    }

    /// The kinds of faults that never took effect.
    pub fn missing(&self) -> Vec<Fault> {
        Fault::ALL.iter().copied().filter(|fault| !self.faults.contains_key(fault)).collect()
    }

    /// The transitions of the law that this many terms should have taken, and did not.
    pub fn untaken(&self, terms: u64) -> Vec<What> {
        let is_seldom = |what: &What| SELDOM.iter().any(|(seldom, from, _)| seldom == what && terms < *from);
        What::ALL.iter().copied().filter(|what| !is_seldom(what) && self.law.steps[what.place()] == 0).collect()
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
        self.obituaries += other.obituaries;
        self.preempted += other.preempted;
        self.events += other.events;
        self.seconds += other.seconds;
        add(&mut self.exposed, &other.exposed);
        add(&mut self.faults, &other.faults);
        self.judged += other.judged;
        add_law(&mut self.law, &other.law);
        self.cpu += other.cpu;
        self.wrong = self.wrong.or(other.wrong);
        self
    }
}

fn add_law(sums: &mut Counts, more: &Counts) {
    sums.steps.iter_mut().zip(more.steps).for_each(|(sum, more)| *sum += more);
    add(&mut sums.exposed, &more.exposed);
    add(&mut sums.over, &more.over);
}

fn add<K: Ord + Copy>(sums: &mut BTreeMap<K, u64>, more: &BTreeMap<K, u64>) {
    for (kind, times) in more {
        *sums.entry(*kind).or_default() += times;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (fault, times) in &self.faults {
            writeln!(f, "{times:>12} {fault:?}")?;
        }
        let Self { worlds, terms, runs, obituaries, preempted, events, seconds, exposed, .. } = self;
        let faults = self.strikes();
        let Counts { steps, exposed: assumed, over } = &self.law;
        let rarest = What::ALL.iter().zip(steps).filter(|(_, times)| **times > 0).min_by_key(|(_, times)| **times);
        let sum = steps.iter().sum::<u64>();
        writeln!(
            f,
            "the law: {sum} steps in {} worlds, the rarest {rarest:?}; not assumed: {assumed:?}; ended by: {over:?}",
            self.judged
        )?;
        #[allow(clippy::cast_precision_loss, reason = "for people")]
        let speed = *terms as f64 / self.cpu.as_secs_f64().max(0.001) * 60.0;
        let overlaps = u32::from(self.wrong.as_ref().is_some_and(|(_, wrong)| wrong.starts_with("two at once")));
        write!(
            f,
            "{worlds} worlds, {terms} terms ({runs} of which ran something, {obituaries} given back by a witness, {preempted} preempted), {faults} faults, \
             {events} events, \
             {seconds} virtual seconds, \
             {overlaps} overlaps (not covered: {exposed:?}), \
             {speed:.0} terms per CPU-minute"
        )
    }
}
