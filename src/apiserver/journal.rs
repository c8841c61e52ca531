//! Every request in the order in which it arrived: the witness in tests.
//!
//! Owns the entries and the waiting for them. Times are CLOCK_BOOTTIME, so that they compare with what workloads stamp.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant as Deadline},
};

use bytes::Bytes;

use crate::time::Instant;

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Nothing yet, or nothing ever.
    Open,
    /// An answer with this status was handed to the connection.
    Answered {
        /// HTTP status code.
        code: u16,
        /// When.
        at: Instant,
    },
    /// The connection was closed without one.
    Dropped,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The client that its kubeconfig was issued to; empty if it showed no valid token.
    pub client: String,
    /// HTTP method.
    pub method: String,
    /// Path, without the query.
    pub path: String,
    /// Query, without the question mark; empty if there is none.
    pub query: String,
    /// User-Agent.
    pub user_agent: String,
    /// The whole body.
    pub body: Bytes,
    /// When all of it had arrived.
    pub arrived: Instant,
    /// When the store carried it out, if it did.
    pub carried_out: Option<Instant>,
    /// The version that it made, if it changed something.
    pub version: Option<u64>,
    /// How it ended.
    pub fate: Fate,
}

impl Entry {
    /// Whether this begins a watch.
    #[must_use]
    pub fn is_watch(&self) -> bool {
        self.method == "GET" && self.query.split('&').any(|part| matches!(part, "watch=true" | "watch=1" | "watch"))
    }

    /// Status of the answer; none while there is none.
    #[must_use]
    pub const fn code(&self) -> Option<u16> {
        match self.fate {
            Fate::Answered { code, .. } => Some(code),
            Fate::Open | Fate::Dropped => None,
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Journal {
    entries: Mutex<Vec<Entry>>,
    changed: Condvar,
}

impl Journal {
    /// Adds an entry; its number.
    pub(super) fn open(&self, entry: Entry) -> usize {
        let mut entries = self.lock();
        entries.push(entry);
        self.changed.notify_all();
        entries.len() - 1
    }

    /// Changes an entry.
    pub(super) fn amend(&self, number: usize, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.lock().get_mut(number) {
            change(entry);
        }
        self.changed.notify_all();
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        self.lock().clone()
    }

    /// Waits until `done` says so of all entries; what it said last when `patience` ran out.
    pub(super) fn wait<R>(&self, patience: Duration, mut done: impl FnMut(&[Entry]) -> Option<R>) -> Option<R> {
        let deadline = Deadline::now() + patience;
        let mut entries = self.lock();
        loop {
            if let Some(result) = done(&entries) {
                return Some(result);
            }
            let left = deadline.saturating_duration_since(Deadline::now());
            if left.is_zero() {
                return None;
            }
            entries = self.changed.wait_timeout(entries, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
