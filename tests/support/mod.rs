//! What a test of whole replicas needs: servers, faults between them and a replica, and witnesses of what happened.
//!
//! - [`server`] runs an API server: the embedded one or a real kube-apiserver with etcd.
//! - [`api`] is the administrator's hand on it: Leases as raw JSON, namespaces, minimal rights.
//! - [`proxy`] stands between one client and the server, writes down every request and does the faults.
//! - [`replica`] runs tenure as PID 1 of its own PID namespace.
//! - [`workload`] is the program that it runs; [`witness`] hears from it and proves when it was alive.
//! - [`stage`] puts them together for one case; [`case`] runs each case on both servers.
//! - [`audit`] reads the real server's own record of requests.
//! - `client_go` is a peer without clock and IO: only the simulation and the model take it in, each from its file.
//! - `wait`, `lines`, `procfs` and `scratch` are for tests that have no runtime, which take them in likewise.
//!
//! Nothing here sleeps to let something happen: it waits for the event, with a deadline. That nothing happens is found out by
//! looking on for a while.

#![allow(dead_code, unreachable_pub, reason = "each test binary has its own copy, and uses a part of it")]

use std::time::Duration;

pub mod api;
pub mod audit;
pub mod case;
pub mod proxy;
pub mod replica;
pub mod server;
pub mod stage;
pub mod witness;
pub mod workload;

/// Longest wait for an event that has no deadline of its own: many times what it takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The future's output.
///
/// # Panics
/// If it is not there in time: with what was awaited.
pub async fn within<T>(limit: Duration, what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(limit, future).await {
        Ok(output) => output,
        Err(_) => panic!("not within {limit:?}: {what}"),
    }
}
