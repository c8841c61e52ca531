//! Reads NOTIFY_SOCKET: notifications of the workload, and marks.

use std::{collections::BTreeSet, os::fd::AsFd};

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
    rejected: BTreeSet<&'static str>,
}

impl Notifications {
    pub(super) const fn new(socket: Option<NotifySocket>) -> Self {
        Self { socket, rejected: BTreeSet::new() }
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
        let received = self.socket.as_ref()?.receive(main, scanner).ok()??;
        let mut lines = Vec::new();
        let heard = received.unwrap_or_else(|rejected| {
            lines.extend(self.rejected.insert(rejected.kind()).then(|| rejected.to_string()));
            Heard::Said(Vec::new())
        });
        if let Heard::Said(said) = &heard {
            for notification in said {
                if let Notification::Refused(why) = notification
                    && self.rejected.insert(why)
                {
                    lines.push((*why).into());
                }
            }
        }
        Some((heard, lines))
    }
}
