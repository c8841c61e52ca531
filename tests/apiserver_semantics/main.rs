//! The semantics of the Lease API: the same checks run against the embedded server and a real one.
//!
//! They are why the embedded server can stand in for a real one: both pass them.

#![allow(clippy::expect_used, clippy::print_stderr, reason = "a test fails by panicking, and says why")]

use std::process::ExitCode;

#[path = "../support/mod.rs"]
mod support;

mod create;
mod delete;
mod fields;
mod hand;
mod kubectl;
mod patch;
mod protobuf;
mod read;
mod update;
mod validation;
mod views;
mod watch;

use support::case;

fn main() -> ExitCode {
    case::main(vec![
        ("create", create::cases()),
        ("delete", delete::cases()),
        ("fields", fields::cases()),
        ("kubectl", kubectl::cases()),
        ("patch", patch::cases()),
        ("protobuf", protobuf::cases()),
        ("read", read::cases()),
        ("update", update::cases()),
        ("validation", validation::cases()),
        ("views", views::cases()),
        ("watch", watch::cases()),
    ])
}
