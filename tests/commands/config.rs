//! `tenure config` shows what can be configured, and what is.

use std::{fs, os::unix::fs::symlink};

use support::Scratch;

use crate::world::{tenure, tenure_with_etc, unprinted};

#[test]
fn the_defaults_are_a_file_to_start_from() {
    let defaults = tenure(&["config", "default"], &[]);
    defaults.says(0, &["lossGrace: 4s"]);
    let place = Scratch::new();
    let file = place.file("tenure.yaml", &defaults.out);
    let ended = tenure(&["config", "effective", "--config", &file, "--lease", "x"], &[]);
    ended.says(0, &[&format!("{file}:"), "name: x"]);
    assert_eq!(ended.err, "");
}

#[test]
fn what_could_not_be_printed_was_not_done() {
    for line in [&["config", "default"][..], &["--help"], &["check", "--help"], &["--version"]] {
        unprinted(line, &[]).says(70, &["standard output: No space left"]);
    }
}

#[test]
fn a_server_whose_token_nobody_has_and_a_demo_that_nobody_sees_end() {
    let place = Scratch::new();
    let file = place.join("kubeconfig");
    for line in [&["dev-server"][..], &["dev-server", "--kubeconfig-out", file.to_str().unwrap()], &["demo"]] {
        unprinted(line, &[]).says(70, &["No space left"]);
    }
}

#[test]
fn without_another_file_the_one_in_etc_is_read_if_there_is_one() {
    let (with, without, broken, dangling) = (Scratch::new(), Scratch::new(), Scratch::new(), Scratch::new());
    with.file("tenure.yaml", "lease: {name: billing}");
    fs::create_dir(broken.join("tenure.yaml")).unwrap();
    symlink("..data/tenure.yaml", dangling.join("tenure.yaml")).unwrap();
    let effective = ["config", "effective", "--", "true"];

    tenure_with_etc(&with, &effective).says(0, &["name: billing", "# /etc/tenure/tenure.yaml:1"]);
    let changed = ["name: a-b", "the Lease is called a-b, for \"A_B\" cannot be"];
    tenure_with_etc(&without, &["config", "effective", "--lease", "A_B", "--", "true"]).says(0, &changed);
    for refused in [broken, dangling] {
        tenure_with_etc(&refused, &effective).says(78, &["/etc/tenure/tenure.yaml", "cannot be read"]);
    }
}
