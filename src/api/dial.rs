//! Connections to the API server.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::Request;
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client as Pool, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use rustls::pki_types::ServerName;
use tower::{BoxError, ServiceExt as _, util::MapRequestLayer};

use super::{
    access::AccessError,
    bearer::Bearer,
    plugin::{Given, Plugin},
    request::USER,
    tls, url,
};
use crate::{clock, time::Instant};

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
    /// The server and the source that names it, for people.
    pub(crate) server: String,
    bearer: Option<Arc<Bearer>>,
    /// When another is to take its place: its plugin's certificate ends soon after.
    until: Option<Instant>,
}

impl Dialer {
    /// Reads files, so it blocks. `asked` is the credential plugin, and what it gave.
    pub(super) fn new(
        mut config: kube::Config,
        asked: Option<(Plugin, Given)>,
        place: &str,
        connect_timeout: Duration,
    ) -> Result<Self, AccessError> {
        let unverified = if config.accept_invalid_certs { "; its certificate is not verified" } else { "" };
        let server = format!("{} ({place}{unverified})", config.cluster_url);
        let (mut token, mut until) = (None, None);
        if let Some((plugin, given)) = asked {
            token = given.token.map(|header| (plugin, (header, given.good)));
            if let Some((certificate, key)) = given.identity {
                config.auth_info.client_certificate_data = Some(BASE64_STANDARD.encode(certificate));
                config.auth_info.client_key_data = Some(BASE64_STANDARD.encode(key).into());
                until = Some(clock::boot() + given.good);
            }
        }
        let bearer = Bearer::of(&config.auth_info, token, clock::boot())
            .map_err(|error| AccessError::no_credentials(place, error))?
            .map(Arc::new);
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls::config(config.clone(), place)?).https_or_http();
        let connector = match config.tls_server_name.clone().map(ServerName::try_from).transpose() {
            Ok(Some(name)) => connector.with_server_name_resolver(FixedServerNameResolver::new(name)),
            Ok(None) => connector,
            Err(error) => {
                return Err(AccessError::caused(format!("cannot set up TLS for {place}: tls-server-name"), error));
            }
        };
        let connector = connector.enable_http1().wrap_connector(tcp(connect_timeout));
        let headers = config.extra_headers_layer().map_err(|_| {
            AccessError::unusable(format!(
                "the impersonation (as, as-uid, as-groups, as-user-extra) for {place} has a character that no HTTP header can \
                 carry"
            ))
        })?;
        let own = usize::from(config.auth_info.impersonate.is_some());
        // As whom a request itself is to act, it acts alone: not in the groups of the kubeconfig's user, too.
        let alone = MapRequestLayer::new(move |mut request: Request<Body>| {
            let headers = request.headers_mut();
            if headers.get_all(USER).iter().count() > own
                && let Some(user) = headers.get(USER).cloned()
            {
                let of_both: Vec<_> = headers.keys().filter(|name| name.as_str().starts_with("impersonate-")).cloned().collect();
                of_both.into_iter().for_each(|name| drop(headers.remove(name)));
                headers.insert(USER, user);
            }
            request
        });
        let base = config.cluster_url.clone();
        let signer = bearer.clone();
        let addressed = MapRequestLayer::new(move |mut request: Request<Body>| {
            // One that is too long stays relative, which hyper refuses to send; kube's layer would panic.
            if let Some(url) = url::below(&base, request.uri()) {
                *request.uri_mut() = url;
            }
            match &signer {
                Some(signer) => signer.sign(request),
                None => request,
            }
        });
        let make = move || {
            let pool: Pool<_, Body> = Pool::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(IDLE)
                .build(connector.clone());
            ClientBuilder::new(pool.map_err(BoxError::from), config.default_namespace.clone())
                .with_layer(&alone)
                .with_layer(&headers)
                .with_layer(&addressed)
                .build()
        };
        Ok(Self { make: Arc::new(make), server, bearer, until })
    }

    /// When another is to take its place.
    pub(super) const fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Returns true if this is a clone of `other`.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.make, &other.make)
    }

    /// Returns true if it signs with the token of a pod that has not expired.
    pub(super) fn has_good_token_of_a_pod(&self) -> bool {
        self.bearer.as_ref().is_some_and(|bearer| bearer.is_good_token_of_a_pod(clock::now().wall))
    }

    /// A client with no connection yet; the next request opens one. Dropping all its clones closes its idle connections.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn client(&self) -> kube::Client {
        (self.make)()
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

    use serde_json::{Value, json};

    use crate::{
        api::{Cluster, PLUGIN_PATIENCE as PATIENCE, exchange, stub},
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

        async fn dialer(&self, server: &str, user: &Value) -> Result<Dialer, AccessError> {
            let kubeconfig = json!({
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": user}],
            });
            std::fs::write(&self.kubeconfig, kubeconfig.to_string()).unwrap();
            Cluster::from_kubeconfig(std::slice::from_ref(&self.kubeconfig))?.dialer(Duration::from_secs(5), PATIENCE).await
        }

        /// The head of a request by this user, in lower case.
        async fn asks(&self, user: Value) -> String {
            let mut stub = stub::Stub::start([stub::json(200, "{}")]).await;
            let client = self.dialer(&stub.url, &user).await.unwrap().client();
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
    async fn a_credential_plugin_is_asked_as_kubectl_asks_and_once() {
        let user = User::new("asked");
        let script = format!(
            r#"echo >>{}; echo "{{\"status\": {{\"token\": \"$(printf %s "$KUBERNETES_EXEC_INFO" | base64 -w0)\"}}}}""#,
            user.file.display()
        );

        let head = user.asks(json!({ "exec": plugin(&script) })).await;

        let question = r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{"interactive":false}}"#;
        let asked = BASE64_STANDARD.encode(question).to_lowercase();
        assert!(head.contains(&format!("authorization: bearer {asked}\r\n")), "{head}");
        assert_eq!(std::fs::read_to_string(&user.file).unwrap(), "\n");
    }

    #[tokio::test]
    async fn an_error_shows_what_a_plugin_complains_of_and_nothing_that_it_was_given_or_prints() {
        let user = User::new("complains");
        for (script, shown) in [
            ("echo a-token; echo first >&2; echo '  the session is over ' >&2; exit 3", "(exit status: 3): the session is over"),
            ("echo '{\"status\": {\"token\": \"a-token\"'", "is not an ExecCredential"),
            ("echo '{\"status\": \"a-token\"}'", "is not an ExecCredential"),
            ("echo '{\"status\": {\"token\": \"\"}}'", "is not an ExecCredential"),
            (r#"printf '{"status": {"token": "a-token\\n"}}'"#, "is not an ExecCredential"),
            ("echo '{\"status\": {\"clientCertificateData\": \"x\"}}'", "is not an ExecCredential"),
            ("exec yes a-token", "failed (signal: 13 (SIGPIPE))"),
            ("echo '{\"status\": {\"token\": \"a-token\", \"expirationTimestamp\": \"soon\"}}'", "is not an ExecCredential"),
        ] {
            let mut exec = plugin(script);
            exec["env"] = json!([{ "name": "SECRET", "value": "a-variable" }]);

            let error = user.dialer("https://127.0.0.1:1", &json!({ "exec": exec })).await.err().unwrap();

            let said = format!("{} {error:?}", one_line(&error));
            assert!(said.contains("/bin/sh") && said.contains(shown), "{said}");
            for secret in ["a-token", "a-variable", "first"] {
                assert!(!said.contains(secret), "{said}");
            }
            assert_eq!(error.exit_code(), 77);
        }
    }

    #[tokio::test]
    async fn a_plugin_that_is_not_there_is_told_with_how_to_get_it() {
        let mut exec = plugin("");
        (exec["command"], exec["installHint"]) = ("/nonexistent/plugin".into(), "brew install\nplugin".into());

        let error = User::new("hint").dialer("https://127.0.0.1:1", &json!({ "exec": exec })).await.err().unwrap();

        let said = one_line(&error);
        assert!(said.contains("the credential plugin /nonexistent/plugin cannot be run (brew install plugin): "), "{said}");
        assert_eq!(error.exit_code(), 78);
    }

    #[tokio::test]
    async fn what_is_empty_in_a_kubeconfig_is_not_set() {
        let user = User::new("empty");
        std::fs::write(&user.file, "open-sesame").unwrap();
        for credentials in [
            json!({ "token": "", "exec": plugin(PLUGIN) }),
            json!({ "token": "", "tokenFile": user.file }),
            json!({ "username": "", "password": "", "token": "open-sesame" }),
            json!({ "client-certificate-data": "", "client-key-data": "", "token": "open-sesame" }),
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

    #[tokio::test]
    async fn a_token_that_cannot_stand_in_a_header_is_refused_and_not_shown() {
        let user = User::new("token");
        let empty = User::new("token-none");
        std::fs::write(&user.file, "open\nsesame").unwrap();
        std::fs::write(&empty.file, "").unwrap();
        for (credentials, code) in [
            (json!({ "token": "open\nsesame" }), 78),
            (json!({ "auth-provider": { "name": "oidc", "config": { "id-token": "open\nsesame" } } }), 78),
            (json!({ "auth-provider": { "name": "oidc", "config": { "id-token": "" } } }), 78),
            (json!({ "tokenFile": user.file }), 78),
            (json!({ "tokenFile": empty.file }), 78),
        ] {
            let error = user.dialer("https://127.0.0.1:1", &credentials).await.err().unwrap();
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

    #[tokio::test]
    async fn an_impersonation_that_no_header_can_carry_is_refused_by_its_name() {
        let error = User::new("impersonation").dialer("http://127.0.0.1:1", &json!({ "as": "bob\n" })).await.err().unwrap();

        assert!(one_line(&error).contains("the impersonation (as, as-uid, as-groups, as-user-extra) for "), "{error}");
        assert_eq!(error.exit_code(), 78);
    }

    #[tokio::test]
    async fn a_key_that_is_no_pem_is_refused_and_not_shown() {
        let user = User::new("key");
        let key = BASE64_STANDARD.encode(r"-----BEGIN PRIVATE KEY-----\nU0VTQU1F\n-----END PRIVATE KEY-----\n");
        let certificate = BASE64_STANDARD.encode("-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n");
        let credentials = json!({ "client-certificate-data": certificate, "client-key-data": key });

        let error = user.dialer("https://127.0.0.1:1", &credentials).await.err().unwrap();

        let said = format!("{error:?} {}", one_line(&error));
        assert!(said.contains("the client certificate or the key for "), "{said}");
        assert_eq!(error.exit_code(), 78);
        assert!(!said.contains("U0VT") && !said.contains("85, 48, 86, 84"), "{said}");
    }
}
