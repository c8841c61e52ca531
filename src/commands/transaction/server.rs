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
    console::complain,
    request::{Answer, Refusal, RequestError},
    time::Instant,
    transaction::{self, Event, MANAGER, Request, Server, Storing, Target, Write, exactly},
};

/// The API server, the term and the clock of one driver.
pub(super) struct ApiServer<'a> {
    pub(super) access: &'a Access,
    /// None: no term, and nothing is written.
    term: Option<Term>,
    /// `lease.attemptTimeout`, which an answer may take before H.
    margin: Duration,
    interrupted: Arc<AtomicBool>,
    told: RefCell<Vec<(Instant, Event)>>,
    warnings: RefCell<Vec<String>>,
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
        Ok(Self { access, term, margin, interrupted, told: RefCell::default(), warnings: RefCell::default() })
    }

    /// Returns true if SIGTERM or SIGINT has arrived.
    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Relaxed)
    }

    /// Shows what the API server warns of, each once.
    fn warned(&self, warnings: Vec<String>) {
        for warning in warnings {
            let mut shown = self.warnings.borrow_mut();
            if !shown.contains(&warning) {
                complain(&format!("the API server warns: {warning}"));
                shown.push(warning);
            }
        }
    }

    /// The events so far, each with its instant.
    pub(super) fn told(&self) -> Vec<(Instant, Event)> {
        self.told.take()
    }
}

impl Server for ApiServer<'_> {
    async fn send(&self, request: Request, acting_as: Option<&str>) -> Answer {
        let (is_review, is_journal) = (matches!(request, Request::Review(..)), matches!(request, Request::Journal(..)));
        let answered = self.access.send(&built(request).acting_as(acting_as)).await;
        self.warned(answered.warnings);
        let Answer::Object(mut object) = answered.answer else { return answered.answer };
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

    fn is_stopped(&self) -> bool {
        let is_over = |term: &Term| clock::boottime().saturating_add(self.margin) >= term.page.hard();
        self.is_interrupted() || self.term.as_ref().is_some_and(is_over)
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
            Sent::of(Place::secret(&place.namespace, place.journal()), verb)
        }
        Request::Lease(place, write) => {
            let place = Place::lease(&place.namespace, place.name);
            write.map_or_else(|| Sent::get(&place), |write| Sent::lease(&place, &write))
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
        true => sent.with(&[("dryRun", "All"), ("fieldManager", MANAGER), checks]),
        false => sent.with(&[("fieldManager", MANAGER)]),
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

/// Deletes the settled journal of a transaction whose Lease was deleted. What may not be read or deleted stays.
pub(crate) async fn discard(access: &Access, namespace: &str, lease: &str) {
    let place = transaction::Place { namespace: namespace.into(), name: lease.into() };
    let secret = Place::secret(namespace, place.journal());
    if !lease.contains("txn-") {
        return;
    }
    let Ok(mut journal) = access.send(&Sent::get(&secret)).await.object() else { return };
    decode(&mut journal);
    if transaction::is_settled(&journal) {
        let _ = access.send(&Sent::of(secret, Verb::Delete(exactly(&journal).into()))).await;
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
    if let (Some(text), Some(secret)) = (text.filter(|text| !text.is_empty()), secret.as_object_mut()) {
        secret.insert("stringData".into(), json!({ "journal": text }));
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
        let place = || transaction::Place { namespace: "shop".into(), name: "txn-x".into() };
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
