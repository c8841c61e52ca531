//! The locks of real grelmicro, in Python, on the same Leases.

use std::{
    collections::BTreeSet,
    fs,
    io::Write as _,
    process::{Command, Output, Stdio},
};

use support::{Case, Stage, cases, not_run};
use tenure::{
    cli::{self, ConfigFlags},
    loading::{self, Purpose},
};

use super::crowd::{counter, ended};

const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/locks");
const NAMES: usize = 500;
/// Number of grelmicro's rounds.
const ROUNDS: usize = 20;
/// Each deletes the Lease when its work is over, and takes one that is gone at once: so both have their turns.
const SHARED: [&str; 3] = ["--set=lease.release=delete", "--set=lease.creationWait=0s", "Shared.Count"];

pub(super) fn all() -> Vec<Case> {
    cases![five_hundred_names_mean_the_same_lease, a_number_that_both_count_is_exact]
}

/// Runs one of its scripts; none, and said so, where grelmicro cannot be had.
pub(super) fn python(script: &str, arguments: &[&str], input: &str) -> Option<Output> {
    let mut command = Command::new(format!("{HERE}/grelmicro"));
    command.arg(format!("{HERE}/{script}")).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("bash");
    // One that ends at once has read nothing.
    drop(child.stdin.take().expect("piped").write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("it ends");
    if output.status.code() == Some(69) {
        not_run("locks shared with grelmicro", String::from_utf8_lossy(&output.stderr).trim());
        return None;
    }
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    Some(output)
}

/// Returns the name of this lock's Lease; none if the name is refused.
fn lease(prefix: &str, name: &str) -> Option<String> {
    let flags = ConfigFlags {
        lease_argument: Some(name.to_owned()),
        preset: cli::Preset::Lock(cli::Lock::default()),
        set: vec![format!("lease.prefix={prefix}")],
        ..ConfigFlags::default()
    };
    Some(loading::load(&flags, &["true".into()], Purpose::Run).ok()?.config.lease.name)
}

async fn five_hundred_names_mean_the_same_lease(_: Stage) {
    let names = names();
    let input = serde_json::to_string(&names).expect("JSON");
    for prefix in ["", "Shop.", "a--", "\u{dc}_"] {
        let Some(output) = python("names.py", &[prefix], &input) else { return };
        let theirs: Vec<String> = serde_json::from_slice(&output.stdout).expect("names");
        let ours: Vec<_> = names.iter().map(|name| lease(prefix, name)).collect();
        assert_eq!(theirs.len(), NAMES);
        let mut refused = 0;
        for ((name, ours), theirs) in names.iter().zip(ours).zip(theirs) {
            // Without a character that a name may have all would be one lock.
            let Some(ours) = ours else {
                refused += 1;
                assert!(!name.to_lowercase().contains(|c: char| c.is_ascii_alphanumeric()), "{name:?} is refused");
                continue;
            };
            assert_eq!(ours, theirs, "{name:?}");
        }
        assert!(refused < NAMES / 4, "{refused}");
    }
}

/// Names with all that people write, some of them longer than a name can be.
fn names() -> Vec<String> {
    let long = "long".repeat(75);
    let others = "\u{130}|\u{212a}|\u{df}|\u{3a3}|\u{1e9e}|\u{e9}|\u{65e5}\u{672c}|\u{1f512}|\t|X\u{301}";
    let parts = "a|Z|7|-|--|.|_|:|/| |my-resource".split('|').chain(others.split('|')).chain([&*long]);
    let parts: Vec<_> = parts.collect();
    let mut names: BTreeSet<String> = parts.iter().copied().map(str::to_owned).collect();
    let mut random = fastrand::Rng::with_seed(26);
    while names.len() < NAMES {
        let some = (0..random.usize(1..9)).map(|_| parts[random.usize(..parts.len())]);
        names.insert(some.collect());
    }
    names.into_iter().collect()
}

async fn a_number_that_both_count_is_exact(stage: Stage) {
    let file = stage.directory().join("count");
    fs::write(&file, "0\n").expect("a file");
    let (kubeconfig, path) = (stage.kubeconfig().to_string_lossy().into_owned(), file.to_string_lossy().into_owned());
    let (namespace, rounds) = (stage.namespace.clone(), ROUNDS.to_string());
    let arguments = move || python("count.py", &[&kubeconfig, &namespace, "Shared.Count", &path, &rounds], "");
    let theirs = tokio::task::spawn_blocking(move || arguments().is_some());

    let mut ours = 0;
    while !theirs.is_finished() {
        let code = ended(counter(&stage, "ours", &SHARED, &file)).await;
        assert_eq!(code, Some(0), "{}", fs::read_to_string(stage.directory().join("ours.log")).expect("a log"));
        ours += 1;
    }

    if theirs.await.expect("it ends") {
        assert_eq!(fs::read_to_string(file).expect("a file").trim(), (ours + ROUNDS).to_string());
        assert!(ours >= 5, "they hardly met: {ours}");
    }
}
