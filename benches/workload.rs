//! The workload that the contestants of `figures` run: static and small, so that its own start and exit add as little as possible.

#![allow(clippy::expect_used, unreachable_pub, dead_code, reason = "one face of what the tests share")]

#[path = "../tests/support/workload.rs"]
mod workload;

fn main() -> std::process::ExitCode {
    workload::face().expect("the arguments of a workload")
}
