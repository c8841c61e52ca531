//! The client of these tests: it sends requests and returns answers unprocessed.

use http::{Method, Request, header};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};

use crate::support::{PATIENCE, stage::Stage, within};

/// A time as the API writes it.
pub(crate) const TIME: &str = "2024-01-01T00:00:00.000000Z";

/// Media types of patches.
pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(crate) const JSON: &str = "application/json-patch+json";

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) warnings: Vec<String>,
    pub(crate) retry_after: Option<String>,
    pub(crate) body: Value,
}

/// A Lease of this name with this spec.
pub(crate) fn lease(name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": name }, "spec": spec })
}

/// The same with this metadata field set.
pub(crate) fn with(mut lease: Value, field: &str, value: impl Into<Value>) -> Value {
    lease["metadata"][field] = value.into();
    lease
}

impl Answer {
    /// The object of a 201.
    pub(crate) fn created(self) -> Value {
        assert_eq!(self.code, 201, "{}", self.body);
        self.body
    }

    /// The object or Status of a success.
    pub(crate) fn ok(self) -> Value {
        assert_eq!(self.code, 200, "{}", self.body);
        self.body
    }

    /// Checks for a Status with this code and reason; returns its message.
    pub(crate) fn refused(&self, code: u16, reason: &str) -> String {
        assert_eq!(self.code, code, "{}", self.body);
        assert_eq!(self.body["kind"], "Status");
        assert_eq!(self.body["status"], "Failure");
        assert_eq!(self.body["code"], code);
        assert_eq!(self.body["reason"].as_str().unwrap_or_default(), reason, "{}", self.body);
        self.body["message"].as_str().expect("a message").to_owned()
    }

    /// Checks for a 422 with one cause; returns its field and message.
    pub(crate) fn invalid(&self) -> (String, String) {
        self.refused(422, "Invalid");
        let causes = self.body["details"]["causes"].as_array().expect("causes");
        assert_eq!(causes.len(), 1, "{}", self.body);
        let text = |name: &str| causes[0][name].as_str().unwrap_or_default().to_owned();
        (text("field"), text("message"))
    }
}

/// The resourceVersion of an object.
pub(crate) fn version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().expect("a version")
}

/// The same as a number.
pub(crate) fn number(object: &Value) -> u64 {
    version(object).parse().expect("a number")
}

/// The object without managedFields, to compare it with another.
pub(crate) fn plain(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    object
}

impl Stage {
    /// The path of a Lease of the case's namespace.
    pub(crate) fn at(&self, name: &str) -> String {
        format!("{}/{name}", self.lease.collection())
    }

    pub(crate) async fn post(&self, object: &Value) -> Answer {
        self.request(Method::POST, &self.lease.collection(), Some(object)).await
    }

    pub(crate) async fn put(&self, name: &str, object: &Value) -> Answer {
        self.request(Method::PUT, &self.at(name), Some(object)).await
    }

    pub(crate) async fn get(&self, name: &str) -> Answer {
        self.request(Method::GET, &self.at(name), None).await
    }

    pub(crate) async fn list(&self, query: &str) -> Answer {
        self.request(Method::GET, &format!("{}?{query}", self.lease.collection()), None).await
    }

    pub(crate) async fn delete(&self, name: &str, options: Option<&Value>) -> Answer {
        self.request(Method::DELETE, &self.at(name), options).await
    }

    pub(crate) async fn patch(&self, name: &str, media: &str, patch: &Value) -> Answer {
        self.send(Method::PATCH, &self.at(name), media, patch.to_string()).await
    }

    pub(crate) async fn request(&self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        self.send(method, path, "application/json", body.map(Value::to_string).unwrap_or_default()).await
    }

    /// Sends any bytes as any media type.
    pub(crate) async fn send(&self, method: Method, path: &str, media: &str, body: String) -> Answer {
        self.ask(method, path, media, "application/json", body).await
    }

    /// The same, and asks for the answer in another media type.
    pub(crate) async fn ask(&self, method: Method, path: &str, media: &str, accept: &str, body: String) -> Answer {
        self.deliver(method, path, media, accept, body.into_bytes()).await
    }

    /// The same for a body that is no text.
    pub(crate) async fn deliver(&self, method: Method, path: &str, media: &str, accept: &str, body: Vec<u8>) -> Answer {
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, media);
        let request = request.header(header::ACCEPT, accept).body(Body::from(body)).expect("a request");
        let answer = within(PATIENCE, "an answer", self.api.client().send(request)).await.expect("an answer");
        let text = |value: &http::HeaderValue| value.to_str().unwrap_or_default().to_owned();
        let warnings = answer.headers().get_all(header::WARNING).iter().map(text).collect();
        let retry_after = answer.headers().get(header::RETRY_AFTER).map(text);
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.expect("a body").to_bytes();
        Answer { code, warnings, retry_after, body: serde_json::from_slice(&body).unwrap_or_default() }
    }

    /// Creates a Lease.
    pub(crate) async fn given(&self, name: &str, spec: Value) -> Value {
        self.post(&lease(name, spec)).await.created()
    }

    /// Starts a watch.
    pub(crate) async fn watch(&self, query: &str) -> Watch {
        self.watch_as(query, "application/json").await
    }

    /// The same, and asks for the events in another media type.
    pub(crate) async fn watch_as(&self, query: &str, accept: &str) -> Watch {
        let uri = format!("{}?watch=true&{query}", self.lease.collection());
        let request = Request::get(uri).header(header::ACCEPT, accept).body(Body::empty()).expect("a request");
        let answer = within(PATIENCE, "a watch", self.api.client().send(request)).await.expect("a watch");
        assert_eq!(answer.status(), 200);
        Watch { body: answer.into_body(), read: Vec::new() }
    }
}

/// A running watch.
pub(crate) struct Watch {
    body: Body,
    read: Vec<u8>,
}

impl Watch {
    /// The next event; none when the watch ends.
    pub(crate) async fn next(&mut self) -> Option<(String, Value)> {
        within(PATIENCE, "an event", async {
            loop {
                if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = self.read.drain(..=end).collect();
                    let event: Value = serde_json::from_slice(&line).expect("an event");
                    let kind = event["type"].as_str().expect("a type").to_owned();
                    return Some((kind, plain(event["object"].clone())));
                }
                let frame = self.body.frame().await?.expect("no error of the stream");
                if let Ok(data) = frame.into_data() {
                    self.read.extend_from_slice(&data);
                }
            }
        })
        .await
    }

    /// The next event, which must be of this kind.
    pub(crate) async fn expect(&mut self, kind: &str) -> Value {
        let (seen, object) = self.next().await.expect("an event before the end");
        assert_eq!(seen, kind, "{object}");
        object
    }
}
