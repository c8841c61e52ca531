//! Init, as its elector knows it: what to kill if init does not, and what to kill after it died.

use std::{thread, time::Duration};

use nix::unistd::getppid;

use crate::{
    clock, environment,
    link::{InitialState, ToElector},
    process::{
        PID1, Pid,
        kill::{self, KillSweep, Verdict, kill_everything_but_init},
        scan::{Scope, Spare},
    },
    words::one_line,
};

/// What SIGKILL does not remove within this is stuck in the kernel, or not ours to kill.
const PATIENCE: Duration = Duration::from_secs(30);

/// Between two passes; what is killed here is reaped elsewhere.
const PAUSE: Duration = Duration::from_millis(5);

/// The init that started this elector.
#[derive(Clone, Debug)]
pub(super) struct Init {
    pid: Pid,
    pid1: bool,
    /// An entry in the environment of everything that it started for its workload.
    marker: String,
    /// The process group of the leader. Once that has ended its number may be reused.
    group: Option<Pid>,
}

impl Init {
    pub(super) fn of(initial: &InitialState) -> Self {
        let pid = getppid();
        let marker = format!("{}={}", environment::IDENTITY, initial.identity);
        let group = initial.resume.as_ref().and_then(|resume| resume.main).map(Pid::from_raw);
        Self { pid, pid1: initial.pid1 && pid == PID1, marker, group }
    }

    /// Whether it is alive. While it dies it may still seem so.
    pub(super) fn lives(&self) -> bool {
        getppid() == self.pid
    }

    /// Remembers the process group of the leader.
    pub(super) fn told(&mut self, message: &ToElector) {
        match message {
            ToElector::Started { pid, .. } => self.group = Some(Pid::from_raw(*pid)),
            ToElector::Restarting { .. } | ToElector::Stopped { .. } => self.group = None,
            ToElector::Acknowledged { .. }
            | ToElector::Heartbeat
            | ToElector::Hooked { .. }
            | ToElector::Probe { .. }
            | ToElector::Health { .. }
            | ToElector::Warn(_)
            | ToElector::Shutdown
            | ToElector::Stopping { .. }
            | ToElector::Unproved { .. }
            | ToElector::InitialState(_) => {}
        }
    }

    /// One round of the second guard: SIGKILL to every process of the container that it may signal, except init and this one; if
    /// init is not PID 1, to every descendant of init.
    pub(super) fn killer(&self) -> impl FnMut() + Send + 'static {
        let (pid, pid1) = (self.pid, self.pid1);
        let mut sweep = KillSweep::open()
            .inspect_err(|error| tracing::error!(error = one_line(error), "the elector cannot guard the deadline"))
            .ok();
        move || {
            if pid1 {
                // That nobody is left is what is wanted; nothing can be done about a refusal.
                let _ = kill_everything_but_init();
            } else if let Some(sweep) = &mut sweep {
                let _ = sweep.pass(Scope::Descendants, Spare { init: pid, electors: &[Pid::this()] });
            }
        }
    }

    /// After the link ended. If init was PID 1 everything ends by itself; otherwise kills what it left, until nothing is or
    /// [`PATIENCE`] is over.
    pub(super) fn kill_remains(&self) {
        if self.pid1 {
            return;
        }
        if let Some(group) = self.group {
            // First, because to find the others takes files that a process stuck in the kernel may hold up.
            let _ = kill::send_group(group, kill::SIGKILL);
        }
        let Ok(mut sweep) = KillSweep::open() else { return };
        let scope = Scope::Remains { entry: &self.marker, group: self.group };
        let me = [Pid::this()];
        let end = clock::boot() + PATIENCE;
        while clock::boot() < end {
            if let Ok(Verdict::Proved) = sweep.pass(scope, Spare { init: self.pid, electors: &me }) {
                return;
            }
            thread::sleep(PAUSE);
        }
    }
}
