//! All tests that need an API server, in one pool: each case has a namespace of its own, mostly waits, and shares the servers.
//!
//! ```text
//! cargo test --test cluster                       all
//! cargo test --test cluster case_56               a case, by the number or by a word of its name
//! cargo test --test cluster real::                those on the real server (the others: embedded::)
//! ```

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, unreachable_pub, reason = "a test panics, and says why")]
// A `json!` recurses with each row of a table.
#![recursion_limit = "256"]

use std::process::ExitCode;

mod apiserver; // what clients of Leases depend on, the same on the embedded server as on the real one
mod beside; // the commands that watch Leases, or delete them
mod collector;
mod conformance; // the law, seen from outside
mod deploy; // `deploy/` is admitted, and grants what is needed
mod documentation; // each command of the README and of docs/ works
mod harness; // what all of these rely on
mod headline; // how soon the next leader runs
mod health; // what probes of the workload lead to
mod locks; // `tenure lock`, alone, in a crowd and beside grelmicro
mod modes; // what runs on replicas that do not lead
mod monitoring; // metrics, as a real Prometheus reads them
mod pages; // the page of a replica, in a real browser
mod skew; // an earlier tenure and this one on one Lease
mod telemetry_replicas; // what replicas report of their transitions
mod term_page; // what a program reads of its term, and the examples of docs/term.md
mod traffic; // the EndpointSlice of the leader, and Events
mod transactions; // changes to several objects, all made or all undone
mod witness; // what a killed replica held is given back at once
mod workloads; // config/examples with the programs that they are for

/// The program.
const TENURE: &str = env!("CARGO_BIN_EXE_tenure");

fn main() -> ExitCode {
    support::slewed::steady();
    let mut groups = conformance::groups();
    groups.extend(beside::groups());
    groups.push(("deploy", deploy::all()));
    groups.push(("one_label", deploy::of_one_label()));
    groups.push(("documentation", documentation::all()));
    groups.push(("telemetry", telemetry_replicas::all()));
    groups.push(("harness", harness::all()));
    groups.push(("headline", headline::all()));
    groups.push(("health", health::all()));
    groups.push(("locks", locks::all()));
    groups.push(("modes", modes::all()));
    groups.push(("monitoring", monitoring::all()));
    groups.push(("pages", pages::all()));
    groups.push(("skew", skew::all()));
    groups.push(("term_page", term_page::all()));
    groups.push(("traffic", traffic::all()));
    groups.push(("transactions", transactions::all()));
    groups.push(("witness", witness::all()));
    groups.push(("workloads", workloads::all()));
    groups.extend(apiserver::groups());
    support::case::main(TENURE, groups)
}
