//! The embedded Lease API: coordination.k8s.io/v1 Leases with the semantics of the real kube-apiserver, and faults on demand.
//!
//! Owns everything between a client's bytes and the stored Leases, and nothing of tenure's election: to this module tenure is a
//! client like any other. Tests, `tenure demo` and `tenure dev-server` use it.
//!
//! Layers, each unaware of those above it:
//! - pure, without a clock: [`Store`] (versions, preconditions, history) over `schema`, `validation`, `patch`; `feed`, `view`,
//!   `rest`;
//! - with IO: `connection` and `watch` on the streams, `door` (one port and token per client, with its faults), `server` (the
//!   thread).
//!
//! Not implemented: managedFields, server-side apply, deletion of a whole collection, garbage collection, authorisation, bodies in
//! other media types than JSON and protobuf, answers in others than JSON, kinds other than Leases, HTTP/2, 202 for a Lease that
//! `orphanDependents=false` did not delete, the versions of dry runs, times beyond the years 0 to 9999, duplicates of a field that
//! have different types, copies of nothing and negative indices in a JSON Patch, and descriptions of fields. For invalid JSON and
//! protobuf the wording is serde's and prost's, not Go's.

mod admission;
mod connection;
mod discovery;
mod document;
mod door;
mod faults;
mod feed;
mod gotime;
mod identity;
mod journal;
mod lease;
mod listing;
mod names;
mod options;
mod patch;
mod protobuf;
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
mod view;
mod warnings;
mod watch;

use server::Shared;

pub use faults::{Fault, Link, On, WatchFault};
pub use journal::{Entry, Fate};
pub use lease::Lease;
pub use patch::{Form, Patch, Validation};
pub use server::{Client, Options, Server, StartError};
pub use status::Status;
pub use store::{Change, Dependents, Namespaces, Place, Preconditions, Rules, Store};
