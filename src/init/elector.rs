//! The elector as init's child: how it is started, and init's end of the link.
//!
//! Never blocks: messages to an elector that does not read are queued, and one that is silent for D is killed.

use std::{
    os::fd::{AsFd, BorrowedFd},
    path::Path,
};

use crate::{
    exit,
    link::{LinkError, ToElector, ToInit, Welcome},
    process::{
        Pid, kill,
        signals::Inherited,
        spawn::{Command, Input, Outcome, Place, Setup, SpawnError, Spawning},
    },
    wire::{Broken, End},
};

/// This very program, even after its file was replaced.
const OURSELVES: &str = "/proc/self/exe";

/// No elector could be started.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    /// No socket pair, or none that takes anything.
    #[error("there is no link for an elector")]
    Link(#[source] Broken),
    /// No process.
    #[error("no elector can be started")]
    Spawn(#[from] SpawnError),
    /// The Welcome does not fit.
    #[error("the configuration does not fit into the link")]
    Welcome(#[source] LinkError),
}

/// An elector that was killed and is not reaped.
#[derive(Debug)]
pub(super) struct Killed {
    pub(super) pid: Pid,
    /// Why it never ran, if it did not.
    pub(super) failure: Option<String>,
}

/// A running elector.
#[derive(Debug)]
pub(super) struct Elector {
    spawning: Spawning,
    link: End,
    /// Why nothing more can be sent to it; reported after what came from it.
    broken: Option<Broken>,
    /// It has spoken: until then, what it is to log would be lost if it ended before it reads.
    greeted: bool,
}

impl Elector {
    /// Starts one in a session of its own, with the Welcome as the first message in its link.
    pub(super) fn start(welcome: Welcome, inherited: Inherited) -> Result<Self, StartError> {
        let (mut link, theirs) = End::pair().map_err(StartError::Link)?;
        link.send(&ToElector::Welcome(Box::new(welcome))).map_err(|broken| match broken {
            Broken::Message(unfit) => StartError::Welcome(unfit),
            broken @ (Broken::Closed | Broken::Socket(_)) => StartError::Link(broken),
        })?;
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
        Ok(Self { spawning, link, broken: None, greeted: false })
    }

    pub(super) fn pid(&self) -> Pid {
        self.spawning.pid
    }

    /// SIGKILL to it and its credential plugins.
    pub(super) fn kill(&self) {
        // It may be gone already. The session may not exist yet, hence both.
        let _ = kill::send(self.pid(), kill::SIGKILL);
        let _ = kill::send_group(self.pid(), kill::SIGKILL);
    }

    /// Why it never ran, if it did not.
    pub(super) fn failure(&mut self) -> Option<String> {
        match self.spawning.outcome()? {
            Outcome::Failed(failure) if failure.code() == exit::NOT_FOUND => {
                Some(format!("{failure}: it is started from {OURSELVES}, and without /proc this replica never leads"))
            }
            Outcome::Failed(failure) => Some(failure.to_string()),
            Outcome::Done | Outcome::Late => None,
        }
    }

    /// The next message, if there is one. After the last one: why there will be no more, or why nothing can be sent.
    pub(super) fn receive(&mut self) -> Result<Option<ToInit>, Broken> {
        let received = self.link.receive()?;
        self.greeted |= received.is_some();
        if received.is_none() { self.broken.take().map_or(Ok(None), Err) } else { Ok(received) }
    }

    /// Sends a message now, or once the elector has room for it. What is only for the log is not queued, and a warning not left to
    /// an elector that may end before it reads: false if it was not sent.
    pub(super) fn send(&mut self, message: &ToElector) -> bool {
        let is_for_log = matches!(message, ToElector::Warn(_) | ToElector::Hooked { .. });
        let is_unheard = matches!(message, ToElector::Warn(_)) && !self.greeted;
        if is_for_log && self.is_clogged() || is_unheard {
            return false;
        }
        match self.link.send(message) {
            Ok(()) => true,
            // What init says is short; a line that does not fit is left to the caller.
            Err(Broken::Message(_)) => false,
            Err(broken) => {
                self.broken = Some(broken);
                !is_for_log
            }
        }
    }

    /// Sends what the elector has room for. Its death, and a message that is lost, show in [`Self::receive`].
    pub(super) fn flush(&mut self) {
        if let Err(broken) = self.link.flush() {
            self.broken = Some(broken);
        }
    }

    /// Whether something waits for room.
    pub(super) fn is_clogged(&self) -> bool {
        self.link.is_clogged() && self.broken.is_none()
    }
}

impl AsFd for Elector {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}
