//! Tests what tenure does to processes, on real ones, mostly in fresh PID namespaces.

#![allow(clippy::expect_used, reason = "a test ends where its preparations fail")]

mod firing;
mod forgetting;
#[path = "../support/incomplete.rs"]
mod incomplete;
mod notifying;
#[path = "../support/scratch.rs"]
mod scratch;
#[path = "../support/slept.rs"]
mod slept;
mod spawning;
mod sweeping;
#[path = "../support/wait.rs"]
mod wait;
mod world;
