//! What the pods of a Lease need beside themselves: the Lease, the EndpointSlice, and the rights to both.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::names::BEFORE;

const RBAC: &str = "rbac.authorization.k8s.io";

/// What the configuration of a wrapped container needs.
#[derive(Debug)]
pub(crate) struct Needs {
    pub(crate) lease: String,
    /// Seconds for the stop of the pod.
    pub(crate) grace: u64,
    /// How often its liveness probe may fail.
    pub(crate) failures: u64,
}

/// What the pods of a Lease need.
#[derive(Debug, Default)]
pub(super) struct Access {
    pub(super) accounts: BTreeSet<String>,
    /// The Service whose EndpointSlice the leader writes.
    pub(super) service: Option<String>,
}

impl Access {
    /// Returns the Lease, the EndpointSlice, and the rights of the accounts to them. Without a namespace it is that of the context.
    pub(super) fn objects(&self, namespace: Option<&str>, lease: &str) -> Vec<Value> {
        let (role, version) = (format!("tenure-{lease}"), format!("{RBAC}/v1"));
        let rule = |group, resource, name: &str, verbs: &[&str]| json!({ "apiGroups": [group], "resources": [resource], "resourceNames": [name], "verbs": verbs });
        let mut rules = vec![rule("coordination.k8s.io", "leases", lease, &["get", "watch", "update"])];
        let mut objects = vec![json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": lease } })];
        if let Some(service) = &self.service {
            let slice = slice_of(service);
            rules.push(rule("discovery.k8s.io", "endpointslices", &slice, &["get", "update"]));
            let labels = json!({ "kubernetes.io/service-name": service, "endpointslice.kubernetes.io/managed-by": "tenure.dev" });
            let metadata = json!({ "name": slice, "labels": labels });
            objects.push(json!({ "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata, "addressType": "IPv4" }));
        }
        let binds = json!({ "apiGroup": RBAC, "kind": "Role", "name": role });
        let subjects: Vec<_> = self.accounts.iter().map(|name| json!({ "kind": "ServiceAccount", "name": name })).collect();
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
