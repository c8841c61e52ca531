//! What the commands print, and their exit codes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod access;
mod bad_input;
mod check;
mod config;
mod held;
mod inject;
mod install;
mod lock;
mod manual;
mod prune;
mod replica;
mod status;
mod transaction;
mod witness;
mod world;
