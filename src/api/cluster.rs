//! Where the API server is, and who we are there.

use std::{
    env, fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use http::{HeaderValue, header::USER_AGENT};
use kube::config::{ExecInteractiveMode, InClusterError, Kubeconfig, KubeconfigError};

use super::{dial::Dialer, plugin::PluginError, proxies};

const SERVICE_ACCOUNT_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// A cluster that the surroundings name: not contacted yet.
#[derive(Clone, Debug)]
pub struct Cluster {
    config: kube::Config,
    source: Source,
}

/// Where the access comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    Pod,
    Kubeconfig(String),
}

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
    /// The kubeconfig cannot be read or makes no sense.
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
    #[error("the server of {place} is {url:?}, which is no URL: write https://HOST:PORT")]
    Server {
        /// Of which source.
        place: String,
        /// What stands there.
        url: String,
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
    /// A certificate authority without a certificate.
    #[error("the certificate authority of {0} holds no PEM certificate")]
    NoCertificate(String),
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
    /// The exit code where this ends a command (design 4): 77 where a plugin ran and gave no credentials, else 78.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        if self.may_pass() { 77 } else { 78 }
    }

    /// Whether trying again may help: a credential plugin ran and failed. All else is configuration.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Plugin { source, .. } if source.may_pass())
    }
}

impl Cluster {
    /// Looks for a cluster: the kubeconfig that KUBECONFIG names; else the pod's service account; else `~/.kube/config`.
    ///
    /// `interactive`: a credential plugin may ask on the terminal.
    ///
    /// # Errors
    /// Nothing is found, or the first that is found cannot be used. A later one never replaces a broken one.
    pub fn discover(interactive: bool) -> Result<Self, AccessError> {
        let named: Vec<PathBuf> = env::var_os("KUBECONFIG")
            .map(|value| env::split_paths(&value).filter(|path| !path.as_os_str().is_empty()).collect())
            .unwrap_or_default();
        if !named.is_empty() {
            return Self::from_kubeconfig(&named, interactive);
        }
        let Some(missing) = missing_of_pod() else { return Self::from_pod() };
        let home = env::var_os("HOME").filter(|home| !home.is_empty()).map(|home| Path::new(&home).join(".kube/config"));
        match home {
            Some(path) if path.exists() => Self::from_kubeconfig(&[path], interactive),
            Some(path) => Err(AccessError::Nowhere {
                pod: missing.into(),
                kubeconfig: format!("there is no kubeconfig (KUBECONFIG is not set, {} does not exist)", path.display()),
            }),
            None => Err(AccessError::Nowhere {
                pod: missing.into(),
                kubeconfig: "there is no kubeconfig (neither KUBECONFIG nor HOME is set)".into(),
            }),
        }
    }

    /// The cluster of these kubeconfig files, merged as kubectl does; of several, some may be missing.
    ///
    /// # Errors
    /// They cannot be read, name no usable context, or ask for what tenure does not do.
    pub fn from_kubeconfig(paths: &[PathBuf], interactive: bool) -> Result<Self, AccessError> {
        let names = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(":");
        let broken = |source| AccessError::Kubeconfig { paths: names.clone(), source };
        let present: Vec<_> = paths.iter().filter(|path| path.exists()).collect();
        let read = if present.is_empty() { paths.iter().collect() } else { present };
        let kubeconfig = read.into_iter().try_fold(Kubeconfig::default(), |merged, path| {
            let one = Kubeconfig::read_from(path).map_err(|error| {
                let KubeconfigError::Parse(parse) = &error else { return broken(error) };
                AccessError::Malformed { path: path.display().to_string(), line: parse.location().map(|at| at.line()) }
            })?;
            merged.merge(one).map_err(broken)
        })?;
        let context = chosen(&kubeconfig, &names)?;
        let source = Source::Kubeconfig(format!("{names}, context {context}"));
        if proxy_of_current(&kubeconfig) {
            return Err(AccessError::Proxy(source.to_string()));
        }
        let mut config = kube::Config::try_from(kubeconfig).map_err(broken)?;
        // The one that is left gives a token; kube would run a program for another, and show its output where that fails.
        if let Some(provider) = config.auth_info.auth_provider.as_ref().filter(|provider| provider.name != "oidc") {
            return Err(AccessError::AuthProvider { place: source.to_string(), name: provider.name.clone() });
        }
        if let Some(exec) = &mut config.auth_info.exec
            && !interactive
            && exec.interactive_mode != Some(ExecInteractiveMode::Always)
        {
            exec.interactive_mode = Some(ExecInteractiveMode::Never);
        }
        Self::new(config, source)
    }

    fn from_pod() -> Result<Self, AccessError> {
        Self::new(kube::Config::incluster_env().map_err(AccessError::Pod)?, Source::Pod)
    }

    /// The server at `url`, as nobody.
    #[cfg(test)]
    pub(crate) fn without_credentials(url: &str) -> Self {
        let config = kube::Config::new(url.parse().unwrap());
        Self::new(config, Source::Kubeconfig("of a test".into())).unwrap()
    }

    fn new(mut config: kube::Config, source: Source) -> Result<Self, AccessError> {
        if config.root_cert.as_ref().is_some_and(Vec::is_empty) {
            return Err(AccessError::NoCertificate(source.to_string()));
        }
        let url = &config.cluster_url;
        if !matches!(url.scheme_str(), Some("http" | "https")) || url.host().is_none_or(str::is_empty) {
            return Err(AccessError::Server { place: source.to_string(), url: url.to_string() });
        }
        config.default_retry = false;
        config.headers.push((USER_AGENT, HeaderValue::from_static(concat!("tenure/", env!("CARGO_PKG_VERSION")))));
        Ok(Self { config, source })
    }

    /// The pod's namespace, or that of the kubeconfig's context, or "default".
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.config.default_namespace.trim()
    }

    /// The server's URL.
    #[must_use]
    pub fn url(&self) -> String {
        self.config.cluster_url.to_string()
    }

    /// Where the access comes from, for people.
    #[must_use]
    pub fn source(&self) -> String {
        self.source.to_string()
    }

    /// What is to be said of a proxy that the environment asks for and that is not used.
    #[must_use]
    pub fn ignored_proxy(&self) -> Option<String> {
        let variable = proxies::asked_for(&self.config.cluster_url, |name| env::var(name).ok())?;
        let host = self.config.cluster_url.host().unwrap_or_default();
        Some(format!(
            "{variable} is not used: tenure speaks to the API server directly; put {host} into NO_PROXY if that is meant"
        ))
    }

    /// Gets credentials and sets TLS up; contacts nothing. Blocks while a credential plugin runs.
    ///
    /// # Errors
    /// [`AccessError::Plugin`], [`AccessError::Credentials`] and [`AccessError::Tls`].
    pub fn dialer(&self, connect_timeout: Duration) -> Result<Dialer, AccessError> {
        let server = format!("{} ({})", self.url(), self.source);
        Ok(Dialer::new(&self.config, &self.source.to_string(), connect_timeout)?.beside(server, self.ignored_proxy()))
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod => f.write_str("the pod's service account"),
            Self::Kubeconfig(names) => write!(f, "the kubeconfig {names}"),
        }
    }
}

fn it_or_line(line: Option<u64>) -> String {
    line.map_or_else(|| "it".into(), |line| format!("line {line}"))
}

/// What this process lacks of a pod with access to its API server.
fn missing_of_pod() -> Option<&'static str> {
    if env::var_os("KUBERNETES_SERVICE_HOST").is_none() {
        return Some("this is no pod (KUBERNETES_SERVICE_HOST is not set)");
    }
    if !Path::new(SERVICE_ACCOUNT_TOKEN).exists() {
        return Some("this pod has no service account token (automountServiceAccountToken)");
    }
    None
}

/// The name of the context that the kubeconfig chooses among its own.
fn chosen(kubeconfig: &Kubeconfig, files: &str) -> Result<String, AccessError> {
    let choice = match kubeconfig.current_context.as_deref().filter(|name| !name.is_empty()) {
        Some(name) if kubeconfig.contexts.iter().any(|context| context.name == name) => return Ok(name.into()),
        Some(name) => format!("there is no context {name}"),
        None => "no context is chosen".into(),
    };
    if kubeconfig.contexts.is_empty() {
        return Err(AccessError::Empty(files.into()));
    }
    let contexts = kubeconfig.contexts.iter().map(|context| context.name.as_str()).collect::<Vec<_>>().join(", ");
    Err(AccessError::Context { files: files.into(), choice, contexts })
}

fn proxy_of_current(kubeconfig: &Kubeconfig) -> bool {
    let named = |name: &String| kubeconfig.contexts.iter().find(|context| context.name == *name);
    let context = kubeconfig.current_context.as_ref().and_then(named).and_then(|named| named.context.as_ref());
    let cluster = context.and_then(|context| kubeconfig.clusters.iter().find(|cluster| cluster.name == context.cluster));
    let proxy = cluster.and_then(|named| named.cluster.as_ref()).and_then(|cluster| cluster.proxy_url.as_ref());
    proxy.is_some_and(|url| !url.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::one_line;

    /// A file of this test process, removed at the end.
    struct File(PathBuf);

    impl File {
        fn new(name: &str, content: &str) -> Self {
            let path = env::temp_dir().join(format!("tenure-cluster-{}-{name}", std::process::id()));
            std::fs::write(&path, content).unwrap();
            Self(path)
        }
    }

    impl Drop for File {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn kubeconfig(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: here\n\
             contexts: [{{name: here, context: {{cluster: c, user: u, namespace: billing}}}}]\n\
             clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:1', {cluster}}}}}]\n\
             users: [{{name: u, user: {{{user}}}}}]\n"
        )
    }

    fn refused(file: &File) -> AccessError {
        let cluster = match Cluster::from_kubeconfig(std::slice::from_ref(&file.0), false) {
            Ok(cluster) => cluster,
            Err(error) => return error,
        };
        cluster.dialer(Duration::from_secs(1)).unwrap_err()
    }

    #[test]
    fn the_context_gives_the_namespace() {
        let file = File::new("namespace", &kubeconfig("", "token: x"));

        let cluster = Cluster::from_kubeconfig(std::slice::from_ref(&file.0), false).unwrap();

        assert_eq!(cluster.namespace(), "billing");
        assert!(cluster.source().ends_with(", context here"), "{}", cluster.source());
    }

    #[test]
    fn of_several_kubeconfigs_some_may_be_missing() {
        let file = File::new("several", &kubeconfig("", "token: x"));

        let cluster = Cluster::from_kubeconfig(&[PathBuf::from("/nonexistent/config"), file.0.clone()], false).unwrap();

        assert_eq!(cluster.namespace(), "billing");
    }

    #[test]
    fn a_missing_kubeconfig_is_named() {
        let error = Cluster::from_kubeconfig(&[PathBuf::from("/nonexistent/config")], false).unwrap_err();

        assert_eq!(error.exit_code(), 78);
        assert!(one_line(&error).contains("/nonexistent/config"), "{}", one_line(&error));
        assert!(one_line(&error).contains("No such file"), "{}", one_line(&error));
    }

    #[test]
    fn a_broken_kubeconfig_is_named() {
        let file = File::new("broken", "clusters: [{");

        let error = refused(&file);

        assert_eq!(error.exit_code(), 78);
        assert!(one_line(&error).contains("broken"), "{}", one_line(&error));
    }

    #[test]
    fn a_context_that_does_not_exist_is_named() {
        let file = File::new("context", &kubeconfig("", "").replace("current-context: here", "current-context: there"));

        let error = refused(&file);

        assert_eq!(error.exit_code(), 78);
        let said = one_line(&error);
        assert!(said.ends_with("there is no context there; `kubectl config use-context NAME` chooses one of here"), "{said}");
    }

    #[test]
    fn where_no_context_is_chosen_it_says_which_there_are() {
        let many = kubeconfig("", "").replace("current-context: here\n", "").replace("contexts: [", "contexts: [{name: also}, ");
        let file = File::new("no-context", &many);
        let said = one_line(&refused(&file));
        assert!(said.ends_with("no context is chosen; `kubectl config use-context NAME` chooses one of also, here"), "{said}");

        let empty = File::new("empty", "");
        assert!(one_line(&refused(&empty)).ends_with("has no contexts, so it names no cluster"));
    }

    #[test]
    fn a_server_that_is_no_url_is_refused() {
        for server in ["localhost", "localhost:8080", "ftp://localhost"] {
            let file = File::new("server", &kubeconfig("", "").replace("https://127.0.0.1:1", server));

            let error = refused(&file);

            assert_eq!(error.exit_code(), 78);
            assert!(one_line(&error).ends_with("which is no URL: write https://HOST:PORT"), "{}", one_line(&error));
        }
    }

    #[test]
    fn a_missing_certificate_authority_is_named() {
        let file = File::new("ca-missing", &kubeconfig("certificate-authority: /nonexistent/ca.crt", ""));

        let error = refused(&file);

        assert_eq!(error.exit_code(), 78);
        assert!(one_line(&error).contains("/nonexistent/ca.crt"), "{}", one_line(&error));
    }

    #[test]
    fn a_certificate_authority_without_a_certificate_is_refused() {
        let authority = File::new("ca-empty", "no certificate");
        let file = File::new("ca", &kubeconfig(&format!("certificate-authority: {}", authority.0.display()), ""));

        let error = refused(&file);

        assert!(matches!(error, AccessError::NoCertificate(_)), "{error:?}");
        assert_eq!(error.exit_code(), 78);
    }

    #[test]
    fn a_certificate_that_is_none_is_refused() {
        let pem = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
        let authority = File::new("ca-garbage", pem);
        let file = File::new("ca-bad", &kubeconfig(&format!("certificate-authority: {}", authority.0.display()), ""));

        let error = refused(&file);

        assert!(matches!(error, AccessError::Tls { .. }), "{error:?}");
        assert_eq!(error.exit_code(), 78);
    }

    #[test]
    fn a_proxy_is_refused() {
        let file = File::new("proxy", &kubeconfig("proxy-url: 'http://127.0.0.1:2'", "token: x"));

        let error = refused(&file);

        assert!(matches!(error, AccessError::Proxy(_)), "{error:?}");
        assert_eq!(error.exit_code(), 78);
    }

    #[test]
    fn a_missing_token_file_is_named() {
        let file = File::new("token", &kubeconfig("", "tokenFile: /nonexistent/token"));

        let error = refused(&file);

        assert_eq!(error.exit_code(), 78);
        assert!(one_line(&error).contains("/nonexistent/token"), "{}", one_line(&error));
    }

    #[test]
    fn a_missing_credential_plugin_is_configuration() {
        let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: /nonexistent/plugin}";
        let file = File::new("plugin-missing", &kubeconfig("", exec));

        let error = refused(&file);

        assert!(!error.may_pass(), "{error:?}");
        assert_eq!(error.exit_code(), 78);
    }

    #[test]
    fn a_credential_plugin_that_fails_may_pass() {
        let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: 'false'}";
        let file = File::new("plugin-fails", &kubeconfig("", exec));

        let error = refused(&file);

        assert!(error.may_pass(), "{error:?}");
        assert_eq!(error.exit_code(), 77);
    }
}
