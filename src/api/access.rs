//! Why there is no access to a cluster: what is said of it, and how a command ends.

use kube::config::{InClusterError, KubeconfigError};

use super::plugin::PluginError;

use crate::exit;

/// Why there is no access to a cluster.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// Nothing names a cluster.
    #[error("no cluster to talk to: {pod}, and {kubeconfig}. `tenure demo` shows tenure at work without a cluster")]
    Nowhere {
        /// Why this is no pod.
        pod: String,
        /// Where no kubeconfig was found.
        kubeconfig: String,
    },
    /// The pod's service account cannot be used.
    #[error("cannot use the pod's service account")]
    Pod(#[source] InClusterError),
    /// A file of KUBECONFIG, or the one of the home directory, cannot be read.
    #[error("cannot use the kubeconfig {path} (KUBECONFIG names others): it cannot be read")]
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The kubeconfig makes no sense.
    #[error("cannot use the kubeconfig {paths}")]
    Kubeconfig {
        /// Its files.
        paths: String,
        /// Why.
        #[source]
        source: KubeconfigError,
    },
    /// A file that is no kubeconfig. What stands there is not shown: it may be a secret.
    #[error("cannot use the kubeconfig {path}: {} cannot be understood, `kubectl config view` says why", it_or_line(*.line))]
    Malformed {
        /// The file.
        path: String,
        /// Where in it, from 1, if that is known.
        line: Option<u64>,
    },
    /// It names no cluster at all.
    #[error("cannot use the kubeconfig {0}: it has no contexts, so it names no cluster")]
    Empty(String),
    /// No context is chosen, or one that is not there.
    #[error("cannot use the kubeconfig {files}: {choice}; `kubectl config use-context NAME` chooses one of {contexts}")]
    Context {
        /// Whose.
        files: String,
        /// What is wrong with the choice.
        choice: String,
        /// Those that there are.
        contexts: String,
    },
    /// The server's address is none.
    #[error("the server of {place} is {url:?}, which is not a URL: write https://HOST:PORT")]
    Server {
        /// Of which source.
        place: String,
        /// What stands there.
        url: String,
    },
    /// The server's address names a user, which is not shown: a password may stand beside it.
    #[error("the server of {0} names a user: write username and password under the user, not into the URL")]
    UserInServer(String),
    /// A variable of the environment names a proxy that is none, and kube looks at it although no proxy is used.
    #[error("HTTPS_PROXY or https_proxy is not a URL: unset it, tenure speaks to the API server directly")]
    ProxyVariable(#[source] http::uri::InvalidUri),
    /// The namespace is none.
    #[error(
        "the namespace of {place} is {name:?}, which is not a valid namespace: name one with --namespace or `kubectl config set-context`"
    )]
    Namespace {
        /// Of which source.
        place: String,
        /// What stands there.
        name: String,
    },
    /// An authentication that only old clients know.
    #[error(
        "the user of {place} authenticates by the auth-provider {name}, which kubectl has given up too: use a credential plugin (exec)"
    )]
    AuthProvider {
        /// Of which source.
        place: String,
        /// Which.
        name: String,
    },
    /// A server that is to be verified and is not to be.
    #[error("the cluster of {0} has a certificate authority and insecure-skip-tls-verify: remove one of them")]
    Unverified(String),
    /// A certificate authority without a certificate.
    #[error("the certificate authority of {0} holds no PEM certificate")]
    NoCertificate(String),
    /// A token that no request can carry. It is not shown.
    #[error("the token of {0} cannot stand in a header: it is empty, or holds a line break or the like")]
    Token(String),
    /// A proxy is asked for.
    #[error(
        "the cluster of {0} names a proxy-url, and tenure speaks to no proxies: remove it where the API server is reached directly"
    )]
    Proxy(String),
    /// TLS cannot be set up: a certificate authority, client certificate or key that cannot be used.
    #[error("cannot set up TLS for {place}")]
    Tls {
        /// Of which source.
        place: String,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
    /// The kubeconfig's credential plugin gave none.
    #[error("cannot get credentials for {place}")]
    Plugin {
        /// Of which source.
        place: String,
        /// Why.
        #[source]
        source: PluginError,
    },
    /// No credentials otherwise, such as a token file that is missing.
    #[error("cannot get credentials for {place}")]
    Credentials {
        /// Of which source.
        place: String,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
}

impl AccessError {
    /// The exit code where this ends a command: a plugin that ran and gave no credentials is no configuration that cannot work.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        if self.may_pass() { exit::NOT_PERMITTED } else { exit::INVALID }
    }

    /// Whether trying again may help: a credential plugin ran and failed. All else is configuration.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Plugin { source, .. } if source.may_pass())
    }
}

fn it_or_line(line: Option<u64>) -> String {
    line.map_or_else(|| "it".into(), |line| format!("line {line}"))
}
