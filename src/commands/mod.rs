//! Commands for people: one room each.
//!
//! Owns what they print and their exit codes. Never part of a replica that runs a workload.

use std::io::{self, ErrorKind, Write as _};

use crate::{cli::Command, config::Invalid};

mod access;
mod check;
mod config;
mod demo;
mod dev_server;
mod interrupts;
mod status;

/// Carries out a command; the exit code.
#[must_use]
pub fn run(command: &Command) -> u8 {
    match command {
        Command::Config(about) => config::run(about),
        Command::Check(arguments) => check::run(arguments),
        Command::Status(arguments) => status::run(arguments),
        Command::DevServer(about) => dev_server::run(about),
        Command::Demo(part) => demo::run(part),
    }
}

/// Says what is odd in a configuration that is valid.
fn warn(notes: &[String]) {
    for note in notes {
        complain(note);
    }
}

/// Says why a configuration is refused; the exit code.
fn refuse(invalid: &Invalid) -> u8 {
    complain(&invalid.to_string());
    78
}

/// What could not be printed was not done.
const UNPRINTED: u8 = 70;

/// Prints the answer of a command to standard output, and ends with `code`, or where that is not printed and all is well, with 70.
fn answer(text: &str, code: u8) -> u8 {
    if say(text) || code != 0 { code } else { UNPRINTED }
}

/// Prints to standard output; whether that worked. A reader that went away is no failure.
fn say(text: &str) -> bool {
    let mut out = io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            complain(&format!("standard output: {error}"));
            false
        }
        Ok(()) | Err(_) => true,
    }
}

/// Prints to standard error, as whoever complains.
fn complain(text: &str) {
    drop(writeln!(io::stderr(), "tenure: {text}"));
}
