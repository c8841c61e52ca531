//! What clients ask for before they ask for Leases: versions, groups, resources, permissions.
//!
//! Owns those documents. They are constant, apart from the access review, which allows everything.

use serde_json::{Value, json};

use super::{
    schema,
    status::{Cause, GROUP, Status},
};

const OPENAPI: &str = "/openapi/v3/apis/coordination.k8s.io/v1";

/// The paths that there are, apart from those of Leases.
const PATHS: [&str; 11] = [
    "/api",
    "/apis",
    "/apis/authorization.k8s.io",
    "/apis/authorization.k8s.io/v1",
    "/apis/coordination.k8s.io",
    "/apis/coordination.k8s.io/v1",
    "/healthz",
    "/livez",
    "/openapi/v3",
    "/readyz",
    "/version",
];

/// The document at `path`, for GET.
pub(super) fn document(path: &str) -> Option<Value> {
    let version = json!({"groupVersion": format!("{GROUP}/v1"), "version": "v1"});
    let reviews = json!({"groupVersion": "authorization.k8s.io/v1", "version": "v1"});
    let group = json!({"name": GROUP, "versions": [version], "preferredVersion": version});
    let authorization = json!({"name": "authorization.k8s.io", "versions": [reviews], "preferredVersion": reviews});
    Some(match path {
        "/" => json!({"paths": PATHS}),
        "/version" | "/version/" => json!({
            "major": "1",
            "minor": "36",
            "gitVersion": concat!("v1.36.0+tenure-", env!("CARGO_PKG_VERSION")),
            "gitCommit": "",
            "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": "",
            "compiler": "",
            "platform": "linux/amd64",
        }),
        "/api" | "/api/" => json!({"kind": "APIVersions", "versions": [], "serverAddressByClientCIDRs": []}),
        "/apis" | "/apis/" => json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group, authorization]}),
        "/apis/coordination.k8s.io" => with_head(&group),
        "/apis/authorization.k8s.io" => with_head(&authorization),
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
        "/apis/authorization.k8s.io/v1" => json!({
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": "authorization.k8s.io/v1",
            "resources": [{
                "name": "selfsubjectaccessreviews",
                "singularName": "selfsubjectaccessreview",
                "namespaced": false,
                "kind": "SelfSubjectAccessReview",
                "verbs": ["create"],
            }],
        }),
        "/openapi/v3" => json!({"paths": {"apis/coordination.k8s.io/v1": {"serverRelativeURL": OPENAPI}}}),
        OPENAPI => openapi(),
        _ => return None,
    })
}

/// The answer to a SelfSubjectAccessReview of `spec`: allowed.
///
/// # Errors
/// 422 unless it asks about exactly one of a resource and a non-resource path.
pub(super) fn review(spec: &Value) -> Result<Value, Status> {
    match (spec.get("resourceAttributes"), spec.get("nonResourceAttributes")) {
        (None, None) => {
            let rule = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            Err(Status::invalid_review(Cause::invalid("spec.resourceAttributes", "null", rule)))
        }
        (Some(_), Some(other)) => {
            let rule = "cannot be specified in combination with resourceAttributes";
            Err(Status::invalid_review(Cause::invalid("spec.nonResourceAttributes", &other.to_string(), rule)))
        }
        (Some(_), None) | (None, Some(_)) => Ok(allowed(spec)),
    }
}

/// An answer that allows `spec`.
pub(super) fn allowed(spec: &Value) -> Value {
    json!({
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": spec,
        "status": {"allowed": true, "reason": "this server allows everything"},
    })
}

/// Just enough of a description for kubectl to explain a Lease, and to leave the validation of fields to the server.
fn openapi() -> Value {
    let parameter = json!({"name": "fieldValidation", "in": "query", "schema": {"type": "string"}});
    let patch = json!({
        "parameters": [parameter],
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": {"group": GROUP, "version": "v1", "kind": "Lease"},
    });
    json!({
        "openapi": "3.0.0",
        "info": {"title": "tenure dev-server", "version": env!("CARGO_PKG_VERSION")},
        "paths": {"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}": {"patch": patch}},
        "components": {"schemas": {"io.k8s.api.coordination.v1.Lease": schema::describe(&schema::LEASE)}},
    })
}

fn with_head(group: &Value) -> Value {
    json!({
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": group.get("name"),
        "versions": group.get("versions"),
        "preferredVersion": group.get("preferredVersion"),
    })
}
