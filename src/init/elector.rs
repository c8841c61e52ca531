//! The elector as init's child: its start, init's end of the link, and killed electors that are not reaped yet.
//!
//! Never blocks: messages to an elector that does not read are queued. (The agent kills an elector that is silent for D.)

use std::{error::Error, os::fd::AsFd, path::Path};

use nix::poll::{PollFd, PollFlags};

use crate::{
    config::Signal,
    exit,
    link::{InitialState, ToElector, ToInit},
    process::{
        Pid, kill,
        signals::Inherited,
        spawn::{Command, Input, Outcome, ProcessGroup, Setup, Spawning},
    },
    supervision::{NotSpawned, Started},
    wire::{Broken, End},
    words::one_line,
};

use super::processes::started;

/// The program that runs now, even if its file was replaced.
const OURSELVES: &str = "/proc/self/exe";

/// The electors that have not been reaped.
pub(super) struct ElectorProcesses {
    inherited: Inherited,
    unreaped: Vec<Spawning>,
    /// The current elector.
    current: Option<Elector>,
}

/// A running elector.
#[derive(Debug)]
struct Elector {
    pid: Pid,
    link: End,
    /// The error of sending. Reported after all messages that the elector has sent.
    broken: Option<Broken>,
    /// The elector has sent a message. A line for its log would be lost if it ended before it ever reads.
    greeted: bool,
}

impl ElectorProcesses {
    pub(super) const fn new(inherited: Inherited) -> Self {
        Self { inherited, unreaped: Vec::new(), current: None }
    }

    /// Starts an elector in a new session, with the InitialState as the first message in its link.
    pub(super) fn start(&mut self, initial: InitialState) -> Result<Pid, NotSpawned> {
        let (mut link, theirs) = End::pair().map_err(|broken| unlinked(&broken))?;
        link.send(&ToElector::InitialState(Box::new(initial))).map_err(|broken| unlinked(&broken))?;
        let command = Command::new(Path::new(OURSELVES), &["tenure".into(), "elector".into()], std::env::vars_os());
        let spawning = command.and_then(|command| {
            command.spawn(&Setup {
                inherited: self.inherited,
                group: ProcessGroup::Session,
                input: Input::Null,
                output: None,
                link: Some(theirs.as_fd()),
                oom_score_adjust: 0,
                not_after: None,
                fuse: None,
            })
        });
        let spawning = spawning.map_err(|error| unavailable("no elector can be started", &error))?;
        let pid = spawning.pid;
        self.current = Some(Elector { pid, link, broken: None, greeted: false });
        self.unreaped.push(spawning);
        Ok(pid)
    }

    /// Sends SIGKILL to the current elector and its credential plugins. Its link stays open until [`Self::close`].
    pub(super) fn kill(&self) {
        if let Some(Elector { pid, .. }) = self.current {
            // Both, because the session may not exist yet. Errors mean that the process is gone.
            let _ = kill::send(pid, Signal::KILL);
            let _ = kill::send_group(pid, Signal::KILL);
        }
    }

    /// Closes the link of the current elector.
    pub(super) fn close(&mut self) {
        self.current = None;
    }

    /// Pids of all electors that are not reaped.
    pub(super) fn pids(&self) -> Vec<Pid> {
        self.unreaped.iter().map(|spawning| spawning.pid).collect()
    }

    /// Forgets a reaped elector; returns the result of its start. None if the process was no elector.
    pub(super) fn reaped(&mut self, pid: Pid) -> Option<Started> {
        let index = self.unreaped.iter().position(|spawning| spawning.pid == pid)?;
        let outcome = self.unreaped.swap_remove(index).outcome().unwrap_or(Outcome::Done);
        Some(started(outcome, |failure| match failure.code() {
            exit::NOT_FOUND => format!("{failure}: it is started from {OURSELVES}, and without /proc this replica never leads"),
            _ => failure.to_string(),
        }))
    }

    /// Receives the next message, if there is one. Errors (of sending, too) come after the last message.
    pub(super) fn receive(&mut self) -> Result<Option<ToInit>, Broken> {
        let Some(elector) = &mut self.current else { return Ok(None) };
        let received = elector.link.receive()?;
        elector.greeted |= received.is_some();
        if received.is_none() { elector.broken.take().map_or(Ok(None), Err) } else { Ok(received) }
    }

    /// Sends a message, or queues it until the socket has room. Returns false if neither was done. Messages that are only logged
    /// are never queued. A warning is not sent to an elector that has not said anything yet.
    pub(super) fn send(&mut self, message: &ToElector) -> bool {
        let Some(elector) = &mut self.current else { return false };
        let is_for_log = matches!(message, ToElector::Warn(_) | ToElector::Hooked { .. });
        let is_unheard = matches!(message, ToElector::Warn(_)) && !elector.greeted;
        if is_for_log && elector.is_clogged() || is_unheard {
            return false;
        }
        match elector.link.send(message) {
            Ok(()) => true,
            // Init's messages are short; only a long log line does not fit, and the caller logs it.
            Err(Broken::Message(_)) => false,
            Err(broken) => {
                elector.broken = Some(broken);
                !is_for_log
            }
        }
    }

    /// Sends queued messages, as far as the socket has room. [`Self::receive`] reports an error.
    pub(super) fn flush(&mut self) {
        if let Some(elector) = &mut self.current
            && let Err(broken) = elector.link.flush()
        {
            elector.broken = Some(broken);
        }
    }

    /// The event to wait for on the link.
    pub(super) fn poll_fd(&self) -> Option<PollFd<'_>> {
        let elector = self.current.as_ref()?;
        let room = if elector.is_clogged() { PollFlags::POLLOUT } else { PollFlags::empty() };
        Some(PollFd::new(elector.link.as_fd(), PollFlags::POLLIN | room))
    }
}

impl Elector {
    /// Returns true if messages are queued.
    fn is_clogged(&self) -> bool {
        self.link.is_clogged() && self.broken.is_none()
    }
}

/// Why the InitialState is in no link.
fn unlinked(broken: &Broken) -> NotSpawned {
    match broken {
        Broken::Message(unfit) => {
            let message = format!("the configuration does not fit into the link: {}", one_line(unfit));
            NotSpawned::Failed { code: exit::INVALID, message }
        }
        Broken::Closed | Broken::Socket(_) => unavailable("there is no link for an elector", broken),
    }
}

fn unavailable(what: &str, why: &(dyn Error + 'static)) -> NotSpawned {
    NotSpawned::Unavailable { message: format!("{what}: {}", one_line(why)) }
}
