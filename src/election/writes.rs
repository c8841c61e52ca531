//! Makes every write of a Lease, whoever wants it: some fields change, all others stay as they were read.
//!
//! Owns what may be written when: [`LeaseWriter`] for the replica and its witness, [`operator`] for everybody else. Owns four rules
//! of the record: times have six digits; renewTime rises; acquireTime and leaseTransitions change only with the
//! holder; the fields of others are left alone. Only the server's notes of who wrote which field are dropped.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

pub mod operator;

pub use super::names::{
    API_VERSION, CANDIDATE, FIRE, HOLDER, JOURNAL, KIND, KIND_LABEL, MANAGED_BY, NEXT_FIRE, NOBODY, OBITUARY, PAUSED, PRIORITY,
    RESTS, SLOTS, STATUS, STEP_DOWN, STEP_DOWN_TO, TENURE, TRACEPARENT,
};
pub(crate) use super::names::{base_of, display, micros, rests};
use super::{
    names::{LAST_APPLIED, LAST_TIME},
    record::{LeaseRecord, LeaseState},
    trace::TraceContext,
};
use crate::{
    config::SharedConfig,
    law::{Timing, whole_seconds},
    link::TermInfo,
    request::Operation,
    slot::Slot,
};

const SECOND: i64 = 1_000_000;
const MILLISECOND: i64 = 1_000;
const A_YEAR: i64 = 366 * 24 * 3_600 * SECOND;

/// What a write of a Lease sends.
#[derive(Clone, Debug, PartialEq, Hash)]
pub enum Sent {
    /// POST.
    Create(Arc<Value>),
    /// PUT of the whole object with uid and resourceVersion.
    Replace(Arc<Value>),
    /// DELETE with both preconditions.
    Delete {
        /// The uid that the Lease must have.
        uid: String,
        /// The version that the Lease must have.
        resource_version: String,
    },
}

impl Sent {
    /// Returns the operation, as in RBAC.
    pub const fn operation(&self) -> Operation {
        match self {
            Self::Create(_) => Operation::Create,
            Self::Replace(_) => Operation::Update,
            Self::Delete { .. } => Operation::Delete,
        }
    }
}

/// A write of a Lease. Only this room makes one, so that no command and no edge can write a Lease past it.
#[derive(Clone, Debug, PartialEq, Hash)]
#[must_use]
pub struct LeaseWrite(Sent);

impl LeaseWrite {
    /// Deletes a Lease as it was read.
    pub fn delete(record: &LeaseRecord) -> Self {
        Self(Sent::Delete { uid: record.uid().into(), resource_version: record.resource_version().into() })
    }

    /// Returns what it sends.
    pub const fn sent(&self) -> &Sent {
        &self.0
    }

    /// Returns the object that it sends; a deletion sends none.
    pub const fn object(&self) -> Option<&Arc<Value>> {
        match &self.0 {
            Sent::Create(object) | Sent::Replace(object) => Some(object),
            Sent::Delete { .. } => None,
        }
    }

    /// Whatever a test wants to send.
    #[cfg(test)]
    pub(crate) const fn of(sent: Sent) -> Self {
        Self(sent)
    }

    fn create(object: Value) -> Self {
        Self(Sent::Create(object.into()))
    }

    fn replace(object: Value) -> Self {
        Self(Sent::Replace(object.into()))
    }
}

/// The writing replica, and the fields that it adds to a Lease.
#[derive(Clone, Debug, Hash)]
pub struct LeaseWriter {
    /// Full identity.
    pub identity: String,
    /// Names the Lease, and the labels and annotations that it gets.
    pub config: SharedConfig,
    /// [`KIND_LABEL`] of a Lease that it creates.
    pub kind: Option<&'static str>,
    /// [`STATUS`]; empty: none.
    pub status: String,
}

impl LeaseWriter {
    /// Makes the Lease held by nobody for `duration`, because it was not given back or does not exist. acquireTime goes,
    /// leaseTransitions stays as read (law 14).
    pub fn nobody(&self, from: Option<&LeaseRecord>, slot: Slot, duration: Duration, time: &str) -> LeaseWrite {
        let mut object = match from {
            Some(from) => copy(from, &self.config.lease.namespace),
            None => json!({
                "apiVersion": API_VERSION,
                "kind": KIND,
                "metadata": {"name": self.config.lease.name_of(slot), "namespace": self.config.lease.namespace},
                "spec": {},
            }),
        };
        if let (None, Some(kind)) = (from, self.kind) {
            map_of(metadata_of(&mut object), "labels").insert(KIND_LABEL.into(), kind.into());
        }
        drop_candidates(&mut object);
        self.mark_held(&mut object, NOBODY);
        let spec = spec_of(&mut object);
        hold(spec, NOBODY, duration, time);
        spec.remove("acquireTime");
        if from.is_some() { LeaseWrite::replace(object) } else { LeaseWrite::create(object) }
    }

    /// Takes a Lease, free or held. acquireTime and leaseTransitions change only with the holder: if the record still names this
    /// replica after a loss, no transition is counted. After a rest, one is counted. With `is_run`, each term is a run of a task
    /// whose start counts, so acquireTime is always that of the term. `fires` are those of [`FIRE`] and [`NEXT_FIRE`].
    pub fn acquire(
        &self,
        from: &LeaseRecord,
        timing: Timing,
        is_run: bool,
        fires: [Option<i64>; 2],
        time: &str,
        context: TraceContext,
    ) -> LeaseWrite {
        let mut object = copy(from, &self.config.lease.namespace);
        let annotations = annotations_of(&mut object);
        if fires[0].is_none() && from.state() != LeaseState::Released {
            // It stays known which fire was run last. Without the next one beside it, it is not run again.
            annotations.remove(NEXT_FIRE);
        }
        for (name, fire) in [FIRE, NEXT_FIRE].into_iter().zip(fires).filter(|_| fires[0].is_some()) {
            match fire.and_then(|fire| Timestamp::from_microsecond(fire).ok()) {
                Some(fire) => annotations.insert(name.into(), fire.to_string().into()),
                None => annotations.remove(name),
            };
        }
        self.mark_acquired(&mut object, context);
        match self.kind {
            Some(kind) if is_run => drop(map_of(metadata_of(&mut object), "labels").insert(KIND_LABEL.into(), kind.into())),
            Some(_) => {}
            // With it `tenure prune` would delete the Lease of a replica.
            None => {
                metadata_of(&mut object).get_mut("labels").and_then(Value::as_object_mut).map(|labels| labels.remove(KIND_LABEL));
            }
        }
        let spec = spec_of(&mut object);
        hold(spec, &self.identity, timing.duration, time);
        let changes = !from.is_held_by(&self.identity) || from.state() == LeaseState::Resting;
        if changes || is_run || from.acquire_time().is_none() {
            spec.insert("acquireTime".into(), time.into());
        }
        spec.insert("leaseTransitions".into(), from.transitions().saturating_add(changes.into()).into());
        LeaseWrite::replace(object)
    }

    /// Renews a Lease. Holder, acquireTime and leaseTransitions stay. If acquireTime, leaseTransitions, or the replica's labels
    /// and annotations were removed, they are restored. A changed acquireTime or leaseTransitions is kept: it may be another
    /// term's, and then the Lease is not released (law 8).
    pub fn renew(&self, from: &LeaseRecord, info: &TermInfo, timing: Timing, time: &str) -> LeaseWrite {
        let mut object = copy(from, &self.config.lease.namespace);
        self.mark_held(&mut object, &self.identity);
        if !self.status.is_empty() {
            annotations_of(&mut object).insert(STATUS.into(), self.status.as_str().into());
        }
        let spec = spec_of(&mut object);
        hold(spec, &self.identity, timing.duration, time);
        spec.entry("acquireTime").or_insert_with(|| info.acquired_at.as_str().into());
        spec.entry("leaseTransitions").or_insert_with(|| info.transitions.into());
        LeaseWrite::replace(object)
    }

    /// Asks the holder to hand over to this replica, as `tenure step-down --to` does. The spec stays as read.
    pub fn preempt(&self, from: &LeaseRecord) -> LeaseWrite {
        let mut object = from.object().clone();
        let annotations = annotations_of(&mut object);
        annotations.insert(STEP_DOWN.into(), from.holder().unwrap_or_default().into());
        annotations.insert(STEP_DOWN_TO.into(), self.identity.as_str().into());
        LeaseWrite::replace(object)
    }

    /// Takes back what [`Self::preempt`] asks for.
    pub fn take_back(&self, from: &LeaseRecord) -> LeaseWrite {
        let mut object = from.object().clone();
        annotations_of(&mut object).retain(|name, _| name != STEP_DOWN && name != STEP_DOWN_TO);
        LeaseWrite::replace(object)
    }

    /// Gives a Lease back that nobody takes before `left` has passed. A client that reads only the spec sees it held until then.
    pub fn rest(&self, from: &LeaseRecord, left: Duration, time: &str, context: TraceContext) -> LeaseWrite {
        let mut object = given_back(from, &self.config.lease.namespace, TRACEPARENT, context.to_string());
        annotations_of(&mut object).insert(RESTS.into(), rests(time, &self.identity).into());
        hold(spec_of(&mut object), &self.identity, left, time);
        LeaseWrite::replace(object)
    }

    /// Gives a Lease back, with the release mark.
    pub fn release(&self, from: &LeaseRecord, time: &str, context: TraceContext) -> LeaseWrite {
        emptied(given_back(from, &self.config.lease.namespace, TRACEPARENT, context.to_string()), time)
    }

    fn mark_acquired(&self, object: &mut Value, context: TraceContext) {
        drop_candidates(object);
        let annotations = annotations_of(object);
        annotations.remove(STEP_DOWN);
        annotations.remove(STEP_DOWN_TO);
        annotations.insert(TRACEPARENT.into(), context.to_string().into());
        self.mark_held(object, &self.identity);
    }

    fn mark_held(&self, object: &mut Value, holder: &str) {
        let labels = map_of(metadata_of(object), "labels");
        // Another manager's label stays: two managers would overwrite each other without end.
        labels.entry(MANAGED_BY).or_insert_with(|| TENURE.into());
        let added = |map: &BTreeMap<String, String>| map.clone().into_iter().map(|(name, value)| (name, value.into()));
        labels.extend(added(&self.config.lease.labels));
        let annotations = annotations_of(object);
        annotations.extend(added(&self.config.lease.annotations));
        annotations.insert(HOLDER.into(), holder.into());
        if holder == self.identity && self.config.lease.priority < 0 {
            annotations.insert(PRIORITY.into(), self.config.lease.priority.to_string().into());
        } else {
            annotations.remove(PRIORITY);
        }
        annotations.remove(RESTS);
        annotations.remove(OBITUARY);
    }
}

/// Gives the Lease of a dead holder back, with the release mark, in the name of its witness (law 20). The trace context stays that of the
/// dead term.
pub fn obituary(from: &LeaseRecord, identity: &str, namespace: &str, time: &str) -> LeaseWrite {
    emptied(given_back(from, namespace, OBITUARY, identity.to_owned()), time)
}

fn given_back(from: &LeaseRecord, namespace: &str, annotation: &str, value: String) -> Value {
    let mut object = copy(from, namespace);
    let annotations = annotations_of(&mut object);
    annotations.remove(HOLDER);
    annotations.remove(PRIORITY);
    annotations.insert(annotation.into(), value.into());
    object
}

/// Copies the object as read, without the last holder's status and the server's notes. Adds apiVersion, kind and namespace if a
/// proxy left them out.
fn copy(from: &LeaseRecord, namespace: &str) -> Value {
    let mut object = from.object().clone();
    if let Some(object) = object.as_object_mut() {
        object.entry("apiVersion").or_insert_with(|| API_VERSION.into());
        object.entry("kind").or_insert_with(|| KIND.into());
    }
    drop_managers(&mut object);
    if from.strategy().is_none() {
        // The API server refuses preferredHolder without a strategy.
        spec_of(&mut object).remove("preferredHolder");
    }
    metadata_of(&mut object).entry("namespace").or_insert_with(|| namespace.into());
    if from.annotation(STATUS).is_some() {
        annotations_of(&mut object).remove(STATUS);
    }
    object
}

/// The times in the writes of one elector. No two are equal, and none equals one of another elector of the same init (law 1).
///
/// Each is at least one second later than the last, because client-go compares whole seconds and the wall clock may step back.
/// The last three digits are the elector's number, so they differ from those of its predecessor, whose writes it does not know.
#[derive(Clone, Debug, Hash)]
pub struct Stamps {
    number: i64,
    last: i64,
}

impl Stamps {
    /// Makes the times of the elector with this generation.
    pub fn new(generation: u32) -> Self {
        Self { number: i64::from(generation) % MILLISECOND, last: 0 }
    }

    /// Returns the next time: `wall`, or later if needed to be a second above the last time and above `previous`. A `previous`
    /// near the end of the range is ignored: no clock has shown it, and two writes would soon be equal.
    pub fn next(&mut self, wall: i64, previous: Option<&str>) -> String {
        self.next_apart(wall, previous, 0)
    }

    /// The same, later by a part of a second: by `apart` microseconds of it. It differs from the time of each writer with another
    /// `apart` that knows the same.
    pub fn next_apart(&mut self, wall: i64, previous: Option<&str>, apart: i64) -> String {
        let previous = previous.and_then(micros).filter(|time| *time < LAST_TIME - A_YEAR).unwrap_or_default();
        let least = self.last.max(previous).saturating_add(SECOND).min(LAST_TIME);
        let time = wall.clamp(0, LAST_TIME).max(least);
        let apart = apart % SECOND;
        let millis = (time + MILLISECOND - 1) / MILLISECOND + apart / MILLISECOND;
        self.last = millis * MILLISECOND + (self.number + apart) % MILLISECOND;
        display(self.last)
    }
}

/// Removes the announcements of candidates. Those of dead replicas would add up until the API server refuses every write; living
/// replicas announce themselves again.
fn drop_candidates(object: &mut Value) {
    annotations_of(object).retain(|name, _| !name.starts_with(CANDIDATE));
}

/// Makes the server drop its notes of who wrote which field, as one empty entry does: they are two fifths of a Lease, in each read and
/// each event. All of them stay where somebody applies the object: on the server's side that needs them, and whoever goes there from
/// kubectl's own side would otherwise remove every field that his manifest does not name, the holder too.
pub(super) fn drop_managers(object: &mut Value) {
    let is_applied = object["metadata"]["annotations"].get(LAST_APPLIED).is_some();
    if let Some(entries) = object.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut)
        && !is_applied
        && entries.iter().all(|entry| entry["operation"] != "Apply")
    {
        *entries = vec![json!({})];
    }
}

/// Sets the holder, the duration and renewTime.
fn hold(spec: &mut Map<String, Value>, holder: &str, duration: Duration, time: &str) {
    spec.insert("holderIdentity".into(), holder.into());
    spec.insert("leaseDurationSeconds".into(), whole_seconds(duration).into());
    spec.insert("renewTime".into(), time.into());
}

/// Writes the object as held by nobody, with the release mark.
fn emptied(mut object: Value, time: &str) -> LeaseWrite {
    let spec = spec_of(&mut object);
    hold(spec, "", Duration::from_secs(1), time);
    spec.insert("acquireTime".into(), time.into());
    LeaseWrite::replace(object)
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

/// Returns the map in `value`. Anything else is replaced by an empty map.
pub(crate) fn as_map(value: &mut Value) -> &mut Map<String, Value> {
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
    fn a_time_apart_rises_like_any_and_differs_between_electors_and_between_writers() {
        let after = "2027-01-15T09:00:00.000000Z";
        let apart = |number, apart| Stamps::new(number).next_apart(WALL, Some(after), apart);
        assert_eq!(apart(1, 4_000_250_700), "2027-01-15T09:00:01.250701Z");
        assert_eq!(apart(2, 4_000_250_700), "2027-01-15T09:00:01.250702Z");
        assert_eq!(apart(1, 4_000_999_999), "2027-01-15T09:00:01.999000Z");
        let mut stamps = Stamps::new(1);
        stamps.next_apart(WALL, Some(after), 999_999);
        assert_eq!(stamps.next(WALL, Some(after)), "2027-01-15T09:00:02.999001Z");
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
