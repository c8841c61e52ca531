//! What makes the elector a process of its own: its session, its name, and that no signal ends it.
//!
//! Init decides its end. Signals are caught and dropped instead of blocked or ignored: credential plugins would inherit that, and
//! could not be ended.

use std::{io, ptr};

use nix::{
    errno::Errno,
    sys::{
        prctl,
        signal::{SaFlags, SigAction, SigHandler, SigSet, Signal},
    },
    unistd::setsid,
};

use crate::config;

/// Detaches from the terminal, and is not ended by signals.
///
/// # Errors
/// A signal cannot be caught.
pub(super) fn settle_in() -> io::Result<()> {
    for signal in Signal::iterator().filter(|signal| !KEPT.contains(signal)) {
        catch(signal as i32)?;
    }
    for signal in config::Signal::REAL_TIME {
        // Refused for those that the C library keeps to itself.
        let _ = catch(signal);
    }
    SigSet::empty().thread_set_mask()?;
    // Started through /proc/self/exe, it would be called `exe` in ps and top.
    let _ = prctl::set_name(c"tenure-elector");
    // Refused to a process group leader, which init may have made it.
    let _ = setsid();
    Ok(())
}

/// Signals that stay as they are: those that cannot be caught, the elector's own faults, and those that do nothing anyway.
const KEPT: [Signal; 14] = [
    Signal::SIGKILL,
    Signal::SIGSTOP,
    Signal::SIGFPE,
    Signal::SIGILL,
    Signal::SIGSEGV,
    Signal::SIGBUS,
    Signal::SIGABRT,
    Signal::SIGTRAP,
    Signal::SIGSYS,
    Signal::SIGPIPE,
    Signal::SIGCHLD,
    Signal::SIGCONT,
    Signal::SIGURG,
    Signal::SIGWINCH,
];

#[expect(unsafe_code, reason = "a signal handler is installed")]
fn catch(signal: i32) -> nix::Result<()> {
    extern "C" fn drop_it(_: i32) {}
    let action = libc::sigaction::from(SigAction::new(SigHandler::Handler(drop_it), SaFlags::SA_RESTART, SigSet::empty()));
    // SAFETY: the handler does nothing, so it may run at any time; nothing is written through a null pointer.
    Errno::result(unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) }).map(drop)
}
