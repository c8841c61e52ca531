//! Reads from /proc which processes are there.
//!
//! Owns the reading of `/proc/PID/stat` and the choice of those that a walk is after. Never signals anybody.
//!
//! What a scan may miss: a process that a dying one forks behind the cursor of the directory. Its ancestors, up to a child of
//! init, are seen or still to be reaped by init, so a scan during which init reaps nobody misses none of init's tree. What came
//! in from outside (`kubectl exec`) is reaped outside, and its children then become init's: a second scan sees those.

use std::{
    io::{self, Write as _},
    os::fd::OwnedFd,
};

use nix::{
    dir::Dir,
    errno::Errno,
    fcntl::{OFlag, open, openat},
    sys::stat::Mode,
    unistd::{Pid, read},
};

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
    /// When it started, in clock ticks since boot.
    pub start: u64,
}

/// Whom a walk is after, before [`Spare`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    /// Everything that is visible: init is PID 1.
    Namespace,
    /// What descends from init by the chain of parents, orphans included: init is a subreaper.
    Descendants,
    /// What is left of a workload whose init is gone and was not PID 1: every process with this entry in the environment that it
    /// was started with, every process of that group, and their descendants.
    Remains {
        /// `NAME=value`.
        entry: &'a str,
        /// The workload's process group.
        group: Option<Pid>,
    },
}

/// Who is never a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spare<'a> {
    /// Init; with [`Scope::Remains`] the one that was.
    pub init: Pid,
    /// The electors that nobody has reaped yet. Each leads a session, and all of it (credential plugins) is spared.
    pub electors: &'a [Pid],
}

/// What a scan found.
#[derive(Debug)]
pub struct Found<'a> {
    /// The targets, by rising pid.
    pub targets: &'a [Process],
    /// How many went away between being listed and being read.
    pub vanished: usize,
    /// How many may be targets: they cannot be read, or their parent is not in the list.
    pub unclear: usize,
    /// To look again at one of them.
    pub scanner: &'a Scanner,
}

impl Found<'_> {
    /// Whether nobody is there who is or may be a target, and nobody went away unseen.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.targets.is_empty() && self.vanished == 0 && self.unclear == 0
    }
}

/// /proc cannot be used to find processes.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// It is not there.
    #[error("/proc cannot be opened; mount it, or nothing that the workload leaves behind can be found")]
    Open(#[source] io::Error),
    /// Its numbers are not ours.
    #[error("/proc belongs to another PID namespace; mount this one's, or the wrong processes would be killed")]
    Foreign,
}

/// Scans /proc, with the same buffers each time.
#[derive(Debug)]
pub struct Scanner {
    proc: OwnedFd,
    listing: Dir,
    partial: bool,
    table: Vec<Process>,
    kin: Vec<Kin>,
    environment: Vec<u8>,
}

/// Whether a process in the table belongs to the scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kin {
    Unknown,
    Yes,
    No,
    /// The chain of parents leaves the table.
    Lost,
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
            partial: hidepid(&mounts).is_some(),
            table: Vec::with_capacity(1024),
            kin: Vec::with_capacity(1024),
            environment: Vec::new(),
        })
    }

    /// Whether /proc hides processes of other users (`hidepid`), so that a clean scan proves nothing.
    #[must_use]
    pub const fn is_partial(&self) -> bool {
        self.partial
    }

    /// Who is there now.
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
                0
            }
            Scope::Descendants => {
                self.trace(Some(spare.init));
                unreadable + self.kin.iter().filter(|kin| **kin == Kin::Lost).count()
            }
            Scope::Remains { entry, group } => {
                self.seed(entry, group);
                self.trace(None);
                0
            }
        };
        let mut kin = self.kin.iter();
        self.table.retain(|process| kin.next() == Some(&Kin::Yes) && !spare.covers(process));
        Ok(Found { targets: &self.table, vanished, unclear, scanner: self })
    }

    /// The process with this pid, if it is there and can be read.
    #[must_use]
    pub fn look(&self, pid: Pid) -> Option<Process> {
        read_stat(&self.proc, pid).ok()
    }

    /// Whether `pid` is `ancestor`, or descends from it by the chain of parents.
    #[must_use]
    pub fn descends(&self, pid: Pid, ancestor: Pid) -> bool {
        let mut at = pid;
        // A chain longer than this is a loop made of recycled pids.
        for _ in 0..1024 {
            if at == ancestor {
                return true;
            }
            match self.look(at) {
                Some(process) => at = process.parent,
                None => return false,
            }
        }
        false
    }

    /// Fills the table by rising pid. How many vanished, and how many cannot be read; those stand in it with state `?`.
    fn list(&mut self) -> io::Result<(usize, usize)> {
        let (mut vanished, mut unreadable) = (0, 0);
        self.table.clear();
        for entry in self.listing.iter() {
            let entry = entry?;
            let Some(pid) = entry.file_name().to_str().ok().and_then(|name| name.parse().ok()).map(Pid::from_raw) else {
                continue;
            };
            match read_stat(&self.proc, pid) {
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

    /// Marks the seeds of [`Scope::Remains`].
    fn seed(&mut self, entry: &str, group: Option<Pid>) {
        for (process, kin) in self.table.iter().zip(&mut self.kin) {
            if Some(process.group) == group || has_entry(&self.proc, process.pid, entry, &mut self.environment) {
                *kin = Kin::Yes;
            }
        }
    }

    /// Decides every unknown one by its chain of parents: up to `root`, to one that is decided, or to the top.
    fn trace(&mut self, root: Option<Pid>) {
        let root_start = root.and_then(|root| self.index(root)).and_then(|at| self.table.get(at)).map_or(0, |root| root.start);
        for first in 0..self.table.len() {
            let verdict = self.follow(first, root, root_start);
            let mut at = Some(first);
            while let Some(index) = at
                && let Some(kin) = self.kin.get_mut(index)
                && *kin == Kin::Unknown
            {
                *kin = verdict;
                at = self.table.get(index).and_then(|process| self.index(process.parent));
            }
        }
    }

    fn follow(&self, first: usize, root: Option<Pid>, root_start: u64) -> Kin {
        let mut at = first;
        for _ in 0..=self.table.len() {
            let (Some(process), Some(kin)) = (self.table.get(at), self.kin.get(at)) else {
                return Kin::Lost;
            };
            if *kin != Kin::Unknown {
                return *kin;
            }
            // The top, or older than the root: not its child.
            if process.parent.as_raw() == 0 || Some(process.pid) == root || process.start < root_start {
                return Kin::No;
            }
            if Some(process.parent) == root {
                return Kin::Yes;
            }
            match self.index(process.parent) {
                Some(parent) => at = parent,
                None => return Kin::Lost,
            }
        }
        Kin::Lost
    }

    fn index(&self, pid: Pid) -> Option<usize> {
        self.table.binary_search_by_key(&pid, |process| process.pid).ok()
    }
}

impl Spare<'_> {
    /// Whether `process` is init, an elector or in an elector's session.
    #[must_use]
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
    start: 0,
};

/// `hidepid` of the topmost /proc in `/proc/self/mountinfo`, unless off.
pub(crate) fn hidepid(mounts: &str) -> Option<&str> {
    let (_, options) = mounts
        .lines()
        .filter_map(|line| line.split_once(" - proc "))
        .rfind(|(mount, _)| mount.split(' ').nth(4) == Some("/proc"))?;
    let value = options.split([' ', ',']).find_map(|option| option.strip_prefix("hidepid="))?;
    (!matches!(value, "0" | "off")).then_some(value)
}

fn read_stat(proc: &OwnedFd, pid: Pid) -> nix::Result<Process> {
    let mut buffer = [0; 1024];
    let length = read_file(proc, pid, "stat", &mut buffer)?;
    buffer.get(..length).and_then(|line| parse_stat(pid, line)).ok_or(Errno::EIO)
}

/// The name of a process may hold spaces, parentheses and newlines; the fields after it are numbers but for the state.
fn parse_stat(pid: Pid, line: &[u8]) -> Option<Process> {
    let name_end = line.iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(line.get(name_end + 1..)?).ok()?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?.bytes().next()?;
    let mut id = || fields.next()?.parse().ok().map(Pid::from_raw);
    let (parent, group, session) = (id()?, id()?, id()?);
    let start = fields.nth(15)?.parse().ok()?;
    Some(Process { pid, parent, group, session, state, start })
}

fn has_entry(proc: &OwnedFd, pid: Pid, entry: &str, buffer: &mut Vec<u8>) -> bool {
    // The kernel limits an environment to a quarter of the stack limit; one chunk more than was read is asked for until it fits.
    buffer.resize(buffer.len().max(32 * 1024), 0);
    loop {
        match read_file(proc, pid, "environ", buffer) {
            Ok(length) if length == buffer.len() => buffer.resize(length * 2, 0),
            Ok(length) => {
                return buffer.get(..length).is_some_and(|all| all.split(|byte| *byte == 0).any(|one| one == entry.as_bytes()));
            }
            Err(_) => return false,
        }
    }
}

/// Reads `/proc/PID/name` into `buffer`, as much as fits.
fn read_file(proc: &OwnedFd, pid: Pid, name: &str, buffer: &mut [u8]) -> nix::Result<usize> {
    let mut path = [0; 32];
    write!(path.as_mut_slice(), "{pid}/{name}").map_err(|_| Errno::ENAMETOOLONG)?;
    let path = std::ffi::CStr::from_bytes_until_nul(&path).map_err(|_| Errno::ENAMETOOLONG)?;
    let file = openat(proc, path, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    let mut length = 0;
    while let Some(rest) = buffer.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match read(&file, rest) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(length)
}
