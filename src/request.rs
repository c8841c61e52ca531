//! What all requests to the API server have in common: the place, what is done there, the answer, and the events of a watch.
//!
//! Owns the words in which an edge tells a deciding room what became of a request, whatever object it was about. Sends nothing
//! and reads no reply: [`api`](crate::api) does.

use std::{
    fmt::{self, Display, Formatter},
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::words::worded;

/// Where one object is, or all objects of a kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// As in the object: `apps/v1`.
    pub api_version: String,
    /// As in the object: `Deployment`. Empty: anything.
    pub kind: String,
    /// As in the URL: `deployments`.
    pub resource: String,
    /// None for an object of the cluster, and for all objects of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// As in the object: `web`. Empty: all.
    pub name: String,
}

impl Place {
    /// Returns its API group; empty for the core group.
    pub(crate) fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Returns true for a Secret: nothing that the server says of one is shown, because it may quote values.
    pub(crate) fn is_secret(&self) -> bool {
        self.resource == "secrets" && self.group().is_empty()
    }
}

impl Display for Place {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

/// What is done at a place. Bodies are sent as they are.
#[derive(Clone, Debug, PartialEq)]
pub enum Verb {
    /// GET of the object, a quorum read.
    Get,
    /// GET of the objects, a quorum read.
    List,
    /// POST.
    Create(Arc<Value>),
    /// PUT.
    Replace(Arc<Value>),
    /// PATCH with `application/apply-patch+yaml`.
    Apply(Arc<Value>),
    /// PATCH with `application/merge-patch+json`.
    Merge(Arc<Value>),
    /// DELETE with these options.
    Delete(Arc<Value>),
}

worded! {
    /// An operation of the API server, named as in RBAC.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Operation {
        /// A read.
        Get = "get",
        /// A read of several objects.
        List = "list",
        /// POST.
        Create = "create",
        /// PUT.
        Update = "update",
        /// DELETE.
        Delete = "delete",
        /// A read whose answer streams further events.
        Watch = "watch",
    }
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Hash)]
pub enum Answer {
    /// 2xx with an object that could be read.
    Object(Arc<Value>),
    /// 2xx of a LIST.
    Listed {
        /// The objects that could be read, under any name.
        objects: Vec<Arc<Value>>,
        /// The version of the list.
        resource_version: String,
    },
    /// 2xx of a DELETE.
    Deleted,
    /// 404 for this very object.
    NotFound,
    /// 409, AlreadyExists included.
    Conflict,
    /// Certainly not done: the server said so (401, 403, 422, 429, 404 for namespace or API group), or nothing was sent.
    Refused {
        /// The kind of refusal.
        refusal: Refusal,
        /// The server's words, or why nothing was sent.
        message: RequestError,
    },
    /// Unknown outcome (timeout, reset, refused connection, 5xx, a body that cannot be read). The edge has dropped its
    /// connections, so that the next attempt uses a new one.
    Unknown {
        /// The failure.
        message: RequestError,
        /// From a Retry-After header.
        retry_after: Option<Duration>,
    },
}

impl Answer {
    /// Returns true if the same request may succeed a moment later.
    pub(crate) const fn may_pass(&self) -> bool {
        match self {
            Self::Unknown { .. } => true,
            Self::Refused { refusal, .. } => refusal.may_pass(),
            Self::Object(_) | Self::Listed { .. } | Self::Deleted | Self::NotFound | Self::Conflict => false,
        }
    }

    /// Returns the pause that the server asks for.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { refusal, .. } => refusal.retry_after(),
            Self::Unknown { retry_after, .. } => *retry_after,
            Self::Object(_) | Self::Listed { .. } | Self::Deleted | Self::NotFound | Self::Conflict => None,
        }
    }
}

/// Why a request failed: words for people, and the status by which edges and log tell failures apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestError {
    /// The HTTP status, if the API server answered.
    pub status: Option<u16>,
    /// The server's words, or the failure if there was no answer; one line.
    pub words: String,
}

impl RequestError {
    /// Returns true if the API server denied it (403).
    pub fn is_forbidden(&self) -> bool {
        self.status == Some(403)
    }

    /// Returns true if the API server did not let the user in, or denied it (401, 403).
    pub(crate) const fn is_denied(&self) -> bool {
        matches!(self.status, Some(401 | 403))
    }
}

impl Display for RequestError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match (self.status, self.words.as_str()) {
            (None, words) => f.write_str(words),
            (Some(status), "") => write!(f, "the API server answered {status}"),
            (Some(status), words) => write!(f, "the API server answered {status}: {words}"),
        }
    }
}

impl<T: Into<String>> From<T> for RequestError {
    fn from(words: T) -> Self {
        Self { status: None, words: words.into() }
    }
}

/// The least time from a 429 to the next attempt, but not past what still fits.
const LEAST_PAUSE: Duration = Duration::from_millis(500);

/// Why the server did not do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// 401. The edge re-reads its credentials before the next request.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 404 for another object, such as the namespace.
    NoSuchPlace,
    /// 404 that names no object: the server does not serve this API group, or is no API server.
    NotServed,
    /// 400, 422 and other 4xx: the same body would be refused again.
    Invalid,
    /// 429.
    TooManyRequests {
        /// From its Retry-After header.
        retry_after: Option<Duration>,
    },
}

impl Refusal {
    /// Returns true if the server would do the same request at another time.
    pub(crate) const fn may_pass(self) -> bool {
        matches!(self, Self::TooManyRequests { .. })
    }

    /// Returns the pause that the server asks for. One with too many requests asks for half a second at least.
    pub(crate) fn retry_after(self) -> Option<Duration> {
        let Self::TooManyRequests { retry_after } = self else { return None };
        Some(retry_after.unwrap_or_default().max(LEAST_PAUSE))
    }
}

/// An event of the watch.
#[derive(Clone, Debug, PartialEq, Hash)]
pub enum Watched {
    /// ADDED or MODIFIED.
    Changed(Arc<Value>),
    /// DELETED, with the last state and the version of the deletion.
    Deleted(Arc<Value>),
    /// BOOKMARK: no further event up to this version.
    Bookmark(String),
    /// The watch ended, or could not start.
    Ended(WatchEnd),
}

/// How a watch ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum WatchEnd {
    /// Normally: no event was missed.
    Closed,
    /// With an error, or because the version to watch from is gone. Events may have been missed.
    Failed(RequestError),
}

impl WatchEnd {
    /// Returns the HTTP status of a failure, if the API server has answered.
    pub(crate) const fn status(&self) -> Option<u16> {
        if let Self::Failed(error) = self { error.status } else { None }
    }
}
