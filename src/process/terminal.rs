//! Our controlling terminal, if init has one: who is in its foreground.
//!
//! Never reads or writes it. All calls need SIGTTOU blocked, as init has it: a background process that hands the terminal
//! over would be stopped otherwise.

use std::{
    fs::{File, OpenOptions},
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::OpenOptionsExt as _,
    },
    sync::OnceLock,
};

use nix::{
    sys::termios::tcgetsid,
    unistd::{Pid, getpgrp, getsid, isatty, tcgetpgrp, tcsetpgrp},
};

/// Our controlling terminal, with us in its foreground when it was found.
#[derive(Clone, Copy, Debug)]
pub struct Terminal {
    fd: BorrowedFd<'static>,
    ours: Pid,
}

impl Terminal {
    /// The terminal, if it is ours to hand over: it is standard input and output, it is our controlling terminal, and our process
    /// group is in its foreground (not so in a shell's background job). If the output goes into a pipe, a pager at the other end may
    /// need the terminal.
    pub fn of_streams() -> Option<Self> {
        let session = getsid(None).ok()?;
        let is_controlling = |fd| isatty(fd) == Ok(true) && tcgetsid(fd) == Ok(session);
        let (input, output) = streams();
        (is_controlling(input) && is_controlling(output)).then(|| Self { fd: input, ours: getpgrp() })?.if_ours()
    }

    /// The same, whatever standard input and output are. Once opened it stays so.
    pub fn of_session() -> Option<Self> {
        Self { fd: session()?, ours: getpgrp() }.if_ours()
    }

    /// Returns true if this process has a terminal at all. A shell's `fg` may put it into the foreground at any time.
    pub fn is_there() -> bool {
        Self::of_streams().is_some() || session().is_some()
    }

    /// Returns the terminal, if this process is in its foreground. Where our group belongs to a shell in another PID namespace
    /// (`unshare -p`), the kernel calls each group 0, and nobody can know.
    pub fn if_ours(self) -> Option<Self> {
        (self.ours.as_raw() != 0 && self.foreground() == Some(self.ours)).then_some(self)
    }

    /// The process group in its foreground; `None` if it has hung up.
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

fn session() -> Option<BorrowedFd<'static>> {
    static OPENED: OnceLock<Option<File>> = OnceLock::new();
    let open = || OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOCTTY).open("/dev/tty").ok();
    Some(OPENED.get_or_init(open).as_ref()?.as_fd())
}

/// Returns the height of the terminal that is standard output.
#[expect(unsafe_code, reason = "nix asks no terminal for its size")]
pub fn rows() -> Option<usize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the call fills the one structure that it is given.
    let asked = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    (asked == 0 && size.ws_row > 0).then(|| size.ws_row.into())
}

/// Standard input and output.
#[expect(unsafe_code, reason = "descriptors that outlive every borrow")]
const fn streams() -> (BorrowedFd<'static>, BorrowedFd<'static>) {
    // SAFETY: nothing in tenure closes descriptors 0 and 1; std opens /dev/null there if they were closed at the start.
    unsafe { (BorrowedFd::borrow_raw(libc::STDIN_FILENO), BorrowedFd::borrow_raw(libc::STDOUT_FILENO)) }
}
