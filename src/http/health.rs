//! Holds the state that the pages answer from.

use prometheus::Registry;
use tokio::sync::watch;

use super::board::Board;
use crate::{
    link::InitialState,
    telemetry::status::{Fact, Status},
    time::Instant,
};

/// The one status, and the board. Written by the elector's loop, read by the pages; both cheaply and without waiting.
#[derive(Clone, Debug)]
pub struct Health {
    status: watch::Sender<Status>,
    board: watch::Sender<Board>,
    metrics: Registry,
}

impl Health {
    /// Begins from the state that init hands to a new elector at `now`.
    pub fn new(initial: &InitialState, now: Instant) -> Self {
        let (status, board) = (Status::new(initial, now), Board::new(initial));
        Self { status: watch::Sender::new(status), board: watch::Sender::new(board), metrics: Registry::new() }
    }

    /// Takes in a fact that happened at `at`.
    pub fn apply(&self, fact: &Fact, at: Instant) {
        self.status.send_if_modified(|status| status.apply(fact, at));
        if let Fact::Recorded(recorded) = fact {
            self.board.send_if_modified(|board| board.recorded(recorded));
        }
    }

    /// The API server lets this replica update the Lease, or does not.
    pub fn permit(&self, is_permitted: bool) {
        self.status.send_if_modified(|status| status.set_permitted(is_permitted));
    }

    /// A witness knows this replica, or does so no longer.
    pub fn witness(&self, is_witnessed: bool) {
        self.status.send_modify(|status| status.set_witnessed(is_witnessed));
    }

    /// Returns the status as it is now.
    pub fn status(&self) -> watch::Ref<'_, Status> {
        self.status.borrow()
    }

    /// Follows the status.
    pub fn follow(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// Returns the identity of the holder of the first slot.
    pub fn first_holder(&self) -> Option<String> {
        self.board.borrow().first_holder().map(str::to_owned)
    }

    /// Returns the metrics that `/metrics` shows.
    pub const fn metrics(&self) -> &Registry {
        &self.metrics
    }

    pub(super) fn board(&self) -> watch::Ref<'_, Board> {
        self.board.borrow()
    }

    /// Follows the board.
    pub(super) fn follow_board(&self) -> watch::Receiver<Board> {
        self.board.subscribe()
    }
}
