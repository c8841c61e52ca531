//! What the probes answer from.

use std::time::Duration;

use tokio::sync::watch;

use crate::{election::View, time::Instant};

/// How long a leader may go without a renewal beyond D before `/livez` fails; by then it should long have stopped leading.
pub const TOLERANCE: Duration = Duration::from_secs(5);

/// Written by the elector's loop, read by the probes; both cheaply and without waiting.
#[derive(Clone, Debug)]
pub struct Health(watch::Sender<Vital>);

/// The state behind the probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vital {
    /// D of the configuration.
    pub duration: Duration,
    /// When init was last heard from.
    pub heard: Instant,
    /// The state of the election.
    pub view: View,
}

impl Health {
    /// Not ready, not leading, and init heard from at `now`.
    #[must_use]
    pub fn new(duration: Duration, now: Instant) -> Self {
        let view = View { ready: false, workload: true, leading: None };
        Self(watch::Sender::new(Vital { duration, heard: now, view }))
    }

    /// Init said something.
    pub fn heard(&self, at: Instant) {
        self.0.send_modify(|vital| vital.heard = at);
    }

    /// The election moved on.
    pub fn update(&self, view: View) {
        self.0.send_modify(|vital| vital.view = view);
    }

    /// What was last written.
    #[must_use]
    pub fn vital(&self) -> Vital {
        *self.0.borrow()
    }
}
