//! Checks what clients of Leases depend on, with the same cases on the embedded server and on the real one, which is the truth.
//!
//! Codes, reasons and objects are compared, never words.

use http::{Method, Request, header};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use support::{Case, PATIENCE, Stage, within};

mod kubectl;
mod reads;
mod watches;
mod writes;

pub(crate) fn groups() -> Vec<(&'static str, Vec<Case>)> {
    vec![
        ("api_writes", writes::cases()),
        ("api_reads", reads::cases()),
        ("api_watches", watches::cases()),
        ("api_kubectl", kubectl::cases()),
    ]
}

/// A time as the API writes it.
const TIME: &str = "2024-01-01T00:00:00.000000Z";

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

#[derive(Debug)]
struct Answer {
    code: u16,
    body: Value,
}

impl Answer {
    /// The object of a 201.
    fn created(self) -> Value {
        assert_eq!(self.code, 201, "{}", self.body);
        self.body
    }

    /// The object or Status of a success.
    fn ok(self) -> Value {
        assert_eq!(self.code, 200, "{}", self.body);
        self.body
    }

    /// A Status with this code and reason.
    fn refused(self, code: u16, reason: &str) -> Value {
        let says = |field: &str| self.body[field].as_str().unwrap_or_default();
        assert_eq!((self.code, says("kind"), says("reason")), (code, "Status", reason), "{}", self.body);
        assert_eq!((says("status"), &self.body["code"]), ("Failure", &json!(code)), "{}", self.body);
        assert_ne!(says("message"), "");
        self.body
    }

    /// A 422 because of this field.
    fn invalid(self, field: &str) {
        let status = self.refused(422, "Invalid");
        assert_eq!(status["details"]["causes"][0]["field"], field, "{status}");
    }
}

/// A Lease of this name with this spec.
fn lease(name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": name }, "spec": spec })
}

/// The same with another value there.
fn with(mut lease: Value, pointer: &str, value: impl Into<Value>) -> Value {
    let (parent, field) = pointer.rsplit_once('/').expect("a pointer");
    lease.pointer_mut(parent).expect("a parent")[field] = value.into();
    lease
}

/// The resourceVersion of an object.
fn version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().expect("a version")
}

/// The same as a number.
fn number(object: &Value) -> u64 {
    version(object).parse().expect("a number")
}

fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().expect("a uid")
}

/// The object without managedFields, which the embedded server does not keep.
fn plain(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    object
}

/// Requests for Leases of a case's namespace.
trait Leases {
    fn stage(&self) -> &Stage;

    /// The path of a Lease of the case's namespace.
    fn at(&self, name: &str) -> String {
        format!("{}/{name}", self.stage().lease.collection())
    }

    async fn post(&self, object: &Value) -> Answer {
        self.send(Method::POST, &self.stage().lease.collection(), JSON, object).await
    }

    async fn put(&self, name: &str, object: &Value) -> Answer {
        self.send(Method::PUT, &self.at(name), JSON, object).await
    }

    async fn patch(&self, name: &str, patch: &Value) -> Answer {
        self.send(Method::PATCH, &self.at(name), MERGE, patch).await
    }

    async fn delete(&self, name: &str, options: &Value) -> Answer {
        self.send(Method::DELETE, &self.at(name), JSON, options).await
    }

    async fn get(&self, name: &str) -> Answer {
        self.read(&self.at(name)).await
    }

    async fn list(&self, query: &str) -> Answer {
        self.read(&format!("{}?{query}", self.stage().lease.collection())).await
    }

    async fn read(&self, path: &str) -> Answer {
        self.send_text(Method::GET, path, JSON, JSON, String::new()).await
    }

    async fn send(&self, method: Method, path: &str, media: &str, body: &Value) -> Answer {
        self.send_text(method, path, media, JSON, body.to_string()).await
    }

    async fn send_text(&self, method: Method, path: &str, media: &str, accept: &str, body: String) -> Answer {
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, media);
        let request = request.header(header::ACCEPT, accept).body(Body::from(body.into_bytes())).expect("a request");
        let answer = within(PATIENCE, "an answer", self.stage().api.client().send(request)).await.expect("an answer");
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.expect("a body").to_bytes();
        Answer { code, body: serde_json::from_slice(&body).unwrap_or_default() }
    }

    async fn given(&self, name: &str, spec: Value) -> Value {
        self.post(&lease(name, spec)).await.created()
    }
}

impl Leases for Stage {
    fn stage(&self) -> &Stage {
        self
    }
}
