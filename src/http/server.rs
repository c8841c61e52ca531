//! The listener of the probes.

use std::{collections::VecDeque, convert::Infallible, io, net::SocketAddr, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    task::AbortHandle,
    time::{sleep, timeout},
};

use super::{answer::answer, health::Health};
use crate::clock;

/// From the accepted connection to its last byte; kubelet asks within a second or two.
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
        /// Why.
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
    let listener = std::net::TcpListener::bind(listen).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let listener = TcpListener::from_std(listener).map_err(failed)?;
    drop(tokio::spawn(accept(listener, health)));
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
                let exchange = timeout(EXCHANGE, exchange(stream, health.clone()));
                open.push_back(tokio::spawn(exchange).abort_handle());
            }
            Err(error) => {
                tracing::debug!(%error, "a connection to http.listen was not accepted");
                sleep(PAUSE).await;
            }
        }
    }
}

/// One request and its answer: a probe opens a connection each time.
async fn exchange(stream: TcpStream, health: Health) {
    let service = service_fn(|request| {
        let response = respond(&request, &health);
        async { Ok::<_, Infallible>(response) }
    });
    let served = http1::Builder::new().keep_alive(false).max_buf_size(HEAD).serve_connection(TokioIo::new(stream), service).await;
    if let Err(error) = served {
        tracing::debug!(%error, "an exchange on http.listen broke off");
    }
}

fn respond(request: &Request<Incoming>, health: &Health) -> Response<Full<Bytes>> {
    let reply = answer(request.method(), request.uri().path(), health.vital(), clock::boot());
    let mut response = Response::new(Full::from(reply.text + "\n"));
    *response.status_mut() = reply.status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if reply.status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}
