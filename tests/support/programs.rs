//! The pinned programs of a cluster, never those that happen to be installed.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::{Command, Stdio},
    sync::Mutex,
};

/// The path of one of them, which is built if it is not there yet.
pub fn path(program: &str) -> PathBuf {
    static FOUND: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut found = FOUND.lock().unwrap();
    found.entry(program.to_owned()).or_insert_with(|| find(program).expect("what it is built from")).clone()
}

/// The same; none if what it is built from is not there. The reason is on standard error.
pub fn find(program: &str) -> Option<PathBuf> {
    /// As in sysexits.h.
    const NO_INPUT: i32 = 66;
    let build = concat!(env!("CARGO_MANIFEST_DIR"), "/../cluster/binaries/build");
    let output = Command::new(build).arg(program).stderr(Stdio::inherit()).output().expect("the script starts");
    if output.status.code() == Some(NO_INPUT) {
        return None;
    }
    assert!(output.status.success(), "{program} cannot be built");
    Some(PathBuf::from(String::from_utf8(output.stdout).expect("a path").trim()))
}
