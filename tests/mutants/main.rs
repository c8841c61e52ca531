//! Every rule is tested: mutants of the shipping code, each without one rule of the law, and the checks that find them.
//!
//! `law/*.toml` is the list: which part of the law is removed and where, which unit test, which family of the model, how many terms
//! of the simulation and how many worlds of init's turn find it, and where none of the last three does, why. Without arguments this
//! only checks that every mutant still applies and quotes its rule. The rest are commands:
//!
//! ```text
//! tests/mutants/run                       each is found by what the list says
//! tests/mutants/run RULE|NAME...          those of some rules
//! tests/mutants/run --all [RULE|NAME]...  with every check, so that the list can be written
//! tests/mutants/run --generated PATH...   generated ones of these rooms: which tests find each, and which never alone
//! ```
//!
//! All mutants are built at once ([`weave`]), in a copy of the product ([`copy`]): this takes seconds for each mutant instead of
//! minutes.

#![allow(clippy::expect_used, clippy::print_stderr, clippy::print_stdout, reason = "a test fails by panicking, and says why")]

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

mod check;
mod copy;
mod generate;
mod list;
mod matrix;
mod run;
mod weave;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(("run", wanted)) = arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        return run::run(wanted);
    }
    let applies = Trial::test("every_mutant_applies_to_exactly_one_place", || {
        let wrong: Vec<String> = list::read().iter().filter_map(|mutant| mutant.change(1).err()).collect();
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n").into()) }
    });
    let quotes = Trial::test("every_sentence_is_a_quotation_of_its_rule", || {
        let wrong: Vec<String> = list::read().iter().filter_map(|mutant| mutant.quotes().err()).collect();
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n").into()) }
    });
    libtest_mimic::run(&Arguments::from_args(), vec![applies, quotes]).exit_code()
}
