//! Support for tests of whole replicas: servers, faults between them and a replica, and witnesses of what happened.
//!
//! - [`server`] runs an API server: the embedded one or a real kube-apiserver with etcd.
//! - [`api`] is an administrator's access to it: Leases as raw JSON, namespaces, minimal permissions.
//! - [`proxy`] stands between one client and the server, records every request and injects the faults.
//! - [`replica`] runs tenure as PID 1 of its own PID namespace.
//! - [`workload`] is the program that it runs; [`witness`] receives its messages and proves when it was alive.
//! - [`stage`] puts them together for one case; [`case`] runs each case on its servers.
//! - [`audit`] reads the real server's audit log; [`programs`] are the pinned ones.
//! - [`fresh`] makes no difference of how the test binary was started.
//! - [`incomplete`] is for what cannot be checked here.
//! - `client_go` is a peer without clock and IO: only the simulation and the model use it, each including its file.
//! - `wait`, `lines`, `scratch` and `slept` are for tests without a runtime, which include them likewise, and [`procfs`].
//!
//! Nothing here sleeps to let something happen: it waits for the event, with a deadline. That nothing happens is checked by
//! watching for a while.

#![allow(dead_code, unreachable_pub, reason = "each test binary has its own copy, and uses a part of it")]

use std::time::Duration;

pub mod api;
pub mod audit;
pub mod case;
pub mod fences;
pub mod fresh;
pub mod incomplete;
pub mod procfs;
pub mod programs;
pub mod proxy;
pub mod replica;
pub mod server;
pub mod stage;
pub mod stalls;
pub mod witness;
pub mod workload;

/// Longest wait for an event without its own deadline: many times as long as it takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The future's output.
///
/// # Panics
/// If it is not ready in time, naming what was awaited.
pub async fn within<T>(limit: Duration, what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(limit, future).await {
        Ok(output) => output,
        Err(_) => panic!("not within {limit:?}: {what}"),
    }
}
