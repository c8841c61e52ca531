//! The elector's end of the link to init, inside the runtime.

use std::{io, os::fd::OwnedFd};

use tokio::io::unix::AsyncFd;

use super::register;
use crate::{
    link::{ToElector, ToInit},
    wire::{Broken, End},
};

/// The link. Never blocks: init may be stopped for as long as it likes.
#[derive(Debug)]
pub(super) struct Link(AsyncFd<End>);

impl Link {
    /// Over the socket that init left.
    ///
    /// # Errors
    /// The runtime cannot watch it.
    pub(super) fn new(socket: OwnedFd) -> io::Result<Self> {
        register(End::of(socket)).map(Self)
    }

    /// As [`End::receive`].
    pub(super) fn receive(&mut self) -> Result<Option<ToElector>, Broken> {
        self.0.get_mut().receive()
    }

    /// As [`End::send`].
    pub(super) fn send(&mut self, message: &ToInit) -> Result<(), Broken> {
        self.0.get_mut().send(message)
    }

    /// As [`End::flush`].
    pub(super) fn flush(&mut self) -> Result<(), Broken> {
        self.0.get_mut().flush()
    }

    /// As [`End::is_clogged`].
    pub(super) fn is_clogged(&self) -> bool {
        self.0.get_ref().is_clogged()
    }

    /// Waits until something may have come, or there may be room for what is unsent.
    pub(super) async fn ready(&self) -> io::Result<()> {
        // Readiness is cleared before the socket is tried, so that what comes in between wakes the loop again.
        if self.is_clogged() {
            tokio::select! {
                ready = self.0.readable() => ready?.clear_ready(),
                ready = self.0.writable() => ready?.clear_ready(),
            }
        } else {
            self.0.readable().await?.clear_ready();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_comes_wakes_whoever_waits_and_so_does_room() {
        let (mut init, socket) = End::pair().unwrap();
        let mut link = Link::new(socket).unwrap();

        init.send(&ToElector::Heartbeat).unwrap();
        link.ready().await.unwrap();
        assert_eq!(link.receive().unwrap(), Some(ToElector::Heartbeat));

        while !link.is_clogged() {
            link.send(&ToInit::Heartbeat).unwrap();
        }
        while link.is_clogged() {
            while init.receive::<ToInit>().unwrap().is_some() {}
            link.ready().await.unwrap();
            link.flush().unwrap();
        }
    }
}
