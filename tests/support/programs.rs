//! The pinned programs of a cluster, never those that happen to be installed.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

/// The path of one of them, which is built if it is not there yet.
///
/// # Panics
/// If it cannot be built; the reason is on standard error.
pub fn path(program: &str) -> PathBuf {
    let build = concat!(env!("CARGO_MANIFEST_DIR"), "/../cluster/binaries/build");
    let output = Command::new(build).arg(program).stderr(Stdio::inherit()).output().expect("the script starts");
    assert!(output.status.success(), "{program} cannot be built");
    PathBuf::from(String::from_utf8(output.stdout).expect("a path").trim())
}
