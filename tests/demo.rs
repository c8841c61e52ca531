//! The README's first command.

#![allow(clippy::expect_used, reason = "a test fails by panicking, and says why")]

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use support::{Scratch, safe, wait_until};

#[test]
fn the_demo_ends_by_itself_and_shows_that_no_two_ran_at_once() {
    let scratch = Scratch::new();
    let picture = scratch.join("demo.svg");
    let mut command = Command::new("timeout");
    command.args(["120", env!("CARGO_BIN_EXE_tenure"), "demo", "--picture"]).arg(&picture).stdin(Stdio::null());

    let output = command.output().expect("the demo runs");

    let (shown, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    safe(!shown.contains("TWO AT ONCE"), || shown.to_string());
    assert!(output.status.success(), "{}\n{shown}\n{said}", output.status);
    for act in ["SIGTERM", "SIGKILL to its init", "SIGSTOP to its elector", "SIGSTOP to its init", "cut off from the API server"]
    {
        assert!(shown.contains(act), "no {act:?} in\n{shown}");
    }
    assert!(shown.contains("no two at once; fencing tokens only rose."), "{shown}");
    assert_eq!(said, "");
    let is_seen = shown.lines().next().is_some_and(|line| line.ends_with("with a witness beside it."));
    let next = shown.lines().skip_while(|line| !line.contains("is killed")).nth(1).expect("a leader after it");
    assert_eq!(next.contains(" ms after"), is_seen, "{shown}");
    let drawn = fs::read_to_string(&picture).expect("a picture");
    let (runs, marks) = (drawn.matches("<title>ran from ").count(), drawn.matches("class=\"line dash\"").count());
    assert!(shown.contains(&format!("\n{runs} runs of the workload")) && marks == 6, "{shown}\n{drawn}");
}

#[test]
fn a_picture_that_cannot_be_written_is_refused_before_the_demo() {
    let output = Command::new(env!("CARGO_BIN_EXE_tenure")).args(["demo", "--picture", "/nowhere/demo.svg"]).output();

    let output = output.expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*output.stdout), (Some(78), &b""[..]), "{said}");
    assert!(said.contains("--picture: /nowhere/demo.svg cannot be written: No such file or directory"), "{said}");
}

#[test]
fn a_demo_that_can_make_no_pid_namespace_says_so_and_goes_on_without_witnesses() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    let mut demo = command.arg("demo").env("PATH", "/nowhere").stdout(Stdio::piped()).spawn().expect("the demo runs");
    let mut lines = BufReader::new(demo.stdout.take().expect("it was asked for")).lines().map_while(Result::ok);

    let first = lines.next().expect("a first line");

    let why = "as plain processes, without witnesses, as no PID namespace can be made here (unshare: No such file or directory";
    assert!(first.contains(why), "{first}");
    assert!(lines.any(|line| line.contains(" leads: ")));
    demo.kill().expect("it lives");
    demo.wait().expect("it ends");
}

#[test]
fn a_demo_that_is_killed_leaves_no_replica_behind() {
    let directory = Scratch::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    let mut demo = command.arg("demo").env("TMPDIR", &*directory).stdout(Stdio::piped()).spawn().expect("the demo runs");
    let mut lines = BufReader::new(demo.stdout.take().expect("it was asked for")).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line.contains(" leads: "))));
    let mark = directory.to_str().expect("a path of ASCII").to_owned();
    assert!(named(&mark) > 6, "three replicas, each with its elector, and a workload");

    demo.kill().expect("it lives");
    demo.wait().expect("it ends");

    wait_until("nothing of it is left", || named(&mark) == 0);
}

/// How many processes have this in their arguments or their environment.
fn named(mark: &str) -> usize {
    let is_marked = |file: std::path::PathBuf| fs::read(file).is_ok_and(|text| String::from_utf8_lossy(&text).contains(mark));
    let processes = fs::read_dir("/proc").expect("/proc is there").flatten();
    processes.filter(|process| ["cmdline", "environ"].into_iter().any(|file| is_marked(process.path().join(file)))).count()
}
