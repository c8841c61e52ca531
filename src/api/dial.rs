//! Connections to the API server.

use std::{fmt, sync::Arc, time::Duration};

use http::Request;
use hyper_util::{
    client::legacy::{Client as Pool, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use kube::client::{Body, ClientBuilder, ConfigExt as _, RustlsTlsError};
use secrecy::ExposeSecret as _;
use tower::{
    BoxError, ServiceExt as _,
    util::{Either, MapRequestLayer, option_layer},
};

use super::{
    access::AccessError,
    plugin,
    token::{TokenFile, is_sendable},
};
use crate::clock;

/// A dead peer of an idle or watching connection is noticed after about a minute, long before the server ends a watch.
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;

/// Longer than the interval of the slow reads that keep a follower's connection warm; servers close idle connections themselves.
const IDLE: Duration = Duration::from_secs(300);

/// Makes clients with the same credentials and TLS settings, each with its own connections.
#[derive(Clone)]
pub struct Dialer {
    make: Arc<dyn Fn() -> kube::Client + Send + Sync>,
    lifetime: Option<Duration>,
    server: String,
    ignored_proxy: Option<String>,
}

impl Dialer {
    /// `place` names the source of the access for people, `ignored_proxy` is the warning about a proxy, and `patience` that with a
    /// credential plugin.
    pub(super) fn new(
        config: &kube::Config,
        place: &str,
        ignored_proxy: Option<String>,
        connect_timeout: Duration,
        patience: Duration,
    ) -> Result<Self, AccessError> {
        let unverified = if config.accept_invalid_certs { "; its certificate is not verified" } else { "" };
        let server = format!("{} ({place}{unverified})", config.cluster_url);
        let tls = |source| {
            if matches!(source, kube::Error::RustlsTls(RustlsTlsError::InvalidIdentityPem(_))) {
                AccessError::Identity(place.into())
            } else {
                AccessError::Tls { place: place.into(), source: Box::new(source) }
            }
        };
        let credentials = |source| AccessError::Credentials { place: place.into(), source: Box::new(source) };
        let mut config = config.clone();
        let lifetime = plugin::replace(&mut config.auth_info, patience)
            .map_err(|source| AccessError::Plugin { place: place.into(), source })?;
        // As in client-go, the file takes precedence over a token in the kubeconfig itself, which is older.
        let file = config.auth_info.token_file.take().map(|path| (path, config.auth_info.token.take()));
        let token = config.auth_info.token.as_ref().map(|token| token.expose_secret());
        let of_provider = config.auth_info.auth_provider.as_ref().and_then(|provider| provider.config.get("id-token"));
        if [token, of_provider.map(String::as_str)].into_iter().flatten().any(|token| !is_sendable(token)) {
            return Err(AccessError::Token(place.into()));
        }
        // kube would look for the system's certificates, which images made from scratch lack.
        if config.accept_invalid_certs || config.cluster_url.scheme_str() == Some("http") {
            config.root_cert.get_or_insert_default();
        }
        let signing = match (config.auth_layer().map_err(credentials)?, file) {
            (None, Some((path, inline))) => {
                let inline = inline.as_ref().map(|token| token.expose_secret());
                let opened = TokenFile::open(path.into(), inline, clock::boot());
                let opened = opened.map_err(|error| credentials(kube::Error::Auth(error)))?;
                let file = Arc::new(opened.ok_or_else(|| AccessError::Token(place.into()))?);
                Some(Either::Right(MapRequestLayer::new(move |request: Request<Body>| file.sign(request))))
            }
            // A password or an auth-provider takes precedence over any token; otherwise there is no file.
            (auth, _) => auth.map(Either::Left),
        };
        let signing = option_layer(signing);
        let connector = config.rustls_https_connector_with_connector(tcp(connect_timeout)).map_err(tls)?;
        let headers = config.extra_headers_layer().map_err(|_| AccessError::Impersonation(place.into()))?;
        let base = config.base_uri_layer();
        let make = move || {
            let pool: Pool<_, Body> = Pool::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(IDLE)
                .build(connector.clone());
            ClientBuilder::new(pool.map_err(BoxError::from), config.default_namespace.clone())
                .with_layer(&headers)
                .with_layer(&signing)
                .with_layer(&base)
                .build()
        };
        Ok(Self { make: Arc::new(make), lifetime, server, ignored_proxy })
    }

    /// The server and the source that names it, for people.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// How long its credentials are valid, counted from its creation; `None` if no expiry is known.
    #[must_use]
    pub const fn lifetime(&self) -> Option<Duration> {
        self.lifetime
    }

    /// Whether this is a clone of `other`.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.make, &other.make)
    }

    /// The warning about a proxy that the environment asks for and that is not used.
    #[must_use]
    pub fn ignored_proxy(&self) -> Option<&str> {
        self.ignored_proxy.as_deref()
    }

    /// A client with no connection yet; the next request opens one. Dropping all its clones closes its idle connections.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        (self.make)()
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").finish_non_exhaustive()
    }
}

fn tcp(connect_timeout: Duration) -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(connect_timeout));
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    tcp.set_keepalive_retries(Some(KEEPALIVE_PROBES));
    tcp
}

#[cfg(test)]
mod tests {
    use std::{path::PathBuf, process};

    use base64::{Engine as _, prelude::BASE64_STANDARD};
    use serde_json::{Value, json};

    use crate::{
        api::{Cluster, Prompt, exchange, stub},
        words::one_line,
    };

    use super::*;

    const PLUGIN: &str =
        r#"echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"open-sesame"}}'"#;

    /// A user in a kubeconfig, and a file beside it.
    struct User {
        kubeconfig: PathBuf,
        file: PathBuf,
    }

    impl User {
        fn new(name: &str) -> Self {
            let kubeconfig = std::env::temp_dir().join(format!("tenure-dial-{}-{name}", process::id()));
            Self { file: kubeconfig.with_extension("file"), kubeconfig }
        }

        fn dialer(&self, server: &str, user: &Value) -> Result<Dialer, AccessError> {
            let kubeconfig = json!({
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": user}],
            });
            std::fs::write(&self.kubeconfig, kubeconfig.to_string()).unwrap();
            Cluster::from_kubeconfig(std::slice::from_ref(&self.kubeconfig), Prompt::Never)?.dialer(Duration::from_secs(5))
        }

        /// The head of a request by this user, in lower case.
        async fn asks(&self, user: Value) -> String {
            let mut stub = stub::Stub::start([stub::json(200, "{}")]).await;
            let client = self.dialer(&stub.url, &user).unwrap().client();
            exchange(&client, Request::get("/x").body(Body::empty()).unwrap(), Duration::from_secs(20)).await.unwrap();
            stub.seen.recv().await.unwrap().head
        }
    }

    impl Drop for User {
        fn drop(&mut self) {
            for file in [&self.kubeconfig, &self.file] {
                let _ = std::fs::remove_file(file);
            }
        }
    }

    fn plugin(script: &str) -> Value {
        let command = json!(["-c", script]);
        let version = "client.authentication.k8s.io/v1";
        json!({ "apiVersion": version, "command": "/bin/sh", "args": command, "interactiveMode": "IfAvailable" })
    }

    #[tokio::test]
    async fn a_credential_plugin_gives_its_token() {
        let head = User::new("plugin").asks(json!({ "exec": plugin(PLUGIN) })).await;

        assert!(head.contains("authorization: bearer open-sesame\r\n"), "{head}");
    }

    #[tokio::test]
    async fn what_is_empty_in_a_kubeconfig_is_not_set() {
        let user = User::new("empty");
        std::fs::write(&user.file, "open-sesame").unwrap();
        for credentials in [
            json!({ "token": "", "exec": plugin(PLUGIN) }),
            json!({ "token": "", "tokenFile": user.file }),
            json!({ "username": "", "password": "", "token": "open-sesame" }),
            json!({ "tokenFile": "", "token": "open-sesame" }),
            json!({ "client-certificate-data": "", "client-key-data": "", "client-certificate": "", "token": "open-sesame" }),
        ] {
            let head = user.asks(credentials.clone()).await;
            assert!(head.contains("authorization: bearer open-sesame\r\n"), "{credentials}: {head}");
        }
    }

    #[tokio::test]
    async fn a_token_file_may_end_in_a_newline() {
        let user = User::new("newline");
        std::fs::write(&user.file, "open-sesame\n").unwrap();

        let head = user.asks(json!({ "tokenFile": user.file })).await;

        assert!(head.contains("authorization: bearer open-sesame\r\n"), "{head}");
    }

    #[tokio::test]
    async fn a_password_or_an_auth_provider_goes_before_a_token_file_which_is_not_even_read() {
        let user = User::new("before");
        let oidc = json!({ "name": "oidc", "config": { "id-token": "of-a-provider" } });
        for content in [None, Some(""), Some("of-a-file")] {
            if let Some(content) = content {
                std::fs::write(&user.file, content).unwrap();
            }
            let password = json!({ "username": "a", "password": "b", "tokenFile": user.file });
            for (credentials, sent) in
                [(password, "basic ytpi"), (json!({ "auth-provider": oidc, "tokenFile": user.file }), "bearer of-a-provider")]
            {
                let head = user.asks(credentials.clone()).await;
                assert!(head.contains(&format!("authorization: {sent}\r\n")), "{content:?} {credentials}: {head}");
                assert_eq!(head.matches("authorization:").count(), 1, "{head}");
            }
        }
    }

    #[tokio::test]
    async fn a_token_file_goes_before_a_token_unless_it_cannot_be_read() {
        let user = User::new("both");
        let both = || json!({ "token": "older", "tokenFile": user.file });
        for (content, sent) in [
            (Some("newer"), "newer"),
            (Some("newer\n"), "newer"),
            (Some("\n"), "older"),
            (Some("open\nsesame"), "older"),
            (None, "older"),
        ] {
            let _ = std::fs::remove_file(&user.file);
            if let Some(content) = content {
                std::fs::write(&user.file, content).unwrap();
            }

            let head = user.asks(both()).await;

            assert!(head.contains(&format!("authorization: bearer {sent}\r\n")), "{content:?}: {head}");
        }
    }

    #[test]
    fn a_token_that_cannot_stand_in_a_header_is_refused_and_not_shown() {
        let user = User::new("token");
        let empty = User::new("token-none");
        std::fs::write(&user.file, "open\nsesame").unwrap();
        std::fs::write(&empty.file, "").unwrap();
        let prints = plugin(r#"printf %s '{"status":{"token":"open\nsesame"}}'"#);
        for (credentials, code) in [
            (json!({ "token": "open\nsesame" }), 78),
            (json!({ "auth-provider": { "name": "oidc", "config": { "id-token": "open\nsesame" } } }), 78),
            (json!({ "auth-provider": { "name": "oidc", "config": { "id-token": "" } } }), 78),
            (json!({ "tokenFile": user.file }), 78),
            (json!({ "tokenFile": empty.file }), 78),
            (json!({ "exec": prints }), 77),
        ] {
            let error = user.dialer("https://127.0.0.1:1", &credentials).unwrap_err();
            assert_eq!(error.exit_code(), code, "{error:?}");
            assert!(!format!("{error:?} {}", one_line(&error)).contains("sesame"), "{error:?}");
        }
    }

    #[tokio::test]
    async fn who_is_impersonated_is_said_and_an_empty_name_is_nobody() {
        let user = User::new("impersonates");
        for (name, said) in [("bob", true), ("", false)] {
            let head = user.asks(json!({ "token": "open-sesame", "as": name })).await;

            assert_eq!(head.contains("impersonate-user: bob\r\n"), said, "{head}");
            assert_eq!(head.contains("impersonate-user"), said, "{head}");
        }
    }

    #[test]
    fn an_impersonation_that_no_header_can_carry_is_refused_by_its_name() {
        let error = User::new("impersonation").dialer("http://127.0.0.1:1", &json!({ "as": "bob\n" })).unwrap_err();

        assert!(matches!(error, AccessError::Impersonation(_)), "{error}");
        assert_eq!(error.exit_code(), 78);
    }

    #[test]
    fn a_key_that_is_no_pem_is_refused_and_not_shown() {
        let user = User::new("key");
        let key = BASE64_STANDARD.encode(r"-----BEGIN PRIVATE KEY-----\nU0VTQU1F\n-----END PRIVATE KEY-----\n");
        let certificate = BASE64_STANDARD.encode("-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n");
        let credentials = json!({ "client-certificate-data": certificate, "client-key-data": key });

        let error = user.dialer("https://127.0.0.1:1", &credentials).unwrap_err();

        let said = format!("{error:?} {}", one_line(&error));
        assert!(matches!(error, AccessError::Identity(_)), "{said}");
        assert_eq!(error.exit_code(), 78);
        assert!(!said.contains("U0VT") && !said.contains("85, 48, 86, 84"), "{said}");
    }
}
