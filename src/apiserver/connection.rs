//! One client's connection: TLS, HTTP, the journal and the faults.
//!
//! Owns the way from bytes to a request and back. A request that has arrived is carried out even if its client is gone: a write on
//! which a client gave up may still commit late.

use std::{
    convert::Infallible,
    future::pending,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, header, request::Parts};
use http_body_util::{BodyExt as _, Limited};
use hyper::{
    body::{Body as HttpBody, Frame, Incoming, SizeHint},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{net::TcpStream, sync::mpsc, time::sleep};
use tokio_rustls::TlsAcceptor;

use super::{
    Shared,
    door::{Door, Gated},
    faults::Fault,
    journal::{Entry, Fate},
    query::Query,
    request::Request,
    rest::Answer,
    status::Status,
    warnings, watch,
};
use crate::clock;

/// The real server's limit for a body.
const BODY_LIMIT: usize = 3 * 1024 * 1024;
/// Limit for a request line and its headers.
const HEAD_LIMIT: usize = 64 * 1024;
/// Events that may wait for a slow watcher.
const LINES: usize = 64;

/// Serves `stream` until it ends or the door resets its connections.
pub(super) async fn serve(shared: Arc<Shared>, door: Arc<Door>, stream: TcpStream, acceptor: TlsAcceptor) {
    let mut signal = door.subscribe();
    let resets = signal.borrow().resets;
    let served = async {
        drop(stream.set_nodelay(true));
        let Ok(tls) = acceptor.accept(Gated { stream, door: Arc::clone(&door) }).await else { return };
        let service = service_fn(|request| answer(Arc::clone(&shared), Arc::clone(&door), request));
        drop(http1::Builder::new().max_buf_size(HEAD_LIMIT).serve_connection(TokioIo::new(tls), service).await);
    };
    tokio::select! {
        () = served => {}
        _ = signal.wait_for(|signal| signal.resets != resets) => {}
    }
}

/// The connection is closed without an answer.
#[derive(Debug, thiserror::Error)]
#[error("closed on purpose")]
struct Closed;

impl From<Infallible> for Closed {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

async fn answer(shared: Arc<Shared>, door: Arc<Door>, request: hyper::Request<Incoming>) -> Result<Response<Body>, Closed> {
    let (parts, body) = request.into_parts();
    if !is_welcome(&parts, &door) {
        // Before its body is read, as the real server does.
        let number = shared.journal.open(entry(&parts, &read(&parts, Bytes::new()), ""));
        let response = respond(Answer::refusal(&Status::unauthorized()), None);
        let fate = Fate::Answered { code: response.status().as_u16(), at: clock::boot() };
        shared.journal.amend(number, |entry| entry.fate = fate);
        return Ok(response);
    }
    let Ok(body) = Limited::new(body, BODY_LIMIT).collect().await else {
        return Ok(respond(Answer::refusal(&Status::too_large(BODY_LIMIT)), None));
    };
    let request = read(&parts, body.to_bytes());
    let number = shared.journal.open(entry(&parts, &request, &door.client));
    let fault = door.take_fault(&request.method, request.is_watch());
    let outcome = obey(&shared, &door, request, number, fault).await;
    let fate = match &outcome {
        Ok(response) => Fate::Answered { code: response.status().as_u16(), at: clock::boot() },
        Err(Closed) => Fate::Dropped,
    };
    shared.journal.amend(number, |entry| entry.fate = fate);
    outcome
}

async fn obey(
    shared: &Arc<Shared>,
    door: &Arc<Door>,
    request: Request,
    number: usize,
    fault: Option<Fault>,
) -> Result<Response<Body>, Closed> {
    match &fault {
        Some(Fault::DropRequest) => return Err(Closed),
        Some(Fault::BlackHole) => return pending().await,
        Some(Fault::Refuse { code, retry_after }) => {
            return Ok(respond(Answer::refusal(&Status::injected(*code)), *retry_after));
        }
        None
        | Some(
            Fault::LateCommit(_)
            | Fault::LateReply(_)
            | Fault::DropReply
            | Fault::SwallowReply
            | Fault::Truncate
            | Fault::Garbage,
        ) => {}
    }
    let (carried_fault, store) = (fault.clone(), Arc::clone(shared));
    let carried_out = tokio::spawn(async move {
        if let Some(Fault::LateCommit(lag)) = carried_fault {
            sleep(lag).await;
        }
        let answer = store.carry_out(&request, number);
        if let Some(Fault::LateReply(lag)) = carried_fault {
            sleep(lag).await;
        }
        answer
    });
    let answer = carried_out.await.map_err(|_| Closed)?;
    let response = match answer {
        Answer::Watch(asked) => {
            let (lines, events) = mpsc::channel(LINES);
            drop(tokio::spawn(watch::run(Arc::clone(shared), Arc::clone(door), *asked, lines)));
            json_response(200, Body::Lines(events))
        }
        Answer::Json { .. } | Answer::Text { .. } => respond(answer, None),
    };
    match fault {
        Some(Fault::DropReply) => Err(Closed),
        Some(Fault::SwallowReply) => pending().await,
        Some(Fault::Truncate) => Ok(response.map(Body::halved)),
        Some(Fault::Garbage) => {
            Ok(json_response(200, Body::Whole(Some(Bytes::from_static(b"<html>not what you asked for</html>")))))
        }
        None
        | Some(Fault::LateCommit(_) | Fault::LateReply(_) | Fault::DropRequest | Fault::BlackHole | Fault::Refuse { .. }) => {
            Ok(response)
        }
    }
}

fn read(parts: &Parts, body: Bytes) -> Request {
    Request {
        method: parts.method.clone(),
        path: parts.uri.path().to_owned(),
        query: Query::parse(parts.uri.query().unwrap_or_default()),
        accept: text(&parts.headers, &header::ACCEPT),
        content_type: text(&parts.headers, &header::CONTENT_TYPE),
        body,
    }
}

fn entry(parts: &Parts, request: &Request, client: &str) -> Entry {
    Entry {
        client: client.to_owned(),
        method: request.method.clone(),
        path: request.path.clone(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        user_agent: text(&parts.headers, &header::USER_AGENT),
        body: request.body.clone(),
        arrived: clock::boot(),
        carried_out: None,
        version: None,
        fate: Fate::Open,
    }
}

/// Whether it shows the token, or none where none is needed.
fn is_welcome(parts: &Parts, door: &Door) -> bool {
    let shown = text(&parts.headers, &header::AUTHORIZATION);
    let mut words = shown.trim().split(' ');
    match (words.next(), words.next()) {
        (Some(scheme), Some(token)) if scheme.eq_ignore_ascii_case("Bearer") && !token.is_empty() => token == door.token,
        (Some(_) | None, _) => matches!(parts.uri.path(), "/version" | "/healthz" | "/livez" | "/readyz"),
    }
}

fn text(headers: &HeaderMap, name: &header::HeaderName) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

fn respond(answer: Answer, retry_after: Option<u32>) -> Response<Body> {
    let (code, body, warnings) = match answer {
        Answer::Json { code, body, warnings } => (code, body, warnings),
        Answer::Text { code, body } => {
            let mut response = json_response(code, Body::Whole(Some(Bytes::from_static(body.as_bytes()))));
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
            return response;
        }
        Answer::Watch(_) => (500, Value::Null, Vec::new()),
    };
    let advised =
        body.pointer("/details/retryAfterSeconds").and_then(Value::as_u64).and_then(|seconds| u32::try_from(seconds).ok());
    let mut response = json_response(code, Body::Whole(Some(Bytes::from(body.to_string() + "\n"))));
    for value in warnings::headers(&warnings) {
        response.headers_mut().append(header::WARNING, value);
    }
    if let Some(seconds) = retry_after.or(advised) {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn json_response(code: u16, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The body of an answer.
enum Body {
    /// All of it at once.
    Whole(Option<Bytes>),
    /// Lines, as they are produced.
    Lines(mpsc::Receiver<Bytes>),
    /// Half of `length` bytes; then the connection breaks.
    Half { first: Option<Bytes>, length: u64 },
}

impl Body {
    fn halved(self) -> Self {
        match self {
            Self::Whole(Some(bytes)) => {
                let length = bytes.len() as u64;
                Self::Half { first: Some(bytes.slice(..bytes.len() / 2)), length }
            }
            Self::Whole(None) | Self::Lines(_) | Self::Half { .. } => self,
        }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Closed;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Closed>>> {
        match &mut *self {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Lines(lines) => lines.poll_recv(context).map(|line| line.map(|line| Ok(Frame::data(line)))),
            Self::Half { first, .. } => Poll::Ready(Some(first.take().map(Frame::data).ok_or(Closed))),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Lines(_) => SizeHint::new(),
            Self::Half { length, .. } => SizeHint::with_exact(*length),
        }
    }
}
