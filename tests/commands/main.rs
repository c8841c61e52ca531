//! What the commands print, and their exit codes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod bad_input;
mod check;
mod config;
mod replica;
#[path = "../support/scratch.rs"]
mod scratch;
mod status;
mod world;
