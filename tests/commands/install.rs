//! `tenure install`: a copy that runs, in place of whatever was there.

use std::{fs, process::Command};

use support::Scratch;

use crate::world::tenure;

#[test]
fn a_copy_runs_and_replaces_another_even_while_that_runs() {
    let scratch = Scratch::new();
    let file = scratch.join("tenure").to_str().unwrap().to_owned();

    tenure(&["install", &file], &[]).says(0, &[]);
    let mut running = Command::new(&file).args(["--leader-election=off", "--", "sleep", "infinity"]).spawn().unwrap();
    tenure(&["install", &file], &[]).says(0, &[]);

    let version = Command::new(&file).arg("--version").output().unwrap();
    assert!(version.status.success() && version.stdout.starts_with(b"tenure "), "{version:?}");
    running.kill().unwrap();
    running.wait().unwrap();
    assert_eq!(fs::read_dir(&*scratch).unwrap().count(), 1, "nothing else is left");
}

#[test]
fn what_cannot_be_written_is_named() {
    tenure(&["install", "/nowhere/tenure"], &[]).says(70, &["/nowhere/tenure: No such file or directory"]);
    tenure(&["install"], &[]).says(64, &["Usage: tenure install <FILE>"]);
}
