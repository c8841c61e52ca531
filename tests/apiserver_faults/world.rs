//! A server, its clients, and the requests that they make.

use std::{sync::Arc, time::Duration};

use http::{Method, Request, header};
use http_body_util::BodyExt as _;
use kube::{
    Client as Kube, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tenure::apiserver::{Client, Options, Place, Rules, Server};
use tokio::time::timeout;

pub(crate) const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
pub(crate) const A: Place<'static> = Place { namespace: "default", name: "a" };
/// Many times as long as an answer takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Long enough for an answer to have come.
pub(crate) const SILENCE: Duration = Duration::from_secs(1);

/// The test's own server.
pub(crate) struct World {
    pub(crate) server: Arc<Server>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(Rules::default())
    }

    pub(crate) fn with(rules: Rules) -> Self {
        let server = Server::start(&Options { rules, ..Options::default() }).expect("a server");
        Self { server: Arc::new(server) }
    }

    pub(crate) fn client(&self, name: &str) -> Client {
        self.server.client(name).expect("a client")
    }

    pub(crate) async fn hand(&self, name: &str) -> Hand {
        Hand::of(&self.client(name)).await
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.server.store(|store| store.get(Place { name, ..A }).is_ok())
    }

    /// Waits until a request has created it; this thread's connections continue meanwhile.
    pub(crate) async fn wait_for(&self, name: &'static str) {
        let server = Arc::clone(&self.server);
        let there = move || server.store(|store| store.get(Place { name, ..A }).is_ok()).then_some(());
        let server = Arc::clone(&self.server);
        let waited = tokio::task::spawn_blocking(move || server.wait(PATIENCE, |_| there()));
        waited.await.expect("no panic inside").expect("the Lease in time");
    }
}

/// A client's access to the server.
pub(crate) struct Hand(pub(crate) Kube);

impl Hand {
    pub(crate) async fn of(client: &Client) -> Self {
        Self::with(&client.kubeconfig()).await
    }

    pub(crate) async fn with(kubeconfig: &str) -> Self {
        let kubeconfig = Kubeconfig::from_yaml(kubeconfig).expect("a kubeconfig");
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let mut config = config.expect("a configuration");
        config.default_retry = false;
        Self(Kube::try_from(config).expect("a client"))
    }

    pub(crate) async fn call(&self, method: Method, path: &str, body: &Value) -> Result<(u16, Value), kube::Error> {
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string().into_bytes()) };
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, "application/json");
        let answer = self.0.send(request.body(body).expect("a request")).await?;
        let code = answer.status().as_u16();
        let bytes = answer.into_body().collect().await?.to_bytes();
        Ok((code, serde_json::from_slice(&bytes).unwrap_or_default()))
    }

    pub(crate) async fn get(&self, name: &str) -> Result<(u16, Value), kube::Error> {
        self.call(Method::GET, &format!("{LEASES}/{name}"), &Value::Null).await
    }

    pub(crate) async fn post(&self, name: &str) -> Result<(u16, Value), kube::Error> {
        self.call(Method::POST, LEASES, &lease(name)).await
    }

    pub(crate) async fn watch(&self, query: &str) -> Watch {
        let request = Request::get(format!("{LEASES}?watch=true&{query}")).body(Body::empty()).expect("a request");
        let answer = timeout(PATIENCE, self.0.send(request)).await.expect("in time").expect("a watch");
        Watch { body: answer.into_body(), read: Vec::new() }
    }
}

/// A running watch.
pub(crate) struct Watch {
    body: Body,
    read: Vec<u8>,
}

impl Watch {
    /// None at the end, however the watch ends.
    pub(crate) async fn next(&mut self) -> Option<(String, Value)> {
        let event = async {
            loop {
                if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = self.read.drain(..=end).collect();
                    let event: Value = serde_json::from_slice(&line).expect("an event");
                    return Some((event["type"].as_str().expect("a type").to_owned(), event["object"].clone()));
                }
                if let Ok(data) = self.body.frame().await?.ok()?.into_data() {
                    self.read.extend_from_slice(&data);
                }
            }
        };
        timeout(PATIENCE, event).await.expect("an event or the end in time")
    }
}

pub(crate) fn lease(name: &str) -> Value {
    json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": name }, "spec": {} })
}
