//! What `release/build` makes: binaries of both architectures that run, and what belongs to them.
//!
//! Two builds of the release take minutes: `.ci/nightly release`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking, and says why")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::Value;

#[path = "support/incomplete.rs"]
mod incomplete;
#[path = "support/programs.rs"]
mod programs;
#[path = "support/scratch.rs"]
mod scratch;

use scratch::Scratch;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// 8 MiB.
const LARGEST: u64 = 8 << 20;

/// As Debian calls it, the machine in an ELF header, and what runs its programs here.
const ARCHITECTURES: [(&str, u8, Option<&str>); 2] = [("amd64", 62, None), ("arm64", 183, Some("qemu-aarch64-static"))];

#[test]
fn a_release_is_complete_and_its_binaries_run() {
    let out = build();

    let mut sums = Command::new("sha256sum");
    succeeds(sums.args(["--check", "--strict", "SHA256SUMS"]).current_dir(&out));
    let listed = fs::read_to_string(out.join("SHA256SUMS")).unwrap();
    for file in ["linux-amd64.tar.gz", "linux-arm64.tar.gz"].map(|name| format!("tenure-{VERSION}-{name}")) {
        assert!(listed.contains(&file), "{file} is not in\n{listed}");
    }
    assert!(out.join(format!("tenure-{VERSION}.tgz")).exists(), "the chart");
    for (name, machine, emulator) in ARCHITECTURES {
        let unpacked = Scratch::new();
        let archive = out.join(format!("tenure-{VERSION}-linux-{name}.tar.gz"));
        succeeds(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(&*unpacked));
        for file in ["LICENSE", "man/tenure.1", "completions/tenure.bash", "completions/_tenure", "tenure.schema.json"] {
            assert!(unpacked.join(file).exists(), "{name}: {file}");
        }
        is_static(&unpacked.join("tenure"), machine);
        runs(&unpacked.join("tenure"), emulator);
    }
    lists_what_is_in_the_binary(&out.join(format!("tenure-{VERSION}.cdx.json")));
}

fn build() -> PathBuf {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/release/build");
    let output = Command::new(script).env("HELM", programs::path("helm")).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "the build failed");
    String::from_utf8(output.stdout).unwrap().trim().into()
}

fn is_static(file: &Path, machine: u8) {
    let bytes = fs::read(file).unwrap();
    let number = |at: usize, size: usize| bytes[at..at + size].iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    assert_eq!((&bytes[..5], bytes[18]), (&b"\x7fELF\x02"[..], machine), "{}", file.display());
    let (headers, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    let kinds: Vec<_> = (0..count).map(|at| number(headers + at * size, 4)).collect();
    assert!(!kinds.contains(&3), "it has an interpreter: it is not static");
    let size = fs::metadata(file).unwrap().len();
    assert!(size <= LARGEST, "{size} bytes");
}

fn runs(file: &Path, emulator: Option<&str>) {
    let command = |arguments: &[&str]| {
        let mut command = emulator.map_or_else(
            || Command::new(file),
            |emulator| {
                let mut command = Command::new(emulator);
                command.arg(file);
                command
            },
        );
        command.args(arguments);
        command
    };
    if emulator.is_some_and(|emulator| Command::new(emulator).arg("--version").output().is_err()) {
        return incomplete::not_run("aarch64", "there is no qemu-user-static");
    }
    let said = |arguments: &[&str]| String::from_utf8(succeeds(&mut command(arguments)).stdout).unwrap();

    assert_eq!(said(&["--version"]), format!("tenure {VERSION}\n"));
    assert!(said(&["config", "effective", "--lease", "x"]).contains("renewPeriod: 3s"));
    assert!(said(&["check", "--offline", "--lease", "x", "--", "true"]).contains("terminationGracePeriodSeconds: "));
    assert_eq!(said(&["--leader-election=off", "--", "echo", "runs"]), "runs\n");
    assert_eq!(command(&["--leader-election=off", "--", "sh", "-c", "exit 42"]).status().unwrap().code(), Some(42));
}

fn lists_what_is_in_the_binary(file: &Path) {
    let list: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    assert_eq!((&list["bomFormat"], &list["metadata"]["component"]["name"]), (&"CycloneDX".into(), &"tenure".into()));
    let names: Vec<_> = list["components"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"kube") && names.contains(&"rustls") && names.len() > 100, "{names:?}");
    assert!(!names.contains(&"stateright"), "only tests use it");
    let text = list.to_string();
    assert!(!text.contains(env!("CARGO_MANIFEST_DIR")), "it names directories of the machine that built it");
}

fn succeeds(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}
