//! A command line that is not carried out: what is printed, and the exit code.

use std::{
    ffi::OsString,
    fmt,
    io::{self, Write as _},
};

use clap::{
    CommandFactory as _,
    error::{ContextKind, ContextValue, ErrorKind},
};

use super::Line;

use crate::{
    console::{heard, printed},
    exit,
};

/// A command line that is not carried out: it asks for help or the version, or cannot be parsed.
#[derive(Debug)]
pub struct Refused {
    error: clap::Error,
    /// The first word.
    word: String,
}

impl Refused {
    pub(super) fn new(mut error: clap::Error, line: &[OsString]) -> Self {
        // A flag that does not exist is hardly ever meant for the workload.
        if let Some(ContextValue::StyledStrs(mut tips)) = error.remove(ContextKind::Suggested) {
            tips.retain(|tip| !tip.to_string().starts_with("to pass "));
            if !tips.is_empty() {
                error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
            }
        }
        Self { error, word: line.get(1).map(|word| word.to_string_lossy().into_owned()).unwrap_or_default() }
    }

    /// Prints the help, the version or the error where it belongs, and returns the exit code.
    pub fn report(&self) -> u8 {
        let outcome = self.error.print();
        if let Some(tip) = self.tip() {
            let _ = writeln!(io::stderr(), "\n  tip: {tip}");
        }
        if self.error.use_stderr() { self.code() } else { printed(heard(outcome), self.code()) }
    }

    /// Returns true if the line was to start a container's workload, not a command that people run beside one.
    pub fn is_of_run(&self) -> bool {
        self.error.use_stderr() && (["run", "lock", "task"].contains(&&*self.word) || !names().any(|name| name == self.word))
    }

    /// A tip about an unexpected word.
    pub(super) fn tip(&self) -> Option<String> {
        let Some(ContextValue::String(unexpected)) = self.error.get(ContextKind::InvalidArg) else { return None };
        let takes_workload = self.is_of_run() || self.word == "check";
        if unexpected.starts_with('-') || self.error.kind() != ErrorKind::UnknownArgument || !takes_workload {
            return None;
        }
        if self.word.starts_with('-') && names().any(|name| name == *unexpected) {
            return Some(format!("the command {unexpected} goes first, before all options"));
        }
        let near = names().map(|name| (strsim::osa_distance(&name, &self.word), name)).min();
        let near = near.filter(|(far, _)| (1..=self.word.chars().count() / 3).contains(far));
        Some(near.map_or_else(
            || "the workload goes after --, as in: tenure --lease NAME -- COMMAND".into(),
            |(_, name)| format!("there is a command `{name}`"),
        ))
    }

    pub(super) fn code(&self) -> u8 {
        if !self.error.use_stderr() {
            return 0;
        }
        // A flag at the end of the line lacks its value, which clap reports as an empty invalid one.
        let missing = matches!(self.error.get(ContextKind::InvalidValue), Some(ContextValue::String(value)) if value.is_empty());
        let of_a_value = matches!(self.error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation);
        if of_a_value && !missing { exit::INVALID } else { exit::USAGE }
    }
}

/// The names of the commands.
fn names() -> impl Iterator<Item = String> {
    let names: Vec<_> = Line::command().get_subcommands().map(|face| face.get_name().to_owned()).collect();
    names.into_iter()
}

/// As printed, without the tip.
impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}
