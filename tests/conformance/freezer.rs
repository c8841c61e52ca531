//! A process that SIGKILL does not end: frozen by version 1 of the cgroup freezer, it dies only once it is thawed.

use std::{
    fs, io,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use nix::unistd::Pid;

use crate::support::{PATIENCE, within};

/// A cgroup; its processes are thawed when this is dropped, or when this process ends, however that happens.
pub struct Freezer {
    place: PathBuf,
    /// Thaws them when its standard input is closed.
    keeper: Child,
}

impl Freezer {
    /// An empty one.
    ///
    /// # Errors
    /// There is no such freezer here, or we may not use it.
    pub fn make() -> io::Result<Self> {
        let place = PathBuf::from(format!("/sys/fs/cgroup/freezer/tenure-test-{:08x}", fastrand::u32(..)));
        fs::create_dir(&place)?;
        let script = "trap '' INT TERM HUP; read -r _; echo THAWED >\"$0/freezer.state\"
            for n in $(seq 100); do rmdir \"$0\" 2>/dev/null && exit; sleep 0.1; done";
        let mut keeper = Command::new("sh");
        keeper.process_group(0).args(["-c", script]).arg(&place).stdin(Stdio::piped()).stdout(Stdio::null());
        let keeper = keeper.spawn()?;
        Ok(Self { place, keeper })
    }

    /// Adds a process, and waits until it is frozen.
    pub async fn freeze(&self, pid: Pid) {
        fs::write(self.place.join("cgroup.procs"), pid.to_string()).expect("it lives");
        let state = self.place.join("freezer.state");
        fs::write(&state, "FROZEN").expect("a freezer");
        within(PATIENCE, "it is frozen", async {
            while fs::read_to_string(&state).expect("a freezer").trim() != "FROZEN" {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        drop(self.keeper.wait());
    }
}
