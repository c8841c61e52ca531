//! The terminal on standard input, if init has one: who is in its foreground.
//!
//! Never reads or writes it. All calls need SIGTTOU blocked, as init has it: a background process that hands the terminal
//! over would be stopped otherwise.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use nix::{
    sys::termios::tcgetsid,
    unistd::{Pid, getpgrp, getsid, isatty, tcgetpgrp, tcsetpgrp},
};

/// Our controlling terminal on standard input, with us in its foreground.
#[derive(Clone, Copy, Debug)]
pub struct Terminal {
    fd: BorrowedFd<'static>,
    ours: Pid,
}

impl Terminal {
    /// The terminal, if it is ours to hand over: standard input is one, it is our controlling terminal, and our process group is
    /// in its foreground (not so in a shell's background job).
    #[must_use]
    pub fn of_stdin() -> Option<Self> {
        let fd = stdin();
        let ours = getpgrp();
        let is_ours = isatty(fd).ok()? && tcgetsid(fd).ok()? == getsid(None).ok()? && tcgetpgrp(fd).ok()? == ours;
        is_ours.then_some(Self { fd, ours })
    }

    /// The process group in its foreground; `None` if it has hung up.
    #[must_use]
    pub fn foreground(self) -> Option<Pid> {
        tcgetpgrp(self.fd).ok()
    }

    /// Puts `group` of our session into the foreground.
    ///
    /// # Errors
    /// Any error of tcsetpgrp(3).
    pub fn hand_to(self, group: Pid) -> io::Result<()> {
        Ok(tcsetpgrp(self.fd, group)?)
    }

    /// Puts us back into the foreground.
    ///
    /// # Errors
    /// Any error of tcsetpgrp(3).
    pub fn take_back(self) -> io::Result<()> {
        self.hand_to(self.ours)
    }
}

impl AsFd for Terminal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd
    }
}

#[expect(unsafe_code, reason = "standard input as a descriptor that outlives every borrow")]
const fn stdin() -> BorrowedFd<'static> {
    // SAFETY: nothing in tenure closes descriptor 0; std opens /dev/null there if it was closed at the start.
    unsafe { BorrowedFd::borrow_raw(libc::STDIN_FILENO) }
}
