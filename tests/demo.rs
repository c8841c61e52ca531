//! The README's first command.

#![allow(clippy::expect_used, reason = "a test fails by panicking, and says why")]

use std::process::{Command, Stdio};

#[test]
fn the_demo_ends_by_itself_and_shows_that_no_two_ran_at_once() {
    let mut command = Command::new("timeout");
    command.args(["120", env!("CARGO_BIN_EXE_tenure"), "demo"]).stdin(Stdio::null());

    let output = command.output().expect("the demo runs");

    let (shown, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{shown}\n{said}", output.status);
    for act in ["SIGTERM", "SIGKILL to its init", "SIGSTOP to its elector", "SIGSTOP to its init", "cut off from the API server"]
    {
        assert!(shown.contains(act), "no {act:?} in\n{shown}");
    }
    assert!(shown.contains("no two at once; fencing tokens only rose."), "{shown}");
    assert_eq!(said, "");
}
