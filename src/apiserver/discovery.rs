//! Answers what clients ask for before they ask for Leases: versions, groups, resources, permissions.

use serde_json::{Value, json};

use super::status::GROUP;

/// The document at `path`, for GET.
pub(super) fn document(path: &str) -> Option<Value> {
    // kubectl asks whether there is a namespace in which it has not found a Lease.
    if let Some(name) = path.strip_prefix("/api/v1/namespaces/").filter(|name| !name.contains('/')) {
        return Some(json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}}));
    }
    let version = json!({"groupVersion": format!("{GROUP}/v1"), "version": "v1"});
    let group = json!({"name": GROUP, "versions": [version], "preferredVersion": version});
    Some(match path {
        "/version" => json!({
            "major": "1",
            "minor": "36",
            "gitVersion": concat!("v1.36.0+tenure-", env!("CARGO_PKG_VERSION")),
            "platform": "linux/amd64",
        }),
        "/api" => json!({"kind": "APIVersions", "versions": [], "serverAddressByClientCIDRs": []}),
        "/apis" => json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]}),
        "/apis/coordination.k8s.io/v1" => json!({
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": format!("{GROUP}/v1"),
            "resources": [{
                "name": "leases",
                "singularName": "lease",
                "namespaced": true,
                "kind": "Lease",
                "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
            }],
        }),
        _ => return None,
    })
}

/// The answer to a SelfSubjectAccessReview, such as those of `tenure check`: allowed.
pub(super) fn allowed(review: &Value) -> Value {
    json!({
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": review.get("spec"),
        "status": {"allowed": true, "reason": "this server allows everything"},
    })
}
