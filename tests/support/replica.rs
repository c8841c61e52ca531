//! Runs tenure as a container would: as PID 1 of its own PID namespace, behind its own proxy.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use tokio::{sync::watch, task::JoinHandle};

use super::{
    Kept, PATIENCE, found,
    kept::{bound, contained, pid},
    procfs::{children, command_line, is_dead, own_id},
    proxy::Proxy,
    until, within,
    workload::FACE,
};

/// A running replica; everything in it ends when this is dropped, or when this process ends, however that happens.
pub struct Replica {
    /// Its name, which is also the base of its identity.
    pub name: String,
    /// The proxy between it and the API server.
    pub proxy: Proxy,
    launcher: Pid,
    contained: bool,
    ended: watch::Receiver<Option<ExitStatus>>,
    lines: Arc<Mutex<Vec<String>>>,
    _waiting: JoinHandle<()>,
}

/// Everything that a replica is started with.
pub struct Launch {
    /// Its name.
    pub name: String,
    /// The directory for its files.
    pub directory: PathBuf,
    /// Its configuration.
    pub config: Value,
    /// The tenure that runs the workload.
    pub program: String,
    /// The command line that is to run the workload instead of `tenure run`.
    pub runner: Option<Vec<String>>,
    /// The workload's command line.
    pub workload: Vec<String>,
    /// PID 1 of its own namespace; otherwise an ordinary process.
    pub contained: bool,
    /// May kill processes of other users.
    pub may_kill: bool,
    /// The bearer token.
    pub token: String,
    /// Additional environment.
    pub env: Vec<(String, String)>,
    /// A command that runs its arguments in further confinement.
    pub confined_by: Vec<String>,
}

impl Launch {
    /// Starts it behind this proxy. The calling thread must outlive the replica, which dies with it.
    pub fn start(self, proxy: Proxy) -> Replica {
        let directory = self.directory.join(&self.name);
        fs::create_dir_all(&directory).expect("a directory");
        let config = directory.join("tenure.json");
        fs::write(&config, self.config.to_string()).expect("a configuration file");
        let kubeconfig = write_kubeconfig(&directory, &proxy, &self.token);
        let mut command = bound();
        command.args(self.confined_by).args(contained().filter(|_| self.contained));
        if !self.may_kill {
            command.args(["setpriv", "--bounding-set=-kill"]);
        }
        let tenure = || [&*self.program, "run", "--config", &config.to_string_lossy(), "--"].map(str::to_owned).into();
        command.args(self.runner.unwrap_or_else(tenure)).args(self.workload);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("KUBECONFIG", kubeconfig)
            .envs(self.env);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("a replica");
        let launcher = pid(&child);
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let (stderr, kept) = (child.stderr.take().expect("piped"), lines.clone());
        let reading = std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                kept.lock().expect("no panic inside").push(line);
            }
        });
        let (send, ended) = watch::channel(None);
        let waiting = tokio::task::spawn_blocking(move || {
            let status = child.wait().expect("a child");
            // Its last lines count as long as it has not ended; everything that could write more has ended with it.
            drop(reading.join());
            send.send_replace(Some(status));
        });
        Replica { name: self.name, proxy, launcher, contained: self.contained, ended, lines, _waiting: waiting }
    }
}

impl Replica {
    /// The lines of its standard error so far.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().expect("no panic inside").clone()
    }

    /// The pid of the process that was started: init, unless that is contained.
    pub fn launcher(&self) -> Pid {
        self.launcher
    }

    /// Init's pid, as seen from here.
    pub async fn init(&self) -> Pid {
        if !self.contained {
            return self.launcher;
        }
        self.child_of(self.launcher, "init", |_| true).await
    }

    /// The elector's pid, as seen from here.
    pub async fn elector(&self) -> Pid {
        let init = self.init().await;
        self.child_of(init, "the elector", |line| line.get(1).is_some_and(|word| word == "elector")).await
    }

    /// The workload's pid, as seen from here.
    pub async fn workload(&self) -> Pid {
        let init = self.init().await;
        self.child_of(init, "the workload", |line| line.get(1).is_some_and(|word| word == FACE)).await
    }

    /// Sends init a signal, as a container runtime does.
    pub async fn signal(&self, signal: Signal) {
        kill(self.init().await, signal).expect("init lives");
    }

    /// Waits until all of it has ended; returns init's exit code, or 128 plus the signal that ended it.
    pub async fn exit(&self) -> i32 {
        use std::os::unix::process::ExitStatusExt as _;
        let mut ended = self.ended.clone();
        let status = within(PATIENCE, &format!("{} ends", self.name), async {
            ended.wait_for(Option::is_some).await.expect("somebody waits for it").expect("it ended")
        })
        .await;
        status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
    }

    /// Sends init SIGTERM; returns what [`Self::exit`] does.
    pub async fn stop(&self) -> i32 {
        self.signal(Signal::SIGTERM).await;
        self.exit().await
    }

    /// Waits until a process has ended; a zombie counts as ended.
    pub async fn gone(&self, pid: Pid) {
        until(&format!("{pid} of {} is gone", self.name), async || is_dead(pid)).await;
    }

    /// Waits until a line of its standard error contains this.
    pub async fn said(&self, words: &str) {
        let said = async || self.lines().iter().any(|line| line.contains(words));
        until(&format!("{} says {words:?}", self.name), said).await;
    }

    /// A process of another user inside the container, which an init without CAP_KILL cannot kill.
    pub async fn intruder(&self) -> Intruder {
        let init = self.init().await.to_string();
        let enter = ["--pdeathsig", "KILL", "nsenter", "--target", &init, "--pid", "--mount"];
        let run = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--pdeathsig", "KILL", "sleep", "infinity"];
        let intruder = Command::new("setpriv").args(enter).args(run).stdin(Stdio::null()).spawn().expect("nsenter");
        let intruder = Intruder(Kept(intruder));
        self.child_of(intruder.0.pid(), "an intruder", |line| line[0] == "sleep").await;
        intruder
    }

    /// The workload's daemon, as seen from here, once init has adopted it. `main` is the workload's pid in its own namespace.
    pub async fn daemon_beside(&self, main: u32) -> Pid {
        let init = self.init().await;
        let is_other = |pid: &Pid| own_id(*pid).is_some_and(|id| id != main);
        let daemon = |pid: &Pid| is_other(pid) && command_line(*pid).get(1).is_some_and(|word| word == FACE);
        found(&format!("a daemon of {}", self.name), async || children(init).into_iter().find(daemon)).await
    }

    /// Returns whether the replica still runs.
    pub fn runs(&self) -> bool {
        self.ended.borrow().is_none()
    }

    /// The kernel signals no event for a new child.
    async fn child_of(&self, parent: Pid, what: &str, is_it: impl Fn(&[String]) -> bool) -> Pid {
        let child = async || children(parent).into_iter().find(|pid| is_it(&command_line(*pid)));
        found(&format!("{what} of {}", self.name), child).await
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if self.runs() {
            // It may have ended in between.
            let _ = kill(self.launcher, Signal::SIGKILL);
        }
        if std::thread::panicking() {
            for line in self.lines() {
                eprintln!("{}: {line}", self.name);
            }
            for exchange in self.proxy.log.all() {
                let request = &exchange.request;
                let answer = exchange.answer.as_ref().map(|answer| (answer.at, answer.status));
                eprintln!("{}: {:?} {:?} {} -> {answer:?} {}", self.name, request.at, request.verb, request.uri, request.spec());
            }
        }
    }
}

/// Ends when dropped.
pub struct Intruder(Kept);

impl Intruder {
    /// Waits until something else has ended it.
    pub async fn ended(mut self) {
        until("the intruder has ended", async || self.0.try_wait().expect("a child").is_some()).await;
    }
}

/// Writes a kubeconfig for a client behind this proxy, with a file for the token.
pub fn write_kubeconfig(directory: &Path, proxy: &Proxy, token: &str) -> PathBuf {
    write_kubeconfig_to(directory, &format!("https://{}", proxy.address()), proxy.certificate(), token)
}

/// The same for the server at `url`, whose certificate is checked with this one.
pub fn write_kubeconfig_to(directory: &Path, url: &str, certificate: &str, token: &str) -> PathBuf {
    let file = |name: &str, text: &str| {
        let path = directory.join(name);
        fs::write(&path, text).expect("a file");
        path
    };
    let (token, certificate) = (file("token", token), file("ca.crt", certificate));
    let text = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{ "name": "test", "cluster": {
            "server": url, "certificate-authority": certificate,
        }}],
        "users": [{ "name": "test", "user": { "tokenFile": token } }],
        "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
    });
    file("kubeconfig", &text.to_string())
}
