//! A stored Lease.
//!
//! Owns the views of the JSON that the other modules need: names, versions, finalizers. The JSON may be nonsense that a test
//! planted, so every view has an answer for a missing or mistyped field.

use std::num::IntErrorKind;

use serde_json::{Map, Value};

use super::{
    schema,
    status::{GROUP, Status},
};

/// A resourceVersion as the real server reads it. The error is Go's message.
pub(super) fn number(version: &str) -> Result<u64, String> {
    let why = match version.parse::<u64>() {
        Ok(number) if !version.starts_with('+') => return Ok(number),
        Err(why) if *why.kind() == IntErrorKind::PosOverflow => "value out of range",
        Ok(_) | Err(_) => "invalid syntax",
    };
    Err(format!("strconv.ParseUint: parsing {version:?}: {why}"))
}

/// One Lease, as JSON.
#[derive(Clone, Debug, PartialEq)]
pub struct Lease(Value);

impl Lease {
    /// Decodes a body as the server does: unknown fields are dropped, times normalised.
    ///
    /// # Errors
    /// 400 for a field of the wrong type.
    pub fn decode(object: &Value) -> Result<Self, Status> {
        schema::decode(object, &schema::LEASE).map(Self::new).map_err(Status::bad_request)
    }

    /// Takes `object` as it is.
    pub(super) fn new(object: Value) -> Self {
        let mut lease = Self(if object.is_object() { object } else { Map::new().into() });
        lease.fields().insert("kind".into(), "Lease".into());
        lease.fields().insert("apiVersion".into(), format!("{GROUP}/v1").into());
        lease
    }

    /// The object as it goes over the wire.
    #[must_use]
    pub const fn json(&self) -> &Value {
        &self.0
    }

    /// A string in the metadata; empty if absent.
    pub(super) fn meta(&self, field: &str) -> &str {
        self.metadata(field).and_then(Value::as_str).unwrap_or_default()
    }

    /// `metadata.name`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.meta("name")
    }

    /// `metadata.namespace`.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.meta("namespace")
    }

    /// `metadata.uid`.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.meta("uid")
    }

    /// `metadata.resourceVersion`.
    #[must_use]
    pub fn version(&self) -> &str {
        self.meta("resourceVersion")
    }

    /// Whether its deletion waits for its finalizers to be removed.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        self.metadata("deletionTimestamp").is_some()
    }

    /// `metadata.finalizers`.
    pub(super) fn finalizers(&self) -> Vec<&str> {
        let list = self.metadata("finalizers").and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// The entries of `metadata.labels` or `metadata.annotations`.
    pub(super) fn texts(&self, field: &str) -> impl Iterator<Item = (&str, &str)> {
        let map = self.metadata(field).and_then(Value::as_object);
        map.into_iter().flatten().filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)))
    }

    /// A field of the metadata.
    pub(super) fn metadata(&self, field: &str) -> Option<&Value> {
        self.0.get("metadata")?.get(field)
    }

    /// A field of the spec.
    pub(super) fn spec(&self, field: &str) -> Option<&Value> {
        self.0.get("spec")?.get(field)
    }

    /// Sets a field of the metadata, or removes it.
    pub(super) fn set(&mut self, field: &str, value: Option<Value>) {
        let metadata = self.fields().entry("metadata").or_insert_with(|| Map::new().into());
        if !metadata.is_object() {
            *metadata = Map::new().into();
        }
        let Some(metadata) = metadata.as_object_mut() else { return };
        match value {
            Some(value) => metadata.insert(field.into(), value),
            None => metadata.remove(field),
        };
    }

    /// Removes a field of the spec.
    pub(super) fn remove_spec(&mut self, field: &str) {
        if let Some(Value::Object(spec)) = self.fields().get_mut("spec") {
            spec.remove(field);
        }
    }

    fn fields(&mut self) -> &mut Map<String, Value> {
        if !self.0.is_object() {
            self.0 = Map::new().into();
        }
        let Value::Object(fields) = &mut self.0 else { unreachable!("made an object just above") };
        fields
    }
}
