//! When the workload was alive, by its own account: its stamps of the node's clock in the containers' logs.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// One life of the workload. Times are hundredths of a second of CLOCK_BOOTTIME.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) pod: String,
    pub(crate) token: u64,
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// Everything that it printed after its first line.
    pub(crate) words: Vec<String>,
}

/// Keeps all logs of the node, including those of deleted pods.
pub(crate) struct Stamps {
    kept: PathBuf,
    stop: Arc<AtomicBool>,
    keeper: Option<JoinHandle<()>>,
}

impl Stamps {
    /// Starts keeping the logs below `pods`; `kept` is on the same file system.
    pub(crate) fn keep(pods: PathBuf, kept: PathBuf) -> Self {
        fs::create_dir(&kept).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (into, stopped) = (kept.clone(), stop.clone());
        let keeper = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                link_all(&pods, &into);
                thread::sleep(Duration::from_millis(20));
            }
        });
        Self { kept, stop, keeper: Some(keeper) }
    }

    /// Every life of the workload so far, in the order of their starts.
    pub(crate) fn runs(&self) -> Vec<Run> {
        let logs = fs::read_dir(&self.kept).unwrap().map(|entry| entry.unwrap().path());
        let mut runs: Vec<Run> = logs.flat_map(|log| parse(&String::from_utf8_lossy(&fs::read(log).unwrap()))).collect();
        runs.sort_by_key(|run| (run.first, run.token));
        runs
    }

    /// Returns true if a container of this pod has printed these words, even if the pod is gone.
    pub(crate) fn has_said(&self, pod: &str, words: &str) -> bool {
        let logs = fs::read_dir(&self.kept).unwrap().map(|entry| entry.unwrap());
        let mut of_pod = logs.filter(|log| log.file_name().to_string_lossy().contains(&format!("_{pod}_")));
        of_pod.any(|log| String::from_utf8_lossy(&fs::read(log.path()).unwrap()).contains(words))
    }

    /// Panics if two were alive at once.
    pub(crate) fn assert_no_overlap(&self) {
        for pair in self.runs().windows(2) {
            assert!(pair[0].last <= pair[1].first, "two at once: {} and {}", pair[0].summary(), pair[1].summary());
            assert!(pair[0].token < pair[1].token, "tokens do not rise: {} and {}", pair[0].summary(), pair[1].summary());
        }
    }
}

impl Drop for Stamps {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.keeper.take().map(JoinHandle::join));
    }
}

impl Run {
    pub(crate) fn summary(&self) -> String {
        let seconds = |time: u64| format!("{}.{:02}", time / 100, time % 100);
        format!("{} with token {} from {} to {}", self.pod, self.token, seconds(self.first), seconds(self.last))
    }
}

/// The node's clock now, in the workload's unit.
pub(crate) fn now() -> u64 {
    hundredths(fs::read_to_string("/proc/uptime").unwrap().split(' ').next().unwrap()).unwrap()
}

/// Hard-links every log: kubelet removes a container's log with it, but the inode stays.
fn link_all(pods: &Path, kept: &Path) {
    for pod in entries(pods) {
        for container in entries(&pod) {
            for log in entries(&container) {
                let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                let unique = format!("{}-{}-{}", name(&pod), name(&container), name(&log));
                // It usually exists: it was kept before.
                drop(fs::hard_link(&log, kept.join(unique)));
            }
        }
    }
}

/// The entries of a directory; none once it is gone.
fn entries(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).map_or_else(|_| Vec::new(), |entries| entries.flatten().map(|entry| entry.path()).collect())
}

/// The lives in one container's log: lines `TIME stdout F CLOCK starts on POD with token TOKEN`, then `... CLOCK WORDS`.
fn parse(log: &str) -> Vec<Run> {
    let mut runs: BTreeMap<u64, Run> = BTreeMap::new();
    for line in log.lines() {
        let Some((_, said)) = line.split_once(" stdout F ") else { continue };
        let Some((clock, words)) = said.split_once(' ') else { continue };
        let Some(clock) = hundredths(clock) else { continue };
        if let Some((pod, token)) = words.strip_prefix("starts on ").and_then(|words| words.split_once(" with token ")) {
            let token = token.parse().expect("a token is a number");
            let run = Run { pod: pod.to_owned(), token, first: clock, last: clock, words: Vec::new() };
            runs.insert(token, run);
        } else if let Some(mut run) = runs.last_entry() {
            run.get_mut().last = clock;
            run.get_mut().words.push(words.to_owned());
        }
    }
    runs.into_values().collect()
}

/// A time with two decimals.
pub(crate) fn hundredths(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.')?;
    Some(seconds.parse::<u64>().ok()? * 100 + fraction.parse::<u64>().ok()?)
}
