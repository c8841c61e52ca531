//! `tenure install`: a copy that runs, in place of whatever was there.

use std::{
    fs,
    os::unix::{fs::symlink, net::UnixListener},
    process::Command,
};

use support::Scratch;

use crate::world::{TENURE, tenure};

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

#[test]
fn copies_that_are_made_at_the_same_time_all_succeed_and_one_whole_file_is_left() {
    let scratch = Scratch::new();
    let file = scratch.join("tenure");

    let started: Vec<_> = (0..8).map(|_| Command::new(TENURE).arg("install").arg(&file).spawn().unwrap()).collect();
    let ended: Vec<_> = started.into_iter().map(|mut child| child.wait().unwrap().code()).collect();

    assert_eq!(ended, [Some(0); 8]);
    assert!(fs::read(&file).unwrap() == fs::read(TENURE).unwrap(), "it is whole");
    assert_eq!(fs::metadata(&file).unwrap().permissions(), fs::metadata(TENURE).unwrap().permissions());
    assert_eq!(fs::read_dir(&*scratch).unwrap().count(), 1, "nothing else is left");
}

#[test]
fn a_link_beside_the_file_is_not_followed() {
    let scratch = Scratch::new();
    let (file, other) = (scratch.join("tenure"), scratch.file("other", "kept"));
    symlink(&other, scratch.join("tenure.part")).unwrap();

    tenure(&["install", file.to_str().unwrap()], &[]).says(0, &[]);

    assert_eq!(fs::read_to_string(other).unwrap(), "kept");
    assert!(fs::symlink_metadata(file).unwrap().is_file());
}

#[test]
fn a_fifo_and_a_socket_are_refused_and_stay() {
    let scratch = Scratch::new();
    let _listener = UnixListener::bind(scratch.join("socket")).unwrap();
    for file in [scratch.fifo("fifo"), scratch.join("socket")] {
        let kind = || fs::symlink_metadata(&file).unwrap().file_type();
        let before = kind();

        let ended = tenure(&["install", file.to_str().unwrap()], &[]);

        ended.says(78, &[&format!("{}: is neither a regular file nor a symbolic link", file.display())]);
        assert_eq!(kind(), before);
    }
}

#[test]
fn a_directory_is_refused_and_nothing_is_left_beside_it() {
    let scratch = Scratch::new();
    let directory = scratch.join("tenure");
    fs::create_dir(&directory).unwrap();

    tenure(&["install", directory.to_str().unwrap()], &[]).says(70, &["tenure: Is a directory"]);

    assert_eq!(fs::read_dir(&*scratch).unwrap().count(), 1);
}
