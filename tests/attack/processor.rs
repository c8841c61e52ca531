//! Starves one replica's processes of CPU time: with a quota for its cgroup, and a crowd of spinners in the same cgroup.

use std::{
    fs,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use nix::sys::signal::{Signal, killpg};
use support::{
    kept::{bound, pid},
    not_run,
};

/// The share of one CPU that a starved replica keeps, in percent.
const QUOTA: u32 = 20;
/// The share that it has together with a crowd.
const CROWDED: u32 = 60;
/// The number of spinners in a replica's crowd.
const CROWD: usize = 50;
/// The number of spinners in a crowd for the whole machine.
const SPINNERS: usize = 200;

/// Where cgroups of the CPU controller may be, in version 1 or version 2.
pub(crate) fn roots() -> Vec<PathBuf> {
    ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"].map(PathBuf::from).into_iter().filter(|root| root.is_dir()).collect()
}

/// The cgroup of one replica's place.
pub(crate) struct Processor {
    group: Option<PathBuf>,
    crowd: Vec<Child>,
}

impl Processor {
    /// A new cgroup of this name, if this machine permits it.
    pub(crate) fn new(name: &str) -> Self {
        let made = roots().into_iter().map(|root| root.join(name)).find(|group| {
            fs::create_dir(group).is_ok() && (group.join("cpu.cfs_quota_us").exists() || group.join("cpu.max").exists())
        });
        if made.is_none() {
            not_run("an attack on the processor time of replicas", "no cgroup with a quota can be made");
        }
        Self { group: made, crowd: Vec::new() }
    }

    /// A command that runs its arguments in the cgroup.
    pub(crate) fn enter(&self) -> Vec<String> {
        let Some(group) = &self.group else { return Vec::new() };
        let script = "echo 0 >\"$0\" && exec \"$@\"";
        ["sh", "-c", script, &group.join("cgroup.procs").to_string_lossy()].map(str::to_owned).to_vec()
    }

    /// Leaves the replica a fifth of a CPU; whether it did.
    pub(crate) fn starve(&self) -> bool {
        self.limit(Some(QUOTA))
    }

    /// Makes it share a small quota with many spinners; whether it did.
    pub(crate) fn crowd(&mut self) -> bool {
        if !self.limit(Some(CROWDED)) {
            return false;
        }
        let (enter, spin) = (self.enter(), ["sh", "-c", "while :; do :; done"]);
        let spinner = |_| bound().args(&enter).args(spin).stdin(Stdio::null()).spawn().expect("a spinner");
        self.crowd = (0..CROWD).map(spinner).collect();
        true
    }

    /// Undoes everything.
    pub(crate) fn relieve(&mut self) {
        self.limit(None);
        for mut spinner in self.crowd.drain(..) {
            drop(spinner.kill());
            drop(spinner.wait());
        }
    }

    fn limit(&self, percent: Option<u32>) -> bool {
        let Some(group) = &self.group else { return false };
        if group.join("cpu.max").exists() {
            let quota = percent.map_or_else(|| "max".to_owned(), |percent| (percent * 1_000).to_string());
            return fs::write(group.join("cpu.max"), format!("{quota} 100000")).is_ok();
        }
        let quota = percent.map_or(-1, |percent| i64::from(percent) * 1_000);
        fs::write(group.join("cpu.cfs_quota_us"), quota.to_string()).is_ok()
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        self.relieve();
    }
}

/// Spinners for the whole machine, in no cgroup of their own: everybody gets a small share, including the servers and this test.
pub(crate) struct Spinners(Child);

impl Spinners {
    /// They end by themselves after this time: this test gets too little CPU time to end them on time.
    pub(crate) fn start(lasts: Duration) -> Self {
        let script = format!("for n in $(seq {SPINNERS}); do while :; do :; done & done; wait");
        let mut command = Command::new("timeout");
        command.args(["--signal", "KILL", &lasts.as_secs_f64().to_string(), "sh", "-c", &script]);
        Self(command.process_group(0).stdin(Stdio::null()).spawn().expect("spinners"))
    }

    /// All of them at once.
    pub(crate) fn end(&self) {
        // A process group that we created, whose leader has not been reaped.
        let _ = killpg(pid(&self.0), Signal::SIGKILL);
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        self.end();
        drop(self.0.wait());
    }
}
