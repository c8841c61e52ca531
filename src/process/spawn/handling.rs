//! Reads from /proc whether a process handles a signal, and whether it has received one.
//!
//! Owns reading the two files that say it. System calls only, no allocation: they are read between fork and the child's end.

use std::{
    ffi::{CStr, CString},
    time::Duration,
};

use nix::unistd::Pid;

use super::child;
use crate::{clock, config::Signal, process::scan::stat_fields};

/// Longer than a status is with some hundred supplementary groups.
const ENOUGH: usize = 8192;

/// For how long a process is looked at that blocks the signal and does not sleep. One that forks runs for less than that.
const LOOKING: Duration = Duration::from_millis(10);

/// The flags of a thread that is dying: PF_EXITING, PF_POSTCOREDUMP, PF_DUMPCORE and PF_SIGNALED.
const DYING: u64 = 0x4 | 0x8 | 0x200 | 0x400;

/// How a process handles a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handling {
    Yes,
    No,
    /// It blocks the signal, and may be waiting for a child that it has forked, or for a disk.
    Unclear,
}

/// What a process does about a signal, at one look. One that forks blocks every signal until its child has executed, and does not
/// sleep meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blocking {
    /// It has a handler.
    Handler,
    /// It blocks the signal and sleeps, as in a wait for a signalfd. A look may also see it asleep for a moment while it forks.
    Asleep,
    /// It blocks the signal and runs.
    Runs,
    /// It blocks the signal, and waits in the kernel for what no signal interrupts.
    Waits,
    /// The signal is neither handled nor blocked.
    No,
}

/// The state of a signal that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receipt {
    /// The process has it.
    Taken,
    /// The signal is pending, or the process is stopped or dying and receives none.
    Pending,
    /// The process is gone, or cannot be seen.
    Gone,
}

/// The files of one process, named before the fork.
#[derive(Debug)]
pub(super) struct StatusFiles {
    status: CString,
    stat: CString,
}

impl StatusFiles {
    pub(super) fn of(pid: Pid) -> Self {
        let file = |name| CString::new(format!("/proc/{pid}/{name}")).unwrap_or_default();
        Self { status: file("status"), stat: file("stat") }
    }

    /// Returns how the process handles the signal: it has a handler for it, or blocks it to read it from a signalfd. Takes no
    /// longer than [`LOOKING`] and one wake-up.
    pub(super) fn handling(&self, signal: Signal) -> Handling {
        let (enough, mut handling, mut slept) = (clock::boot() + LOOKING, Handling::Yes, false);
        loop {
            let mut buffer = [0; ENOUGH];
            let seen = read(&self.status, &mut buffer).map_or(Blocking::No, |status| blocking(status, signal));
            match seen {
                Blocking::Handler => return Handling::Yes,
                Blocking::Asleep if slept => return Handling::Yes,
                Blocking::No => return Handling::No,
                Blocking::Waits => handling = Handling::Unclear,
                Blocking::Asleep | Blocking::Runs => {}
            }
            slept = seen == Blocking::Asleep;
            if clock::boot() >= enough {
                return handling;
            }
            child::wait(1);
        }
    }

    /// Returns the state of the signal.
    pub(super) fn receipt(&self, signal: Signal) -> Receipt {
        let mut buffer = [0; ENOUGH];
        let Some(status) = read(&self.status, &mut buffer) else { return Receipt::Gone };
        let is_pending = is_pending(status, signal);
        // After the pending ones: what kills the process is pending before it shows here.
        match read(&self.stat, &mut buffer) {
            None => Receipt::Gone,
            Some(stat) if is_pending || takes_none(stat) => Receipt::Pending,
            Some(_) => Receipt::Taken,
        }
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

/// Reads from a status what a process does about a signal. One that is ignored by default is not counted as blocked: it would
/// seem to be received.
fn blocking(status: &[u8], signal: Signal) -> Blocking {
    if has(status, b"SigCgt:", signal) {
        return Blocking::Handler;
    }
    if !has(status, b"SigBlk:", signal) || has(status, b"SigIgn:", signal) || signal.is_ignored_by_default() {
        return Blocking::No;
    }
    match status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"State:\t")?.first()) {
        // A main thread that has ended is Z while others run.
        Some(b'S' | b'Z') => Blocking::Asleep,
        Some(b'R') => Blocking::Runs,
        Some(_) | None => Blocking::Waits,
    }
}

/// Returns true if the signal, or SIGKILL, is still pending.
fn is_pending(status: &[u8], signal: Signal) -> bool {
    let sets: [&[u8]; 2] = [b"SigPnd:", b"ShdPnd:"];
    sets.into_iter().any(|set| has(status, set, signal) || has(status, set, Signal::KILL))
}

/// Returns true if the process is stopped or dying, by the stat of its main thread. The flags are the sixth field after the
/// state.
fn takes_none(stat: &[u8]) -> bool {
    let Some(mut fields) = stat_fields(stat) else { return true };
    let state = fields.next().unwrap_or_default();
    let flags: u64 = fields.nth(5).and_then(|flags| flags.parse().ok()).unwrap_or(DYING);
    matches!(state, "T" | "t" | "Z" | "X") || flags & DYING != 0
}

/// Returns true if the set of this name in a status has the signal. Signal 1 is the lowest bit.
fn has(status: &[u8], name: &[u8], signal: Signal) -> bool {
    let set = |line: &[u8]| u64::from_str_radix(std::str::from_utf8(line.strip_prefix(name)?).ok()?.trim(), 16).ok();
    let Some(set) = status.split(|byte| *byte == b'\n').find_map(set) else { return false };
    (1..=64).contains(&signal.0) && set >> (signal.0 - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use std::{os::unix::process::CommandExt, process::Command};

    use nix::sys::signal::{SigSet, SigmaskHow, Signal as Kill, killpg};

    use super::*;

    fn pid_of(id: u32) -> Pid {
        Pid::from_raw(i32::try_from(id).unwrap())
    }

    #[test]
    fn the_sets_of_a_status_are_read_signal_by_signal() {
        for signal in [1, libc::SIGUSR1, 34, 64] {
            let own = 1_u64 << (signal - 1);
            let caught = |set| {
                has(format!("Name:\tSigCgt:\nSigIgn:\t{own:016x}\nSigCgt:\t{set:016x}\n").as_bytes(), b"SigCgt:", Signal(signal))
            };
            assert!(caught(own) && caught(u64::MAX) && !caught(!own), "{signal}");

            let killed = 1_u64 << (libc::SIGKILL - 1);
            let pending = |thread, process| {
                is_pending(format!("Name:\tx\nSigPnd:\t{thread:016x}\nShdPnd:\t{process:016x}\n").as_bytes(), Signal(signal))
            };
            assert!(!pending(!(own | killed), !(own | killed)), "{signal}");
            assert!(pending(own, 0) && pending(0, own) && pending(killed, 0) && pending(0, killed), "{signal}");
        }
    }

    #[test]
    fn a_process_that_blocks_a_signal_while_it_forks_is_told_from_one_that_waits_for_it() {
        let own = 1_u64 << (libc::SIGUSR1 - 1);
        let seen = |state: &str, [blocked, ignored, caught]: [u64; 3]| {
            let sets = format!("SigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}");
            blocking(format!("Name:\tx\nState:\t{state} (x)\n{sets}\n").as_bytes(), Signal(libc::SIGUSR1))
        };

        assert_eq!(["S", "R", "D"].map(|state| seen(state, [own, 0, own])), [Blocking::Handler; 3]);
        assert_eq!(["S", "Z"].map(|state| seen(state, [own, 0, 0])), [Blocking::Asleep; 2]);
        assert_eq!(seen("R", [own, 0, 0]), Blocking::Runs);
        assert_eq!(seen("D", [own, 0, 0]), Blocking::Waits, "as for the child of a vfork");
        assert_eq!(["S", "R", "D"].map(|state| seen(state, [own, own, 0])), [Blocking::No; 3]);
        assert_eq!(["S", "R", "D"].map(|state| seen(state, [0; 3])), [Blocking::No; 3]);
    }

    #[test]
    fn a_shell_that_forks_all_the_time_is_hardly_ever_taken_for_one_that_waits_for_the_signal() {
        let mut shell =
            Command::new("sh").args(["-c", "while kill -0 $PPID; do /bin/true; done"]).process_group(0).spawn().unwrap();
        let files = StatusFiles::of(pid_of(shell.id()));

        let seen: Vec<_> = (0..5_000).map(|_| files.handling(Signal(libc::SIGUSR1))).collect();

        killpg(pid_of(shell.id()), Kill::SIGKILL).unwrap();
        shell.wait().unwrap();
        // On a crowded machine a shell that forks may run for longer than it is looked at.
        let mistaken = seen.iter().filter(|seen| **seen == Handling::Yes).count();
        assert!(mistaken < seen.len() / 200, "{mistaken}");
    }

    #[test]
    fn a_process_that_is_stopped_or_dying_takes_no_signal_whatever_its_name_is() {
        let takes_none = |state: &str, flags: u64| {
            takes_none(format!("7 (a) T (b) {state} 1 7 7 0 -1 {} 9 0 9 0 9\n", 0x0040_0100 | flags).as_bytes())
        };
        assert_eq!(["R", "S", "D", "I"].map(|state| takes_none(state, 0)), [false; 4]);
        assert_eq!(["T", "t", "Z", "X"].map(|state| takes_none(state, 0)), [true; 4]);
        assert_eq!([0x4, 0x8, 0x200, 0x400].map(|flag| takes_none("D", flag)), [true; 4]);
    }

    #[test]
    fn what_cannot_be_read_handles_nothing_and_has_taken_nothing() {
        let (own, nobody) = (StatusFiles::of(Pid::this()), StatusFiles::of(Pid::from_raw(0)));
        assert_eq!(own.handling(Signal(libc::SIGSEGV)), Handling::Yes, "as Rust's runtime does");
        let thread = StatusFiles::of(nix::unistd::gettid());
        assert_eq!(thread.handling(Signal(libc::SIGUSR2)), Handling::No);
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK).unwrap();
        assert_eq!(thread.handling(Signal(libc::SIGUSR2)), Handling::Yes, "it may read it from a signalfd");
        for nothing in [libc::SIGWINCH, libc::SIGPIPE] {
            assert_eq!(thread.handling(Signal(nothing)), Handling::No, "{nothing}: it is ignored once it is not blocked");
        }
        assert_eq!((own.handling(Signal(libc::SIGPIPE)), nobody.handling(Signal(libc::SIGSEGV))), (Handling::No, Handling::No));
        before.thread_set_mask().unwrap();
        assert_eq!(
            (own.receipt(Signal(libc::SIGWINCH)), nobody.receipt(Signal(libc::SIGWINCH))),
            (Receipt::Taken, Receipt::Gone)
        );
        assert!(!has(b"Name:\tx\nSigCgt:\tnothing\n", b"SigCgt:", Signal(libc::SIGUSR1)) && takes_none(b""));
    }
}
