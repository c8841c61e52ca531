//! Traces, metrics and log lines; can never delay a transition.
//!
//! Owns everything that people and collectors see of an election. It is told of each event afterwards, on the elector's own
//! thread, and never waits there: log lines that do not fit are dropped, and spans go to a bounded queue of the SDK.
//!
//! The elector calls [`log::start`] and [`Telemetry::start`] with init's first message, and its loop [`Telemetry::amend`] before a
//! Lead. It makes each [`status::Fact`] a [`status::Change`] of the one [`status`], and shows that to all edges; what the
//! [`recorder`] makes of a fact comes first. Before it sends Done it awaits the future of [`Telemetry::finish`], and keeps running
//! meanwhile.

use opentelemetry_sdk::metrics::SdkMeterProvider;
use prometheus::Registry;
use tokio::sync::watch;
use tracing::warn;

use self::{
    event_log::EventLog,
    export::{Export, OtlpConfig, Signal},
    metrics::Metrics,
    spans::Spans,
    status::{Change, Fact, Status},
};
pub(crate) use self::{metrics::gather, transaction::Observer};
use crate::{
    election::trace::TraceContext,
    link::{InitialState, TermInfo},
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
pub mod status;
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
    /// metrics are in `page` as well, if there is one.
    ///
    /// The namespace in `initial` is the Lease's, discovered if the configuration leaves it open.
    ///
    /// # Panics
    /// Outside a tokio runtime, and where no thread can be had.
    pub fn start(
        initial: &InitialState,
        page: Option<Registry>,
        status: watch::Receiver<Status>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let lease = &initial.config.lease;
        let config = OtlpConfig::read(Signal::Traces, &variable);
        let export = config.and_then(|config| config.map(|config| Export::start(config, &initial.identity)).transpose());
        let export = export.inspect_err(|error| warn!("traces are not exported: {error}")).unwrap_or_default();
        let otlp = OtlpConfig::read(Signal::Metrics, &variable);
        let otlp = otlp.inspect_err(|error| warn!("metrics are not exported: {error}")).unwrap_or_default();
        let metrics = Metrics::start(page, otlp, initial, status);
        let mut log = EventLog::new(initial);
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

    /// Sends what is left, for at most [`FLUSH`](crate::link::FLUSH); from now on nothing is exported. To be awaited after the
    /// release, and before init is told that all is done: when init ends, so does this process.
    pub fn finish(&mut self) -> impl Future<Output = ()> + Send + 'static + use<> {
        finish(self.export.take(), self.metrics.take().map(Metrics::stop))
    }

    /// Logs and exports a change; never waits.
    pub(crate) fn changed(&mut self, change: &Change<'_>) {
        self.log.changed(change);
        if let (Fact::Recorded(recorded), Some(export)) = (change.fact, &self.export) {
            self.spans.of(recorded).into_iter().for_each(|span| export.queue(span));
        }
        if let Some(metrics) = &mut self.metrics {
            metrics.changed(change);
        }
    }
}

/// Sends the last spans and metrics, at the same time.
async fn finish(export: Option<Export>, metrics: Option<SdkMeterProvider>) {
    let spans = async {
        if let Some(export) = export {
            export.finish().await;
        }
    };
    let metrics = async {
        if let Some(provider) = metrics {
            metrics::finish(provider).await;
        }
    };
    tokio::join!(spans, metrics);
}
