//! A machine that has been suspended, as far as its clocks tell: in a time namespace CLOCK_BOOTTIME is ahead of CLOCK_MONOTONIC.
//!
//! Elsewhere the two agree, so that nothing shows which of them a deadline or a timer follows.

use std::{
    io::{Error, ErrorKind, Result},
    os::unix::process::CommandExt as _,
    process::Command,
    sync::OnceLock,
    time::Duration,
};

use tenure::clock;

use super::{incomplete, kept::as_root};

/// How long it has slept.
pub const ASLEEP: Duration = Duration::from_secs(100_000);

const FLAGS: &[&str] = &["--time", "--boottime=100000"];

/// Set in a process that [`enter`] started.
const INSIDE: &str = "TENURE_TEST_SLEPT";

/// The arguments by which an `unshare --fork` starts its program on such a machine. None where that is not possible, which is said
/// loudly; the tests run all the same.
pub fn flags() -> &'static [&'static str] {
    static POSSIBLE: OnceLock<bool> = OnceLock::new();
    let try_it = || {
        let tried = try_it();
        if let Err(error) = &tried {
            incomplete::not_run("deadlines on a machine that has been suspended", error);
        }
        tried.is_ok()
    };
    if *POSSIBLE.get_or_init(try_it) { FLAGS } else { &[] }
}

/// A command that starts the program that is its next argument, on such a machine if possible.
pub fn command() -> Command {
    with(flags())
}

/// Starts this test binary again on such a machine, in place of itself; returns if that is where it is, or if it is not possible.
pub fn enter() {
    if std::env::var_os(INSIDE).is_none() && !flags().is_empty() {
        let binary = std::env::current_exe().expect("the test binary");
        let error = command().arg(binary).args(std::env::args_os().skip(1)).env(INSIDE, "1").exec();
        panic!("unshare has worked before: {error}");
    }
}

fn with(flags: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--fork", "--kill-child=SIGKILL"]).args(flags).args(as_root());
    command
}

fn try_it() -> Result<()> {
    let before = clock::boottime();
    let output = with(FLAGS).args(["cat", "/proc/uptime"]).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let uptime = said.split('.').next().and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
    match uptime {
        // It is rounded.
        Some(uptime) if uptime + Duration::from_secs(1) >= before + ASLEEP => Ok(()),
        Some(_) => Err(Error::new(ErrorKind::Unsupported, "a time namespace does not change the clock")),
        None => Err(Error::new(ErrorKind::Unsupported, String::from_utf8_lossy(&output.stderr).trim_end())),
    }
}
