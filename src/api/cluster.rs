//! Where the API server is, and who we are there. Refuses a kubeconfig that asks for what tenure does not support, such as a proxy.

use std::{
    env, fmt,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use http::{HeaderValue, header::USER_AGENT, uri::Authority};
use kube::config::{Kubeconfig, KubeconfigError};
use tokio::task::spawn_blocking;

use super::{
    access::AccessError,
    dial::Dialer,
    kubeconfig,
    namespace::{self, Namespace},
    plugin::Plugin,
    pod, url,
};
use crate::{clock, link::KubeContext};

#[cfg(test)]
mod tests;

/// How long a kubeconfig may be unusable before it is refused, and how often it is looked at meanwhile.
const REWRITING: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A cluster that was discovered but not contacted yet. Its `Debug` shows no credentials.
#[derive(Clone)]
pub struct Cluster {
    config: kube::Config,
    source: Source,
    /// `None`: the pod does not tell.
    namespace: Option<Namespace>,
}

/// Where the access comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    Pod,
    Kubeconfig { files: Vec<PathBuf>, context: String },
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("source", &self.source).finish_non_exhaustive()
    }
}

impl Cluster {
    /// Looks for a cluster: this kubeconfig, else the one that KUBECONFIG names, else the pod's service account, else
    /// `~/.kube/config`. A context is one of a kubeconfig, never the pod's cluster.
    ///
    /// # Errors
    /// Nothing is found, or the first source found cannot be used: a later one never replaces a broken one.
    pub fn discover(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Self, AccessError> {
        let named = kubeconfig.map_or_else(named_files, |path| vec![path.into()]);
        if !named.is_empty() {
            return patiently(|| Self::of_context(&named, context, None));
        }
        let missing = match (pod::missing(), context) {
            (None, None) => return Self::from_pod(),
            (None, Some(context)) => format!("the pod's cluster is no context {context}"),
            (Some(missing), _) => missing,
        };
        let kubeconfig = match file_at_home() {
            Some(path) if is_there(&path) => return patiently(|| Self::of_context(std::slice::from_ref(&path), context, None)),
            Some(path) => format!("there is no kubeconfig (KUBECONFIG is not set, {} does not exist)", path.display()),
            None => "there is no kubeconfig (neither KUBECONFIG nor HOME is set)".into(),
        };
        Err(AccessError::unusable(format!(
            "no cluster to talk to: {missing}, and {kubeconfig}. `tenure demo` shows tenure at work without a cluster"
        )))
    }

    /// The cluster that was discovered before, with its [`Self::context`], as its files describe it now. Whichever context has
    /// become the current one, and whatever that one names now: a replica that went to another cluster would not see who leads in its
    /// own.
    ///
    /// # Errors
    /// The source cannot be used any more; no other takes its place.
    pub fn again(context: Option<&KubeContext>) -> Result<Self, AccessError> {
        let Some(context) = context else { return Self::from_pod() };
        patiently(|| Self::of_context(&context.files, Some(&context.name), Some(context)))
    }

    /// The same cluster, asked as this user and in these groups; none: those of the kubeconfig.
    pub fn acting_as(mut self, user: Option<String>, groups: Option<Vec<String>>) -> Self {
        let credentials = &mut self.config.auth_info;
        credentials.impersonate = user.or_else(|| credentials.impersonate.take());
        credentials.impersonate_groups = groups.or_else(|| credentials.impersonate_groups.take());
        self
    }

    /// The cluster of these kubeconfig files, merged as kubectl merges them. Of several, some may be missing.
    ///
    /// # Errors
    /// They cannot be read, name no usable context, or ask for something that tenure does not support.
    pub fn from_kubeconfig(paths: &[PathBuf]) -> Result<Self, AccessError> {
        Self::of_context(paths, None, None)
    }

    /// `wanted`: none is their current context. `began`: what that context was before.
    fn of_context(paths: &[PathBuf], wanted: Option<&str>, began: Option<&KubeContext>) -> Result<Self, AccessError> {
        let names = shown(paths);
        let broken = |error: KubeconfigError| AccessError::caused(format!("cannot use the kubeconfig {names}"), error);
        let present: Vec<_> = paths.iter().filter(|path| is_there(path)).collect();
        let files = if present.is_empty() { paths.iter().collect() } else { present };
        let mut kubeconfig = files.into_iter().try_fold(Kubeconfig::default(), |merged, path| {
            let mut one = kubeconfig::read(path).map_err(|error| {
                let path = path.display();
                // Its contents are not shown: they may be secret.
                if let KubeconfigError::Parse(error) = &error {
                    let place = error.location().map_or_else(|| "it".into(), |at| format!("line {}", at.line()));
                    return AccessError::unusable(format!(
                        "cannot use the kubeconfig {path}: {place} cannot be parsed; `kubectl config view` shows why"
                    ));
                }
                let KubeconfigError::ReadConfig(source, _) = error else { return broken(error) };
                let said =
                    format!("cannot use the kubeconfig {path} (name another with --kubeconfig or KUBECONFIG): it cannot be read");
                AccessError::caused(said, source)
            })?;
            one.current_context.take_if(|name| name.is_empty());
            merged.merge(one).map_err(broken)
        })?;
        let context = kubeconfig::choose(&mut kubeconfig, wanted, began.is_some(), &names)?;
        let source = Source::Kubeconfig { files: paths.into(), context };
        if let Some(cluster) = kubeconfig::cluster(&kubeconfig) {
            if cluster.proxy_url.is_some() {
                return Err(AccessError::unusable(format!(
                    "the cluster of {source} sets proxy-url, which tenure does not support: remove it if the API server can be \
                     reached directly"
                )));
            }
            let has_authority = cluster.certificate_authority.is_some() || cluster.certificate_authority_data.is_some();
            if has_authority && cluster.insecure_skip_tls_verify == Some(true) {
                return Err(AccessError::unusable(format!(
                    "the cluster of {source} has a certificate authority and insecure-skip-tls-verify: remove one of them"
                )));
            }
        }
        let config = kube::Config::try_from(kubeconfig).map_err(|error| {
            // kube parses them although no proxy is used.
            let KubeconfigError::ParseProxyUrl(source) = error else { return broken(error) };
            let said = "HTTPS_PROXY or https_proxy is not a URL: unset it, tenure speaks to the API server directly";
            AccessError::caused(said, source)
        })?;
        // Replicas use their pod's namespace, even with a kubeconfig that people use too.
        let namespace = Namespace::of_pod().unwrap_or_else(|| Namespace::of_context(&config.default_namespace, &source));
        // oidc yields a token. For any other provider kube would run a program, and show its output if that fails.
        if let Some(provider) = config.auth_info.auth_provider.as_ref().filter(|provider| provider.name != "oidc") {
            return Err(AccessError::unusable(format!(
                "the user of {source} authenticates by the auth-provider {}, which kubectl has given up too: use a \
                 credential plugin (exec)",
                provider.name
            )));
        }
        let cluster = Self::new(config, source, Some(namespace))?;
        if let (Some(began), Some(now)) = (began, cluster.context())
            && now != *began
        {
            let what = match now.server == began.server {
                true => "another certificate authority or another way to verify the server".into(),
                false => format!("another server ({} in place of {})", now.server, began.server),
            };
            return Err(AccessError::unusable(format!(
                "the context {} of the kubeconfig {names} names {what} than when this replica started, and the Lease of this \
                 replica may not be there: correct it, or restart",
                now.name
            )));
        }
        Ok(cluster)
    }

    fn from_pod() -> Result<Self, AccessError> {
        Self::new(pod::config()?, Source::Pod, Namespace::of_pod())
    }

    fn new(mut config: kube::Config, source: Source, namespace: Option<Namespace>) -> Result<Self, AccessError> {
        if config.root_cert.as_ref().is_some_and(Vec::is_empty) {
            return Err(AccessError::unusable(format!("the certificate authority of {source} holds no PEM certificate")));
        }
        let url = &config.cluster_url;
        // If it is not a URL, the user may be anywhere in it. It is not shown: a password may follow it.
        if url.authority().map_or_else(|| url.path(), Authority::as_str).contains('@') {
            return Err(AccessError::unusable(format!(
                "the server of {source} names a user: write username and password under the user, not into the URL"
            )));
        }
        if !url::names_a_server(url) {
            return Err(AccessError::unusable(format!(
                "the server of {source} is {:?}, which is not a URL: write https://HOST:PORT, with a port from 1 to 65535 or none",
                url.to_string()
            )));
        }
        config.default_retry = false;
        config.headers.push((USER_AGENT, HeaderValue::from_static(concat!("tenure/", env!("CARGO_PKG_VERSION")))));
        Ok(Self { config, source, namespace })
    }

    /// The pod's namespace, else that of the kubeconfig's context, else "default".
    ///
    /// # Errors
    /// The namespace is not valid, or the pod does not tell it.
    pub fn namespace(&self) -> Result<&str, AccessError> {
        let Some(namespace) = &self.namespace else {
            return Err(AccessError::unusable(format!(
                "no namespace is configured, and the pod does not tell its own ({}): name one with --namespace",
                namespace::FILE
            )));
        };
        namespace.name()
    }

    /// The server's URL.
    pub fn url(&self) -> String {
        self.config.cluster_url.to_string()
    }

    /// The kubeconfig's context, and the cluster that it names; none: this is the pod's own cluster.
    pub fn context(&self) -> Option<KubeContext> {
        let Source::Kubeconfig { files, context } = &self.source else { return None };
        let mut authority = DefaultHasher::new();
        let kube::Config { root_cert, accept_invalid_certs, tls_server_name, .. } = &self.config;
        (root_cert, accept_invalid_certs, tls_server_name).hash(&mut authority);
        Some(KubeContext { files: files.clone(), name: context.clone(), server: self.url(), authority: authority.finish() })
    }

    /// The same cluster as its files describe it now, asked as the same user.
    ///
    /// # Errors
    /// Those of [`Self::again`].
    pub fn anew(&self) -> Result<Self, AccessError> {
        let kube::config::AuthInfo { impersonate, impersonate_groups, .. } = self.config.auth_info.clone();
        Ok(Self::again(self.context().as_ref())?.acting_as(impersonate, impersonate_groups))
    }

    /// Where the access comes from, for people.
    pub fn source(&self) -> String {
        self.source.to_string()
    }

    /// Gets credentials and sets up TLS; contacts nothing. A credential plugin that prompts nobody counts as hung after `patience`.
    ///
    /// # Errors
    /// The plugin gives none, or what the files say cannot be used.
    pub async fn dialer(&self, connect_timeout: Duration, patience: Duration) -> Result<Dialer, AccessError> {
        let (mut config, place) = (self.config.clone(), self.source.to_string());
        let refused = |source| AccessError::no_credentials(&self.source.to_string(), source);
        let asked = match Plugin::of(&mut config.auth_info).map_err(refused)? {
            Some(plugin) => {
                let given = plugin.ask(patience).await.map_err(refused)?;
                Some((plugin, given))
            }
            None => None,
        };
        let built = spawn_blocking(move || Dialer::new(config, asked, &place, connect_timeout)).await;
        built.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod => f.write_str("the pod's service account"),
            Self::Kubeconfig { files, context } => write!(f, "the kubeconfig {}, context {context}", shown(files)),
        }
    }
}

/// Calls `find` until it succeeds, for [`REWRITING`] at most: other programs truncate a kubeconfig before they write it.
fn patiently(find: impl Fn() -> Result<Cluster, AccessError>) -> Result<Cluster, AccessError> {
    let end = clock::boot() + REWRITING;
    loop {
        match find() {
            Err(_) if clock::boot() < end => thread::sleep(LOOK_AGAIN),
            found => return found,
        }
    }
}

/// Files as KUBECONFIG names them.
fn shown(files: &[PathBuf]) -> String {
    files.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(":")
}

/// The files that KUBECONFIG names.
fn named_files() -> Vec<PathBuf> {
    let value = env::var_os("KUBECONFIG").unwrap_or_default();
    env::split_paths(&value).filter(|path| !path.as_os_str().is_empty()).collect()
}

fn file_at_home() -> Option<PathBuf> {
    env::var_os("HOME").filter(|home| !home.is_empty()).map(|home| Path::new(&home).join(".kube/config"))
}

/// A file that may not be read counts as there: no other file takes its place.
pub(super) fn is_there(path: &Path) -> bool {
    path.try_exists().unwrap_or_else(|error| error.kind() != io::ErrorKind::NotADirectory)
}
