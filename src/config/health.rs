//! The keys that say how it is found out whether the workload is ready, whether it is live, and
//! which of that a candidate needs; and the HTTP request that a probe sends.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use http::{
    HeaderValue, Request,
    header::{ACCEPT, CONNECTION, HOST, USER_AGENT},
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::{WorkloadConfig, duration::Span, scalars::Maybe};
use crate::words::worded;

section! {
    /// A question to a running workload. Nothing is asked unless one of `notify`, `exec`, `http`, `tcp` and `file` is set.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(default, deny_unknown_fields, rename_all = "camelCase")]
    pub struct Probe {
        /// The workload says so itself on NOTIFY_SOCKET, as to systemd: READY=1 if it is ready; WATCHDOG=1 again and again while it
        /// is live. true or `{}`.
        #[schemars(schema_with = "true_or_empty")]
        pub notify: bool,
        /// A program in the workload's container, with its environment. It has to end with 0.
        pub exec: ExecProbe,
        /// A GET request. The answer has to be 200 to 399.
        pub http: HttpProbe,
        /// A connection, which has to be accepted.
        pub tcp: TcpProbe,
        /// A file, which has to exist. For readiness it must have been written since the program was started.
        pub file: FileProbe,
        /// The time before the workload is asked for the first time.
        #[serde(with = "Span")]
        pub initial_delay: Duration,
        /// The time from one question to the next.
        #[serde(with = "Span")]
        pub period: Duration = Duration::from_secs(10),
        /// The time after which a question without an answer has failed. A program is killed then.
        #[serde(with = "Span")]
        pub timeout: Duration = Duration::from_secs(1),
        /// The number of successes in a row after which the workload is ready. 1 for `liveness`.
        #[schemars(range(min = 1))]
        pub success_threshold: u32 = 1,
        /// The number of failures in a row after which the workload is not ready, or not live.
        #[schemars(range(min = 1))]
        pub failure_threshold: u32 = 3,
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
    /// The program and its arguments, without a shell.
    pub command: Vec<String>,
}

/// A request that is sent to find out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct HttpProbe {
    /// The port that the workload listens on. 0: none.
    pub port: u16,
    /// The path and the query, such as /healthz.
    pub path: String,
    /// The protocol.
    pub scheme: Scheme,
    /// The IP address that the workload listens on. A name is not allowed, so that no name server is asked. null: 127.0.0.1.
    #[serde(with = "Maybe")]
    #[schemars(with = "Option<IpAddr>")]
    pub host: Option<IpAddr>,
    /// Headers of the request.
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
        let mut request = self.headers.iter().fold(request, |request, (name, value)| request.header(name, value)).body(())?;
        // As a kubelet does, which leaves them out if the probe has them with an empty value.
        for (name, default) in [(USER_AGENT, "kube-probe/1.36 (tenure)"), (ACCEPT, "*/*"), (CONNECTION, "close"), (HOST, "")] {
            let headers = request.headers_mut();
            let value = headers.remove(&name).unwrap_or_else(|| HeaderValue::from_static(default));
            if !value.is_empty() {
                headers.try_insert(name, value)?;
            }
        }
        Ok(request)
    }
}

impl TcpProbe {
    /// Where it connects to.
    pub fn address(&self) -> SocketAddr {
        address(self.host, self.port)
    }
}

fn address(host: Option<IpAddr>, port: u16) -> SocketAddr {
    SocketAddr::new(host.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)), port)
}

/// The protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Scheme {
    /// Without TLS.
    #[default]
    Http,
    /// With TLS. The certificate is not verified.
    Https,
}

/// A connection that is made to find out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct TcpProbe {
    /// The port that the workload listens on. 0: none.
    pub port: u16,
    /// The IP address that the workload listens on. null: 127.0.0.1.
    #[serde(with = "Maybe")]
    #[schemars(with = "Option<IpAddr>")]
    pub host: Option<IpAddr>,
}

/// A file that is looked at to find out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct FileProbe {
    /// The path of the file.
    pub path: String,
    /// The age that the file may have since it was last written. null: any.
    #[serde(with = "Maybe")]
    #[schemars(with = "Option<Span>")]
    pub max_age: Option<Duration>,
}

/// How a workload is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeHandler {
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
    /// Returns what it asks, for people; empty where the workload says so itself. Arguments and a query may have a secret, and are left
    /// out.
    pub fn target(&self) -> String {
        let url = |get: &Request<_>| format!("GET {}", get.uri().to_string().split('?').next().unwrap_or_default());
        match self.handler() {
            Some(ProbeHandler::Exec) => self.exec.command.first().cloned().unwrap_or_default(),
            Some(ProbeHandler::Http) => self.http.request().map_or_else(|_| String::new(), |get| url(&get)),
            Some(ProbeHandler::Tcp) => format!("connect to {}", self.tcp.address()),
            Some(ProbeHandler::File) => self.file.path.clone(),
            Some(ProbeHandler::Notify) | None => String::new(),
        }
    }

    /// How it is asked; none: not at all.
    pub fn handler(&self) -> Option<ProbeHandler> {
        self.said().next().map(|(handler, _)| handler)
    }

    /// The longest that a workload which says itself that it is live may be silent.
    pub const fn watchdog(&self) -> Duration {
        self.period.saturating_mul(self.failure_threshold)
    }

    /// Every way to ask that something is said about, with its key.
    pub(crate) fn said(&self) -> impl Iterator<Item = (ProbeHandler, &'static str)> {
        let ways = [
            (self.notify, ProbeHandler::Notify, "notify"),
            (self.exec != ExecProbe::default(), ProbeHandler::Exec, "exec"),
            (self.http != HttpProbe::default(), ProbeHandler::Http, "http"),
            (self.tcp != TcpProbe::default(), ProbeHandler::Tcp, "tcp"),
            (self.file != FileProbe::default(), ProbeHandler::File, "file"),
        ];
        ways.into_iter().filter_map(|(is_said, handler, key)| is_said.then_some((handler, key)))
    }
}

worded! {
    /// The two questions that probes ask.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Hash)]
    pub enum ProbeKind {
        /// `workload.readiness`.
        Readiness = "readiness",
        /// `workload.liveness`.
        Liveness = "liveness",
    }
}

impl ProbeKind {
    /// Returns the probe that asks this question.
    pub const fn of(self, workload: &WorkloadConfig) -> &Probe {
        match self {
            Self::Readiness => &workload.readiness,
            Self::Liveness => &workload.liveness,
        }
    }
}

/// Which standbys campaign, with `runs: always` or `frozen`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Candidate {
    /// All.
    #[default]
    Any,
    /// Those that are ready.
    Ready,
}
