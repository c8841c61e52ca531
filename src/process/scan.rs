//! Reads from /proc which processes are there.
//!
//! Owns reading `/proc/PID/stat` and choosing the targets of a sweep. Never signals anybody.
//!
//! A scan may miss a process that a dying one forks behind the cursor of the directory. But the scan sees an ancestor of it, or
//! init has still to reap one. So a scan during which init reaps nothing misses nothing of init's tree. Processes that came in
//! from outside (`kubectl exec`) are reaped outside, and their children then become init's: a second scan sees those.

use std::{cmp::Reverse, io, os::fd::OwnedFd};

use nix::{
    dir::Dir,
    errno::Errno,
    fcntl::{OFlag, open},
    sys::stat::Mode,
    unistd::Pid,
};

use self::kin::Kin;

mod files;
mod kin;

pub(crate) use files::children;
pub(super) use files::stat_fields;

/// A process as `/proc/PID/stat` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id; with `start`, its identity.
    pub pid: Pid,
    /// Its parent; 0 where that is outside of this PID namespace.
    pub parent: Pid,
    /// Its process group.
    pub group: Pid,
    /// Its session.
    pub session: Pid,
    /// The letter of proc(5). `Z` may be a dead leader of living threads, so it counts as there.
    pub state: u8,
    /// Count of its threads, a dead leader included.
    pub threads: u32,
    /// Start time, in clock ticks since boot.
    pub start: u64,
}

impl Process {
    /// Returns true if nothing of it runs any more: a zombie without living threads.
    pub const fn is_gone(&self) -> bool {
        matches!(self.state, b'Z' | b'X') && self.threads <= 1
    }

    /// Returns true if it is stopped with all its threads. A traced process does not count, because its tracer may continue it.
    pub fn is_stopped(&self) -> bool {
        let stopped = |thread: io::Result<std::fs::DirEntry>| {
            let stat = std::fs::read(thread?.path().join("stat"))?;
            let state = stat_fields(&stat).and_then(|mut fields| fields.next().map(str::to_owned));
            Ok::<_, io::Error>(matches!(state.as_deref(), Some("T" | "Z" | "X")))
        };
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.pid));
        !self.is_gone() && threads.is_ok_and(|mut threads| threads.all(|thread| stopped(thread).unwrap_or(false)))
    }
}

/// The targets of a sweep, before [`Spare`] is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    /// Everything that is visible: init is PID 1.
    Namespace,
    /// All descendants of init by the chain of parents. Orphans count too, because init is a subreaper.
    Descendants,
    /// The rest of a workload whose init is gone and was not PID 1: every process that was started with this entry in its
    /// environment, every process of that group, the known descendants of init, and the descendants of all these.
    Leftovers {
        /// `NAME=value`.
        entry: &'a str,
        /// The workload's process group.
        group: Option<Pid>,
        /// Init's descendants, as long as it lived.
        known: &'a [Process],
    },
}

/// The processes that are never a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spare<'a> {
    /// Init; with [`Scope::Leftovers`] the one that was.
    pub init: Pid,
    /// The electors that nobody has reaped yet. Each leads a session, and all of it (credential plugins) is spared.
    pub electors: &'a [Pid],
}

/// The result of a scan.
#[derive(Debug)]
pub struct Found<'a> {
    /// The targets, the youngest first. No child is older than its parent: if the parent died first, the kernel would continue
    /// what is stopped in the child's process group, before its own SIGKILL arrives (law 8).
    pub targets: &'a [Process],
    /// The process groups of all that are certainly none.
    pub strange: &'a [Pid],
    /// Count of processes that may be targets: gone before they could be read, unreadable, or of unknown parents.
    pub unclear: usize,
    /// For looking at one of them again.
    pub scanner: &'a Scanner,
}

/// /proc cannot be used to find processes.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// /proc is not there, or no descriptor is left.
    #[error("/proc cannot be opened, and without it nothing that the workload leaves behind can be found")]
    Open(#[source] io::Error),
    /// Its pids are not ours.
    #[error("/proc belongs to another PID namespace; mount this one's, or the wrong processes would be killed")]
    Foreign,
}

/// [`Scanner::is_partial`], for people.
pub const HIDES: &str = "/proc hides other users' processes: mount it without hidepid";

/// Scans /proc, with the same buffers each time.
#[derive(Debug)]
pub struct Scanner {
    proc: OwnedFd,
    listing: Dir,
    partial: bool,
    table: Vec<Process>,
    kin: Vec<Kin>,
    strange: Vec<Pid>,
}

/// Returns true if a signal has stopped this process. True also if /proc cannot tell.
pub fn is_stopped(pid: Pid) -> bool {
    state_and_group(&pid.to_string()).is_none_or(|(state, _)| state == b'T')
}

/// Returns true if a process of this group is stopped.
pub fn is_any_stopped(group: Pid) -> bool {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut processes = entries.filter_map(|entry| state_and_group(entry.file_name().to_str()?));
    processes.any(|process| process == (b'T', group.as_raw()))
}

fn state_and_group(pid: &str) -> Option<(u8, i32)> {
    let line = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat_fields(&line)?;
    Some((fields.next()?.bytes().next()?, fields.nth(1)?.parse().ok()?))
}

impl Scanner {
    /// Opens /proc.
    ///
    /// # Errors
    /// [`ScanError`].
    pub fn open() -> Result<Self, ScanError> {
        let own = std::fs::read_link("/proc/self").map_err(ScanError::Open)?;
        if own.to_str() != Some(Pid::this().to_string().as_str()) {
            return Err(ScanError::Foreign);
        }
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").map_err(ScanError::Open)?;
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let failed = |errno: Errno| ScanError::Open(errno.into());
        Ok(Self {
            proc: open("/proc", flags, Mode::empty()).map_err(failed)?,
            listing: Dir::open("/proc", flags, Mode::empty()).map_err(failed)?,
            partial: files::hidepid(&mounts).is_some(),
            table: Vec::with_capacity(1024),
            kin: Vec::with_capacity(1024),
            strange: Vec::with_capacity(1024),
        })
    }

    /// Returns true if /proc hides processes of other users (`hidepid`), so that a clean scan proves nothing.
    pub const fn is_partial(&self) -> bool {
        self.partial
    }

    /// The targets that exist now.
    ///
    /// # Errors
    /// If /proc cannot be listed.
    pub fn find(&mut self, scope: Scope<'_>, spare: Spare<'_>) -> io::Result<Found<'_>> {
        let (vanished, unreadable) = self.list()?;
        self.kin.clear();
        self.kin.resize(self.table.len(), Kin::Unknown);
        let unclear = match scope {
            Scope::Namespace => {
                self.kin.fill(Kin::Yes);
                vanished
            }
            Scope::Descendants => {
                kin::trace(&self.table, &mut self.kin, Some(spare.init));
                // A process that vanished was no descendant, or has an ancestor in the list, because init reaps nothing meanwhile.
                unreadable + self.kin.iter().filter(|kin| **kin == Kin::Lost).count()
            }
            Scope::Leftovers { entry, group, known } => {
                for (process, kin) in self.table.iter().zip(&mut self.kin) {
                    let is_known = || known.iter().any(|known| (known.pid, known.start) == (process.pid, process.start));
                    if Some(process.group) == group || is_known() || files::has_entry(process.pid, entry) {
                        *kin = Kin::Yes;
                    }
                }
                kin::trace(&self.table, &mut self.kin, None);
                0
            }
        };
        let strangers = self.table.iter().zip(&self.kin).filter(|(_, kin)| **kin == Kin::No);
        self.strange.clear();
        self.strange.extend(strangers.map(|(process, _)| process.group));
        let mut kin = self.kin.iter();
        self.table.retain(|process| kin.next() == Some(&Kin::Yes) && !spare.covers(process));
        self.table.sort_unstable_by_key(|process| Reverse((process.start, process.pid)));
        Ok(Found { targets: &self.table, strange: &self.strange, unclear, scanner: self })
    }

    /// Returns the children of init, the caller, that are not spared, also those that /proc hides; none if that is not known. Without
    /// any, nothing else descends from init, because it is a subreaper and reaps nothing meanwhile.
    pub fn other_children(&self, spare: Spare<'_>) -> Option<Vec<Pid>> {
        // Where /proc hides other users' processes, it hides the elector, which nobody may trace.
        let is_spared = |pid: &Pid| spare.electors.contains(pid) || self.look(*pid).is_some_and(|process| spare.covers(&process));
        let mut others = children(spare.init).filter(|_| spare.init == Pid::this())?;
        others.retain(|pid| !is_spared(pid));
        Some(others)
    }

    /// Returns the processes that [`KillSweep::freeze`](crate::process::kill::KillSweep::freeze) stopped and that are still
    /// there; none if one of them runs. SIGCONT continues all threads, so the main thread stands for all, unless it has ended.
    pub fn stopped(&self, frozen: &[Process]) -> Option<Vec<Pid>> {
        let mut stopped = Vec::with_capacity(frozen.len());
        for before in frozen {
            match files::stat(&self.proc, before.pid) {
                Err(Errno::ENOENT | Errno::ESRCH) => {}
                Ok(now) if now.start != before.start || now.is_gone() => {}
                Ok(now) if now.state == b'T' || now.state == b'Z' && now.is_stopped() => stopped.push(now.pid),
                Ok(_) | Err(_) => return None,
            }
        }
        Some(stopped)
    }

    /// The process with this pid, if it is there and can be read.
    pub fn look(&self, pid: Pid) -> Option<Process> {
        files::stat(&self.proc, pid).ok()
    }

    /// Returns true if `pid` is `ancestor`, or descends from it by the chain of parents.
    pub fn descends(&self, pid: Pid, ancestor: Pid) -> bool {
        let parent = |pid: &Pid| self.look(*pid).map(|process| process.parent);
        // A chain longer than this is a loop made of recycled pids.
        std::iter::successors(Some(pid), parent).take(1024).any(|pid| pid == ancestor)
    }

    /// Fills the table by rising pid. Returns how many vanished and how many cannot be read; the latter are in it with state `?`.
    fn list(&mut self) -> io::Result<(usize, usize)> {
        let (mut vanished, mut unreadable) = (0, 0);
        self.table.clear();
        for entry in self.listing.iter() {
            let entry = entry?;
            let Some(pid) = entry.file_name().to_str().ok().and_then(|name| name.parse().ok()).map(Pid::from_raw) else {
                continue;
            };
            match files::stat(&self.proc, pid) {
                Ok(process) => self.table.push(process),
                Err(Errno::ENOENT | Errno::ESRCH) => vanished += 1,
                Err(_) => {
                    unreadable += 1;
                    self.table.push(Process { pid, ..UNREADABLE });
                }
            }
        }
        self.table.sort_unstable_by_key(|process| process.pid);
        Ok((vanished, unreadable))
    }
}

impl Spare<'_> {
    /// Returns true if `process` is init, an elector or in an elector's session.
    pub fn covers(&self, process: &Process) -> bool {
        process.pid == self.init || self.electors.contains(&process.pid) || self.electors.contains(&process.session)
    }
}

const UNREADABLE: Process = Process {
    pid: Pid::from_raw(0),
    parent: Pid::from_raw(0),
    group: Pid::from_raw(0),
    session: Pid::from_raw(0),
    state: b'?',
    threads: 0,
    start: 0,
};
