//! Who has the terminal, and who is suspended with whom.

use super::Drive;
use crate::{
    config::Signal,
    process::{kill, reap, signals, terminal::Terminal},
};

pub(super) const UNSUSPENDED: &str = "Ctrl-Z suspends no workload that runs under a Lease";

impl Drive {
    /// Ctrl-Z in a terminal that was handed over stops the workload alone, and so does the wish of one in the background to read,
    /// or a Ctrl-Z that init passes on. No shell sees that: init stops with it until a shell continues it, or the workload goes
    /// on, lest its terminal hangs. After the deadlines, for it is the workload of a leader that goes on (law 15).
    pub(super) fn resume_suspended(&mut self) {
        let Some(main) = self.main.filter(|_| std::mem::take(&mut self.changed)) else { return };
        let in_foreground = match reap::stopped_by(main) {
            Some(Signal(libc::SIGTSTP)) if self.terminal.is_some() => true,
            Some(Signal(libc::SIGTSTP)) if std::mem::take(&mut self.told_to_stop) => false,
            Some(Signal(libc::SIGTTIN | libc::SIGTTOU)) => false,
            Some(_) | None => return,
        };
        if self.suspends {
            self.take_terminal_back();
            signals::suspend();
        } else if in_foreground {
            self.warn(UNSUSPENDED.into());
        }
        if self.hand_terminal_over() || in_foreground {
            // All of a foreground job was stopped. It may be gone.
            let _ = kill::send_group(main, Signal(libc::SIGCONT));
        }
    }

    /// The workload gets the terminal if it is init's, who may have got it later by a shell's `fg`. After a `bg` it is the
    /// shell's.
    pub(super) fn hand_terminal_over(&mut self) -> bool {
        let Some(main) = self.main else { return false };
        let Some(terminal) = Terminal::of_stdin() else {
            self.terminal = self.terminal.filter(|terminal| terminal.foreground() == Some(main));
            return false;
        };
        self.terminal = Some(terminal);
        terminal.hand_to(main).is_ok()
    }

    pub(in crate::init) fn take_terminal_back(&self) {
        if let Some(terminal) = self.terminal {
            // The terminal may be gone.
            drop(terminal.take_back());
        }
    }
}
