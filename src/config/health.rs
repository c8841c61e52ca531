//! The keys that say how it is found out whether the workload is ready, and whether it is live.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use http::Request;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::{
    WorkloadConfig,
    humane::{MaybeSpan, Span},
    scalars::Address,
};
use crate::words::worded;

/// What is asked of a running workload, and how often; nothing, unless one of `notify`, `exec`, `http`, `tcp` and `file` is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Probe {
    /// It says so itself on NOTIFY_SOCKET, as to systemd: READY=1 for readiness, WATCHDOG=1 again and again for liveness.
    #[schemars(schema_with = "true_or_empty")]
    pub notify: bool,
    /// A program in its container ends with 0.
    pub exec: ExecProbe,
    /// A GET is answered with 200 to 399.
    pub http: HttpProbe,
    /// A connection is accepted.
    pub tcp: TcpProbe,
    /// A file exists.
    pub file: FileProbe,
    /// Before it is asked for the first time.
    #[serde(with = "Span")]
    pub initial_delay: Duration,
    /// From one time to the next.
    #[serde(with = "Span")]
    pub period: Duration,
    /// Without an answer for this long it has failed.
    #[serde(with = "Span")]
    pub timeout: Duration,
    /// So many in a row after a failure make it good again; 1 for liveness.
    #[schemars(range(min = 1))]
    pub success_threshold: u32,
    /// So many failures in a row make it bad.
    #[schemars(range(min = 1))]
    pub failure_threshold: u32,
}

impl Default for Probe {
    fn default() -> Self {
        Self {
            notify: false,
            exec: ExecProbe::default(),
            http: HttpProbe::default(),
            tcp: TcpProbe::default(),
            file: FileProbe::default(),
            initial_delay: Duration::ZERO,
            period: Duration::from_secs(10),
            timeout: Duration::from_secs(1),
            success_threshold: 1,
            failure_threshold: 3,
        }
    }
}

/// `notify: {}` means `true`, in the manner of the others.
fn true_or_empty(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["boolean", "object"], "maxProperties": 0 })
}

/// A program that is run to find out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct ExecProbe {
    /// Program and arguments, no shell.
    pub command: Vec<String>,
}

/// A request that is sent to find out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct HttpProbe {
    /// Where it listens; 0: nowhere.
    pub port: u16,
    /// And query, as in /healthz.
    pub path: String,
    /// With https its certificate is not verified.
    pub scheme: Scheme,
    /// Its address, and no name, so that no name server is asked; null: 127.0.0.1.
    #[serde(with = "Address")]
    #[schemars(with = "Option<IpAddr>")]
    pub host: Option<IpAddr>,
    /// Of the request.
    pub headers: BTreeMap<String, String>,
}

impl HttpProbe {
    /// The request as it is sent.
    ///
    /// # Errors
    /// A path or a header that is none.
    pub fn request(&self) -> Result<Request<()>, http::Error> {
        let scheme = match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        let request = Request::get(format!("{scheme}://{}{}", address(self.host, self.port), self.path));
        self.headers.iter().fold(request, |request, (name, value)| request.header(name, value)).body(())
    }
}

impl TcpProbe {
    /// Where it connects to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        address(self.host, self.port)
    }
}

fn address(host: Option<IpAddr>, port: u16) -> SocketAddr {
    SocketAddr::new(host.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)), port)
}

/// How it is spoken to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Scheme {
    /// In the clear.
    #[default]
    Http,
    /// Over TLS.
    Https,
}

/// A connection that is made to find out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct TcpProbe {
    /// Where it listens; 0: nowhere.
    pub port: u16,
    /// Its address; null: 127.0.0.1.
    #[serde(with = "Address")]
    #[schemars(with = "Option<IpAddr>")]
    pub host: Option<IpAddr>,
}

/// A file that is looked at to find out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct FileProbe {
    /// Its path.
    pub path: String,
    /// It was written no longer ago than this.
    #[serde(with = "MaybeSpan")]
    #[schemars(with = "Option<String>")]
    pub max_age: Option<Duration>,
}

/// How a workload is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// `notify`.
    Notify,
    /// `exec`.
    Exec,
    /// `http`.
    Http,
    /// `tcp`.
    Tcp,
    /// `file`.
    File,
}

impl Probe {
    /// How it is asked; none: not at all.
    #[must_use]
    pub fn means(&self) -> Option<Means> {
        self.said().next().map(|(means, _)| means)
    }

    /// The longest that a workload which says itself that it is live may be silent.
    #[must_use]
    pub const fn watchdog(&self) -> Duration {
        self.period.saturating_mul(self.failure_threshold)
    }

    /// Every way to ask that something is said about, with its key.
    pub(super) fn said(&self) -> impl Iterator<Item = (Means, &'static str)> {
        let ways = [
            (self.notify, Means::Notify, "notify"),
            (self.exec != ExecProbe::default(), Means::Exec, "exec"),
            (self.http != HttpProbe::default(), Means::Http, "http"),
            (self.tcp != TcpProbe::default(), Means::Tcp, "tcp"),
            (self.file != FileProbe::default(), Means::File, "file"),
        ];
        ways.into_iter().filter_map(|(is_said, means, key)| is_said.then_some((means, key)))
    }
}

worded! {
    /// What a probe is to find out.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub enum ProbeKind {
        /// `workload.readiness`.
        Readiness = "readiness",
        /// `workload.liveness`.
        Liveness = "liveness",
    }
}

impl ProbeKind {
    /// Its probe.
    #[must_use]
    pub const fn of(self, workload: &WorkloadConfig) -> &Probe {
        match self {
            Self::Readiness => &workload.readiness,
            Self::Liveness => &workload.liveness,
        }
    }
}

/// Which standbys of `runs: always` campaign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Candidate {
    /// All.
    #[default]
    Any,
    /// Those that are ready.
    Ready,
}
