//! The namespace that counts where none is configured: the pod's, else that of the kubeconfig's context.

use std::{fmt::Display, fs};

use super::access::AccessError;

/// Where a pod finds its own.
pub(super) const FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// The namespace as it was found. Nobody judges it before it is needed: a configured one takes its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Namespace {
    name: String,
    place: String,
}

impl Namespace {
    /// The namespace of the pod; `None` outside a pod, or without the file.
    pub(super) fn of_pod() -> Option<Self> {
        let text = fs::read_to_string(FILE).ok()?;
        let name = text.trim();
        (!name.is_empty()).then(|| Self { name: name.into(), place: format!("the pod ({FILE})") })
    }

    /// The namespace of the context in `place`; "default" if that names none, as with kubectl.
    pub(super) fn of_context(name: &str, place: &impl Display) -> Self {
        let name = name.trim();
        Self { name: if name.is_empty() { "default" } else { name }.into(), place: place.to_string() }
    }

    /// Its name.
    ///
    /// # Errors
    /// The namespace is not valid.
    pub(super) fn name(&self) -> Result<&str, AccessError> {
        if !is_valid(&self.name) {
            return Err(AccessError::unusable(format!(
                "the namespace of {} is {:?}, which is not a valid namespace: name one with --namespace",
                self.place, self.name
            )));
        }
        Ok(&self.name)
    }
}

/// Accepts what can be a namespace's name in a path.
fn is_valid(name: &str) -> bool {
    name.len() < 64 && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}
