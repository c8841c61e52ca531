//! deploy/ on a real node: the Dockerfile's image under kubelet and containerd, and every way in which a leader can end there.
//!
//! Run it as root: `.ci/nightly node`. It builds what it needs, prints a table of measured gaps and cleans up after itself.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says why"
)]

use std::{env, path::Path, process::ExitCode};

mod apart;
#[path = "../support/incomplete.rs"]
mod incomplete;
mod node;
mod show;
mod stamps;

fn main() -> ExitCode {
    match env::var_os(apart::DIRECTORY) {
        None => apart::run(),
        Some(directory) => show::run(Path::new(&directory)),
    }
}
