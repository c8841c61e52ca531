//! The listener of the pages: connections, methods, limits of size and time.

use std::{
    collections::VecDeque,
    convert::Infallible,
    io,
    net::{Ipv4Addr, SocketAddr},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{Either, Full, channel::Channel};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use prometheus::TextEncoder;
use tokio::{
    net::{TcpListener, TcpStream},
    task::{AbortHandle, yield_now},
    time::{sleep, timeout},
};

use super::{
    answer::{self, Reply},
    events,
    health::Health,
};
use crate::{clock, telemetry, words::one_line};

/// For people.
const PAGE: &str = include_str!("page.html");
/// The page may read `events` and nothing else.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'";

const PAGES: [&str; 7] = ["/", "/livez", "/readyz", "/leader", "/status", EVENTS, "/metrics"];
/// The only page without an end: there is no HEAD of it.
const EVENTS: &str = "/events";

/// From the accepted connection to its last byte, unless that is a stream; kubelet asks within a second or two.
const EXCHANGE: Duration = Duration::from_secs(5);
/// Concurrent connections. One more closes the oldest, so that silent clients cannot keep a probe from its answer.
const CONNECTIONS: usize = 64;
/// The largest head of a request; hyper's minimum.
const HEAD: usize = 8192;
/// How long to wait before the next accept when there is no file descriptor left.
const PAUSE: Duration = Duration::from_millis(100);

/// The probes cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The address cannot be listened on: it is taken, another machine's, or needs a privilege.
    #[error("cannot listen on {listen} (http.listen)")]
    Listen {
        /// `http.listen`.
        listen: SocketAddr,
        /// The error of bind or listen.
        source: io::Error,
    },
}

/// Answers probes on `listen` from `health`, in tasks of the current runtime, until that ends. Returns the address, whose port
/// the system chooses if `listen` says 0.
///
/// # Errors
/// [`HttpError::Listen`] will not go away by itself, so where nothing leads yet it is a configuration error (exit code 78).
/// A term in progress goes on without probes, and its elector tries again.
pub fn serve(listen: SocketAddr, health: Health) -> Result<SocketAddr, HttpError> {
    let failed = |source| HttpError::Listen { listen, source };
    let bound = std::net::TcpListener::bind(listen).or_else(|error| {
        // To a kernel without IPv6, all addresses are those of IPv4.
        let has_no_ipv6 = error.raw_os_error() == Some(libc::EAFNOSUPPORT) && listen.ip().is_unspecified();
        if has_no_ipv6 { std::net::TcpListener::bind((Ipv4Addr::UNSPECIFIED, listen.port())) } else { Err(error) }
    });
    let listener = bound.map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let listener = TcpListener::from_std(listener).map_err(failed)?;
    tokio::spawn(accept(listener, health));
    Ok(address)
}

async fn accept(listener: TcpListener, health: Health) {
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                open.retain(|exchange| !exchange.is_finished());
                if open.len() >= CONNECTIONS
                    && let Some(oldest) = open.pop_front()
                {
                    oldest.abort();
                }
                open.push_back(tokio::spawn(exchange(stream, health.clone())).abort_handle());
                // Otherwise a burst is accepted as a whole before any of it is read, and its beginning closed.
                yield_now().await;
            }
            Err(error) => {
                tracing::debug!(%error, "a connection to http.listen was not accepted");
                sleep(PAUSE).await;
            }
        }
    }
}

type Body = Either<Full<Bytes>, Channel<Bytes>>;

/// Answers a single request: a probe opens a new connection each time.
async fn exchange(stream: TcpStream, health: Health) {
    let streams = Arc::new(AtomicBool::new(false));
    let service = service_fn(|request| {
        let response = respond(&request, &health);
        streams.store(matches!(response.body(), Either::Right(_)), Ordering::Relaxed);
        async { Ok::<_, Infallible>(response) }
    });
    let mut builder = http1::Builder::new();
    let mut served = pin!(builder.keep_alive(false).max_buf_size(HEAD).serve_connection(TokioIo::new(stream), service));
    let mut ended = timeout(EXCHANGE, &mut served).await;
    if ended.is_err() && streams.load(Ordering::Relaxed) {
        ended = timeout(events::STREAM, served).await;
    }
    if let Ok(Err(error)) = ended {
        tracing::debug!(%error, "an exchange on http.listen broke off");
    }
}

fn respond(request: &Request<Incoming>, health: &Health) -> Response<Body> {
    let (method, path, now) = (request.method(), request.uri().path(), clock::boot());
    // hyper leaves the body of the answer to a HEAD out.
    let is_read = method == Method::GET || method == Method::HEAD && path != EVENTS;
    if PAGES.contains(&path) && !is_read {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "it can only be read".into());
        let allowed = if path == EVENTS { "GET" } else { "GET, HEAD" };
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
        return response;
    }
    let said = |(status, why): Reply| text(status, why);
    match path {
        "/" => {
            let mut response = ok("text/html; charset=utf-8", PAGE.into());
            response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
            response
        }
        "/livez" => said(answer::livez(&health.status(), now)),
        "/readyz" => said(answer::readyz(&health.status())),
        "/leader" => {
            let leads = answer::is_leader(&health.status(), now);
            let status = if leads { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            response(status, "application/json", format!("{}\n", health.board().leader()).into())
        }
        "/status" => ok("application/json", format!("{}\n", health.board().status(&health.status(), now)).into()),
        "/metrics" => match TextEncoder::new().encode_to_string(&telemetry::gather(health.metrics())) {
            Ok(text) => ok("text/plain; version=0.0.4; charset=utf-8", text.into()),
            Err(error) => response(StatusCode::INTERNAL_SERVER_ERROR, "text/plain; charset=utf-8", one_line(&error).into()),
        },
        EVENTS => ok("text/event-stream", Bytes::new()).map(|_| Either::Right(events::stream(health.clone()))),
        _ => text(
            StatusCode::NOT_FOUND,
            "no such page: there are /, /livez, /readyz, /leader, /status, /events and /metrics".into(),
        ),
    }
}

/// One line for people.
fn text(status: StatusCode, line: String) -> Response<Body> {
    response(status, "text/plain; charset=utf-8", (line + "\n").into())
}

fn ok(kind: &'static str, body: Bytes) -> Response<Body> {
    response(StatusCode::OK, kind, body)
}

fn response(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::new(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
