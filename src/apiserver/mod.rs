//! The embedded Lease API: coordination.k8s.io/v1 Leases from memory, for `tenure demo`, `tenure dev-server` and tests.
//!
//! Owns everything between a client's bytes and the stored Leases, and nothing of tenure's election: to this room tenure is a client
//! like any other. It keeps the real server's semantics where a client of Leases depends on them: versions and uids, 404, 409 and
//! 422, times with six digits, LIST, WATCH with bookmarks and 410, merge patches, discovery. `tests/apiserver` holds both servers to
//! the same cases.
//!
//! - pure: [`register`] (the Leases and their versions) under `rest` (the verbs), `lease` (what a body may hold), `selector`,
//!   `status`, `discovery`; a watch's events come from `feed`;
//! - with IO: `server` (the thread, TLS, HTTP) with `identity` (certificate, token, kubeconfig).
//!
//! Does not imitate: the real server's wording, other patches than merge patches (`kubectl annotate` and `label` send these;
//! `apply`, `edit` and `patch` without `--type=merge` do not), protobuf, tables, managedFields, dry runs, warnings, OpenAPI, partial
//! lists and old versions of lists, the garbage collector's finalizers, generated names, namespaces (all exist), authorisation
//! (everything is allowed), faults.

mod discovery;
mod feed;
mod identity;
mod lease;
pub mod register;
mod rest;
mod selector;
mod server;
mod status;

pub use server::{Server, StartError};
