//! Every rule bites: mutants of the shipping code, each of which takes one rule of the law away, and the check that must find it.
//!
//! The `.toml` files beside this one are the list. Without arguments this only sees that every mutant still applies: its text
//! stands in its file exactly once. `tests/mutants/run [RULE|NAME]...` builds them one by one in a copy of the tree, runs the check
//! that must find each, and prints a table; that takes a minute or two for each.

#![allow(clippy::expect_used, clippy::print_stderr, clippy::print_stdout, reason = "a test fails by panicking, and says why")]

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

mod copy;
mod list;
mod run;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(("run", wanted)) = arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        return run::run(wanted);
    }
    let applies = Trial::test("every_mutant_applies_to_exactly_one_place", || {
        let wrong: Vec<String> = list::read().iter().filter_map(|mutant| mutant.apply(&list::root()).err()).collect();
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n").into()) }
    });
    libtest_mimic::run(&Arguments::from_args(), vec![applies]).exit_code()
}
