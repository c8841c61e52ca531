//! Traces, metrics and log lines; can never delay a transition.
//!
//! Owns everything that people and collectors see of an election. It is told of each event afterwards, on the elector's own
//! thread, and never waits there: log lines that do not fit are dropped, and spans go to a bounded queue of the SDK.
//!
//! The elector's loop calls [`log::start`] and [`Telemetry::start`] with init's first message, then [`Telemetry::report`] for
//! whatever the election reports, [`Telemetry::recorded`] for what the [`recorder`] makes of that, [`Telemetry::heard`] for each
//! message from init, and [`Telemetry::amend`] before a Lead. Before it sends Done it awaits the future of [`Telemetry::finish`],
//! and keeps running meanwhile.

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use prometheus::Registry;
use tracing::warn;

pub(crate) use self::transaction::Observer;
use self::{
    event_log::EventLog,
    export::{Export, OtlpConfig, Signal},
    metrics::Metrics,
    spans::Spans,
    transition::Recorded,
};
use crate::{
    election::{Event, trace::TraceContext},
    link::{InitialState, TermInfo, ToElector},
    request::{Answer, Operation},
    time::Instant,
};

mod client;
mod event_log;
mod export;
mod grpc;
pub mod log;
mod metrics;
pub mod names;
pub(crate) mod recorder;
mod spans;
mod transaction;
pub mod transition;

/// The elector's output to people and collectors.
#[derive(Debug)]
pub struct Telemetry {
    log: EventLog,
    spans: Spans,
    /// `None`: nothing is exported.
    export: Option<Export>,
    /// `None`: nobody reads any.
    metrics: Option<Metrics>,
}

impl Telemetry {
    /// Starts the log of events and, by the standard OTEL_* variables, the export. `variable` reads those that decide whether
    /// anything is exported. Without an endpoint nothing is exported and nothing runs. Variables that cannot work are logged. The
    /// metrics are in `page` as well, if there is one. `witnessed` is true while a witness knows this replica (law 20).
    ///
    /// The namespace in `initial` is the Lease's, discovered if the configuration leaves it open.
    ///
    /// # Panics
    /// Outside a tokio runtime, and where no thread can be had.
    #[must_use]
    pub fn start(
        initial: &InitialState,
        page: Option<Registry>,
        witnessed: Arc<AtomicBool>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let lease = &initial.config.lease;
        let config = OtlpConfig::read(Signal::Traces, &variable);
        let export = config.and_then(|config| config.map(|config| Export::start(config, &initial.identity)).transpose());
        let export = export.unwrap_or_else(|error| {
            warn!("traces are not exported: {error}");
            None
        });
        let otlp = OtlpConfig::read(Signal::Metrics, &variable).unwrap_or_else(|error| {
            warn!("metrics are not exported: {error}");
            None
        });
        let metrics = Metrics::start(page, otlp, initial, witnessed);
        let runs = initial.config.workload.runs;
        let mut log = EventLog::new(lease.name.clone(), initial.identity.clone(), &initial.preset, runs);
        if let Some(resume) = &initial.resume {
            log.resumed(resume);
        }
        Self { log, spans: Spans::new(lease.namespace.clone(), lease.name.clone(), fastrand::u64(..)), export, metrics }
    }

    /// Marks the transition's span in the workload's TRACEPARENT as not sampled, if it is not. Without an exporter it stays as in
    /// the Lease, so that the workload's own export is one trace across replicas. Call it before init is told of the term.
    pub fn amend(&self, info: &mut TermInfo) {
        let Some(export) = &self.export else { return };
        if let Some(context) = TraceContext::parse(&info.traceparent).filter(|context| !export.samples(context.trace_id)) {
            info.traceparent = format!("00-{:032x}-{:016x}-00", context.trace_id, context.span_id);
        }
    }

    /// Logs and exports what the election reported at `now`; never waits.
    pub fn report(&mut self, event: &Event, now: Instant) {
        self.log.event(event, now);
        if let Some(metrics) = &self.metrics {
            metrics.event(event, now);
        }
    }

    /// Logs and exports a part of a term that is over since `now`; never waits.
    pub fn recorded(&mut self, recorded: &Recorded, now: Instant) {
        self.log.recorded(recorded, now);
        if let Some(export) = &self.export {
            self.spans.of(recorded).into_iter().for_each(|span| export.queue(span));
        }
        if let Some(metrics) = &self.metrics {
            metrics.recorded(recorded);
        }
    }

    /// Logs and counts what init said.
    pub fn heard(&mut self, message: &ToElector) {
        self.log.heard(message);
        if let Some(metrics) = &self.metrics {
            metrics.heard(message);
        }
    }

    /// A request was answered after this long.
    pub fn requested(&self, operation: Operation, answer: &Answer, took: Duration) {
        if let Some(metrics) = &self.metrics {
            metrics.requested(operation, answer, took);
        }
    }

    /// A watch whose answer took this long to begin, or failed with this status.
    pub fn watched(&self, answer: Result<(), Option<u16>>, took: Duration) {
        if let Some(metrics) = &self.metrics {
            metrics.watched(answer, took);
        }
    }

    /// A watch replaces the one before.
    pub fn watching_again(&self) {
        if let Some(metrics) = &self.metrics {
            metrics.watching_again();
        }
    }

    /// The term that is held ends at this S, unless it is renewed; none: none is held.
    pub fn holds(&mut self, soft: Option<Instant>) {
        self.log.holds(soft);
        if let Some(metrics) = &self.metrics {
            metrics.holds(soft);
        }
    }

    /// Sends what is left, for at most [`FLUSH`](crate::link::FLUSH); from now on nothing is exported. To be awaited after the
    /// release, and before init is told that all is done: when init ends, so does this process.
    pub fn finish(&mut self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let (export, metrics) = (self.export.take(), self.metrics.take());
        async {
            let spans = async {
                if let Some(export) = export {
                    export.finish().await;
                }
            };
            let metrics = async {
                if let Some(metrics) = metrics {
                    metrics.finish().await;
                }
            };
            tokio::join!(spans, metrics);
        }
    }
}
