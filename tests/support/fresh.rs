//! How a test binary was started makes no difference to what it starts: `nohup`, a job of a shell in the background, a careful umask.

use nix::sys::{
    signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction},
    stat::{Mode, umask},
};

/// Gives this process, and so its children, the dispositions and the umask that a container starts with. Its standard descriptors are
/// open already: Rust sees to that.
#[allow(unsafe_code, reason = "dispositions are set")]
pub fn start() {
    umask(Mode::from_bits_truncate(0o022));
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    for signal in Signal::iterator().filter(|signal| !matches!(signal, Signal::SIGKILL | Signal::SIGSTOP)) {
        // SAFETY: no handler is installed.
        let before = unsafe { sigaction(signal, &default) }.expect("a signal that has a disposition");
        // SAFETY: it was installed before; Rust has some for faults, and ignores SIGPIPE, which no child inherits.
        if signal == Signal::SIGPIPE || !matches!(before.handler(), SigHandler::SigIgn) {
            unsafe { sigaction(signal, &before) }.expect("the same");
        }
    }
}
