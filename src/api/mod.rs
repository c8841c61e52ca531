//! Access to the API server, for the elector and the commands.
//!
//! Owns where the server is and who we are there ([`Cluster`]), connections to it ([`Dialer`]), single requests on them
//! ([`exchange()`], [`call`]), and which of its objects is the Lease ([`place`]). Never retries a request or adds one of its own,
//! and never waits without a deadline.
//!
//! kube reads the configuration, authenticates and speaks TLS. Ours are the connector, because kube's does not set TCP_NODELAY;
//! the stack of layers, because kube's retries what a deciding room has long given up; credential plugins, because kube's errors
//! show their secrets; and token files, because kube sends whatever it finds in one.

pub use self::{
    access::AccessError,
    cluster::{Cluster, Prompt},
    dial::Dialer,
    exchange::{CallError, ExchangeError, MAX_BODY, Reply, call, exchange, send},
    plugin::PluginError,
};

mod access;
mod cluster;
mod dial;
mod exchange;
mod kubeconfig;
mod namespace;
pub(crate) mod place;
mod plugin;
mod pod;
pub(crate) mod proxies;
#[cfg(test)]
pub(crate) mod stub;
mod token;
pub(crate) mod url;
