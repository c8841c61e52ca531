//! What is said of a mistake names its remedy, and nothing that would not help.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _, process::Command};

use crate::{scratch::Scratch, world::tenure};

#[test]
fn what_an_entry_of_a_map_has_to_be_is_a_string() {
    let place = Scratch::new();
    let file = place.file("tenure.yaml", "lease: {name: x}\nworkload:\n  env:\n    A: 1\n");
    let said = format!("{file}:4: workload.env.A: expected a string, found a number: put it in quotes");
    tenure(&["--config", &file, "--", "true"], &[]).says(78, &[&said]);
}

#[test]
fn a_dotted_key_in_a_file_is_answered_with_how_to_write_it() {
    let place = Scratch::new();
    let file = place.file("tenure.yaml", "lease.name: a\nworkload:\n  stop.grace: 5s\nlog.colour: red\n");
    let parts = [
        "lease.name: there is no such key: write name below lease",
        "workload.stop.grace: there is no such key: write grace below workload.stop",
        "log.colour: there is no such key: `tenure config default` lists them all",
    ];
    tenure(&["--config", &file, "--", "true"], &[]).says(78, &parts);
}

#[test]
fn a_list_or_a_map_that_cannot_be_parsed_is_refused_with_the_reason() {
    let variables = [("TENURE_WORKLOAD__COMMAND", "[sleep, 10"), ("TENURE_LEASE__LABELS", "{a: b, a: c}")];
    let ended = tenure(&["--lease", "x", "--set", "workload.env={A: b"], &variables);
    ended
        .says(78, &["TENURE_LEASE__LABELS: lease.labels: is a map: write it in YAML or JSON, such as {\"a\": \"b\"} (duplicate"]);
    for place in ["TENURE_WORKLOAD__COMMAND: ", "--set workload.env: "] {
        let line = ended.err.lines().find(|line| line.contains(place)).unwrap();
        assert!(line.ends_with(')') && line.contains("\"} (") | line.contains("\"] ("), "{line}");
    }
}

#[test]
fn an_entry_of_a_map_as_a_variable_is_answered_with_the_variable_of_the_map() {
    let variables = [("TENURE_WORKLOAD__ENV__FOO", "hunter2")];
    let ended = tenure(&["--lease", "x", "--", "true"], &variables);
    let remedy = "all entries go into one variable, such as TENURE_WORKLOAD__ENV={\"a\": \"b\"}";
    ended.says(78, &["TENURE_WORKLOAD__ENV__FOO: there is no such key: ", remedy]);
    assert!(!ended.err.contains("hunter2"), "{ended:?}");
}

#[test]
fn a_name_of_punctuation_is_refused_in_words_that_are_true_of_it() {
    for name in ["..", "-", "___"] {
        let flag = format!("--lease={name}");
        let said = format!("--lease: lease.name: {name:?} has no character that the name of an object may begin with");
        tenure(&[&flag, "--", "true"], &[]).says(78, &[&said]);
    }
}

#[test]
fn a_key_that_is_none_yet_is_not_answered_with_one_of_another_section() {
    for key in ["standby.command", "hooks.beforeLead.command", "workload.readiness.interval", "lease.priority"] {
        let ended = tenure(&["--lease", "x", "--set", &format!("{key}=1"), "--", "true"], &[]);
        ended.says(78, &["there is no such key: `tenure config default` lists them all"]);
    }
}

#[test]
fn a_toml_file_is_one_whatever_the_case_of_its_end() {
    let place = Scratch::new();
    let file = place.file("TENURE.TOML", "[lease]\nname = 'billing'\n");
    tenure(&["config", "effective", "--config", &file], &[]).says(0, &["name: billing"]);
}

#[test]
fn a_flag_that_does_not_exist_is_not_advised_as_the_workload() {
    for line in [&["--watch"][..], &["check", "--watch"]] {
        let ended = tenure(line, &[]);
        ended.says(64, &["unexpected argument '--watch' found"]);
        assert!(!ended.err.contains("as a value"), "{ended:?}");
    }
    tenure(&["--leese", "x"], &[]).says(64, &["a similar argument exists: '--lease'"]);
}

#[test]
fn an_argument_that_is_not_utf_8_is_named_by_its_position() {
    let mut tenure = Command::new(env!("CARGO_BIN_EXE_tenure"));
    let output = tenure.args(["--lease", "x", "--", "sh"]).arg(OsStr::from_bytes(b"\xff")).output().unwrap();
    assert_eq!(output.status.code(), Some(64));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("error: argument 5 is not UTF-8, as all arguments must be\n"), "{said}");
}
