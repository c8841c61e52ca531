//! Publishes the leader's address: carries out what [`Publisher`] decides, on a task and a connection of its own.
//!
//! Owns the requests for the EndpointSlice, and what of the pod it publishes. The loop tells it what it tells init and hears from
//! it, and never waits for it.

use std::{mem, net::IpAddr, time::Duration};

use http::header::{ACCEPT, CONTENT_TYPE};
use k8s_openapi::api::{
    core::v1::ObjectReference,
    discovery::v1::{Endpoint, EndpointConditions, EndpointPort},
};
use kube::client::Body;
use serde_json::Value;
use tokio::{sync::watch, task::JoinHandle, time::timeout};

use super::{access::Access, lease::JSON};
use crate::{
    api::{CallError, call},
    clock,
    config::{Config, ServicePort},
    election::{
        RequestError,
        traffic::{Endpoints, Publisher, Standing, State, Step, Wanted},
    },
    link::{InitialState, ToElector, ToInit},
    time::Instant,
    words::{bounded, one_line},
};

/// Where a pod's addresses come from: the downward API.
const POD_IPS: &str = "POD_IPS";
const POD_IP: &str = "POD_IP";

/// There is no address to publish.
#[derive(Debug, thiserror::Error)]
#[error(
    "service.endpointSlice: {0}; set POD_IPS from the downward API: \
     {{ name: POD_IPS, valueFrom: {{ fieldRef: {{ fieldPath: status.podIPs }} }} }}"
)]
pub(super) struct NoAddress(String);

/// The loop's end of it.
pub(super) struct Traffic {
    standing: Standing,
    wanted: watch::Sender<Option<Wanted>>,
    task: JoinHandle<()>,
}

/// The task's.
struct Edge {
    access: Access,
    client: Option<kube::Client>,
    namespace: String,
    slice: String,
    timeout: Duration,
    publisher: Publisher,
}

/// What of this pod is published; none: nothing is to be. `variable` reads the environment.
pub(super) fn endpoints(config: &Config, variable: impl Fn(&str) -> Option<String>) -> Result<Option<Endpoints>, NoAddress> {
    if config.service.endpoint_slice.is_none() {
        return Ok(None);
    }
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    let listed = variable(POD_IPS).or_else(|| variable(POD_IP));
    let listed = listed.ok_or_else(|| NoAddress(format!("neither {POD_IPS} nor {POD_IP} tells the address of this pod")))?;
    let pod = variable("POD_NAME").map(|name| ObjectReference {
        kind: Some("Pod".into()),
        namespace: Some(config.lease.namespace.clone()),
        name: Some(name),
        uid: variable("POD_UID"),
        ..ObjectReference::default()
    });
    let mut of = serde_json::Map::new();
    for text in listed.split(',').map(str::trim) {
        let address: IpAddr = text.parse().map_err(|_| NoAddress(format!("{text:?} is not an address")))?;
        let endpoint = Endpoint {
            addresses: vec![address.to_string()],
            conditions: Some(EndpointConditions { ready: Some(true), serving: Some(true), terminating: Some(false) }),
            node_name: variable("NODE_NAME"),
            target_ref: pod.clone(),
            ..Endpoint::default()
        };
        of.insert(if address.is_ipv4() { "IPv4" } else { "IPv6" }.into(), written(endpoint));
    }
    let port = |port: &ServicePort| EndpointPort {
        name: Some(port.name.clone()),
        port: Some(port.port.into()),
        protocol: Some(port.protocol.as_str().into()),
        ..EndpointPort::default()
    };
    Ok(Some(Endpoints { of, ports: config.service.ports.iter().map(|of| written(port(of))).collect() }))
}

fn written(part: impl serde::Serialize) -> Value {
    serde_json::to_value(part).unwrap_or_default()
}

impl Traffic {
    pub(super) fn start(initial: &InitialState, endpoints: Endpoints, access: Access) -> Self {
        let lease = &initial.config.lease;
        let standing = Standing::new(initial);
        let (wanted, seen) = watch::channel(standing.wanted());
        let edge = Edge {
            access,
            client: None,
            namespace: lease.namespace.clone(),
            slice: initial.config.service.endpoint_slice.clone().unwrap_or_default(),
            timeout: lease.attempt_timeout,
            publisher: Publisher::new(endpoints, initial.config.timing()),
        };
        Self { standing, wanted, task: tokio::spawn(edge.run(seen)) }
    }

    pub(super) fn told(&mut self, message: &ToElector) {
        self.standing.told(message);
        self.update();
    }

    pub(super) fn telling(&mut self, message: &ToInit) {
        self.standing.telling(message);
        self.update();
    }

    fn update(&self) {
        let wanted = self.standing.wanted();
        self.wanted.send_if_modified(|last| mem::replace(last, wanted.clone()) != wanted);
    }

    /// Nothing further is wanted: what is under way is finished, and what fails is not tried again.
    pub(super) fn finish(self) -> JoinHandle<()> {
        self.task
    }
}

impl Edge {
    async fn run(mut self, mut wanted: watch::Receiver<Option<Wanted>>) {
        loop {
            let now = wanted.borrow_and_update().clone();
            let step = now.as_ref().map_or(Step::Wait(Instant::NEVER), |wanted| self.publisher.step(wanted, clock::boot()));
            self.tell(now.as_ref());
            match (step, now) {
                (Step::Get, Some(wanted)) => self.send(&wanted, None).await,
                (Step::Replace(slice), Some(wanted)) => self.send(&wanted, Some(slice)).await,
                (Step::Get | Step::Replace(_), None) => {}
                (Step::Wait(until), _) => {
                    let wait = until.since(clock::boot()).min(Duration::from_secs(3600));
                    tokio::select! {
                        changed = wanted.changed() => if changed.is_err() { return },
                        () = tokio::time::sleep(wait) => {}
                    }
                }
            }
        }
    }

    /// Sends one request, unless its time is over before it goes out.
    async fn send(&mut self, wanted: &Wanted, slice: Option<Value>) {
        let answer = timeout(self.timeout, self.attempt(wanted, slice)).await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(_) => Some(Err(format!("no answer from the API server within {:?}", self.timeout).into())),
        };
        let Some(answer) = answer else { return };
        // Another server may answer otherwise.
        if answer.as_ref().is_err_and(|error| error.status != Some(409)) {
            self.client = None;
        }
        self.publisher.answered(answer, clock::boot());
    }

    async fn attempt(&mut self, wanted: &Wanted, slice: Option<Value>) -> Option<Result<Value, RequestError>> {
        let client = match &self.client {
            Some(client) => client.clone(),
            None => match self.access.dialer_of_watch().await {
                Ok(dialer) => self.client.insert(dialer.client()).clone(),
                Err(error) => return Some(Err(one_line(&error).into())),
            },
        };
        let path =
            format!("/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices/{}", self.namespace, wanted.slot.of(&self.slice));
        let request = http::Request::builder().uri(path).header(ACCEPT, JSON);
        let request = match slice {
            None => request.body(Body::empty()),
            Some(slice) => request.method("PUT").header(CONTENT_TYPE, JSON).body(Body::from(slice.to_string().into_bytes())),
        };
        let request = match request {
            Ok(request) => request,
            Err(error) => return Some(Err(one_line(&error).into())),
        };
        // Time has passed: this process may have been stopped.
        if clock::boot() >= wanted.until {
            return None;
        }
        Some(call(&client, request, self.timeout).await.map_err(|error| match error {
            CallError::Refused(reply) => RequestError { status: Some(reply.status.as_u16()), words: reply.message() },
            CallError::Exchange(_) | CallError::NotJson(_) | CallError::Another(_) => one_line(&error).into(),
        }))
    }

    fn tell(&mut self, wanted: Option<&Wanted>) {
        let (Some(state), Some(wanted)) = (self.publisher.news(), wanted) else { return };
        let slice = wanted.slot.of(&self.slice);
        match state {
            State::Published => tracing::info!(slice, "the EndpointSlice has this replica's address"),
            State::Withdrawn => tracing::info!(slice, "the EndpointSlice has no address"),
            State::Failed(why) => {
                tracing::warn!(slice, "the EndpointSlice is not as it should be, and is tried again: {}", bounded(why));
            }
        }
    }
}
