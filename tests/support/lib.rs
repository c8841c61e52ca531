//! Support for tests of whole replicas: servers, faults between them and a replica, and witnesses of what happened.
//!
//! - [`server`] runs an API server: the embedded one or a real kube-apiserver with etcd.
//! - [`api`] is an administrator's access to it: Leases as raw JSON, namespaces, minimal permissions.
//! - [`proxy`] stands between one client and the server, records every request and injects the faults.
//! - [`replica`] runs tenure as PID 1 of its own PID namespace.
//! - [`workload`] is the program that it runs; [`witness`] receives its messages and proves when it was alive.
//! - [`spec`] has what tests put into a Lease, and what must hold of what tenure writes.
//! - [`stage`] puts them together for one case; [`case`] runs each case on its servers.
//! - [`audit`] reads the real server's audit log; [`programs`] are the pinned ones.
//! - [`fresh`] makes no difference of how the test binary was started.
//! - [`incomplete`] is for what cannot be checked here.
//! - [`safety`] judges what no busy machine excuses.
//! - [`slewed`] slews the kernel's clocks.
//! - [`wait`], [`lines`], [`scratch`], [`slept`], [`denied`] and [`procfs`] are for tests without a runtime.
//! - [`kept`] is for child processes that end with the test.
//! - [`namespace`] is for tests that run kubectl and Helm; [`fences`] reads the commands of a page of the documentation.
//!
//! Nothing here sleeps to let something happen: it waits for the event, with a deadline. That nothing happens is checked by
//! watching for a while.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, reason = "a test fails by panicking, and says why")]

use std::{
    sync::{Mutex, OnceLock},
    time::Duration,
};

use tokio::sync::watch;

pub mod api;
pub mod audit;
pub mod case;
pub mod denied;
pub mod fences;
pub mod fresh;
pub mod incomplete;
pub mod kept;
pub mod lines;
pub mod namespace;
pub mod procfs;
pub mod programs;
pub mod proxy;
pub mod replica;
pub mod safety;
pub mod scratch;
pub mod server;
pub mod slept;
pub mod slewed;
pub mod spec;
pub mod stage;
pub mod stalls;
pub mod wait;
pub mod witness;
pub mod workload;

pub use api::{Api, Lease, Verbs};
pub use case::{BOTH, Case, REAL};
pub use denied::denied;
pub use incomplete::not_run;
pub use kept::Kept;
pub use libtest_mimic::Trial;
pub use lines::Lines;
pub use namespace::{Ended, Namespace, grace};
pub use proxy::{Answer, Canned, Exchange, Fault, Flow, Log, Passage, Proxy, Reply, Request, Times, Valve, Verb};
pub use replica::{Launch, Replica};
pub use safety::safe;
pub use scratch::{Scratch, open_for_reader};
pub use server::{Kind, Program, Server};
pub use stage::{LEASE, Prepared, Stage, timing};
pub use wait::{found, until, wait_for, wait_until};
pub use witness::{Event, Life, Process, Witness};
pub use workload::Behaviour;

/// The program under test. Cargo tells its path to the package's own tests only, so a test that starts replicas sets it first.
pub static TENURE: OnceLock<&str> = OnceLock::new();

/// Longest wait for an event without its own deadline: many times as long as it takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The future's output.
pub async fn within<T>(limit: Duration, what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(limit, future).await {
        Ok(output) => output,
        Err(_) => panic!("not within {limit:?}: {what}"),
    }
}

/// The one of a list after `count` others that match, now or once the list has changed.
async fn seen<T: Clone>(
    list: &Mutex<Vec<T>>,
    changed: &watch::Sender<()>,
    limit: Duration,
    count: usize,
    what: &str,
    is_so: impl Fn(&T) -> bool,
) -> T {
    let mut changed = changed.subscribe();
    within(limit, what, async {
        loop {
            changed.borrow_and_update();
            let found = list.lock().expect("no panic inside").iter().filter(|one| is_so(one)).nth(count).cloned();
            if let Some(found) = found {
                return found;
            }
            changed.changed().await.expect("the list lives");
        }
    })
    .await
}
