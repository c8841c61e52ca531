//! Holds one end of the link: the socket that carries its messages.
//!
//! Owns an end of the SOCK_SEQPACKET pair and the messages that the other end has no room for yet. Never blocks, whatever the
//! other end does, and never decides what becomes of a link that is broken.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
};

use nix::{
    errno::Errno,
    sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair},
};
use serde::{Deserialize, Serialize};

use crate::link::{LinkError, MAX_MESSAGE, decode, encode};

/// The link carries nothing more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    /// The other end was closed, or its process is dead.
    #[error("the other end of the link is closed")]
    Closed,
    /// The socket failed.
    #[error("the link failed")]
    Socket(#[source] io::Error),
    /// The bytes that arrived, or were to be sent, are not a message.
    #[error("an invalid message on the link")]
    Message(#[from] LinkError),
}

/// An end of the link; its socket stays the same while it lives.
#[derive(Debug)]
pub(crate) struct End {
    socket: OwnedFd,
    unsent: VecDeque<Vec<u8>>,
    buffer: Vec<u8>,
}

impl End {
    /// Both ends, connected and close-on-exec; the second as a child inherits it.
    ///
    /// # Errors
    /// No socket pair can be made.
    pub(crate) fn pair() -> Result<(Self, OwnedFd), Broken> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let pair = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags);
        let (ours, theirs) = pair.map_err(|errno| Broken::Socket(errno.into()))?;
        Ok((Self::of(ours), theirs))
    }

    /// The end on an inherited socket.
    pub(crate) fn of(socket: OwnedFd) -> Self {
        Self { socket, unsent: VecDeque::new(), buffer: vec![0; MAX_MESSAGE] }
    }

    /// The next message, if there is one. That the other end is closed is reported after its last message.
    ///
    /// # Errors
    /// No message will come, or what came is not one.
    pub(crate) fn receive<M: for<'de> Deserialize<'de>>(&mut self) -> Result<Option<M>, Broken> {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC;
        let length = loop {
            match recv(self.socket.as_raw_fd(), &mut self.buffer, flags) {
                Ok(0) => return Err(Broken::Closed),
                Ok(length) => break length,
                Err(Errno::EAGAIN) => return Ok(None),
                // Where the other end had not read everything, that is told once, and before what it sent.
                Err(Errno::EINTR | Errno::ECONNRESET) => {}
                Err(errno) => return Err(Broken::Socket(errno.into())),
            }
        };
        let bytes = self.buffer.get(..length).ok_or(LinkError::TooLong(length))?;
        Ok(Some(decode(bytes)?))
    }

    /// Sends a message now, or after those that the other end has no room for yet.
    ///
    /// # Errors
    /// As for [`Self::flush`], and if the message is too long.
    pub(crate) fn send<M: Serialize>(&mut self, message: &M) -> Result<(), Broken> {
        self.unsent.push_back(encode(message)?);
        self.flush()
    }

    /// Sends what the other end has room for.
    ///
    /// # Errors
    /// Nothing more can be sent; what has arrived can still be received.
    pub(crate) fn flush(&mut self) -> Result<(), Broken> {
        while let Some(message) = self.unsent.front() {
            match send(self.socket.as_raw_fd(), message, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL) {
                Ok(_) => {
                    self.unsent.pop_front();
                }
                Err(Errno::EAGAIN) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(Errno::EPIPE | Errno::ECONNRESET) => return Err(Broken::Closed),
                Err(errno) => return Err(Broken::Socket(errno.into())),
            }
        }
        Ok(())
    }

    /// Returns true if a message waits for room.
    pub(crate) fn is_clogged(&self) -> bool {
        !self.unsent.is_empty()
    }
}

impl AsFd for End {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for End {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{ToElector, ToInit};

    fn say(socket: &OwnedFd, bytes: &[u8]) {
        send(socket.as_raw_fd(), bytes, MsgFlags::empty()).unwrap();
    }

    #[test]
    fn messages_arrive_whole_and_in_order() {
        let (mut end, other) = End::pair().unwrap();
        assert_eq!(end.receive::<ToElector>().unwrap(), None);

        say(&other, &encode(&ToElector::Heartbeat).unwrap());
        say(&other, &encode(&ToElector::Shutdown).unwrap());

        assert_eq!(end.receive().unwrap(), Some(ToElector::Heartbeat));
        assert_eq!(end.receive().unwrap(), Some(ToElector::Shutdown));
        assert_eq!(end.receive::<ToElector>().unwrap(), None);
    }

    /// What another test forks holds a closed end too, until its execve.
    fn first_failure<T>(attempt: impl FnMut() -> Result<T, Broken>) -> Broken {
        std::iter::repeat_with(attempt).find_map(Result::err).expect("endless")
    }

    #[test]
    fn that_the_other_end_is_closed_is_told_after_its_last_message_even_where_sending_failed_before() {
        let (mut end, other) = End::pair().unwrap();
        say(&other, &encode(&ToElector::Heartbeat).unwrap());

        drop(other);

        assert!(matches!(first_failure(|| end.send(&ToInit::Heartbeat)), Broken::Closed));
        assert_eq!(end.receive().unwrap(), Some(ToElector::Heartbeat));
        assert!(matches!(first_failure(|| end.receive::<ToElector>()), Broken::Closed));
    }

    #[test]
    fn the_last_messages_of_an_end_that_had_not_read_everything_arrive() {
        let (mut end, other) = End::pair().unwrap();
        end.send(&ToElector::Heartbeat).unwrap();
        say(&other, &encode(&ToInit::Heartbeat).unwrap());

        drop(other);

        assert_eq!(end.receive().unwrap(), Some(ToInit::Heartbeat));
        assert!(matches!(first_failure(|| end.receive::<ToInit>()), Broken::Closed));
    }

    #[test]
    fn a_message_that_does_not_decode_breaks_the_link() {
        let (mut end, other) = End::pair().unwrap();

        say(&other, &[0xff; 3]);

        assert!(matches!(end.receive::<ToElector>(), Err(Broken::Message(LinkError::Undecodable { .. }))));
    }

    #[test]
    fn a_message_that_is_too_long_breaks_the_link() {
        let (mut end, other) = End::pair().unwrap();

        say(&other, &vec![0; MAX_MESSAGE + 1]);

        let received = end.receive::<ToElector>();
        assert!(matches!(received, Err(Broken::Message(LinkError::TooLong(length))) if length == MAX_MESSAGE + 1));
    }

    #[test]
    fn an_other_end_that_does_not_read_blocks_nothing_and_misses_nothing() {
        let (mut end, other) = End::pair().unwrap();
        let mut other = End::of(other);
        let mut sent = 0;
        while !end.is_clogged() {
            end.send(&ToInit::Failed { code: 70, message: sent.to_string() }).unwrap();
            sent += 1;
        }

        let mut received = 0;
        while received < sent {
            if let Some(message) = other.receive::<ToInit>().unwrap() {
                assert_eq!(message, ToInit::Failed { code: 70, message: received.to_string() });
                received += 1;
            } else {
                end.flush().unwrap();
            }
        }

        assert!(!end.is_clogged());
    }
}
