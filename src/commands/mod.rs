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

/// Prints the answer of a command to standard output; the exit code, as of [`printed`].
fn answer(text: &str, code: u8) -> u8 {
    printed(say(text), code)
}

/// Prints to standard output.
fn say(text: &str) -> io::Result<()> {
    let mut out = io::stdout();
    heard(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// A reader that went away is no failure.
pub(crate) fn heard(outcome: io::Result<()>) -> io::Result<()> {
    outcome.or_else(|error| if error.kind() == ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })
}

/// `code`, or where all is well but what went to standard output, 70.
pub(crate) fn printed(outcome: io::Result<()>, code: u8) -> u8 {
    match outcome {
        Ok(()) => code,
        Err(error) => {
            complain(&format!("standard output: {error}"));
            if code == 0 { UNPRINTED } else { code }
        }
    }
}

/// Prints to standard error, as whoever complains.
fn complain(text: &str) {
    drop(writeln!(io::stderr(), "tenure: {text}"));
}
