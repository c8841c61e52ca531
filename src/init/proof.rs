//! Has [`kill`] scan after each step of the stop escalation, and freeze a standby; tells which process groups the fuses cover.

use nix::unistd::getpgrp;

use crate::{
    process::{
        Pid,
        fuse::INIT_GROUP,
        kill::{self, KillSweep, Left, Verdict},
        scan::{Found, Process, Scanner, Scope, Spare},
    },
    supervision::Scan,
};

/// The scanner, and the means to kill by it.
#[derive(Debug)]
pub(super) struct Prover {
    pid1: bool,
    sweep: Option<KillSweep>,
    /// The processes that were stopped when a standby was frozen.
    frozen: Vec<Process>,
}

/// The process groups that a scan found.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// Groups of the workload alone, as far as can be told.
    pub(super) ours: Vec<Pid>,
    /// Groups with other members.
    pub(super) strange: Vec<Pid>,
}

impl Prover {
    pub(super) const fn new(pid1: bool) -> Self {
        Self { pid1, sweep: None, frozen: Vec::new() }
    }

    /// Opens the scanner early, so that a kill need not wait for it or do without (law 2).
    pub(super) fn prepare(&mut self) -> Option<&mut KillSweep> {
        if self.sweep.is_none() {
            self.sweep = KillSweep::open().ok();
        }
        self.sweep.as_mut()
    }

    /// Looks for everything but init and these electors. With `kill`, sends SIGKILL to it. The caller has reaped all dead children
    /// before.
    pub(super) fn scan(&mut self, electors: &[Pid], kill: bool) -> Scan {
        let (scope, spare) = (self.scope(), Spare { init: Pid::this(), electors });
        match self.prepare().map(|sweep| if kill { sweep.pass(scope, spare) } else { sweep.look(scope, spare) }) {
            Some(Ok(Verdict::Proved)) => Scan { clean: true, ..Scan::default() },
            Some(Ok(Verdict::Left(Left { pids, refused }))) => {
                let left: Vec<i32> = pids.iter().map(|pid| pid.as_raw()).collect();
                Scan { clean: false, killed: kill && !left.is_empty(), left, denied: refused }
            }
            // Without /proc the kernel still kills all but PID 1, and knows whether PID 1 is alone.
            Some(Err(_)) | None => {
                if kill && self.pid1 && electors.is_empty() {
                    let _ = kill::kill_everything();
                }
                Scan { clean: self.pid1 && electors.is_empty() && kill::is_alone().unwrap_or(false), ..Scan::default() }
            }
        }
    }

    /// Finds the process groups of everything that a sweep would kill, `main`'s, and PID 1's own, which any process of its session
    /// may join. None if /proc cannot tell.
    pub(super) fn groups(&mut self, main: Option<Pid>, electors: &[Pid]) -> Option<Groups> {
        let (scope, own) = (self.scope(), getpgrp());
        let joined = if self.pid1 && own == INIT_GROUP { Some(own) } else { None };
        let Found { targets, strange, .. } = self.scanner()?.find(scope, Spare { init: Pid::this(), electors }).ok()?;
        // A dead leader may have living threads.
        let living = targets.iter().filter(|process| process.state != b'Z' || process.threads > 1).map(|process| process.group);
        let is_ours = |group: &Pid| group.as_raw() > 1 && *group != own && !strange.contains(group);
        let mut ours: Vec<Pid> = living.filter(is_ours).chain(main).chain(joined).collect();
        ours.sort_unstable();
        ours.dedup();
        let strange = strange.iter().copied().filter(|group| Some(*group) != main).collect();
        Some(Groups { ours, strange })
    }

    /// Returns all processes of a frozen workload, if they are stopped. With `stop`, first stops all descendants of init. Later
    /// calls check only these, because processes that `kubectl exec` leaves to init are no part of the workload.
    pub(super) fn stopped(&mut self, electors: &[Pid], stop: bool) -> Option<Vec<Pid>> {
        if stop {
            self.frozen = self.prepare()?.freeze(Spare { init: Pid::this(), electors }).ok()??;
        }
        self.sweep.as_ref()?.scanner.stopped(&self.frozen)
    }

    const fn scope(&self) -> Scope<'static> {
        if self.pid1 { Scope::Namespace } else { Scope::Descendants }
    }

    /// The scanner, to look at single processes.
    pub(super) fn scanner(&mut self) -> Option<&mut Scanner> {
        Some(&mut self.prepare()?.scanner)
    }
}
