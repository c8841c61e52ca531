//! What happened in one world, gathered when it is over.

use std::time::Duration;

use serde_json::Value;
use tenure::{
    clock,
    time::{Instant, Now},
};

use crate::{
    support::{
        audit::Record,
        proxy::log::Exchange,
        witness::{Event, Life},
    },
    world::{Past, Span, World},
};

/// Everything that the judge looks at.
pub(crate) struct History {
    pub(crate) world: u8,
    pub(crate) namespace: String,
    /// When terms had a workload, in the order of their beginnings.
    pub(crate) lives: Vec<Life>,
    pub(crate) events: Vec<Event>,
    pub(crate) spans: Vec<Span>,
    pub(crate) rounds: Vec<Past>,
    /// What each replica asked, what it said, and how it ended.
    pub(crate) replicas: Vec<Replica>,
    /// The server's own record, in the order of its answers.
    pub(crate) audit: Vec<Record>,
    /// Why it ended early, if it did.
    pub(crate) broken_off: Option<String>,
    /// Both clocks at one moment.
    now: Now,
}

/// What one replica leaves.
pub(crate) struct Replica {
    pub(crate) name: String,
    /// It is not tenure.
    pub(crate) is_peer: bool,
    pub(crate) exchanges: Vec<Exchange>,
    pub(crate) lines: Vec<String>,
    pub(crate) code: Option<i32>,
}

impl History {
    /// Of a world whose replicas have ended.
    pub(crate) fn of(world: World, broken_off: Option<String>) -> Self {
        let World { number, stage, shared, mut spans, rounds, remains, .. } = world;
        spans.extend(shared.spans.borrow().iter().cloned());
        let replicas = remains.into_iter().map(|remains| Replica {
            name: remains.name,
            is_peer: remains.is_peer,
            exchanges: remains.log.all(),
            lines: remains.lines,
            code: remains.code,
        });
        Self {
            world: number,
            lives: stage.witness.lives(),
            events: stage.witness.all(),
            spans,
            rounds,
            replicas: replicas.collect(),
            audit: stage.audit(),
            namespace: stage.namespace,
            broken_off,
            now: clock::now(),
        }
    }

    /// A moment of the audit log, which has microseconds since 1970.
    pub(crate) fn moment(&self, answered: i64) -> Instant {
        self.now.boot.before(Duration::from_micros(u64::try_from(self.now.wall - answered).unwrap_or_default()))
    }

    /// Faults that lasted at some moment of this span of time.
    pub(crate) fn faults_within(&self, from: Instant, to: Instant) -> impl Iterator<Item = &Span> {
        self.spans.iter().filter(move |span| span.from <= to && span.to >= from)
    }
}

/// The string at a key of a spec.
pub(crate) fn text<'a>(spec: &'a Value, key: &str) -> &'a str {
    spec[key].as_str().unwrap_or_default()
}
