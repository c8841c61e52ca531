//! How a command reaches the API server: single requests, each with a deadline.

use std::time::Duration;

use form_urlencoded::Serializer;
use http::Request;
use kube::client::Body;
use serde_json::Value;

use crate::{
    api::{
        self, AccessError, CallError, Cluster,
        key::{self, LeaseKey},
    },
    election::record::LeaseRecord,
};

/// Leases per page, because a reply's length is bounded; kubectl asks for as many.
const PAGE: usize = 500;

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

    /// The cluster.
    pub(super) const fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// `wanted`, or the discovered namespace if that is empty.
    pub(super) fn namespace<'a>(&'a self, wanted: &'a str) -> Result<&'a str, AccessError> {
        if wanted.is_empty() { self.cluster.namespace() } else { Ok(wanted) }
    }

    /// One Lease; `None` if there is no Lease of that name.
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

    /// Whether the server says that there is no such namespace, which a reply about a Lease does not tell. Most users may not
    /// ask.
    pub(super) async fn lacks_namespace(&self, namespace: &str) -> bool {
        let answer = self.call(Request::get(format!("/api/v1/namespaces/{namespace}")), Body::empty()).await;
        matches!(answer, Err(CallError::Refused(reply)) if reply.is_absence_of("namespaces", namespace))
    }

    /// Every Lease of a namespace that `selector` matches.
    pub(super) async fn leases(&self, namespace: &str, selector: &str) -> Result<Vec<Value>, CallError> {
        let is_one = |object: &Value| key::is_lease_of(namespace, object) && is_stored(object);
        let (mut leases, mut next) = (Vec::new(), String::new());
        loop {
            let query = page_query(selector, &next);
            let mut page = self.call(Request::get(format!("{}?{query}", key::collection(namespace))), Body::empty()).await?;
            match page.get_mut("items").map(Value::take) {
                Some(Value::Array(items)) if items.iter().all(is_one) => leases.extend(items),
                Some(_) | None => return Err(CallError::Another("list of Leases")),
            }
            next = page.pointer("/metadata/continue").and_then(Value::as_str).unwrap_or_default().to_owned();
            if next.is_empty() {
                return Ok(leases);
            }
        }
    }

    /// Creates an object that is answered but not stored, such as an access review.
    pub(super) async fn review(&self, path: &str, body: &Value) -> Result<Value, CallError> {
        let request = Request::post(path).header(http::header::CONTENT_TYPE, "application/json");
        self.call(request, Body::from(body.to_string().into_bytes())).await
    }

    async fn call(&self, request: http::request::Builder, body: Body) -> Result<Value, CallError> {
        let request = request.header(http::header::ACCEPT, "application/json").body(body);
        let request = request.map_err(|error| CallError::Exchange(api::ExchangeError::Transport(error.into())))?;
        api::call(&self.client, request, self.timeout).await
    }
}

/// What the API server stores has a uid and a version.
fn is_stored(object: &Value) -> bool {
    LeaseRecord::read(object.clone().into()).is_some()
}

/// The query for a page of the Leases that `selector` matches; `next` is the previous page's continue token.
fn page_query(selector: &str, next: &str) -> String {
    let mut query = Serializer::new(String::new());
    query.append_pair("limit", &PAGE.to_string()).append_pair("continue", next).append_pair("labelSelector", selector);
    query.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_survives_a_query() {
        let query = page_query("a.b/c in (x, y),!z=é", "b+c");

        assert_eq!(query, "limit=500&continue=b%2Bc&labelSelector=a.b%2Fc+in+%28x%2C+y%29%2C%21z%3D%C3%A9");
    }
}
