//! The namespace that counts where none is configured: the pod's, else that of the kubeconfig's context.

use std::{fmt::Display, fs};

use super::access::AccessError;

/// Where a pod finds its own.
pub(super) const FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// What was found. It is judged only when it is asked for: where one is configured, nobody asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Namespace {
    name: String,
    place: String,
}

impl Namespace {
    /// That of the pod; `None` if this is none, or it has no such file.
    pub(super) fn of_pod() -> Option<Self> {
        let text = fs::read_to_string(FILE).ok()?;
        let name = text.trim();
        (!name.is_empty()).then(|| Self { name: name.into(), place: format!("the pod ({FILE})") })
    }

    /// That of the context in `place`; "default" if it has none, as for kubectl.
    pub(super) fn of_context(name: &str, place: &impl Display) -> Self {
        let name = name.trim();
        Self { name: if name.is_empty() { "default" } else { name }.into(), place: place.to_string() }
    }

    /// Its name.
    ///
    /// # Errors
    /// It is not valid.
    pub(super) fn name(&self) -> Result<&str, AccessError> {
        if !is_valid(&self.name) {
            return Err(AccessError::Unusable(format!(
                "the namespace of {} is {:?}, which is not a valid namespace: name one with --namespace",
                self.place, self.name
            )));
        }
        Ok(&self.name)
    }
}

/// Whether this can be a namespace's name in a path.
fn is_valid(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}
