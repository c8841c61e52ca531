//! Why there is no access to a cluster: the message, and the exit code of a command or a replica.

use std::io;

use tower::BoxError;

use crate::exit;

/// Why there is no access to a cluster. What may be secret is in none of the messages.
#[derive(Debug, thiserror::Error)]
#[error("{words}")]
pub struct AccessError {
    words: String,
    may_pass: bool,
    source: Option<BoxError>,
}

impl AccessError {
    /// Nothing names a cluster, or what does cannot be used.
    pub(super) fn unusable(words: impl Into<String>) -> Self {
        Self { words: words.into(), may_pass: false, source: None }
    }

    /// The same, for a reason that somebody else gives.
    pub(super) fn caused(words: impl Into<String>, source: impl Into<BoxError>) -> Self {
        Self { source: Some(source.into()), ..Self::unusable(words) }
    }

    /// The kubeconfig's credential plugin ran, and returned no credentials.
    pub(super) fn of_run(words: impl Into<String>) -> Self {
        Self { may_pass: true, ..Self::unusable(words) }
    }

    /// The kubeconfig's credential plugin cannot be started.
    pub(super) fn of_start(words: impl Into<String>, source: io::Error) -> Self {
        // The container has as many processes as it may, or no memory for one.
        let may_pass = matches!(source.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory);
        Self { may_pass, ..Self::caused(words, source) }
    }

    /// There are no credentials for the access that comes from `place`.
    pub(super) fn no_credentials(place: &str, source: Self) -> Self {
        Self { may_pass: source.may_pass, ..Self::caused(format!("cannot get credentials for {place}"), source) }
    }

    /// The exit code of a command that this ends. That a plugin returned no credentials is not a configuration error.
    pub const fn exit_code(&self) -> u8 {
        if self.may_pass { exit::NOT_PERMITTED } else { exit::INVALID }
    }

    /// Returns true if another attempt may succeed: a credential plugin failed, or there was no process for it. All else is
    /// configuration.
    pub const fn may_pass(&self) -> bool {
        self.may_pass
    }
}
