//! The engine that drives a random run: events in the order of real time, one source of randomness, the judge, the story.
//!
//! Everything that happens follows from the seed. The story is recorded only where somebody will read it.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, binary_heap::PeekMut},
    fmt::Display,
};

use fastrand::Rng;

use crate::{
    clock::{MS, Ns, S, US},
    scene::{Choice, Due, Observer, Scene, Who},
};

/// See the module. `E` are the events, `J` is the judge, and `C` is what is counted.
pub struct Engine<E, J, C> {
    /// Real time.
    pub now: Ns,
    /// The one source of randomness.
    pub rng: Rng,
    /// The properties that must hold.
    pub judge: J,
    /// Events so far.
    pub events: u64,
    /// How often each of them happened.
    pub counts: BTreeMap<C, u64>,
    queue: BinaryHeap<Scheduled<E>>,
    story: Option<Vec<String>>,
}

struct Scheduled<E> {
    at: Reverse<(Ns, u64)>,
    event: E,
}

impl<E> PartialEq for Scheduled<E> {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl<E> Eq for Scheduled<E> {}

impl<E> PartialOrd for Scheduled<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Scheduled<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}

impl<E, J: Default, C: Ord> Engine<E, J, C> {
    /// A run of this seed at its beginning; `told` if its story is wanted.
    pub fn new(seed: u64, told: bool) -> Self {
        Self {
            now: 0,
            rng: Rng::with_seed(seed),
            judge: J::default(),
            events: 0,
            counts: BTreeMap::new(),
            queue: BinaryHeap::new(),
            story: told.then(Vec::new),
        }
    }
}

impl<E, J, C: Ord> Engine<E, J, C> {
    /// Schedules `event` for `when`, or for now if that is past.
    pub fn at(&mut self, when: Ns, event: E) {
        self.events += 1;
        self.queue.push(Scheduled { at: Reverse((when.max(self.now), self.events)), event });
    }

    /// Schedules `event` after `span`.
    pub fn after(&mut self, span: Ns, event: E) {
        self.at(self.now.saturating_add(span), event);
    }

    /// Takes the next event, if it happens until then, and advances time to it.
    pub fn next_until(&mut self, until: Ns) -> Option<E> {
        let next = self.queue.peek_mut()?;
        if next.at.0.0 > until {
            return None;
        }
        let Scheduled { at: Reverse((when, _)), event } = PeekMut::pop(next);
        self.now = when;
        Some(event)
    }

    /// True with this probability.
    pub fn chance(&mut self, share: f64) -> bool {
        share > 0.0 && self.rng.f64() < share
    }

    /// Some span from `least` to `most`.
    pub fn between(&mut self, least: Ns, most: Ns) -> Ns {
        self.rng.u64(least..=most.max(least))
    }

    /// Some span from `least` to `most`, log-uniformly distributed.
    pub fn spread(&mut self, least: Ns, most: Ns) -> Ns {
        spread(&mut self.rng, least, most)
    }

    /// How long a process that has something to do waits for a CPU: `most` at the very most, usually next to nothing.
    pub fn latency(&mut self, most: Ns) -> Ns {
        match self.rng.u8(..) {
            0..=7 => most,
            8..=20 => self.between(0, most),
            21..=60 => self.between(0, most.min(5 * MS)),
            61..=255 => self.between(US, (200 * US).min(most)),
        }
    }

    /// This has happened.
    pub fn count(&mut self, what: C) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Adds a line to the story.
    pub fn note(&mut self, who: impl Display, what: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            let (seconds, rest) = (self.now / S, self.now % S / US);
            story.push(format!("{seconds:>5}.{rest:06}  {who:<6} {}", what()));
        }
    }

    /// The whole story so far.
    pub fn story(&self) -> &[String] {
        self.story.as_deref().unwrap_or_default()
    }
}

/// Everything that is left open is random.
impl<E, J, C: Ord> Choice for Engine<E, J, C> {
    fn up_to(&mut self, most: u32) -> u32 {
        self.rng.u32(..=most)
    }

    fn chance(&mut self, share: f64) -> bool {
        self.chance(share)
    }

    fn coin(&mut self) -> bool {
        self.rng.bool()
    }

    fn spread(&mut self, least: Ns, most: Ns) -> Ns {
        self.spread(least, most)
    }
}

impl<E: From<Due>, J: Observer, C: Ord> Scene for Engine<E, J, C> {
    const EXACT: bool = false;
    type Judge = J;

    fn now(&self) -> Ns {
        self.now
    }

    fn schedule(&mut self, when: Ns, due: Due) {
        self.at(when, due.into());
    }

    fn note(&mut self, who: Who, what: impl FnOnce() -> String) {
        self.note(who, what);
    }

    fn judge(&mut self) -> &mut J {
        &mut self.judge
    }
}

/// Some span from `least` to `most`, log-uniformly.
pub fn spread(rng: &mut Rng, least: Ns, most: Ns) -> Ns {
    let (low, high) = (f64::from(bits(least.max(1))), f64::from(bits(most.max(least).max(1))));
    let order = low + (high - low) * rng.f64();
    let (from, to) = ((1_u64 << floor(order)).max(least), 1_u64.checked_shl(floor(order) + 1).unwrap_or(u64::MAX).min(most));
    rng.u64(from.min(to)..=to.max(from)).clamp(least, most.max(least))
}

fn bits(span: Ns) -> u32 {
    span.ilog2()
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 63")]
fn floor(order: f64) -> u32 {
    order as u32
}
