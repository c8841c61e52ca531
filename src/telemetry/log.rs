//! Log lines of the elector and of `tenure witness`, on standard error, as text or JSON.
//!
//! Owns the subscriber and its sink. Never waits for the reader of standard error: a line that does not fit is dropped and counted
//! (`crate::stderr`). Lines of libraries are shown from warn up at any level, because lower ones may hold credentials.

use std::{io, sync::Mutex};

use tracing::{Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{
    Layer,
    filter::Targets,
    fmt::{self, MakeWriter},
    layer::SubscriberExt,
    registry::Registry,
};

use crate::{
    config::{Log, LogFormat, LogLevel},
    stderr::StderrLog,
};

/// From here on, the process logs to standard error as `config` says. A second call changes nothing.
pub fn start(config: &Log) {
    let lines = Mutex::new(StderrLog::new(config.format));
    if tracing::subscriber::set_global_default(subscriber(config, lines)).is_err() {
        tracing::debug!("the log was started already");
    }
}

pub(super) fn subscriber<W>(config: &Log, writer: W) -> impl Subscriber + Send + Sync
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let level = level(config.level);
    let filter = Targets::new().with_target("tenure", level).with_default(level.min(LevelFilter::WARN));
    let lines = fmt::layer().with_writer(writer).with_target(false).with_ansi(false);
    let lines = match config.format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed(),
    };
    Registry::default().with(lines.with_filter(filter))
}

const fn level(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

/// The formatter passes each line in one write.
impl io::Write for StderrLog {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        Self::write(self, line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
pub(crate) use tests::captured;

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use serde_json::Value;
    use tracing::{Dispatch, subscriber::NoSubscriber};

    use super::*;

    /// Returns the lines that `log` makes the log write.
    pub(crate) fn captured(config: &Log, log: impl FnOnce()) -> String {
        // While there is only one dispatcher, what a thread without it logs first stays off for all.
        static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::new()));
        LazyLock::force(&SECOND);
        let (mut written, writer) = io::pipe().unwrap();
        tracing::subscriber::with_default(subscriber(config, std::sync::Arc::new(writer)), log);
        let mut lines = String::new();
        io::Read::read_to_string(&mut written, &mut lines).unwrap();
        lines
    }

    fn logged(level: LogLevel, format: LogFormat, log: impl FnOnce()) -> String {
        captured(&Log { level, format }, log)
    }

    #[test]
    fn a_json_line_is_one_object_with_its_fields_at_the_top() {
        let line = logged(LogLevel::Info, LogFormat::Json, || tracing::info!(role = "leader", term = 7, "leads"));
        let object: Value = serde_json::from_str(&line).unwrap();
        let fields = ["level", "message", "role", "term"].map(|name| object[name].to_string());
        assert_eq!(fields, ["\"INFO\"", "\"leads\"", "\"leader\"", "7"]);
        assert!(object["timestamp"].is_string() && line.ends_with('\n'));
    }

    #[test]
    fn a_text_line_has_its_fields_behind_the_message() {
        let line = logged(LogLevel::Info, LogFormat::Text, || tracing::warn!(role = "leader", "leads"));
        assert!(line.contains(" WARN leads role=\"leader\"\n"), "{line}");
    }

    #[test]
    fn lines_below_the_level_are_not_shown() {
        let lines = logged(LogLevel::Warn, LogFormat::Text, || {
            tracing::info!("hidden");
            tracing::warn!("shown");
        });
        assert!(lines.contains("shown") && !lines.contains("hidden"), "{lines}");
    }

    #[test]
    fn a_library_warns_only_where_we_do() {
        let lines = logged(LogLevel::Error, LogFormat::Text, || {
            tracing::warn!(target: "kube_client", "a warning");
            tracing::error!(target: "kube_client", "an error");
        });
        assert!(lines.contains("an error") && !lines.contains("a warning"), "{lines}");
    }

    #[test]
    fn a_library_shows_no_more_than_warnings_at_any_level() {
        let lines = logged(LogLevel::Trace, LogFormat::Text, || {
            tracing::info!(target: "hyper::proto", "authorization: Bearer secret");
            tracing::warn!(target: "kube_client", "a warning");
            tracing::trace!("ours");
        });
        assert!(lines.contains("a warning") && lines.contains("ours") && !lines.contains("secret"), "{lines}");
    }
}
