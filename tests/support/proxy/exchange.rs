//! Forwards one request and its reply, as the rules say.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, Response, header, request::Parts};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use kube::Client;
use serde_json::Value;
use tenure::clock;

use super::{
    fault::{Canned, Fault, Passage, Reply, Rules},
    log::{Answer, Log, Request, Verb},
};

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Body = UnsyncBoxBody<Bytes, BoxError>;

/// Answers every request of one client.
#[derive(Clone)]
pub(super) struct Service {
    pub(super) upstream: Client,
    pub(super) rules: Arc<Rules>,
    pub(super) log: Arc<Log>,
}

impl Service {
    /// # Errors
    /// What ends the client's connection without an answer.
    pub(super) async fn answer(self, request: hyper::Request<Incoming>) -> Result<Response<Body>, BoxError> {
        let (head, body) = request.into_parts();
        let bytes = body.collect().await?.to_bytes();
        let request = noted(&head, &bytes);
        let is_watch = request.verb == Verb::Watch;
        let Fault { hidden, request: arrival, reply, what } = self.rules.take(&request);
        let echo = request.body.to_string();
        let number = self.log.arrived(request);
        // A separate task, so that a client that hangs up does not cancel what is in flight.
        let genuine =
            if hidden { None } else { Some(tokio::spawn(self.forward(number, head, bytes, arrival, is_watch)).await??) };
        reply.pass().await;
        match (what, genuine) {
            (Reply::Instead(canned), _) => Ok(canned_response(canned)),
            (Reply::Echo, _) => Ok(canned_response(Canned { status: 200, body: echo, ..Canned::default() })),
            (Reply::Nothing, _) | (_, None) => Err("hung up for the test".into()),
            (Reply::Genuine, Some(genuine)) => Ok(genuine),
            (Reply::Changed(change), Some(genuine)) => Ok(changed(genuine, change)),
            (Reply::Truncated, Some(genuine)) => truncated(genuine).await,
        }
    }

    /// The server's answer, recorded on arrival. A watch is streamed, everything else is read whole.
    async fn forward(
        self,
        number: usize,
        head: Parts,
        bytes: Bytes,
        arrival: Passage,
        is_watch: bool,
    ) -> Result<Response<Body>, BoxError> {
        arrival.pass().await;
        let mut request = http::Request::from_parts(head, kube::client::Body::from(bytes));
        for name in [header::HOST, header::CONTENT_LENGTH, header::TRANSFER_ENCODING] {
            request.headers_mut().remove(name);
        }
        let (mut head, body) = self.upstream.send(request).await?.into_parts();
        strip(&mut head.headers);
        let status = head.status.as_u16();
        if is_watch && status == 200 {
            self.log.answered(number, Answer { at: clock::boot(), status, body: Value::Null });
            return Ok(Response::from_parts(head, body.map_err(Into::into).boxed_unsync()));
        }
        let bytes = body.collect().await?.to_bytes();
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        self.log.answered(number, Answer { at: clock::boot(), status, body });
        Ok(Response::from_parts(head, whole(bytes)))
    }
}

fn noted(head: &Parts, bytes: &Bytes) -> Request {
    let uri = head.uri.path_and_query().map_or_else(String::new, ToString::to_string);
    let authorization = head.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let body = serde_json::from_slice(bytes).unwrap_or(Value::Null);
    Request::new(clock::boot(), &head.method, uri, authorization.to_owned(), body)
}

/// Removes the hop-by-hop headers, and the length that no longer fits a changed body.
fn strip(headers: &mut HeaderMap) {
    for name in [header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::CONNECTION] {
        headers.remove(name);
    }
}

fn whole(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

fn canned_response(canned: Canned) -> Response<Body> {
    let mut response = Response::builder().status(canned.status).header(header::CONTENT_TYPE, "application/json");
    for (name, value) in canned.headers {
        response = response.header(name, value);
    }
    let end = if canned.endless { End::Never } else { End::Clean };
    response.body(Piece { bytes: Some(canned.body.into()), end }.boxed_unsync()).expect("a response")
}

async fn truncated(genuine: Response<Body>) -> Result<Response<Body>, BoxError> {
    let (mut head, body) = genuine.into_parts();
    let bytes = body.collect().await?.to_bytes();
    head.headers.insert(header::CONTENT_LENGTH, bytes.len().into());
    let half = bytes.slice(..bytes.len() / 2);
    Ok(Response::from_parts(head, Piece { bytes: Some(half), end: End::Broken }.boxed_unsync()))
}

fn changed(genuine: Response<Body>, change: fn(&mut Value)) -> Response<Body> {
    genuine.map(|inner| Changed { inner, rest: Vec::new(), change }.boxed_unsync())
}

/// Some bytes, and whether and how the body ends after them.
struct Piece {
    bytes: Option<Bytes>,
    end: End,
}

#[derive(Clone, Copy)]
enum End {
    Clean,
    Broken,
    Never,
}

impl hyper::body::Body for Piece {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(bytes) = self.bytes.take().filter(|bytes| !bytes.is_empty()) {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        match self.end {
            End::Clean => Poll::Ready(None),
            End::Broken => Poll::Ready(Some(Err("cut off for the test".into()))),
            End::Never => Poll::Pending,
        }
    }
}

/// A body whose Leases are changed: in an object, in a list, in the events of a watch.
struct Changed {
    inner: Body,
    rest: Vec<u8>,
    change: fn(&mut Value),
}

impl Changed {
    fn line(&self, line: &[u8]) -> Bytes {
        let Ok(mut document) = serde_json::from_slice::<Value>(line) else { return line.to_vec().into() };
        if let Some(items) = document.get_mut("items").and_then(Value::as_array_mut) {
            items.iter_mut().for_each(self.change);
        } else {
            let is_event = document.get("object").is_some();
            (self.change)(if is_event { &mut document["object"] } else { &mut document });
        }
        format!("{document}\n").into()
    }
}

impl hyper::body::Body for Changed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Poll::Ready(Some(Ok(Frame::data(self.line(&line)))));
            }
            match std::task::ready!(Pin::new(&mut self.inner).poll_frame(context)) {
                Some(Ok(frame)) => self.rest.extend_from_slice(&frame.into_data().unwrap_or_default()),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None if self.rest.is_empty() => return Poll::Ready(None),
                None => {
                    let line = std::mem::take(&mut self.rest);
                    return Poll::Ready(Some(Ok(Frame::data(self.line(&line)))));
                }
            }
        }
    }
}
