//! The conformance cases: black box, the same code against the embedded API server and a real one.
//!
//! One case, one test; the number in its name is the case's.

#![allow(clippy::expect_used, clippy::print_stderr, reason = "a test fails by panicking, and says why")]

use std::process::ExitCode;

#[path = "../support/mod.rs"]
mod support;

use support::case;

fn main() -> ExitCode {
    case::main(vec![])
}
