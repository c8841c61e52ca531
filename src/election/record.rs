//! A Lease as it was read: the whole object, and a typed view of the fields that the law needs.
//!
//! Owns the reading of JSON that others wrote. A field that is missing, null or of the wrong type counts as absent, and is no
//! error: the real API server does not serve such Leases, another server may. The whole object is kept, so that a write preserves
//! the fields, labels, annotations, owner references and finalizers of others. Only nulls in the spec are dropped, as the API
//! server drops them, because specs are compared.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use serde_json::{Map, Value};

use super::names::{HOLDER, JOURNAL, NOBODY, PAUSED, PRIORITY, RESTS, STEP_DOWN, STEP_DOWN_TO, micros, rests};

/// A version of the Lease. Immutable, so that clones are cheap.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct LeaseRecord(Arc<Value>);

/// More than the bytes of any uid or resourceVersion.
const LONGEST_ID: usize = 253;
/// The longest duration in seconds that the API can express.
const LONGEST: u64 = i32::MAX as u64;

/// Of a Lease that is paused (law 17).
pub(super) const IS_PAUSED: &str =
    "the Lease is paused by its annotation tenure.dev/paused: nobody takes it but the holder that it names";
/// The same, once that holder no longer renews it.
pub(super) const IS_PAUSED_AND_EXPIRED: &str = "the holder of the paused Lease has not renewed it in time: nobody leads until `tenure resume`, or until that holder comes back";
/// Of a Lease that is handed over.
pub(crate) const IS_PROMISED: &str = "the Lease is free for the replica that its annotation tenure.dev/step-down-to names: the others wait for lease.renewPeriod and lease.attemptTimeout";

/// A spec that is not a map counts as empty.
static NO_SPEC: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);

/// The state of the Lease, by its record alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// Somebody holds it.
    Held,
    /// Given back until its task is due: [`RESTS`] names this very renewTime and holder (law 14).
    Resting,
    /// Held by [`NOBODY`]: it was not given back, and is waited for (law 14).
    Nobody,
    /// The mark that a proper release leaves: holder "", duration 1, acquireTime = renewTime, and no name beside it (law 14).
    Released,
    /// Free in any other shape: `{}`, a null holder, cleared by hand, a mark beside the name of a holder that has not given it
    /// back.
    Free,
}

impl LeaseRecord {
    /// Reads `object`. None without a uid, or if its resourceVersion is not an integer: without both nothing may be written to
    /// it, and a fencing token is a number. None if one is longer than any server makes it: both go over the link to init.
    pub fn read(mut object: Arc<Value>) -> Option<Self> {
        if spec_of(&object).values().any(Value::is_null)
            && let Some(Value::Object(spec)) = Arc::make_mut(&mut object).get_mut("spec")
        {
            spec.retain(|_, value| !value.is_null());
        }
        let record = Self(object);
        let is_short = [record.uid(), record.resource_version()].iter().all(|text| text.len() <= LONGEST_ID);
        (is_short && !record.uid().is_empty() && is_number(record.resource_version())).then_some(record)
    }

    /// Returns the object as it was read, without nulls in its spec.
    pub fn object(&self) -> &Value {
        &self.0
    }

    /// Returns the spec without nulls.
    pub fn spec(&self) -> &Map<String, Value> {
        spec_of(&self.0)
    }

    /// `metadata.uid`.
    pub fn uid(&self) -> &str {
        self.metadata("uid").and_then(Value::as_str).unwrap_or_default()
    }

    /// `metadata.resourceVersion`.
    pub fn resource_version(&self) -> &str {
        self.metadata("resourceVersion").and_then(Value::as_str).unwrap_or_default()
    }

    /// `metadata.creationTimestamp`, verbatim.
    pub fn created(&self) -> Option<&str> {
        self.metadata("creationTimestamp")?.as_str()
    }

    /// Returns true if the Lease is being deleted, and only waits for its finalizers (law 17).
    pub fn is_being_deleted(&self) -> bool {
        self.metadata("deletionTimestamp").is_some_and(|value| !value.is_null())
    }

    /// Returns true if only the recorded holder may take the Lease (law 17): [`PAUSED`] is there and not `false`.
    pub fn is_paused(&self) -> bool {
        self.annotation(PAUSED).is_some_and(|value| value != "false")
    }

    /// Returns the value of an annotation.
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.metadata("annotations")?.get(name)?.as_str()
    }

    /// `spec.holderIdentity`, unless it is empty.
    pub fn holder(&self) -> Option<&str> {
        self.text("holderIdentity").filter(|holder| !holder.is_empty())
    }

    /// Returns true if the holder is exactly this identity.
    pub fn is_held_by(&self, identity: &str) -> bool {
        self.holder() == Some(identity)
    }

    /// Returns the priority of the holder, if a replica of a higher one may ask it to hand over: nobody else has a say in who
    /// leads next. A priority beside another name is that of an earlier holder.
    pub fn preemptible_priority(&self) -> Option<i8> {
        let is_named = self.state() == LeaseState::Held && self.annotation(HOLDER) == self.holder();
        let is_asked = [STEP_DOWN, STEP_DOWN_TO].into_iter().any(|name| self.annotation(name).is_some());
        let is_left_alone = is_asked || self.is_paused() || self.is_being_deleted() || self.strategy().is_some();
        if is_named && !is_left_alone { self.annotation(PRIORITY)?.parse().ok() } else { None }
    }

    /// `spec.leaseDurationSeconds` if it is positive. Missing, zero or negative is no duration (law 11). One beyond 32 bits is
    /// the longest that the API can express.
    pub fn duration(&self) -> Option<Duration> {
        let seconds = saturated(self.spec().get("leaseDurationSeconds")?)?;
        u64::try_from(seconds).ok().filter(|seconds| *seconds > 0).map(|seconds| Duration::from_secs(seconds.min(LONGEST)))
    }

    /// `spec.leaseTransitions`. Absent or negative counts as 0, one beyond 32 bits as the maximum.
    pub fn transitions(&self) -> i32 {
        let transitions = self.spec().get("leaseTransitions").and_then(saturated).unwrap_or_default();
        i32::try_from(transitions.max(0)).unwrap_or(i32::MAX)
    }

    /// `spec.acquireTime`, verbatim.
    pub fn acquire_time(&self) -> Option<&str> {
        self.text("acquireTime")
    }

    /// `spec.renewTime`, verbatim.
    pub fn renew_time(&self) -> Option<&str> {
        self.text("renewTime")
    }

    /// Returns true if the duration, or `unknown` if none is recorded, has passed since renewTime by this wall clock in
    /// microseconds. A hint, by which no Lease is taken (law 11).
    pub fn looks_expired(&self, unknown: Duration, wall: i64) -> bool {
        let duration = self.duration().unwrap_or(unknown);
        self.age(wall).is_none_or(|age| age > i64::try_from(duration.as_micros()).unwrap_or(i64::MAX))
    }

    /// Returns true if renewTime is at most the duration, or `unknown` if none is recorded, away from this wall clock in
    /// microseconds. If it is further in the future, one of the two clocks is wrong. A hint, by which no Lease is taken (law 11).
    pub fn looks_alive(&self, unknown: Duration, wall: i64) -> bool {
        let duration = self.duration().unwrap_or(unknown);
        !self.looks_expired(unknown, wall) && self.ahead(wall) <= duration
    }

    /// Returns the time since the last renewal by this wall clock, in microseconds. None without a renewTime.
    pub fn age(&self, wall: i64) -> Option<i64> {
        Some(wall.saturating_sub(micros(self.renew_time()?)?))
    }

    /// Returns how far renewTime is in the future by this wall clock.
    pub fn ahead(&self, wall: i64) -> Duration {
        Duration::from_micros(self.age(wall).map_or(0, |age| u64::try_from(age.saturating_neg()).unwrap_or_default()))
    }

    /// `spec.strategy`: a coordinator appoints the holders.
    pub fn strategy(&self) -> Option<&str> {
        self.text("strategy").filter(|strategy| !strategy.is_empty())
    }

    /// `spec.preferredHolder`.
    pub fn preferred_holder(&self) -> Option<&str> {
        self.text("preferredHolder").filter(|holder| !holder.is_empty())
    }

    /// Returns the state of the Lease.
    pub fn state(&self) -> LeaseState {
        match self.holder() {
            Some(NOBODY) => return LeaseState::Nobody,
            Some(holder) => {
                let is_resting = self.renew_time().is_some_and(|time| self.annotation(RESTS) == Some(&rests(time, holder)));
                return if is_resting { LeaseState::Resting } else { LeaseState::Held };
            }
            None => {}
        }
        let emptied = self.text("holderIdentity") == Some("");
        let marked = emptied
            && self.duration() == Some(Duration::from_secs(1))
            && self.acquire_time().is_some()
            && self.acquire_time() == self.renew_time()
            && self.annotation(HOLDER).is_none();
        if marked { LeaseState::Released } else { LeaseState::Free }
    }

    /// Returns true if somebody has removed the holder of a Lease that rested: its duration is then that of the rest.
    pub(crate) fn is_cleared_rest(&self) -> bool {
        let rested = self.annotation(RESTS).and_then(|rests| rests.split_once(' ')).map(|(time, _)| time);
        self.holder().is_none() && rested.is_some() && rested == self.renew_time()
    }

    /// Returns true if a deletion would lose what people have written into it: a pause, the journal of a transaction, a strategy.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_paused() || self.annotation(JOURNAL).is_some() || self.strategy().is_some()
    }

    /// Returns a warning if replicas wait for the Lease, or leave it alone, in a way that the user of `me` would not expect.
    pub(crate) fn warning(&self, me: Option<&str>) -> Option<&'static str> {
        let is_held = self.state() == LeaseState::Held;
        let asked = self.annotation(STEP_DOWN).is_some_and(|holder| is_held && !self.is_held_by(holder));
        let promised = self.annotation(STEP_DOWN_TO).is_some_and(|candidate| !is_held && Some(candidate) != me);
        if self.is_being_deleted() {
            Some("the Lease is being deleted and waits for its finalizers: nobody acquires it before it is gone")
        } else if self.is_paused() {
            Some(IS_PAUSED)
        } else if is_held && self.duration().is_none() {
            Some("the Lease is held without a valid leaseDurationSeconds: it is taken only after the longest known duration")
        } else if self.strategy().is_some() {
            Some("the Lease has a strategy, so a coordinator appoints its holders: tenure takes it only as its preferredHolder")
        } else if promised {
            Some(IS_PROMISED)
        } else if asked {
            Some("the annotation tenure.dev/step-down of the Lease does not name its holder in full, so nobody steps down")
        } else {
            None
        }
    }

    /// Returns true if uid and spec are those of `other`. A follower waits for them to stay the same (law 11).
    pub fn says_the_same_as(&self, other: &Self) -> bool {
        self.uid() == other.uid() && self.spec() == other.spec()
    }

    /// Returns true if the Lease is in the same term as in `other`.
    pub(super) fn is_of_the_term_of(&self, other: &Self) -> bool {
        let is_same = |of: fn(&Self) -> Option<&str>| of(self) == of(other);
        self.uid() == other.uid()
            && is_same(Self::holder)
            && is_same(Self::acquire_time)
            && self.transitions() == other.transitions()
    }

    fn metadata(&self, name: &str) -> Option<&Value> {
        metadata_of(&self.0, name)
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.spec().get(name)?.as_str()
    }
}

/// Returns a field of the metadata of an object.
pub fn metadata_of<'o>(object: &'o Value, name: &str) -> Option<&'o Value> {
    object.get("metadata")?.get(name)
}

/// Returns the spec of an object.
pub fn spec_of(object: &Value) -> &Map<String, Value> {
    object.get("spec").and_then(Value::as_object).unwrap_or(&NO_SPEC)
}

/// Returns true if resourceVersion `a` is later than `b`. They are integers of arbitrary length, as Kubernetes guarantees since
/// 1.35.
pub fn later(a: &str, b: &str) -> bool {
    let (a, b) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
    (a.len(), a) > (b.len(), b)
}

/// Reads a whole number. One beyond 64 bits counts as the largest.
fn saturated(number: &Value) -> Option<i64> {
    let beyond = || number.as_f64().filter(|number| *number >= 2_f64.powi(63)).map(|_| i64::MAX);
    number.as_i64().or_else(beyond)
}

pub(super) fn is_number(version: &str) -> bool {
    !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(spec: Value) -> LeaseRecord {
        LeaseRecord::read(json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "spec": spec}).into()).unwrap()
    }

    #[test]
    fn an_object_without_uid_or_a_version_that_is_a_number_is_no_record() {
        assert_eq!(LeaseRecord::read(json!({"metadata": {"uid": "u"}}).into()), None);
        assert_eq!(LeaseRecord::read(json!({"metadata": {"resourceVersion": "7"}}).into()), None);
        assert_eq!(LeaseRecord::read(json!({"metadata": {"uid": "u", "resourceVersion": "abc"}}).into()), None);
        assert_eq!(LeaseRecord::read(json!({"metadata": {"uid": "u".repeat(200_000), "resourceVersion": "7"}}).into()), None);
        assert_eq!(LeaseRecord::read(json!({"metadata": {"uid": "u", "resourceVersion": "7".repeat(200_000)}}).into()), None);
        assert_eq!(LeaseRecord::read(json!("nonsense").into()), None);
    }

    #[test]
    fn a_null_in_a_spec_is_as_good_as_absent() {
        let with = record(json!({"holderIdentity": null, "leaseTransitions": 4}));
        let without = record(json!({"leaseTransitions": 4}));

        assert!(with.says_the_same_as(&without));
        assert_eq!(with.object(), without.object());
    }

    #[test]
    fn anything_short_of_a_release_mark_is_only_free() {
        for spec in [
            json!({}),
            json!(null),
            json!({"holderIdentity": null, "leaseDurationSeconds": 1, "acquireTime": "t", "renewTime": "t"}),
            json!({"leaseDurationSeconds": 1, "acquireTime": "t", "renewTime": "t"}),
            json!({"holderIdentity": "", "leaseDurationSeconds": 2, "acquireTime": "t", "renewTime": "t"}),
            json!({"holderIdentity": "", "acquireTime": "t", "renewTime": "t"}),
            json!({"holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": "t", "renewTime": "u"}),
            json!({"holderIdentity": "", "leaseDurationSeconds": 1}),
        ] {
            assert_eq!(record(spec.clone()).state(), LeaseState::Free, "{spec}");
        }
    }

    #[test]
    fn nonsense_in_the_fields_counts_as_absent() {
        let nonsense =
            record(json!({"holderIdentity": 5, "leaseDurationSeconds": "x", "leaseTransitions": -4, "acquireTime": {}}));

        assert_eq!(nonsense.state(), LeaseState::Free);
        assert_eq!(nonsense.duration(), None);
        assert_eq!(nonsense.transitions(), 0);
        assert_eq!(nonsense.acquire_time(), None);
    }

    #[test]
    fn a_duration_beyond_what_can_be_written_is_the_longest_one_and_one_with_a_fraction_is_none() {
        let duration = |seconds: Value| record(json!({"leaseDurationSeconds": seconds})).duration();

        for beyond in [json!(u64::MAX), json!(1e30)] {
            assert_eq!(duration(beyond), Some(Duration::from_secs(LONGEST)));
        }
        for nonsense in [json!(1.5), json!(-1e30)] {
            assert_eq!(duration(nonsense), None);
        }
    }

    #[test]
    fn transitions_beyond_64_bits_are_as_many_as_there_can_be() {
        let transitions = |transitions: Value| record(json!({"leaseTransitions": transitions})).transitions();

        for beyond in [json!(u64::MAX), json!(1e30), json!(i64::MAX), json!(1_u64 << 31)] {
            assert_eq!(transitions(beyond), i32::MAX);
        }
        for nonsense in [json!(1.5), json!(-1e30), json!(-1), json!("7"), json!(null)] {
            assert_eq!(transitions(nonsense), 0);
        }
    }

    #[test]
    fn versions_compare_as_integers_of_any_length() {
        assert!(later("10", "9"));
        assert!(!later("9", "10"));
        assert!(!later("9", "9"));
        assert!(!later("009", "9"));
        assert!(later("100000000000000000000000000", "99999999999999999999999999"));
        assert!(later("abc", "9"));
    }
}
