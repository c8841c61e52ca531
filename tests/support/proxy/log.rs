//! The record of one client's requests, in the order in which they arrived.

use std::{sync::Mutex, time::Duration};

use http::Method;
use serde_json::Value;
use tenure::{election::writes::NOBODY, time::Instant};
use tokio::sync::watch;

use super::PATIENCE;
use crate::seen;

/// The kind of a request, by what it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// A single Lease.
    Get,
    /// Leases.
    List,
    /// Their changes.
    Watch,
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH.
    Patch,
    /// DELETE.
    Delete,
    /// Any request for something else.
    Other,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// When it had arrived completely.
    pub at: Instant,
    /// The kind of request.
    pub verb: Verb,
    /// Its method.
    pub method: Method,
    /// Path and query.
    pub uri: String,
    /// The `Authorization` header.
    pub authorization: String,
    /// Its JSON body; null without one.
    pub body: Value,
}

impl Request {
    /// Returns a request; method and URI determine its verb.
    pub fn new(at: Instant, method: &Method, uri: String, authorization: String, body: Value) -> Self {
        let (path, query) = uri.split_once('?').unwrap_or((&uri, ""));
        let leases = path.split_once("/leases").filter(|(before, _)| before.contains("/coordination.k8s.io/"));
        let verb = match leases {
            None => Verb::Other,
            Some(_) if query.contains("dryRun=") => Verb::Other,
            Some(_) if query.contains("watch=") && !query.contains("watch=false") => Verb::Watch,
            Some((_, name)) => match (method.as_str(), name.is_empty()) {
                ("GET", true) => Verb::List,
                ("GET", false) => Verb::Get,
                ("POST", _) => Verb::Create,
                ("PUT", _) => Verb::Update,
                ("PATCH", _) => Verb::Patch,
                ("DELETE", _) => Verb::Delete,
                _ => Verb::Other,
            },
        };
        Self { at, verb, method: method.clone(), uri, authorization, body }
    }

    /// Returns whether the request would change a Lease.
    pub const fn is_write(&self) -> bool {
        match self.verb {
            Verb::Create | Verb::Update | Verb::Patch | Verb::Delete => true,
            Verb::Get | Verb::List | Verb::Watch | Verb::Other => false,
        }
    }

    /// The spec that it carries.
    pub fn spec(&self) -> &Value {
        &self.body["spec"]
    }

    /// Returns whether the request is a PUT that makes or keeps a replica the holder.
    pub fn is_held(&self) -> bool {
        let holds = |holder: &str| !holder.is_empty() && holder != NOBODY;
        self.verb == Verb::Update && self.spec()["holderIdentity"].as_str().is_some_and(holds)
    }

    /// Returns whether the request is a POST or PUT that makes nobody the holder.
    pub fn is_nobody(&self) -> bool {
        matches!(self.verb, Verb::Create | Verb::Update) && self.spec()["holderIdentity"] == NOBODY
    }

    /// Returns whether the request is a PUT in the shape of a release.
    pub fn is_release(&self) -> bool {
        self.verb == Verb::Update && self.spec()["holderIdentity"] == ""
    }
}

/// The server's answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// When the answer arrived.
    pub at: Instant,
    /// Its status.
    pub status: u16,
    /// Its body; null for a watch.
    pub body: Value,
}

/// A request and what became of it.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// The request.
    pub request: Request,
    /// The server's genuine answer; none if it never saw the request, or has not answered yet.
    pub answer: Option<Answer>,
}

impl Exchange {
    /// Returns whether the server carried out the request.
    pub fn succeeded(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| answer.status < 300)
    }

    /// When the server's answer arrived.
    pub fn answered_at(&self) -> Instant {
        self.answer.as_ref().expect("an answer").at
    }

    /// resourceVersion in the answer.
    pub fn version(&self) -> &str {
        let body = &self.answer.as_ref().expect("an answer").body;
        body["metadata"]["resourceVersion"].as_str().expect("a resourceVersion")
    }
}

/// The record.
pub struct Log {
    exchanges: Mutex<Vec<Exchange>>,
    changed: watch::Sender<()>,
}

impl Default for Log {
    fn default() -> Self {
        Self { exchanges: Mutex::default(), changed: watch::Sender::new(()) }
    }
}

impl Log {
    /// All so far.
    pub fn all(&self) -> Vec<Exchange> {
        self.exchanges.lock().expect("no panic inside").clone()
    }

    /// Those that would change a Lease.
    pub fn writes(&self) -> Vec<Exchange> {
        self.all().into_iter().filter(|exchange| exchange.request.is_write()).collect()
    }

    /// Those that arrived after `instant`.
    pub fn since(&self, instant: Instant) -> Vec<Exchange> {
        self.all().into_iter().filter(|exchange| exchange.request.at > instant).collect()
    }

    /// The first one that matches, now or later.
    pub async fn first(&self, what: &str, is_so: impl Fn(&Exchange) -> bool) -> Exchange {
        self.nth(0, what, is_so).await
    }

    /// The one after `count` others that match, now or later.
    pub async fn nth(&self, count: usize, what: &str, is_so: impl Fn(&Exchange) -> bool) -> Exchange {
        seen(&self.exchanges, &self.changed, PATIENCE, count, what, is_so).await
    }

    /// Watches for this long, during which no such request may arrive.
    pub async fn none_for(&self, span: Duration, what: &str, is_so: impl Fn(&Exchange) -> bool) {
        let before = self.count(&is_so);
        tokio::time::sleep(span).await;
        assert_eq!(self.count(&is_so), before, "{what} within {span:?}");
    }

    /// How many match.
    pub fn count(&self, is_so: impl Fn(&Exchange) -> bool) -> usize {
        self.exchanges.lock().expect("no panic inside").iter().filter(|exchange| is_so(exchange)).count()
    }

    /// Returns whether a request that arrived since then matches.
    pub fn has_since(&self, moment: Instant, is_so: impl Fn(&Exchange) -> bool) -> bool {
        let exchanges = self.exchanges.lock().expect("no panic inside");
        exchanges.iter().rev().take_while(|exchange| exchange.request.at >= moment).any(is_so)
    }

    /// Records a request; returns its number.
    pub(super) fn arrived(&self, request: Request) -> usize {
        let number = {
            let mut exchanges = self.exchanges.lock().expect("no panic inside");
            exchanges.push(Exchange { request, answer: None });
            exchanges.len() - 1
        };
        self.changed.send_replace(());
        number
    }

    /// Records the server's answer to a request.
    pub(super) fn answered(&self, number: usize, answer: Answer) {
        self.exchanges.lock().expect("no panic inside")[number].answer = Some(answer);
        self.changed.send_replace(());
    }
}
