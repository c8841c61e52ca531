//! The running server, on its own thread so that it serves whatever its owner does.
//!
//! Owns the thread, the doors and the shared state.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener as StdListener},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use tokio::{
    net::TcpListener,
    runtime::Builder,
    sync::{mpsc, watch},
    task::JoinSet,
    time::sleep,
};
use tokio_rustls::TlsAcceptor;

use super::{
    connection,
    door::Door,
    faults::{Fault, Link, On, WatchFault},
    identity::{Identity, token},
    journal::{Entry, Journal},
    request::Request,
    rest::Answer,
    store::{Rules, Store},
};
use crate::clock;

/// How long the server waits before it tries again to listen on the same address.
const RELISTEN: Duration = Duration::from_millis(10);

/// How a server is set up.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// How its store behaves.
    pub rules: Rules,
    /// Addresses that its certificate names besides the loopback ones.
    pub addresses: Vec<IpAddr>,
}

/// A server could not start, or not listen for another client.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its certificate.
    #[error("a certificate could not be made")]
    Certificate(#[from] rcgen::Error),
    /// Its TLS.
    #[error("TLS could not be set up")]
    Tls(#[from] rustls::Error),
    /// A token.
    #[error("the system gives no random bits")]
    Random(#[from] getrandom::Error),
    /// A port.
    #[error("cannot listen on {address}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// Its thread.
    #[error("no thread could be started")]
    Thread(#[source] std::io::Error),
}

/// A running server; it stops when this is dropped.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    identity: Identity,
    doors: Mutex<BTreeMap<String, Arc<Door>>>,
    /// None once it is to stop.
    opened: Option<mpsc::UnboundedSender<(Arc<Door>, StdListener)>>,
    thread: Option<JoinHandle<()>>,
}

/// One client of the server: its credentials, and the faults in its traffic.
#[derive(Clone, Debug)]
pub struct Client {
    door: Arc<Door>,
    identity: Identity,
}

/// What all connections share.
#[derive(Debug)]
pub(super) struct Shared {
    store: Mutex<Store>,
    pub(super) journal: Journal,
    /// Marked changed after every change of the store.
    pub(super) changed: watch::Sender<()>,
    /// Marked changed to make every watch send a bookmark.
    pub(super) bookmark: watch::Sender<()>,
}

impl Server {
    /// Starts a server without clients.
    ///
    /// # Errors
    /// No certificate, random bits or thread.
    pub fn start(options: &Options) -> Result<Self, StartError> {
        let identity = Identity::new(&options.addresses)?;
        let store = Store::new(options.rules.clone(), getrandom::u64()?);
        let shared = Arc::new(Shared {
            store: Mutex::new(store),
            journal: Journal::default(),
            changed: watch::Sender::new(()),
            bookmark: watch::Sender::new(()),
        });
        let (opened, to_open) = mpsc::unbounded_channel();
        let runtime = Builder::new_current_thread().enable_all().build().map_err(StartError::Thread)?;
        let acceptor = TlsAcceptor::from(Arc::clone(&identity.tls));
        let served = serve(Arc::clone(&shared), acceptor, to_open);
        let thread = std::thread::Builder::new().name("apiserver".into());
        let thread = thread.spawn(move || runtime.block_on(served)).map_err(StartError::Thread)?;
        Ok(Self { shared, identity, doors: Mutex::default(), opened: Some(opened), thread: Some(thread) })
    }

    /// The client of this name; a new one gets a free port of 127.0.0.1.
    ///
    /// # Errors
    /// No port or random bits.
    pub fn client(&self, name: &str) -> Result<Client, StartError> {
        self.client_at(name, (Ipv4Addr::LOCALHOST, 0).into())
    }

    /// The client of this name; a new one gets this address.
    ///
    /// # Errors
    /// No port or random bits.
    pub fn client_at(&self, name: &str, address: SocketAddr) -> Result<Client, StartError> {
        let mut doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(door) = doors.get(name) {
            return Ok(Client { door: Arc::clone(door), identity: self.identity.clone() });
        }
        let fail = |source| StartError::Listen { address, source };
        let listener = StdListener::bind(address).map_err(fail)?;
        listener.set_nonblocking(true).map_err(fail)?;
        let bound = listener.local_addr().map_err(fail)?;
        let door = Arc::new(Door::new(name.into(), token()?, bound));
        if let Some(opened) = &self.opened {
            drop(opened.send((Arc::clone(&door), listener)));
        }
        doors.insert(name.into(), Arc::clone(&door));
        Ok(Client { door, identity: self.identity.clone() })
    }

    /// Reads or changes the store, bypassing the API; watches see the changes.
    pub fn store<R>(&self, change: impl FnOnce(&mut Store) -> R) -> R {
        self.shared.change(change)
    }

    /// Every request so far, in the order of arrival.
    #[must_use]
    pub fn journal(&self) -> Vec<Entry> {
        self.shared.journal.entries()
    }

    /// Waits until `done` finds what it looks for in the journal; none once `patience` has run out.
    pub fn wait<R>(&self, patience: Duration, done: impl FnMut(&[Entry]) -> Option<R>) -> Option<R> {
        self.shared.journal.wait(patience, done)
    }

    /// Makes every watch that allows bookmarks send one now.
    pub fn bookmark(&self) {
        self.shared.bookmark.send_replace(());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.opened.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl Client {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.door.client
    }

    /// The address at which it reaches the server.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        let mut address = self.door.address;
        if address.ip().is_unspecified() {
            address.set_ip(Ipv4Addr::LOCALHOST.into());
        }
        address
    }

    /// The same as a URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}", self.address())
    }

    /// Its bearer token.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.door.token
    }

    /// The certificate authority to trust, in PEM.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.identity.authority
    }

    /// A self-contained kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        self.identity.kubeconfig(&self.url(), self.name(), self.token())
    }

    /// Injects a fault until it is healed.
    pub fn inject(&self, fault: Fault, on: On) {
        self.door.inject(fault, on, None);
    }

    /// Injects a fault for the next `times` requests to which it applies.
    pub fn inject_times(&self, times: u32, fault: Fault, on: On) {
        self.door.inject(fault, on, Some(times));
    }

    /// Applies this fault to its watches, including running ones.
    pub fn set_watches(&self, fault: WatchFault) {
        self.door.change(|signal| signal.watches = fault);
    }

    /// Sets the state of its network.
    pub fn set_link(&self, link: Link) {
        self.door.change(|signal| {
            signal.link = link;
            if link == Link::Refused {
                signal.resets += 1;
            }
        });
    }

    /// Closes its connections.
    pub fn reset(&self) {
        self.door.change(|signal| signal.resets += 1);
    }

    /// Ends all faults.
    pub fn heal(&self) {
        self.door.clear();
        self.set_watches(WatchFault::None);
        self.set_link(Link::Up);
    }
}

impl Shared {
    pub(super) fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries out the request that has this number in the journal.
    pub(super) fn carry_out(&self, request: &Request, number: usize) -> Answer {
        let mut made = None;
        let answer = self.change(|store| {
            let before = store.version();
            let answer = request.carry_out(store, clock::wall());
            made = Some(store.version()).filter(|version| *version != before);
            answer
        });
        let at = clock::boot();
        self.journal.amend(number, |entry| {
            entry.carried_out = Some(at);
            entry.version = made;
        });
        answer
    }

    fn change<R>(&self, change: impl FnOnce(&mut Store) -> R) -> R {
        let mut store = self.store();
        let before = store.version();
        let result = change(&mut store);
        if store.version() != before {
            self.changed.send_replace(());
        }
        result
    }
}

/// Serves all doors until no more can be opened.
async fn serve(shared: Arc<Shared>, acceptor: TlsAcceptor, mut to_open: mpsc::UnboundedReceiver<(Arc<Door>, StdListener)>) {
    let mut doors = JoinSet::new();
    while let Some((door, listener)) = to_open.recv().await {
        doors.spawn(attend(Arc::clone(&shared), acceptor.clone(), door, listener));
    }
}

/// Accepts connections at one door; refuses them while the link is set to.
async fn attend(shared: Arc<Shared>, acceptor: TlsAcceptor, door: Arc<Door>, listener: StdListener) {
    let mut signal = door.subscribe();
    let mut listener = TcpListener::from_std(listener).ok();
    let mut connections = JoinSet::new();
    loop {
        let refused = signal.borrow_and_update().link == Link::Refused;
        if refused {
            listener = None;
        } else if listener.is_none() {
            listener = TcpListener::bind(door.address).await.ok();
            if listener.is_none() {
                sleep(RELISTEN).await;
                continue;
            }
        }
        tokio::select! {
            accepted = accept(listener.as_ref()) => if let Some(stream) = accepted {
                connections.spawn(connection::serve(Arc::clone(&shared), Arc::clone(&door), stream, acceptor.clone()));
            },
            changed = signal.changed() => if changed.is_err() { return },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> Option<tokio::net::TcpStream> {
    match listener {
        Some(listener) => match listener.accept().await {
            Ok((stream, _)) => Some(stream),
            Err(_) => {
                sleep(RELISTEN).await;
                None
            }
        },
        None => std::future::pending().await,
    }
}
