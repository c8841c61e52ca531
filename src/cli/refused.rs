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
    intent: Intent,
    /// What an unexpected word was probably meant to be.
    meant: Option<String>,
}

/// What the line was probably written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Intent {
    /// To run a workload.
    Run,
    /// To check whether one would run.
    Check,
    /// Another command, the help or the version.
    Other,
}

impl Refused {
    pub(super) const fn new(error: clap::Error, intent: Intent, meant: Option<String>) -> Self {
        Self { error, intent, meant }
    }

    /// Prints the help, the version or the error where it belongs, and returns the exit code.
    #[must_use]
    pub fn report(&self) -> u8 {
        let outcome = self.error.print();
        if let Some(tip) = self.tip() {
            drop(writeln!(io::stderr(), "\n  tip: {tip}"));
        }
        if self.error.use_stderr() { self.code() } else { printed(heard(outcome), self.code()) }
    }

    /// Whether this was to start a container's workload, and not a command that people run beside one.
    #[must_use]
    pub const fn is_of_run(&self) -> bool {
        matches!(self.intent, Intent::Run)
    }

    /// A tip about an unexpected word.
    pub(super) fn tip(&self) -> Option<String> {
        let word = matches!(self.error.get(ContextKind::InvalidArg), Some(ContextValue::String(word)) if !word.starts_with('-'));
        if !word || self.error.kind() != ErrorKind::UnknownArgument {
            return None;
        }
        let workload = "the workload goes after --, as in: tenure --lease NAME -- COMMAND";
        let takes_workload = match self.intent {
            Intent::Run | Intent::Check => true,
            Intent::Other => false,
        };
        self.meant.clone().or_else(|| takes_workload.then(|| workload.into()))
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

/// clap's error, where its words say too little or mislead.
pub(super) fn in_our_words(mut error: clap::Error, line: &[OsString]) -> clap::Error {
    // A path may be anything.
    let is_wrong = |at: &usize| line[*at].to_str().is_none() && line[at - 1] != "--config";
    if error.kind() == ErrorKind::InvalidUtf8
        && let Some(at) = (1..line.len()).find(is_wrong)
    {
        return Line::command().error(ErrorKind::InvalidUtf8, format!("argument {at} is not UTF-8, as all arguments must be"));
    }
    // A flag that does not exist is hardly ever meant for the workload.
    if let Some(ContextValue::StyledStrs(tips)) = error.remove(ContextKind::Suggested) {
        let kept: Vec<_> = tips.into_iter().filter(|tip| !tip.to_string().starts_with("to pass ")).collect();
        if !kept.is_empty() {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(kept));
        }
    }
    error
}

/// As printed, without the tip.
impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}
