//! Tests what tenure does to processes, on real ones, mostly in fresh PID namespaces.

#![allow(clippy::expect_used, reason = "a test ends where its preparations fail")]

mod firing;
mod forgetting;
mod notifying;
mod spawning;
mod sweeping;
mod world;
