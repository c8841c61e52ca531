//! Where Leases are on the API server, and which objects there are Leases.

use serde_json::{Value, json};

use crate::election::writes::{API_VERSION, KIND};

/// Where one Lease is.
#[derive(Clone, Debug)]
pub(crate) struct LeaseKey {
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
}

impl LeaseKey {
    /// Path of the Leases of the namespace.
    pub(crate) fn collection(&self) -> String {
        collection(&self.namespace)
    }

    /// Its own path.
    pub(crate) fn object(&self) -> String {
        format!("{}/{}", self.collection(), self.name)
    }

    /// True if `object` is this Lease.
    pub(crate) fn names(&self, object: &Value) -> bool {
        object.pointer("/metadata/name").and_then(Value::as_str) == Some(&self.name) && is_lease_of(&self.namespace, object)
    }
}

/// Path of the Leases of a namespace.
pub(crate) fn collection(namespace: &str) -> String {
    format!("/apis/{API_VERSION}/namespaces/{namespace}/leases")
}

/// The body of a DELETE of exactly this version.
pub(crate) fn delete_options(uid: &str, resource_version: &str) -> String {
    let preconditions = json!({"uid": uid, "resourceVersion": resource_version});
    json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}).to_string()
}

/// True if this is a Lease of this namespace. An object may lack kind, version and namespace, as those in a list do.
pub(crate) fn is_lease_of(namespace: &str, object: &Value) -> bool {
    let may_be = |place, expected| object.pointer(place).and_then(Value::as_str).is_none_or(|text| text == expected);
    may_be("/metadata/namespace", namespace) && may_be("/kind", KIND) && may_be("/apiVersion", API_VERSION)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> LeaseKey {
        LeaseKey { namespace: "billing".into(), name: "writer".into() }
    }

    #[test]
    fn a_lease_has_a_path_below_its_namespace() {
        assert_eq!(here().collection(), "/apis/coordination.k8s.io/v1/namespaces/billing/leases");
        assert_eq!(here().object(), "/apis/coordination.k8s.io/v1/namespaces/billing/leases/writer");
    }

    #[test]
    fn a_delete_is_of_one_version() {
        let options: Value = serde_json::from_str(&delete_options("u", "7")).unwrap();
        assert_eq!(options["preconditions"], json!({ "uid": "u", "resourceVersion": "7" }));
    }

    #[test]
    fn a_lease_may_leave_out_all_but_its_name_and_contradict_nothing() {
        let whole = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": "writer", "namespace": "billing" },
        });
        assert!(here().names(&whole) && here().names(&json!({ "metadata": { "name": "writer" } })));
        for path in ["/apiVersion", "/kind", "/metadata/name", "/metadata/namespace"] {
            let mut other = whole.clone();
            *other.pointer_mut(path).unwrap() = "other".into();
            assert!(!here().names(&other), "{path}");
        }
        assert!(!here().names(&json!([])) && !here().names(&Value::Null));
    }
}
