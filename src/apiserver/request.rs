//! A request, and what its parts say.
//!
//! Owns paths, parameters, media types and the decoding of bodies. What follows from them is `rest`'s.

use serde_json::Value;

use super::{
    discovery,
    lease::Lease,
    query::{Query, decode},
    schema,
    selector::Selector,
    status::{Cause, Status},
    store::Store,
};

const LEASES: &str = "/apis/coordination.k8s.io/v1/";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// A request, its body read.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) query: Query,
    pub(super) accept: String,
    pub(super) content_type: String,
    pub(super) body: bytes::Bytes,
}

/// What a path names.
pub(super) enum Route {
    Document(Value),
    Health,
    Review,
    Leases(Option<String>),
    Lease(String, String),
    /// In the API group, but nothing that it has.
    Nowhere,
    /// Outside of all groups.
    Elsewhere,
}

impl Request {
    /// Whether it begins a watch.
    pub(super) fn is_watch(&self) -> bool {
        self.method == "GET" && self.query.is_true("watch") && matches!(self.route(), Route::Leases(_))
    }

    pub(super) fn route(&self) -> Route {
        let path = self.path.as_str();
        if let Some(document) = discovery::document(path) {
            return Route::Document(document);
        }
        if matches!(path, "/healthz" | "/livez" | "/readyz") {
            return Route::Health;
        }
        if path == REVIEWS {
            return Route::Review;
        }
        let Some(rest) = path.strip_prefix(LEASES) else { return Route::Elsewhere };
        match rest.split('/').collect::<Vec<_>>().as_slice() {
            ["leases"] => Route::Leases(None),
            ["namespaces", namespace, "leases"] => Route::Leases(Some(decode(namespace))),
            ["namespaces", namespace, "leases", name] => Route::Lease(decode(namespace), decode(name)),
            _ => Route::Nowhere,
        }
    }

    /// The body as a Lease of `namespace`.
    pub(super) fn lease(&self, namespace: &str) -> Result<(Lease, Vec<String>), Status> {
        let body = self.json_body()?;
        let text = |name: &str| body.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let version = text("apiVersion").unwrap_or("coordination.k8s.io/v1");
        if version != "coordination.k8s.io/v1" {
            let message = format!(
                "the API version in the data ({version}) does not match the expected API version (coordination.k8s.io/v1)"
            );
            return Err(Status::bad_request(message));
        }
        let kind = text("kind").unwrap_or("Lease");
        let refuse = |why: &str| Status::bad_request(format!("{kind} in version \"v1\" cannot be handled as a Lease: {why}"));
        if kind != "Lease" {
            return Err(refuse(&format!(
                "no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:110\""
            )));
        }
        let decoded = schema::decode(&body).map_err(|why| refuse(&why))?;
        let mut warned = Vec::new();
        match self.query.text("fieldValidation") {
            "Strict" if !decoded.unknown.is_empty() => {
                return Err(refuse(&format!("strict decoding error: {}", warnings(&decoded.unknown).join(", "))));
            }
            "Strict" | "Ignore" => {}
            _ => warned = warnings(&decoded.unknown),
        }
        let lease = Lease::new(decoded.object);
        if !lease.namespace().is_empty() && lease.namespace() != namespace {
            return Err(Status::another_namespace());
        }
        Ok((lease, warned))
    }

    pub(super) fn json_body(&self) -> Result<Value, Status> {
        if !matches!(self.media_type(), "" | "application/json" | "*/*") {
            return Err(Status::unsupported_media_type("application/json"));
        }
        serde_json::from_slice(&self.body).map_err(|why| {
            Status::bad_request(format!(
                "the object provided is unrecognized (must be of type Lease): couldn't get version/kind; json parse error: {why}"
            ))
        })
    }

    pub(super) fn media_type(&self) -> &str {
        self.content_type.split(';').next().unwrap_or_default().trim()
    }

    /// Whether the client prefers a table to the objects.
    pub(super) fn wants_table(&self) -> Result<bool, Status> {
        for accepted in self.accept.split(',') {
            let mut parts = accepted.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            let form = parts.find_map(|part| part.strip_prefix("as="));
            match (media, form) {
                ("application/json", Some("Table")) => return Ok(true),
                ("" | "*/*" | "application/*" | "application/json", None) => return Ok(false),
                _ => {}
            }
        }
        Err(Status::not_acceptable())
    }

    pub(super) fn selector(&self) -> Result<Selector, Status> {
        Selector::parse(self.query.text("labelSelector"), self.query.text("fieldSelector"))
    }

    /// The `resourceVersion` parameter; 0 if there is none. The error is Go's message.
    pub(super) fn version(&self) -> Result<u64, String> {
        match self.query.text("resourceVersion") {
            "" => Ok(0),
            text => text.parse().map_err(|_| {
                let why = format!("strconv.ParseUint: parsing {text:?}: invalid syntax");
                format!("resourceVersion: Invalid value: {text:?}: {why}")
            }),
        }
    }

    pub(super) fn check_list_options(&self) -> Result<(), Status> {
        let mut causes = Vec::new();
        let (asked, version) = (self.query.text("resourceVersionMatch"), self.query.text("resourceVersion"));
        if !asked.is_empty() && version.is_empty() {
            let rule = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            causes.push(Cause::forbidden("resourceVersionMatch", rule));
        }
        if !matches!(asked, "" | "Exact" | "NotOlderThan") {
            causes.push(Cause::unsupported("resourceVersionMatch", asked, "\"\", \"Exact\", \"NotOlderThan\""));
        }
        if asked == "Exact" && version == "0" {
            let rule = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            causes.push(Cause::forbidden("resourceVersionMatch", rule));
        }
        if self.query.has("sendInitialEvents") {
            causes.push(Cause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
        if causes.is_empty() { Ok(()) } else { Err(Status::invalid_options("ListOptions", &causes)) }
    }

    pub(super) fn check_watch_options(&self) -> Result<(), Status> {
        let mut causes = Vec::new();
        let asked = self.query.text("resourceVersionMatch");
        let initial = self.query.has("sendInitialEvents");
        if initial && asked != "NotOlderThan" {
            let rule = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            causes.push(Cause::forbidden("resourceVersionMatch", rule));
        }
        if !asked.is_empty() && !initial {
            let rule = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            causes.push(Cause::forbidden("resourceVersionMatch", rule));
        }
        if !matches!(asked, "" | "NotOlderThan") {
            causes.push(Cause::unsupported("resourceVersionMatch", asked, "\"NotOlderThan\""));
        }
        if causes.is_empty() { Ok(()) } else { Err(Status::invalid_options("ListOptions", &causes)) }
    }

    pub(super) fn reached(asked: u64, store: &Store) -> Result<(), Status> {
        if asked > store.version() {
            return Err(Status::too_new(asked, store.version()));
        }
        Ok(())
    }
}

/// Texts for Warning headers.
pub(super) fn warnings(unknown: &[String]) -> Vec<String> {
    unknown.iter().map(|path| format!("unknown field {path:?}")).collect()
}
