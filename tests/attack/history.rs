//! The history of one world, collected once it is over.

use std::time::Duration;

use serde_json::Value;
use support::{Event, Exchange, LEASE, Life, audit::Record};
use tenure::{
    clock,
    time::{Instant, Now},
};

use crate::world::{Past, Span, World};

/// Everything that the judge looks at.
pub(crate) struct History {
    pub(crate) world: u8,
    /// How many may run at a time.
    pub(crate) slots: u8,
    pub(crate) namespace: String,
    /// When the workload of each term was alive, in the order of their starts.
    pub(crate) lives: Vec<Life>,
    pub(crate) events: Vec<Event>,
    pub(crate) spans: Vec<Span>,
    pub(crate) rounds: Vec<Past>,
    /// Each replica's requests, log and end.
    pub(crate) replicas: Vec<Replica>,
    /// The server's audit log of each Lease, in the order of its answers.
    pub(crate) audit: Vec<Record>,
    /// Why it was aborted, if it was.
    pub(crate) broken_off: Option<String>,
    /// Both clocks at one moment.
    pub(crate) now: Now,
}

/// The record of one replica.
pub(crate) struct Replica {
    pub(crate) name: String,
    /// True if this is the client-go replica.
    pub(crate) is_peer: bool,
    pub(crate) exchanges: Vec<Exchange>,
    pub(crate) lines: Vec<String>,
    /// 128 plus the signal that ended init; none if it ran to the end.
    pub(crate) code: Option<i32>,
}

impl History {
    /// Collects the history of a world whose replicas have ended.
    pub(crate) fn of(world: World, broken_off: Option<String>) -> Self {
        let World { number, kind, stage, shared, mut spans, rounds, remains, .. } = world;
        spans.extend(shared.spans.borrow().iter().cloned());
        let replicas = remains.into_iter().map(|(replica, log)| Replica { exchanges: log.all(), ..replica });
        Self {
            world: number,
            slots: kind.slots(),
            lives: stage.witness.lives(),
            events: stage.witness.all(),
            spans,
            rounds,
            replicas: replicas.collect(),
            audit: (0..kind.slots()).flat_map(|slot| stage.audit_of(&lease_of(slot))).collect(),
            namespace: stage.namespace,
            broken_off,
            now: clock::now(),
        }
    }

    /// Converts a time of the audit log, which is in microseconds since 1970.
    pub(crate) fn moment(&self, answered: i64) -> Instant {
        self.now.boot.before(Duration::from_micros(u64::try_from(self.now.wall - answered).unwrap_or_default()))
    }

    /// The Lease under which this life ran, as its replica was told or, where only a watch told it of its own write, as the server
    /// recorded.
    pub(crate) fn lease_of(&self, life: &Life) -> Option<&str> {
        let replica = self.replicas.iter().find(|replica| replica.name == life.replica)?;
        let answers = replica.exchanges.iter().filter_map(|exchange| exchange.answer.as_ref()).map(|answer| &answer.body);
        let metadata = answers.chain(self.audit.iter().map(|record| &record.stored)).map(|object| &object["metadata"]);
        // A list may be of the same version, and has no name.
        metadata.filter(|metadata| metadata["resourceVersion"] == *life.token).find_map(|metadata| metadata["name"].as_str())
    }

    /// How many lines of its replicas contain these words.
    pub(crate) fn said(&self, words: &str) -> usize {
        self.replicas.iter().flat_map(|replica| &replica.lines).filter(|line| line.contains(words)).count()
    }

    /// Faults that were active at some moment of this time span.
    pub(crate) fn faults_within(&self, from: Instant, to: Instant) -> impl Iterator<Item = &Span> {
        self.spans.iter().filter(move |span| span.from <= to && span.to >= from)
    }
}

fn lease_of(slot: u8) -> String {
    if slot == 0 { LEASE.into() } else { format!("{LEASE}-slot-{slot}") }
}

/// The string value of a key of a spec.
pub(crate) fn text<'a>(spec: &'a Value, key: &str) -> &'a str {
    spec[key].as_str().unwrap_or_default()
}
