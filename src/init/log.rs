//! The log of init: its own lines while no elector is there to write them, the output of hooks, and the termination message.
//!
//! An elector writes init's lines ([`Warn`](crate::link::ToElector::Warn), `telemetry::event_log`), so that all have one form.
//! Never waits: see [`StderrLog`]. Level and format are those of the elector's lines.

use crate::{
    config::{self, LogLevel},
    stderr::{self, StderrLog, write_termination_message},
    words::visible,
};

/// Init's lines.
#[derive(Debug)]
pub(super) struct Log {
    config: config::Log,
    /// Opened with the first line.
    lines: Option<StderrLog>,
}

impl Log {
    pub(super) const fn new(config: config::Log) -> Self {
        Self { config, lines: None }
    }

    pub(super) fn info(&mut self, text: &str) {
        self.write(LogLevel::Info, text);
    }

    pub(super) fn warn(&mut self, text: &str) {
        self.write(LogLevel::Warn, text);
    }

    /// Says why there is nothing to run, also where kubelet looks for it. An exit code of 0 is no error.
    pub(super) fn termination_message(&mut self, text: &str, code: u8) {
        let text = &visible(text);
        self.write(if code == 0 { LogLevel::Info } else { LogLevel::Error }, text);
        write_termination_message(&format!("tenure: {text}\n"));
    }

    fn write(&mut self, level: LogLevel, text: &str) {
        let config::Log { level: least, format } = self.config;
        if level <= least {
            self.lines.get_or_insert_with(|| StderrLog::new(format)).write(stderr::line(format, level, text).as_bytes());
        }
    }
}
