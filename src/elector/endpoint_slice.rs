//! Publishes the leader's address: carries out what [`Publisher`] decides, on a task of its own.
//!
//! Owns the requests for the EndpointSlice, and how the endpoint of this pod is written. The loop shows it each change of the
//! status, and never waits for it.

use std::{future::pending, mem, net::IpAddr, time::Duration};

use k8s_openapi::api::{
    core::v1::ObjectReference,
    discovery::v1::{Endpoint, EndpointConditions},
};
use serde_json::{Map, Value};
use tokio::{sync::watch, task::JoinHandle, time::sleep};

use crate::{
    api::{Client, Place, Request, Verb},
    clock,
    config::Config,
    election::publication::{Endpoints, PAUSE, Publisher, SliceAction, SliceState, Wanted},
    link::{InitialState, Term},
    telemetry::status::{Change, Status},
    words::bounded,
};

/// There is no address to publish.
#[derive(Debug, thiserror::Error)]
#[error("service.endpointSlice: {0}: set POD_IPS, in the container's env, from the fieldRef {{ fieldPath: status.podIPs }}")]
pub(super) struct NoAddress(String);

/// The loop's handle on the task.
pub(super) struct Traffic {
    wanted: watch::Sender<Option<Wanted>>,
    withdrawn: watch::Receiver<Option<Term>>,
    task: JoinHandle<()>,
}

/// Makes the endpoint of this pod; none without `service.endpointSlice`. `variable` reads the environment.
pub(super) fn endpoints(config: &Config, variable: impl Fn(&str) -> Option<String>) -> Result<Option<Endpoints>, NoAddress> {
    if config.service.endpoint_slice.is_none() {
        return Ok(None);
    }
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    let listed = variable("POD_IPS").or_else(|| variable("POD_IP"));
    let listed = listed.ok_or_else(|| NoAddress("neither POD_IPS nor POD_IP tells the address of this pod".into()))?;
    let (kind, namespace) = (Some("Pod".into()), Some(config.lease.namespace.clone()));
    let pod = ObjectReference { kind, namespace, name: variable("POD_NAME"), uid: variable("POD_UID"), ..Default::default() };
    let mut of = Map::new();
    for text in listed.split(',').map(str::trim) {
        let address: IpAddr = text.parse().map_err(|_| NoAddress(format!("{text:?} is not an address")))?;
        let endpoint = Endpoint {
            addresses: vec![address.to_string()],
            conditions: Some(EndpointConditions { ready: Some(true), serving: Some(true), terminating: Some(false) }),
            node_name: variable("NODE_NAME"),
            target_ref: pod.name.is_some().then(|| pod.clone()),
            ..Endpoint::default()
        };
        of.insert(if address.is_ipv4() { "IPv4" } else { "IPv6" }.into(), written(endpoint));
    }
    Ok(Some(Endpoints { of, ports: config.service.ports.iter().map(written).collect() }))
}

fn written(part: impl serde::Serialize) -> Value {
    serde_json::to_value(part).unwrap_or_default()
}

impl Traffic {
    pub(super) fn start(initial: &InitialState, status: &Status, endpoints: Endpoints, client: Client) -> Self {
        let config = &initial.config;
        let (wanted, seen) = watch::channel(status.wanted());
        let name = config.service.endpoint_slice.clone().unwrap_or_default();
        let place = Place::endpoint_slice(&config.lease.namespace, name);
        let publisher = Publisher::new(endpoints, config.timing());
        let (done, withdrawn) = watch::channel(None);
        let task = tokio::spawn(publish(publisher, client, place, seen, done));
        Self { wanted, withdrawn, task }
    }

    /// Waits for the next term whose end the slice shows, or cannot be made to show now.
    pub(super) async fn withdrawn(&mut self) -> Term {
        loop {
            if self.withdrawn.changed().await.is_err() {
                return pending().await;
            }
            if let Some(term) = *self.withdrawn.borrow_and_update() {
                return term;
            }
        }
    }

    /// Ends the task: a request that is under way is finished, and a withdrawal that has failed once is tried once more.
    pub(super) fn finish(self) -> JoinHandle<()> {
        self.task
    }

    pub(super) fn changed(&mut self, change: &Change<'_>) {
        let wanted = change.after.wanted();
        self.wanted.send_if_modified(|last| mem::replace(last, wanted.clone()) != wanted);
    }
}

/// Publishes until the handle is dropped. `first` is the slice of the first slot.
async fn publish(
    mut publisher: Publisher,
    client: Client,
    first: Place,
    mut wanted: watch::Receiver<Option<Wanted>>,
    done: watch::Sender<Option<Term>>,
) {
    loop {
        let Some(now) = wanted.borrow_and_update().clone() else {
            if wanted.changed().await.is_err() {
                return;
            }
            continue;
        };
        let place = Place { name: now.slot.of(&first.name), ..first.clone() };
        let path = place.object();
        let step = publisher.step(&now, clock::boot());
        match publisher.take_news() {
            Some(SliceState::Published) => tracing::info!(path, "the EndpointSlice has this replica's address"),
            Some(SliceState::Withdrawn) => tracing::info!(path, "the EndpointSlice has no address"),
            Some(SliceState::Failed(why)) => {
                tracing::warn!(path, "the EndpointSlice is not as it should be, and is tried again: {}", bounded(why));
            }
            None => {}
        }
        let verb = match step {
            SliceAction::Get => Verb::Get,
            SliceAction::Replace(slice) => Verb::Replace(slice.into()),
            SliceAction::Wait(until) => {
                let pause = until.since(clock::boot());
                if pause > PAUSE {
                    let over = Some(now.term).filter(|_| now.ends);
                    done.send_if_modified(|last| mem::replace(last, over) != over);
                }
                tokio::select! {
                    changed = wanted.changed() => match changed {
                        Ok(()) => {}
                        // A withdrawal that met a conflict, or failed, is written once more.
                        Err(_) if pause <= PAUSE => sleep(pause).await,
                        Err(_) => return,
                    },
                    () = sleep(pause.min(Duration::from_secs(3600))) => {}
                }
                continue;
            }
        };
        if let Some(answered) = client.send_before(now.until, &Request::of(place, verb)).await {
            publisher.answered(answered.answer, clock::boot());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn published(variables: &[(&str, &str)]) -> Result<Map<String, Value>, String> {
        let mut config = Config::default();
        config.service.endpoint_slice = Some("leader".into());
        config.lease.namespace = "shop".into();
        let variable = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        endpoints(&config, variable).map(|endpoints| endpoints.unwrap().of).map_err(|error| error.to_string())
    }

    #[test]
    fn a_pod_has_an_address_of_each_family_at_most_and_one_at_least() {
        let pod =
            [("POD_IPS", "10.0.0.1, fd00::1"), ("POD_IP", "10.0.0.9"), ("NODE_NAME", "n"), ("POD_NAME", "p"), ("POD_UID", "")];
        let of = published(&pod).unwrap();
        let conditions = json!({ "ready": true, "serving": true, "terminating": false });
        let target = json!({ "kind": "Pod", "namespace": "shop", "name": "p" });
        let endpoint =
            |address| json!({ "addresses": [address], "conditions": conditions, "nodeName": "n", "targetRef": target });
        assert_eq!(Value::from(of), json!({ "IPv4": endpoint("10.0.0.1"), "IPv6": endpoint("fd00::1") }));
        let bare = published(&[("POD_IPS", ""), ("POD_IP", "10.0.0.9")]).unwrap();
        assert_eq!(Value::from(bare), json!({ "IPv4": { "addresses": ["10.0.0.9"], "conditions": conditions } }));
        for (variables, words) in [(&[][..], "neither"), (&[("POD_IP", "pod-1")], "\"pod-1\" is not an address")] {
            let why = published(variables).unwrap_err();
            assert!(why.contains(words) && why.contains("fieldPath: status.podIPs"), "{why}");
        }
        assert!(endpoints(&Config::default(), |_| None).unwrap().is_none());
    }
}
