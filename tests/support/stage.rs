//! Where one case plays: a namespace of its own, a Lease, a witness, and the replicas that it starts.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::Arc,
    time::Duration,
};

use serde_json::{Value, json};

use super::{
    api::{Api, Lease, Verbs},
    audit,
    proxy::Proxy,
    replica::{Launch, Replica, write_kubeconfig},
    server::{Kind, Server},
    witness::Witness,
    workload::Behaviour,
};

/// Name of the Lease of every case; the namespace tells them apart.
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
    /// The grace of a planned stop.
    pub const GRACE: Duration = Duration::from_secs(2);
}

/// The stage of one case.
pub struct Stage {
    /// Which server it is on.
    pub kind: Kind,
    /// The administrator's hand.
    pub api: Api,
    /// The Lease that the case is about.
    pub lease: Lease,
    /// The namespace.
    pub namespace: String,
    /// Hears from the workloads.
    pub witness: Arc<Witness>,
    kubeconfig: PathBuf,
    audit_log: PathBuf,
    directory: PathBuf,
}

impl Stage {
    /// A new one on this server, with its files in this directory.
    pub async fn set(server: &Server, directory: &Path) -> Self {
        let api = server.admin().await;
        let namespace = format!("case-{:08x}", fastrand::u32(..));
        if server.kind() == Kind::Real {
            api.create("/api/v1/namespaces", &json!({ "metadata": { "name": namespace } })).await;
        }
        Self {
            kind: server.kind(),
            lease: api.lease(&namespace, LEASE),
            witness: Arc::new(Witness::listen(directory)),
            kubeconfig: server.kubeconfig(),
            audit_log: server.audit_log(),
            api,
            namespace,
            directory: directory.to_owned(),
        }
    }

    /// A replica about to start, with a workload that ends at once on SIGTERM and the minimal rights.
    pub async fn prepare(&self, name: &str) -> Prepared {
        self.prepare_with(name, &Verbs::default()).await
    }

    /// A replica about to start, with these rights.
    pub async fn prepare_with(&self, name: &str, verbs: &Verbs) -> Prepared {
        let token = match self.kind {
            Kind::Real => self.api.minimal_token(&self.namespace, LEASE, verbs).await,
            Kind::Embedded => self.api.token().to_owned(),
        };
        let launch = Launch {
            name: name.to_owned(),
            directory: self.directory.clone(),
            config: config(&self.namespace, name),
            workload: Behaviour::obedient().command(&self.directory, name),
            contained: true,
            token,
            env: Vec::new(),
        };
        Prepared { launch, proxy: Proxy::start(&self.kubeconfig).await }
    }

    /// A replica with nothing out of the ordinary.
    pub async fn start(&self, name: &str) -> Replica {
        self.prepare(name).await.start()
    }

    /// A proxy without a replica, and a client of the test's own behind it with the minimal rights.
    pub async fn client(&self) -> (Proxy, Api) {
        let Prepared { proxy, launch } = self.prepare("client").await;
        let directory = self.directory.join("client");
        fs::create_dir_all(&directory).expect("a directory");
        let client = Api::connect(&write_kubeconfig(&directory, &proxy, &launch.token)).await;
        (proxy, client)
    }

    /// A workload without a tenure around it, in this term.
    pub fn bare_workload(&self, name: &str, token: &str, behaviour: &Behaviour) -> Child {
        let line = behaviour.command(&self.directory, name);
        Command::new(&line[0]).args(&line[1..]).env("TENURE_FENCING_TOKEN", token).spawn().expect("a workload")
    }

    /// The real server's record of requests for the Lease.
    pub fn audit(&self) -> Vec<audit::Record> {
        audit::read(&self.audit_log, &self.namespace, LEASE)
    }
}

/// A replica that is about to start; its proxy is there already.
pub struct Prepared {
    /// Between it and the API server.
    pub proxy: Proxy,
    /// What it is started with.
    pub launch: Launch,
}

impl Prepared {
    /// Sets a key of its configuration, such as `lease.duration`.
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        let place = key.split('.').fold(&mut self.launch.config, |place, word| &mut place[word]);
        *place = value.into();
        self
    }

    /// Gives its workload another behaviour.
    pub fn workload(mut self, behaviour: &Behaviour) -> Self {
        self.launch.workload = behaviour.command(&self.launch.directory, &self.launch.name);
        self
    }

    /// Makes it a process among others instead of PID 1 of its own namespace.
    pub fn uncontained(mut self) -> Self {
        self.launch.contained = false;
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
