//! Reports what a test cannot check where it runs. That fails where a complete run is asked for (`TENURE_COMPLETE=1`), unless
//! the list `.ci/cannot` gives the reason why this kind of machine cannot.

use std::{fmt::Display, io::Write as _};

/// Known gaps, a line for each: what is not checked, a colon, why.
const KNOWN: &str = include_str!("../../.ci/cannot");

/// Says that this is not checked, and what stands in the way.
pub fn not_run(what: &str, reason: impl Display) {
    // Past the capture of the harness: a test that did nothing must not look like one that passed.
    let _ = writeln!(std::io::stderr(), "NOT RUN: {what}: {reason}");
    let is_asked_for = std::env::var("TENURE_COMPLETE").is_ok_and(|value| value == "1");
    let is_known = KNOWN.lines().any(|line| line.split_once(": ").is_some_and(|(known, _)| known == what));
    assert!(!is_asked_for || is_known, "TENURE_COMPLETE=1, and .ci/cannot does not have this: {what}: {reason}");
}
