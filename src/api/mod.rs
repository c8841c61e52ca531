//! Access to the API server, for the elector and the commands.
//!
//! Owns where the server is and who we are there ([`Cluster`], [`Access`]), connections to it ([`Dialer`]), where an object is
//! ([`Place`]), single requests ([`Client`]), what a reply means ([`classify`]), and the watch ([`Watch`]). Never retries a request
//! or adds one of its own, and never waits without a deadline.
//!
//! kube reads the configuration. Ours are TLS ([`tls`]); the connector, because kube's does not set TCP_NODELAY; the stack of layers,
//! because kube's retries what a deciding room has long given up; and the credentials, because kube sends whatever it finds in a file,
//! has a request wait for a plugin, and panics where a token or a URL cannot be sent.

pub use self::{
    access::AccessError,
    cluster::Cluster,
    dial::Dialer,
    exchange::{ExchangeError, MAX_BODY, Reply, exchange},
    plugin::PATIENCE as PLUGIN_PATIENCE,
};
pub(crate) use self::{
    classify::Answered,
    client::Client,
    credentials::Access,
    exchange::few_heads,
    place::{LeasePlace, Place},
    request::{Request, Verb},
    tls::unverified,
    watch::{Watch, Watching},
};

mod access;
mod bearer;
mod classify;
mod client;
mod cluster;
mod credentials;
mod dial;
mod exchange;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod kubeconfig;
mod namespace;
mod place;
mod plugin;
mod pod;
mod proxies;
mod request;
pub(crate) mod review;
mod tls;
pub(crate) mod url;
mod watch;

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::stub;
