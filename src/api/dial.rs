//! Connections to the API server.

use std::{fmt, sync::Arc, time::Duration};

use hyper_util::{
    client::legacy::{Client as Pool, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use tower::{BoxError, ServiceExt as _};

use super::{access::AccessError, plugin};

/// A dead peer of an idle or watching connection is noticed after about a minute, long before the server ends a watch.
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;

/// Above the pace of the slow reads that keep a follower's connection warm; servers end idle ones by themselves.
const IDLE: Duration = Duration::from_secs(300);

/// Makes clients with the same credentials and TLS settings, each with connections of its own.
#[derive(Clone)]
pub struct Dialer {
    make: Arc<dyn Fn() -> kube::Client + Send + Sync>,
    lifetime: Option<Duration>,
    server: String,
    ignored_proxy: Option<String>,
}

impl Dialer {
    pub(super) fn new(config: &kube::Config, place: &str, connect_timeout: Duration) -> Result<Self, AccessError> {
        let tls = |source| AccessError::Tls { place: place.into(), source: Box::new(source) };
        let credentials = |source| AccessError::Credentials { place: place.into(), source: Box::new(source) };
        let mut config = config.clone();
        let lifetime =
            plugin::replace(&mut config.auth_info).map_err(|source| AccessError::Plugin { place: place.into(), source })?;
        let auth = config.auth_layer().map_err(credentials)?;
        let connector = config.rustls_https_connector_with_connector(tcp(connect_timeout)).map_err(tls)?;
        let headers = config.extra_headers_layer().map_err(tls)?;
        let base = config.base_uri_layer();
        let make = move || {
            let pool: Pool<_, Body> = Pool::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(IDLE)
                .build(connector.clone());
            let builder = ClientBuilder::new(pool.map_err(BoxError::from), config.default_namespace.clone()).with_layer(&headers);
            match &auth {
                Some(auth) => builder.with_layer(auth).with_layer(&base).build(),
                None => builder.with_layer(&base).build(),
            }
        };
        Ok(Self { make: Arc::new(make), lifetime, server: String::new(), ignored_proxy: None })
    }

    /// Keeps what is to be said of the server and of a proxy.
    pub(super) fn beside(self, server: String, ignored_proxy: Option<String>) -> Self {
        Self { server, ignored_proxy, ..self }
    }

    /// The server, and what names it; for people.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// For how long its credentials are good, counted from its making; none if nothing is known of an end.
    #[must_use]
    pub const fn lifetime(&self) -> Option<Duration> {
        self.lifetime
    }

    /// Whether this is a clone of `other`.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.make, &other.make)
    }

    /// What is to be said of a proxy that the environment asks for and that is not used.
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
    use std::process;

    use http::Request;

    use crate::api::{Cluster, exchange, stub};

    use super::*;

    const PLUGIN: &str =
        r#"echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"open-sesame"}}'"#;

    #[tokio::test]
    async fn a_credential_plugin_gives_its_token() {
        let mut stub = stub::Stub::start([stub::json(200, "{}")]).await;
        let kubeconfig = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": stub.url}}],
            "users": [{"name": "u", "user": {"exec": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": "/bin/sh",
                "args": ["-c", PLUGIN],
                "interactiveMode": "IfAvailable",
            }}}],
        });
        let path = std::env::temp_dir().join(format!("tenure-dial-{}", process::id()));
        std::fs::write(&path, kubeconfig.to_string()).unwrap();

        let cluster = Cluster::from_kubeconfig(std::slice::from_ref(&path), false).unwrap();
        let client = cluster.dialer(Duration::from_secs(5)).unwrap().client();
        exchange(&client, Request::get("/x").body(Body::empty()).unwrap(), Duration::from_secs(20)).await.unwrap();

        let _ = std::fs::remove_file(&path);
        let head = stub.seen.recv().await.unwrap().head;
        assert!(head.contains("authorization: bearer open-sesame\r\n"), "{head}");
    }
}
