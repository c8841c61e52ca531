//! The workload of the contestants in `figures`. It is static and small, so that its start and exit add little to a figure.

#![allow(clippy::expect_used, unreachable_pub, dead_code, reason = "one face of what the tests share")]

#[path = "../tests/support/workload.rs"]
mod workload;

fn main() -> std::process::ExitCode {
    workload::face().expect("the arguments of a workload")
}
