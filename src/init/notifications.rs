//! Reads NOTIFY_SOCKET: notifications of the workload, and marks.

use std::os::fd::AsFd;

use crate::{
    notification::{Heard, Notification},
    process::{
        Pid,
        notify::{Mark, NotifySocket},
        scan::Scanner,
    },
};

/// The socket, if there is one.
pub(super) struct Notifications {
    socket: Option<NotifySocket>,
    /// Kinds of dropped notifications that were logged for this run of the workload, so that a flood gives one line.
    rejected: Vec<&'static str>,
}

impl Notifications {
    pub(super) const fn new(socket: Option<NotifySocket>) -> Self {
        Self { socket, rejected: Vec::new() }
    }

    pub(super) const fn socket(&self) -> Option<&NotifySocket> {
        self.socket.as_ref()
    }

    /// Returns the mark of this number, for the caller to set.
    pub(super) fn mark(&self, number: u64) -> Option<Mark<'_>> {
        self.socket.as_ref().map(|socket| Mark { socket: socket.as_fd(), number })
    }

    /// Starts over for a new run of the workload.
    pub(super) fn forget(&mut self) {
        self.rejected.clear();
    }

    /// Reads the next datagram; returns it with lines for the log.
    pub(super) fn next(&mut self, main: Pid, scanner: Option<&Scanner>) -> Option<(Heard, Vec<String>)> {
        let (mut said, mut lines) = (Vec::new(), Vec::new());
        match self.socket.as_ref()?.receive(main, scanner) {
            Ok(Some(Ok(mark @ Heard::Marked(_)))) => return Some((mark, lines)),
            Ok(Some(Ok(Heard::Said(words)))) => said = words,
            Ok(Some(Err(rejected))) if self.is_first(rejected.kind()) => lines.push(rejected.to_string()),
            Ok(Some(Err(_))) => {}
            Ok(None) | Err(_) => return None,
        }
        for why in said.iter().filter_map(|said| if let Notification::Refused(why) = said { Some(*why) } else { None }) {
            if self.is_first(why) {
                lines.push(why.into());
            }
        }
        Some((Heard::Said(said), lines))
    }

    fn is_first(&mut self, kind: &'static str) -> bool {
        let is_first = !self.rejected.contains(&kind);
        if is_first {
            self.rejected.push(kind);
        }
        is_first
    }
}
