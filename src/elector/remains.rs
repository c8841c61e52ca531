//! Init, as its elector knows it: the processes to kill if init does not, and those to kill after init died.

use std::{thread, time::Duration};

use nix::unistd::getppid;

use crate::{
    clock,
    config::Signal,
    environment,
    link::{InitialState, ToElector},
    process::{
        PID1, Pid,
        kill::{self, KillSweep, Verdict, kill_everything_but_init},
        scan::{Process, Scanner, Scope, Spare},
    },
    time::Instant,
    words::one_line,
};

/// A process that SIGKILL does not remove within this time is stuck in the kernel, or not ours to kill.
const PATIENCE: Duration = Duration::from_secs(30);

/// The search for init's descendants takes at most one part in this many of the elector's time.
const LOOKING: u32 = 200;

/// The pause between two passes, in which the killed processes are reaped elsewhere.
const PAUSE: Duration = Duration::from_millis(5);

/// The init that started this elector.
#[derive(Debug)]
pub(super) struct Init {
    pid: Pid,
    pid1: bool,
    /// An entry in the environment of all processes that init started for its workload.
    marker: String,
    /// The process group of the leading workload. None once that has ended, because its number may be reused.
    group: Option<Pid>,
    /// Init's descendants at its last message. A daemon with a clean environment is recognised by nothing else.
    known: Vec<Process>,
    scanner: Option<Scanner>,
    /// No search before this instant.
    look_from: Instant,
}

impl Init {
    pub(super) fn of(initial: &InitialState) -> Self {
        let pid = getppid();
        let marker = format!("{}={}", environment::IDENTITY, initial.identity);
        let group = initial.resume.as_ref().and_then(|resume| resume.main).map(Pid::from_raw);
        let pid1 = initial.pid1 && pid == PID1;
        let scanner = if pid1 { None } else { Scanner::open().ok() };
        Self { pid, pid1, marker, group, known: Vec::new(), scanner, look_from: Instant::BOOT }
    }

    /// Returns true if init is alive. While it dies it may still seem so.
    pub(super) fn lives(&self) -> bool {
        getppid() == self.pid
    }

    /// Notes init's descendants, and the process group of the leading workload.
    pub(super) fn told(&mut self, message: &ToElector) {
        self.look();
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

    /// Searches for init's descendants, unless the last search was costly and not long ago.
    fn look(&mut self) {
        let began = clock::boot();
        if began < self.look_from {
            return;
        }
        let Some(scanner) = &mut self.scanner else { return };
        if let Ok(found) = scanner.find(Scope::Descendants, Spare { init: self.pid, electors: &[Pid::this()] }) {
            self.known.clear();
            self.known.extend_from_slice(found.targets);
        }
        let ended = clock::boot();
        self.look_from = ended + ended.since(began) * LOOKING;
    }

    /// Makes a round of the second guard: SIGKILL to every process of the container that it may signal, except init and this one.
    /// If init is not PID 1, to every descendant of init.
    pub(super) fn killer(&self) -> impl FnMut() + Send + 'static {
        let (pid, pid1) = (self.pid, self.pid1);
        let mut sweep = KillSweep::open()
            .inspect_err(|error| tracing::error!(error = one_line(error), "the elector cannot guard the deadline"))
            .ok();
        move || {
            if pid1 {
                // An error means that no process is left, or that nothing can be done.
                let _ = kill_everything_but_init();
            } else if let Some(sweep) = &mut sweep {
                let _ = sweep.pass(Scope::Descendants, Spare { init: pid, electors: &[Pid::this()] });
            }
        }
    }

    /// Kills the processes that init left, after the link has ended, until none is left or [`PATIENCE`] is over. If init was PID
    /// 1, the kernel does that.
    pub(super) fn kill_remains(&self) {
        if self.pid1 {
            return;
        }
        if let Some(group) = self.group {
            // The group comes first: the search for others reads files, and a process stuck in the kernel may block that.
            let _ = kill::send_group(group, Signal::KILL);
        }
        let Ok(mut sweep) = KillSweep::open() else { return };
        // These come next, before the kernel continues a frozen process: it does that when the main process dies.
        sweep.kill_known(&self.known);
        let scope = Scope::Leftovers { entry: &self.marker, group: self.group, known: &self.known };
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
