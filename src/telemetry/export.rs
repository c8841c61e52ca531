//! Sends spans and metrics to a collector.
//!
//! Owns the decision which are exported. The SDK owns the queue, the batches, the retries and most OTEL_* variables; only its
//! threads ever wait for the collector or for a file. These variables are read here. SIGNAL is TRACES or METRICS, and may be left
//! out:
//!
//! | variable | |
//! |---|---|
//! | `OTEL_EXPORTER_OTLP_SIGNAL_ENDPOINT` | none: nothing is exported, so that a bare pod calls no collector that nobody runs |
//! | `OTEL_SDK_DISABLED`, `OTEL_SIGNAL_EXPORTER` | `true`, and a list without `otlp`: nothing is exported |
//! | `OTEL_EXPORTER_OTLP_SIGNAL_PROTOCOL` | `http/protobuf` unless `grpc` |
//! | `OTEL_EXPORTER_OTLP_SIGNAL_TIMEOUT` | also ends each request, which the SDK leaves to its client |
//! | `OTEL_EXPORTER_OTLP_SIGNAL_CERTIFICATE` | the authorities to trust |
//! | `OTEL_EXPORTER_OTLP_SIGNAL_HEADERS` | empty: the general ones count, which the SDK would not read then |
//! | `OTEL_BSP_MAX_QUEUE_SIZE` | [`QUEUE`] unless set |
//! | `OTEL_BSP_SCHEDULE_DELAY`, `OTEL_METRIC_EXPORT_INTERVAL` | no less than [`SHORTEST_DELAY`] |
//! | `OTEL_TRACES_SAMPLER`, `OTEL_TRACES_SAMPLER_ARG`, `OTEL_BSP_MAX_EXPORT_BATCH_SIZE` | only to warn of what the SDK passes over |

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use http::{HeaderName, HeaderValue, Uri};
use opentelemetry::{Key, KeyValue, TraceId, trace::SpanKind};
use opentelemetry_otlp::{MetricExporter, Protocol as Encoding, RetryPolicy, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    resource::SdkProvidedResourceDetector,
    trace::{
        self, BatchConfigBuilder, BatchSpanProcessor, Config as SdkConfig, SamplingDecision, ShouldSample, SpanData,
        SpanProcessor as _,
    },
};
use tokio::task::spawn_blocking;
use tracing::{info, warn};

use super::client::CollectorClient;
use crate::{
    api::url::names_a_server,
    link::FLUSH,
    words::{one_line, worded},
};

/// For one export, in milliseconds.
const TIMEOUT: u64 = 10_000;

/// Size of the queue. Spans are few, and the SDK touches the memory for all of them at once.
const QUEUE: usize = 256;

/// No queue is longer: the SDK would panic where there is no memory for it.
const LONGEST_QUEUE: usize = 1 << 16;

/// Between two batches, in milliseconds: without a delay the SDK's thread would never rest, and slow down a container with little
/// CPU as a whole.
const SHORTEST_DELAY: u64 = 100;

worded! {
    /// A kind of data to export, with its word in the names of variables.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Signal {
        Traces = "TRACES",
        Metrics = "METRICS",
    }
}

impl Signal {
    /// In the log.
    pub(super) const fn plural(self) -> &'static str {
        match self {
            Self::Traces => "spans",
            Self::Metrics => "metrics",
        }
    }
}

/// How spans or metrics are exported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OtlpConfig {
    pub(super) signal: Signal,
    /// The variable with the endpoint.
    variable: String,
    /// Its host and port. Not the whole URL: a user, a password or a key may stand in it.
    collector: String,
    pub(super) is_https: bool,
    pub(super) protocol: Protocol,
    /// The variable that names a PEM file with the authorities to trust in place of the system's, and that file.
    pub(super) certificate: Option<(String, PathBuf)>,
    /// The general headers, where the variable of the signal is empty. `Debug` shows none, because they are marked as sensitive.
    headers: Option<HeaderValue>,
    /// For one request.
    pub(super) timeout: Duration,
    queue: usize,
    /// From one export to the next; none: the SDK's.
    pub(super) delay: Option<Duration>,
}

worded! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Protocol {
        HttpProtobuf = "http/protobuf",
        Grpc = "grpc",
    }
}

/// Why nothing is exported.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotExported {
    /// The variable of this name holds no endpoint.
    #[error("{0} is not a URL: write http://HOST:PORT or https://HOST:PORT")]
    NotAUrl(String),
    /// As at a container's limit of processes.
    #[error("there is no thread for it: {0}")]
    NoThread(String),
}

impl OtlpConfig {
    /// Reads variables by name through `variable`; `None` if nothing of `signal` is to be exported.
    pub(super) fn read(signal: Signal, variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, NotExported> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let is = |name: &str, word: &str| set(name).is_some_and(|value| value.eq_ignore_ascii_case(word));
        let of_signal = |name: &str| {
            let names = [format!("OTEL_EXPORTER_OTLP_{}_{name}", signal.as_str()), format!("OTEL_EXPORTER_OTLP_{name}")];
            names.into_iter().find_map(|name| set(&name).map(|value| (name, value)))
        };
        if is("OTEL_SDK_DISABLED", "true") {
            return Ok(None);
        }
        let is_hidden =
            variable(&format!("OTEL_EXPORTER_OTLP_{}_HEADERS", signal.as_str())).is_some_and(|value| value.is_empty());
        let general = if is_hidden { set("OTEL_EXPORTER_OTLP_HEADERS") } else { None };
        let mut headers = general.and_then(|pairs| HeaderValue::try_from(pairs).ok());
        if let Some(pairs) = &mut headers {
            pairs.set_sensitive(true);
        }
        let Some((variable, endpoint)) = of_signal("ENDPOINT") else { return Ok(None) };
        let exporter = format!("OTEL_{}_EXPORTER", signal.as_str());
        if let Some(exporters) = set(&exporter).filter(|words| !words.split(',').any(|word| word.trim() == "otlp")) {
            if exporters != "none" {
                warn!("{exporter}={exporters} is not supported: no {} go out; there are otlp and none", signal.plural());
            }
            return Ok(None);
        }
        let Some(endpoint) = endpoint.parse::<Uri>().ok().filter(names_a_server) else {
            return Err(NotExported::NotAUrl(variable));
        };
        let host = endpoint.host().unwrap_or_default();
        let protocol = match of_signal("PROTOCOL") {
            Some((_, value)) if value.eq_ignore_ascii_case("grpc") => Protocol::Grpc,
            Some((name, value)) if !value.eq_ignore_ascii_case("http/protobuf") => {
                warn!("{name}={value} is not supported: {} go out by http/protobuf; there is grpc, too", signal.plural());
                Protocol::HttpProtobuf
            }
            Some(_) | None => Protocol::HttpProtobuf,
        };
        let unsupported = ["COMPRESSION", "CLIENT_CERTIFICATE", "CLIENT_KEY"].into_iter().filter_map(of_signal);
        for (name, _) in unsupported.filter(|(_, value)| !value.eq_ignore_ascii_case("none")) {
            warn!("{name} has no effect on {}: it is not supported", signal.plural());
        }
        if let Some((name, pairs)) = of_signal("HEADERS")
            && !pairs.split(',').all(is_header)
        {
            // Its value may be secret.
            warn!("{name} holds what is no header, and {} lack it: write NAME=VALUE, with commas between", signal.plural());
        }
        let number = |(name, value): (String, String), least: u64| {
            let number = value.parse::<u64>().ok().filter(|number| *number >= least);
            if number.is_none() {
                warn!("{name}={value} is not supported: it is no number of at least {least}, so that the default counts");
            }
            number
        };
        let numbered = |name: &str, least| set(name).and_then(|value| number((name.to_owned(), value), least));
        let millis = of_signal("TIMEOUT").and_then(|timeout| number(timeout, 1));
        let (queue, delay) = match signal {
            Signal::Traces => {
                warn_of_sampler(set);
                // The SDK reads it, and passes over what is no number.
                numbered("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 1);
                (numbered("OTEL_BSP_MAX_QUEUE_SIZE", 1), numbered("OTEL_BSP_SCHEDULE_DELAY", 0))
            }
            Signal::Metrics => (None, numbered("OTEL_METRIC_EXPORT_INTERVAL", 0)),
        };
        Ok(Some(Self {
            signal,
            variable,
            collector: endpoint.port_u16().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")),
            is_https: endpoint.scheme_str() == Some("https"),
            protocol,
            certificate: of_signal("CERTIFICATE").map(|(name, path)| (name, path.into())),
            headers,
            timeout: Duration::from_millis(millis.unwrap_or(TIMEOUT)),
            queue: queue.map_or(QUEUE, |size| usize::try_from(size).unwrap_or(usize::MAX).min(LONGEST_QUEUE)),
            delay: delay.map(|millis| Duration::from_millis(millis.max(SHORTEST_DELAY))),
        }))
    }
}

/// Returns true if the SDK can send this pair, or if it is empty, as after the last comma.
fn is_header(pair: &str) -> bool {
    let Some((name, value)) = pair.split_once('=') else { return pair.trim().is_empty() };
    let value = value.trim();
    HeaderName::from_bytes(name.trim().as_bytes()).is_ok() && !value.is_empty() && HeaderValue::from_str(value).is_ok()
}

/// Warns of a sampler in whose place the SDK exports each trace without a word.
fn warn_of_sampler(set: impl Fn(&str) -> Option<String>) {
    let Some(sampler) = set("OTEL_TRACES_SAMPLER") else { return };
    match sampler.strip_prefix("parentbased_").unwrap_or(&sampler) {
        "always_on" | "always_off" => {}
        "traceidratio" => {
            if let Some(ratio) = set("OTEL_TRACES_SAMPLER_ARG")
                && !ratio.parse::<f64>().is_ok_and(|ratio| (0.0..=1.0).contains(&ratio))
            {
                warn!("OTEL_TRACES_SAMPLER_ARG={ratio} is not supported: {sampler} needs a number from 0 to 1");
            }
        }
        _ => warn!(
            "OTEL_TRACES_SAMPLER={sampler} is not supported: each trace is exported; there are always_on, always_off and \
             traceidratio, also after parentbased_"
        ),
    }
}

/// Spans on their way.
#[derive(Debug)]
pub(super) struct Export {
    processor: BatchSpanProcessor,
    sampler: Box<dyn ShouldSample>,
    /// How many more spans the queue takes.
    room: Arc<AtomicUsize>,
}

impl Export {
    /// Starts the thread that sends what is queued, as spans of `identity`.
    pub(super) fn start(config: OtlpConfig, identity: &str) -> Result<Self, NotExported> {
        let OtlpConfig { variable, queue, delay, .. } = config.clone();
        // The SDK would panic.
        let spare = thread::Builder::new().spawn(|| ()).map_err(|error| NotExported::NoThread(one_line(&error)))?;
        drop(spare.join());
        let exporter = through(SpanExporter::builder().with_http(), config.clone()).build();
        // The exporter's own words would show the URL.
        let exporter = exporter.map_err(|_| NotExported::NotAUrl(variable))?;
        let mut batches = BatchConfigBuilder::default().with_max_queue_size(queue);
        if let Some(delay) = delay {
            batches = batches.with_scheduled_delay(delay);
        }
        let room = Arc::new(AtomicUsize::new(queue));
        let mut processor =
            BatchSpanProcessor::builder(Counted(exporter, Arc::clone(&room))).with_batch_config(batches.build()).build();
        processor.set_resource(&resource(detected(), identity));
        config.tell("transitions are exported as traces");
        Ok(Self { processor, sampler: SdkConfig::default().sampler, room })
    }

    /// Returns true if the spans of this trace are exported. Depends on the trace id alone, so that all replicas decide alike
    /// about a trace that they share.
    pub(super) fn samples(&self, trace_id: u128) -> bool {
        let sampled = self.sampler.should_sample(None, TraceId::from(trace_id), "transition", &SpanKind::Internal, &[], &[]);
        sampled.decision == SamplingDecision::RecordAndSample
    }

    /// Queues `span` if its trace is sampled, or drops it.
    pub(super) fn queue(&self, span: SpanData) {
        if !self.samples(u128::from_be_bytes(span.span_context.trace_id().to_bytes())) {
            return;
        }
        // The SDK would drop it too, and not say so.
        if self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |room| room.checked_sub(1)).is_err() {
            DROPPED.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.processor.on_end(span);
    }

    /// Sends what is queued, and gives up after [`FLUSH`].
    pub(super) async fn finish(self) {
        let sent = spawn_blocking(move || self.processor.shutdown_with_timeout(FLUSH)).await;
        if !matches!(sent, Ok(Ok(()))) {
            warn!("the last spans were not sent: the collector did not take them in time");
        }
    }
}

/// Count of the dropped spans of this process.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Returns the count of the spans that no collector has taken.
pub(super) fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Counts the spans that left the queue, and those that were not sent.
#[derive(Debug)]
struct Counted<E>(E, Arc<AtomicUsize>);

impl<E: trace::SpanExporter> trace::SpanExporter for Counted<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = u64::try_from(batch.len()).unwrap_or_default();
        self.1.fetch_add(batch.len(), Ordering::Relaxed);
        let sent = self.0.export(batch).await;
        if sent.is_err() {
            DROPPED.fetch_add(spans, Ordering::Relaxed);
        }
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
    }
}

/// Builds the exporter of metrics.
pub(super) fn metrics(config: OtlpConfig) -> Result<MetricExporter, NotExported> {
    let exporter = through(MetricExporter::builder().with_http(), config.clone()).build();
    let exporter = exporter.map_err(|_| NotExported::NotAUrl(config.variable.clone()))?;
    config.tell("metrics are exported");
    Ok(exporter)
}

/// Lets an exporter use tenure's own client.
fn through<B: WithExportConfig + WithHttpConfig>(builder: B, config: OtlpConfig) -> B {
    // Nothing but the timeout ends the retries.
    let retries = RetryPolicy::recommended().with_max_retries(usize::MAX);
    let pairs = config.headers.as_ref().and_then(|pairs| pairs.to_str().ok()).unwrap_or_default();
    let pairs = pairs.split(',').filter_map(|pair| pair.split_once('='));
    let headers = pairs.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect();
    let builder = builder.with_protocol(Encoding::HttpBinary).with_retry_policy(retries).with_headers(headers);
    builder.with_http_client(CollectorClient::new(config))
}

impl OtlpConfig {
    fn tell(&self, what: &str) {
        info!(collector = self.collector, protocol = self.protocol.as_str(), "{what}");
    }
}

/// What the SDK reads of OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES. The former wins, as specified.
pub(super) fn detected() -> Resource {
    Resource::builder().with_detector(Box::new(SdkProvidedResourceDetector)).build()
}

/// Adds the service and the replica to the `detected` attributes. The version is tenure's, so it is left out of a service with
/// another name. The pod and its namespace (which need not be the Lease's) are not known here.
pub(super) fn resource(detected: Resource, identity: &str) -> Resource {
    let name = detected.get(&Key::from_static_str("service.name"));
    let is_named = name.is_some_and(|name| !name.as_str().starts_with("unknown_service"));
    let named = [KeyValue::new("service.name", "tenure"), KeyValue::new("service.version", env!("CARGO_PKG_VERSION"))];
    let named = if is_named { Vec::new() } else { named.to_vec() };
    let detected = detected.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    let identity = KeyValue::new("service.instance.id", identity.to_owned());
    Resource::builder_empty().with_attributes(detected).with_attributes(named).with_attribute(identity).build()
}

#[cfg(test)]
mod tests {
    use opentelemetry::Value;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;
    use crate::{config::Log, telemetry::log::captured};

    const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

    fn read(variables: &[(&str, &str)]) -> Result<Option<OtlpConfig>, NotExported> {
        OtlpConfig::read(Signal::Traces, |name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    fn with(variables: &[(&str, &str)]) -> OtlpConfig {
        read(&[&[(ENDPOINT, "http://c:4318")], variables].concat()).unwrap().unwrap()
    }

    /// Takes nothing.
    #[derive(Debug)]
    struct Refusing;

    impl trace::SpanExporter for Refusing {
        async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
            Err(opentelemetry_sdk::error::OTelSdkError::AlreadyShutdown)
        }
    }

    #[tokio::test]
    async fn spans_that_nobody_takes_are_counted() {
        let (spans, before) = (crate::telemetry::spans::tests::any(), dropped());
        let lost = u64::try_from(spans.len()).unwrap();
        assert!(trace::SpanExporter::export(&Counted(Refusing, Arc::default()), spans).await.is_err());
        assert!(lost > 0 && dropped() >= before + lost);
    }

    #[tokio::test]
    async fn spans_that_find_the_queue_full_are_counted() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", server.local_addr().unwrap());
        let variables = [("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", endpoint.as_str()), ("OTEL_BSP_MAX_QUEUE_SIZE", "1")];
        let (export, before) = (Export::start(with(&variables), "a_1").unwrap(), dropped());
        let span = crate::telemetry::spans::tests::any().remove(0);

        // The collector does not answer: one is sent, and one waits.
        (0..100).for_each(|_| export.queue(span.clone()));

        assert!(dropped() >= before + 98);
    }

    /// As at a container's limit of processes. The SDK would panic, and a new elector with it, again and again.
    #[test]
    fn without_a_thread_no_spans_are_exported_and_the_elector_goes_on() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        // The filter stays with its thread, which another test may use after this one.
        let alone = thread::spawn(move || {
            support::denied::without_threads();
            let _entered = runtime.enter();
            Export::start(with(&[]), "a_1").map(drop)
        });

        let started = alone.join().unwrap();

        assert!(matches!(started, Err(NotExported::NoThread(_))), "{started:?}");
    }

    #[test]
    fn nothing_is_exported_without_an_endpoint_or_where_that_is_switched_off() {
        let endpoint = (ENDPOINT, "http://c:4318");
        for variables in [
            &[][..],
            &[(ENDPOINT, "")],
            &[endpoint, ("OTEL_SDK_DISABLED", "True")],
            &[endpoint, ("OTEL_TRACES_EXPORTER", "none")],
            &[endpoint, ("OTEL_TRACES_EXPORTER", "console")],
        ] {
            assert_eq!(read(variables), Ok(None), "{variables:?}");
        }
        assert!(read(&[endpoint, ("OTEL_SDK_DISABLED", "false"), ("OTEL_TRACES_EXPORTER", "console, otlp")]).unwrap().is_some());
    }

    #[test]
    fn an_endpoint_that_is_no_url_is_told_with_its_variable() {
        for wrong in ["collector:4318", "ftp://collector", "//collector", "http://127.0.0.1:99999", "http://collector:"] {
            assert_eq!(read(&[(ENDPOINT, wrong)]), Err(NotExported::NotAUrl(ENDPOINT.into())), "{wrong}");
        }
        let told = NotExported::NotAUrl(ENDPOINT.into()).to_string();
        assert!(told.starts_with("OTEL_EXPORTER_OTLP_ENDPOINT is not a URL: write http://HOST:PORT"), "{told}");
    }

    #[test]
    fn what_is_of_traces_alone_counts_before_the_general_and_nothing_of_the_url_is_kept_but_the_server() {
        let config = with(&[
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://u:hush@traces:1/x?key=hush"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", ""),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "/of-traces"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/general"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "400"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "8"),
        ]);
        let expected = OtlpConfig {
            signal: Signal::Traces,
            variable: "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT".into(),
            collector: "traces:1".into(),
            is_https: true,
            protocol: Protocol::Grpc,
            certificate: Some(("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE".into(), "/of-traces".into())),
            headers: None,
            timeout: Duration::from_millis(400),
            queue: 8,
            delay: None,
        };
        assert_eq!(config, expected);
    }

    #[test]
    fn a_variable_that_is_not_supported_is_told() {
        let told = |name, value| captured(&Log::default(), || drop(with(&[(name, value)])));

        for name in ["OTEL_EXPORTER_OTLP_COMPRESSION", "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_CLIENT_KEY"] {
            let said = told(name, "gzip");
            assert!(said.contains(&format!("{name} has no effect on spans: it is not supported")), "{said}");
        }
        assert_eq!(told("OTEL_EXPORTER_OTLP_COMPRESSION", "none"), "");
        assert!(told("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "all").contains("it is no number of at least 1"));
        for name in ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"] {
            for pairs in ["a=b,hush", "a=b,hush=", "hush hush=b", "=hush", "a=hush\nhush"] {
                let said = told(name, pairs);
                assert!(said.contains(&format!("{name} holds what is no header")) && !said.contains("hush"), "{said}");
            }
            assert_eq!(told(name, "a=b, c = d=%20e,"), "");
        }
    }

    #[test]
    fn a_value_that_cannot_work_leaves_the_default() {
        let protocol = with(&[("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")]).protocol;
        assert_eq!(protocol, Protocol::HttpProtobuf);
        for timeout in ["0", "-1", "soon"] {
            assert_eq!(with(&[("OTEL_EXPORTER_OTLP_TIMEOUT", timeout)]).timeout, Duration::from_secs(10));
        }
        let delay = |millis| with(&[("OTEL_BSP_SCHEDULE_DELAY", millis)]).delay;
        assert_eq!(
            [delay("0"), delay("2000"), delay("soon")],
            [Some(100), Some(2_000), None].map(|delay| delay.map(Duration::from_millis))
        );
        let queue = |size| with(&[("OTEL_BSP_MAX_QUEUE_SIZE", size)]).queue;
        assert_eq!([queue("0"), queue("all"), queue("18446744073709551615")], [QUEUE, QUEUE, LONGEST_QUEUE]);
    }

    #[test]
    fn metrics_are_exported_with_a_pause() {
        let delay = |millis: &str| {
            let variables = [(ENDPOINT, "http://c:4318"), ("OTEL_METRIC_EXPORT_INTERVAL", millis)];
            let variable = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
            OtlpConfig::read(Signal::Metrics, variable).unwrap().unwrap().delay
        };
        let expected = [Some(100), Some(2_000), None].map(|delay| delay.map(Duration::from_millis));
        assert_eq!([delay("0"), delay("2000"), delay("soon")], expected);
    }

    #[test]
    fn a_value_that_cannot_work_is_told() {
        let told = |variables: &[(&str, &str)]| captured(&Log::default(), || drop(with(variables)));
        for (name, value) in [
            ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
            ("OTEL_BSP_SCHEDULE_DELAY", "soon"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "0"),
            ("OTEL_TRACES_SAMPLER", "always_of"),
        ] {
            let said = told(&[(name, value)]);
            assert!(said.lines().count() == 1 && said.contains(&format!("{name}={value} is not supported: ")), "{said}");
        }
        for sampler in ["traceidratio", "parentbased_traceidratio"] {
            let ratio = |ratio| told(&[("OTEL_TRACES_SAMPLER", sampler), ("OTEL_TRACES_SAMPLER_ARG", ratio)]);
            for wrong in ["often", "1.5", "-1", "NaN"] {
                let said = ratio(wrong);
                let expected =
                    format!("OTEL_TRACES_SAMPLER_ARG={wrong} is not supported: {sampler} needs a number from 0 to 1\n");
                assert!(said.lines().count() == 1 && said.ends_with(&expected), "{said}");
            }
            assert_eq!(["", "0", "0.25", "1"].map(ratio), [""; 4]);
        }
        for sampler in ["always_on", "always_off", "parentbased_always_on", "parentbased_always_off"] {
            assert_eq!(told(&[("OTEL_TRACES_SAMPLER", sampler)]), "");
        }
    }

    #[tokio::test]
    async fn the_general_headers_go_out_where_those_of_the_signal_are_empty() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", server.local_addr().unwrap());
        let headers = ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20hush, of = all");
        assert_eq!(with(&[headers, ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "of=traces")]).headers, None);
        let config = with(&[headers, ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "")]);
        assert!(!format!("{config:?}").contains("hush"), "{config:?}");

        let exporter = through(SpanExporter::builder().with_http().with_endpoint(url), config).build().unwrap();
        let receiving = async {
            let (mut stream, _) = server.accept().await.unwrap();
            let mut head = [0; 1024];
            let length = stream.read(&mut head).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            String::from_utf8_lossy(&head[..length]).into_owned()
        };
        let spans = crate::telemetry::spans::tests::any();
        let (sent, head) = tokio::join!(trace::SpanExporter::export(&exporter, spans), receiving);

        sent.unwrap();
        assert!(head.contains("authorization: Bearer hush\r\n") && head.contains("of: all\r\n"), "{head}");
    }

    #[test]
    fn a_service_may_be_renamed_and_an_instance_is_the_replica() {
        let told = |detected: &[(&'static str, &'static str)]| {
            let detected = detected.iter().map(|(key, value)| KeyValue::new(*key, *value));
            let resource = resource(Resource::builder_empty().with_attributes(detected).build(), "web-0_ab");
            let of = |key: &'static str| resource.get(&Key::new(key)).as_ref().map(Value::to_string);
            ["service.name", "service.version", "service.instance.id"].map(of)
        };
        let some = |text: &str| Some(text.to_owned());
        let ours = [some("tenure"), some(env!("CARGO_PKG_VERSION")), some("web-0_ab")];
        assert_eq!(told(&[("service.name", "unknown_service:tenure")]), ours);
        assert_eq!(told(&[("service.name", "billing"), ("service.instance.id", "7")]), [some("billing"), None, some("web-0_ab")]);
    }
}
