//! The standard OTEL_* variables: whether, where and how spans are exported.
//!
//! Owns reading them. Off unless an OTLP endpoint is set, so that a bare pod does not call a collector that nobody runs.
//!
//! | variables | |
//! |---|---|
//! | `OTEL_EXPORTER_OTLP_(TRACES_)ENDPOINT` | none: nothing is exported |
//! | `OTEL_SDK_DISABLED`, `OTEL_TRACES_EXPORTER` | `true`, `none`: nothing is exported |
//! | `OTEL_EXPORTER_OTLP_(TRACES_)PROTOCOL` | `http/protobuf` unless `grpc` |
//! | `OTEL_EXPORTER_OTLP_(TRACES_)HEADERS` | go with each export; never shown |
//! | `OTEL_EXPORTER_OTLP_(TRACES_)TIMEOUT`, `..._CERTIFICATE`, `..._INSECURE` | as the standard says |
//! | `OTEL_TRACES_SAMPLER`, `OTEL_TRACES_SAMPLER_ARG` | `always_on`, `always_off`, `traceidratio`, each also `parentbased_` |
//! | `OTEL_BSP_SCHEDULE_DELAY` | 1 s unless set: spans are few, and a leader may be killed |
//! | `OTEL_BSP_MAX_QUEUE_SIZE`, `OTEL_BSP_MAX_EXPORT_BATCH_SIZE` | as the standard says |
//! | `OTEL_SERVICE_NAME` | `tenure` unless set |
//! | `OTEL_RESOURCE_ATTRIBUTES` | as the standard says, but for `service.instance.id`, which is the replica's identity |
//!
//! Not supported: proxies, compression, client certificates, `http/json`, other exporters and samplers, and what [`UNSUPPORTED`]
//! lists. What is asked of the spans' export and not supported is reported in [`Settings::notes`]; metrics and logs are others' business.

use std::{collections::BTreeMap, time::Duration};

use http::{HeaderMap, Uri};

use crate::api::proxies;

mod entries;

/// The gRPC method that takes traces.
const CALL: &str = "opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// Variables of the standard's that change nothing here, and what holds instead.
const UNSUPPORTED: [(&str, &str); 11] = [
    ("OTEL_CONFIG_FILE", "the other variables count"),
    ("OTEL_LOG_LEVEL", "log.level counts"),
    ("OTEL_BSP_EXPORT_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT counts"),
    ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", UNLIMITED),
    ("OTEL_ATTRIBUTE_COUNT_LIMIT", UNLIMITED),
    ("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", UNLIMITED),
    ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", UNLIMITED),
    ("OTEL_SPAN_EVENT_COUNT_LIMIT", UNLIMITED),
    ("OTEL_SPAN_LINK_COUNT_LIMIT", UNLIMITED),
    ("OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", UNLIMITED),
    ("OTEL_LINK_ATTRIBUTE_COUNT_LIMIT", UNLIMITED),
];

const UNLIMITED: &str = "spans go out whole";

/// For one export, in milliseconds.
const TIMEOUT: u64 = 10_000;

/// More spans than ever queue up, and fewer than a channel's limit.
const LONGEST_QUEUE: usize = 1 << 20;

/// How spans are exported.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    pub(crate) protocol: Protocol,
    /// The whole URL.
    pub(crate) endpoint: String,
    /// The variable that it came from.
    pub(crate) endpoint_name: String,
    /// Credentials, mostly.
    pub(crate) headers: HeaderMap,
    /// A PEM file with the authorities to trust, in place of the system's, and the variable that names it.
    pub(crate) certificate: Option<(String, String)>,
    /// For one export, its retries included.
    pub(crate) timeout: Duration,
    pub(crate) sampler: Sampler,
    pub(crate) batch: Batch,
    /// OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME.
    pub(crate) resource: BTreeMap<String, String>,
    /// What was asked for and is not supported; one line each, naming the variable.
    pub(crate) notes: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    HttpProtobuf,
    Grpc,
}

impl Protocol {
    /// OpenTelemetry's word.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::HttpProtobuf => "http/protobuf",
            Self::Grpc => "grpc",
        }
    }
}

/// Which traces are exported, by their id alone, so that all replicas decide alike about a trace that they share, and the
/// standard's parent-based samplers decide as the root did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Sampler {
    All,
    Nothing,
    Ratio(f64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Batch {
    /// From the first span of a batch until it is sent.
    pub(crate) delay: Duration,
    /// Spans in one batch.
    pub(crate) size: usize,
    /// Spans that may queue up; more are dropped.
    pub(crate) queue: usize,
}

impl Settings {
    /// Reads variables by name through `variable`; `None` if nothing is to be exported.
    pub(crate) fn read(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let set = |name: &str| variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        let mut notes = Vec::new();
        let disabled = set("OTEL_SDK_DISABLED").map(|value| ("OTEL_SDK_DISABLED".to_owned(), value));
        if is_true(disabled, "spans are exported", &mut notes) {
            return None;
        }
        let of_traces = |name: &str| {
            let specific = format!("OTEL_EXPORTER_OTLP_TRACES_{name}");
            let general = format!("OTEL_EXPORTER_OTLP_{name}");
            set(&specific).map(|value| (specific, value)).or_else(|| set(&general).map(|value| (general, value)))
        };
        let (endpoint_name, endpoint) = of_traces("ENDPOINT")?;
        match set("OTEL_TRACES_EXPORTER").map(|exporters| exporters.to_ascii_lowercase()).as_deref() {
            None => {}
            Some("none") => return None,
            Some(exporters) if exporters.split(',').any(|name| name.trim() == "otlp") => {}
            Some(exporters) => {
                notes.push(format!(
                    "OTEL_TRACES_EXPORTER={exporters} is not supported, only otlp and none are: spans go out by otlp"
                ));
            }
        }
        let protocol = protocol(of_traces("PROTOCOL"), &mut notes);
        if let Some((name, value)) = of_traces("COMPRESSION").filter(|(_, value)| value != "none") {
            notes.push(format!("{name}={value} is not supported: spans go out uncompressed"));
        }
        for name in ["CLIENT_CERTIFICATE", "CLIENT_KEY"] {
            if let Some((name, _)) = of_traces(name) {
                notes.push(format!("{name} is not supported: the collector is spoken to without a client certificate"));
            }
        }
        let headers = of_traces("HEADERS").map_or_else(HeaderMap::new, |(name, list)| entries::headers(&name, &list, &mut notes));
        let timeout = timeout(of_traces("TIMEOUT"), &mut notes);
        let delay = set("OTEL_BSP_SCHEDULE_DELAY");
        let delay = delay.map_or(1_000, |value| number("OTEL_BSP_SCHEDULE_DELAY", &value, 1_000, &mut notes));
        let mut size = |name: &str, default| set(name).map_or(default, |value| size(name, &value, default, &mut notes));
        let batch = Batch {
            delay: Duration::from_millis(delay),
            size: size("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512),
            queue: size("OTEL_BSP_MAX_QUEUE_SIZE", 2_048).min(LONGEST_QUEUE),
        };
        let sampler = sampler(set("OTEL_TRACES_SAMPLER"), set("OTEL_TRACES_SAMPLER_ARG"), &mut notes);
        let specific = endpoint_name == "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
        let insecure = is_true(of_traces("INSECURE"), "an endpoint without a scheme is spoken to by TLS", &mut notes);
        let endpoint = match protocol {
            Protocol::HttpProtobuf if specific => endpoint,
            Protocol::HttpProtobuf => below(&endpoint, "v1/traces"),
            Protocol::Grpc if endpoint.contains("://") => below(&endpoint, CALL),
            Protocol::Grpc if insecure => below(&format!("http://{endpoint}"), CALL),
            Protocol::Grpc => below(&format!("https://{endpoint}"), CALL),
        };
        let server = endpoint.parse::<Uri>().ok();
        if let Some((server, name)) = server.and_then(|server| proxies::asked_for(&server, &variable).map(|name| (server, name)))
        {
            let host = server.host().unwrap_or_default();
            notes.push(format!("{name} is not used: spans go to {host} directly; put it into NO_PROXY if that is meant"));
        }
        let unsupported = UNSUPPORTED.into_iter().filter(|(name, _)| set(name).is_some());
        notes.extend(unsupported.map(|(name, instead)| format!("{name} is not supported: {instead}")));
        let certificate = of_traces("CERTIFICATE");
        let attributes = set("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
        let mut resource = entries::attributes("OTEL_RESOURCE_ATTRIBUTES", &attributes, &mut notes);
        if resource.remove("service.instance.id").is_some() {
            notes.push("OTEL_RESOURCE_ATTRIBUTES: service.instance.id is left out: it is the replica's identity".to_owned());
        }
        resource.extend(set("OTEL_SERVICE_NAME").map(|name| ("service.name".to_owned(), name)));
        Some(Self { protocol, endpoint, endpoint_name, headers, certificate, timeout, sampler, batch, resource, notes })
    }
}

impl Sampler {
    /// Whether the spans of this trace are exported.
    pub(crate) fn takes(self, trace_id: u128) -> bool {
        match self {
            Self::All => true,
            Self::Nothing => false,
            Self::Ratio(ratio) => (trace_id as u64 >> 1) < (ratio * 9_223_372_036_854_775_808.0) as u64,
        }
    }
}

/// Whether a variable, given with its name, says so; `otherwise` is what follows from its not doing so.
fn is_true(asked: Option<(String, String)>, otherwise: &str, notes: &mut Vec<String>) -> bool {
    let Some((name, value)) = asked else { return false };
    let says = |word| value.eq_ignore_ascii_case(word);
    if !says("true") && !says("false") {
        notes.push(format!("{name}={value} is neither true nor false: {otherwise}"));
    }
    says("true")
}

/// The protocol that a variable asks for, given with its name.
fn protocol(asked: Option<(String, String)>, notes: &mut Vec<String>) -> Protocol {
    match asked {
        Some((_, value)) if value.eq_ignore_ascii_case("grpc") => Protocol::Grpc,
        Some((_, value)) if value.eq_ignore_ascii_case("http/protobuf") => Protocol::HttpProtobuf,
        Some((name, value)) => {
            notes.push(format!("{name}={value} is not supported: spans go out by http/protobuf; there is grpc, too"));
            Protocol::HttpProtobuf
        }
        None => Protocol::HttpProtobuf,
    }
}

/// The time for one export that a variable asks for, given with its name.
fn timeout(asked: Option<(String, String)>, notes: &mut Vec<String>) -> Duration {
    let millis = asked.map_or(TIMEOUT, |(name, value)| match number(&name, &value, TIMEOUT, notes) {
        0 => {
            notes.push(format!("{name}=0 leaves an export no time: {TIMEOUT} is used"));
            TIMEOUT
        }
        millis => millis,
    });
    Duration::from_millis(millis)
}

fn number(name: &str, value: &str, default: u64, notes: &mut Vec<String>) -> u64 {
    value.parse().unwrap_or_else(|_| {
        notes.push(format!("{name}={value} is not a whole number: {default} is used"));
        default
    })
}

fn size(name: &str, value: &str, default: usize, notes: &mut Vec<String>) -> usize {
    let size = number(name, value, u64::try_from(default).unwrap_or_default(), notes);
    if size == 0 {
        notes.push(format!("{name}=0 leaves no room for a span: 1 is used"));
    }
    usize::try_from(size).unwrap_or(usize::MAX).max(1)
}

fn sampler(name: Option<String>, arg: Option<String>, notes: &mut Vec<String>) -> Sampler {
    let Some(name) = name else { return Sampler::All };
    let known = name.to_ascii_lowercase();
    match known.strip_prefix("parentbased_").unwrap_or(&known) {
        "always_on" => Sampler::All,
        "always_off" => Sampler::Nothing,
        "traceidratio" => match arg.as_deref().map_or(Ok(1.0), str::parse) {
            Ok(ratio) if (0.0..=1.0).contains(&ratio) => Sampler::Ratio(ratio),
            Ok(_) | Err(_) => {
                notes.push(format!("OTEL_TRACES_SAMPLER_ARG={} is not a ratio from 0 to 1: 1 is used", arg.unwrap_or_default()));
                Sampler::All
            }
        },
        _ => {
            notes.push(format!("OTEL_TRACES_SAMPLER={name} is not supported: all traces are exported"));
            Sampler::All
        }
    }
}

/// Appends `path` to the path of `base`; a query stays at the end.
fn below(base: &str, path: &str) -> String {
    let (base, query) = base.find('?').map_or((base, ""), |at| base.split_at(at));
    format!("{}/{path}{query}", base.trim_end_matches('/'))
}

#[cfg(test)]
mod tests;
