//! Turns the requests of a driver into requests to the API server, and replies into answers.
//!
//! Owns which status of a reply is a refusal, and which leaves the outcome open. Sends each request once. Never passes on a message
//! of the server about a Secret: some quote its values.

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use form_urlencoded::byte_serialize;
use http::{Request as Http, StatusCode, header::CONTENT_TYPE, request::Builder};
use serde_json::{Value, json};

use super::{discovery::version_path, files::group, lock::Term, output};
use crate::{
    api::{ExchangeError, Reply},
    clock,
    commands::{access::Access, interrupts::Interrupts},
    request::RequestError,
    time::Instant,
    transaction::{Answer, Event, Place, Request, Server, Storing, Target, Write},
    words::one_line,
};

const JSON: &str = "application/json";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// The API server, the term and the clock of one driver.
pub(super) struct ApiServer<'a> {
    access: &'a Access,
    /// None: nothing is written.
    term: Option<Term>,
    /// `lease.attemptTimeout`, which an answer may take before H.
    margin: Duration,
    interrupted: Arc<AtomicBool>,
    told: RefCell<Vec<(Instant, Event)>>,
}

impl<'a> ApiServer<'a> {
    /// Catches SIGTERM and SIGINT from now on; needs a runtime.
    ///
    /// # Errors
    /// The signals cannot be caught.
    pub(super) fn new(access: &'a Access, term: Option<Term>, margin: Duration) -> std::io::Result<Self> {
        let interrupted = Arc::<AtomicBool>::default();
        let (mut interrupts, flag) = (Interrupts::catch()?, interrupted.clone());
        drop(tokio::spawn(async move {
            interrupts.next().await;
            flag.store(true, Relaxed);
        }));
        Ok(Self { access, term, margin, interrupted, told: RefCell::default() })
    }

    /// The events so far, each with its instant.
    pub(super) fn told(&self) -> Vec<(Instant, Event)> {
        self.told.take()
    }
}

impl Server for ApiServer<'_> {
    async fn send(&self, request: Request, acting_as: Option<&str>) -> Answer {
        let is_secret = match &request {
            Request::Look(target) | Request::Plan(target, _) | Request::Write(target, _) | Request::Review(target, _) => {
                is_secret(target)
            }
            Request::Journal(..) => true,
        };
        let is_review = matches!(request, Request::Review(..));
        let is_journal = matches!(request, Request::Journal(..));
        let (mut http, body) = built(request);
        if let Some(user) = acting_as {
            http = http.header("impersonate-user", user);
        }
        let answer = judged(self.access.exchange(http, body).await, is_secret);
        let Answer::Object(mut object) = answer else { return answer };
        if is_review {
            return reviewed(&object);
        }
        if is_journal {
            decode(&mut object);
        }
        Answer::Object(object)
    }

    async fn wait(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }

    fn now(&self) -> Instant {
        clock::boot()
    }

    fn until(&self) -> Instant {
        let Some(Term { page, .. }) = &self.term else { return Instant::NEVER };
        Instant::from_nanos(page.hard().as_nanos().saturating_sub(u64::try_from(self.margin.as_nanos()).unwrap_or(u64::MAX)))
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Relaxed)
    }

    fn report(&self, event: Event) {
        let is_retry = |event: &Event| matches!(event, Event::Retrying(_));
        let mut told = self.told.borrow_mut();
        // Once is enough.
        if is_retry(&event) && told.iter().any(|(_, event)| is_retry(event)) {
            return;
        }
        output::tell(&event);
        told.push((clock::boot(), event));
    }
}

/// Returns true if the values of this object are never shown.
pub(super) fn is_secret(target: &Target) -> bool {
    target.resource == "secrets" && group(&target.api_version).is_empty()
}

/// The request, and its body.
fn built(request: Request) -> (Builder, Vec<u8>) {
    let none = Vec::new;
    match request {
        Request::Look(target) => (Http::get(object(&target)), none()),
        Request::Plan(target, write) => written(&target, write, true),
        Request::Write(target, write) => written(&target, write, false),
        Request::Journal(place, Storing::Read) => (Http::get(secret(&place)), none()),
        Request::Journal(place, Storing::Create(body)) => with(Http::post(secrets(&place)), JSON, &body),
        Request::Journal(place, Storing::Replace(body)) => with(Http::put(secret(&place)), JSON, &body),
        Request::Review(target, verb) => {
            let mut asked = json!({ "group": group(&target.api_version), "resource": target.resource, "namespace": target.namespace, "verb": verb });
            // Who may create objects may not be narrowed to a name.
            if verb != "create" {
                asked["name"] = target.name.into();
            }
            with(
                Http::post(REVIEWS),
                JSON,
                &json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": { "resourceAttributes": asked } }),
            )
        }
    }
}

fn written(target: &Target, write: Write, dry: bool) -> (Builder, Vec<u8>) {
    let query = |checks: &str| match dry {
        true => format!("?dryRun=All&fieldManager=tenure{checks}"),
        false => "?fieldManager=tenure".to_owned(),
    };
    let strict = "&fieldValidation=Strict";
    match write {
        Write::Apply(body) => with(Http::patch(object(target) + &query("&force=true")), "application/apply-patch+yaml", &body),
        Write::Merge(body) => with(Http::patch(object(target) + &query(strict)), "application/merge-patch+json", &body),
        Write::Create(body) => with(Http::post(collection(target) + &query(strict)), JSON, &body),
        // With a body the server ignores the query.
        Write::Delete(body) => with(Http::delete(object(target)), JSON, &body),
    }
}

fn with(request: Builder, content_type: &str, body: &Value) -> (Builder, Vec<u8>) {
    (request.header(CONTENT_TYPE, content_type), body.to_string().into_bytes())
}

fn collection(target: &Target) -> String {
    let namespace = target.namespace.as_deref().map_or_else(String::new, |name| format!("/namespaces/{}", segment(name)));
    format!("{}{namespace}/{}", version_path(&target.api_version), segment(&target.resource))
}

fn object(target: &Target) -> String {
    format!("{}/{}", collection(target), segment(&target.name))
}

fn secrets(place: &Place) -> String {
    format!("/api/v1/namespaces/{}/secrets", segment(&place.namespace))
}

fn secret(place: &Place) -> String {
    format!("{}/{}", secrets(place), segment(&place.name))
}

/// A name as one segment of a path, whatever is in it: some come from the journal.
fn segment(name: &str) -> String {
    byte_serialize(name.as_bytes()).collect()
}

/// The meaning of a reply.
fn judged(reply: Result<Reply, ExchangeError>, is_secret: bool) -> Answer {
    let reply = match reply {
        Ok(reply) => reply,
        Err(error) => return Answer::Unknown(RequestError { status: None, words: one_line(&error) }),
    };
    let said =
        || RequestError { status: Some(reply.status.as_u16()), words: if is_secret { reply.reason() } else { reply.message() } };
    match reply.status {
        status if status.is_success() => match serde_json::from_slice::<Value>(&reply.body) {
            Ok(object) if object.is_object() => Answer::Object(object),
            Ok(_) | Err(_) => {
                let words = "this is no object".to_owned();
                Answer::Unknown(RequestError { status: Some(status.as_u16()), words })
            }
        },
        // A proxy on the way knows of no object.
        StatusCode::NOT_FOUND if reply.names_an_object() => Answer::NotFound,
        StatusCode::CONFLICT => Answer::Conflict(said()),
        StatusCode::NOT_FOUND | StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => Answer::Unknown(said()),
        status if status.is_client_error() => Answer::Refused(said()),
        // The API server calls it an internal error of its own.
        _ if reply.message().starts_with("failed to create typed patch object") => Answer::Refused(said()),
        _ => Answer::Unknown(said()),
    }
}

fn reviewed(review: &Value) -> Answer {
    if review["status"]["allowed"] == true {
        return Answer::Object(review.clone());
    }
    let why = review["status"]["reason"].as_str().filter(|why| !why.is_empty()).unwrap_or("no rule allows it");
    Answer::Refused(RequestError { status: Some(StatusCode::FORBIDDEN.as_u16()), words: why.into() })
}

/// Puts the journal's text where the room looks for it.
fn decode(secret: &mut Value) {
    let text = secret.pointer("/data/journal").and_then(Value::as_str);
    // Bytes that are no text are no empty journal.
    let text = text.map(|text| String::from_utf8_lossy(&BASE64_STANDARD.decode(text).unwrap_or_default()).into_owned());
    if let Some(data) = secret.get_mut("data").and_then(Value::as_object_mut) {
        data.remove("journal");
    }
    if let Some(text) = text.filter(|text| !text.is_empty()) {
        secret["stringData"] = json!({ "journal": text });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Target {
        Target {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            resource: "deployments".into(),
            namespace: Some("shop".into()),
            name: "web".into(),
        }
    }

    fn line(request: Request) -> String {
        let (http, body) = built(request);
        let http = http.body(()).unwrap();
        let form = http.headers().get(CONTENT_TYPE).map_or("", |form| form.to_str().unwrap());
        format!("{} {} {form} {}", http.method(), http.uri(), String::from_utf8(body).unwrap())
    }

    #[test]
    fn each_request_is_the_one_of_the_table() {
        let place = || Place { namespace: "shop".into(), name: "txn-x-journal".into() };
        let (at, body) = ("/apis/apps/v1/namespaces/shop/deployments", || json!({}));
        let (dry, real) = ("dryRun=All&fieldManager=tenure", "fieldManager=tenure");
        let merge = "application/merge-patch+json";
        let journals = "/api/v1/namespaces/shop/secrets";
        for (request, expected) in [
            (Request::Look(target()), format!("GET {at}/web  ")),
            (
                Request::Plan(target(), Write::Apply(body())),
                format!("PATCH {at}/web?{dry}&force=true application/apply-patch+yaml {{}}"),
            ),
            (Request::Plan(target(), Write::Merge(body())), format!("PATCH {at}/web?{dry}&fieldValidation=Strict {merge} {{}}")),
            (Request::Plan(target(), Write::Create(body())), format!("POST {at}?{dry}&fieldValidation=Strict {JSON} {{}}")),
            (Request::Plan(target(), Write::Delete(body())), format!("DELETE {at}/web {JSON} {{}}")),
            (Request::Write(target(), Write::Merge(body())), format!("PATCH {at}/web?{real} {merge} {{}}")),
            (Request::Write(target(), Write::Create(body())), format!("POST {at}?{real} {JSON} {{}}")),
            (Request::Write(target(), Write::Delete(body())), format!("DELETE {at}/web {JSON} {{}}")),
            (Request::Journal(place(), Storing::Read), format!("GET {journals}/txn-x-journal  ")),
            (Request::Journal(place(), Storing::Create(body())), format!("POST {journals} {JSON} {{}}")),
            (Request::Journal(place(), Storing::Replace(body())), format!("PUT {journals}/txn-x-journal {JSON} {{}}")),
        ] {
            assert_eq!(line(request), expected);
        }
    }

    #[test]
    fn a_name_stays_one_segment_of_the_path() {
        let odd = Target { namespace: None, name: "system:a/../b?c".into(), ..target() };
        assert_eq!(object(&odd), "/apis/apps/v1/deployments/system%3Aa%2F..%2Fb%3Fc");
    }

    #[test]
    fn a_review_asks_for_a_name_unless_it_is_about_a_creation() {
        let asked = |verb| line(Request::Review(target(), verb));
        assert!(asked("delete").contains(r#""name":"web""#), "{}", asked("delete"));
        assert!(!asked("create").contains(r#""name""#), "{}", asked("create"));
        let denied = reviewed(&json!({ "status": { "allowed": false } }));
        assert!(matches!(denied, Answer::Refused(error) if error.is_forbidden()));
    }

    fn judge(status: u16, body: &str, is_secret: bool) -> Answer {
        let status = StatusCode::from_u16(status).unwrap();
        judged(Ok(Reply { status, retry_after: None, body: body.to_owned().into() }), is_secret)
    }

    #[test]
    fn only_an_absence_that_the_api_server_states_is_one_and_what_may_have_been_done_is_unknown() {
        assert_eq!(judge(404, r#"{"details":{"kind":"deployments"}}"#, false), Answer::NotFound);
        for (status, body) in [(404, "404 page not found"), (429, "{}"), (408, "{}"), (503, "{}"), (200, "nonsense"), (302, "")] {
            assert!(matches!(judge(status, body, false), Answer::Unknown(_)), "{status} {body}");
        }
        assert!(matches!(judge(409, "{}", false), Answer::Conflict(_)));
        assert!(matches!(judge(422, "{}", false), Answer::Refused(_)));
        let typed = r#"{"kind":"Status","message":"failed to create typed patch object: .data.a: expected string"}"#;
        assert!(matches!(judge(500, typed, true), Answer::Refused(_)));
    }

    #[test]
    fn of_a_refused_secret_only_status_and_reason_are_told() {
        let body = r#"{"message":"Secret \"x\" is invalid: data: c2VudGluZWw=","reason":"Invalid"}"#;
        let Answer::Refused(secret) = judge(422, body, true) else { panic!("refused") };
        assert_eq!(secret, RequestError { status: Some(422), words: "Invalid".into() });
        let Answer::Refused(other) = judge(422, body, false) else { panic!("refused") };
        assert!(other.words.contains("is invalid"));
    }

    #[test]
    fn the_text_of_a_journal_is_where_the_room_looks_for_it() {
        let mut secret = json!({ "data": { "journal": "e30=" } });
        decode(&mut secret);
        assert_eq!(secret, json!({ "data": {}, "stringData": { "journal": "{}" } }));
        let mut empty = json!({ "metadata": {} });
        decode(&mut empty);
        assert_eq!(empty, json!({ "metadata": {} }));
    }
}
