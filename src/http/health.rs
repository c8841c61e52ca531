//! Holds the state that the probes answer from.

use std::time::Duration;

use prometheus::Registry;
use tokio::sync::watch;

use super::board::Board;
use crate::{
    election::{Event, View},
    link::{InitialState, LeaseBackoff, ToElector},
    request::Operation,
    telemetry::transition::Recorded,
    time::Instant,
};

/// How long a leader may go without a renewal beyond D before `/livez` fails; by then it should long have stopped leading.
pub const TOLERANCE: Duration = Duration::from_secs(5);

/// Written by the elector's loop, read by the pages; both cheaply and without waiting.
#[derive(Clone, Debug)]
pub struct Health {
    vital: watch::Sender<Vital>,
    board: watch::Sender<Board>,
    metrics: Registry,
}

/// The state behind the probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vital {
    /// D of the configuration.
    pub duration: Duration,
    /// When init was last heard from.
    pub heard: Instant,
    /// The state of the election.
    pub view: View,
    /// The API server has not refused to let this replica update the Lease.
    pub permitted: bool,
    /// The API server answered the last request, or watch.
    pub answered: bool,
}

impl Health {
    /// Not ready, not leading, and init heard from at `now`.
    #[must_use]
    pub fn new(duration: Duration, now: Instant) -> Self {
        let view = View {
            ready: false,
            workload: true,
            leading: None,
            backoff: LeaseBackoff::default(),
            next_fire: None,
            renewed: None,
        };
        let vital = watch::Sender::new(Vital { duration, heard: now, view, permitted: true, answered: true });
        Self { vital, board: watch::Sender::default(), metrics: Registry::new() }
    }

    /// Of this replica.
    pub fn introduce(&self, initial: &InitialState) {
        self.board.send_replace(Board::new(initial));
    }

    /// Init said something.
    pub fn heard(&self, message: &ToElector, at: Instant) {
        self.board.send_if_modified(|board| board.told(message));
        self.vital.send_if_modified(|vital| {
            vital.heard = at;
            false
        });
    }

    /// The election moved on.
    pub fn update(&self, view: View) {
        self.vital.send_if_modified(|vital| std::mem::replace(&mut vital.view, view) != view);
    }

    /// The API server permits updates of the Lease, or refuses them.
    pub fn permitted(&self, permitted: bool) {
        self.vital.send_if_modified(|vital| std::mem::replace(&mut vital.permitted, permitted) != permitted);
    }

    /// The API server answered a request or a watch, or did not.
    pub fn answered(&self, answered: bool) {
        self.vital.send_if_modified(|vital| std::mem::replace(&mut vital.answered, answered) != answered);
    }

    /// The election reported this.
    pub fn event(&self, event: &Event) {
        if let Event::Failed { operation: Operation::Update, message, .. } = event
            && message.is_forbidden()
        {
            self.permitted(false);
        }
        if *event == (Event::Recovered { operation: Operation::Update }) {
            self.permitted(true);
        }
    }

    /// A part of a term is over.
    pub fn recorded(&self, recorded: &Recorded) {
        self.board.send_if_modified(|board| board.recorded(recorded));
    }

    /// Returns the value that was last written.
    #[must_use]
    pub fn vital(&self) -> Vital {
        *self.vital.borrow()
    }

    /// Returns the holder's identity.
    #[must_use]
    pub fn holder(&self) -> Option<String> {
        self.board.borrow().holder().map(str::to_owned)
    }

    /// Returns the metrics that `/metrics` shows.
    #[must_use]
    pub const fn metrics(&self) -> &Registry {
        &self.metrics
    }

    pub(super) fn board(&self) -> watch::Ref<'_, Board> {
        self.board.borrow()
    }

    /// Tells of changes from now on.
    pub(super) fn changes(&self) -> Changes {
        Changes { vital: self.vital.subscribe(), board: self.board.subscribe() }
    }
}

/// Waits for what follows.
pub(super) struct Changes {
    vital: watch::Receiver<Vital>,
    board: watch::Receiver<Board>,
}

impl Changes {
    /// The next one; at once if it came since the last.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.vital.changed() => {}
            _ = self.board.changed() => {}
        }
        self.vital.mark_unchanged();
        self.board.mark_unchanged();
    }
}
