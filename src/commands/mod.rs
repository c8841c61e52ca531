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

/// Prints to standard output. A reader that went away is no failure of the command.
fn say(text: &str) {
    let mut out = io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => complain(&format!("standard output: {error}")),
        Ok(()) | Err(_) => {}
    }
}

/// Prints to standard error, as whoever complains.
fn complain(text: &str) {
    drop(writeln!(io::stderr(), "tenure: {text}"));
}
