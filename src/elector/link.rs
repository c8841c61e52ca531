//! The elector's end of the link to init, inside the runtime.

use std::{io, os::fd::OwnedFd};

use tokio::io::unix::AsyncFd;

use super::register;
use crate::wire::End;

/// The link. No call blocks, so that a stopped init does not stop the elector.
pub(super) type Link = AsyncFd<End>;

/// Makes the link of the socket that init left.
///
/// # Errors
/// The runtime cannot watch the socket.
pub(super) fn link(socket: OwnedFd) -> io::Result<Link> {
    register(End::of(socket))
}

/// Waits until a message may have come, or there may be room for what is unsent.
pub(super) async fn ready(link: &Link) -> io::Result<()> {
    // Readiness is cleared before the socket is tried, so that what comes in between wakes the loop again.
    if link.get_ref().is_clogged() {
        tokio::select! {
            ready = link.readable() => ready?.clear_ready(),
            ready = link.writable() => ready?.clear_ready(),
        }
    } else {
        link.readable().await?.clear_ready();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{ToElector, ToInit};

    #[tokio::test]
    async fn what_comes_wakes_whoever_waits_and_so_does_room() {
        let (mut init, socket) = End::pair().unwrap();
        let mut link = link(socket).unwrap();

        init.send(&ToElector::Heartbeat).unwrap();
        ready(&link).await.unwrap();
        assert_eq!(link.get_mut().receive().unwrap(), Some(ToElector::Heartbeat));

        while !link.get_ref().is_clogged() {
            link.get_mut().send(&ToInit::Heartbeat).unwrap();
        }
        while link.get_ref().is_clogged() {
            while init.receive::<ToInit>().unwrap().is_some() {}
            ready(&link).await.unwrap();
            link.get_mut().flush().unwrap();
        }
    }
}
