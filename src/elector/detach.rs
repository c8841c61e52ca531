//! Detaches the elector: its session, its name, and its signals, of which none ends it.
//!
//! Init decides its end. Signals are caught and dropped. If they were blocked or ignored, credential plugins would inherit that,
//! and could not be ended.

use std::{io, ptr};

use nix::{
    errno::Errno,
    sys::{
        prctl,
        signal::{SaFlags, SigAction, SigHandler, SigSet, Signal},
    },
    unistd::setsid,
};

use crate::{config, process::disposition::Disposition};

/// Detaches from the terminal, and catches all signals.
///
/// # Errors
/// A signal cannot be caught.
pub(super) fn detach() -> io::Result<()> {
    for signal in Signal::iterator().filter(|signal| !is_kept(config::Signal(*signal as i32))) {
        catch(signal as i32)?;
    }
    // What was just done to SIGTERM: a C library would refuse the signals that it uses itself.
    let caught = Disposition::of(Signal::SIGTERM as i32)?;
    for signal in config::Signal::REAL_TIME {
        caught.set(signal)?;
    }
    SigSet::empty().thread_set_mask()?;
    // ps and top would show `exe`, because init starts it through /proc/self/exe.
    let _ = prctl::set_name(c"tenure-elector");
    // A process group leader cannot do this, and init may have made it one.
    let _ = setsid();
    Ok(())
}

/// Returns true for the signals that are not caught: those that cannot be, the elector's own faults, and those that do nothing
/// anyway.
fn is_kept(signal: config::Signal) -> bool {
    let own = [libc::SIGKILL, libc::SIGSTOP, libc::SIGPIPE];
    own.contains(&signal.0) || config::Signal::FAULTS.contains(&signal.0) || signal.is_ignored_by_default()
}

#[expect(unsafe_code, reason = "a signal handler is installed")]
fn catch(signal: i32) -> nix::Result<()> {
    extern "C" fn drop_it(_: i32) {}
    let action = libc::sigaction::from(SigAction::new(SigHandler::Handler(drop_it), SaFlags::SA_RESTART, SigSet::empty()));
    // SAFETY: the handler does nothing, so it may run at any time; nothing is written through a null pointer.
    Errno::result(unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) }).map(drop)
}
