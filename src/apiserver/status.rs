//! Refusals in the API's wording: `Status` objects.
//!
//! Owns their reasons, messages and details, which clients compare. Makes no decisions.

use serde_json::{Map, Value, json};

/// The API group of Leases.
pub(super) const GROUP: &str = "coordination.k8s.io";
/// What messages call the resource.
pub(super) const RESOURCE: &str = "leases.coordination.k8s.io";

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// The HTTP status code.
    pub code: u16,
    /// The machine-readable reason; empty if there is none.
    pub reason: &'static str,
    /// One line for humans.
    pub message: String,
    /// `details`, if any.
    details: Option<Value>,
}

/// One thing that is wrong with a field.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cause {
    /// The field's path.
    pub(super) field: String,
    /// The machine-readable reason.
    pub(super) reason: &'static str,
    /// What is wrong, without the path.
    pub(super) message: String,
}

impl Cause {
    /// A value that breaks a rule; `value` as Go prints it.
    pub(super) fn invalid(field: impl Into<String>, value: &str, rule: &str) -> Self {
        let message = format!("Invalid value: {value}: {rule}");
        Self { field: field.into(), reason: "FieldValueInvalid", message }
    }

    /// A value that is missing.
    pub(super) fn required(field: impl Into<String>, rule: &str) -> Self {
        let message = if rule.is_empty() { "Required value".into() } else { format!("Required value: {rule}") };
        Self { field: field.into(), reason: "FieldValueRequired", message }
    }

    /// A value that must not be there.
    pub(super) fn forbidden(field: impl Into<String>, rule: &str) -> Self {
        Self { field: field.into(), reason: "FieldValueForbidden", message: format!("Forbidden: {rule}") }
    }

    /// A value too long to be shown.
    pub(super) fn too_long(field: impl Into<String>, limit: usize) -> Self {
        let message = format!("Too long: may not be more than {limit} bytes");
        Self { field: field.into(), reason: "FieldValueTooLong", message }
    }

    /// A value that is not among `known`.
    pub(super) fn unsupported(field: impl Into<String>, value: &str, known: &str) -> Self {
        Self::not_supported(field.into(), &format!("{value:?}"), known)
    }

    /// Values of which one is not among `known`.
    pub(super) fn unsupported_list(field: &str, values: &[Value], known: &str) -> Self {
        Self::not_supported(field.into(), &Value::from(values).to_string(), known)
    }

    fn not_supported(field: String, shown: &str, known: &str) -> Self {
        Self {
            field,
            reason: "FieldValueNotSupported",
            message: format!("Unsupported value: {shown}: supported values: {known}"),
        }
    }
}

impl Status {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None }
    }

    fn about(mut self, name: &str, kind: &str) -> Self {
        let mut details = Map::new();
        if !name.is_empty() {
            details.insert("name".into(), name.into());
        }
        details.insert("group".into(), GROUP.into());
        details.insert("kind".into(), kind.into());
        self.details = Some(details.into());
        self
    }

    /// 404: no such Lease.
    pub(super) fn not_found(name: &str) -> Self {
        Self::new(404, "NotFound", format!("{RESOURCE} {name:?} not found")).about(name, "leases")
    }

    /// 404: no such namespace.
    pub(super) fn no_namespace(name: &str) -> Self {
        let mut status = Self::new(404, "NotFound", format!("namespaces {name:?} not found"));
        status.details = Some(json!({"name": name, "kind": "namespaces"}));
        status
    }

    /// 409: a Lease of that name exists; `deleting` if it is being deleted.
    pub(super) fn already_exists(name: &str, deleting: bool) -> Self {
        let prefix = if deleting { "object is being deleted: " } else { "" };
        Self::new(409, "AlreadyExists", format!("{prefix}{RESOURCE} {name:?} already exists")).about(name, "leases")
    }

    /// 409: the write is based on a different version than the stored one.
    pub(super) fn conflict(name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {RESOURCE} {name:?}: {why}");
        Self::new(409, "Conflict", message).about(name, "leases")
    }

    /// 409: a precondition of a DELETE does not hold.
    pub(super) fn precondition(name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on Lease.{GROUP} {name:?}: {why}");
        Self::new(409, "Conflict", message).about(name, "Lease")
    }

    /// 422: the object breaks rules. `kind` is `Lease`, or `leases` for an update without a version.
    pub(super) fn invalid(name: &str, kind: &str, causes: &[Cause]) -> Self {
        let all = lines(causes);
        let mut status = Self::new(422, "Invalid", format!("{kind}.{GROUP} {name:?} is invalid: {all}")).about(name, kind);
        status.explain(causes);
        status
    }

    /// 422: request options that do not exist, or cannot be combined.
    pub(super) fn invalid_options(kind: &str, causes: &[Cause]) -> Self {
        let all = lines(causes);
        let mut status = Self::new(422, "Invalid", format!("{kind}.meta.k8s.io \"\" is invalid: {all}"));
        status.details = Some(json!({"group": "meta.k8s.io", "kind": kind}));
        status.explain(causes);
        status
    }

    /// 422: an access review that asks nothing, or too much.
    pub(super) fn invalid_review(cause: Cause) -> Self {
        let causes = [cause];
        let mut status = Self::new(422, "Invalid", format!(".authorization.k8s.io \"\" is invalid: {}", lines(&causes)));
        status.details = Some(json!({"group": "authorization.k8s.io"}));
        status.explain(&causes);
        status
    }

    /// 422: a step of a JSON Patch cannot be applied.
    pub(super) fn rejected() -> Self {
        let message = "the server rejected our request due to an error in our request";
        Self { details: Some(json!({})), ..Self::new(422, "Invalid", message) }
    }

    /// 422: the patched object is not a Lease.
    pub(super) fn invalid_patch(result: &str, why: &str) -> Self {
        let cause = Cause::invalid("patch", &format!("{result:?}"), why);
        let mut status = Self::new(422, "Invalid", format!(" \"\" is invalid: patch: {}", cause.message));
        status.details = Some(json!({}));
        status.explain(&[cause]);
        status
    }

    fn explain(&mut self, causes: &[Cause]) {
        let causes =
            causes.iter().map(|cause| json!({"reason": cause.reason, "message": cause.message, "field": cause.field})).collect();
        if let Some(Value::Object(details)) = &mut self.details {
            details.insert("causes".into(), Value::Array(causes));
        }
    }

    /// 400: the request cannot be understood.
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 400: the object's namespace is not the path's.
    pub(super) fn another_namespace() -> Self {
        Self::bad_request("the namespace of the provided object does not match the namespace sent on the request")
    }

    /// 401: no token, or an unknown one.
    pub(super) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 404: no such path in the API group.
    pub(super) fn no_such_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    /// 405: the path exists, but does not support the method.
    pub(super) fn not_allowed() -> Self {
        Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    }

    /// 406: no supported media type in the Accept header.
    pub(super) fn not_acceptable() -> Self {
        Self::new(406, "NotAcceptable", "only the following media types are accepted: application/json")
    }

    /// 406: a form that does not fit the shape of the answer.
    pub(super) fn other_shape(form: &str, shape: &str) -> Self {
        Self::new(406, "NotAcceptable", format!("you requested {form}, but the requested object is {shape}"))
    }

    /// 410: the requested version is no longer there.
    pub(super) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 413: a body over the limit.
    pub(super) fn too_large(limit: usize) -> Self {
        Self::too_much(&format!("limit is {limit}"))
    }

    /// 413, for this reason.
    pub(super) fn too_much(why: &str) -> Self {
        let message = format!("Request entity too large: {why}");
        Self::new(413, "RequestEntityTooLarge", message)
    }

    /// 415: a body of an unsupported media type.
    pub(super) fn unsupported_media_type(accepted: &str) -> Self {
        let message = format!("the body of the request was in an unknown format - accepted media types include: {accepted}");
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// 500 without a reason, as where the real server gives none.
    pub(super) fn unexplained(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    /// 504: a version that the server has not reached yet.
    pub(super) fn too_new(asked: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {asked}, current: {current}");
        let mut status = Self::new(504, "Timeout", format!("Timeout: {message}"));
        status.details = Some(json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        }));
        status
    }

    /// Any code, for injected faults.
    pub(super) fn injected(code: u16) -> Self {
        let reason = match code {
            400 => "BadRequest",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "NotFound",
            409 => "Conflict",
            410 => "Expired",
            422 => "Invalid",
            429 => "TooManyRequests",
            503 => "ServiceUnavailable",
            504 => "Timeout",
            _ => "InternalError",
        };
        Self::new(code, reason, format!("injected fault {code}"))
    }

    /// The object to send.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut object = Map::new();
        object.insert("kind".into(), "Status".into());
        object.insert("apiVersion".into(), "v1".into());
        object.insert("metadata".into(), json!({}));
        object.insert("status".into(), "Failure".into());
        object.insert("message".into(), self.message.clone().into());
        if !self.reason.is_empty() {
            object.insert("reason".into(), self.reason.into());
        }
        if let Some(details) = &self.details {
            object.insert("details".into(), details.clone());
        }
        object.insert("code".into(), self.code.into());
        object.into()
    }
}

/// As one line, each cause once.
fn lines(causes: &[Cause]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for cause in causes {
        let line = format!("{}: {}", cause.field, cause.message);
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    let all = lines.join(", ");
    if lines.len() == 1 { all } else { format!("[{all}]") }
}

/// The answer to a DELETE that removed the Lease.
pub(super) fn deleted(name: &str, uid: &str) -> Value {
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": name, "group": GROUP, "kind": "leases", "uid": uid},
    })
}
