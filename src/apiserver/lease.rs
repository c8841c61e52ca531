//! Defines what the body of a write may hold, and how it is stored.
//!
//! Owns the decoding of Leases (unknown fields are dropped, times normalised), the syntax of names and times, and merge patches. The
//! rules of the spec are the register's.

use k8s_openapi::api::coordination::v1::Lease;
use serde_json::{Map, Value};

use super::{
    register::StatusError,
    status::{GROUP, Status},
};

/// The Lease of a body that is sent to this namespace.
///
/// # Errors
/// 400 for a field of the wrong type, another kind or another namespace.
pub(super) fn decode(mut body: Value, namespace: &str) -> Result<Value, Status> {
    let Some(fields) = body.as_object_mut() else { return Err(Status::bad_request("the body is not an object")) };
    fields.entry("apiVersion").or_insert_with(|| format!("{GROUP}/v1").into());
    fields.entry("kind").or_insert_with(|| "Lease".into());
    for field in ["renewTime", "acquireTime"] {
        if let Some(time) = body.pointer(&format!("/spec/{field}")).and_then(Value::as_str).filter(|time| !has_micros(time)) {
            return Err(Status::bad_request(format!("spec.{field}: {time:?} is not as in 2006-01-02T15:04:05.000000Z")));
        }
    }
    let unreadable = |why| Status::bad_request(format!("not a Lease: {why}"));
    let mut lease: Lease = serde_json::from_value(body).map_err(unreadable)?;
    if lease.metadata.namespace.get_or_insert_with(|| namespace.into()) != namespace {
        return Err(Status::bad_request("the namespace of the object is not that of the path"));
    }
    lease.metadata.managed_fields = None;
    let lease = serde_json::to_value(lease).map_err(unreadable)?;
    Ok(lease)
}

/// The name of a new Lease.
///
/// # Errors
/// 422 unless it is a DNS subdomain.
pub(super) fn name(lease: &Value) -> Result<&str, Status> {
    let name = lease["metadata"]["name"].as_str().unwrap_or_default();
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        let ends = [label.bytes().next(), label.bytes().next_back()];
        ends.iter().all(|end| end.is_some_and(is_plain)) && label.bytes().all(|byte| is_plain(byte) || byte == b'-')
    };
    if name.len() > 253 || !name.split('.').all(is_label) {
        let error = StatusError::Invalid { field: "metadata.name", rule: "must be a lowercase RFC 1123 subdomain" };
        return Err(Status::of(error, name));
    }
    Ok(name)
}

/// Carries out a JSON merge patch (RFC 7386).
pub(super) fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Map::new().into();
    }
    let Some(fields) = target.as_object_mut() else { return };
    for (field, change) in patch {
        if change.is_null() {
            fields.remove(&field);
        } else {
            merge(fields.entry(field).or_insert(Value::Null), change);
        }
    }
}

/// Returns true if the seconds have exactly six digits of fraction, as Go demands of a `MicroTime`; the rest is parsed as RFC
/// 3339.
fn has_micros(time: &str) -> bool {
    let fraction = time.split_once('.').map_or("", |(_, rest)| rest);
    time.as_bytes().get(10) == Some(&b'T') && fraction.bytes().take_while(u8::is_ascii_digit).count() == 6
}
