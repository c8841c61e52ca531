//! Every rule is tested: mutants of the shipping code, each without one rule of the law, and the checks that find them.
//!
//! `law/*.toml` is the list: which part of the law is removed and where, which family of the model and how many terms of the
//! simulation find it, and where neither does, why. Without arguments this only checks that every mutant still applies and quotes
//! its rule, and that the package it is built in compiles. The rest are commands:
//!
//! ```text
//! tests/mutants/run                   each is found by what the list says
//! tests/mutants/run RULE|NAME...      those of some rules
//! tests/mutants/run --all [RULE|NAME]...  with every check, so that the list can be written
//! tests/mutants/run everywhere        those that cargo-mutants makes of the deciding modules; survivors.toml explains the rest
//! tests/mutants/run everywhere TEXT...  those with one of these texts in their names
//! ```
//!
//! All mutants are built at once ([`weave`]), in a package of only the deciding modules ([`package`]): this takes seconds for each
//! mutant instead of minutes.

#![allow(clippy::expect_used, clippy::print_stderr, clippy::print_stdout, reason = "a test fails by panicking, and says why")]

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

mod check;
mod copy;
mod everywhere;
mod list;
mod package;
mod run;
mod weave;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        Some(("run", [word, wanted @ ..])) if word == "everywhere" => return everywhere::run(wanted),
        Some(("run", wanted)) => return run::run(wanted),
        Some(_) | None => {}
    }
    let applies = Trial::test("every_mutant_applies_to_exactly_one_place", || {
        let wrong: Vec<String> = list::read().iter().filter_map(|mutant| mutant.change(1).err()).collect();
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n").into()) }
    });
    let quotes = Trial::test("every_sentence_is_a_quotation_of_its_rule", || {
        let law = list::law();
        let wrong: Vec<String> = list::read().iter().filter_map(|mutant| mutant.quotes(&law).err()).collect();
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n").into()) }
    });
    let compiles = Trial::test("the_rooms_that_decide_and_their_checks_need_no_other_room", || {
        let copy = copy::Copy::within(&std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutants"));
        check::Checks::compile(&copy).map_err(Into::into)
    });
    libtest_mimic::run(&Arguments::from_args(), vec![applies, quotes, compiles]).exit_code()
}
