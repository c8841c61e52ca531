//! A replica of the demo: a real `tenure run` with its own kubeconfig. Where a PID namespace can be made, it is PID 1 there, and a
//! real `tenure witness` is beside it.
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

/// The replicas.
pub(super) const NAMES: [&str; 3] = ["red", "green", "blue"];

/// Name of the demo's Lease.
pub(super) const LEASE: &str = "demo";

/// The command that makes its arguments PID 1 of a PID namespace.
pub(super) type Container = Vec<&'static str>;

/// Tries it, also with a user namespace, which needs no privilege where that is allowed.
///
/// # Errors
/// Why no PID namespace can be made here.
pub(super) fn container() -> Result<Container, String> {
    let alone: Container = ["unshare", "--fork", "--pid", "--mount-proc", "--kill-child=SIGKILL"].into();
    let mapped = [&alone[..], &["--map-root-user"]].concat();
    try_out(&alone).map(|()| alone).or_else(|_| try_out(&mapped).map(|()| mapped))
}

fn try_out(container: &[&str]) -> Result<(), String> {
    let (tool, arguments) = container.split_first().ok_or_else(String::new)?;
    let tried = Command::new(tool).args(arguments).arg("true").stdin(Stdio::null()).output();
    let tried = tried.map_err(|error| format!("{tool}: {error}"))?;
    if tried.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&tried.stderr).trim().to_owned()) }
}

#[derive(Debug)]
pub(super) struct Replica {
    pub(super) name: &'static str,
    /// Its way to the API server.
    pub(super) network: Relay,
    directory: PathBuf,
    container: Container,
    witness: Option<Child>,
    child: Option<Child>,
}

impl Replica {
    /// Creates a replica, whose files go to `directory`, and starts its witness if it has a `container`. It is not started yet.
    ///
    /// # Errors
    /// They cannot be written, or the witness cannot be started.
    pub(super) fn new(
        name: &'static str,
        network: Relay,
        kubeconfig: &str,
        directory: &Path,
        container: &Container,
    ) -> io::Result<Self> {
        let own = directory.file_name().unwrap_or_default().display();
        let socket = (!container.is_empty()).then(|| format!("@{own}-{name}"));
        write_private(&directory.join(format!("{name}.kubeconfig")), kubeconfig)?;
        fs::write(directory.join(format!("{name}.json")), config(name, socket.as_deref()).to_string())?;
        let (directory, container) = (directory.to_owned(), container.clone());
        let mut replica = Self { name, network, directory, container, witness: None, child: None };
        if let Some(socket) = socket {
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["witness", "--socket", &socket]);
            replica.witness = Some(replica.spawn(command, "witness.log")?);
        }
        Ok(replica)
    }

    /// Starts it, or does nothing if it runs.
    ///
    /// # Errors
    /// The replica cannot be started.
    pub(super) fn start(&mut self) -> io::Result<()> {
        if self.is_running()? {
            return Ok(());
        }
        let program = std::env::current_exe()?;
        let mut line = self.container.iter().map(Into::into).chain([program.clone().into_os_string()]);
        let mut command = Command::new(line.next().unwrap_or_default());
        command.args(line).args(["run", "--config"]).arg(self.file("json")).arg("--");
        command.arg(&program).args(["demo", "workload"]).arg(self.directory.join("stamps")).arg(self.name);
        self.child = Some(self.spawn(command, "log")?);
        Ok(())
    }

    fn spawn(&self, mut command: Command, log: &str) -> io::Result<Child> {
        let log = OpenOptions::new().append(true).create(true).mode(0o600).open(self.file(log))?;
        command.env_clear().env("KUBECONFIG", self.file("kubeconfig")).envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        // The witness takes a replica for its own by this name.
        command.env("POD_NAME", self.name);
        // Ctrl-C is for the demo, which then ends them.
        command.process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::from(File::try_clone(&log)?)).stderr(log);
        die_with_the_demo(&mut command);
        command.spawn()
    }

    fn file(&self, end: &str) -> PathBuf {
        self.directory.join(format!("{}.{end}", self.name))
    }

    /// Returns true if its init lives. Otherwise reaps it.
    ///
    /// # Errors
    /// The replica cannot be waited for.
    pub(super) fn is_running(&mut self) -> io::Result<bool> {
        let Some(child) = &mut self.child else { return Ok(false) };
        if child.try_wait()?.is_none() {
            return Ok(true);
        }
        self.child = None;
        Ok(false)
    }

    /// Returns the process id of its init, if that runs.
    pub(super) fn init(&self) -> Option<Pid> {
        let child = Pid::from_raw(i32::try_from(self.child.as_ref()?.id()).ok()?);
        if self.container.is_empty() { Some(child) } else { children(child)?.into_iter().next() }
    }

    /// Returns the process id of its elector, if that runs.
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
        for pid in [self.elector(), self.init()].into_iter().flatten() {
            let _ = kill(pid, Signal::SIGKILL);
        }
        if let Some(witness) = &mut self.witness {
            let _ = witness.kill();
        }
        for child in [&mut self.child, &mut self.witness].into_iter().flatten() {
            let _ = child.wait();
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
fn config(name: &str, witness: Option<&str>) -> serde_json::Value {
    json!({
        "lease": {
            "name": LEASE,
            "identity": name,
            "duration": "3s",
            "renewPeriod": "1s",
            "attemptTimeout": "200ms",
            "witness": witness,
        },
        "workload": { "stop": { "grace": "2s", "lossGrace": "300ms", "killMargin": "400ms" } },
    })
}
