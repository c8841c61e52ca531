//! What becomes of a signal to a process: what /proc says about its handlers, and about what it has not taken yet.
//!
//! Owns reading the files that say it. System calls only, no allocation: they are read between fork and the child's end.

use std::ffi::{CStr, CString};

use nix::unistd::Pid;

use crate::{
    config::Signal,
    process::{kill, scan::stat_fields},
};

/// Longer than a status is with some hundred supplementary groups.
const ENOUGH: usize = 8192;

/// Signals whose default action neither ends nor stops a process.
const HARMLESS: [i32; 4] = [libc::SIGCHLD, libc::SIGCONT, libc::SIGURG, libc::SIGWINCH];

/// The flags of a thread that is dying: PF_EXITING, PF_POSTCOREDUMP, PF_DUMPCORE and PF_SIGNALED.
const DYING: u64 = 0x4 | 0x8 | 0x200 | 0x400;

/// What a signal would do to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It ends or stops.
    Ends,
    /// Nothing yet, because it is blocked: for good, to be read or awaited, or while a thread or a process is created. A later
    /// look tells.
    Blocks,
    /// Nothing: the process, or the kernel by default, ignores it.
    Ignores,
    /// It handles it, as far as can be told.
    Handles,
}

/// What has become of a signal that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receipt {
    /// The process has it, or it was nothing to it.
    Taken,
    /// It is pending, or the process is stopped, or dying, when it takes none.
    Pending,
    /// It is not pending, but the main thread has ended: the others took it, or the process is dying.
    Unclear,
    /// The process is gone.
    Gone,
}

/// The files of one process, named before the fork.
#[derive(Debug)]
pub(super) struct Files {
    status: CString,
    stat: CString,
    /// Where it sleeps in the kernel, for readers that may read its memory; `0` for all others.
    wchan: CString,
    /// Opens for the same readers.
    environ: CString,
}

impl Files {
    pub(super) fn of(pid: Pid) -> Self {
        let file = |name| CString::new(format!("/proc/{pid}/{name}")).unwrap_or_default();
        Self { status: file("status"), stat: file("stat"), wchan: file("wchan"), environ: file("environ") }
    }

    /// What the signal would do to the process. It handles it if that cannot be read: /proc may be missing, or hide it.
    pub(super) fn fate(&self, signal: Signal) -> Fate {
        let mut buffer = [0; ENOUGH];
        let Some(status) = read(&self.status, &mut buffer) else { return Fate::Handles };
        let fate = match judge(signal, status) {
            Fate::Ends if read(&self.environ, &mut []).is_none() => Fate::Handles,
            Fate::Ends if read(&self.wchan, &mut buffer).is_none_or(waits_for_signals) => Fate::Handles,
            Fate::Ignores if read(&self.wchan, &mut buffer).is_some_and(waits_for_signals) => Fate::Handles,
            Fate::Blocks if read(&self.wchan, &mut buffer).is_some_and(waits_for_a_vfork) => Fate::Ends,
            fate @ (Fate::Ends | Fate::Blocks | Fate::Ignores | Fate::Handles) => fate,
        };
        if fate == Fate::Ends && HARMLESS.contains(&signal.0) { Fate::Ignores } else { fate }
    }

    /// Whether /proc shows the process.
    pub(super) fn are_there(&self) -> bool {
        read(&self.status, &mut []).is_some() && read(&self.stat, &mut []).is_some()
    }

    /// What has become of the signal since it was sent.
    pub(super) fn receipt(&self, signal: Signal) -> Receipt {
        let mut buffer = [0; ENOUGH];
        let Some(status) = read(&self.status, &mut buffer) else { return Receipt::Gone };
        let pending = is_pending(signal, status);
        // After the pending ones: what kills the process is pending before it shows here.
        let Some(stat) = read(&self.stat, &mut buffer) else { return Receipt::Gone };
        if pending { Receipt::Pending } else { judge_state(stat) }
    }
}

/// The beginning of a file, as much as fits; `None` if it cannot be opened.
#[expect(unsafe_code, reason = "async-signal-safe system calls")]
fn read<'a>(path: &CStr, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut length = 0;
    // SAFETY: the path is a live string, and each read goes into what is left of a live buffer.
    unsafe {
        let file = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return None;
        }
        while let Some(rest) = buffer.get_mut(length..).filter(|rest| !rest.is_empty()) {
            match usize::try_from(libc::read(file, rest.as_mut_ptr().cast(), rest.len())) {
                Ok(0) | Err(_) => break,
                Ok(more) => length += more,
            }
        }
        libc::close(file);
    }
    buffer.get(..length)
}

/// What a status says; the process handles the signal if no line says anything.
fn judge(signal: Signal, status: &[u8]) -> Fate {
    match [b"SigIgn:", b"SigCgt:", b"SigBlk:"].map(|name| has(status, name, signal)) {
        [None, None, None] | [_, Some(true), _] => Fate::Handles,
        // The kernel keeps what is blocked, even where it is ignored.
        [_, _, Some(true)] => Fate::Blocks,
        [Some(true), ..] => Fate::Ignores,
        [_, _, _] => Fate::Ends,
    }
}

/// Whether the signal, or one that kills, has not reached the process yet, or it is dumping core, during which none does.
fn is_pending(signal: Signal, status: &[u8]) -> bool {
    let pends = |signal| [b"SigPnd:", b"ShdPnd:"].into_iter().any(|name| has(status, name, signal) == Some(true));
    pends(signal) || pends(kill::SIGKILL) || lines(status).any(|line| line == b"CoreDumping:\t1")
}

/// What has become of a signal that is not pending, by the stat of the main thread: its flags are the sixth field after its
/// state, and the number of threads the eleventh after those.
fn judge_state(stat: &[u8]) -> Receipt {
    let Some(mut fields) = stat_fields(stat) else { return Receipt::Taken };
    let state = fields.next().unwrap_or_default();
    let mut number = |skipped| fields.nth(skipped)?.parse::<u64>().ok();
    let (flags, threads) = (number(5).unwrap_or_default(), number(10).unwrap_or_default());
    match state {
        "Z" if threads > 1 => Receipt::Unclear,
        "T" | "t" | "Z" | "X" => Receipt::Pending,
        _ if flags & DYING != 0 => Receipt::Pending,
        _ => Receipt::Taken,
    }
}

fn lines(status: &[u8]) -> impl Iterator<Item = &[u8]> {
    status.split(|byte| *byte == b'\n')
}

/// Whether the line of that name has the signal; none if there is no such line.
fn has(status: &[u8], name: &[u8], signal: Signal) -> Option<bool> {
    let bit = u32::try_from(signal.0 - 1).ok()?;
    let bits = lines(status).find_map(|line| mask(line, name)?.checked_shr(bit))?;
    Some(bits & 1 == 1)
}

/// The signals of the line of that name, signal 1 in the lowest bit.
fn mask(line: &[u8], name: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(line.strip_prefix(name)?).ok()?.trim(), 16).ok()
}

/// A process that waits for a blocked signal is shown as not blocking it for as long. sigwait(3), sigwaitinfo(2) and
/// sigtimedwait(2) are one function of the kernel.
fn waits_for_signals(wchan: &[u8]) -> bool {
    names(wchan, b"sigtimedwait")
}

/// A process that calls posix_spawn(3) blocks every signal until the new one begins: kernel_clone, and _do_fork before Linux
/// 5.10.
fn waits_for_a_vfork(wchan: &[u8]) -> bool {
    names(wchan, b"clone") || names(wchan, b"fork")
}

fn names(wchan: &[u8], name: &[u8]) -> bool {
    wchan.windows(name.len()).any(|part| part == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(blocked: u64, ignored: u64, caught: u64) -> String {
        format!(
            "Name:\tSigCgt:\nState:\tS (sleeping)\nSigQ:\t0/7\nSigPnd:\tffffffffffffffff\nShdPnd:\tffffffffffffffff\n\
             SigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}\nCapInh:\tffffffffffffffff\n"
        )
    }

    #[test]
    fn a_signal_that_is_caught_or_ignored_is_survived_and_one_that_is_blocked_is_not_delivered() {
        for signal in [1, libc::SIGUSR1, 34, 64] {
            let own = 1_u64 << (signal - 1);
            let judge = |blocked, ignored, caught| judge(Signal(signal), status(blocked, ignored, caught).as_bytes());
            assert_eq!(judge(!own, !own, !own), Fate::Ends, "{signal}");
            assert_eq!(judge(0, own, 0), Fate::Ignores, "{signal}");
            assert_eq!(judge(own, 0, own), Fate::Handles, "{signal}");
            assert_eq!(judge(own, 0, 0), Fate::Blocks, "{signal}");
            assert_eq!(judge(own, own, 0), Fate::Blocks, "{signal}");
        }
    }

    /// A child that blocks every signal and waits for its own vfork child to call execve, which never happens.
    #[expect(unsafe_code, reason = "fork, and async-signal-safe system calls in the child")]
    fn makes_a_process() -> Pid {
        // SAFETY: the child touches no memory but its own stack, and calls nothing but the kernel.
        unsafe {
            let pid = libc::fork();
            if pid == 0 {
                let mut all = std::mem::zeroed();
                libc::sigfillset(&raw mut all);
                libc::sigprocmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
                let flags = libc::c_long::from(libc::CLONE_VFORK | libc::SIGCHLD);
                if libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) == 0 {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                }
                loop {
                    libc::pause();
                }
            }
            Pid::from_raw(pid)
        }
    }

    #[test]
    fn a_process_that_makes_another_one_blocks_for_the_moment_only() {
        let blocked = status(u64::MAX, 0, 0).replace("S (sleeping)", "D (disk sleep)");
        assert_eq!(judge(Signal(libc::SIGUSR1), blocked.as_bytes()), Fate::Blocks, "it may read its disk");
        let pid = makes_a_process();
        let files = Files::of(pid);

        let until = crate::clock::boot() + std::time::Duration::from_secs(20);
        let mut fate = files.fate(Signal(libc::SIGUSR1));
        while fate != Fate::Ends && crate::clock::boot() < until {
            std::thread::yield_now();
            fate = files.fate(Signal(libc::SIGUSR1));
        }

        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
        nix::sys::wait::waitpid(pid, None).unwrap();
        assert_eq!(fate, Fate::Ends);
    }

    #[test]
    fn lines_that_are_missing_or_nonsense_keep_no_signal_back() {
        assert_eq!(judge(Signal(libc::SIGUSR1), b""), Fate::Handles);
        assert_eq!(judge(Signal(libc::SIGUSR1), b"Name:\tx\nSigCgt:\tnothing\nSigBlk:\n"), Fate::Handles);
        assert_eq!(Files::of(Pid::from_raw(0)).fate(Signal(libc::SIGUSR1)), Fate::Handles);
        assert!(!is_pending(Signal(libc::SIGUSR1), b""));
        assert_eq!(judge_state(b""), Receipt::Taken);
    }

    #[test]
    fn a_signal_is_pending_for_the_thread_or_the_process_and_none_is_taken_by_one_that_is_killed_or_dumps_core() {
        let status = |thread: u64, process: u64, dumps: u8| {
            format!("Name:\tCoreDumping:\t1\nCoreDumping:\t{dumps}\nSigPnd:\t{thread:016x}\nShdPnd:\t{process:016x}\n")
        };
        for signal in [1, libc::SIGUSR1, 34, 64] {
            let own = 1_u64 << (signal - 1);
            let killed = 1_u64 << (libc::SIGKILL - 1);
            let is_pending = |thread, process, dumps| is_pending(Signal(signal), status(thread, process, dumps).as_bytes());
            assert!(!is_pending(!(own | killed), !(own | killed), 0), "{signal}");
            for pending in [(own, 0, 0), (0, own, 0), (killed, 0, 0), (0, killed, 0), (0, 0, 1)] {
                assert!(is_pending(pending.0, pending.1, pending.2), "{signal}: {pending:?}");
            }
        }
    }

    #[test]
    fn a_process_that_is_stopped_or_dying_takes_no_signal_whatever_its_name_is() {
        let judge = |state: &str, flags: u64, threads: u64| {
            let flags = 0x0040_0100 | flags;
            judge_state(format!("7 (a) T (b) {state} 1 7 7 0 -1 {flags} 9 0 9 0 9 9 9 9 20 0 {threads} 0 9\n").as_bytes())
        };
        for state in ["R", "S", "D", "I"] {
            assert_eq!(judge(state, 0, 1), Receipt::Taken, "{state}");
        }
        for state in ["T", "t", "Z", "X"] {
            assert_eq!(judge(state, 0, 1), Receipt::Pending, "{state}");
        }
        for flag in [0x4, 0x8, 0x200, 0x400] {
            assert_eq!(judge("D", flag, 2), Receipt::Pending, "{flag:#x}");
        }
        assert_eq!(judge("Z", 0x4, 2), Receipt::Unclear);
    }

    #[test]
    fn our_own_handlers_are_seen() {
        let own = Files::of(Pid::this());
        assert_eq!(own.fate(Signal(libc::SIGPIPE)), Fate::Ignores, "as Rust's runtime does");
        assert_eq!(own.fate(Signal(libc::SIGWINCH)), Fate::Ignores, "as the kernel does by default");
        assert!(own.are_there() && !Files::of(Pid::from_raw(0)).are_there());
        assert_eq!(own.receipt(Signal(libc::SIGWINCH)), Receipt::Taken);
        assert_eq!(Files::of(Pid::from_raw(0)).receipt(Signal(libc::SIGWINCH)), Receipt::Gone);
    }
}
