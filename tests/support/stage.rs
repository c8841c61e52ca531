//! The stage for one case: its own namespace, a Lease, a witness, and the replicas that it starts.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
};

use super::{
    Kept, PATIENCE, TENURE,
    api::{Api, Lease, Verbs},
    audit,
    proxy::Proxy,
    replica::{Launch, Replica, write_kubeconfig},
    server::{Kind, Server},
    spec::released,
    stalls, within,
    witness::{Event, Witness},
    workload::Behaviour,
};

/// Name of every case's Lease; the namespace distinguishes them.
pub const LEASE: &str = "main";

/// Short lawful timings: S, H and E lie 3.16, 3.66 and 3.96 s after a send, and a rival may take after 4.04 s.
pub mod timing {
    use std::time::Duration;

    /// D.
    pub const DURATION: Duration = Duration::from_secs(4);
    /// R.
    pub const RENEW_PERIOD: Duration = Duration::from_secs(1);
    /// T.
    pub const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(400);
    /// G.
    pub const LOSS_GRACE: Duration = Duration::from_millis(500);
    /// k + w.
    pub const KILL_MARGIN: Duration = Duration::from_millis(300);
    /// The grace period of a planned stop.
    pub const GRACE: Duration = Duration::from_secs(2);
}

/// The stage of one case.
pub struct Stage {
    /// The server that it uses.
    pub kind: Kind,
    /// Administrator access.
    pub api: Api,
    /// The case's Lease.
    pub lease: Lease,
    /// The namespace.
    pub namespace: String,
    /// Receives the workloads' messages.
    pub witness: Arc<Witness>,
    kubeconfig: PathBuf,
    audit_log: PathBuf,
    directory: PathBuf,
}

impl Stage {
    /// A new one on this server, with its files in this directory.
    pub async fn set(server: &Server, directory: &Path) -> Self {
        Self::build(server.kind(), server.admin().await, server.kubeconfig(), server.audit_log(), directory).await
    }

    /// Another one beside it, for a case that uses several at a time. The case itself must check it for overlaps.
    pub async fn beside(&self, name: &str) -> Self {
        let directory = self.directory.join(name);
        fs::create_dir(&directory).expect("a new directory");
        Self::build(self.kind, self.api.clone(), self.kubeconfig.clone(), self.audit_log.clone(), &directory).await
    }

    async fn build(kind: Kind, api: Api, kubeconfig: PathBuf, audit_log: PathBuf, directory: &Path) -> Self {
        stalls::watch();
        let namespace = format!("case-{:08x}", fastrand::u32(..));
        if kind == Kind::Real {
            api.create("/api/v1/namespaces", &json!({ "metadata": { "name": namespace } })).await;
        }
        let (lease, witness) = (api.lease(&namespace, LEASE), Arc::new(Witness::listen(directory)));
        Self { kind, lease, witness, kubeconfig, audit_log, api, namespace, directory: directory.to_owned() }
    }

    /// A replica about to start, with a workload that ends at once on SIGTERM and with the minimal permissions.
    pub async fn prepare(&self, name: &str) -> Prepared {
        self.prepare_with(name, &Verbs::default()).await
    }

    /// A replica about to start, with these permissions.
    pub async fn prepare_with(&self, name: &str, verbs: &Verbs) -> Prepared {
        let token = match self.kind {
            Kind::Real => self.api.minimal_token(&self.namespace, LEASE, verbs).await,
            Kind::Embedded => self.api.token().to_owned(),
        };
        self.prepare_at(name, token, Ipv4Addr::LOCALHOST).await
    }

    /// A replica about to start, with this token, whose proxy listens at this address.
    pub async fn prepare_at(&self, name: &str, token: String, address: Ipv4Addr) -> Prepared {
        let launch = Launch {
            name: name.to_owned(),
            directory: self.directory.clone(),
            config: config(&self.namespace, name),
            program: (*TENURE.get().expect("the path of the program")).to_owned(),
            runner: None,
            workload: Behaviour::obedient().command(&self.directory, name),
            contained: true,
            may_kill: true,
            token,
            env: Vec::new(),
            confined_by: Vec::new(),
        };
        Prepared { launch, proxy: Proxy::start_at(&self.kubeconfig, address).await }
    }

    /// Starts a replica with the defaults.
    pub async fn start(&self, name: &str) -> Replica {
        self.prepare(name).await.start()
    }

    /// Starts a replica that takes a released Lease and leads; returns it, and the start of its workload.
    pub async fn lead(&self, prepared: Prepared) -> (Replica, Event) {
        self.lease.create(released()).await;
        let name = prepared.launch.name.clone();
        let replica = prepared.start();
        let start = self.witness.start(&name, 0).await;
        (replica, start)
    }

    /// A proxy without a replica, and the test's own client behind it with the minimal permissions.
    pub async fn client(&self) -> (Proxy, Api) {
        let Prepared { proxy, launch } = self.prepare("client").await;
        let directory = self.directory.join("client");
        fs::create_dir_all(&directory).expect("a directory");
        let client = Api::connect(&write_kubeconfig(&directory, &proxy, &launch.token)).await;
        (proxy, client)
    }

    /// The file from which a replica reads its token.
    pub fn token_file(&self, name: &str) -> PathBuf {
        self.directory.join(name).join("token")
    }

    /// Changes the configuration file of a running replica.
    pub fn rewrite_config(&self, name: &str, change: impl Fn(&mut Value)) {
        let file = self.directory.join(name).join("tenure.json");
        let mut config = serde_json::from_slice(&fs::read(&file).expect("a file")).expect("JSON");
        change(&mut config);
        fs::write(file, config.to_string()).expect("a file");
    }

    /// A loopback address on which nobody listens, and a socket that keeps it reserved for a listener that requests its port.
    pub fn free_address(&self) -> (SocketAddr, TcpSocket) {
        let kept = TcpSocket::new_v4().expect("a socket");
        kept.set_reuseaddr(true).expect("as listeners do");
        kept.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
        (kept.local_addr().expect("bound"), kept)
    }

    /// The status of a GET over plain HTTP.
    pub async fn probe(&self, address: SocketAddr, path: &str) -> u16 {
        let answer = self.page(address, path).await;
        answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
    }

    /// The whole answer to a GET over plain HTTP.
    pub async fn page(&self, address: SocketAddr, path: &str) -> String {
        self.ask(address, "GET", path, "").await
    }

    /// The whole answer to a request with JSON, or nothing, over plain HTTP.
    pub async fn ask(&self, address: SocketAddr, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(address).await.expect("somebody listens");
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
             connection: close\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.expect("a request");
        let mut answer = Vec::new();
        // Not everybody closes what was answered whole.
        let whole = async { while !is_whole(&answer) && stream.read_buf(&mut answer).await.expect("an answer") > 0 {} };
        within(PATIENCE, "an answer to a request", whole).await;
        String::from_utf8(answer).expect("text")
    }

    /// A workload not run by tenure, in this term.
    pub fn bare_workload(&self, name: &str, token: &str, behaviour: &Behaviour) -> Kept {
        let line = behaviour.command(&self.directory, name);
        Kept(Command::new(&line[0]).args(&line[1..]).env("TENURE_FENCING_TOKEN", token).spawn().expect("a workload"))
    }

    /// The real server's audit log of requests for the Lease.
    pub fn audit(&self) -> Vec<audit::Record> {
        self.audit_of(LEASE)
    }

    /// The same of another Lease of its namespace.
    pub fn audit_of(&self, lease: &str) -> Vec<audit::Record> {
        audit::read(&self.audit_log, &self.namespace, lease)
    }

    /// The same including requests in progress.
    pub fn audit_of_all_stages(&self) -> Vec<audit::Record> {
        audit::read_all(&self.audit_log, &self.namespace, LEASE).into_iter().map(|(_, record)| record).collect()
    }

    /// The directory of this case's files.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// An administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }
}

/// A replica that is about to start; its proxy is already running.
pub struct Prepared {
    /// The proxy between it and the API server.
    pub proxy: Proxy,
    /// Everything that the replica is started with.
    pub launch: Launch,
}

impl Prepared {
    /// Sets a key of its configuration, such as `lease.duration`.
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        let place = key.split('.').fold(&mut self.launch.config, |place, word| &mut place[word]);
        *place = value.into();
        self
    }

    /// Longer settings: stalls of several seconds cost no term, and no release. S, H and E lie 14.8, 18.8 and 19.8 s after a send.
    pub fn unhurried(self) -> Self {
        self.set("lease.duration", "20s")
            .set("lease.attemptTimeout", "5s")
            .set("workload.stop.lossGrace", "4s")
            .set("workload.stop.killMargin", "1s")
    }

    /// Gives its workload another behaviour.
    pub fn workload(mut self, behaviour: &Behaviour) -> Self {
        self.launch.workload = behaviour.command(&self.launch.directory, &self.launch.name);
        self
    }

    /// Makes it the witness of this pod at a socket.
    pub fn witness(self, socket: &str, pod: impl Into<String>) -> Self {
        let mut prepared = self.uncontained();
        prepared.launch.runner = Some([&*prepared.launch.program, "witness", "--socket", socket].map(str::to_owned).into());
        prepared.launch.workload.clear();
        prepared.launch.env.push(("POD_NAME".into(), pod.into()));
        prepared
    }

    /// Makes it an ordinary process instead of PID 1 of its own namespace.
    pub fn uncontained(mut self) -> Self {
        self.launch.contained = false;
        self
    }

    /// Removes its capability to kill other users' processes.
    pub fn without_kill(mut self) -> Self {
        self.launch.may_kill = false;
        self
    }

    /// Starts it.
    pub fn start(self) -> Replica {
        self.launch.start(self.proxy)
    }
}

fn config(namespace: &str, name: &str) -> Value {
    let text = |span: Duration| format!("{}ms", span.as_millis());
    json!({
        "lease": {
            "name": LEASE,
            "namespace": namespace,
            "identity": name,
            "duration": text(timing::DURATION),
            "renewPeriod": text(timing::RENEW_PERIOD),
            "attemptTimeout": text(timing::ATTEMPT_TIMEOUT),
        },
        "workload": { "stop": {
            "grace": text(timing::GRACE),
            "lossGrace": text(timing::LOSS_GRACE),
            "killMargin": text(timing::KILL_MARGIN),
        }},
        "log": { "level": "debug" },
    })
}

fn is_whole(answer: &[u8]) -> bool {
    let answer = String::from_utf8_lossy(answer);
    let Some((head, body)) = answer.split_once("\r\n\r\n") else { return false };
    let length =
        head.lines().filter_map(|line| line.split_once(':')).find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    length.is_some_and(|(_, length)| length.trim().parse() == Ok(body.len()))
}
