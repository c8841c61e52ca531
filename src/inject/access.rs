//! What the pods of a Lease need beside themselves: the Lease, the EndpointSlice, and the rights to both.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{before, names::BEFORE};

const RBAC: &str = "rbac.authorization.k8s.io";

/// What the pods of a Lease need.
#[derive(Debug, Default)]
pub(super) struct Access {
    pub(super) accounts: BTreeSet<String>,
    /// The Service whose EndpointSlice the leader writes.
    pub(super) service: Option<String>,
}

impl Access {
    /// Returns the Lease, the EndpointSlice, and the rights of the accounts to them. An empty namespace is that of the context.
    pub(super) fn objects(&self, namespace: &str, lease: &str) -> Vec<Value> {
        let role = format!("tenure-{}", lease);
        let metadata = |name: &str| {
            let mut metadata = json!({ "name": name, "annotations": { BEFORE: "null" } });
            if !namespace.is_empty() {
                before::set(&mut metadata, "namespace", &namespace.into());
            }
            metadata
        };
        let rule = |group, resource, name: &str, verbs: &[&str]| json!({ "apiGroups": [group], "resources": [resource], "resourceNames": [name], "verbs": verbs });
        let mut rules = vec![rule("coordination.k8s.io", "leases", lease, &["get", "watch", "update"])];
        let mut objects = vec![json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata(lease) })];
        if let Some(service) = &self.service {
            let name = slice_of(service);
            rules.push(rule("discovery.k8s.io", "endpointslices", &name, &["get", "update"]));
            let mut metadata = metadata(&name);
            metadata["labels"] =
                json!({ "kubernetes.io/service-name": service, "endpointslice.kubernetes.io/managed-by": "tenure.dev" });
            objects.push(json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata, "addressType": "IPv4"
            }));
        }
        let subject = |name| json!({ "kind": "ServiceAccount", "name": name });
        let subjects: Vec<_> = self.accounts.iter().map(subject).collect();
        let binds = json!({ "apiGroup": RBAC, "kind": "Role", "name": role });
        let version = format!("{RBAC}/v1");
        objects.push(json!({ "apiVersion": version, "kind": "Role", "metadata": metadata(&role), "rules": rules }));
        objects.push(json!({
            "apiVersion": version, "kind": "RoleBinding", "metadata": metadata(&role), "roleRef": binds, "subjects": subjects
        }));
        objects
    }
}

/// Returns the name of the EndpointSlice that the leader of a Service writes.
pub(super) fn slice_of(service: &str) -> String {
    format!("{service}-leader")
}
