//! Why there is no access to a cluster: the message, and the exit code of a command.

use tower::BoxError;

use super::plugin::PluginError;

use crate::exit;

/// Why there is no access to a cluster. What may be secret is in none of the messages.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// Nothing names a cluster, or what does cannot be used.
    #[error("{0}")]
    Unusable(String),
    /// The same, for a reason that somebody else gives.
    #[error("{0}")]
    Caused(String, #[source] BoxError),
    /// The kubeconfig's credential plugin returned no credentials.
    #[error("cannot get credentials for {place}")]
    Plugin {
        /// The source of the access.
        place: String,
        /// The failure of the plugin.
        #[source]
        source: PluginError,
    },
}

impl AccessError {
    pub(super) fn of_plugin(place: &str, source: PluginError) -> Self {
        Self::Plugin { place: place.into(), source }
    }

    /// The exit code of a command that this ends. That a plugin returned no credentials is not a configuration error.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        if self.may_pass() { exit::NOT_PERMITTED } else { exit::INVALID }
    }

    /// Returns true if another attempt may succeed: a credential plugin failed, or there was no process for it. All else is
    /// configuration.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Plugin { source, .. } if source.may_pass())
    }
}
