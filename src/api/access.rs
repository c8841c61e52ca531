//! Why there is no access to a cluster: the message, and the exit code of a command.

use kube::config::KubeconfigError;

use super::plugin::PluginError;

use crate::exit;

/// Why there is no access to a cluster.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// Nothing names a cluster.
    #[error("no cluster to talk to: {pod}, and {kubeconfig}. `tenure demo` shows tenure at work without a cluster")]
    Nowhere {
        /// Why this is not a pod with access.
        pod: String,
        /// Where no kubeconfig was found.
        kubeconfig: String,
    },
    /// The pod's service account cannot be used.
    #[error("cannot use the pod's service account: {0}")]
    Pod(String),
    /// A file of KUBECONFIG, or the one of the home directory, cannot be read.
    #[error("cannot use the kubeconfig {path} (set KUBECONFIG to name another): it cannot be read")]
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The kubeconfig is not valid.
    #[error("cannot use the kubeconfig {paths}")]
    Kubeconfig {
        /// Its files.
        paths: String,
        /// Why.
        #[source]
        source: KubeconfigError,
    },
    /// A file that is not a kubeconfig. Its contents are not shown: they may be secret.
    #[error("cannot use the kubeconfig {path}: {} cannot be parsed; `kubectl config view` shows why", it_or_line(*.line))]
    Malformed {
        /// The file.
        path: String,
        /// The line in it, from 1, if known.
        line: Option<u64>,
    },
    /// It names no cluster at all.
    #[error("cannot use the kubeconfig {0}: it has no contexts, so it names no cluster")]
    Empty(String),
    /// No context is chosen, or one that does not exist.
    #[error("cannot use the kubeconfig {files}: {choice}; `kubectl config use-context NAME` chooses one of {contexts}")]
    Context {
        /// The kubeconfig's files.
        files: String,
        /// What is wrong with the choice.
        choice: String,
        /// The contexts that exist.
        contexts: String,
    },
    /// The context that this replica began with is gone. No other takes its place.
    #[error(
        "the kubeconfig {files} no longer has the context {context}, where the Lease of this replica is: restore it, or restart"
    )]
    Gone {
        /// The kubeconfig's files.
        files: String,
        /// The context.
        context: String,
    },
    /// The context that this replica began with is another cluster's now.
    #[error(
        "the context {context} of the kubeconfig {files} names {what} than when this replica started, and the Lease of this replica may \
         not be there: correct it, or restart"
    )]
    Moved {
        /// The kubeconfig's files.
        files: String,
        /// The context.
        context: String,
        /// What has changed.
        what: String,
    },
    /// The context names a cluster or a user that is not there.
    #[error(
        "cannot use the kubeconfig: the context {context} names the {kind} {name}, which is not in {files}: correct the name, or add it"
    )]
    Dangling {
        /// The kubeconfig's files.
        files: String,
        /// The context.
        context: String,
        /// `cluster` or `user`.
        kind: &'static str,
        /// What it names.
        name: String,
    },
    /// The server's address is not a URL.
    #[error("the server of {place} is {url:?}, which is not a URL: write https://HOST:PORT, with a port from 1 to 65535 or none")]
    Server {
        /// The source of the access.
        place: String,
        /// The address.
        url: String,
    },
    /// The server's address names a user. It is not shown: a password may follow it.
    #[error("the server of {0} names a user: write username and password under the user, not into the URL")]
    UserInServer(String),
    /// An environment variable names a proxy that is not a URL, and kube parses it although no proxy is used.
    #[error("HTTPS_PROXY or https_proxy is not a URL: unset it, tenure speaks to the API server directly")]
    ProxyVariable(#[source] http::uri::InvalidUri),
    /// The namespace is not valid.
    #[error("the namespace of {place} is {name:?}, which is not a valid namespace: name one with --namespace")]
    Namespace {
        /// Who has it.
        place: String,
        /// The namespace.
        name: String,
    },
    /// No namespace is configured, and the pod does not tell its own.
    #[error("no namespace is configured, and the pod does not tell its own ({0}): name one with --namespace")]
    NoNamespace(&'static str),
    /// An auth-provider, which only old clients support.
    #[error(
        "the user of {place} authenticates by the auth-provider {name}, which kubectl has given up too: use a credential plugin (exec)"
    )]
    AuthProvider {
        /// The source of the access.
        place: String,
        /// Its name.
        name: String,
    },
    /// The server is both to be verified and not to be.
    #[error("the cluster of {0} has a certificate authority and insecure-skip-tls-verify: remove one of them")]
    Unverified(String),
    /// A certificate authority without a certificate.
    #[error("the certificate authority of {0} holds no PEM certificate")]
    NoCertificate(String),
    /// A token that no header can carry. It is not shown.
    #[error("the token of {0} is not a valid header value: it is empty, or has a line break or another control character in it")]
    Token(String),
    /// The kubeconfig asks for a proxy.
    #[error(
        "the cluster of {0} sets proxy-url, which tenure does not support: remove it if the API server can be reached directly"
    )]
    Proxy(String),
    /// TLS cannot be set up: a certificate authority, client certificate or key that cannot be used.
    #[error("cannot set up TLS for {place}")]
    Tls {
        /// The source of the access.
        place: String,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
    /// The client certificate or its key cannot be read. Without the reason, which may quote the key.
    #[error("the client certificate or the key for {0} is not PEM")]
    Identity(String),
    /// The user, a group or an extra field of the kubeconfig's impersonation cannot be sent.
    #[error("the impersonation (as, as-uid, as-groups, as-user-extra) for {0} has a character that no HTTP header can carry")]
    Impersonation(String),
    /// The kubeconfig's credential plugin returned no credentials.
    #[error("cannot get credentials for {place}")]
    Plugin {
        /// The source of the access.
        place: String,
        /// Why.
        #[source]
        source: PluginError,
    },
    /// There are no credentials for another reason, such as a missing token file.
    #[error("cannot get credentials for {place}")]
    Credentials {
        /// The source of the access.
        place: String,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
}

impl AccessError {
    pub(super) fn of_plugin(place: &str, source: PluginError) -> Self {
        Self::Plugin { place: place.into(), source }
    }

    /// The exit code of a command that this ends. That a plugin returned no credentials is not a configuration error.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        if self.may_pass() { exit::NOT_PERMITTED } else { exit::INVALID }
    }

    /// Whether trying again may help: a credential plugin failed, or there was no process for it. Everything else is configuration.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Plugin { source, .. } if source.may_pass())
    }
}

fn it_or_line(line: Option<u64>) -> String {
    line.map_or_else(|| "it".into(), |line| format!("line {line}"))
}
