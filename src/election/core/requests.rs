//! The one request in flight, and the acquisitions and renewals whose outcome is unknown (law 6).

use std::sync::Arc;

use serde_json::Value;

use super::Core;
use crate::{
    election::{
        Action, Request, RequestId,
        asked::{Asked, Attempt},
        record::LeaseRecord,
        trace::TraceContext,
    },
    time::Now,
};

/// How many unanswered writes are remembered, so that no outage exhausts memory. A write that was forgotten and is still stored
/// counts as a stranger's and is waited for, which is safe (law 13).
const MOST_UNKNOWN: usize = 100;

#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Requests {
    sent: u64,
    /// The latest request, until its answer comes.
    awaited: Option<Asked>,
    unknown: Vec<Attempt>,
}

impl Requests {
    pub(crate) const fn is_awaiting(&self) -> bool {
        self.awaited.is_some()
    }

    /// Returns the write whose answer is awaited.
    pub(crate) fn awaited_attempt(&self) -> Option<&Attempt> {
        self.awaited.as_ref()?.attempt.as_ref()
    }

    /// Takes the request of the answer `id`. None if that answer is not awaited.
    pub(crate) fn answered(&mut self, id: RequestId) -> Option<Asked> {
        let latest = RequestId(self.sent);
        self.awaited.take_if(|_| id == latest)
    }

    /// Awaits no answer any more. One that comes later is ignored.
    pub(crate) fn forgo_answer(&mut self) {
        self.awaited = None;
    }

    /// Remembers a write without an answer: a read may find it stored (law 6).
    pub(crate) fn remember(&mut self, attempt: Attempt) {
        if self.unknown.len() == MOST_UNKNOWN {
            self.unknown.remove(0);
        }
        self.unknown.push(attempt);
    }

    /// Returns the unanswered write that a quorum read of `record` proves.
    pub(crate) fn proved_by(&self, record: &LeaseRecord) -> Option<&Attempt> {
        self.unknown.iter().find(|attempt| attempt.is_proved_by(record) && attempt.left_its_span_on(record))
    }

    /// Returns whether `record` may come from an unanswered write. A read will tell.
    pub(crate) fn may_be(&self, record: &LeaseRecord) -> bool {
        self.unknown.iter().any(|attempt| attempt.is(record))
    }

    /// Forgets the writes that can no longer be stored, because the version that they replace is gone.
    pub(crate) fn forget_overtaken(&mut self, record: &LeaseRecord) {
        self.unknown.retain(|attempt| attempt.base() == Some(record.resource_version()));
    }

    /// Forgets all writes: no later read proves one of them.
    pub(crate) fn forget_all(&mut self) {
        self.unknown.clear();
    }

    /// Returns the latest renewTime of the writes without an answer, in microseconds.
    pub(crate) fn latest_time(&self) -> Option<i64> {
        self.unknown.iter().chain(self.awaited_attempt()).filter_map(Attempt::time).max()
    }
}

impl Core {
    pub(crate) fn get(&mut self, now: Now) {
        self.request(Request::Get, None, now);
    }

    /// Sends a POST, which acquires nothing (law 12).
    pub(crate) fn create(&mut self, object: Value, now: Now) {
        let object = Arc::new(object);
        let attempt = Attempt { object: Arc::clone(&object), sent: now.boot, acquires: None };
        self.request(Request::Create(object), Some(attempt), now);
    }

    /// Sends a PUT. `acquires` is the span of the transition, if the write is to begin a term.
    pub(crate) fn replace(&mut self, object: Value, acquires: Option<TraceContext>, now: Now) {
        let object = Arc::new(object);
        let attempt = Attempt { object: Arc::clone(&object), sent: now.boot, acquires };
        self.request(Request::Replace(object), Some(attempt), now);
    }

    pub(crate) fn delete(&mut self, record: &LeaseRecord, now: Now) {
        let (uid, resource_version) = (record.uid().to_owned(), record.resource_version().to_owned());
        self.request(Request::Delete { uid, resource_version }, None, now);
    }

    fn request(&mut self, request: Request, attempt: Option<Attempt>, now: Now) {
        self.requests.sent += 1;
        let operation = request.operation();
        self.requests.awaited = Some(Asked { attempt, operation, sent: now.boot });
        self.backoff.asked(now.boot);
        self.act(Action::Request { slot: self.slot, id: RequestId(self.requests.sent), request });
    }
}
