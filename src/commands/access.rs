//! How a command reaches the API server: single requests, each with a deadline, and a watch.

use std::{env, time::Duration};

use form_urlencoded::Serializer;
use futures_core::Stream;
use http::{Request, StatusCode, header::CONTENT_TYPE};
use kube::{client::Body, core::WatchEvent};
use serde_json::Value;

use crate::{
    api::{
        self, AccessError, CallError, Cluster, ExchangeError, Reply,
        key::{self, LeaseKey},
    },
    cli::ConfigFlags,
    config::Config,
    console::complain,
    election::record::LeaseRecord,
    environment::{LEASE, NAMESPACE},
    exit,
    loading::{Loaded, Purpose},
    words::one_line,
};

/// For one request, and for credentials: people wait. A webhook may take as long.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// Leases per page, because a reply's length is bounded; kubectl asks for as many.
const PAGE: &str = "100";
/// A dead watch goes unnoticed for this long.
pub(super) const WATCH: Duration = Duration::from_secs(60);

/// Which Leases of a namespace are meant.
#[derive(Clone, Copy, Debug)]
pub(super) enum Which<'a> {
    /// Those with these labels.
    Selected(&'a str),
    /// The one of this name. A right that is narrowed to its name suffices.
    Named(&'a str),
}

impl Which<'_> {
    fn parameter(self) -> (&'static str, String) {
        match self {
            Self::Selected(selector) => ("labelSelector", selector.into()),
            Self::Named(name) => ("fieldSelector", format!("metadata.name={name}")),
        }
    }
}

/// An event of a watch.
pub(super) type Event = kube::Result<WatchEvent<Value>>;

/// Has a command that people wait for look at Leases, with the configuration and the namespace; returns the exit code.
pub(super) fn look(flags: &ConfigFlags, needs_name: bool, ask: impl AsyncFnOnce(&Config, &Access, &str) -> u8) -> u8 {
    let Loaded { config, notes, .. } = match super::load(flags, &[], Purpose::Look) {
        Ok(loaded) => loaded,
        Err(code) => return code,
    };
    if needs_name && config.lease.name.is_empty() {
        complain("which Lease? Name it (a status may also select some by their labels with -l)");
        return exit::INVALID;
    }
    super::warn(&notes);
    let looked = super::block_on(async {
        let access = Access::open(TIMEOUT, TIMEOUT).await?;
        let namespace = access.namespace(&config.lease.namespace)?;
        Ok(ask(&config, &access, namespace).await)
    });
    let looked = looked.unwrap_or_else(|error| {
        complain(&format!("the API server cannot be asked: {error}"));
        Ok(exit::INTERNAL)
    });
    looked.unwrap_or_else(|refused: AccessError| {
        complain(&one_line(&refused));
        refused.exit_code()
    })
}

/// For a command about the Lease `name`. Inside a workload it is by default the one under which that runs, named as it is: that of
/// one slot.
pub(super) fn on_lease(name: Option<String>, flags: &ConfigFlags) -> ConfigFlags {
    let mut flags = ConfigFlags { lease_argument: name, ..flags.clone() };
    let is_named = flags.lease_argument.is_some() || flags.lease.is_some() || flags.slots.is_some();
    if let (false, Ok(name), Ok(namespace)) = (is_named, env::var(LEASE), env::var(NAMESPACE)) {
        flags.lease_argument = Some(name);
        flags.namespace.get_or_insert(namespace);
        flags.set.push("lease.prefix=".into());
    }
    flags
}

/// A connection to a cluster for one command.
pub(super) struct Access {
    cluster: Cluster,
    client: kube::Client,
    timeout: Duration,
}

impl Access {
    /// Finds the cluster and gets credentials; contacts nothing but a credential plugin. `timeout` is for each request, `patience`
    /// for a plugin that prompts nobody.
    pub(super) async fn open(timeout: Duration, patience: Duration) -> Result<Self, AccessError> {
        let cluster = Cluster::discover()?;
        let client = cluster.dialer(timeout, patience).await?.client();
        Ok(Self { cluster, client, timeout })
    }

    /// Says why there is no answer, and returns the exit code. The selector is the only part of these requests that can be invalid.
    pub(super) fn complain(&self, error: &CallError, has_selector: bool) -> u8 {
        if has_selector && error.status() == Some(StatusCode::BAD_REQUEST) {
            complain(&format!("--selector: {}", one_line(error)));
            return exit::INVALID;
        }
        complain(&format!("{} ({}): {}", self.cluster.url(), self.cluster.source(), one_line(error)));
        error.exit_code()
    }

    /// The cluster.
    pub(super) const fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// `wanted`, or the discovered namespace if that is empty.
    pub(super) fn namespace<'a>(&'a self, wanted: &'a str) -> Result<&'a str, AccessError> {
        if wanted.is_empty() { self.cluster.namespace() } else { Ok(wanted) }
    }

    /// Reads a Lease. `None` if there is no Lease of that name.
    pub(super) async fn lease(&self, namespace: &str, name: &str) -> Result<Option<Value>, CallError> {
        let key = LeaseKey { namespace: namespace.into(), name: name.into() };
        match self.call(Request::get(key.object()), Body::empty()).await {
            Err(CallError::Refused(reply)) if reply.is_absence_of("leases", name) => Ok(None),
            answer => {
                let lease = answer?;
                (key.names(&lease) && is_stored(&lease)).then_some(Some(lease)).ok_or(CallError::Another("Lease of this name"))
            }
        }
    }

    /// Returns true if the server says that there is no such namespace. A reply about a Lease does not tell that. Most users may
    /// not ask.
    pub(super) async fn lacks_namespace(&self, namespace: &str) -> bool {
        let answer = self.call(Request::get(format!("/api/v1/namespaces/{namespace}")), Body::empty()).await;
        matches!(answer, Err(CallError::Refused(reply)) if reply.is_absence_of("namespaces", namespace))
    }

    /// All of these Leases of a namespace, and the version as of which they are all.
    pub(super) async fn leases(&self, namespace: &str, which: Which<'_>) -> Result<(Vec<Value>, String), CallError> {
        let is_one = |object: &Value| key::is_lease_of(namespace, object) && is_stored(object);
        let (key, selector) = which.parameter();
        let (mut leases, mut next) = (Vec::new(), String::new());
        loop {
            let query = query(&[("limit", PAGE), ("continue", &next), (key, &selector)]);
            let mut page = self.call(Request::get(format!("{}?{query}", key::collection(namespace))), Body::empty()).await?;
            match page.get_mut("items").map(Value::take) {
                Some(Value::Array(items)) if items.iter().all(is_one) => leases.extend(items),
                Some(_) | None => return Err(CallError::Another("list of Leases")),
            }
            let metadata = |name| page.pointer(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            next = metadata("/metadata/continue");
            if next.is_empty() {
                return Ok((leases, metadata("/metadata/resourceVersion")));
            }
        }
    }

    /// Watches the Leases after `version`. A live server ends the watch after [`WATCH`]; it has no deadline of its own.
    pub(super) async fn watch(
        &self,
        namespace: &str,
        which: Which<'_>,
        version: &str,
    ) -> kube::Result<impl Stream<Item = Event> + use<>> {
        let (key, selector) = which.parameter();
        let query = query(&[("resourceVersion", version), (key, &selector)]);
        let uri = format!("{}?watch=true&timeoutSeconds={}&{query}", key::collection(namespace), WATCH.as_secs());
        self.client.request_events(Request::get(uri).body(Vec::new()).map_err(kube::Error::HttpError)?).await
    }

    /// Deletes a Lease as it was read; if anything has changed since then, the server refuses.
    pub(super) async fn delete(&self, namespace: &str, name: &str, read: &LeaseRecord) -> Result<(), CallError> {
        let key = LeaseKey { namespace: namespace.into(), name: name.into() };
        let options = key::delete_options(read.uid(), read.resource_version());
        let request = Request::delete(key.object()).header(CONTENT_TYPE, "application/json");
        self.call(request, Body::from(options.into_bytes())).await.map(drop)
    }

    /// Replaces a Lease as it was read; if anything has changed since then, the server refuses.
    pub(super) async fn replace(&self, namespace: &str, name: &str, lease: &Value) -> Result<(), CallError> {
        let key = LeaseKey { namespace: namespace.into(), name: name.into() };
        let request = Request::put(key.object()).header(CONTENT_TYPE, "application/json");
        self.call(request, Body::from(lease.to_string().into_bytes())).await.map(drop)
    }

    /// Creates an object that is answered but not stored, such as an access review.
    pub(super) async fn review(&self, path: &str, body: &Value) -> Result<Value, CallError> {
        let request = Request::post(path).header(CONTENT_TYPE, "application/json");
        self.call(request, Body::from(body.to_string().into_bytes())).await
    }

    /// Reads any object.
    pub(super) async fn get(&self, path: &str) -> Result<Value, CallError> {
        self.call(Request::get(path), Body::empty()).await
    }

    /// Sends any request once, and returns the reply whatever its status.
    pub(super) async fn exchange(&self, request: http::request::Builder, body: Vec<u8>) -> Result<Reply, ExchangeError> {
        let request = request.header(http::header::ACCEPT, "application/json").body(Body::from(body));
        let request = request.map_err(|error| ExchangeError::Transport(error.into()))?;
        api::exchange(&self.client, request, self.timeout).await
    }

    async fn call(&self, request: http::request::Builder, body: Body) -> Result<Value, CallError> {
        let request = request.header(http::header::ACCEPT, "application/json").body(body);
        let request = request.map_err(|error| CallError::Exchange(ExchangeError::Transport(error.into())))?;
        api::call(&self.client, request, self.timeout).await
    }
}

/// Every object in the API server has a uid and a version.
fn is_stored(object: &Value) -> bool {
    LeaseRecord::read(object.clone().into()).is_some()
}

fn query(parameters: &[(&str, &str)]) -> String {
    Serializer::new(String::new()).extend_pairs(parameters).finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_survives_a_query() {
        let query = query(&[("continue", "b+c"), ("labelSelector", "a.b/c in (x, y),!z=é")]);

        assert_eq!(query, "continue=b%2Bc&labelSelector=a.b%2Fc+in+%28x%2C+y%29%2C%21z%3D%C3%A9");
    }
}
