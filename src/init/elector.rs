//! The elector as init's child: how it is started, init's end of the link, and those that were killed and are not reaped.
//!
//! Never blocks: messages to an elector that does not read are queued, and one that is silent for D is killed.

use std::{os::fd::AsFd, path::Path};

use nix::poll::{PollFd, PollFlags};

use crate::{
    exit,
    link::{Exit, InitialState, LinkError, ToElector, ToInit},
    process::{
        Pid, kill,
        signals::Inherited,
        spawn::{Command, Input, Outcome, ProcessGroup, Setup, SpawnError, Spawning},
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
    /// The InitialState does not fit.
    #[error("the configuration does not fit into the link")]
    InitialState(#[source] LinkError),
}

/// The electors that have not been reaped.
pub(super) struct ElectorProcesses {
    inherited: Inherited,
    /// The one that init listens to.
    current: Option<Elector>,
    killed: Vec<Killed>,
    /// What was last said of an elector's end, or of one that could not begin; empty once one has spoken.
    complaint: String,
}

/// An elector that was killed and is not reaped.
#[derive(Debug)]
struct Killed {
    pid: Pid,
    /// Why it never ran, if it did not.
    failure: Option<String>,
}

impl ElectorProcesses {
    pub(super) const fn new(inherited: Inherited) -> Self {
        Self { inherited, current: None, killed: Vec::new(), complaint: String::new() }
    }

    /// Starts one in a session of its own, with the InitialState as the first message in its link.
    pub(super) fn start(&mut self, initial: InitialState) -> Result<(), StartError> {
        self.current = Some(Elector::start(initial, self.inherited)?);
        Ok(())
    }

    /// SIGKILL to the current one. Its link stays until [`Self::close`].
    pub(super) fn kill(&mut self) {
        if let Some(elector) = &mut self.current {
            elector.kill();
            self.killed.push(Killed { pid: elector.pid(), failure: elector.failure() });
        }
    }

    /// Closes the link of the current one.
    pub(super) fn close(&mut self) {
        self.current = None;
    }

    pub(super) fn is_running(&self) -> bool {
        self.current.is_some()
    }

    pub(super) fn is_current(&self, pid: Pid) -> bool {
        self.current.as_ref().is_some_and(|elector| elector.pid() == pid)
    }

    /// Every one that has not been reaped.
    pub(super) fn pids(&self) -> Vec<Pid> {
        self.killed.iter().map(|killed| killed.pid).chain(self.current.as_ref().map(Elector::pid)).collect()
    }

    /// One was reaped, the link of the current one drained: how it ended. None if it was another process.
    pub(super) fn reaped(&mut self, pid: Pid, exit: Exit) -> Option<String> {
        let failure = if let Some(index) = self.killed.iter().position(|killed| killed.pid == pid) {
            self.killed.swap_remove(index).failure
        } else {
            self.current.take_if(|elector| elector.pid() == pid)?.failure()
        };
        Some(failure.unwrap_or_else(|| exit.to_string()))
    }

    /// Whether this was not the last thing that was said of an end or a failed start.
    pub(super) fn is_news(&mut self, line: &str) -> bool {
        let is_news = line != self.complaint;
        line.clone_into(&mut self.complaint);
        is_news
    }

    /// The next message, if there is one. After the last one: why there will be no more, or why nothing can be sent.
    pub(super) fn receive(&mut self) -> Result<Option<ToInit>, Broken> {
        let Some(elector) = &mut self.current else { return Ok(None) };
        let received = elector.receive()?;
        if received.is_some() {
            self.complaint.clear();
        }
        Ok(received)
    }

    /// False if it was not sent.
    pub(super) fn send(&mut self, message: &ToElector) -> bool {
        self.current.as_mut().is_some_and(|elector| elector.send(message))
    }

    /// Sends what the current one has room for.
    pub(super) fn flush(&mut self) {
        if let Some(elector) = &mut self.current {
            elector.flush();
        }
    }

    /// What to wait for on the link.
    pub(super) fn poll_fd(&self) -> Option<PollFd<'_>> {
        let elector = self.current.as_ref()?;
        let room = if elector.is_clogged() { PollFlags::POLLOUT } else { PollFlags::empty() };
        Some(PollFd::new(elector.link.as_fd(), PollFlags::POLLIN | room))
    }
}

/// A running elector.
#[derive(Debug)]
struct Elector {
    spawning: Spawning,
    link: End,
    /// Why nothing more can be sent to it; reported after what came from it.
    broken: Option<Broken>,
    /// It has spoken: until then, what it is to log would be lost if it ended before it reads.
    greeted: bool,
}

impl Elector {
    fn start(initial: InitialState, inherited: Inherited) -> Result<Self, StartError> {
        let (mut link, theirs) = End::pair().map_err(StartError::Link)?;
        link.send(&ToElector::InitialState(Box::new(initial))).map_err(|broken| match broken {
            Broken::Message(unfit) => StartError::InitialState(unfit),
            broken @ (Broken::Closed | Broken::Socket(_)) => StartError::Link(broken),
        })?;
        let command = Command::new(Path::new(OURSELVES), &["tenure".into(), "elector".into()], std::env::vars_os())?;
        let spawning = command.spawn(&Setup {
            inherited,
            group: ProcessGroup::Session,
            input: Input::Null,
            output: None,
            link: Some(theirs.as_fd()),
            oom_score_adjust: 0,
            not_after: None,
            fuse: None,
        })?;
        Ok(Self { spawning, link, broken: None, greeted: false })
    }

    fn pid(&self) -> Pid {
        self.spawning.pid
    }

    /// SIGKILL to it and its credential plugins.
    fn kill(&self) {
        // It may be gone already. The session may not exist yet, hence both.
        let _ = kill::send(self.pid(), kill::SIGKILL);
        let _ = kill::send_group(self.pid(), kill::SIGKILL);
    }

    /// Why it never ran, if it did not.
    fn failure(&mut self) -> Option<String> {
        match self.spawning.outcome()? {
            Outcome::Failed(failure) if failure.code() == exit::NOT_FOUND => {
                Some(format!("{failure}: it is started from {OURSELVES}, and without /proc this replica never leads"))
            }
            Outcome::Failed(failure) => Some(failure.to_string()),
            Outcome::Done | Outcome::Late => None,
        }
    }

    /// The next message, if there is one. After the last one: why there will be no more, or why nothing can be sent.
    fn receive(&mut self) -> Result<Option<ToInit>, Broken> {
        let received = self.link.receive()?;
        self.greeted |= received.is_some();
        if received.is_none() { self.broken.take().map_or(Ok(None), Err) } else { Ok(received) }
    }

    /// Sends a message now, or once the elector has room for it. What is only for the log is not queued, and a warning not left to
    /// an elector that may end before it reads: false if it was not sent.
    fn send(&mut self, message: &ToElector) -> bool {
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
    fn flush(&mut self) {
        if let Err(broken) = self.link.flush() {
            self.broken = Some(broken);
        }
    }

    /// Whether something waits for room.
    fn is_clogged(&self) -> bool {
        self.link.is_clogged() && self.broken.is_none()
    }
}
