//! One client's access to the server: its own port and token, and the faults in its traffic.
//!
//! Owns the state of the link and of the faults. [`Gated`] is a connection that obeys the link: what is held back waits in the
//! kernel's buffers, as on a network that recovers later.

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use http::Method;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::watch,
};

use super::faults::{Fault, Faults, Link, On, WatchFault};

/// See the module.
#[derive(Debug)]
pub(super) struct Door {
    /// The client's name.
    pub(super) client: String,
    /// The token that it presents.
    pub(super) token: String,
    /// The address to which it connects.
    pub(super) address: SocketAddr,
    state: Mutex<State>,
    signal: watch::Sender<Signal>,
}

/// What the server's tasks wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Signal {
    /// The link.
    pub(super) link: Link,
    /// The fault of the watches.
    pub(super) watches: WatchFault,
    /// Incremented to close the existing connections.
    pub(super) resets: u64,
}

#[derive(Debug, Default)]
struct State {
    faults: Faults,
    waiting: Vec<Waker>,
}

impl Door {
    pub(super) fn new(client: String, token: String, address: SocketAddr) -> Self {
        Self { client, token, address, state: Mutex::default(), signal: watch::Sender::new(Signal::default()) }
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Signal> {
        self.signal.subscribe()
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Signal)) {
        self.signal.send_modify(change);
        let waiting = std::mem::take(&mut self.lock().waiting);
        waiting.into_iter().for_each(Waker::wake);
    }

    pub(super) fn inject(&self, fault: Fault, on: On, times: Option<u32>) {
        self.lock().faults.inject(fault, on, times);
    }

    pub(super) fn clear(&self) {
        self.lock().faults.clear();
    }

    pub(super) fn take_fault(&self, method: &Method, watch: bool) -> Option<Fault> {
        self.lock().faults.take(method, watch)
    }

    /// Whether the link holds this direction back; if so, the task is woken when the link changes.
    fn is_held(&self, holds: fn(Link) -> bool, context: &Context<'_>) -> bool {
        let mut state = self.lock();
        let held = holds(self.signal.borrow().link);
        if held {
            state.waiting.push(context.waker().clone());
        }
        held
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See the module.
pub(super) struct Gated {
    pub(super) stream: TcpStream,
    pub(super) door: Arc<Door>,
}

impl AsyncRead for Gated {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        if self.door.is_held(Link::holds_requests, context) {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Gated {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        if self.door.is_held(Link::holds_replies, context) {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        if self.door.is_held(Link::holds_replies, context) {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
