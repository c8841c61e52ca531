//! Init's own lines, while no elector is there to write them; and the last words of a failed start.
//!
//! Never waits: see [`Lines`]. Level and format are those of the elector's lines.

use crate::{
    clock,
    config::{self, LogFormat, LogLevel},
    stderr::{Lines, leave},
};

/// Init's lines.
#[derive(Debug)]
pub(super) struct Log {
    config: config::Log,
    /// Opened with the first line.
    lines: Option<Lines>,
}

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Error,
    Warn,
    Info,
}

impl Log {
    pub(super) const fn new(config: config::Log) -> Self {
        Self { config, lines: None }
    }

    /// Writes a line, if its level is shown.
    pub(super) fn line(&mut self, level: Level, text: &str) {
        if !level.is_shown(self.config.level) {
            return;
        }
        let format = self.config.format;
        let line = render(format, level, text);
        let dropped =
            |count| render(format, Level::Warn, &format!("{count} log lines were dropped because nobody read standard error"));
        self.lines.get_or_insert_with(Lines::new).write(line.as_bytes(), dropped);
    }

    /// Says why there is nothing to run, also where kubelet looks for it.
    pub(super) fn last_words(&mut self, text: &str) {
        self.line(Level::Error, text);
        leave(&format!("{text}\n"));
    }
}

impl Level {
    const fn is_shown(self, least: LogLevel) -> bool {
        match least {
            LogLevel::Error => matches!(self, Self::Error),
            LogLevel::Warn => matches!(self, Self::Error | Self::Warn),
            LogLevel::Info | LogLevel::Debug | LogLevel::Trace => true,
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Error => "ERROR",
            Self::Warn => "WARN",
            Self::Info => "INFO",
        }
    }
}

fn render(format: LogFormat, level: Level, text: &str) -> String {
    let now = clock::timestamp();
    match format {
        LogFormat::Text => format!("{now:.6} {:>5} {text}\n", level.word()),
        LogFormat::Json => {
            let object = serde_json::json!({ "timestamp": format!("{now:.6}"), "level": level.word(), "message": text });
            format!("{object}\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_form_of_the_electors_lines() {
        let text = render(LogFormat::Text, Level::Warn, "odd");
        assert!(text.ends_with("Z  WARN odd\n"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&render(LogFormat::Json, Level::Error, "a \"b\"")).unwrap();
        assert_eq!((json["level"].as_str(), json["message"].as_str()), (Some("ERROR"), Some("a \"b\"")));
    }

    #[test]
    fn only_what_matters_enough_is_shown() {
        assert!(!Level::Info.is_shown(LogLevel::Warn));
        assert!(Level::Warn.is_shown(LogLevel::Warn));
        assert!(!Level::Warn.is_shown(LogLevel::Error));
        assert!(Level::Info.is_shown(LogLevel::Info));
    }
}
