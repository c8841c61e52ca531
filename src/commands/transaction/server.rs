//! Turns the requests of a driver into requests to the API server.
//!
//! Owns the form of each, with its parameters. Sends each request once.

use std::{cell::RefCell, collections::BTreeSet, time::Duration};

use serde_json::Value;
use tokio::task::JoinHandle;

use super::{lock::Term, output};
use crate::{
    api::{
        self, Place, Verb,
        review::{Right, verdict},
    },
    clock,
    commands::{access::Access, interrupts::Interrupts},
    console::complain,
    request::{Answer, Refusal, RequestError},
    time::Instant,
    transaction::{self, Event, MANAGER, Request, Server, Target, deletion},
};

/// The API server, the term and the clock of one driver.
pub(super) struct ApiServer<'a> {
    pub(super) access: &'a Access,
    /// None: no term, and nothing is written.
    term: Option<Term>,
    /// `lease.attemptTimeout`, which an answer may take before H.
    margin: Duration,
    /// Ends with the first SIGTERM or SIGINT. None: these end the process, which has nothing to undo.
    interruption: Option<JoinHandle<()>>,
    told: RefCell<Vec<(Instant, Event)>>,
    warnings: RefCell<BTreeSet<String>>,
}

impl<'a> ApiServer<'a> {
    /// In a term SIGTERM and SIGINT are caught from now on. Needs a runtime.
    ///
    /// # Errors
    /// The signals cannot be caught.
    pub(super) fn new(access: &'a Access, term: Option<Term>, margin: Duration) -> std::io::Result<Self> {
        let interrupts = term.as_ref().map(|_| Interrupts::catch()).transpose()?;
        let interruption = interrupts.map(|mut interrupts| tokio::spawn(async move { interrupts.next().await }));
        Ok(Self { access, term, margin, interruption, told: RefCell::default(), warnings: RefCell::default() })
    }

    /// Returns true if SIGTERM or SIGINT has arrived.
    pub(super) fn is_interrupted(&self) -> bool {
        self.interruption.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// The events so far, each with its instant.
    pub(super) fn told(&self) -> Vec<(Instant, Event)> {
        self.told.take()
    }
}

impl Server for ApiServer<'_> {
    async fn send(&self, request: Request, acting_as: Option<&str>) -> Answer {
        let is_review = matches!(request, Request::Review(..));
        let secret = match &request {
            Request::Look(target) | Request::Plan(target, _) | Request::Write(target, ..) => target.is_secret(),
            Request::Journal(..) => true,
            Request::Lease(..) | Request::Review(..) => false,
        };
        let secret = secret.then(|| request.to_string());
        let answered = self.access.send(&built(request).acting_as(acting_as)).await;
        for warning in answered.warnings {
            // It may quote a value.
            let hidden = secret.as_ref().map(|secret| format!("of {secret}, with words that are not shown"));
            let warning = hidden.unwrap_or(warning);
            // Once is enough.
            if self.warnings.borrow_mut().insert(warning.clone()) {
                complain(&format!("the API server warns: {warning}"));
            }
        }
        if is_review && let Answer::Object(review) = &answered.answer { reviewed(review) } else { answered.answer }
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

fn built(request: Request) -> api::Request {
    match request {
        Request::Look(target) => api::Request::get(&target),
        Request::Plan(target, verb) => {
            let checks = if matches!(verb, Verb::Apply(_)) { ("force", "true") } else { ("fieldValidation", "Strict") };
            written(target, verb, &[("dryRun", "All"), ("fieldManager", MANAGER), checks])
        }
        Request::Write(target, verb, manager) => written(target, verb, &[("fieldManager", &manager)]),
        Request::Journal(place, verb) => api::Request::of(Place::secret(&place.namespace, place.journal()), verb),
        Request::Lease(place, write) => {
            let place = Place::lease(&place.namespace, place.name);
            write.map_or_else(|| api::Request::get(&place), |write| api::Request::lease(&place, &write))
        }
        Request::Review(mut target, verb) => {
            // Who may create objects may not be narrowed to a name.
            if verb == "create" {
                target.name.clear();
            }
            Right::new(&target, verb).request()
        }
    }
}

fn written(target: Target, verb: Verb, parameters: &[(&str, &str)]) -> api::Request {
    // With a body the server ignores the query.
    let parameters = if matches!(verb, Verb::Delete(_)) { &[] } else { parameters };
    api::Request::of(target, verb).with(parameters)
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
    let Ok(journal) = access.send(&api::Request::get(&secret)).await.object() else { return };
    if transaction::is_settled(&journal) {
        let _ = access.send(&api::Request::of(secret, deletion(&journal, false))).await;
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use serde_json::json;

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
                Request::Plan(target(), Verb::Apply(body().into())),
                format!("PATCH {at}/web?{dry}&force=true application/apply-patch+yaml {{}}"),
            ),
            (
                Request::Plan(target(), Verb::Merge(body().into())),
                format!("PATCH {at}/web?{dry}&fieldValidation=Strict {merge} {{}}"),
            ),
            (Request::Plan(target(), Verb::Create(body().into())), format!("POST {at}?{dry}&fieldValidation=Strict {JSON} {{}}")),
            (Request::Plan(target(), Verb::Delete(body().into())), format!("DELETE {at}/web {JSON} {{}}")),
            (Request::Write(target(), Verb::Merge(body().into()), MANAGER.into()), format!("PATCH {at}/web?{real} {merge} {{}}")),
            (Request::Write(target(), Verb::Create(body().into()), MANAGER.into()), format!("POST {at}?{real} {JSON} {{}}")),
            (Request::Write(target(), Verb::Delete(body().into()), MANAGER.into()), format!("DELETE {at}/web {JSON} {{}}")),
            (Request::Journal(place(), Verb::Get), format!("GET {journals}/txn-x-journal  ")),
            (Request::Journal(place(), Verb::Create(body().into())), format!("POST {journals} {JSON} {{}}")),
            (Request::Journal(place(), Verb::Replace(body().into())), format!("PUT {journals}/txn-x-journal {JSON} {{}}")),
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
}
