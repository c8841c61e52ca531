//! One replica of the demo: a real `tenure run` with its own kubeconfig.
//!
//! Owns its processes and finds them; never asks them anything.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::{fs::OpenOptionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use nix::{
    sys::{
        prctl::set_pdeathsig,
        signal::{Signal, kill},
    },
    unistd::Pid,
};
use serde_json::json;

use super::relay::Relay;
use crate::{commands::dev_server::write_private, process::scan::children};

/// Name of the demo's Lease.
pub(super) const LEASE: &str = "demo";

/// See the module.
#[derive(Debug)]
pub(super) struct Replica {
    /// Its name.
    pub(super) name: &'static str,
    /// Its way to the API server.
    pub(super) network: Relay,
    directory: PathBuf,
    child: Option<Child>,
}

impl Replica {
    /// One that is not started yet; its files go to `directory`.
    ///
    /// # Errors
    /// They cannot be written.
    pub(super) fn new(name: &'static str, network: Relay, kubeconfig: &str, directory: &Path) -> io::Result<Self> {
        write_private(&directory.join(format!("{name}.kubeconfig")), kubeconfig)?;
        fs::write(directory.join(format!("{name}.json")), config(name).to_string())?;
        Ok(Self { name, network, directory: directory.to_owned(), child: None })
    }

    /// Starts it, or does nothing if it runs.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start(&mut self) -> io::Result<()> {
        if self.is_running()? {
            return Ok(());
        }
        let file = |end: &str| self.directory.join(format!("{}.{end}", self.name));
        let program = std::env::current_exe()?;
        let log = OpenOptions::new().append(true).create(true).mode(0o600).open(file("log"))?;
        let mut command = Command::new(&program);
        command.args(["run", "--config"]).arg(file("json")).arg("--");
        command.arg(&program).args(["demo", "workload"]).arg(self.directory.join("stamps")).arg(self.name);
        command.env_clear().env("KUBECONFIG", file("kubeconfig")).envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        // Ctrl-C is for the demo, which then ends them.
        command.process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::from(File::try_clone(&log)?)).stderr(log);
        die_with_the_demo(&mut command);
        self.child = Some(command.spawn()?);
        Ok(())
    }

    /// Whether its init lives; reaps it if not.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub(super) fn is_running(&mut self) -> io::Result<bool> {
        let Some(child) = &mut self.child else { return Ok(false) };
        if child.try_wait()?.is_none() {
            return Ok(true);
        }
        self.child = None;
        Ok(false)
    }

    /// Its init.
    pub(super) fn init(&self) -> Option<Pid> {
        Some(Pid::from_raw(i32::try_from(self.child.as_ref()?.id()).ok()?))
    }

    /// Its elector.
    pub(super) fn elector(&self) -> Option<Pid> {
        let is_elector = |pid: &Pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).nth(1) == Some(b"elector")
        };
        children(self.init()?)?.into_iter().find(is_elector)
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        // SIGKILL ends a stopped process too; the workload dies with its init.
        if let Some(elector) = self.elector() {
            let _ = kill(elector, Signal::SIGKILL);
        }
        if let Some(child) = &mut self.child {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// A demo that is killed leaves no replica behind.
#[expect(unsafe_code, reason = "an async-signal-safe system call between fork and execve")]
fn die_with_the_demo(command: &mut Command) {
    // SAFETY: prctl allocates nothing and takes no lock.
    unsafe { command.pre_exec(|| Ok(set_pdeathsig(Signal::SIGKILL)?)) };
}

/// Short timings that the law still allows: S, H and E are 2.27, 2.57 and 2.97 s after a write, and a rival takes over after 3.03
/// s.
fn config(name: &str) -> serde_json::Value {
    json!({
        "lease": {
            "name": LEASE,
            "identity": name,
            "duration": "3s",
            "renewPeriod": "1s",
            "attemptTimeout": "200ms",
        },
        "workload": { "stop": { "grace": "2s", "lossGrace": "300ms", "killMargin": "400ms" } },
    })
}
