//! The workload of the Lease with `runs: always`: it leads from the signal that promotes it until it has reported that it follows.
//!
//! It stamps and holds the lock while it leads, and only then. Some report late that they follow, some never, and for some another
//! process reports it.

use std::{
    fs::File,
    os::{
        fd::AsFd as _,
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixDatagram},
    },
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use fastrand::Rng;
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::Signal,
};
use serde_json::json;
use support::workload::{FACE, Stamps, Voice, detach, lock, next, signals};
use tenure::{clock, time::Instant};

/// The word in its command line that distinguishes it from the other workload.
const ALWAYS: &str = "always";
/// Required settings of the configuration.
pub(crate) const SETTINGS: [(&str, &str); 4] = [
    ("workload.runs", "always"),
    ("workload.acknowledge", "notify"),
    ("signals.onLead", "SIGUSR1"),
    ("signals.onFollow", "SIGUSR2"),
];
/// Pause between two messages of a forger.
const FORGES: Duration = Duration::from_millis(20);

/// The manner in which a daemon of the workload reports all the time that it follows.
const FORGED: &str = "forged";
/// The manners, and how long after it was told to each stops leading, and reports it. A demotion may take the grace period of a stop,
/// or 200 ms if the Lease is lost.
const MANNERS: [(&str, Option<Duration>); 5] = [
    ("prompt", Some(Duration::ZERO)),
    // Usually in time.
    ("late", Some(Duration::from_millis(120))),
    // When it should be dead already.
    ("overdue", Some(Duration::from_secs(4))),
    ("never", None),
    (FORGED, None),
];

/// The command line of a workload of the replica `name`, whose manner this seed draws.
pub(crate) fn command(seed: u64, directory: &Path, name: &str) -> Vec<String> {
    let (manner, _) = MANNERS[Rng::with_seed(seed).usize(..MANNERS.len())];
    line(directory, name, manner)
}

fn line(directory: &Path, name: &str, manner: &str) -> Vec<String> {
    let program = std::env::current_exe().expect("this test binary");
    [&*program.to_string_lossy(), FACE, ALWAYS, &*directory.to_string_lossy(), name, manner].map(str::to_owned).to_vec()
}

/// Runs as the workload, if this process was started as one.
pub(crate) fn face() -> Option<ExitCode> {
    let words: Vec<String> = std::env::args().collect();
    let [_, face, always, directory, name, manner] = words.as_slice() else { return None };
    if face != FACE || always != ALWAYS {
        return None;
    }
    if manner == "forger" {
        loop {
            say("standby");
            std::thread::sleep(FORGES);
        }
    }
    let (manner, wait_limit) = *MANNERS.iter().find(|(word, _)| word == manner)?;
    let (directory, name, voice) = (directory.into(), name.clone(), Voice::new(Path::new(directory), name));
    Some(Workload { directory, name, voice, manner, wait_limit }.run())
}

struct Workload {
    directory: PathBuf,
    name: String,
    voice: Voice,
    manner: &'static str,
    wait_limit: Option<Duration>,
}

/// While this exists, it leads; dropping it frees the lock and ends the stamps.
struct Leading {
    stamps: Stamps,
    _lock: File,
    /// When it will report that it follows.
    until: Instant,
}

impl Workload {
    fn run(self) -> ExitCode {
        let signals = signals();
        if self.manner == FORGED {
            // It does not belong to the workload's main process.
            detach(line(&self.directory, &self.name, "forger"), &[]);
        }
        let mut leading = std::env::var("TENURE_ROLE").is_ok_and(|role| role == "leader").then(|| self.lead());
        loop {
            if let Some(leads) = &leading {
                leads.stamps.stamp();
                if clock::boot() >= leads.until {
                    drop(leading.take());
                    say("standby");
                }
            }
            let mut ready = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
            let pause = if leading.is_some() { PollTimeout::from(1_u8) } else { PollTimeout::NONE };
            poll(&mut ready, pause).expect("signals are blocked, so nothing interrupts");
            while let Some(signal) = next(&signals) {
                if signal == Signal::SIGTERM {
                    return ExitCode::SUCCESS;
                }
                if signal == Signal::SIGUSR1 {
                    leading = Some(self.lead());
                }
                if let (Signal::SIGUSR2, Some(leads), Some(wait_limit)) = (signal, &mut leading, self.wait_limit) {
                    leads.until = leads.until.min(clock::boot() + wait_limit);
                }
            }
        }
    }

    /// Starts to lead, without a token from tenure: the time at which it was told to lead serves as one.
    fn lead(&self) -> Leading {
        let token = clock::boot().as_nanos().to_string();
        let stamps = Stamps::open(&self.directory, &self.name, &token);
        self.voice.tell("start", &json!({ "TENURE_FENCING_TOKEN": token }));
        let lock = lock(&self.directory, &self.voice, &token);
        say("leader");
        Leading { stamps, _lock: lock, until: Instant::NEVER }
    }
}

fn say(role: &str) {
    let address = std::env::var("NOTIFY_SOCKET").expect("where to say it");
    let name = SocketAddr::from_abstract_name(address.trim_start_matches('@')).expect("an abstract name");
    // Without a listener there is nobody to tell, and init's queue may be full while it is stopped.
    let socket = UnixDatagram::unbound().expect("a socket");
    socket.set_nonblocking(true).expect("an option");
    drop(socket.send_to_addr(format!("X_TENURE_ROLE={role}").as_bytes(), &name));
}
