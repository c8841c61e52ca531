//! A request that was sent, and what its answer says of the Lease (law 1, 6).
//!
//! Owns the one reading of an answer. What follows from it is up to whoever asked.

use std::{sync::Arc, time::Duration};

use serde_json::Value;

use super::{
    record::{LeaseRecord, later, metadata_of, spec_of},
    trace::TraceContext,
    writes::{TRACEPARENT, micros},
};
use crate::{
    request::{Answer, Operation, Refusal, RequestError},
    time::Instant,
};

pub(crate) const NOT_WHAT_WAS_SENT: &str = "the answer is not the Lease that was sent";
const UNREADABLE: &str = "the answer is not a Lease";

/// A write that was sent: its object, and when its first byte may have left.
#[derive(Clone, Debug, PartialEq, Hash)]
pub(crate) struct Attempt {
    /// A read that shows exactly this spec confirms the write (law 6).
    pub(crate) object: Arc<Value>,
    /// a: just before the first byte was sent.
    pub(crate) sent: Instant,
    /// The transition's span, if the write acquires the Lease.
    pub(crate) acquires: Option<TraceContext>,
}

/// A request whose answer is awaited, or has come.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Asked {
    /// The write; none for a read and a deletion.
    pub(crate) attempt: Option<Attempt>,
    pub(crate) operation: Operation,
    pub(crate) sent: Instant,
}

/// What an answer says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// A quorum read shows this record.
    Read(LeaseRecord),
    /// The write is stored, as this record (law 1).
    Proved(LeaseRecord, Attempt),
    /// The server answered the write with another record. Only a read tells whether the write is stored.
    Other(LeaseRecord, Attempt),
    /// The Lease is deleted.
    Deleted,
    /// There is no such Lease.
    Absent,
    /// 409.
    Conflict,
    /// Certainly not done.
    Refused(Refusal, RequestError),
    /// Nothing is known, and only a read tells whether a write is stored. The server may ask for a pause.
    Open(RequestError, Option<Duration>),
}

impl Asked {
    /// Reads the answer.
    pub(crate) fn judge(&self, answer: Answer) -> Verdict {
        Verdict::of(self.attempt.as_ref(), answer)
    }
}

impl Verdict {
    /// Reads the answer to this write; none: to a read or a deletion.
    pub(crate) fn of(attempt: Option<&Attempt>, answer: Answer) -> Self {
        match answer {
            Answer::Object(object) => match (LeaseRecord::read(object), attempt) {
                (None, _) => Self::Open(UNREADABLE.into(), None),
                (Some(record), None) => Self::Read(record),
                (Some(record), Some(attempt)) if attempt.is_proved_by(&record) => Self::Proved(record, attempt.clone()),
                (Some(record), Some(attempt)) => Self::Other(record, attempt.clone()),
            },
            Answer::Deleted if attempt.is_none() => Self::Deleted,
            Answer::Deleted | Answer::Listed { .. } => Self::Open(NOT_WHAT_WAS_SENT.into(), None),
            Answer::NotFound => Self::Absent,
            Answer::Conflict => Self::Conflict,
            Answer::Refused { refusal, message } => Self::Refused(refusal, message),
            Answer::Unknown { message, retry_after } => Self::Open(message, retry_after),
        }
    }
}

impl Attempt {
    /// Returns the resourceVersion that the write replaces; none for a POST.
    pub(crate) fn base(&self) -> Option<&str> {
        metadata_of(&self.object, "resourceVersion").and_then(Value::as_str)
    }

    /// Returns true if the record carries the span of this write. A copy of this replica may have acquired the Lease with the
    /// same spec, but not in the same span.
    pub(crate) fn left_its_span_on(&self, record: &LeaseRecord) -> bool {
        self.acquires.is_none_or(|context| record.annotation(TRACEPARENT).and_then(TraceContext::parse) == Some(context))
    }

    /// Returns its renewTime, in microseconds.
    pub(crate) fn time(&self) -> Option<i64> {
        spec_of(&self.object).get("renewTime").and_then(Value::as_str).and_then(micros)
    }

    /// Returns true if uid and spec of `record` are exactly those of this write (law 6).
    pub(crate) fn is(&self, record: &LeaseRecord) -> bool {
        let uid = metadata_of(&self.object, "uid").and_then(Value::as_str);
        spec_of(&self.object) == record.spec() && uid.is_none_or(|uid| uid == record.uid())
    }

    /// Returns true if a reply with `record` proves this write: the spec is as sent, and the version is higher (law 1).
    pub(crate) fn is_proved_by(&self, record: &LeaseRecord) -> bool {
        let rose = self.base().is_none_or(|base| later(record.resource_version(), base));
        rose && self.is(record)
    }
}
