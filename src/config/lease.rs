//! The keys of the Lease and the timing of the election.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{humane, scalars::Drift};

/// The Lease and the timing of the election.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Lease {
    /// False: a plain init, nothing else.
    pub enabled: bool,
    /// Name of the Lease as it stands in the API, prefix included, once validated.
    pub name: String,
    /// Prepended to the name; empty once validated, being part of it.
    pub prefix: String,
    /// Empty: the pod's, then that of the kubeconfig's context, then "default".
    pub namespace: String,
    /// Base of the identity. Empty: POD_NAME, then the hostname.
    pub identity: String,
    /// D, whole seconds.
    #[serde(with = "humane")]
    #[schemars(with = "humane::Written")]
    pub duration: Duration,
    /// R.
    #[serde(with = "humane")]
    #[schemars(with = "humane::Written")]
    pub renew_period: Duration,
    /// T, per request.
    #[serde(with = "humane")]
    #[schemars(with = "humane::Written")]
    pub attempt_timeout: Duration,
    /// rho.
    pub clock_drift: Drift,
    /// Added to `app.kubernetes.io/managed-by: tenure`.
    pub labels: BTreeMap<String, String>,
    /// Added to the Lease.
    pub annotations: BTreeMap<String, String>,
    /// What is written when a term ends.
    pub release: Release,
    /// Law 14; none is the default of the law.
    #[serde(with = "humane::option")]
    #[schemars(with = "Option<humane::Written>")]
    pub creation_wait: Option<Duration>,
}

impl Default for Lease {
    fn default() -> Self {
        Self {
            enabled: true,
            name: String::new(),
            prefix: String::new(),
            namespace: String::new(),
            identity: String::new(),
            duration: Duration::from_secs(15),
            renew_period: Duration::from_secs(3),
            attempt_timeout: Duration::from_secs(2),
            clock_drift: Drift::default(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            release: Release::Clear,
            creation_wait: None,
        }
    }
}

/// What is written when a term ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Release {
    /// Empty holder, duration 1: the release mark.
    #[default]
    Clear,
    /// Clear, then DELETE with uid and resourceVersion.
    Delete,
    /// No write.
    Keep,
}
