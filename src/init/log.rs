//! Init's own lines, while no elector is there to write them; and the last words of a failed start.
//!
//! Never waits: see [`Lines`]. Level and format are those of the elector's lines.

use crate::{
    config::{self, LogLevel},
    stderr::{self, Lines, leave},
};

/// Init's lines.
#[derive(Debug)]
pub(super) struct Log {
    config: config::Log,
    /// Opened with the first line.
    lines: Option<Lines>,
}

impl Log {
    pub(super) const fn new(config: config::Log) -> Self {
        Self { config, lines: None }
    }

    pub(super) fn warn(&mut self, text: &str) {
        self.write(LogLevel::Warn, text);
    }

    /// Says why there is nothing to run, also where kubelet looks for it.
    pub(super) fn last_words(&mut self, text: &str) {
        self.write(LogLevel::Error, text);
        leave(&format!("tenure: {text}\n"));
    }

    fn write(&mut self, level: LogLevel, text: &str) {
        let config::Log { level: least, format } = self.config;
        if level <= least {
            self.lines.get_or_insert_with(|| Lines::new(format)).write(stderr::line(format, level, text).as_bytes());
        }
    }
}
