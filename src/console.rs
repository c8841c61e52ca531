//! Prints what commands say to people: answers on standard output, complaints on standard error.
//!
//! Owns the exit code of an answer that could not be printed. Never used by a replica that runs a workload: unlike
//! [`crate::stderr`], it blocks on a slow reader.

use std::io::{self, ErrorKind, Write as _};

use crate::{exit, words::visible};

/// Prints a command's answer to standard output, and returns the exit code as [`printed`] does.
pub(crate) fn answer(text: &str, code: u8) -> u8 {
    printed(say(text), code)
}

/// Prints to standard output. A reader that went away is no error.
pub(crate) fn say(text: &str) -> io::Result<()> {
    heard(tell(text))
}

/// Prints to standard output. A reader that went away is an error.
pub(crate) fn tell(text: &str) -> io::Result<()> {
    let mut out = io::stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

/// Turns the error of a reader that went away into a success.
pub(crate) fn heard(outcome: io::Result<()>) -> io::Result<()> {
    outcome.or_else(|error| if error.kind() == ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })
}

/// `code`, or 70 if standard output failed: nobody knows the answer that `code` stands for.
pub(crate) fn printed(outcome: io::Result<()>, code: u8) -> u8 {
    match outcome {
        Ok(()) => code,
        Err(error) => refuse(exit::INTERNAL, &format!("standard output: {error}")),
    }
}

/// Prints why a command ends, and returns its exit code.
pub(crate) fn refuse(code: u8, why: &str) -> u8 {
    complain(why);
    code
}

/// Prints a message of tenure's own to standard error. No line of it holds characters that a terminal obeys.
pub(crate) fn complain(text: &str) {
    let lines: Vec<_> = text.split('\n').map(visible).collect();
    let _ = writeln!(io::stderr(), "tenure: {}", lines.join("\n"));
}
