//! Stands between one client and the API server: records every request, and injects the faults that a test asks for.
//!
//! It terminates TLS on both sides. On a client's connections it can hold back either direction, reset or refuse them ([`flow`]);
//! for single requests it can lose, delay or change the request or the reply, or answer itself ([`fault`]). Everything can be
//! changed while it runs. [`log`] is the record, in the order of arrival.

use std::{
    io::ErrorKind,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::{
        Arc, LazyLock, Mutex,
        atomic::{AtomicU16, Ordering},
    },
};

use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use kube::{Client, config::AuthInfo};
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;

use super::{PATIENCE, api, within};

mod exchange;
mod fault;
mod flow;
mod log;

pub use fault::{Canned, Fault, Passage, Reply, Times, Valve};
pub use flow::Flow;
pub use log::{Answer, Exchange, Log, Request, Verb};

use fault::Rules;
use flow::{Gate, Gated};

/// The proxy of one client.
pub struct Proxy {
    /// The record of its requests.
    pub log: Arc<Log>,
    gate: Arc<Gate>,
    rules: Arc<Rules>,
    address: SocketAddr,
    certificate: String,
    acceptor: TlsAcceptor,
    upstream: Client,
    accepting: Mutex<Option<JoinHandle<()>>>,
}

impl Proxy {
    /// A proxy to the server of an administrator's kubeconfig, whose credentials it does not use: the client's own are passed on.
    pub async fn start(kubeconfig: &Path) -> Self {
        Self::start_at(kubeconfig, Ipv4Addr::LOCALHOST).await
    }

    /// The same, reachable by a client in another network namespace.
    pub async fn start_at(kubeconfig: &Path, address: Ipv4Addr) -> Self {
        let mut config = api::config(kubeconfig).await;
        config.auth_info = AuthInfo::default();
        let upstream = Client::try_from(config).expect("a client of the API server");
        let (acceptor, certificate) = identity(address);
        let listener = listener(address).await;
        let address = listener.local_addr().expect("bound");
        let (gate, rules, log) = (Arc::new(Gate::default()), Arc::new(Rules::default()), Arc::new(Log::default()));
        let proxy = Self { log, gate, rules, address, certificate, acceptor, upstream, accepting: Mutex::new(None) };
        proxy.listen(listener);
        proxy
    }

    fn listen(&self, listener: TcpListener) {
        let service = exchange::Service { upstream: self.upstream.clone(), rules: self.rules.clone(), log: self.log.clone() };
        let accepting = tokio::spawn(accept(listener, self.gate.clone(), self.acceptor.clone(), service));
        *self.accepting.lock().expect("no panic inside") = Some(accepting);
    }

    /// The address on which it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The certificate that a client must trust, in PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Lets bytes from the client through, or holds them; what is held arrives later, as after a network partition.
    pub fn requests(&self, flow: Flow) {
        self.gate.requests(flow);
    }

    /// Lets bytes to the client through, or holds them.
    pub fn replies(&self, flow: Flow) {
        self.gate.replies(flow);
    }

    /// Holds everything in both directions: connections are accepted, but nothing moves on them.
    pub fn cut(&self) {
        self.requests(Flow::Held);
        self.replies(Flow::Held);
    }

    /// Lets everything through again.
    pub async fn mend(&self) {
        self.requests(Flow::Open);
        self.replies(Flow::Open);
        let listens = self.accepting.lock().expect("no panic inside").is_some();
        if !listens {
            self.listen(TcpListener::bind(self.address).await.expect("its own port again"));
        }
    }

    /// How many connections there have been so far.
    pub fn connections(&self) -> u64 {
        self.gate.connections()
    }

    /// Waits until there were so many.
    pub async fn connected(&self, count: u64) {
        within(PATIENCE, "another connection", self.gate.connected(count)).await;
    }

    /// Resets the connections that are open now.
    pub fn reset(&self) {
        self.gate.reset();
    }

    /// Breaks or restores TLS: new connections are answered without it, as by a load balancer that has lost its server.
    pub fn break_tls(&self, broken: bool) {
        self.gate.break_tls(broken);
    }

    /// Resets all connections, and refuses new ones until [`Self::mend`].
    pub async fn refuse(&self) {
        let accepting = self.accepting.lock().expect("no panic inside").take();
        if let Some(accepting) = accepting {
            accepting.abort();
            drop(accepting.await);
        }
        self.gate.reset();
    }

    /// From now on injects this fault into the requests for which `when` holds, as many times as stated. Later rules take
    /// precedence.
    pub fn on(&self, when: impl Fn(&Request) -> bool + Send + 'static, times: Times, fault: Fault) {
        self.rules.add(when, times, fault);
    }

    /// Removes all rules.
    pub fn clear(&self) {
        self.rules.clear();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let accepting = self.accepting.lock().expect("no panic inside").take();
        if let Some(accepting) = accepting {
            accepting.abort();
        }
        self.gate.reset();
    }
}

/// On a port that the kernel gives to nobody who asks for any: it is still free when a refusal ends.
async fn listener(address: Ipv4Addr) -> TcpListener {
    static NEXT: LazyLock<AtomicU16> = LazyLock::new(|| AtomicU16::new(fastrand::u16(..)));
    loop {
        let port = 20_000 + NEXT.fetch_add(1, Ordering::Relaxed) % 12_000;
        match TcpListener::bind((address, port)).await {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            bound => return bound.expect("a port"),
        }
    }
}

async fn accept(listener: TcpListener, gate: Arc<Gate>, acceptor: TlsAcceptor, service: exchange::Service) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(connection(Gated::new(stream, gate.clone()), acceptor.clone(), service.clone()));
    }
}

/// Serves one connection to its end; how it ends does not matter here.
async fn connection(mut stream: Gated<TcpStream>, acceptor: TlsAcceptor, service: exchange::Service) {
    if stream.is_tls_broken() {
        drop(stream.write_all(b"HTTP/1.0 502 Bad Gateway\r\n\r\n").await);
        return;
    }
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let answer = service_fn(move |request: hyper::Request<Incoming>| service.clone().answer(request));
    drop(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await);
}

/// A self-signed certificate for its address.
fn identity(address: Ipv4Addr) -> (TlsAcceptor, String) {
    let made = rcgen::generate_simple_self_signed(vec![address.to_string()]).expect("a certificate");
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("protocol versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("a configuration");
    (TlsAcceptor::from(Arc::new(config)), made.cert.pem())
}
