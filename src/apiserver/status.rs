//! Builds the answers to requests that the server refuses.
//!
//! Clients go by code and reason; the message is for people. `details` names the Lease, which tells its absence from that of a path.

use serde_json::{Value, json};

use super::register::StatusError;

pub(super) const GROUP: &str = "coordination.k8s.io";

/// A `Status` of a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) code: u16,
    reason: &'static str,
    message: String,
    details: Value,
}

impl Status {
    pub(super) fn new(code: u16, message: impl Into<String>) -> Self {
        let reason = match code {
            400 => "BadRequest",
            401 => "Unauthorized",
            404 => "NotFound",
            405 => "MethodNotAllowed",
            406 => "NotAcceptable",
            409 => "Conflict",
            410 => "Expired",
            413 => "RequestEntityTooLarge",
            415 => "UnsupportedMediaType",
            422 => "Invalid",
            _ => "InternalError",
        };
        Self { code, reason, message: message.into(), details: Value::Null }
    }

    /// The register's answer about the Lease of this name.
    pub(super) fn of(error: StatusError, name: &str) -> Self {
        let lease = format!("leases.{GROUP} {name:?}");
        let mut details = json!({"name": name, "group": GROUP, "kind": "leases"});
        let status = match error {
            StatusError::NotFound => Self::new(404, format!("{lease} not found")),
            StatusError::AlreadyExists => Self { reason: "AlreadyExists", ..Self::new(409, format!("{lease} already exists")) },
            StatusError::Conflict(field) => Self::new(409, format!("{lease} has another metadata.{field}: read it again")),
            StatusError::Invalid { field, rule } => {
                // kubectl shows these only.
                details["causes"] = json!([{"reason": "FieldValueInvalid", "field": field, "message": rule}]);
                Self::new(422, format!("{lease} is invalid: {field}: {rule}"))
            }
            StatusError::Expired => Self::new(410, "the resourceVersion is too old: list again"),
        };
        Self { details, ..status }
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, message)
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": self.details,
            "code": self.code,
        })
    }
}

/// The answer to a DELETE that removed the Lease.
pub(super) fn deleted(name: &str, uid: &Value) -> Value {
    let details = json!({"name": name, "group": GROUP, "kind": "leases", "uid": uid});
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
