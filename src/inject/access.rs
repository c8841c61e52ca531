//! What the pods of a Lease need beside themselves: the Lease, the EndpointSlice, and the rights to what they write.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::names::BEFORE;
use crate::{api::review::Right, election::writes::SLOTS};

const RBAC: &str = "rbac.authorization.k8s.io";

/// What the configuration of a wrapped container needs.
#[derive(Debug)]
pub(crate) struct Needs {
    /// The namespace of the Lease; empty: that of the pod.
    pub(crate) namespace: String,
    pub(crate) lease: String,
    pub(crate) rights: Vec<Right>,
    /// A variable that says to what it needs rights, and that only the pod knows.
    pub(crate) unknown: Option<Value>,
    /// Seconds for the stop of the pod.
    pub(crate) grace: u64,
    /// How often its liveness probe may fail.
    pub(crate) failures: u64,
}

/// Group, resource, and whether the rule is for all objects of it.
type Subject = (String, String, bool);

/// What the pods of a Lease need.
#[derive(Debug, Default)]
pub(super) struct Access {
    /// Each with its namespace, if it is not that of the Lease.
    pub(super) accounts: BTreeSet<(String, Option<String>)>,
    /// The Service whose EndpointSlice the leader writes, and the family of its addresses.
    pub(super) service: Option<(String, String)>,
    /// Names and verbs.
    rules: BTreeMap<Subject, (BTreeSet<String>, BTreeSet<&'static str>)>,
}

impl Access {
    pub(super) fn grant(&mut self, rights: &[Right]) {
        for Right { place, verb } in rights {
            let subject = (place.group().to_owned(), place.resource.clone(), place.name.is_empty());
            let (names, verbs) = self.rules.entry(subject).or_default();
            names.extend(Some(place.name.clone()).filter(|name| !name.is_empty()));
            verbs.insert(verb);
        }
    }

    /// Returns the Leases, the EndpointSlices, and the rights of the accounts. Without a namespace it is that of the context.
    pub(super) fn objects(&self, namespace: Option<&str>, lease: &str) -> Vec<Value> {
        let (role, version) = (format!("tenure-{lease}"), format!("{RBAC}/v1"));
        let names = |of: &str| {
            let rules = self.rules.iter().filter(move |((_, resource, _), _)| resource == of);
            rules.flat_map(|(_, (names, _))| names).collect::<Vec<_>>()
        };
        let leases = names("leases");
        let mut objects = Vec::new();
        for name in &leases {
            let mut metadata = json!({ "name": name });
            if leases.len() > 1 {
                metadata["labels"] = json!({ SLOTS: lease });
            }
            objects.push(json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata }));
        }
        for (name, (service, family)) in names("endpointslices").into_iter().flat_map(|name| Some((name, self.service.as_ref()?)))
        {
            let labels = json!({ "kubernetes.io/service-name": service, "endpointslice.kubernetes.io/managed-by": "tenure.dev" });
            let metadata = json!({ "name": name, "labels": labels });
            objects.push(json!({ "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata, "addressType": family }));
        }
        let rules: Vec<_> = self
            .rules
            .iter()
            .map(|((group, resource, is_all), (names, verbs))| {
                let mut rule = json!({ "apiGroups": [group], "resources": [resource], "verbs": verbs });
                if !is_all {
                    rule["resourceNames"] = json!(names);
                }
                rule
            })
            .collect();
        let binds = json!({ "apiGroup": RBAC, "kind": "Role", "name": role });
        let subjects: Vec<_> = self
            .accounts
            .iter()
            .map(|(name, namespace)| {
                let mut subject = json!({ "kind": "ServiceAccount", "name": name });
                if let Some(namespace) = namespace {
                    subject["namespace"] = namespace.as_str().into();
                }
                subject
            })
            .collect();
        objects.push(json!({ "apiVersion": version, "kind": "Role", "metadata": { "name": role }, "rules": rules }));
        objects.push(json!({ "apiVersion": version, "kind": "RoleBinding", "metadata": { "name": role }, "roleRef": binds, "subjects": subjects }));
        for object in &mut objects {
            object["metadata"]["annotations"] = json!({ BEFORE: "null" });
            if let Some(namespace) = namespace {
                object["metadata"]["namespace"] = namespace.into();
            }
        }
        objects
    }
}

/// Returns the name of the EndpointSlice that the leader of a Service writes.
pub(super) fn slice_of(service: &str) -> String {
    format!("{service}-leader")
}
