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

/// The judges, and how often 100 000 terms arm each at least: a third of the rate that 300 000 had. 0 is hardly ever.
const JUDGES: [(&str, u64); 52] = [
    ("a closed Lease is left alone", 750),
    ("a fire is run once", 10),
    ("a frozen main process dies last", 2900),
    ("a leader runs beside no standby", 2600),
    ("a Lease is not left alone", 180),
    ("a Lease with a holder is pruned", 21),
    ("a link is read to its end", 66_000),
    ("a lost term was touched", 200),
    ("a lower priority is asked to hand over", 36),
    ("a proved term does not expire", 250),
    ("a release", 30_000),
    ("a renewal", 14_000),
    ("a request is taken back alone", 0),
    ("a rest", 440),
    ("a role is told to who lives", 1200),
    ("a run waits for the interval", 15),
    ("a signal meets its process", 100_000),
    ("a stray is dead in time", 510),
    ("a take after a rest", 170),
    ("a take after an obituary", 430),
    ("a take of what is promised to another", 25),
    ("a take of what nobody gave back", 2300),
    ("a take of what was given back", 30_000),
    ("a term begins after the last one", 1700),
    ("a token in a slice rises", 17_000),
    ("a token is used again by its term", 31_000),
    ("a token rises", 21_000),
    ("a witness's release", 410),
    ("a write for nobody", 4700),
    ("a write of a slice", 17_000),
    ("an answer is heard", 8),
    ("an earlier term's slice is taken over", 7000),
    ("an excused overlap ends", 7),
    ("an extended term does not expire", 76),
    ("init acts on what is due", 890_000),
    ("init knows of a release", 33_000),
    ("no term expires without a cause", 120),
    ("nothing runs when the Lease is released", 31_000),
    ("one elector at a time", 71_000),
    ("others go first after a failure", 640),
    ("others go first after a release", 57),
    ("terms rise", 1700),
    ("the elector acts on what is due", 1_000_000),
    ("the fuses are set first", 43_000),
    ("the page is taken back first", 68_000),
    ("two at once", 33_000),
    ("what exited has ended by itself", 30_000),
    ("what others wrote stays", 22_000),
    ("what restarts has ended by itself", 61),
    ("who asks for a handover is ready", 44),
    ("who is to answer is marked", 930),
    ("who steps down was asked to", 730),
];

/// It is armed up to two hundred times in a world, and in few worlds: 150 000 terms may have one of them.
const CLUSTERED: &str = "a run waits for the interval";

/// How often each judge had something to judge.
#[derive(Debug, Default)]
pub struct Armed(BTreeMap<&'static str, u64>);

impl Armed {
    /// This judge is armed.
    pub fn arm(&mut self, judge: &'static str) {
        *self.0.entry(judge).or_default() += 1;
    }

    /// This judge is armed, if so.
    pub fn arm_if(&mut self, is_armed: bool, judge: &'static str) {
        if is_armed {
            self.arm(judge);
        }
    }
}

/// Sums over worlds.
#[derive(Debug, Default)]
pub struct Tally {
    pub worlds: u64,
    /// Terms that some init was told of.
    pub terms: u64,
    /// Terms under which something ran.
    pub runs: u64,
    /// How often each judge had something to judge.
    pub armed: Armed,
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
    /// The worlds with a violation, and the violations.
    pub wrong: Vec<(u64, String)>,
}

impl Tally {
    /// Adds the outcome of a world.
    pub fn add(&mut self, seed: u64, e: &Engine) {
        self.worlds += 1;
        self.terms += e.judge.terms;
        self.runs += e.judge.runs;
        add(&mut self.armed.0, &e.judge.armed.0);
        self.events += e.events;
        self.seconds += e.now / S;
        add(&mut self.exposed, &e.judge.exposed);
        add(&mut self.faults, &e.counts);
        if let Some(law) = &e.judge.law {
            self.judged += 1;
            add_law(&mut self.law, &law.counts);
        }
        if let Some(wrong) = e.judge.verdict() {
            self.wrong.push((seed, wrong.to_owned()));
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

    /// Lists the judges that this many terms armed too seldom, or that have no floor: how often, and how often at least.
    pub fn unarmed(&self, terms: u64) -> Vec<(&'static str, u64, u64)> {
        let unlisted = self.armed.0.keys().filter(|judge| JUDGES.iter().all(|(listed, _)| listed != *judge));
        let unlisted = unlisted.map(|judge| (*judge, 0, u64::MAX));
        let all = JUDGES
            .iter()
            .map(|(judge, floor)| (*judge, self.armed.0.get(judge).copied().unwrap_or_default(), floor * terms / 100_000));
        // What is rare happens in a few worlds, of which a short run may have none.
        let is_long = |judge| terms >= if judge == CLUSTERED { 500_000 } else { 100_000 };
        let all = all.filter(|(judge, times, least)| times < least && (is_long(*judge) || terms >= 10_000 && *least >= 100));
        all.chain(unlisted).collect()
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
        add(&mut self.armed.0, &other.armed.0);
        self.events += other.events;
        self.seconds += other.seconds;
        add(&mut self.exposed, &other.exposed);
        add(&mut self.faults, &other.faults);
        self.judged += other.judged;
        add_law(&mut self.law, &other.law);
        self.cpu += other.cpu;
        self.wrong.extend(other.wrong);
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
        for (judge, times) in &self.armed.0 {
            writeln!(f, "{times:>12} {judge}")?;
        }
        let Self { worlds, terms, runs, events, seconds, exposed, .. } = self;
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
        let overlaps = self.wrong.iter().filter(|(_, wrong)| wrong.starts_with("two at once")).count();
        write!(
            f,
            "{worlds} worlds, {terms} terms ({runs} of which ran something), {faults} faults, \
             {events} events, \
             {seconds} virtual seconds, \
             {overlaps} overlaps (not covered: {exposed:?}), \
             {speed:.0} terms per CPU-minute"
        )
    }
}
