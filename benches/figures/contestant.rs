//! The programs that run the workload under a Lease: tenure and the programs that it is compared with.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use support::{
    Behaviour, LEASE, Proxy, Stage, Verbs, api,
    procfs::{children, command_line},
    replica::write_kubeconfig_to,
};
use tenure::law::Timing;

use crate::refusal;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// What runs the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contestant {
    /// This repository's static binary.
    Tenure,
    /// The same, but the kernel denies it the fuse.
    Fuseless,
    /// [`Contestant::Tenure`] with its workload frozen on standbys.
    Frozen,
    /// [`Contestant::Tenure`] with a `tenure witness` beside each replica.
    Witnessed,
    /// `benches/peers/client-go`.
    ClientGo,
    /// LINBIT's k8s-await-election, if `--await-election` names its checkout.
    AwaitElection,
}

pub const BOTH: [Contestant; 2] = [Contestant::Tenure, Contestant::ClientGo];

/// D and the settings that follow from it.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub duration: Duration,
    pub renew_period: Duration,
    attempt_timeout: Duration,
    loss_grace: Duration,
    kill_margin: Duration,
    peer_deadline: Duration,
    peer_period: Duration,
}

impl Pace {
    /// The timing of the law for these settings, with the default rho.
    pub fn timing(self) -> Timing {
        let Self { duration, renew_period, attempt_timeout, loss_grace, kill_margin, .. } = self;
        Timing { duration, renew_period, attempt_timeout, drift: 10_000, loss_grace, kill_margin }
    }

    /// The settings as flags of a contestant.
    pub fn flags(self, who: Contestant) -> Vec<String> {
        let millis = |flag: &str, span: Duration| format!("{flag}={}ms", span.as_millis());
        match who {
            Contestant::Tenure | Contestant::Fuseless | Contestant::Frozen | Contestant::Witnessed => [
                ("lease.duration", self.duration),
                ("lease.renewPeriod", self.renew_period),
                ("lease.attemptTimeout", self.attempt_timeout),
                ("workload.stop.lossGrace", self.loss_grace),
                ("workload.stop.killMargin", self.kill_margin),
            ]
            .map(|(key, span)| format!("--set={}", millis(key, span)))
            .into(),
            Contestant::ClientGo | Contestant::AwaitElection => [
                millis("--lease-duration", self.duration),
                millis("--renew-deadline", self.peer_deadline),
                millis("--retry-period", self.peer_period),
            ]
            .into(),
        }
    }
}

/// The defaults of both: D = 15 s.
pub const DEFAULT: Pace = Pace {
    duration: Duration::from_secs(15),
    renew_period: Duration::from_secs(3),
    attempt_timeout: Duration::from_secs(2),
    loss_grace: Duration::from_secs(4),
    kill_margin: Duration::from_secs(1),
    peer_deadline: Duration::from_secs(10),
    peer_period: Duration::from_secs(2),
};

/// A short D that the law permits.
pub const SHORT: Pace = Pace {
    duration: Duration::from_secs(4),
    renew_period: Duration::from_secs(1),
    attempt_timeout: Duration::from_millis(400),
    loss_grace: Duration::from_millis(500),
    kill_margin: Duration::from_millis(500),
    peer_deadline: Duration::from_millis(2_700),
    peer_period: Duration::from_millis(500),
};

/// The fast times of docs/timings.md, and client-go's with the proportions of its defaults.
pub const FAST: Pace = Pace {
    duration: Duration::from_secs(8),
    renew_period: Duration::from_secs(1),
    attempt_timeout: Duration::from_secs(1),
    loss_grace: Duration::from_secs(2),
    peer_deadline: Duration::from_millis(5_333),
    peer_period: Duration::from_millis(1_067),
    ..DEFAULT
};

/// The patient times of docs/timings.md, and client-go's with the proportions of its defaults.
pub const PATIENT: Pace = Pace {
    duration: Duration::from_secs(60),
    renew_period: Duration::from_secs(10),
    peer_deadline: Duration::from_secs(40),
    peer_period: Duration::from_secs(8),
    ..DEFAULT
};

/// The patient times, with fewer renewals.
pub const SPARING: Pace = Pace { renew_period: Duration::from_secs(15), ..PATIENT };

/// A D that leaves enough time to renew beside a crowd of spinners.
pub const CROWDED: Pace = Pace {
    duration: Duration::from_secs(8),
    renew_period: Duration::from_secs(2),
    attempt_timeout: Duration::from_millis(1_500),
    loss_grace: Duration::from_millis(500),
    kill_margin: Duration::from_secs(1),
    ..DEFAULT
};

/// The programs to compare.
pub struct Programs {
    pub tenure: PathBuf,
    workload: PathBuf,
    client_go: PathBuf,
    await_election: Option<PathBuf>,
    pub apiserver: String,
}

impl Programs {
    /// Builds the programs, and prints that; k8s-await-election from its checkout in this directory.
    pub fn build(await_election: Option<&Path>) -> Self {
        eprintln!("figures: building the static binary, the workload and the peer");
        let tenure = build(&["--bin", "tenure"], "tenure");
        let workload = build(&["--bench", "workload"], "workload");
        let client_go = cache().join("client-go");
        build_go(&Path::new(ROOT).join("benches/peers/client-go"), &client_go);
        let await_election = await_election.map(|checkout| {
            let program = cache().join("k8s-await-election");
            build_go(checkout, &program);
            program
        });
        let apiserver = Command::new(Path::new(ROOT).join("tests/cluster/binaries/build")).arg("kube-apiserver").output();
        let apiserver = String::from_utf8_lossy(&apiserver.expect("the build script").stdout).trim().to_owned();
        let version = Command::new(&apiserver).arg("--version").output().expect("the API server");
        let apiserver = String::from_utf8_lossy(&version.stdout).trim().to_owned();
        Self { tenure, workload, client_go, await_election, apiserver }
    }

    pub fn of(&self, contestant: Contestant) -> &Path {
        match contestant {
            Contestant::Tenure | Contestant::Fuseless | Contestant::Frozen | Contestant::Witnessed => &self.tenure,
            Contestant::ClientGo => &self.client_go,
            Contestant::AwaitElection => self.await_election.as_deref().expect("built only where its checkout is named"),
        }
    }

    /// All contestants that are available.
    pub fn contestants(&self) -> Vec<Contestant> {
        let peer = self.await_election.as_ref().map(|_| Contestant::AwaitElection);
        BOTH.into_iter().chain(peer).collect()
    }
}

impl Contestant {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tenure => "tenure",
            Self::Fuseless => "tenure, no fuse",
            Self::Frozen => "tenure, frozen",
            Self::Witnessed => "tenure, witness",
            Self::ClientGo => "client-go wrapper",
            Self::AwaitElection => "k8s-await-election",
        }
    }

    fn line(self, program: &Path, kubeconfig: &Path, directory: &Path, stage: &Stage, name: &str, pace: Pace) -> Vec<String> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let millis = |span: Duration| format!("{}ms", span.as_millis());
        match self {
            Self::Tenure | Self::Fuseless | Self::Frozen | Self::Witnessed => {
                let config = directory.join("tenure.json");
                let settings = json!({
                    "lease": {
                        "name": LEASE, "namespace": stage.namespace, "identity": name, "duration": millis(pace.duration),
                        "renewPeriod": millis(pace.renew_period), "attemptTimeout": millis(pace.attempt_timeout),
                        "witness": Some(socket(stage, name)).filter(|_| self == Self::Witnessed),
                    },
                    "workload": { "runs": if self == Self::Frozen { "frozen" } else { "leading" }, "stop": { "lossGrace": millis(pace.loss_grace), "killMargin": millis(pace.kill_margin) } },
                });
                fs::write(&config, settings.to_string()).expect("a configuration file");
                let plain = [text(program), "run".into(), "--config".into(), text(&config), "--".into()];
                let refused = if self == Self::Fuseless { refusal::command() } else { Vec::new() };
                refused.into_iter().chain(plain).collect()
            }
            Self::ClientGo => {
                let named = [
                    text(program),
                    format!("--kubeconfig={}", kubeconfig.display()),
                    format!("--namespace={}", stage.namespace),
                    format!("--lease={LEASE}"),
                    format!("--identity={name}"),
                ];
                named.into_iter().chain(pace.flags(self)).chain(["--".into()]).collect()
            }
            Self::AwaitElection => {
                // k8s-await-election reads its credentials only from where the kubelet mounts them.
                let mount = "set -eu; mount -t tmpfs tmpfs /run; mkdir -p /run/secrets/kubernetes.io; \
                    ln -s \"$0\" /run/secrets/kubernetes.io/serviceaccount; exec \"$@\"";
                ["sh".into(), "-c".into(), mount.into(), text(directory), text(program)].into()
            }
        }
    }

    /// The environment that the contestant reads.
    fn environment(self, url: &str, stage: &Stage, name: &str, pace: Pace) -> Vec<(String, String)> {
        let Self::AwaitElection = self else { return Vec::new() };
        let (host, port) = url.trim_start_matches("https://").rsplit_once(':').expect("a host and a port");
        let seconds = |span: Duration| span.as_secs().max(1).to_string();
        let pairs = [
            ("KUBERNETES_SERVICE_HOST", host.to_owned()),
            ("KUBERNETES_SERVICE_PORT", port.to_owned()),
            ("K8S_AWAIT_ELECTION_ENABLED", "1".to_owned()),
            ("K8S_AWAIT_ELECTION_NAME", LEASE.to_owned()),
            ("K8S_AWAIT_ELECTION_LOCK_NAME", LEASE.to_owned()),
            ("K8S_AWAIT_ELECTION_LOCK_NAMESPACE", stage.namespace.clone()),
            ("K8S_AWAIT_ELECTION_IDENTITY", name.to_owned()),
            ("K8S_AWAIT_ELECTION_LEASE_DURATION", seconds(pace.duration)),
            ("K8S_AWAIT_ELECTION_RENEW_DEADLINE", seconds(pace.peer_deadline)),
            ("K8S_AWAIT_ELECTION_RETRY_PERIOD", seconds(pace.peer_period)),
        ];
        pairs.map(|(key, value)| (key.to_owned(), value)).into()
    }
}

/// The socket of a replica's witness.
fn socket(stage: &Stage, name: &str) -> String {
    format!("@{}-{name}", stage.namespace)
}

/// One replica, as PID 1 of its own PID namespace. Dropping it ends everything in the namespace, and its witness.
pub struct Replica {
    pub name: String,
    pub proxy: Option<Proxy>,
    launcher: Child,
    witness: Option<Child>,
}

impl Replica {
    /// Starts a replica that reaches the API server directly, or through a proxy that can inject faults.
    pub async fn start(
        programs: &Programs,
        who: Contestant,
        stage: &Stage,
        name: &str,
        pace: Pace,
        behaviour: &Behaviour,
        faults: bool,
    ) -> Self {
        let workload = behaviour.command_of(&programs.workload, stage.directory(), name);
        Self::start_as(programs, who, stage, name, pace, &[], &workload, faults).await
    }

    /// Starts a replica by the command `before`, with another workload.
    #[allow(clippy::too_many_arguments, reason = "each is another thing that a figure varies")]
    pub async fn start_as(
        programs: &Programs,
        who: Contestant,
        stage: &Stage,
        name: &str,
        pace: Pace,
        before: &[String],
        workload: &[String],
        faults: bool,
    ) -> Self {
        let directory = stage.directory().join(name);
        fs::create_dir_all(&directory).expect("a directory");
        let token = stage.api.minimal_token(&stage.namespace, LEASE, &Verbs::default()).await;
        let proxy = if faults { Some(Proxy::start(stage.kubeconfig()).await) } else { None };
        let (url, certificate) = match &proxy {
            Some(proxy) => (format!("https://{}", proxy.address()), proxy.certificate().to_owned()),
            None => {
                let server = api::config(stage.kubeconfig()).await.cluster_url.to_string();
                let certificate = fs::read_to_string(stage.kubeconfig().with_file_name("ca.crt"));
                (server.trim_end_matches('/').to_owned(), certificate.expect("the server's certificate"))
            }
        };
        let kubeconfig = write_kubeconfig_to(&directory, &url, &certificate, &token);
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).args(before).args([
            "setpriv",
            "--pdeathsig",
            "KILL",
            "unshare",
            "--fork",
            "--pid",
            "--mount-proc",
            "--kill-child=SIGKILL",
        ]);
        command.args(who.line(programs.of(who), &kubeconfig, &directory, stage, name, pace));
        command.args(workload);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("KUBECONFIG", &kubeconfig);
        command.envs(who.environment(&url, stage, name, pace));
        let log = fs::File::create(directory.join("log")).expect("a log");
        let launcher = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("a replica");
        let witness = (who == Contestant::Witnessed).then(|| {
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL"]).arg(&programs.tenure).args(["witness", "--socket", &socket(stage, name)]);
            command.env("KUBECONFIG", kubeconfig).stderr(Stdio::null()).spawn().expect("a witness")
        });
        Self { name: name.to_owned(), proxy, launcher, witness }
    }

    /// PID 1 as seen from here.
    pub fn init(&self) -> Pid {
        let launcher = Pid::from_raw(i32::try_from(self.launcher.id()).expect("a pid"));
        children(launcher).into_iter().next().expect("a child of unshare")
    }

    /// The process of the elector. client-go's wrapper has one process.
    pub fn elector(&self) -> Pid {
        let init = self.init();
        let is_elector = |pid: &Pid| command_line(*pid).get(1).is_some_and(|word| word == "elector");
        children(init).into_iter().find(is_elector).unwrap_or(init)
    }

    /// The process of its witness.
    pub fn witness(&self) -> Option<Pid> {
        self.witness.as_ref().map(|witness| Pid::from_raw(i32::try_from(witness.id()).expect("a pid")))
    }

    pub fn signal(&self, pid: Pid, signal: Signal) {
        kill(pid, signal).expect("the process lives");
    }

    /// Waits until the replica has ended.
    pub async fn ended(&mut self) {
        while self.launcher.try_wait().expect("a child").is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub fn has_ended(&mut self) -> bool {
        self.launcher.try_wait().expect("a child").is_some()
    }

    /// Kills every process of the replica at once.
    pub fn kill(&mut self) {
        drop(self.launcher.kill());
        drop(self.launcher.wait());
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.kill();
        if let Some(witness) = &mut self.witness {
            drop(witness.kill());
            drop(witness.wait());
        }
    }
}

/// The directory of etcd's data.
pub fn place() -> &'static str {
    if Path::new("/dev/shm").is_dir() { "memory (tmpfs)" } else { "the temporary directory's disk" }
}

/// Builds a static program of this repository, as in a release. Returns a copy: what a linker has written lies in small pieces in the
/// page cache and starts a quarter slower than a file that was written at once, as those of an image are.
fn build(target: &[&str], name: &str) -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    let architecture = std::env::consts::ARCH;
    let platform = format!("{architecture}-unknown-linux-musl");
    cargo.args(["build", "--release", "--target", &platform, "--message-format", "json"]).args(target).current_dir(ROOT);
    let output =
        cargo.env(format!("CC_{architecture}_unknown_linux_musl"), "gcc").stderr(Stdio::inherit()).output().expect("cargo");
    let messages = String::from_utf8_lossy(&output.stdout);
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut executables = messages
        .filter(|message| message["target"]["name"] == name)
        .filter_map(|message| message["executable"].as_str().map(PathBuf::from));
    let built = executables.next_back().unwrap_or_else(|| panic!("{cargo:?}: {}", output.status));
    let place = cache().join("figures");
    let copy = place.join(name);
    fs::create_dir_all(&place).and_then(|()| fs::copy(built, &copy)).expect("a copy of the program");
    copy
}

fn cache() -> PathBuf {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let base = base.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache"));
    base.join("tenure")
}

fn build_go(module: &Path, program: &Path) {
    let mut go = Command::new("go");
    run(go.args(["build", "-trimpath", "-ldflags=-s -w", "-o"]).arg(program).arg(".").current_dir(module));
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}
