//! Sends one request and reads one reply.

use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Waker},
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Request, StatusCode,
    header::{RETRY_AFTER, WARNING},
};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use serde_json::Value;
use tokio::{sync::Notify, task::coop};
use tower::BoxError;

use super::proxies;
use crate::words;

/// Largest body of a reply in bytes; the API server accepts no object above 3 MiB.
pub const MAX_BODY: usize = 4 << 20;

/// A server may send so many heads (1xx) before that of its answer.
const INTERIM_HEADS: u32 = 16;
/// More steps than tokio grants a task in a row.
const STEPS: u32 = 1024;

/// The server's answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// From the status line.
    pub status: StatusCode,
    /// From a Retry-After header in seconds.
    pub retry_after: Option<Duration>,
    /// The texts of its Warning headers.
    pub warnings: Vec<String>,
    /// The whole body.
    pub body: Bytes,
}

/// Why there is no reply.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The connection was refused or reset, or TLS failed. Whether the server saw the request is unknown.
    #[error("cannot reach the API server{}", proxies::remark(|name| env::var(name).ok()))]
    Transport(#[source] BoxError),
    /// The reply broke off, or is longer than [`MAX_BODY`], or does not begin.
    #[error("the API server's reply cannot be read")]
    Body(#[source] BoxError),
    /// The reply was not complete, to the last byte of its body, in time.
    #[error("no answer from the API server within {0:?}")]
    Timeout(Duration),
}

/// Sends `request` once and reads the whole reply, whatever its status.
///
/// # Errors
/// No complete reply arrives within `timeout`.
pub async fn exchange(client: &kube::Client, request: Request<Body>, timeout: Duration) -> Result<Reply, ExchangeError> {
    let whole = async { collect(send(client, request).await?).await };
    tokio::time::timeout(timeout, whole).await.unwrap_or(Err(ExchangeError::Timeout(timeout)))
}

/// Reads the whole reply.
pub(super) async fn collect(response: http::Response<Body>) -> Result<Reply, ExchangeError> {
    let (head, body) = response.into_parts();
    let (retry_after, warnings) = (retry_after(&head.headers), warnings(&head.headers));
    let body = Limited::new(body, MAX_BODY).collect().await.map_err(ExchangeError::Body)?.to_bytes();
    Ok(Reply { status: head.status, retry_after, warnings, body })
}

impl Reply {
    /// The text of a refusal: the `message` of a Status, or a body that is not one; of a long one the beginning and the end.
    pub fn message(&self) -> String {
        const SHOWN: usize = 1000;
        let status = self.json();
        let message = status.get("message").and_then(Value::as_str).map(words::squeezed);
        let message = message.unwrap_or_else(|| words::squeezed(&String::from_utf8_lossy(&self.body)));
        // A refusal may quote a whole object before it says why.
        let (length, end) = (message.chars().count(), SHOWN / 2);
        if length <= SHOWN {
            return message;
        }
        let (head, tail) = (message.chars().take(SHOWN - end), message.chars().skip(length - end));
        head.chain(" … ".chars()).chain(tail).collect()
    }

    /// The `reason` of a Status, and field and reason of each of its causes: words that quote no value.
    pub fn reason(&self) -> String {
        let status = self.json();
        let word = |of: &Value, key: &str| {
            let text = of.get(key).and_then(Value::as_str).unwrap_or_default();
            text.chars().filter(|c| c.is_ascii_alphanumeric() || ".[]-_".contains(*c)).take(100).collect::<String>()
        };
        let causes = status.pointer("/details/causes").and_then(Value::as_array).into_iter().flatten();
        let causes: Vec<_> = causes.map(|cause| format!("{} {}", word(cause, "field"), word(cause, "reason"))).collect();
        let reason = word(&status, "reason");
        if causes.is_empty() { reason } else { format!("{reason}: {}", causes.join(", ")) }
    }

    /// True if it says that `resource` (such as `leases`) has no object of this name, and not that there is no place for one: no
    /// namespace, no such API group, no API server at all.
    pub fn is_absence_of(&self, resource: &str, name: &str) -> bool {
        let status = self.json();
        let says = |pointer, what| status.pointer(pointer).and_then(Value::as_str) == Some(what);
        self.status == StatusCode::NOT_FOUND && says("/details/kind", resource) && says("/details/name", name)
    }

    /// True if it says which object it is about, as an API server does that knows the kind.
    pub fn names_an_object(&self) -> bool {
        self.json().pointer("/details/kind").is_some_and(Value::is_string)
    }

    /// The body; null if it is not JSON.
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// Sends `request` once, and leaves the reply's body to be read. Has no deadline of its own.
///
/// # Errors
/// No head of a reply arrives.
pub(super) async fn send(client: &kube::Client, request: Request<Body>) -> Result<http::Response<Body>, ExchangeError> {
    let sent = few_heads(request, |request| client.send(request)).await.map_err(|why| ExchangeError::Body(why.into()))?;
    sent.map_err(|error| {
        // The service's own error says more without its wrapper.
        ExchangeError::Transport(if let kube::Error::Service(error) = error { error } else { error.into() })
    })
}

/// Sends a request by `send`, and gives it up after too many heads that begin no answer. hyper reads on for as long as such heads
/// come, and nothing else of the runtime would run meanwhile.
///
/// # Errors
/// [`INTERIM_HEADS`] came without an answer.
pub(crate) async fn few_heads<B, F: Future>(
    mut request: Request<B>,
    send: impl FnOnce(Request<B>) -> F,
) -> Result<F::Output, String> {
    let (enough, heads) = (Arc::new(Notify::new()), AtomicU32::new(0));
    let reached = Arc::clone(&enough);
    hyper::ext::on_informational(&mut request, move |_| {
        if heads.fetch_add(1, Ordering::Relaxed) >= INTERIM_HEADS {
            reached.notify_one();
            // Takes all that is left to the task that reads. Before it runs again, the request is given up, and the connection ends.
            let mut context = Context::from_waker(Waker::noop());
            let _ = (0..STEPS).all(|_| coop::poll_proceed(&mut context).map(|step| step.made_progress()).is_ready());
        }
    });
    tokio::select! {
        biased;
        () = enough.notified() => Err(format!("more than {INTERIM_HEADS} heads with 1xx, and no answer")),
        answer = send(request) => Ok(answer),
    }
}

/// The quoted texts of Warning headers.
fn warnings(headers: &HeaderMap) -> Vec<String> {
    let text = |value: &HeaderValue| Some(words::squeezed(value.to_str().ok()?.split_once('"')?.1.rsplit_once('"')?.0));
    headers.get_all(WARNING).iter().filter_map(text).collect()
}

/// Seconds only: the API server sends no dates.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{
        Cluster,
        stub::{Say, Stub, json, with_headers},
    };

    const LONG: Duration = Duration::from_secs(20);

    fn get() -> Request<Body> {
        Request::get("/x").body(Body::empty()).unwrap()
    }

    #[tokio::test]
    async fn a_refusal_is_a_reply_and_is_not_repeated() {
        let mut stub =
            Stub::start([with_headers(429, "retry-after: 7\r\n", r#"{"message":"slow\n down"}"#), json(200, "{}")]).await;

        let reply = exchange(&stub.dialer().client(), get(), LONG).await.unwrap();

        assert_eq!(reply.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(reply.retry_after, Some(Duration::from_secs(7)));
        assert_eq!(reply.message(), "slow down");
        stub.seen.try_recv().unwrap();
        stub.seen.try_recv().unwrap_err();
    }

    #[tokio::test]
    async fn the_server_warns_in_headers() {
        let header = "warning: 299 - \"v1 is old\"\r\nwarning: nonsense\r\n";
        let stub = Stub::start([with_headers(200, header, "{}")]).await;

        let reply = exchange(&stub.dialer().client(), get(), LONG).await.unwrap();

        assert_eq!(reply.warnings, ["v1 is old"]);
    }

    #[tokio::test]
    async fn a_request_goes_out_as_it_is() {
        let mut stub = Stub::start([json(200, "{}")]).await;
        let request = Request::put("/x?y=z").header("accept", "application/json").body(Body::from(b"{}".to_vec())).unwrap();

        exchange(&stub.dialer().client(), request, LONG).await.unwrap();

        let seen = stub.seen.recv().await.unwrap();
        assert_eq!(seen.line, "PUT /x?y=z");
        assert_eq!(seen.body, "{}");
        assert!(seen.head.contains("accept: application/json"), "{}", seen.head);
        assert!(seen.head.contains("user-agent: tenure/"), "{}", seen.head);
    }

    #[tokio::test]
    async fn a_client_keeps_its_connection() {
        let mut stub = Stub::start([json(200, "{}"), json(200, "{}")]).await;
        let client = stub.dialer().client();

        exchange(&client, get(), LONG).await.unwrap();
        exchange(&client, get(), LONG).await.unwrap();

        assert_eq!(stub.seen.recv().await.unwrap().connection, 0);
        assert_eq!(stub.seen.recv().await.unwrap().connection, 0);
    }

    #[tokio::test]
    async fn each_client_of_a_dialer_has_its_own_connection() {
        let mut stub = Stub::start([json(200, "{}"), json(200, "{}")]).await;
        let dialer = stub.dialer();

        exchange(&dialer.client(), get(), LONG).await.unwrap();
        exchange(&dialer.client(), get(), LONG).await.unwrap();

        assert_eq!(stub.seen.recv().await.unwrap().connection, 0);
        assert_eq!(stub.seen.recv().await.unwrap().connection, 1);
    }

    #[tokio::test]
    async fn a_truncated_body_is_no_reply() {
        let stub = Stub::start([Say::Last("HTTP/1.1 200 x\r\ncontent-length: 10\r\n\r\n{}".into())]).await;

        let error = exchange(&stub.dialer().client(), get(), LONG).await.unwrap_err();

        assert!(matches!(error, ExchangeError::Body(_)), "{error:?}");
    }

    #[tokio::test]
    async fn an_endless_body_is_cut_off() {
        let head = "HTTP/1.1 200 x\r\ncontent-length: 99999999\r\n\r\n";
        let stub = Stub::start([Say::Bytes(format!("{head}{}", " ".repeat(MAX_BODY + 1)))]).await;

        let error = exchange(&stub.dialer().client(), get(), LONG).await.unwrap_err();

        assert!(matches!(error, ExchangeError::Body(_)), "{error:?}");
    }

    #[tokio::test]
    async fn heads_without_end_are_no_answer() {
        let few = "HTTP/1.1 102 x\r\n\r\n".repeat(16) + "HTTP/1.1 200 x\r\ncontent-length: 0\r\n\r\n";
        let stub = Stub::start([Say::Bytes(few), Say::Endless("HTTP/1.1 100 Continue\r\n\r\n".into())]).await;
        let client = stub.dialer().client();

        let answered = exchange(&client, get(), LONG).await;
        let error = exchange(&client, get(), LONG).await.unwrap_err();

        assert!(answered.is_ok(), "{answered:?}");
        assert!(matches!(error, ExchangeError::Body(_)), "{error:?}");
        assert!(words::one_line(&error).ends_with("more than 16 heads with 1xx, and no answer"), "{error:?}");
    }

    #[tokio::test]
    async fn a_body_that_stalls_is_a_timeout() {
        let stub = Stub::start([Say::Bytes("HTTP/1.1 200 x\r\ncontent-length: 10\r\n\r\n{}".into())]).await;

        let error = exchange(&stub.dialer().client(), get(), Duration::from_millis(200)).await.unwrap_err();

        assert!(matches!(error, ExchangeError::Timeout(_)), "{error:?}");
    }

    #[tokio::test]
    async fn silence_is_a_timeout() {
        let stub = Stub::start([Say::Silence]).await;

        let error = exchange(&stub.dialer().client(), get(), Duration::from_millis(200)).await.unwrap_err();

        assert!(matches!(error, ExchangeError::Timeout(_)), "{error:?}");
    }

    #[tokio::test]
    async fn a_refused_connection_names_its_cause() {
        // Bound but not listening, so nobody else gets it.
        let port = tokio::net::TcpSocket::new_v4().unwrap();
        port.bind((std::net::Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let url = format!("http://{}", port.local_addr().unwrap());
        let client = Cluster::without_credentials(&url).dialer_now(LONG).client();

        let error = exchange(&client, get(), LONG).await.unwrap_err();

        assert!(matches!(error, ExchangeError::Transport(_)), "{error:?}");
        assert!(words::one_line(&error).contains("onnection refused"), "{}", words::one_line(&error));
    }

    #[test]
    fn an_absence_is_that_of_this_very_object() {
        let body = r#"{"details":{"kind":"leases","name":"writer"}}"#;
        let reply = |status| Reply { status, retry_after: None, warnings: Vec::new(), body: body.into() };
        assert!(reply(StatusCode::NOT_FOUND).is_absence_of("leases", "writer"));
        for (status, kind, name) in [(404, "leases", "other"), (404, "namespaces", "writer"), (410, "leases", "writer")] {
            assert!(!reply(StatusCode::from_u16(status).unwrap()).is_absence_of(kind, name), "{status} {kind} {name}");
        }
    }

    #[test]
    fn the_words_of_a_refusal_are_bounded_whatever_they_stand_in() {
        let long = "ü".repeat(5_000);
        for body in [serde_json::json!({ "message": long }).to_string(), long] {
            let reply = Reply { status: StatusCode::FORBIDDEN, retry_after: None, warnings: Vec::new(), body: body.into() };

            let half = "ü".repeat(500);
            assert_eq!(reply.message(), format!("{half} … {half}"));
        }
    }
}
