//! The engine that drives a run: events in the order of real time, one source of randomness, the judge, the story.
//!
//! Everything that happens follows from the seed. The story is recorded only where somebody will read it.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    fmt::Display,
};

use fastrand::Rng;
use serde_json::Value;
use tenure::{
    election::RequestId,
    request::{RequestError, Watched},
};

use crate::{
    clock::{MS, Ns, S, US},
    judge::Judge,
    nemesis::Fault,
    network::{Flight, Reply},
    traffic::SliceFlight,
};

/// A life of a replica: its container from start to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Who {
    /// Which replica.
    pub replica: usize,
    /// Which of its containers.
    pub life: u32,
}

/// A process in a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Child {
    /// Whose.
    pub who: Who,
    /// Which.
    pub pid: i32,
}

impl Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "r{}.{}", self.replica, self.life)
    }
}

/// The events.
#[derive(Debug)]
pub enum Event {
    /// The container of this replica starts.
    Boot(usize),
    /// Init's loop turns.
    Init(Who),
    /// Init runs on after a SIGSTOP.
    ContinueInit(Who),
    /// The elector process has started.
    ElectorUp(Child),
    /// The elector's loop turns.
    Elector(Child),
    /// The elector's guard checks its clock.
    Guard(Child),
    /// The kernel's fuse may be due.
    Fuse(Who),
    /// The elector runs on after a SIGSTOP.
    ContinueElector(Child),
    /// A killed elector has become a zombie.
    ElectorGone(Child),
    /// The first byte of the request leaves.
    Send(Child, RequestId),
    /// The request's time has run out.
    Late(Child, RequestId),
    /// The request reaches the server.
    Arrive(Box<Flight>),
    /// The answer reaches the client.
    Reply(Box<Reply>),
    /// A watch from this version on reaches the server.
    WatchBegins(Child, u64, Option<String>),
    /// The watch of this number delivers something.
    Watched(Child, u64, Box<Watched>),
    /// A forked process is about to exec.
    Exec(Child),
    /// The workload takes on a role that it was told.
    Obeys(Child),
    /// The workload says how it is.
    Says(Child),
    /// A process that somebody has continued should be dead, after this span.
    Strays(Child, Ns),
    /// A process ends, for whatever reason.
    Ends(Child),
    /// The elector looks after the EndpointSlice of its leader.
    Publishes(Child),
    /// A request for a slice reaches the server.
    SliceArrives(Box<SliceFlight>),
    /// The answer to that reaches the client.
    SliceAnswered(Child, Box<Result<Value, RequestError>>),
    /// An elector of this container connects to its witness.
    Connects(Who),
    /// Its connection to the witness ends.
    Disconnects(Who),
    /// The witness hears that no process of this container is left.
    Died(Who),
    /// The witness of this replica starts again.
    WitnessUp(usize),
    /// The first byte of a witness's request leaves.
    SendObituary(Box<Flight>),
    /// The time of a witness's request has run out.
    WitnessLate(Child, RequestId),
    /// The client-go replica may have something to do.
    Peer,
    /// The nemesis injects a fault.
    Strike,
    /// The nemesis injects this fault into that replica.
    Aimed(Who, Fault),
    /// The excuse for two that ran at once is over.
    Settles,
    /// All faults are over.
    Calm,
}

struct Scheduled {
    at: Reverse<(Ns, u64)>,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}

/// See the module.
pub struct Engine {
    /// Real time.
    pub now: Ns,
    /// The one source of randomness.
    pub rng: Rng,
    /// The properties that must hold.
    pub judge: Judge,
    /// Events so far.
    pub events: u64,
    /// Faults so far.
    pub faults: BTreeMap<Fault, u64>,
    queue: BinaryHeap<Scheduled>,
    story: Option<Vec<String>>,
}

impl Engine {
    /// A run of this seed at its beginning; `told` if its story is wanted.
    pub fn new(seed: u64, told: bool) -> Self {
        Self {
            now: 0,
            rng: Rng::with_seed(seed),
            judge: Judge::default(),
            events: 0,
            faults: BTreeMap::new(),
            queue: BinaryHeap::new(),
            story: told.then(Vec::new),
        }
    }

    /// Schedules `event` for `when`, or for now if that is past.
    pub fn at(&mut self, when: Ns, event: Event) {
        self.events += 1;
        self.queue.push(Scheduled { at: Reverse((when.max(self.now), self.events)), event });
    }

    /// Schedules `event` after `span`.
    pub fn after(&mut self, span: Ns, event: Event) {
        self.at(self.now.saturating_add(span), event);
    }

    /// Takes the next event and advances time to it.
    pub fn next(&mut self) -> Option<Event> {
        let Scheduled { at: Reverse((when, _)), event } = self.queue.pop()?;
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

    /// A fault of this kind took effect.
    pub fn struck(&mut self, fault: Fault) {
        *self.faults.entry(fault).or_default() += 1;
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
