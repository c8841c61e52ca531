//! Where the Lease is on the API server, and what is it there.

use serde_json::Value;

use crate::election::writes::{API_VERSION, KIND};

/// Where the Lease is.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// Its namespace.
    pub(super) namespace: String,
    /// Its name.
    pub(super) name: String,
}

impl Place {
    /// Path of the Leases of the namespace.
    pub(super) fn collection(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace)
    }

    /// Its own path.
    pub(super) fn object(&self) -> String {
        format!("{}/{}", self.collection(), self.name)
    }

    /// Whether this is the Lease that is here. What an object leaves out of kind, version and namespace it may leave out.
    pub(super) fn holds(&self, object: &Value) -> bool {
        let text = |place| object.pointer(place).and_then(Value::as_str);
        text("/metadata/name") == Some(&self.name)
            && text("/metadata/namespace").is_none_or(|namespace| namespace == self.namespace)
            && text("/kind").is_none_or(|kind| kind == KIND)
            && text("/apiVersion").is_none_or(|version| version == API_VERSION)
    }
}
