//! Turns the requests of a driver into requests to the API server.
//!
//! Owns the form of each: which parameters it has, and where a journal's text is. Sends each request once.

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::{lock::Term, output};
use crate::{
    api::{
        Place, Request as Sent, Verb,
        review::{Right, verdict},
    },
    clock,
    commands::{access::Access, interrupts::Interrupts},
    request::{Answer, Refusal, RequestError},
    time::Instant,
    transaction::{Event, Request, Server, Storing, Target, Write},
};

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
        let (is_review, is_journal) = (matches!(request, Request::Review(..)), matches!(request, Request::Journal(..)));
        let sent = built(request).acting_as(acting_as);
        let Some(answered) = self.access.send_before(self.until(), &sent).await else {
            return Answer::Unknown { message: "the term is about to end".into(), retry_after: None };
        };
        let answer = answered.answer;
        let Answer::Object(mut object) = answer else { return answer };
        if is_review {
            return reviewed(&object);
        }
        if is_journal {
            decode(Arc::make_mut(&mut object));
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
    Place::from(target).is_secret()
}

fn built(request: Request) -> Sent {
    match request {
        Request::Look(target) => Sent::get(&Place::from(&target)),
        Request::Plan(target, write) => written(&target, write, true),
        Request::Write(target, write) => written(&target, write, false),
        Request::Journal(place, storing) => {
            let verb = match storing {
                Storing::Read => Verb::Get,
                Storing::Create(body) => Verb::Create(body.into()),
                Storing::Replace(body) => Verb::Replace(body.into()),
            };
            Sent::of(Place::secret(&place.namespace, place.name), verb)
        }
        Request::Review(target, verb) => {
            let mut place = Place::from(&target);
            // Who may create objects may not be narrowed to a name.
            if verb == "create" {
                place.name.clear();
            }
            Right::new(&place, verb).request()
        }
    }
}

fn written(target: &Target, write: Write, dry: bool) -> Sent {
    let (verb, checks) = match write {
        Write::Apply(body) => (Verb::Apply(body.into()), ("force", "true")),
        Write::Merge(body) => (Verb::Merge(body.into()), ("fieldValidation", "Strict")),
        Write::Create(body) => (Verb::Create(body.into()), ("fieldValidation", "Strict")),
        // With a body the server ignores the query.
        Write::Delete(body) => return Sent::of(target.into(), Verb::Delete(body.into())),
    };
    let sent = Sent::of(target.into(), verb);
    match dry {
        true => sent.with(&[("dryRun", "All"), ("fieldManager", "tenure"), checks]),
        false => sent.with(&[("fieldManager", "tenure")]),
    }
}

fn reviewed(review: &Value) -> Answer {
    match verdict(review) {
        Ok(()) => Answer::Object(review.clone().into()),
        Err(why) => {
            let words = if why.is_empty() { "no rule allows it".into() } else { why };
            Answer::Refused { refusal: Refusal::Forbidden, message: RequestError { status: Some(403), words } }
        }
    }
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
    use http_body_util::BodyExt as _;

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
        let http = built(request).http().unwrap();
        let form = http.headers().get("content-type").map_or("", |form| form.to_str().unwrap());
        let line = format!("{} {} {form} ", http.method(), http.uri());
        let body = crate::commands::block_on(http.into_body().collect()).unwrap().unwrap().to_bytes();
        line + std::str::from_utf8(&body).unwrap()
    }

    #[test]
    fn each_request_is_the_one_of_the_table() {
        const JSON: &str = "application/json";
        let place = || crate::transaction::Place { namespace: "shop".into(), name: "txn-x-journal".into() };
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
    fn a_review_asks_for_a_name_unless_it_is_about_a_creation() {
        let asked = |verb| line(Request::Review(target(), verb));
        assert!(asked("delete").contains(r#""name":"web""#), "{}", asked("delete"));
        assert!(!asked("create").contains(r#""name""#), "{}", asked("create"));
        let denied = reviewed(&json!({ "status": { "allowed": false } }));
        assert!(matches!(denied, Answer::Refused { message, .. } if message.is_forbidden()));
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
