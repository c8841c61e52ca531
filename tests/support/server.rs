//! Runs the API servers against which cases run.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tenure::apiserver;

use super::{api::Api, kept::pid};

/// Which API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The one in tenure itself.
    Embedded,
    /// kube-apiserver with etcd.
    Real,
}

impl Kind {
    /// Its name in the names of tests.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Real => "real",
        }
    }
}

/// The programs of a real server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// etcd.
    Etcd,
    /// kube-apiserver.
    ApiServer,
}

impl Program {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
        }
    }
}

/// The minor of Kubernetes that brought ValidatingAdmissionPolicy v1.
pub const VALIDATING: u32 = 30;

/// The minor of Kubernetes that brought coordinated leader election.
pub const COORDINATED: u32 = 31;

/// The minor of Kubernetes that brought MutatingAdmissionPolicy v1.
pub const MUTATING: u32 = 36;

/// The minor of Kubernetes that `TENURE_KUBERNETES` asks a real server to be of; the latest of all without it.
pub fn minor() -> u32 {
    let Ok(asked) = std::env::var("TENURE_KUBERNETES") else { return u32::MAX };
    asked.strip_prefix("1.").and_then(|minor| minor.parse().ok()).expect("TENURE_KUBERNETES is like 1.31")
}

/// A running API server; ends when dropped, or when this process ends, however that happens.
pub struct Server {
    directory: PathBuf,
    runs: Runs,
}

enum Runs {
    Embedded { _server: apiserver::Server },
    Real { script: Child, lifeline: Option<ChildStdin> },
}

impl Server {
    /// Starts one and waits until it answers.
    pub fn start(kind: Kind) -> Self {
        let directory = scratch(kind.as_str());
        let runs = match kind {
            Kind::Embedded => embedded(&directory),
            Kind::Real => real(&directory),
        };
        Self { directory, runs }
    }

    /// Which one it is.
    pub const fn kind(&self) -> Kind {
        match self.runs {
            Runs::Embedded { .. } => Kind::Embedded,
            Runs::Real { .. } => Kind::Real,
        }
    }

    /// An administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.directory.join("kubeconfig")
    }

    /// Sends a signal to one of its programs, which only a real server has.
    pub fn signal(&self, program: Program, signal: Signal) {
        kill(self.pid(program), signal).expect("it lives");
    }

    /// Returns the pid of one of its programs, which only a real server has.
    pub fn pid(&self, program: Program) -> Pid {
        let pid = fs::read_to_string(self.directory.join(format!("{}.pid", program.as_str()))).expect("its id");
        Pid::from_raw(pid.trim().parse().expect("an id"))
    }

    /// Makes one of its programs be killed and started again, without waiting until it answers; only a real server has programs.
    pub fn restart(&self, program: Program) {
        let Runs::Real { script, .. } = &self.runs else { panic!("the embedded API server has no {}", program.as_str()) };
        let request = match program {
            Program::Etcd => Signal::SIGUSR1,
            Program::ApiServer => Signal::SIGUSR2,
        };
        kill(pid(script), request).expect("the script lives");
    }

    /// The server's own audit log; only a real one keeps it.
    pub fn audit_log(&self) -> PathBuf {
        self.directory.join("audit.log")
    }

    /// An administrator's client, bound to the runtime in which it is created.
    pub async fn admin(&self) -> Api {
        Api::connect(&self.kubeconfig()).await
    }
}

fn embedded(directory: &Path) -> Runs {
    let server = apiserver::Server::start(([127, 0, 0, 1], 0).into()).expect("the embedded API server");
    fs::create_dir(directory).expect("a new directory");
    fs::write(directory.join("kubeconfig"), server.kubeconfig(server.address())).expect("a file");
    Runs::Embedded { _server: server }
}

fn real(directory: &Path) -> Runs {
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../cluster/server"));
    command.arg(directory);
    if minor() >= COORDINATED {
        // Without it the server drops `strategy` and `preferredHolder` from every Lease.
        command.arg("--feature-gates=CoordinatedLeaderElection=true");
    }
    let mut script = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the server's script");
    let lifeline = script.stdin.take();
    let mut line = String::new();
    BufReader::new(script.stdout.take().expect("piped")).read_line(&mut line).expect("a line of the server's script");
    assert_eq!(line.trim(), "ready", "the real API server did not come up");
    Runs::Real { script, lifeline }
}

impl Drop for Server {
    fn drop(&mut self) {
        match &mut self.runs {
            Runs::Embedded { .. } => drop(fs::remove_dir_all(&self.directory)),
            Runs::Real { script, lifeline } => {
                drop(lifeline.take());
                drop(script.wait());
            }
        }
    }
}

/// A new directory path, in memory if the machine has such a place, because etcd writes and stamps must never wait for a disk. The
/// directory is removed with this process, however that ends.
pub fn scratch(purpose: &str) -> PathBuf {
    static OURS: OnceLock<Scratch> = OnceLock::new();
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    OURS.get_or_init(Scratch::new).directory.join(format!("{purpose}-{number}"))
}

/// Environment variable for where directories are created, for a process whose janitor ends before it.
pub const SCRATCH: &str = "TENURE_TEST_SCRATCH";

/// The directory for all of this process's files. The janitor removes it when its standard input is closed.
struct Scratch {
    directory: PathBuf,
    _janitor: Child,
}

impl Scratch {
    fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let usual = || if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let parent = std::env::var_os(SCRATCH).map_or_else(usual, PathBuf::from);
        let directory = parent.join(format!("tenure-test-{:016x}", getrandom::u64().expect("randomness")));
        fs::create_dir(&directory).expect("a new directory");
        // Servers that are just ending may still write.
        let script =
            "trap '' INT TERM HUP; read -r _; for n in $(seq 100); do rm -rf \"$0\" 2>/dev/null && exit; sleep 0.1; done";
        let mut janitor = Command::new("sh");
        // In its own process group, so that it survives when this process's whole group is killed.
        janitor
            .process_group(0)
            .args(["-c", script])
            .arg(&directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let janitor = janitor.spawn().expect("sh");
        Self { directory, _janitor: janitor }
    }
}
