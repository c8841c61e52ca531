//! The network of a replica: relays its bytes to the API server and back, until it is cut.
//!
//! Owns its connections. A cut one is not closed: what is sent waits, and arrives once the network is whole again, as behind a
//! router that recovers.

use std::{io, net::SocketAddr};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
};

#[derive(Debug)]
pub(super) struct Relay {
    /// Where the replica finds the API server.
    pub(super) address: SocketAddr,
    whole: watch::Sender<bool>,
}

impl Relay {
    /// Relays to this server for as long as the runtime runs.
    ///
    /// # Errors
    /// The relay cannot listen.
    pub(super) async fn start(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let (whole, state) = watch::channel(true);
        tokio::spawn(accept(listener, server, state));
        Ok(Self { address, whole })
    }

    /// Lets nothing through any more, either way.
    pub(super) fn cut(&self) {
        self.whole.send_replace(false);
    }

    /// Lets everything through again.
    pub(super) fn heal(&self) {
        self.whole.send_replace(true);
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, state: watch::Receiver<bool>) {
    while let Ok((inner, _)) = listener.accept().await {
        tokio::spawn(relay(inner, server, state.clone()));
    }
}

async fn relay(inner: TcpStream, server: SocketAddr, state: watch::Receiver<bool>) -> io::Result<()> {
    let outer = TcpStream::connect(server).await?;
    inner.set_nodelay(true)?;
    outer.set_nodelay(true)?;
    let ((from_inner, to_inner), (from_outer, to_outer)) = (inner.into_split(), outer.into_split());
    tokio::try_join!(pump(from_inner, to_outer, state.clone()), pump(from_outer, to_inner, state))?;
    Ok(())
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut state: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let length = from.read(&mut buffer).await?;
        if state.wait_for(|whole| *whole).await.is_err() {
            return Ok(());
        }
        let Some(bytes) = buffer.get(..length).filter(|bytes| !bytes.is_empty()) else { return to.shutdown().await };
        to.write_all(bytes).await?;
    }
}
