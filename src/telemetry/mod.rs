//! Traces and log lines; can never delay a transition.
//!
//! Owns what people and collectors get to see of an election. Everything here is told what happened afterwards, on the elector's
//! own thread, and never waits there: log lines that do not fit are dropped, spans go to a bounded queue of the SDK's.
//!
//! The elector's loop calls [`log::start`] and [`Telemetry::start`] with init's first message, then [`Telemetry::report`] for
//! whatever the election reports, [`Telemetry::heard`] for each message from init, and [`Telemetry::amend`] before a Lead. Before
//! it sends Done it awaits the future of [`Telemetry::finish`], and keeps running meanwhile.

use tracing::warn;

use self::{
    event_log::EventLog,
    export::{Export, OtlpConfig},
    spans::Spans,
};
use crate::{
    election::{Event, trace::TraceContext},
    link::{InitialState, TermInfo, ToElector},
    time::Instant,
};

mod client;
mod event_log;
mod export;
mod grpc;
pub mod log;
mod spans;

/// The elector's output to people and collectors.
#[derive(Debug)]
pub struct Telemetry {
    log: EventLog,
    spans: Spans,
    /// `None`: nothing is exported.
    export: Option<Export>,
}

impl Telemetry {
    /// Reads the standard OTEL_* variables, those that decide whether anything is exported through `variable`; without an endpoint
    /// in them nothing is exported and nothing runs, and neither is it where they cannot work, which is logged.
    ///
    /// The namespace in `initial` is the Lease's, discovered if the configuration leaves it open.
    ///
    /// # Panics
    /// Outside a tokio runtime, and where no thread can be had.
    #[must_use]
    pub fn start(initial: &InitialState, variable: impl Fn(&str) -> Option<String>) -> Self {
        let lease = &initial.config.lease;
        let config = OtlpConfig::read(variable);
        let export = config.and_then(|config| config.map(|config| Export::start(config, &initial.identity)).transpose());
        let export = export.unwrap_or_else(|error| {
            warn!("traces are not exported: {error}");
            None
        });
        let log = EventLog::new(lease.name.clone(), initial.identity.clone());
        if let Some(resume) = &initial.resume {
            log.resumed(resume);
        }
        Self { log, spans: Spans::new(lease.namespace.clone(), lease.name.clone(), fastrand::u64(..)), export }
    }

    /// Marks the transition's span that the workload is given as not sampled, where it is not. Without an exporter it stays as the
    /// Lease has it: what the workload exports itself is one trace across replicas then too. To be called before init is told of
    /// the term.
    pub fn amend(&self, info: &mut TermInfo) {
        let Some(export) = &self.export else { return };
        if let Some(context) = TraceContext::parse(&info.traceparent).filter(|context| !export.samples(context.trace_id)) {
            info.traceparent = format!("00-{:032x}-{:016x}-00", context.trace_id, context.span_id);
        }
    }

    /// Logs and exports what the election reported at `now`; never waits.
    pub fn report(&mut self, event: &Event, now: Instant) {
        self.log.event(event, now);
        if let Some(export) = &self.export {
            self.spans.of(event).into_iter().for_each(|span| export.queue(span));
        }
    }

    /// Logs what init said.
    pub fn heard(&self, message: &ToElector) {
        self.log.heard(message);
    }

    /// Sends what is left, for at most [`FLUSH`](crate::link::FLUSH); from now on nothing is exported. To be awaited after the
    /// release, and before init is told that all is done: when init ends, so does this process.
    pub fn finish(&mut self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let export = self.export.take();
        async {
            if let Some(export) = export {
                export.finish().await;
            }
        }
    }
}
