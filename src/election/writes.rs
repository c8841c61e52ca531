//! The objects that are written: what changes, and what stays as it was read.
//!
//! Owns record hygiene: times with six digits, a renewTime that rises, acquireTime and leaseTransitions that change
//! only with the holder, and the fields of others left alone.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    record::{LeaseRecord, LeaseState},
    trace::TraceContext,
};
use crate::{
    law::{Timing, whole_seconds},
    link::TermInfo,
};

/// Annotation: its value, a full identity, is the holder that is asked to step down. Removed by any acquiring write (law 17).
pub const STEP_DOWN: &str = "tenure.dev/step-down";
/// Annotation: the candidate to whom the others leave the Lease for one D.
pub const STEP_DOWN_TO: &str = "tenure.dev/step-down-to";
/// Annotation: anything but `false` keeps everyone but the recorded holder from taking the Lease.
pub const PAUSED: &str = "tenure.dev/paused";
/// Annotation: the W3C trace context of the last transition.
pub const TRACEPARENT: &str = "tenure.dev/traceparent";
/// Annotation: who has acquired the Lease and not given it back; a release mark beside it is not that holder's. client-go's late
/// release does not check the holder, so a client that was cut off may still empty another's Lease.
pub const HOLDER: &str = "tenure.dev/holder";
/// Label of Leases of which a replica holds one at most: the name of the first.
pub const SLOTS: &str = "tenure.dev/slots";
/// Annotation: the renewTime of the record and its holder, once that is proved dead and the Lease only waits to be due (law 14).
pub const RESTS: &str = "tenure.dev/rests";
/// Annotation: what the leading workload last said of itself, as of the last renewal; for people.
pub const STATUS: &str = "tenure.dev/status";
/// Annotation: what a candidate shows of itself (`lease.announce`); the end of its identity follows in the name.
pub const CANDIDATE: &str = "candidate.tenure.dev/";
/// Identity: holds a Lease that was not given back, until whoever had it is dead for certain (law 14). No replica bears it.
pub const NOBODY: &str = "tenure.dev/nobody";

/// Label: for which command the Lease was made, on those that are not `run`'s.
pub const KIND_LABEL: &str = "tenure.dev/kind";

/// The API group and version of Leases.
pub const API_VERSION: &str = "coordination.k8s.io/v1";
/// Their kind.
pub const KIND: &str = "Lease";

const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "tenure");
const SECOND: i64 = 1_000_000;
const MILLISECOND: i64 = 1_000;
const A_YEAR: i64 = 366 * 24 * 3_600 * SECOND;
/// 9999-12-30, in microseconds: whatever the wall clock says, the API server can read the time.
const LAST_TIME: i64 = 253_402_128_000 * SECOND;

/// Who writes, and what it adds to a Lease that it acquires.
#[derive(Clone, Debug)]
pub struct LeaseWriter {
    /// Full identity.
    pub identity: String,
    /// Name of the Lease.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Of a Lease that it creates: its [`KIND_LABEL`].
    pub kind: Option<&'static str>,
    /// Added to its labels.
    pub labels: BTreeMap<String, String>,
    /// Added to its annotations.
    pub annotations: BTreeMap<String, String>,
    /// [`STATUS`]; none where it is empty.
    pub status: String,
}

impl LeaseWriter {
    /// A Lease that was not given back, or does not exist: held by nobody for `duration`. acquireTime goes, leaseTransitions stays
    /// as read (law 14).
    #[must_use]
    pub fn nobody(&self, from: Option<&LeaseRecord>, duration: Duration, time: &str) -> Value {
        let mut object = match from {
            Some(from) => self.copy(from),
            None => json!({
                "apiVersion": API_VERSION,
                "kind": KIND,
                "metadata": {"name": self.name, "namespace": self.namespace},
                "spec": {},
            }),
        };
        if let (None, Some(kind)) = (from, self.kind) {
            map_of(metadata_of(&mut object), "labels").insert(KIND_LABEL.into(), kind.into());
        }
        self.mark_held(&mut object, NOBODY);
        let spec = spec_of(&mut object);
        hold(spec, NOBODY, duration, time);
        spec.remove("acquireTime");
        object
    }

    /// A Lease that is taken, whether it was free or held. acquireTime and leaseTransitions change only with the holder: taking it
    /// again after a loss while the record still names this replica counts no transition. After a rest that is another hold.
    #[must_use]
    pub fn acquire(&self, from: &LeaseRecord, timing: Timing, time: &str, context: TraceContext) -> Value {
        let mut object = self.copy(from);
        self.mark_acquired(&mut object, context);
        let spec = spec_of(&mut object);
        hold(spec, &self.identity, timing.duration, time);
        let changes = !from.is_held_by(&self.identity) || from.state() == LeaseState::Resting;
        if changes || from.acquire_time().is_none() {
            spec.insert("acquireTime".into(), time.into());
        }
        spec.insert("leaseTransitions".into(), from.transitions().saturating_add(changes.into()).into());
        object
    }

    /// A Lease that is kept: the holder stays, and so do acquireTime and leaseTransitions. If somebody removed these, or its own
    /// labels and annotations, they are restored. What is changed of the two stays: it may be another term's, and then this one is
    /// not released (law 8).
    #[must_use]
    pub fn renew(&self, from: &LeaseRecord, info: &TermInfo, timing: Timing, time: &str) -> Value {
        let mut object = self.copy(from);
        self.mark_held(&mut object, &self.identity);
        if !self.status.is_empty() {
            annotations_of(&mut object).insert(STATUS.into(), self.status.as_str().into());
        }
        let spec = spec_of(&mut object);
        hold(spec, &self.identity, timing.duration, time);
        spec.entry("acquireTime").or_insert_with(|| info.acquired_at.as_str().into());
        spec.entry("leaseTransitions").or_insert_with(|| info.transitions.into());
        object
    }

    /// A Lease that is given back, and taken again only after `left`: who looks at nothing but the spec sees it held until then.
    #[must_use]
    pub fn rest(&self, from: &LeaseRecord, left: Duration, time: &str, context: TraceContext) -> Value {
        let mut object = self.given_back(from, context);
        annotations_of(&mut object).insert(RESTS.into(), rests(time, &self.identity).into());
        hold(spec_of(&mut object), &self.identity, left, time);
        object
    }

    /// A Lease that is given back: the release mark.
    #[must_use]
    pub fn release(&self, from: &LeaseRecord, time: &str, context: TraceContext) -> Value {
        let mut object = self.given_back(from, context);
        let spec = spec_of(&mut object);
        spec.insert("holderIdentity".into(), "".into());
        spec.insert("leaseDurationSeconds".into(), 1.into());
        spec.insert("acquireTime".into(), time.into());
        spec.insert("renewTime".into(), time.into());
        object
    }

    fn given_back(&self, from: &LeaseRecord, context: TraceContext) -> Value {
        let mut object = self.copy(from);
        let annotations = annotations_of(&mut object);
        annotations.remove(HOLDER);
        annotations.insert(TRACEPARENT.into(), context.to_string().into());
        object
    }

    /// The object as read, without the status of whoever had it, with apiVersion, kind and namespace added if a proxy left them out.
    fn copy(&self, from: &LeaseRecord) -> Value {
        let mut object = from.object().clone();
        if let Some(object) = object.as_object_mut() {
            object.entry("apiVersion").or_insert_with(|| API_VERSION.into());
            object.entry("kind").or_insert_with(|| KIND.into());
        }
        if from.strategy().is_none() {
            // Without one the API server refuses it.
            spec_of(&mut object).remove("preferredHolder");
        }
        metadata_of(&mut object).entry("namespace").or_insert_with(|| self.namespace.as_str().into());
        if from.annotation(STATUS).is_some() {
            annotations_of(&mut object).remove(STATUS);
        }
        object
    }

    fn mark_acquired(&self, object: &mut Value, context: TraceContext) {
        let annotations = annotations_of(object);
        annotations.remove(STEP_DOWN);
        annotations.remove(STEP_DOWN_TO);
        annotations.insert(TRACEPARENT.into(), context.to_string().into());
        self.mark_held(object, &self.identity);
    }

    fn mark_held(&self, object: &mut Value, holder: &str) {
        let labels = map_of(metadata_of(object), "labels");
        // Another manager's label stays: otherwise the two would overwrite each other for ever.
        labels.entry(MANAGED_BY.0).or_insert_with(|| MANAGED_BY.1.into());
        labels.extend(self.labels.iter().map(|(name, value)| (name.clone(), value.as_str().into())));
        let annotations = annotations_of(object);
        annotations.extend(self.annotations.iter().map(|(name, value)| (name.clone(), value.as_str().into())));
        annotations.insert(HOLDER.into(), holder.into());
        annotations.remove(RESTS);
    }
}

/// Times for the writes of one elector: no two are equal, and none is equal to one of another elector of the same init (law 1).
///
/// Each is at least one second later than the one before it, because client-go compares whole seconds; the wall clock may step
/// back. The last three digits are the elector's number: its predecessor's writes, which it does not know, end in a different one.
#[derive(Clone, Debug)]
pub struct Stamps {
    number: i64,
    last: i64,
}

impl Stamps {
    /// Stamps of the elector with this generation.
    #[must_use]
    pub fn new(generation: u32) -> Self {
        Self { number: i64::from(generation) % MILLISECOND, last: 0 }
    }

    /// The next time: `wall`, or later if needed to be a second above the last one and above `previous`. A `previous` near the end
    /// of the range is ignored: no clock has shown it, and two writes would soon be equal.
    pub fn next(&mut self, wall: i64, previous: Option<&str>) -> String {
        let previous = previous.and_then(micros).filter(|time| *time < LAST_TIME - A_YEAR).unwrap_or_default();
        let least = self.last.max(previous).saturating_add(SECOND).min(LAST_TIME);
        let time = wall.clamp(0, LAST_TIME).max(least);
        let millis = (time + MILLISECOND - 1) / MILLISECOND;
        self.last = millis * MILLISECOND + self.number;
        display(self.last)
    }
}

/// What [`RESTS`] says of a record with this renewTime and holder.
pub(crate) fn rests(time: &str, holder: &str) -> String {
    format!("{time} {holder}")
}

/// Who holds it for how long, and since when it is unchanged.
fn hold(spec: &mut Map<String, Value>, holder: &str, duration: Duration, time: &str) {
    spec.insert("holderIdentity".into(), holder.into());
    spec.insert("leaseDurationSeconds".into(), whole_seconds(duration).into());
    spec.insert("renewTime".into(), time.into());
}

/// A time in a record, in microseconds.
pub(crate) fn micros(time: &str) -> Option<i64> {
    let time: Timestamp = time.parse().ok()?;
    Some(time.as_microsecond().clamp(0, LAST_TIME))
}

fn display(micros: i64) -> String {
    Timestamp::from_microsecond(micros).map_or_else(|_| String::new(), |time| format!("{time:.6}"))
}

fn metadata_of(object: &mut Value) -> &mut Map<String, Value> {
    map_of(as_map(object), "metadata")
}

pub(crate) fn annotations_of(object: &mut Value) -> &mut Map<String, Value> {
    map_of(metadata_of(object), "annotations")
}

fn spec_of(object: &mut Value) -> &mut Map<String, Value> {
    map_of(as_map(object), "spec")
}

fn map_of<'m>(map: &'m mut Map<String, Value>, name: &str) -> &'m mut Map<String, Value> {
    as_map(map.entry(name).or_insert(Value::Null))
}

/// The map in `value`; anything else is replaced by an empty one.
fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let Value::Object(map) = value else { unreachable!("made a map above") };
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALL: i64 = 1_800_000_000_123_456;

    #[test]
    fn a_time_has_six_digits_and_ends_in_the_electors_number() {
        assert_eq!(Stamps::new(7).next(WALL, None), "2027-01-15T08:00:00.124007Z");
        assert_eq!(Stamps::new(1_007).next(WALL, None), "2027-01-15T08:00:00.124007Z");
    }

    #[test]
    fn a_time_rises_by_a_second_above_the_last_and_above_the_records() {
        let mut stamps = Stamps::new(1);
        stamps.next(WALL, None);

        assert_eq!(stamps.next(WALL - 5 * SECOND, None), "2027-01-15T08:00:01.125001Z");
        assert_eq!(stamps.next(WALL, Some("2027-01-15T09:00:00.000000Z")), "2027-01-15T09:00:01.000001Z");
        assert_eq!(stamps.next(WALL, Some("nonsense")), "2027-01-15T09:00:02.001001Z");
    }

    #[test]
    fn a_time_at_the_end_of_all_times_in_the_record_is_not_risen_above() {
        let mut stamps = Stamps::new(1);
        let first = stamps.next(WALL, Some("9999-12-30T12:00:00.000000Z"));

        assert_eq!(first, "2027-01-15T08:00:00.124001Z");
        assert_ne!(stamps.next(WALL, Some("9999-12-30T12:00:00.000000Z")), first);
    }

    #[test]
    fn no_wall_clock_makes_an_unreadable_time() {
        for wall in [i64::MIN, -1, i64::MAX] {
            let time = Stamps::new(0).next(wall, None);
            assert!(time.parse::<Timestamp>().is_ok(), "{wall}: {time:?}");
        }
    }
}
