//! Sends spans to a collector.
//!
//! Owns a bounded queue and one task on the elector's runtime: only that task ever waits for the collector, or for the files with
//! the certificate authorities. A batch is sent again and again until it is taken, refused for good, or late; meanwhile spans
//! queue up, and those that do not fit are dropped. Failures are logged once for each state.

use std::time::Duration;

use http::Uri;
use opentelemetry_otlp::{ExporterBuildError, RetryPolicy, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::{
    Resource,
    trace::{SpanData, SpanExporter as _},
};
use tokio::{
    sync::mpsc::{self, error::TrySendError},
    task::JoinHandle,
    time::{Instant, timeout, timeout_at},
};
use tracing::{info, warn};

use super::{
    connect::{Cause, Collector, TlsError},
    settings::Settings,
};
use crate::{api::url::names_a_server, words::one_line};

/// The longest wait before a batch is sent again, unless the collector asks for more: it is soon found to be back, and until then
/// asked rarely.
const LONGEST_DELAY: Duration = Duration::from_secs(1);

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
            let host = endpoint.host().unwrap_or_default();
            let collector = &endpoint.port_u16().map_or_else(|| host.into(), |port| format!("{host}:{port}"));
            info!(collector, protocol = settings.protocol.as_str(), "transitions are exported as traces");
            exporter.set_resource(&resource);
            send(exporter, cause, queued, &settings, collector).await;
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
        // Nothing but the timeout ends the retries.
        .with_retry_policy(RetryPolicy::recommended().with_max_retries(usize::MAX).with_max_delay(LONGEST_DELAY))
        .with_http_client(collector)
        .build()
        .map_err(ExportError::Exporter)?;
    Ok((exporter, cause))
}

async fn send(exporter: SpanExporter, cause: Cause, mut queued: mpsc::Receiver<SpanData>, settings: &Settings, collector: &str) {
    let Settings { batch, timeout: bound, endpoint_name: variable, .. } = settings;
    let mut state = State::Taking;
    while let Some(span) = queued.recv().await {
        let mut spans = vec![span];
        let due = Instant::now() + batch.delay;
        while spans.len() < batch.size
            && let Ok(Some(span)) = timeout_at(due, queued.recv()).await
        {
            spans.push(span);
        }
        // The exporter's own timeout only keeps it from another try.
        let error = match timeout(*bound, exporter.export(spans)).await {
            Ok(done) => done.err().map(|error| error.to_string()),
            Err(_) => Some(format!("no answer within {bound:?}")),
        };
        let cause = cause.take();
        let now = match (&error, &cause) {
            (None, None) => State::Taking,
            (None, Some(_)) => State::Complaining,
            (Some(_), _) => State::Failing,
        };
        if std::mem::replace(&mut state, now) == now {
            continue;
        }
        match now {
            State::Taking => info!("the collector takes spans again"),
            State::Complaining => warn!(cause, collector, variable, "the collector complains of spans"),
            State::Failing => warn!(error = cause.or(error), collector, variable, "the collector does not take spans"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        election::trace::TraceContext,
        telemetry::{
            spans::Spans,
            transition::{Anchor, Name, Outcome, Phase},
        },
        time::{Instant as Boot, Now},
    };

    fn span() -> SpanData {
        let (parent, anchor) = (TraceContext { trace_id: 1, span_id: 2 }, Anchor::new(Now { boot: Boot::BOOT, wall: 0 }));
        let phase = Phase::new(Name::Renew, Boot::BOOT, Boot::BOOT);
        Spans::new(("money".into(), "billing".into()), 1).of(Outcome::During { parent, anchor, term: 1, phase }).swap_remove(0)
    }

    #[tokio::test(start_paused = true)]
    async fn an_export_with_all_its_retries_ends_at_the_timeout() {
        let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"), ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")];
        let variable = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let settings = Settings::read(variable).unwrap();
        let both = 2 * settings.timeout;
        let began = Instant::now();

        let mut export = Export::start(settings, Resource::builder_empty().build()).unwrap();
        export.queue(span());
        export.queue(span());
        export.finish(3 * both).await;

        let late = began.elapsed() - both;
        assert!(late < Duration::from_millis(100), "{late:?}");
    }

    #[test]
    fn an_endpoint_that_is_no_url_is_told_with_its_variable() {
        for wrong in ["collector:4318", "ftp://collector", "//collector", "http://127.0.0.1:99999", "http://collector:"] {
            let settings = Settings::read(|name| (name == "OTEL_EXPORTER_OTLP_ENDPOINT").then(|| wrong.to_owned())).unwrap();
            let said = endpoint(&settings).unwrap_err().to_string();
            assert!(said.starts_with("OTEL_EXPORTER_OTLP_ENDPOINT is not a URL: write http://HOST:PORT"), "{said}");
        }
    }
}
