//! What the API of Leases does: the same checks against the embedded server and a real one.
//!
//! They are what makes the embedded server trustworthy: it may be used in place of a real one because both pass.

#![allow(clippy::expect_used, clippy::print_stderr, reason = "a test fails by panicking, and says why")]

use std::process::ExitCode;

#[path = "../support/mod.rs"]
mod support;

mod create;
mod delete;
mod hand;
mod kubectl;
mod patch;
mod read;
mod update;
mod views;
mod watch;

use support::case;

fn main() -> ExitCode {
    case::main(vec![
        ("create", create::cases()),
        ("delete", delete::cases()),
        ("kubectl", kubectl::cases()),
        ("patch", patch::cases()),
        ("read", read::cases()),
        ("update", update::cases()),
        ("views", views::cases()),
        ("watch", watch::cases()),
    ])
}
