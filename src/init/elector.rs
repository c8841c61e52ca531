//! The elector as init's child: how it is started, and init's end of the link.
//!
//! Never blocks: an elector that does not read has its messages kept for it, and is killed when it is silent for D.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
    path::Path,
};

use nix::{
    errno::Errno,
    sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair},
};

use crate::{
    link::{LinkError, MAX_MESSAGE, ToElector, ToInit, Welcome, decode, encode},
    process::{
        Pid, kill,
        signals::Inherited,
        spawn::{Command, Input, Outcome, Place, Setup, SpawnError, Spawning},
    },
};

/// This very program, also after its file was replaced.
const OURSELVES: &str = "/proc/self/exe";

/// No elector could be started.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    /// No socket pair.
    #[error("there is no link for an elector")]
    Link(#[source] io::Error),
    /// No process.
    #[error("no elector can be started")]
    Spawn(#[from] SpawnError),
    /// The Welcome does not fit.
    #[error("the configuration does not fit into the link")]
    Welcome(#[from] LinkError),
}

/// The link gives nothing more.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    /// The elector closed it, or died.
    #[error("the elector has closed its link")]
    Closed,
    /// The socket failed.
    #[error("the link to the elector failed")]
    Socket(#[source] io::Error),
    /// What came is no message.
    #[error("the elector does not speak init's language")]
    Message(#[source] LinkError),
}

/// A running elector.
#[derive(Debug)]
pub(super) struct Elector {
    spawning: Spawning,
    socket: OwnedFd,
    unsent: VecDeque<Vec<u8>>,
    /// Why a message was lost, so that nothing may follow it.
    failed: Option<Errno>,
    buffer: Vec<u8>,
}

impl Elector {
    /// Starts one in a session of its own, with the Welcome as the first message in its link.
    pub(super) fn start(welcome: Welcome, inherited: Inherited) -> Result<Self, StartError> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let pair = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags);
        let (socket, theirs) = pair.map_err(|errno| StartError::Link(errno.into()))?;
        let welcome = encode(&ToElector::Welcome(Box::new(welcome)))?;
        let command = Command::new(Path::new(OURSELVES), &["tenure".into(), "elector".into()], std::env::vars_os())?;
        let spawning = command.spawn(&Setup {
            inherited,
            place: Place::Session,
            directory: None,
            input: Input::Null,
            link: Some(theirs.as_fd()),
            oom_score_adjust: 0,
            not_after: None,
            fuse: None,
        })?;
        let mut elector =
            Self { spawning, socket, unsent: VecDeque::from([welcome]), failed: None, buffer: vec![0; MAX_MESSAGE] };
        elector.flush();
        Ok(elector)
    }

    pub(super) fn pid(&self) -> Pid {
        self.spawning.pid
    }

    /// SIGKILL to it and its credential plugins.
    pub(super) fn kill(&self) {
        // Gone is as good. The session may not exist yet, hence both.
        let _ = kill::send(self.pid(), kill::SIGKILL);
        let _ = kill::send_group(self.pid(), kill::SIGKILL);
    }

    /// Why it never ran, if it did not.
    pub(super) fn failure(&mut self) -> Option<String> {
        match self.spawning.outcome()? {
            Outcome::Failed(failure) => Some(failure.to_string()),
            Outcome::Done | Outcome::Late => None,
        }
    }

    /// The next message, if one is there. After the last: why none will be.
    pub(super) fn receive(&mut self) -> Result<Option<ToInit>, Broken> {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC;
        let length = loop {
            match recv(self.socket.as_raw_fd(), &mut self.buffer, flags) {
                Ok(0) | Err(Errno::ECONNRESET) => return Err(Broken::Closed),
                Ok(length) => break length,
                Err(Errno::EAGAIN) => return self.failed.map_or(Ok(None), |errno| Err(Broken::Socket(errno.into()))),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(Broken::Socket(errno.into())),
            }
        };
        let Some(bytes) = self.buffer.get(..length) else { return Err(Broken::Message(LinkError::TooLong(length))) };
        let message = decode(bytes).map_err(Broken::Message)?;
        Ok(Some(message))
    }

    /// Sends a message now, or once the elector has room for it. What is only to be told of is not kept: false if it was not sent.
    pub(super) fn send(&mut self, message: &ToElector) -> bool {
        if matches!(message, ToElector::Log { .. } | ToElector::Hooked { .. }) && self.is_clogged() {
            return false;
        }
        // What init says is short; a line that is not is cut by nobody and told by nobody.
        let Ok(bytes) = encode(message) else { return false };
        self.unsent.push_back(bytes);
        self.flush();
        true
    }

    /// Sends what the elector has room for. Its death, and a message that is lost, show in [`Self::receive`].
    pub(super) fn flush(&mut self) {
        while let Some(message) = self.unsent.front().filter(|_| self.failed.is_none()) {
            match send(self.socket.as_raw_fd(), message, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL) {
                Ok(_) | Err(Errno::EPIPE | Errno::ECONNRESET) => drop(self.unsent.pop_front()),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return,
                Err(errno) => self.failed = Some(errno),
            }
        }
    }

    /// Whether something waits for room.
    pub(super) fn is_clogged(&self) -> bool {
        !self.unsent.is_empty() && self.failed.is_none()
    }
}

impl AsFd for Elector {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
