//! Job control: the foreground of the terminal, and suspending with Ctrl-Z.

use crate::{
    config::Signal,
    link::Exit,
    process::{
        PID1, Pid, kill, reap,
        signals::{self, Received},
        spawn::ProcessGroup,
        terminal::Terminal,
    },
    supervision::Target,
};

const UNSUSPENDED: &str = "Ctrl-Z suspends no workload that runs under a Lease";
const WAITING: &str = "the workload is stopped by SIGTTIN or SIGTTOU, and tenure has no terminal to give it";

/// The terminal, and the signals of job control.
pub(super) struct Foreground {
    terminal: Option<Terminal>,
    /// Without a Lease nobody has to guard the workload, so init is suspended with it.
    suspends: bool,
    /// Init itself stops the workload, by SIGSTOP.
    freezes: bool,
    /// A child changed its state; it may have been suspended.
    changed: bool,
    /// Init got this SIGTSTP, SIGTTIN or SIGTTOU and passed it on.
    told_to_stop: Option<Received>,
    /// SIGINT or SIGQUIT of a key that init got, or that has ended the workload.
    key: Option<Key>,
    /// The signal of a key that init got last, and has not passed on yet.
    pressed: Option<Signal>,
    /// Init has sent the workload such a signal.
    sent: bool,
}

/// A key that ends programs.
struct Key {
    signal: i32,
    /// Only the workload's process group got it.
    is_workloads: bool,
}

impl Foreground {
    pub(super) const fn new(terminal: Option<Terminal>, suspends: bool, freezes: bool) -> Self {
        Self { terminal, suspends, freezes, changed: false, told_to_stop: None, key: None, pressed: None, sent: false }
    }

    /// Remembers a signal that init sends the workload, and returns who gets it: that of a key is for the whole job, as from the terminal.
    pub(super) fn sends(&mut self, target: Target, signal: Signal) -> Target {
        self.sent |= matches!(signal.0, libc::SIGINT | libc::SIGQUIT);
        match target {
            Target::Main(pid) if self.pressed.take_if(|pressed| *pressed == signal).is_some() => Target::Group(pid),
            Target::Main(_) | Target::Group(_) => target,
        }
    }

    /// The process group of a workload that starts. A shell may have taken its terminal back since the start of init.
    pub(super) fn group(&mut self) -> ProcessGroup {
        self.terminal = self.terminal.and_then(Terminal::if_ours);
        self.terminal.map_or(ProcessGroup::Own, ProcessGroup::Foreground)
    }

    /// Returns the signal if the agent is to hear of it. An error is a line for the log.
    pub(super) fn filter(&mut self, received: Received, main: Option<Pid>) -> Result<Option<i32>, &'static str> {
        match received.signal.0 {
            libc::SIGCHLD => self.changed = true,
            // From the kernel they are about init's own use of the terminal. From people they are for the workload.
            libc::SIGTTIN | libc::SIGTTOU if received.from_kernel => return Ok(None),
            // Ctrl-Z in a terminal that was not handed over.
            libc::SIGTSTP if received.from_kernel && !self.suspends => return Err(UNSUSPENDED),
            libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => self.told_to_stop = self.suspends.then_some(received),
            libc::SIGINT | libc::SIGQUIT if received.from_kernel => {
                self.key = Some(Key { signal: received.signal.0, is_workloads: false });
            }
            libc::SIGCONT => {
                self.told_to_stop = None;
                self.hand_over(main);
            }
            _ => {}
        }
        if received.signal != Signal(libc::SIGCHLD) {
            let is_key = received.from_kernel && matches!(received.signal.0, libc::SIGINT | libc::SIGQUIT | libc::SIGTSTP);
            self.pressed = is_key.then_some(received.signal);
        }
        Ok(Some(received.signal.0))
    }

    /// Reacts to a workload that job control has stopped: by Ctrl-Z in a terminal that it has, by its use of the terminal from
    /// the background, or by a Ctrl-Z that init has passed on. No shell sees that. Either init stops too, until a shell continues
    /// it; or the workload is given the terminal or continued, so that it does not hang.
    ///
    /// Returns a line for the log. Under a Lease a workload stays stopped if it needs a terminal and there is none.
    pub(super) fn resume(&mut self, main: Option<Pid>) -> Option<&'static str> {
        let main = main?;
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        let (in_foreground, by_terminal) = match reap::stopped_by(main)? {
            Signal(libc::SIGTSTP) if self.terminal.is_some() => (true, true),
            // Some programs, such as top, handle Ctrl-Z and then stop themselves by SIGSTOP.
            Signal::STOP if !self.freezes && self.has(main) => (true, true),
            stop @ Signal(libc::SIGTSTP) => {
                let told = self.told_to_stop.take().filter(|told| told.signal == stop)?;
                (told.from_kernel, told.from_kernel)
            }
            Signal(libc::SIGTTIN | libc::SIGTTOU) if self.lend(main) => {
                go_on(main);
                return None;
            }
            // If a person sent the signal, the job is not stopped, as with a person's SIGTSTP.
            stop @ Signal(libc::SIGTTIN | libc::SIGTTOU) => {
                (false, self.told_to_stop.take().is_none_or(|told| told.signal != stop))
            }
            Signal(_) => return None,
        };
        if self.suspends {
            self.take_back();
            // Without init the terminal would have stopped the whole job, such as a pipeline or a script.
            signals::suspend(by_terminal);
        }
        if self.hand_over(Some(main)) || in_foreground {
            go_on(main);
        }
        (!self.suspends).then_some(if in_foreground { UNSUSPENDED } else { WAITING })
    }

    /// Returns true if the workload has the terminal.
    fn has(&self, main: Pid) -> bool {
        self.terminal.is_some_and(|terminal| terminal.foreground() == Some(main))
    }

    /// Gives the workload the session's terminal, although standard input or output is another file (as in a pipeline).
    fn lend(&mut self, main: Pid) -> bool {
        self.hand_over(Some(main)) || {
            self.terminal = Terminal::of_session();
            self.hand_over(Some(main))
        }
    }

    /// Gives the workload the terminal, if init has it (perhaps only since a shell's `fg`). After a `bg` the shell has it.
    pub(super) fn hand_over(&mut self, main: Option<Pid>) -> bool {
        let Some(main) = main else { return false };
        let Some(terminal) = Terminal::of_streams().or_else(|| self.terminal?.if_ours()) else {
            self.terminal = self.terminal.filter(|terminal| terminal.foreground() == Some(main));
            return false;
        };
        self.terminal = Some(terminal);
        terminal.hand_to(main).is_ok()
    }

    /// Takes the terminal back from a workload that has ended.
    pub(super) fn ended(&mut self, main: Pid, exit: Exit) {
        let (key, sent, had_it) = (self.key.take(), std::mem::take(&mut self.sent), self.has(main));
        self.key = match exit {
            Exit::Signal(signal @ (libc::SIGINT | libc::SIGQUIT)) if had_it && !sent => Some(Key { signal, is_workloads: true }),
            Exit::Signal(signal) => key.filter(|key| key.signal == signal),
            // It has handled the key.
            Exit::Code(_) => None,
        };
        self.take_back();
    }

    /// Ends init by the signal of a key, if that is what its exit code says: a script or a loop around it goes on otherwise.
    pub(super) fn end(&self, code: u8) {
        if let Some(key) = &self.key
            && Exit::Signal(key.signal).code() == code
            && Pid::this() != PID1
        {
            signals::end_by(Signal(key.signal), key.is_workloads);
        }
    }

    pub(super) fn take_back(&self) {
        if let Some(terminal) = self.terminal {
            // An error means that the terminal is gone.
            let _ = terminal.take_back();
        }
    }
}

/// Continues the whole foreground job. An error means that it is gone.
fn go_on(main: Pid) {
    let _ = kill::send_group(main, Signal::CONT);
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIN: Target = Target::Main(7);

    /// Who gets `sent` after init got `signal`, and who gets it once more.
    fn targets(suspends: bool, signal: i32, from_kernel: bool, sent: i32) -> [Target; 2] {
        let mut foreground = Foreground::new(None, suspends, false);
        let _ = foreground.filter(Received { signal: Signal(signal), from_kernel }, None);
        let _ = foreground.filter(Received { signal: Signal(libc::SIGCHLD), from_kernel: true }, None);
        [foreground.sends(MAIN, Signal(sent)), foreground.sends(MAIN, Signal(sent))]
    }

    #[test]
    fn a_key_is_for_the_whole_job_once_and_what_else_is_sent_for_the_main_process() {
        let whole = [Target::Group(7), MAIN];
        for key in [libc::SIGINT, libc::SIGQUIT, libc::SIGTSTP] {
            assert_eq!(targets(true, key, true, key), whole);
            assert_eq!(targets(true, key, false, key), [MAIN; 2], "of a person");
            assert_eq!(targets(true, key, true, libc::SIGTERM), [MAIN; 2], "a stop after a key that went nowhere");
        }
        assert_eq!(targets(false, libc::SIGTSTP, true, libc::SIGTSTP), [MAIN; 2], "it suspends nothing");
        assert_eq!(targets(true, libc::SIGWINCH, true, libc::SIGWINCH), [MAIN; 2]);
    }
}
