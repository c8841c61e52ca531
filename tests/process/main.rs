//! What tenure does to processes, done to real ones: most of it inside fresh PID namespaces.

#![allow(clippy::expect_used, reason = "a test ends where its preparations fail")]

mod bomb;
mod burning;
mod notifying;
#[path = "../support/scratch.rs"]
mod scratch;
mod spawning;
mod sweeping;
mod world;
