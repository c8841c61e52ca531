//! Where objects are on the API server, and whether an object is the one of its place.

use std::ops::Deref;

use form_urlencoded::byte_serialize;
use serde_json::Value;

use crate::election::writes::{API_VERSION, KIND};
pub(crate) use crate::request::Place;

impl Place {
    /// An object in a namespace; without a name, all of that kind there.
    pub(crate) fn new(api_version: &str, kind: &str, resource: &str, namespace: &str, name: impl Into<String>) -> Self {
        let (api_version, kind, resource) = (api_version.into(), kind.into(), resource.into());
        Self { api_version, kind, resource, namespace: Some(namespace.into()), name: name.into() }
    }

    /// A Lease; without a name, all Leases of the namespace; without a namespace, all of the cluster.
    pub(crate) fn lease(namespace: &str, name: impl Into<String>) -> LeasePlace {
        let place = Self::new(API_VERSION, KIND, "leases", namespace, name);
        LeasePlace(Self { namespace: place.namespace.filter(|namespace| !namespace.is_empty()), ..place })
    }

    /// A Secret.
    pub(crate) fn secret(namespace: &str, name: impl Into<String>) -> Self {
        Self::new("v1", "Secret", "secrets", namespace, name)
    }

    /// An EndpointSlice.
    pub(crate) fn endpoint_slice(namespace: &str, name: impl Into<String>) -> Self {
        Self::new("discovery.k8s.io/v1", "EndpointSlice", "endpointslices", namespace, name)
    }

    /// The Events of a namespace.
    pub(crate) fn events(namespace: &str) -> Self {
        Self::new("events.k8s.io/v1", "Event", "events", namespace, "")
    }

    /// A namespace.
    pub(crate) fn namespace(name: &str) -> Self {
        Self { namespace: None, ..Self::new("v1", "Namespace", "namespaces", "", name) }
    }

    /// The resources of a group version.
    pub(crate) fn discovery(api_version: &str) -> Self {
        Self { namespace: None, ..Self::new(api_version, "", "", "", "") }
    }

    /// Returns the path of all objects of its kind there.
    pub(crate) fn collection(&self) -> String {
        let root = if self.api_version.contains('/') { "/apis" } else { "/api" };
        let namespace = self.namespace.as_deref().map_or_else(String::new, |name| format!("/namespaces/{}", segment(name)));
        let resource = if self.resource.is_empty() { String::new() } else { format!("/{}", segment(&self.resource)) };
        format!("{root}/{}{namespace}{resource}", self.api_version)
    }

    /// Returns its own path.
    pub(crate) fn object(&self) -> String {
        let name = if self.name.is_empty() { String::new() } else { format!("/{}", segment(&self.name)) };
        format!("{}{name}", self.collection())
    }

    /// Returns true if `object` is the one of this place, or any of this kind where the place is that of all.
    pub(crate) fn has(&self, object: &Value) -> bool {
        let text = |place| object.pointer(place).and_then(Value::as_str);
        // It may lack kind, version and namespace, as those in a list do.
        let may_be = |place, expected: &str| text(place).is_none_or(|text| text == expected);
        let is_named = self.name.is_empty() || text("/metadata/name") == Some(&self.name);
        let is_there = self.namespace.as_deref().is_none_or(|namespace| may_be("/metadata/namespace", namespace));
        let is_of_kind = self.kind.is_empty() || may_be("/kind", &self.kind) && may_be("/apiVersion", &self.api_version);
        object.is_object() && is_named && is_there && is_of_kind
    }
}

/// The place of a Lease, at which only [`LeaseWrite`](crate::election::writes::LeaseWrite) writes.
#[derive(Clone, Debug)]
pub(crate) struct LeasePlace(Place);

impl Deref for LeasePlace {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.0
    }
}

/// Returns a name as one segment of a path, whatever is in it: some come from a journal.
fn segment(name: &str) -> String {
    byte_serialize(name.as_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn here() -> LeasePlace {
        Place::lease("billing", "writer")
    }

    #[test]
    fn a_lease_has_a_path_below_its_namespace() {
        assert_eq!(here().collection(), "/apis/coordination.k8s.io/v1/namespaces/billing/leases");
        assert_eq!(here().object(), "/apis/coordination.k8s.io/v1/namespaces/billing/leases/writer");
    }

    #[test]
    fn the_core_group_has_a_root_of_its_own_and_a_group_version_is_a_place_too() {
        assert_eq!(Place::namespace("shop").object(), "/api/v1/namespaces/shop");
        assert_eq!(["v1", "apps/v1"].map(|version| Place::discovery(version).object()), ["/api/v1", "/apis/apps/v1"]);
    }

    #[test]
    fn a_name_stays_one_segment_of_the_path() {
        let odd = Place { namespace: None, ..Place::new("apps/v1", "Deployment", "deployments", "", "system:a/../b?c") };
        assert_eq!(odd.object(), "/apis/apps/v1/deployments/system%3Aa%2F..%2Fb%3Fc");
    }

    #[test]
    fn a_lease_may_leave_out_all_but_its_name_and_contradict_nothing() {
        let whole = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": "writer", "namespace": "billing" },
        });
        assert!(here().has(&whole) && here().has(&json!({ "metadata": { "name": "writer" } })));
        for path in ["/apiVersion", "/kind", "/metadata/name", "/metadata/namespace"] {
            let mut other = whole.clone();
            *other.pointer_mut(path).unwrap() = "other".into();
            assert!(!here().has(&other), "{path}");
        }
        assert!(!here().has(&json!([])) && !here().has(&Value::Null));
    }
}
