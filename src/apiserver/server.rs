//! The running server, on its own thread so that it serves whatever its owner does.
//!
//! Owns the thread, the connections (TLS, HTTP/1.1) and the sending of watches.

use std::{
    convert::Infallible,
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener as StdListener},
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{
    BodyExt as _, Either, Full, Limited,
    channel::{Channel, Sender},
};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use serde_json::Value;
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Builder,
    sync::{oneshot, watch},
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};
use tokio_rustls::TlsAcceptor;

use super::{
    feed::{Ended, Feed},
    identity::{Identity, token},
    register::Register,
    rest::{Answer, Request},
    status::Status,
};
use crate::clock;

/// The real server's limit for a body.
const BODY_LIMIT: usize = 3 * 1024 * 1024;
/// Events that may wait for a slow watcher.
const LINES: usize = 64;
/// How often a client that wants bookmarks gets one; the last comes just before the end.
const BOOKMARKS: Duration = Duration::from_secs(60);
/// After a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(10);

/// A server could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No certificate was made.
    #[error("a certificate could not be made")]
    Certificate(#[from] rcgen::Error),
    /// The certificate or the versions of TLS are refused.
    #[error("TLS could not be set up")]
    Tls(#[from] rustls::Error),
    /// There is no token without random bits.
    #[error("the system gives no random bits")]
    Random(#[from] getrandom::Error),
    /// The port is taken, or may not be used.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The system starts no thread, or no runtime.
    #[error("no thread could be started")]
    Thread(#[source] io::Error),
}

/// A running server; it stops when this is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    identity: Identity,
    token: String,
    /// None once it is to stop.
    lifeline: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// State that all connections share.
#[derive(Debug)]
struct Shared {
    /// Watchers are told of every change.
    register: watch::Sender<Register>,
    token: String,
}

impl Server {
    /// Starts one without Leases that listens here.
    ///
    /// # Errors
    /// No certificate, random bits, port or thread.
    pub fn start(address: SocketAddr) -> Result<Self, StartError> {
        let identity = Identity::new(address.ip())?;
        let token = token()?;
        let register = watch::Sender::new(Register::new(getrandom::u32()?));
        let shared = Arc::new(Shared { register, token: token.clone() });
        let fail = |source| StartError::Listen { address, source };
        let listener = StdListener::bind(address).map_err(fail)?;
        listener.set_nonblocking(true).map_err(fail)?;
        let address = listener.local_addr().map_err(fail)?;
        let runtime = Builder::new_current_thread().enable_all().build().map_err(StartError::Thread)?;
        let acceptor = TlsAcceptor::from(Arc::clone(&identity.tls));
        let (lifeline, mut end) = oneshot::channel();
        let serve = async move {
            tokio::select! {
                _ = &mut end => {}
                () = accept(listener, acceptor, shared) => {}
            }
        };
        let thread = std::thread::Builder::new().name("apiserver".into());
        let thread = thread.spawn(move || runtime.block_on(serve)).map_err(StartError::Thread)?;
        Ok(Self { address, identity, token, lifeline: Some(lifeline), thread: Some(thread) })
    }

    /// Where clients of this machine find it.
    pub fn address(&self) -> SocketAddr {
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(Ipv4Addr::LOCALHOST.into());
        }
        address
    }

    /// A self-contained kubeconfig, for clients that find it at this address.
    pub fn kubeconfig(&self, address: SocketAddr) -> String {
        self.identity.kubeconfig(&format!("https://{address}"), &self.token)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.lifeline = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept(listener: StdListener, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(serve(stream, acceptor.clone(), Arc::clone(&shared)));
                }
                Err(_) => sleep(PAUSE).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let service = service_fn(|request| answer(Arc::clone(&shared), request));
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// All of an answer at once, or a watch.
type Body = Either<Full<Bytes>, Channel<Bytes>>;

async fn answer(shared: Arc<Shared>, request: hyper::Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let (parts, body) = request.into_parts();
    let shown = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    if shown.and_then(|shown| shown.strip_prefix("Bearer ")) != Some(shared.token.as_str()) {
        return Ok(refuse(&Status::new(401, "this needs the token of the server's kubeconfig")));
    }
    let Ok(body) = Limited::new(body, BODY_LIMIT).collect().await else {
        return Ok(refuse(&Status::new(413, format!("a body has at most {BODY_LIMIT} bytes"))));
    };
    let request = Request { method: parts.method, uri: parts.uri, headers: parts.headers, body: body.to_bytes() };
    Ok(match shared.carry_out(&request) {
        Answer::Json(code, document) => whole(code, &document),
        Answer::Watch(feed, timeout) => {
            let (lines, events) = Channel::new(LINES);
            tokio::spawn(send(shared, feed, Instant::now() + timeout, lines));
            respond(200, Either::Right(events))
        }
    })
}

impl Shared {
    fn carry_out(&self, request: &Request) -> Answer {
        let now = Timestamp::from_microsecond(clock::wall()).unwrap_or_default().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let mut answer = Answer::Json(500, Value::Null);
        self.register.send_if_modified(|register| {
            let before = register.version();
            answer = request.carry_out(register, &now);
            register.version() != before
        });
        answer
    }
}

/// Sends a watch until its end, or until there is news and nobody listens.
async fn send(shared: Arc<Shared>, mut feed: Feed, end: Instant, mut lines: Sender<Bytes>) {
    let mut changed = shared.register.subscribe();
    let mut bookmark = end.min(Instant::now() + BOOKMARKS);
    loop {
        let (news, ended) = match feed.advance(&changed.borrow_and_update()) {
            Ok(news) => (news, false),
            Err(Ended(last)) => (vec![last], true),
        };
        for line in news {
            if lines.send_data(line.into()).await.is_err() {
                return;
            }
        }
        if ended {
            return;
        }
        tokio::select! {
            Ok(()) = changed.changed() => {}
            () = sleep_until(bookmark) => {
                if feed.bookmarks && lines.send_data(feed.bookmark(false).into()).await.is_err() || bookmark == end {
                    return;
                }
                bookmark = end.min(bookmark + BOOKMARKS);
            }
        }
    }
}

fn refuse(status: &Status) -> Response<Body> {
    whole(status.code, &status.to_json())
}

fn whole(code: u16, document: &Value) -> Response<Body> {
    respond(code, Either::Left(Full::from(document.to_string() + "\n")))
}

fn respond(code: u16, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
