//! Sends spans to a collector.
//!
//! Owns a bounded queue and one task on the elector's runtime: only that task ever waits for the collector, or for the files with
//! the certificate authorities. Spans that do not fit are dropped. Failures are logged once for each state.

use std::time::Duration;

use http::Uri;
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::{
    Resource,
    trace::{SpanData, SpanExporter as _},
};
use tokio::{
    sync::mpsc::{self, error::TrySendError},
    task::JoinHandle,
    time::{Instant, timeout, timeout_at},
};
use tracing::{field::display, info, warn};

use super::{
    connect::{Cause, Collector, TlsError},
    settings::{Batch, Settings},
};
use crate::{api::url::names_a_server, words::one_line};

/// Spans on their way.
#[derive(Debug)]
pub(crate) struct Export {
    queue: mpsc::Sender<SpanData>,
    task: JoinHandle<()>,
    dropping: bool,
}

/// What the last export showed of the collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Taking,
    /// It takes spans, but perhaps not all of them.
    Complaining,
    Failing,
}

/// Spans cannot be exported with these settings.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExportError {
    #[error("{0} is not a URL: write http://HOST:PORT or https://HOST:PORT")]
    Endpoint(String),
    #[error("the OTLP endpoint wants TLS")]
    Tls(#[source] TlsError),
    #[error("the OTLP exporter cannot be made")]
    Exporter(#[source] ExporterBuildError),
}

impl ExportError {
    pub(crate) fn tell(&self) {
        warn!(error = one_line(self), "traces are not exported");
    }
}

impl Export {
    /// Starts the task that sends what is queued, as spans of `resource`.
    pub(crate) fn start(settings: Settings, resource: Resource) -> Result<Self, ExportError> {
        let endpoint = endpoint(&settings)?;
        let (queue, queued) = mpsc::channel(settings.batch.queue);
        Ok(Self { queue, task: tokio::spawn(run(endpoint, settings, resource, queued)), dropping: false })
    }

    /// Whether spans have somewhere to go, as far as that is known.
    pub(crate) fn works(&self) -> bool {
        !self.queue.is_closed()
    }

    /// Queues `span`, or drops it.
    pub(crate) fn queue(&mut self, span: SpanData) {
        match self.queue.try_send(span) {
            Ok(()) => self.dropping = false,
            Err(TrySendError::Full(_)) if !self.dropping => {
                self.dropping = true;
                warn!("spans are dropped: the collector does not take them fast enough");
            }
            Err(TrySendError::Full(_) | TrySendError::Closed(_)) => {}
        }
    }

    /// Sends what is queued, and gives up after `bound`.
    pub(crate) async fn finish(self, bound: Duration) {
        let Self { queue, mut task, .. } = self;
        drop(queue);
        if timeout(bound, &mut task).await.is_err() {
            task.abort();
            warn!("the last spans were not sent: the collector did not take them in time");
        }
    }
}

fn endpoint(settings: &Settings) -> Result<Uri, ExportError> {
    settings.endpoint.parse().ok().filter(names_a_server).ok_or_else(|| ExportError::Endpoint(settings.endpoint_name.clone()))
}

async fn run(endpoint: Uri, settings: Settings, resource: Resource, queued: mpsc::Receiver<SpanData>) {
    match exporter(&endpoint, &settings).await {
        Ok((mut exporter, cause)) => {
            // Not the whole URL: a user, a password or a key may stand in it.
            let collector = endpoint.host().unwrap_or_default();
            info!(collector, protocol = settings.protocol.as_str(), "transitions are exported as traces");
            exporter.set_resource(&resource);
            send(exporter, cause, queued, settings.batch, (collector, &settings.endpoint_name)).await;
        }
        Err(error) => error.tell(),
    }
}

async fn exporter(endpoint: &Uri, settings: &Settings) -> Result<(SpanExporter, Cause), ExportError> {
    let collector = Collector::new(endpoint, settings).await.map_err(ExportError::Tls)?;
    let cause = collector.cause();
    let exporter = SpanExporter::builder()
        .with_http()
        .with_endpoint(&settings.endpoint)
        .with_protocol(opentelemetry_otlp::Protocol::HttpBinary)
        .with_timeout(settings.timeout)
        .with_http_client(collector)
        .build()
        .map_err(ExportError::Exporter)?;
    Ok((exporter, cause))
}

/// `place` is the collector's host and the variable that names it.
async fn send(exporter: SpanExporter, cause: Cause, mut queued: mpsc::Receiver<SpanData>, batch: Batch, place: (&str, &str)) {
    let (host, variable) = place;
    let mut collector = State::Taking;
    while let Some(span) = queued.recv().await {
        let mut spans = vec![span];
        let due = Instant::now() + batch.delay;
        while spans.len() < batch.size
            && let Ok(Some(span)) = timeout_at(due, queued.recv()).await
        {
            spans.push(span);
        }
        let error = exporter.export(spans).await.err().map(display);
        let cause = cause.take();
        let now = match (&error, &cause) {
            (None, None) => State::Taking,
            (None, Some(_)) => State::Complaining,
            (Some(_), _) => State::Failing,
        };
        if std::mem::replace(&mut collector, now) == now {
            continue;
        }
        match now {
            State::Taking => info!("the collector takes spans again"),
            State::Complaining => warn!(cause, collector = host, variable, "the collector complains of spans"),
            State::Failing => warn!(error, cause, collector = host, variable, "the collector does not take spans"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_that_is_no_url_is_told_with_its_variable() {
        for wrong in ["collector:4318", "ftp://collector", "//collector", "http://127.0.0.1:99999", "http://collector:"] {
            let settings = Settings::read(|name| (name == "OTEL_EXPORTER_OTLP_ENDPOINT").then(|| wrong.to_owned())).unwrap();
            let said = endpoint(&settings).unwrap_err().to_string();
            assert!(said.starts_with("OTEL_EXPORTER_OTLP_ENDPOINT is not a URL: write http://HOST:PORT"), "{said}");
        }
    }
}
