//! The elector's end of the link to init.
//!
//! Owns the socket and the messages that init has not taken yet. Never blocks: init may be stopped for as long as it likes.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsRawFd as _, OwnedFd},
};

use nix::{
    errno::Errno,
    sys::socket::{MsgFlags, recv, send},
};
use tokio::io::unix::AsyncFd;

use super::register;
use crate::link::{LinkError, MAX_MESSAGE, ToElector, ToInit, decode, encode};

/// Init is gone, or as good as gone.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    /// The other end is closed.
    #[error("init has closed the link")]
    Closed,
    /// The socket failed.
    #[error("the link to init failed")]
    Socket(#[source] io::Error),
    /// What came is no message.
    #[error("init does not speak this elector's language")]
    Message(#[source] LinkError),
}

/// The link, inside a runtime.
#[derive(Debug)]
pub(super) struct Link {
    socket: AsyncFd<OwnedFd>,
    unsent: VecDeque<Vec<u8>>,
    buffer: Vec<u8>,
}

impl Link {
    /// Over a SOCK_SEQPACKET socket that does not block.
    ///
    /// # Errors
    /// The runtime cannot watch it.
    pub(super) fn new(socket: OwnedFd) -> io::Result<Self> {
        Ok(Self { socket: register(socket)?, unsent: VecDeque::new(), buffer: vec![0; MAX_MESSAGE] })
    }

    /// The next message, if one is there.
    pub(super) fn receive(&mut self) -> Result<Option<ToElector>, Broken> {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC;
        let length = loop {
            match recv(self.socket.get_ref().as_raw_fd(), &mut self.buffer, flags) {
                Ok(0) => return Err(Broken::Closed),
                Ok(length) => break length,
                Err(Errno::EAGAIN) => return Ok(None),
                Err(Errno::EINTR) => {}
                Err(Errno::ECONNRESET) => return Err(Broken::Closed),
                Err(errno) => return Err(Broken::Socket(errno.into())),
            }
        };
        let Some(bytes) = self.buffer.get(..length) else { return Err(Broken::Message(LinkError::TooLong(length))) };
        let message = decode(bytes).map_err(Broken::Message)?;
        Ok(Some(message))
    }

    /// Sends a message now, or after those that init has not taken yet.
    pub(super) fn send(&mut self, message: &ToInit) -> Result<(), Broken> {
        self.unsent.push_back(encode(message).map_err(Broken::Message)?);
        self.flush()?;
        Ok(())
    }

    /// Sends what init takes without blocking.
    pub(super) fn flush(&mut self) -> Result<(), Broken> {
        while let Some(message) = self.unsent.front() {
            match send(self.socket.get_ref().as_raw_fd(), message, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL) {
                Ok(_) => drop(self.unsent.pop_front()),
                Err(Errno::EAGAIN) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(Errno::EPIPE | Errno::ECONNRESET) => return Err(Broken::Closed),
                Err(errno) => return Err(Broken::Socket(errno.into())),
            }
        }
        Ok(())
    }

    /// Whether init has not taken everything.
    pub(super) fn is_clogged(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Waits until something may have come, or may be sent where something is unsent.
    pub(super) async fn ready(&self) -> io::Result<()> {
        // Readiness is cleared before the socket is tried, so that what comes in between wakes the loop again.
        if self.is_clogged() {
            tokio::select! {
                ready = self.socket.readable() => ready?.clear_ready(),
                ready = self.socket.writable() => ready?.clear_ready(),
            }
        } else {
            self.socket.readable().await?.clear_ready();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

    use super::*;

    fn pair() -> (Link, OwnedFd) {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let (ours, init) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).unwrap();
        (Link::new(ours).unwrap(), init)
    }

    fn say(init: &OwnedFd, bytes: &[u8]) {
        send(init.as_raw_fd(), bytes, MsgFlags::empty()).unwrap();
    }

    #[tokio::test]
    async fn messages_arrive_whole_and_in_order() {
        let (mut link, init) = pair();

        say(&init, &encode(&ToElector::Beat).unwrap());
        say(&init, &encode(&ToElector::Shutdown).unwrap());
        link.ready().await.unwrap();

        assert_eq!(link.receive().unwrap(), Some(ToElector::Beat));
        assert_eq!(link.receive().unwrap(), Some(ToElector::Shutdown));
        assert_eq!(link.receive().unwrap(), None);
    }

    #[tokio::test]
    async fn an_end_is_told_after_the_last_message() {
        let (mut link, init) = pair();
        say(&init, &encode(&ToElector::Beat).unwrap());

        drop(init);
        link.ready().await.unwrap();

        assert_eq!(link.receive().unwrap(), Some(ToElector::Beat));
        assert!(matches!(link.receive(), Err(Broken::Closed)));
    }

    #[tokio::test]
    async fn a_message_that_does_not_decode_is_the_end() {
        let (mut link, init) = pair();

        say(&init, &[0xff; 3]);

        assert!(matches!(link.receive(), Err(Broken::Message(LinkError::Undecodable { .. }))));
    }

    #[tokio::test]
    async fn a_message_that_is_too_long_is_the_end() {
        let (mut link, init) = pair();

        say(&init, &vec![0; MAX_MESSAGE + 1]);

        assert!(matches!(link.receive(), Err(Broken::Message(LinkError::TooLong(length))) if length == MAX_MESSAGE + 1));
    }

    #[tokio::test]
    async fn a_stopped_init_blocks_nothing_and_misses_nothing() {
        let (mut link, init) = pair();
        let mut sent = 0;
        while !link.is_clogged() {
            link.send(&ToInit::Failed { code: 70, message: sent.to_string() }).unwrap();
            sent += 1;
        }

        let mut received = 0;
        let mut buffer = vec![0; MAX_MESSAGE];
        while received < sent {
            if let Ok(length) = recv(init.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                let message: ToInit = decode(&buffer[..length]).unwrap();
                assert_eq!(message, ToInit::Failed { code: 70, message: received.to_string() });
                received += 1;
            } else {
                link.ready().await.unwrap();
                link.flush().unwrap();
            }
        }

        assert!(!link.is_clogged());
    }
}
