//! Who has the terminal, and who is suspended with whom.

use super::Drive;
use crate::{
    config::Signal,
    process::{Pid, kill, reap, signals, terminal::Terminal},
};

pub(super) const UNSUSPENDED: &str = "Ctrl-Z suspends no workload that runs under a Lease";
const WAITING: &str = "the workload is stopped by SIGTTIN or SIGTTOU, and tenure has no terminal to give it";

impl Drive {
    /// Ctrl-Z in a terminal that was handed over stops the workload alone, and so does its use of the terminal from the
    /// background, or a Ctrl-Z that init passes on. No shell sees that: either init stops too until a shell continues it, or the
    /// workload is given the terminal or continued, so that this does not hang. One that is stopped for want of a terminal that
    /// nobody has stays so under a Lease, and that is logged. After the deadlines, because it may continue the workload of a
    /// leader (law 15).
    pub(super) fn resume_suspended(&mut self) {
        let Some(main) = self.main.filter(|_| std::mem::take(&mut self.changed)) else { return };
        let (in_foreground, by_terminal) = match reap::stopped_by(main) {
            Some(Signal(libc::SIGTSTP)) if self.terminal.is_some() => (true, true),
            Some(stop @ Signal(libc::SIGTSTP)) => match self.told_to_stop.take().filter(|told| told.signal == stop) {
                Some(told) => (told.from_kernel, told.from_kernel),
                None => return,
            },
            Some(Signal(libc::SIGTTIN | libc::SIGTTOU)) if self.lend_terminal() => return go_on(main),
            // One that a person sent stops this job as little as that person's SIGTSTP does.
            Some(stop @ Signal(libc::SIGTTIN | libc::SIGTTOU)) => {
                (false, self.told_to_stop.take().is_none_or(|told| told.signal != stop))
            }
            Some(_) | None => return,
        };
        if self.suspends {
            self.take_terminal_back();
            // Without init the terminal would have stopped the whole job, such as a pipeline or a script around it.
            signals::suspend(by_terminal);
        } else {
            self.warn(if in_foreground { UNSUSPENDED } else { WAITING }.into());
        }
        if self.hand_terminal_over() || in_foreground {
            go_on(main);
        }
    }

    /// Gives the workload the terminal that it asks for although standard input is another file, as at the end of a pipe.
    fn lend_terminal(&mut self) -> bool {
        self.hand_terminal_over() || {
            self.terminal = Terminal::of_session();
            self.hand_terminal_over()
        }
    }

    /// Gives the workload the terminal if init has it, perhaps only since a shell's `fg`. After a `bg` it is the shell's.
    pub(super) fn hand_terminal_over(&mut self) -> bool {
        let Some(main) = self.main else { return false };
        let Some(terminal) = Terminal::of_stdin().or_else(|| self.terminal?.if_ours()) else {
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

/// The whole foreground job was stopped. It may be gone.
fn go_on(main: Pid) {
    let _ = kill::send_group(main, Signal(libc::SIGCONT));
}
