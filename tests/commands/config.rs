//! `tenure config` shows what can be configured, and what is.

use std::{fs, os::unix::fs::symlink};

use serde_json::Value;
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
fn the_schema_is_json_and_knows_no_other_key() {
    let ended = tenure(&["config", "schema"], &[]);
    assert_eq!(ended.code, Some(0));
    let schema: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(schema["additionalProperties"], false);
    assert!(schema["properties"]["workload"].is_object());
}

#[test]
fn the_effective_configuration_names_the_source_of_each_value() {
    let place = Scratch::new();
    let file = place.file("tenure.yaml", "lease:\n  name: billing\n  labels: {team: a}\n");
    let variables = [("TENURE_CONFIG", file.as_str()), ("TENURE_LEASE__PREFIX", "shop-"), ("TENURE_ROLE", "leader")];
    let ended = tenure(&["config", "effective", "--set", "lease.labels.tier=b", "--", "sleep", "10"], &variables);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for (line, source) in [
        ("name: shop-billing", format!("TENURE_LEASE__PREFIX, {file}:2")),
        ("labels: {\"team\":\"a\",\"tier\":\"b\"}", format!("--set lease.labels.tier, {file}:3")),
        ("command: [\"sleep\",\"10\"]", "the command line".into()),
        ("renewPeriod: 3s", "default".into()),
    ] {
        let said = ended.out.lines().find(|said| said.trim().starts_with(line)).unwrap_or_else(|| panic!("{line} in {ended:?}"));
        let (_, named) = said.split_once(" # ").unwrap();
        let mut named: Vec<_> = named.split(", ").collect();
        let mut expected: Vec<_> = source.split(", ").collect();
        named.sort_unstable();
        expected.sort_unstable();
        assert_eq!(named, expected, "{said}");
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
    tenure_with_etc(&without, &["config", "effective", "--lease", "x", "--", "true"]).says(0, &["name: x"]);
    for refused in [broken, dangling] {
        tenure_with_etc(&refused, &effective).says(78, &["/etc/tenure/tenure.yaml", "cannot be read"]);
    }
}

#[test]
fn a_name_that_was_changed_is_said() {
    let ended = tenure(&["config", "effective", "--lease", "Billing_Writer"], &[]);
    ended.says(0, &["name: billing-writer", "the Lease is called billing-writer, for \"Billing_Writer\" cannot be"]);
}
