//! Holds back the bytes of a client's connections in either direction, or resets the connections.

use std::{
    collections::BTreeMap,
    io,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::watch,
};

/// The state of one direction: whether bytes move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// They do.
    Open,
    /// They wait until it is open again.
    Held,
}

/// The state of all connections of one client.
#[derive(Default)]
pub(super) struct Gate {
    inner: Mutex<Inner>,
    connections: watch::Sender<u64>,
}

#[derive(Default)]
struct Inner {
    requests_held: bool,
    replies_held: bool,
    tls_broken: bool,
    /// Incremented by every reset; connections of an earlier era are closed.
    era: u64,
    waiting: BTreeMap<(u64, Direction), Waker>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Direction {
    Request,
    Reply,
}

impl Gate {
    pub(super) fn requests(&self, flow: Flow) {
        self.change(|inner| inner.requests_held = flow == Flow::Held);
    }

    pub(super) fn replies(&self, flow: Flow) {
        self.change(|inner| inner.replies_held = flow == Flow::Held);
    }

    pub(super) fn reset(&self) {
        self.change(|inner| inner.era += 1);
    }

    pub(super) fn break_tls(&self, broken: bool) {
        self.change(|inner| inner.tls_broken = broken);
    }

    pub(super) fn connections(&self) -> u64 {
        *self.connections.borrow()
    }

    pub(super) async fn connected(&self, count: u64) {
        drop(self.connections.subscribe().wait_for(|connections| *connections >= count).await);
    }

    fn change(&self, change: impl FnOnce(&mut Inner)) {
        let waiting = {
            let mut inner = self.inner.lock().expect("no panic inside");
            change(&mut inner);
            std::mem::take(&mut inner.waiting)
        };
        waiting.into_values().for_each(Waker::wake);
    }
}

/// A connection behind the gate.
pub(super) struct Gated<S> {
    stream: S,
    gate: Arc<Gate>,
    id: u64,
    era: u64,
}

impl Gated<TcpStream> {
    pub(super) fn new(stream: TcpStream, gate: Arc<Gate>) -> Self {
        stream.set_nodelay(true).expect("a TCP socket");
        gate.connections.send_modify(|connections| *connections += 1);
        let (id, era) = (gate.connections(), gate.inner.lock().expect("no panic inside").era);
        Self { stream, gate, id, era }
    }

    pub(super) fn is_tls_broken(&self) -> bool {
        self.gate.inner.lock().expect("no panic inside").tls_broken
    }

    /// Returns ready if bytes may move now; if not, or if the socket is not ready, the gate wakes the task at its next change.
    fn pass(&self, direction: Direction, context: &Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.gate.inner.lock().expect("no panic inside");
        if self.era < inner.era {
            drop(self.stream.set_zero_linger());
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        inner.waiting.insert((self.id, direction), context.waker().clone());
        let held = match direction {
            Direction::Request => inner.requests_held,
            Direction::Reply => inner.replies_held,
        };
        if held { Poll::Pending } else { Poll::Ready(Ok(())) }
    }
}

impl AsyncRead for Gated<TcpStream> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        std::task::ready!(self.pass(Direction::Request, context))?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Gated<TcpStream> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        std::task::ready!(self.pass(Direction::Reply, context))?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        std::task::ready!(self.pass(Direction::Reply, context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
