//! Requests for other objects than the Lease, on a connection of their own. Nothing waits for them.

use std::time::Duration;

use http::{
    Method, Request,
    header::{ACCEPT, CONTENT_TYPE},
};
use kube::client::Body;
use serde_json::Value;

use super::{access::Access, lease::JSON};
use crate::{
    api::{CallError, call},
    clock,
    config::LeaseConfig,
    request::RequestError,
    time::Instant,
    words::one_line,
};

/// A connection that is kept until a request on it fails.
pub(super) struct BestEffort {
    access: Access,
    timeout: Duration,
    client: Option<kube::Client>,
}

impl BestEffort {
    pub(super) const fn new(access: Access, lease: &LeaseConfig) -> Self {
        Self { access, timeout: lease.attempt_timeout, client: None }
    }

    /// Sends one request and returns the object of its reply, or the failure with its Retry-After. `None` if `until` had passed before the request went out.
    pub(super) async fn call(
        &mut self,
        (method, path): (Method, &str),
        body: Option<Value>,
        until: Instant,
    ) -> Option<Result<Value, (RequestError, Option<Duration>)>> {
        let client = match &self.client {
            Some(client) => client.clone(),
            // Nobody leads before there are credentials, so they are not waited for here.
            None => match self.access.dialer_of_watch().await {
                Ok(dialer) => self.client.insert(dialer.client()).clone(),
                Err(error) => return Some(Err((one_line(&error).into(), None))),
            },
        };
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = Request::builder().method(method).uri(path).header(ACCEPT, JSON).header(CONTENT_TYPE, JSON);
        let request = request.body(Body::from(body)).ok()?;
        // The process may have been stopped meanwhile.
        if clock::boot() >= until {
            return None;
        }
        let answer = call(&client, request, self.timeout).await.map_err(|error| match error {
            CallError::Refused(reply) => {
                (RequestError { status: Some(reply.status.as_u16()), words: reply.message() }, reply.retry_after)
            }
            CallError::Exchange(_) | CallError::NotJson(_) | CallError::Another(_) => (one_line(&error).into(), None),
        });
        // Another server may give another answer.
        self.client.take_if(|_| answer.is_err());
        Some(answer)
    }
}
