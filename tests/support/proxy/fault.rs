//! The proxy's faults on single requests.

use std::{sync::Mutex, time::Duration};

use serde_json::Value;
use tokio::sync::watch;

use super::log::Request;

/// How one half of an exchange is passed on.
#[derive(Clone, Debug, Default)]
pub enum Passage {
    /// Immediately.
    #[default]
    AtOnce,
    /// Never.
    Never,
    /// After this delay.
    After(Duration),
    /// Once the test opens it.
    Through(Valve),
}

impl Passage {
    /// Returns when it may pass.
    pub async fn pass(&self) {
        match self {
            Self::AtOnce => {}
            Self::Never => std::future::pending().await,
            Self::After(delay) => tokio::time::sleep(*delay).await,
            Self::Through(valve) => valve.opened().await,
        }
    }
}

/// Opened by the test.
#[derive(Clone, Debug)]
pub struct Valve(watch::Sender<bool>);

impl Valve {
    /// A closed one.
    pub fn closed() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Opens it for good.
    pub fn open(&self) {
        self.0.send_replace(true);
    }

    async fn opened(&self) {
        drop(self.0.subscribe().wait_for(|open| *open).await);
    }
}

/// The reply that the client gets instead of the genuine one, or how that is corrupted.
#[derive(Clone, Debug, Default)]
pub enum Reply {
    /// The server's own.
    #[default]
    Genuine,
    /// This one.
    Instead(Canned),
    /// The server's own, with each of its JSON documents changed like this.
    Changed(fn(&mut Value)),
    /// The request's own body, as if it had been stored without any change.
    Echo,
    /// The head and half of the body, then the connection closes.
    Truncated,
    /// The connection closes.
    Nothing,
}

/// A made-up reply.
#[derive(Clone, Debug, Default)]
pub struct Canned {
    /// Status.
    pub status: u16,
    /// Headers.
    pub headers: Vec<(&'static str, String)>,
    /// Body.
    pub body: String,
    /// The body never ends, like that of a watch.
    pub endless: bool,
}

/// The treatment of one request.
#[derive(Clone, Debug, Default)]
pub struct Fault {
    /// True if the request is kept from the server.
    pub hidden: bool,
    /// How the request reaches the server. It is sent even if the client hangs up, which makes a late commit.
    pub request: Passage,
    /// How the reply reaches the client.
    pub reply: Passage,
    /// The reply's content.
    pub what: Reply,
}

impl Fault {
    /// The request is lost, and never answered.
    pub fn lost_request() -> Self {
        Self { request: Passage::Never, ..Self::default() }
    }

    /// The server carries the request out; its reply is lost.
    pub fn lost_reply() -> Self {
        Self { reply: Passage::Never, ..Self::default() }
    }

    /// The request arrives once the valve is open.
    pub fn late_request(valve: &Valve) -> Self {
        Self { request: Passage::Through(valve.clone()), ..Self::default() }
    }

    /// The server carries the request out; its reply arrives once the valve is open.
    pub fn late_reply(valve: &Valve) -> Self {
        Self { reply: Passage::Through(valve.clone()), ..Self::default() }
    }

    /// The reply arrives this much later.
    pub fn slow_reply(delay: Duration) -> Self {
        Self { reply: Passage::After(delay), ..Self::default() }
    }

    /// The server never sees the request; the proxy answers it with a Kubernetes Status.
    pub fn refused(status: u16, reason: &str) -> Self {
        Self::answered(Canned { status, body: failure(status, reason), ..Canned::default() })
    }

    /// The server never sees the request; the proxy answers it.
    pub fn answered(reply: Canned) -> Self {
        Self { hidden: true, what: Reply::Instead(reply), ..Self::default() }
    }

    /// The server carries the request out; the client is told that it failed.
    pub fn committed_but(status: u16, reason: &str) -> Self {
        let canned = Canned { status, body: failure(status, reason), ..Canned::default() };
        Self { what: Reply::Instead(canned), ..Self::default() }
    }

    /// The server never sees the request; the client gets its own object back, with the version that it sent.
    pub fn echoed() -> Self {
        Self { hidden: true, what: Reply::Echo, ..Self::default() }
    }

    /// The server never sees the watch; the client gets these lines, and then nothing.
    pub fn silent_watch(lines: &str) -> Self {
        Self::answered(Canned { status: 200, body: lines.to_owned(), endless: true, ..Canned::default() })
    }

    /// The server never sees the watch; the client gets these lines, and then its end.
    pub fn ended_watch(lines: &str) -> Self {
        Self::answered(Canned { status: 200, body: lines.to_owned(), ..Canned::default() })
    }

    /// The server's reply, changed.
    pub fn changed(change: fn(&mut Value)) -> Self {
        Self { what: Reply::Changed(change), ..Self::default() }
    }

    /// The server carries the request out; half of its reply arrives.
    pub fn truncated() -> Self {
        Self { what: Reply::Truncated, ..Self::default() }
    }

    /// The server never sees the request; the connection ends.
    pub fn hung_up() -> Self {
        Self { hidden: true, what: Reply::Nothing, ..Self::default() }
    }
}

/// A body of kind Status.
fn failure(status: u16, reason: &str) -> String {
    serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": status,
        "message": format!("{reason}, by the test's proxy"), "metadata": {},
    })
    .to_string()
}

/// How often a rule applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// This many times.
    Only(u32),
    /// Until it is cleared.
    Always,
}

/// The rules of one proxy.
#[derive(Default)]
pub(super) struct Rules {
    rules: Mutex<Vec<Rule>>,
}

struct Rule {
    when: Box<dyn Fn(&Request) -> bool + Send>,
    times: Times,
    fault: Fault,
}

impl Rules {
    pub(super) fn add(&self, when: impl Fn(&Request) -> bool + Send + 'static, times: Times, fault: Fault) {
        self.rules.lock().expect("no panic inside").push(Rule { when: Box::new(when), times, fault });
    }

    pub(super) fn clear(&self) {
        self.rules.lock().expect("no panic inside").clear();
    }

    /// The fault for this request; uses it up once.
    pub(super) fn take(&self, request: &Request) -> Fault {
        let mut rules = self.rules.lock().expect("no panic inside");
        let rule = rules.iter_mut().rev().find(|rule| rule.times != Times::Only(0) && (rule.when)(request));
        let Some(rule) = rule else { return Fault::default() };
        if let Times::Only(left) = &mut rule.times {
            *left -= 1;
        }
        rule.fault.clone()
    }
}
