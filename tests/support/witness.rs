//! Receives the workloads' messages, and proves when each was alive.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use serde::Deserialize;
use serde_json::Value;
use tenure::time::Instant;
use tokio::{net::UnixDatagram, sync::watch};

use super::{PATIENCE, safe, seen};

/// A message from a workload.
#[derive(Clone, Debug, Deserialize)]
pub struct Event {
    at: u64,
    /// Whose workload.
    pub replica: String,
    /// Its pid in its own namespace.
    pub pid: u32,
    /// `start`, `signal` or `end`.
    pub what: String,
    /// The details.
    pub more: Value,
}

impl Event {
    /// When.
    pub const fn at(&self) -> Instant {
        Instant::from_nanos(self.at)
    }

    /// A variable of its environment; only in a `start`.
    pub fn variable(&self, name: &str) -> &str {
        self.more[name].as_str().unwrap_or_else(|| panic!("{name} in {}", self.more))
    }
}

/// When the processes of one replica's term were alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    /// Whose.
    pub replica: String,
    /// The fencing token of the term.
    pub token: String,
    /// First stamp of its first process.
    pub first: Instant,
    /// Last stamp of its last process.
    pub last: Instant,
    /// Those of its processes that were executed, in the order of their starts.
    pub processes: Vec<Process>,
}

/// A process of a life, with those that it forked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// When it started, in steps of 10 ms.
    pub born: Instant,
    /// Its pid in its own namespace, which is higher than those of processes before it.
    pub pid: u32,
    /// Its last stamp.
    pub last: Instant,
}

/// Receives the messages of all workloads of one case.
pub struct Witness {
    directory: PathBuf,
    events: Arc<Mutex<Vec<Event>>>,
    changed: watch::Sender<()>,
}

impl Witness {
    /// Listens in this directory.
    pub fn listen(directory: &Path) -> Self {
        fs::create_dir_all(directory.join("stamps")).expect("a directory for stamps");
        let socket = UnixDatagram::bind(directory.join("witness")).expect("a socket");
        let (events, changed) = (Arc::<Mutex<Vec<Event>>>::default(), watch::Sender::new(()));
        tokio::spawn(hear(socket, events.clone(), changed.clone()));
        Self { directory: directory.to_owned(), events, changed }
    }

    /// All messages so far.
    pub fn all(&self) -> Vec<Event> {
        self.events.lock().expect("no panic inside").clone()
    }

    /// The first event that matches, now or later.
    pub async fn first(&self, what: &str, is_so: impl Fn(&Event) -> bool) -> Event {
        self.nth(0, what, is_so).await
    }

    /// The one after `count` others that match, now or later.
    pub async fn nth(&self, count: usize, what: &str, is_so: impl Fn(&Event) -> bool) -> Event {
        self.nth_within(PATIENCE, count, what, is_so).await
    }

    /// The same with another deadline.
    pub async fn nth_within(&self, limit: Duration, count: usize, what: &str, is_so: impl Fn(&Event) -> bool) -> Event {
        seen(&self.events, &self.changed, limit, count, what, is_so).await
    }

    /// The start of a replica's workload, after `count` earlier ones.
    pub async fn start(&self, replica: &str, count: usize) -> Event {
        self.nth(count, &format!("{replica}'s workload starts"), |event| event.replica == replica && event.what == "start").await
    }

    /// The first such signal received by a replica's workload.
    pub async fn signal(&self, replica: &str, signal: &str) -> Event {
        let is_so = |event: &Event| event.replica == replica && event.what == "signal" && event.more["signal"] == signal;
        self.first(&format!("{replica}'s workload gets {signal}"), is_so).await
    }

    /// How often a replica's workload has started so far.
    pub fn starts(&self, replica: &str) -> usize {
        self.all().iter().filter(|event| event.replica == replica && event.what == "start").count()
    }

    /// When the workloads were alive: one entry for each replica's term, in the order of their first stamps.
    pub fn lives(&self) -> Vec<Life> {
        let mut lives = BTreeMap::<(String, String), Life>::new();
        for file in fs::read_dir(self.directory.join("stamps")).expect("the directory of stamps") {
            let file = file.expect("an entry");
            let name = file.file_name().to_string_lossy().into_owned();
            let words: Vec<&str> = name.split('@').collect();
            let [replica, token, pid, born] = words[..] else { panic!("a file of stamps: {name}") };
            let (replica, token, pid) = (replica.to_owned(), token.to_owned(), pid.parse().expect("a pid"));
            let born = Instant::from_nanos(born.parse().expect("nanoseconds"));
            let Some((first, last)) = stamps(&fs::read(file.path()).expect("stamps")) else { continue };
            let life = lives.entry((replica.clone(), token.clone()));
            let life = life.or_insert_with(|| Life { replica, token, first, last, processes: Vec::new() });
            (life.first, life.last) = (life.first.min(first), life.last.max(last));
            life.processes.push(Process { born, pid, last });
        }
        let mut lives: Vec<Life> = lives.into_values().collect();
        for life in &mut lives {
            life.processes.sort_unstable();
        }
        lives.sort_by_key(|life| life.first);
        lives
    }

    /// The latest start.
    pub fn last_start(&self) -> Option<Event> {
        let events = self.events.lock().expect("no panic inside");
        events.iter().filter(|event| event.what == "start").max_by_key(|event| event.at).cloned()
    }

    /// The last moment at which any process of a replica's workload was seen alive.
    pub fn last_alive(&self, replica: &str) -> Instant {
        self.lives().iter().filter(|life| life.replica == replica).map(|life| life.last).max().expect("a life")
    }

    /// No process of a replica's workload was seen alive at this moment or later.
    pub fn assert_gone(&self, replica: &str, at: Instant) {
        let last = self.last_alive(replica);
        safe(last < at, || format!("{replica} was alive for {:?} after it had to be dead", last.since(at)));
    }

    /// The last moment at which any process of this term was seen alive.
    pub fn last_stamp(&self, replica: &str, token: &str) -> Option<Instant> {
        let term = format!("{replica}@{token}@");
        let files = fs::read_dir(self.directory.join("stamps")).expect("the directory of stamps").filter_map(Result::ok);
        let files = files.filter(|file| file.file_name().to_string_lossy().starts_with(&term));
        files.filter_map(|file| stamps(&fs::read(file.path()).ok()?)).map(|(_, last)| last).max()
    }

    /// Forgets when workloads were alive.
    pub fn forget(&self) {
        let stamps = self.directory.join("stamps");
        fs::remove_dir_all(&stamps).and_then(|()| fs::create_dir(&stamps)).expect("the directory of stamps");
    }

    /// The first two terms whose workloads were alive at once, and for how long.
    pub fn overlap(&self) -> Option<String> {
        let lives = self.lives();
        let pairs = lives.iter().enumerate().flat_map(|(index, life)| lives[index + 1..].iter().map(move |later| (life, later)));
        let (life, later) = pairs.into_iter().find(|(life, later)| later.first <= life.last)?;
        Some(format!("two at once for {:?}: {life:?} and {later:?}", life.last.since(later.first)))
    }

    /// No two workloads ran at once.
    pub fn assert_no_overlap(&self) {
        let overlap = self.overlap();
        safe(overlap.is_none(), || overlap.unwrap_or_default());
    }
}

/// First and last stamp; none of a process that was killed before its first.
fn stamps(bytes: &[u8]) -> Option<(Instant, Instant)> {
    let at =
        |range| bytes.get(range).map(|bytes: &[u8]| Instant::from_nanos(u64::from_le_bytes(bytes.try_into().expect("8 bytes"))));
    let first = at(0..8)?;
    Some((first, at(8..16).unwrap_or(first)))
}

async fn hear(socket: UnixDatagram, events: Arc<Mutex<Vec<Event>>>, changed: watch::Sender<()>) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length) = socket.recv(&mut buffer).await {
        let event = serde_json::from_slice(&buffer[..length]).expect("an event");
        events.lock().expect("no panic inside").push(event);
        changed.send_replace(());
    }
}
