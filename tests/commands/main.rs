//! What the commands print, and their exit codes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod access;
mod bad_input;
mod check;
mod config;
#[path = "../support/denied.rs"]
mod denied;
mod held;
mod install;
mod lock;
mod manual;
mod prune;
mod replica;
#[path = "../support/scratch.rs"]
mod scratch;
mod status;
mod transaction;
#[allow(dead_code, reason = "each test binary has its own copy, and uses a part of it")]
#[path = "../support/wait.rs"]
mod wait;
mod witness;
mod world;
