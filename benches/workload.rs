//! The workload of the contestants in `figures`. It is static and small, so that its start and exit add little to a figure.

#![allow(clippy::expect_used, reason = "it fails by panicking")]

fn main() -> std::process::ExitCode {
    support::workload::face().expect("the arguments of a workload")
}
