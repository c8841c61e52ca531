//! A kernel clock that is slewed, as a time service does it: by adjtimex(2), for the whole machine.
//!
//! Whoever judges time on a real clock holds the machine's lock with others ([`steady`]), whoever slews it holds the lock alone.

use std::{
    fs::File,
    io::{Error, Read as _, Result},
    os::unix::process::CommandExt as _,
    process::{ChildStdin, Command, ExitCode, Stdio},
    sync::OnceLock,
};

use super::Kept;

/// `tick` of a clock that runs at its own rate: microseconds at 100 ticks a second. The kernel allows a tenth more or less.
const USUAL: i64 = 10_000;

/// The environment variable of the process that puts the clock back.
const RESTORES: &str = "TENURE_TEST_RESTORES_CLOCK";

/// Nobody slews the clock until this process ends.
pub fn steady() {
    static HELD: OnceLock<Option<File>> = OnceLock::new();
    HELD.get_or_init(|| {
        let lock = lock().ok()?;
        lock.lock_shared().ok()?;
        Some(lock)
    });
}

/// The clock of this machine, for this process alone.
pub struct Slewed {
    _lock: File,
    restorer: Kept,
    lifeline: Option<ChildStdin>,
}

impl Slewed {
    /// Waits until no other test needs the clock, and checks that it may be slewed. Another process puts it back once this is
    /// dropped, or this process ends, however that happens.
    ///
    /// # Errors
    /// It may not, or the clock is being slewed already.
    pub fn alone() -> Result<Self> {
        let lock = lock()?;
        lock.lock()?;
        if tick(None)? != USUAL {
            return Err(Error::other("something slews the clock already"));
        }
        tick(Some(USUAL))?;
        let mut restorer = Command::new(std::env::current_exe()?);
        restorer.env(RESTORES, "1").stdin(Stdio::piped()).process_group(0);
        let mut restorer = Kept(restorer.spawn()?);
        let lifeline = restorer.stdin.take();
        Ok(Self { _lock: lock, restorer, lifeline })
    }

    /// From now on the kernel's clocks run at this rate, in parts of 10 000.
    pub fn to(&self, rate: i64) {
        tick(Some(rate)).expect("it was allowed before");
    }
}

impl Drop for Slewed {
    fn drop(&mut self) {
        drop(self.lifeline.take());
        let restored = self.restorer.wait().is_ok_and(|status| status.success());
        assert!(restored && tick(None).is_ok_and(|tick| tick == USUAL) || std::thread::panicking(), "the clock is as it was");
    }
}

/// The other process: waits for the end of the first one, whose lifeline it holds, and puts the clock back.
pub fn face() -> Option<ExitCode> {
    std::env::var_os(RESTORES)?;
    // SIGINT and SIGTERM are for the test; the end of its input is all that this process waits for.
    let waited = std::io::stdin().read_to_end(&mut Vec::new());
    let restored = tick(Some(USUAL));
    Some(if waited.is_ok() && restored.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn lock() -> Result<File> {
    File::options().create(true).truncate(false).write(true).open(std::env::temp_dir().join("tenure-test-clock"))
}

/// The tick of the kernel's clock, after this has been set.
#[allow(unsafe_code, reason = "nix has no adjtimex")]
fn tick(set: Option<i64>) -> Result<i64> {
    // SAFETY: zeroes are a request that changes nothing, and the kernel writes no more than the struct.
    unsafe {
        let mut timex: libc::timex = std::mem::zeroed();
        if let Some(tick) = set {
            (timex.modes, timex.tick) = (libc::ADJ_TICK, tick);
        }
        if libc::adjtimex(&raw mut timex) < 0 { Err(Error::last_os_error()) } else { Ok(timex.tick) }
    }
}
