//! Applies each request to the register.
//!
//! Owns paths, parameters, media types and the API's verbs. Carries a request out at once and completely; knows no connection and no
//! clock.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method, Uri, header};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use serde_json::{Value, json};

use super::{
    discovery,
    feed::Feed,
    lease,
    register::{Preconditions, Register, StatusError},
    selector::Selector,
    status::{self, GROUP, Status},
};

const LEASES: &str = "/apis/coordination.k8s.io/v1/";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const JSON: &str = "application/json";
const MERGE_PATCH: &str = "application/merge-patch+json";

/// A watch without `timeoutSeconds` ends after this long.
const WATCH_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// In seconds: a day.
const LONGEST_WATCH: u64 = 24 * 60 * 60;

/// The answer to a request.
#[derive(Debug)]
pub(super) enum Answer {
    /// A document with its code.
    Json(u16, Value),
    /// A stream of events, for at most this long.
    Watch(Feed, Duration),
}

/// A request whose body has been read.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Request {
    /// Carries it out; `now` is the time of creations and deletions.
    pub(super) fn carry_out(&self, register: &mut Register, now: &str) -> Answer {
        self.attempt(register, now).unwrap_or_else(|status| Answer::Json(status.code, status.to_json()))
    }

    fn attempt(&self, register: &mut Register, now: &str) -> Result<Answer, Status> {
        self.check_accept()?;
        if self.parameter("dryRun").is_some() {
            return Err(no_dry_runs());
        }
        let path = self.uri.path().trim_end_matches('/');
        let segments: Vec<&str> = path.strip_prefix(LEASES).map(|rest| rest.split('/').collect()).unwrap_or_default();
        match (self.method.as_str(), segments.as_slice()) {
            ("GET", ["leases"]) => self.read(register, String::new()),
            ("GET", ["namespaces", namespace, "leases"]) => self.read(register, format!("{namespace}/")),
            ("POST", ["namespaces", namespace, "leases"]) => {
                let lease = lease::decode(self.json(JSON)?, namespace)?;
                let name = lease::name(&lease)?.to_owned();
                let created = register.create(&format!("{namespace}/{name}"), lease.into(), now);
                answered(201, created, &name)
            }
            ("GET", ["namespaces", namespace, "leases", name]) => {
                let lease = register.get(&format!("{namespace}/{name}")).cloned();
                answered(200, lease.ok_or(StatusError::NotFound), name)
            }
            ("PUT", ["namespaces", namespace, "leases", name]) => {
                let key = format!("{namespace}/{name}");
                let lease = replacement(self.json(JSON)?, namespace, name)?;
                let code = if register.get(&key).is_some() { 200 } else { 201 };
                answered(code, register.replace(&key, lease.into(), now), name)
            }
            ("PATCH", ["namespaces", namespace, "leases", name]) => {
                let key = format!("{namespace}/{name}");
                let patch = self.json(MERGE_PATCH)?;
                let old = register.get(&key).ok_or_else(|| Status::of(StatusError::NotFound, name))?;
                let mut lease = Value::clone(old);
                lease::merge(&mut lease, patch);
                let lease = replacement(lease, namespace, name)?;
                answered(200, register.replace(&key, lease.into(), now), name)
            }
            ("DELETE", ["namespaces", namespace, "leases", name]) => {
                self.delete(register, &format!("{namespace}/{name}"), name, now)
            }
            (_, ["leases"] | ["namespaces", _, "leases"] | ["namespaces", _, "leases", _]) => {
                Err(Status::new(405, "there is no such method here"))
            }
            ("POST", _) if path == REVIEWS => Ok(Answer::Json(201, discovery::allowed(&self.json(JSON)?))),
            ("GET", _) if let Some(document) = discovery::document(path) => Ok(Answer::Json(200, document)),
            _ => Err(Status::new(404, "there is no such path")),
        }
    }

    /// Answers a LIST or a WATCH.
    fn read(&self, register: &Register, prefix: String) -> Result<Answer, Status> {
        let text = |name| self.parameter(name).unwrap_or_default();
        let selector = Selector::parse(&text("labelSelector"), &text("fieldSelector"))?;
        if !self.is_true("watch") {
            let items: Vec<_> = register.list(&prefix).map(Arc::as_ref).filter(|lease| selector.matches(lease)).collect();
            let metadata = json!({"resourceVersion": register.version().to_string()});
            let list = json!({"kind": "LeaseList", "apiVersion": format!("{GROUP}/v1"), "metadata": metadata, "items": items});
            return Ok(Answer::Json(200, list));
        }
        let version = self.number("resourceVersion")?.unwrap_or_default();
        let initial =
            if self.parameter("sendInitialEvents").is_some() { self.is_true("sendInitialEvents") } else { version == 0 };
        let after = if version == 0 { register.version() } else { version };
        let feed = Feed { prefix, selector, after: (!initial).then_some(after), bookmarks: self.is_true("allowWatchBookmarks") };
        let timeout = self.number("timeoutSeconds")?.filter(|seconds| *seconds > 0);
        Ok(Answer::Watch(feed, timeout.map_or(WATCH_TIMEOUT, |seconds| Duration::from_secs(seconds.min(LONGEST_WATCH)))))
    }

    fn delete(&self, register: &mut Register, key: &str, name: &str, now: &str) -> Result<Answer, Status> {
        let unreadable = |why| Status::bad_request(format!("not DeleteOptions: {why}"));
        let body = if self.body.is_empty() { json!({}) } else { self.json(JSON)? };
        let options: DeleteOptions = serde_json::from_value(body).map_err(unreadable)?;
        if options.dry_run.is_some_and(|modes| !modes.is_empty()) {
            return Err(no_dry_runs());
        }
        let must = options.preconditions.unwrap_or_default();
        let must = Preconditions { uid: must.uid.as_deref(), resource_version: must.resource_version.as_deref() };
        // kubectl waits until what has this uid is gone, which a new Lease of the same name has not.
        let uid = register.get(key).map(|lease| lease["metadata"]["uid"].clone()).unwrap_or_default();
        let left = register.delete(key, must, now).map_err(|error| Status::of(error, name))?;
        Ok(Answer::Json(200, left.map_or_else(|| status::deleted(name, &uid), |lease| Value::clone(&lease))))
    }

    /// The body, which must say that it is of this media type, or nothing about it.
    fn json(&self, media: &str) -> Result<Value, Status> {
        let said = self.header(&header::CONTENT_TYPE);
        let said = said.split(';').next().unwrap_or_default().trim();
        if !said.is_empty() && said != media {
            return Err(Status::new(415, format!("{said} is not known here; send {media}")));
        }
        let body = serde_json::from_slice(&self.body);
        body.map_err(|why| Status::bad_request(format!("the body is not JSON: {why}")))
    }

    /// kubectl asks for tables, but takes plain JSON too.
    fn check_accept(&self) -> Result<(), Status> {
        let accept = self.header(&header::ACCEPT);
        let takes_json = |media: &str| {
            let mut words = media.split(';').map(str::trim);
            matches!(words.next(), Some("" | JSON | "application/*" | "*/*")) && !words.any(|word| word.starts_with("as="))
        };
        if !accept.split(',').any(takes_json) {
            return Err(Status::new(406, format!("answers are {JSON} only")));
        }
        Ok(())
    }

    fn header(&self, name: &header::HeaderName) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    fn parameter(&self, name: &str) -> Option<String> {
        let mut parameters = form_urlencoded::parse(self.uri.query()?.as_bytes());
        parameters.find(|(found, _)| found == name).map(|(_, value)| value.into_owned())
    }

    /// Returns true if the parameter is true as Go reads it.
    fn is_true(&self, name: &str) -> bool {
        self.parameter(name).is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    fn number(&self, name: &str) -> Result<Option<u64>, Status> {
        let Some(text) = self.parameter(name).filter(|text| !text.is_empty()) else { return Ok(None) };
        let number = text.parse().map_err(|why| Status::bad_request(format!("{name}: {text:?}: {why}")))?;
        Ok(Some(number))
    }
}

/// The body of a PUT, or what a PATCH makes of the Lease.
fn replacement(body: Value, namespace: &str, name: &str) -> Result<Value, Status> {
    let lease = lease::decode(body, namespace)?;
    if lease["metadata"]["name"] != name {
        return Err(Status::bad_request(format!("the name of the object is not the {name:?} of the path")));
    }
    lease::name(&lease)?;
    Ok(lease)
}

fn answered(code: u16, lease: Result<Arc<Value>, StatusError>, name: &str) -> Result<Answer, Status> {
    let lease = lease.map_err(|error| Status::of(error, name))?;
    Ok(Answer::Json(code, Arc::unwrap_or_clone(lease)))
}

fn no_dry_runs() -> Status {
    Status::bad_request("dry runs are not known here; nothing was done")
}
