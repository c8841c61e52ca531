//! Access to the API server, for the elector and the commands.
//!
//! Owns where the server is and who we are there ([`Cluster`]), connections to it ([`Dialer`]), single requests on them
//! ([`exchange()`], [`call`]), and which of its objects is the Lease ([`key`]). Never retries a request or adds one of its own,
//! and never waits without a deadline.
//!
//! kube reads the configuration and speaks TLS. Ours are the connector, because kube's does not set TCP_NODELAY; the stack of layers,
//! because kube's retries what a deciding room has long given up; and the credentials, because kube sends whatever it finds in a file,
//! has a request wait for a plugin, and panics where a token or a URL cannot be sent.

pub use self::{
    access::AccessError,
    cluster::Cluster,
    dial::Dialer,
    exchange::{CallError, ExchangeError, MAX_BODY, Reply, call, exchange, send},
    plugin::{PATIENCE as PLUGIN_PATIENCE, PluginError},
};

mod access;
mod bearer;
mod cluster;
mod dial;
mod exchange;
pub(crate) mod key;
mod kubeconfig;
mod namespace;
mod plugin;
mod pod;
mod proxies;
mod tls;
#[cfg(any(test, fuzzing))]
pub(crate) use plugin::fuzz as fuzz_credential;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::stub;
pub(crate) mod review;
pub(crate) mod url;
