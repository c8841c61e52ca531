//! Bodies in Kubernetes' protobuf, which client-go sends by default.
//!
//! Owns the wire format: an envelope that names the kind, and as many messages as are sent here. They become the same JSON as if
//! they had been sent so; `schema` decides what is kept of it. Field numbers are those of upstream's generated.proto. Answers are
//! never protobuf.

use std::collections::BTreeMap;

use prost::{DecodeError, Message};
use serde::{Serialize, Serializer, ser::Error as _};
use serde_json::{Value, json};

use super::gotime::{Precision, text};

const PREFIX: &[u8] = b"k8s\0";
/// Go's value of a time that was never set, which it sends as an empty message.
const UNSET: i64 = -62_135_596_800;

/// `body` as JSON; of the kind `expected` unless it names another one.
///
/// # Errors
/// Why it cannot be read: Go's message for a bad envelope, prost's for the rest.
pub(super) fn decode(body: &[u8], expected: &str) -> Result<Value, String> {
    let envelope = match body.strip_prefix(PREFIX) {
        None if body.is_empty() => return Err("empty data".into()),
        None => return Err("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]".into()),
        Some([]) => return Err("empty body".into()),
        Some(envelope) => envelope,
    };
    let Envelope { head, raw } = Envelope::decode(envelope).map_err(|why| why.to_string())?;
    let Head { api_version, kind } = head.unwrap_or_default();
    let mut object = match if kind.is_empty() { expected } else { &kind } {
        "Lease" => object(Lease::decode(&*raw))?,
        "DeleteOptions" => object(DeleteOptions::decode(&*raw))?,
        "SelfSubjectAccessReview" => object(Review::decode(&*raw))?,
        _ => json!({}),
    };
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    Ok(object)
}

fn object(decoded: Result<impl Serialize, DecodeError>) -> Result<Value, String> {
    let decoded = decoded.map_err(|why| why.to_string())?;
    serde_json::to_value(decoded).map_err(|why| why.to_string())
}

/// `runtime.Unknown`.
#[derive(Message)]
struct Envelope {
    #[prost(message, optional, tag = "1")]
    head: Option<Head>,
    #[prost(bytes = "vec", tag = "2")]
    raw: Vec<u8>,
}

/// `runtime.TypeMeta`.
#[derive(Message)]
struct Head {
    #[prost(string, tag = "1")]
    api_version: String,
    #[prost(string, tag = "2")]
    kind: String,
}

#[derive(Message, Serialize)]
struct Lease {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    spec: Option<LeaseSpec>,
}

/// Without `selfLink` and `managedFields`, which are ignored.
#[derive(Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectMeta {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    generate_name: String,
    #[prost(string, tag = "3")]
    namespace: String,
    #[prost(string, tag = "5")]
    uid: String,
    #[prost(string, tag = "6")]
    resource_version: String,
    #[prost(int64, tag = "7")]
    generation: i64,
    #[prost(message, optional, tag = "8")]
    creation_timestamp: Option<Time>,
    #[prost(message, optional, tag = "9")]
    deletion_timestamp: Option<Time>,
    #[prost(int64, optional, tag = "10")]
    deletion_grace_period_seconds: Option<i64>,
    #[prost(btree_map = "string, string", tag = "11")]
    labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "12")]
    annotations: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "13")]
    owner_references: Vec<OwnerReference>,
    #[prost(string, repeated, tag = "14")]
    finalizers: Vec<String>,
}

#[derive(Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct OwnerReference {
    #[prost(string, tag = "5")]
    api_version: String,
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(string, tag = "3")]
    name: String,
    #[prost(string, tag = "4")]
    uid: String,
    #[prost(bool, optional, tag = "6")]
    controller: Option<bool>,
    #[prost(bool, optional, tag = "7")]
    block_owner_deletion: Option<bool>,
}

#[derive(Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct LeaseSpec {
    #[prost(string, optional, tag = "1")]
    holder_identity: Option<String>,
    #[prost(int32, optional, tag = "2")]
    lease_duration_seconds: Option<i32>,
    #[prost(message, optional, tag = "3")]
    acquire_time: Option<MicroTime>,
    #[prost(message, optional, tag = "4")]
    renew_time: Option<MicroTime>,
    #[prost(int32, optional, tag = "5")]
    lease_transitions: Option<i32>,
    #[prost(string, optional, tag = "6")]
    strategy: Option<String>,
    #[prost(string, optional, tag = "7")]
    preferred_holder: Option<String>,
}

#[derive(Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct DeleteOptions {
    #[prost(int64, optional, tag = "1")]
    grace_period_seconds: Option<i64>,
    #[prost(message, optional, tag = "2")]
    preconditions: Option<Preconditions>,
    #[prost(bool, optional, tag = "3")]
    orphan_dependents: Option<bool>,
    #[prost(string, optional, tag = "4")]
    propagation_policy: Option<String>,
    #[prost(string, repeated, tag = "5")]
    dry_run: Vec<String>,
}

#[derive(Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct Preconditions {
    #[prost(string, optional, tag = "1")]
    uid: Option<String>,
    #[prost(string, optional, tag = "2")]
    resource_version: Option<String>,
}

/// `SelfSubjectAccessReview`.
#[derive(Message, Serialize)]
struct Review {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    spec: Option<ReviewSpec>,
}

#[derive(Message, Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewSpec {
    #[prost(message, optional, tag = "1")]
    resource_attributes: Option<ResourceAttributes>,
    #[prost(message, optional, tag = "2")]
    non_resource_attributes: Option<NonResourceAttributes>,
}

/// Without the selectors, which decide nothing where everything is allowed.
#[derive(Message, Serialize)]
struct ResourceAttributes {
    #[prost(string, tag = "1")]
    namespace: String,
    #[prost(string, tag = "2")]
    verb: String,
    #[prost(string, tag = "3")]
    group: String,
    #[prost(string, tag = "4")]
    version: String,
    #[prost(string, tag = "5")]
    resource: String,
    #[prost(string, tag = "6")]
    subresource: String,
    #[prost(string, tag = "7")]
    name: String,
}

#[derive(Message, Serialize)]
struct NonResourceAttributes {
    #[prost(string, tag = "1")]
    path: String,
    #[prost(string, tag = "2")]
    verb: String,
}

#[derive(Message)]
struct Time {
    #[prost(int64, optional, tag = "1")]
    seconds: Option<i64>,
}

#[derive(Message)]
struct MicroTime {
    #[prost(int64, optional, tag = "1")]
    seconds: Option<i64>,
    #[prost(int32, optional, tag = "2")]
    nanos: Option<i32>,
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let written = text(self.seconds.unwrap_or(UNSET).saturating_mul(1_000_000), Precision::Seconds);
        serializer.serialize_str(&written.ok_or_else(|| S::Error::custom(NO_YEAR))?)
    }
}

impl Serialize for MicroTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (seconds, micros) = match (self.seconds, self.nanos) {
            (None, None) => (UNSET, 0),
            (seconds, nanos) => (seconds.unwrap_or_default(), nanos.unwrap_or_default() / 1_000),
        };
        let written = text(seconds.saturating_mul(1_000_000).saturating_add(micros.into()), Precision::Micros);
        serializer.serialize_str(&written.ok_or_else(|| S::Error::custom(NO_YEAR))?)
    }
}

const NO_YEAR: &str = "year outside of range [0,9999]";

#[cfg(test)]
mod tests {
    use super::*;

    fn renewed(renew_time: MicroTime) -> Result<Value, String> {
        let spec = LeaseSpec { renew_time: Some(renew_time), ..LeaseSpec::default() };
        let raw = Lease { metadata: None, spec: Some(spec) }.encode_to_vec();
        let body = [PREFIX, &Envelope { head: None, raw }.encode_to_vec()].concat();
        decode(&body, "Lease").map(|lease| lease["spec"]["renewTime"].clone())
    }

    #[test]
    fn a_time_has_microseconds_and_may_have_passed_before_1970() {
        let time = |seconds, nanos| renewed(MicroTime { seconds, nanos });

        assert_eq!(time(Some(1_704_067_200), Some(1_999)).unwrap(), "2024-01-01T00:00:00.000001Z");
        assert_eq!(time(Some(-1), Some(500_000_000)).unwrap(), "1969-12-31T23:59:59.500000Z");
        assert_eq!(time(Some(0), None).unwrap(), "1970-01-01T00:00:00.000000Z");
    }

    #[test]
    fn a_time_that_was_never_set_is_that_of_go() {
        assert_eq!(renewed(MicroTime::default()).unwrap(), "0001-01-01T00:00:00.000000Z");
    }

    #[test]
    fn a_time_that_there_is_not_is_refused() {
        for seconds in [i64::MAX, i64::MIN] {
            assert_eq!(renewed(MicroTime { seconds: Some(seconds), nanos: Some(i32::MAX) }).unwrap_err(), NO_YEAR);
        }
    }
}
