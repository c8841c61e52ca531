//! The signal state that tenure was started with and its children get back, and the signals that it receives.
//!
//! Owns the signal mask and the signalfd. Sends signals to this process and its own group only.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use nix::{
    sys::{
        prctl,
        resource::{Resource, getrlimit, setrlimit},
        signal::{SIGTSTP, SigSet, SigmaskHow, raise, sigprocmask},
        signalfd::SignalFd,
    },
    unistd::Pid,
};

use super::{disposition::Disposition, kill, mask::Mask};
use crate::config::Signal;

/// The signal state, other than handlers, and the limit that a program inherits: the workload gets what tenure got.
#[derive(Clone, Copy, Debug)]
pub struct Inherited {
    /// The blocked ones.
    pub mask: Mask,
    /// SIGPIPE was ignored. Rust's runtime ignores it before main.
    pub ignores_pipe: bool,
    /// SIGCHLD was ignored, which would leave no children to reap. tenure changes no other disposition of its own.
    pub ignores_child: bool,
    /// The signals that tenure sends by itself. A program that is started with them ignored, as by nohup, or blocked may never
    /// handle them, so its children get the default, unblocked.
    pub sent: Mask,
    /// The soft limit on descriptors, if tenure has raised its own since.
    pub descriptors: Option<u64>,
}

impl Inherited {
    /// Raises this process's soft limit on descriptors to `enough` beside those that are open, as far as the hard one goes.
    pub fn raise_descriptors(&mut self, enough: u64) {
        let enough = enough.saturating_add(open_descriptors());
        if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
            && soft < enough.min(hard)
            && setrlimit(Resource::RLIMIT_NOFILE, enough.min(hard), hard).is_ok()
        {
            self.descriptors = Some(soft);
        }
    }
}

/// Blocks every signal except the faults, and returns what was in place before the first call.
///
/// # Errors
/// None for a valid set.
pub fn block() -> io::Result<Inherited> {
    let mask = TAKEN.set()?;
    Ok(Inherited {
        mask: *MASK.get_or_init(|| mask),
        ignores_pipe: IGNORED_PIPE.load(Ordering::Relaxed),
        ignores_child: IGNORED_CHILD.load(Ordering::Relaxed),
        sent: Mask::NONE,
        descriptors: None,
    })
}

/// Counts the open descriptors of this process; 0 if /proc does not tell.
pub fn open_descriptors() -> u64 {
    std::fs::read_dir("/proc/self/fd").map_or(0, |files| u64::try_from(files.count()).unwrap_or(u64::MAX))
}

/// [`block`] in the first instructions of a program, long before main. What arrives earlier is lost to PID 1, because the kernel
/// drops a signal that it neither blocks nor handles. For `.init_array`.
pub extern "C" fn block_first() {
    // Whoever needs them blocked calls it again, and gets the error.
    let _ = block();
}

/// Puts back the mask that the program was started with.
pub fn restore() {
    if let Some(mask) = MASK.get() {
        // A mask that was in place is valid.
        let _ = mask.set();
    }
}

/// Stops this process as Ctrl-Z stops one that does not handle it, with the rest of its process group if the `job` is to stop,
/// and returns when it is continued: at once if nobody could do that, as for PID 1 and for the first process of a terminal.
pub fn suspend(job: bool) {
    let mut stop = SigSet::empty();
    stop.add(SIGTSTP);
    // None of it fails for a valid signal.
    let _ = if job { kill::kill(0, Signal(libc::SIGTSTP)) } else { raise(SIGTSTP) };
    let _ = sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&stop), None);
    let _ = sigprocmask(SigmaskHow::SIG_BLOCK, Some(&stop), None);
}

/// Ends this process as a key of the terminal does, by this signal, with the rest of its process group if the `job` is to get it.
/// Returns if nothing comes of it.
pub fn end_by(signal: Signal, job: bool) {
    // A core would show tenure, which did nothing wrong.
    let _ = prctl::set_dumpable(false);
    let _ = Disposition::DEFAULT.set(signal.0);
    let _ = kill::kill(if job { 0 } else { Pid::this().as_raw() }, signal);
    let _ = Mask::ALL.without(signal.0).set();
}

/// A signal that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The signal that arrived.
    pub signal: Signal,
    /// The kernel sent it, as it does for a key of the terminal.
    pub from_kernel: bool,
}

/// The blocked signals as they arrive.
#[derive(Debug)]
pub struct Signals(SignalFd);

impl Signals {
    /// Receives every signal that [`block`] blocked.
    ///
    /// # Errors
    /// Any error of signalfd(2).
    pub fn open() -> io::Result<Self> {
        TAKEN.descriptor().map(Self)
    }

    /// The next pending signal. SIGPIPE and SIGXFSZ that this process's own writes raise are dropped: being blocked, they arrive
    /// even though they are ignored.
    ///
    /// # Errors
    /// Any error of read(2).
    pub fn receive(&mut self) -> io::Result<Option<Received>> {
        while let Some(info) = self.0.read_signal()? {
            let signal = Signal(i32::try_from(info.ssi_signo).unwrap_or_default());
            let by_itself = info.ssi_code == libc::SI_USER && info.ssi_pid == std::process::id();
            if !(by_itself && matches!(signal.0, libc::SIGPIPE | libc::SIGXFSZ)) {
                return Ok(Some(Received { signal, from_kernel: info.ssi_code == libc::SI_KERNEL }));
            }
        }
        Ok(None)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// All but the faults.
const TAKEN: Mask = {
    let [fpe, ill, segv, bus, abrt, trap, sys] = Signal::FAULTS;
    Mask::ALL.without(fpe).without(ill).without(segv).without(bus).without(abrt).without(trap).without(sys)
};

/// The mask before the first [`block`].
static MASK: OnceLock<Mask> = OnceLock::new();

static IGNORED_PIPE: AtomicBool = AtomicBool::new(false);
static IGNORED_CHILD: AtomicBool = AtomicBool::new(false);

/// Runs before main, and so before Rust's runtime ignores SIGPIPE.
#[expect(unsafe_code, reason = "the only place from which the inherited dispositions can be seen")]
#[used]
// SAFETY: the section holds pointers to functions, which the C runtime calls once, on one thread, before main.
#[unsafe(link_section = ".init_array")]
static REMEMBER: extern "C" fn() = remember;

extern "C" fn remember() {
    IGNORED_PIPE.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
    if is_ignored(libc::SIGCHLD) {
        IGNORED_CHILD.store(true, Ordering::Relaxed);
        mind_children();
    }
}

/// While SIGCHLD is ignored, which execve preserves, the kernel reaps children silently: their exit statuses are lost, and their
/// pids are free before init knows.
fn mind_children() {
    // It does not fail for SIGCHLD.
    let _ = Disposition::DEFAULT.set(libc::SIGCHLD);
}

/// Returns true if this process ignores the signal.
pub fn is_ignored(signal: i32) -> bool {
    Disposition::of(signal).is_ok_and(Disposition::ignores)
}
