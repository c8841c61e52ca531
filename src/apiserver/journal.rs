//! The latest requests in order of arrival, far more than a test makes: the witness in tests.
//!
//! Owns the entries and the waiting for them. Times are CLOCK_BOOTTIME, comparable with the workloads' stamps.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::Method;

use crate::{clock, time::Instant};

/// Entries kept, so that a server that runs for weeks does not grow.
const KEPT: usize = 1 << 16;
/// Bytes kept in entries.
const KEPT_BYTES: usize = 64 << 20;

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Nothing yet, perhaps for ever.
    Open,
    /// An answer with this status was handed to the connection.
    Answered {
        /// HTTP status code.
        code: u16,
        /// When.
        at: Instant,
    },
    /// The connection was closed without an answer.
    Dropped,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The client to which its kubeconfig was issued; empty if it presented no valid token.
    pub client: String,
    /// HTTP method.
    pub method: Method,
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
    /// The version that it created, if it changed something.
    pub version: Option<u64>,
    /// How it ended.
    pub fate: Fate,
}

impl Entry {
    /// Bytes kept of what its client sent.
    fn size(&self) -> usize {
        self.method.as_str().len() + self.path.len() + self.query.len() + self.user_agent.len() + self.body.len()
    }

    /// Status code of the answer, if there is one.
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
    entries: Mutex<Entries>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Entries {
    kept: VecDeque<Entry>,
    /// Bytes in the kept entries.
    bytes: usize,
    /// How many entries were dropped before them.
    forgotten: usize,
}

impl Journal {
    /// Adds an entry and returns its number.
    pub(super) fn open(&self, entry: Entry) -> usize {
        let mut entries = self.lock();
        entries.bytes += entry.size();
        while entries.kept.len() == KEPT || entries.bytes > KEPT_BYTES {
            let Some(oldest) = entries.kept.pop_front() else { break };
            entries.bytes -= oldest.size();
            entries.forgotten += 1;
        }
        entries.kept.push_back(entry);
        self.changed.notify_all();
        entries.forgotten + entries.kept.len() - 1
    }

    /// Changes an entry, if it is still kept.
    pub(super) fn amend(&self, number: usize, change: impl FnOnce(&mut Entry)) {
        let mut entries = self.lock();
        let index = number.checked_sub(entries.forgotten);
        if let Some(entry) = index.and_then(|index| entries.kept.get_mut(index)) {
            change(entry);
        }
        self.changed.notify_all();
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        self.lock().kept.iter().cloned().collect()
    }

    /// Waits until `done` finds something in the entries; none once `patience` has run out.
    pub(super) fn wait<R>(&self, patience: Duration, mut done: impl FnMut(&[Entry]) -> Option<R>) -> Option<R> {
        let deadline = clock::boot() + patience;
        let mut entries = self.lock();
        loop {
            if let Some(result) = done(entries.kept.make_contiguous()) {
                return Some(result);
            }
            let left = deadline.since(clock::boot());
            if left.is_zero() {
                return None;
            }
            entries = self.changed.wait_timeout(entries, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(client: String) -> Entry {
        Entry {
            client,
            method: Method::GET,
            path: String::new(),
            query: String::new(),
            user_agent: String::new(),
            body: Bytes::new(),
            arrived: Instant::BOOT,
            carried_out: None,
            version: None,
            fate: Fate::Open,
        }
    }

    #[test]
    fn large_requests_leave_room_for_fewer() {
        let large = KEPT_BYTES / 4 - entry(String::new()).size();
        let body = Entry { body: Bytes::from(vec![0; large]), ..entry(String::new()) };
        let query = Entry { query: "a".repeat(large), ..entry(String::new()) };
        for request in [body, query] {
            let journal = Journal::default();

            for count in 0..9 {
                journal.open(Entry { client: count.to_string(), ..request.clone() });
            }

            let clients: Vec<_> = journal.entries().into_iter().map(|entry| entry.client).collect();
            assert_eq!(clients, ["5", "6", "7", "8"]);
        }
    }

    #[test]
    fn the_last_requests_are_kept_under_their_numbers() {
        let journal = Journal::default();
        let numbers: Vec<_> = (0..KEPT + 2).map(|count| journal.open(entry(count.to_string()))).collect();
        journal.amend(0, |_| panic!("it is forgotten"));
        journal.amend(KEPT + 1, |entry| entry.fate = Fate::Dropped);

        assert_eq!(numbers, (0..KEPT + 2).collect::<Vec<_>>());
        let entries = journal.entries();
        assert_eq!(entries.len(), KEPT);
        assert_eq!((entries[0].client.as_str(), entries[0].fate), ("2", Fate::Open));
        assert_eq!(entries[KEPT - 1].fate, Fate::Dropped);
    }
}
