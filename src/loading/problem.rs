//! Why a configuration is refused, and where each value came from, as people read it. The room that refuses a value
//! words the reason.

use std::fmt;

use crate::words::visible;

/// The place that a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The built-in default.
    Default,
    /// A line of a file.
    File {
        /// The path as it was typed.
        path: String,
        /// The line, counted from 1.
        line: Option<u64>,
    },
    /// A variable of the environment, by its name.
    Variable(String),
    /// A flag, as it was typed.
    Flag(String),
}

/// A reason why a configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The place of the value.
    pub origin: Origin,
    /// The key. Empty if the reason is about none.
    pub path: String,
    /// The fault and the remedy.
    pub message: String,
}

/// A configuration that is refused, with all reasons.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Invalid {
    /// The reasons. Never empty.
    pub problems: Vec<Problem>,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line: Some(line) } => write!(f, "{}:{line}", visible(path)),
            Self::File { path: name, line: None } | Self::Variable(name) | Self::Flag(name) => f.write_str(&visible(name)),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::Default => {}
            Origin::File { .. } | Origin::Variable(_) | Origin::Flag(_) => write!(f, "{}: ", self.origin)?,
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", visible(&self.path))?;
        }
        f.write_str(&visible(&self.message))
    }
}

/// Writes the number of problems, and each problem on its own line.
impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problems.len() {
            1 => f.write_str("the configuration is refused:")?,
            number => write!(f, "the configuration is refused for {number} reasons:")?,
        }
        self.problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}
