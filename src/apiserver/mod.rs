//! The embedded Lease API: coordination.k8s.io/v1 Leases with the semantics of the real kube-apiserver, and faults on demand.
//!
//! Owns everything between a client's bytes and the stored Leases, and nothing of tenure's election: to this room tenure is a client
//! like any other. Tests, `tenure demo` and `tenure dev-server` use it.
//!
//! Layers, each ignorant of those above it:
//! - pure, without a clock: [`Store`] (versions, preconditions, history) over `schema`, `validation`, `patch`; `feed` and `rest`;
//! - doing: `connection` and `watch` on the streams, `door` (one port and token per client, with its faults), `server` (the thread).
//!
//! Where it differs from the real server: no managedFields, no server-side apply or JSON patch, no paging (`limit` is ignored), no
//! garbage collection, JSON only, every client may do everything.

mod admission;
mod connection;
mod discovery;
mod door;
mod faults;
mod feed;
mod gotime;
mod identity;
mod journal;
mod lease;
mod names;
mod options;
mod patch;
mod query;
mod request;
mod rest;
mod schema;
mod selector;
mod server;
mod status;
mod store;
mod table;
mod validation;
mod watch;

use server::Shared;

pub use faults::{Fault, Link, On, WatchFault};
pub use journal::{Entry, Fate};
pub use lease::Lease;
pub use patch::Form;
pub use server::{Client, Options, Server, StartError};
pub use status::Status;
pub use store::{Change, Namespaces, Place, Preconditions, Rules, Store};
