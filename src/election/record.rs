//! A Lease as it was read: the whole object, and a typed view of what the law looks at.
//!
//! Owns the reading of other people's JSON. Whatever is missing, null or of a wrong type is absent, never an error: the real
//! API server does not serve such Leases, others may. The whole object is kept, so that a write gives back what it did not
//! change: unknown fields, labels, annotations, owner references and finalizers of others (safety.md, record hygiene).

use std::{sync::Arc, time::Duration};

use serde_json::{Map, Value};

/// One version of the Lease. It never changes, so that a clone costs nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct LeaseRecord(Arc<Parts>);

#[derive(Debug, PartialEq)]
struct Parts {
    object: Value,
    spec: Map<String, Value>,
}

/// Whether somebody holds the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// By this full identity.
    Held(String),
    /// The mark that a proper release leaves: holder "", duration 1, acquireTime = renewTime (law 14).
    Released,
    /// In any other shape: `{}`, a null holder, cleared by hand.
    Free,
}

impl LeaseRecord {
    /// The view of `object`; none if it has no uid or resourceVersion, without which nothing may be written to it.
    #[must_use]
    pub fn read(object: Value) -> Option<Self> {
        let spec = match object.get("spec") {
            Some(Value::Object(spec)) => without_nulls(spec),
            Some(_) | None => Map::new(),
        };
        let record = Self(Arc::new(Parts { object, spec }));
        (!record.uid().is_empty() && !record.resource_version().is_empty()).then_some(record)
    }

    /// The object as it was read.
    #[must_use]
    pub fn object(&self) -> &Value {
        &self.0.object
    }

    /// Its spec without nulls, which the API server drops.
    #[must_use]
    pub fn spec(&self) -> &Map<String, Value> {
        &self.0.spec
    }

    /// `metadata.uid`.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.metadata("uid").and_then(Value::as_str).unwrap_or_default()
    }

    /// `metadata.resourceVersion`.
    #[must_use]
    pub fn resource_version(&self) -> &str {
        self.metadata("resourceVersion").and_then(Value::as_str).unwrap_or_default()
    }

    /// Whether its deletion waits for finalizers only (law 17).
    #[must_use]
    pub fn is_being_deleted(&self) -> bool {
        self.metadata("deletionTimestamp").is_some_and(|value| !value.is_null())
    }

    /// One annotation.
    #[must_use]
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.metadata("annotations")?.get(name)?.as_str()
    }

    /// `spec.holderIdentity`, unless it is empty.
    #[must_use]
    pub fn holder(&self) -> Option<&str> {
        self.text("holderIdentity").filter(|holder| !holder.is_empty())
    }

    /// Whether it is held by exactly this identity.
    #[must_use]
    pub fn is_held_by(&self, identity: &str) -> bool {
        self.holder() == Some(identity)
    }

    /// `spec.leaseDurationSeconds` where it is positive: missing, zero or negative is no duration (law 11).
    #[must_use]
    pub fn duration(&self) -> Option<Duration> {
        let seconds = self.spec().get("leaseDurationSeconds")?.as_i64()?;
        u64::try_from(seconds).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs)
    }

    /// `spec.leaseTransitions`; absent or negative counts as 0, and more than the API allows as its limit.
    #[must_use]
    pub fn transitions(&self) -> i32 {
        let transitions = self.spec().get("leaseTransitions").and_then(Value::as_i64).unwrap_or_default();
        i32::try_from(transitions.max(0)).unwrap_or(i32::MAX)
    }

    /// `spec.acquireTime` as it stands there.
    #[must_use]
    pub fn acquire_time(&self) -> Option<&str> {
        self.text("acquireTime")
    }

    /// `spec.renewTime` as it stands there.
    #[must_use]
    pub fn renew_time(&self) -> Option<&str> {
        self.text("renewTime")
    }

    /// `spec.strategy`: a coordinator appoints the holders.
    #[must_use]
    pub fn strategy(&self) -> Option<&str> {
        self.text("strategy").filter(|strategy| !strategy.is_empty())
    }

    /// `spec.preferredHolder`.
    #[must_use]
    pub fn preferred_holder(&self) -> Option<&str> {
        self.text("preferredHolder").filter(|holder| !holder.is_empty())
    }

    /// Whether somebody holds it.
    #[must_use]
    pub fn standing(&self) -> Standing {
        if let Some(holder) = self.holder() {
            return Standing::Held(holder.to_owned());
        }
        let emptied = self.text("holderIdentity") == Some("");
        let marked = emptied
            && self.duration() == Some(Duration::from_secs(1))
            && self.acquire_time().is_some()
            && self.acquire_time() == self.renew_time();
        if marked { Standing::Released } else { Standing::Free }
    }

    /// Whether this is the same (uid, spec) as `other`: what a follower watches (law 11).
    #[must_use]
    pub fn says_the_same_as(&self, other: &Self) -> bool {
        self.uid() == other.uid() && self.spec() == other.spec()
    }

    fn metadata(&self, name: &str) -> Option<&Value> {
        self.object().get("metadata")?.get(name)
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.spec().get(name)?.as_str()
    }
}

/// A spec without nulls: the form in which specs are compared.
#[must_use]
pub fn without_nulls(spec: &Map<String, Value>) -> Map<String, Value> {
    spec.iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Whether resourceVersion `a` is later than `b`: integers of arbitrary length. Others than integers are later if they differ,
/// so that an unknown kind of server makes us look again rather than overlook.
#[must_use]
pub fn later(a: &str, b: &str) -> bool {
    let digits = |version: &str| !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(a) || !digits(b) {
        return a != b;
    }
    let (a, b) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
    (a.len(), a) > (b.len(), b)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(spec: Value) -> LeaseRecord {
        LeaseRecord::read(json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "spec": spec})).unwrap()
    }

    #[test]
    fn an_object_without_uid_or_version_is_no_record() {
        assert_eq!(LeaseRecord::read(json!({"metadata": {"uid": "u"}})), None);
        assert_eq!(LeaseRecord::read(json!({"metadata": {"resourceVersion": "7"}})), None);
        assert_eq!(LeaseRecord::read(json!("nonsense")), None);
    }

    #[test]
    fn a_release_mark_is_an_empty_holder_for_one_second_with_equal_times() {
        let mark = json!({"holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": "t", "renewTime": "t"});

        assert_eq!(record(mark).standing(), Standing::Released);
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
            assert_eq!(record(spec.clone()).standing(), Standing::Free, "{spec}");
        }
    }

    #[test]
    fn nonsense_in_the_fields_counts_as_absent() {
        let nonsense =
            record(json!({"holderIdentity": 5, "leaseDurationSeconds": "x", "leaseTransitions": -4, "acquireTime": {}}));

        assert_eq!(nonsense.standing(), Standing::Free);
        assert_eq!(nonsense.duration(), None);
        assert_eq!(nonsense.transitions(), 0);
        assert_eq!(nonsense.acquire_time(), None);
        assert_eq!(record(json!({"leaseDurationSeconds": 0})).duration(), None);
        assert_eq!(record(json!({"leaseDurationSeconds": -3})).duration(), None);
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
