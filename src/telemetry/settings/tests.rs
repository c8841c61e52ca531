use super::*;

fn read(variables: &[(&str, &str)]) -> Option<Settings> {
    let variables: BTreeMap<_, _> = variables.iter().copied().collect();
    Settings::read(|name| variables.get(name).map(|value| (*value).to_owned()))
}

fn with_endpoint(variables: &[(&str, &str)]) -> Settings {
    read(&[&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318")], variables].concat()).unwrap()
}

#[test]
fn nothing_is_exported_without_an_endpoint() {
    assert_eq!(read(&[]), None);
    assert_eq!(read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]), None);
    assert_eq!(read(&[("OTEL_TRACES_EXPORTER", "otlp"), ("OTEL_SERVICE_NAME", "x")]), None);
}

#[test]
fn nothing_is_exported_where_the_sdk_or_the_exporter_is_switched_off() {
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");
    assert_eq!(read(&[endpoint, ("OTEL_SDK_DISABLED", "TRUE")]), None);
    assert_eq!(read(&[endpoint, ("OTEL_TRACES_EXPORTER", "none")]), None);
    assert_eq!(read(&[endpoint, ("OTEL_TRACES_EXPORTER", "None")]), None, "in any case");
    assert!(read(&[endpoint, ("OTEL_SDK_DISABLED", "false")]).is_some());
}

#[test]
fn the_general_endpoint_gets_the_path_of_traces_and_the_specific_one_stays_as_it_is() {
    assert_eq!(with_endpoint(&[]).endpoint, "http://collector:4318/v1/traces");
    let specific = with_endpoint(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://other:1/in")]);
    assert_eq!(specific.endpoint, "http://other:1/in");
}

#[test]
fn what_the_general_endpoint_asks_for_stays_behind_the_path() {
    let at = |endpoint| with_endpoint(&[("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)]).endpoint;
    assert_eq!(at("http://collector/base/?q=1/"), "http://collector/base/v1/traces?q=1/");
    assert_eq!(at("http://collector//"), "http://collector/v1/traces");
}

#[test]
fn grpc_calls_its_service_at_the_endpoint_and_a_bare_address_by_tls_unless_insecure() {
    let grpc = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    let base = |variables: &[(&str, &str)]| {
        let endpoint = with_endpoint(&[&[grpc], variables].concat()).endpoint;
        endpoint.strip_suffix("/opentelemetry.proto.collector.trace.v1.TraceService/Export").map(str::to_owned)
    };
    assert_eq!(base(&[]).as_deref(), Some("http://collector:4318"));
    let bare = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "collector:4317");
    assert_eq!(base(&[bare]).as_deref(), Some("https://collector:4317"));
    assert_eq!(base(&[bare, ("OTEL_EXPORTER_OTLP_INSECURE", "true")]).as_deref(), Some("http://collector:4317"));
}

#[test]
fn the_protocol_of_traces_goes_before_the_general_one() {
    let general = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    assert_eq!(with_endpoint(&[]).protocol, Protocol::HttpProtobuf);
    assert_eq!(with_endpoint(&[general]).protocol, Protocol::Grpc);
    let specific = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf");
    assert_eq!(with_endpoint(&[general, specific]).protocol, Protocol::HttpProtobuf);
}

#[test]
fn a_proxy_that_is_not_used_is_told_once() {
    let proxy = ("HTTP_PROXY", "http://proxy:3128");
    let note = "HTTP_PROXY is not used: spans go to collector directly; put it into NO_PROXY if that is meant";
    assert_eq!(with_endpoint(&[proxy]).notes, [note]);
    assert!(with_endpoint(&[proxy, ("NO_PROXY", "collector")]).notes.is_empty());
}

#[test]
fn what_is_not_supported_is_told_with_its_variable() {
    let settings = with_endpoint(&[
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
        ("OTEL_SDK_DISABLED", "yes"),
        ("OTEL_TRACES_EXPORTER", "zipkin"),
        ("OTEL_TRACES_SAMPLER", "xray"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "ten"),
    ]);
    let named: Vec<_> = settings.notes.iter().map(|note| note.split('=').next().unwrap()).collect();
    let expected = [
        "OTEL_SDK_DISABLED",
        "OTEL_TRACES_EXPORTER",
        "OTEL_EXPORTER_OTLP_PROTOCOL",
        "OTEL_EXPORTER_OTLP_COMPRESSION",
        "OTEL_EXPORTER_OTLP_TIMEOUT",
        "OTEL_TRACES_SAMPLER",
    ];
    assert_eq!(named, expected);
    assert_eq!((settings.protocol, settings.sampler), (Protocol::HttpProtobuf, Sampler::All));
}

#[test]
fn a_variable_that_changes_nothing_is_told_once_where_it_is_set() {
    for (name, _) in UNSUPPORTED {
        let notes = with_endpoint(&[(name, "16")]).notes;
        assert!(matches!(&notes[..], [note] if note.starts_with(&format!("{name} is not supported: "))), "{notes:?}");
        assert_eq!(with_endpoint(&[(name, " ")]).notes, Vec::<String>::new());
    }
    let limits = ["OTEL_BSP_EXPORT_TIMEOUT", "OTEL_ATTRIBUTE_COUNT_LIMIT", "OTEL_SPAN_LINK_COUNT_LIMIT"];
    assert!(limits.iter().all(|limit| UNSUPPORTED.iter().any(|(name, _)| name == limit)));
}

#[test]
fn what_is_neither_true_nor_false_is_told_with_what_follows() {
    let notes = |name, value| with_endpoint(&[(name, value)]).notes;
    let insecure = "OTEL_EXPORTER_OTLP_TRACES_INSECURE";
    let said = "OTEL_EXPORTER_OTLP_TRACES_INSECURE=1 is neither true nor false: an endpoint without a scheme is spoken to by TLS";
    assert_eq!(notes(insecure, "1"), [said]);
    assert_eq!(notes("OTEL_SDK_DISABLED", "1"), ["OTEL_SDK_DISABLED=1 is neither true nor false: spans are exported"]);
    assert!(["TRUE", "False", ""].iter().all(|value| notes(insecure, value).is_empty()));
}

#[test]
fn a_supported_setting_is_no_note() {
    let settings = with_endpoint(&[("OTEL_EXPORTER_OTLP_COMPRESSION", "none"), ("OTEL_TRACES_EXPORTER", "otlp,console")]);
    assert_eq!(settings.notes, Vec::<String>::new());
}

#[test]
fn times_and_sizes_are_read_and_none_is_zero_where_that_would_stop_everything() {
    let settings = with_endpoint(&[
        ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "250"),
        ("OTEL_BSP_SCHEDULE_DELAY", "7"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "0"),
    ]);
    assert_eq!(settings.timeout, Duration::from_millis(250));
    assert_eq!(settings.batch, Batch { delay: Duration::from_millis(7), size: 1, queue: 1 });
    let notes = ["OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "OTEL_BSP_MAX_QUEUE_SIZE"];
    assert_eq!(settings.notes, notes.map(|name| format!("{name}=0 leaves no room for a span: 1 is used")));
}

#[test]
fn no_size_is_more_than_a_channel_takes_and_no_timeout_is_none() {
    let settings = with_endpoint(&[("OTEL_BSP_MAX_QUEUE_SIZE", "18446744073709551615"), ("OTEL_EXPORTER_OTLP_TIMEOUT", "0")]);
    drop(tokio::sync::mpsc::channel::<()>(settings.batch.queue));
    assert_eq!(settings.timeout, Duration::from_secs(10));
    assert_eq!(settings.notes, ["OTEL_EXPORTER_OTLP_TIMEOUT=0 leaves an export no time: 10000 is used"]);
}

#[test]
fn credentials_that_are_not_used_are_told_by_their_name_alone() {
    let notes = |variables: &[(&str, &str)]| with_endpoint(variables).notes;
    let client = notes(&[("OTEL_EXPORTER_OTLP_CLIENT_KEY", "hush"), ("OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE", "hush")]);
    assert!(client[0].starts_with("OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE is not supported"), "{client:?}");
    assert!(client[1].starts_with("OTEL_EXPORTER_OTLP_CLIENT_KEY is not supported"), "{client:?}");
}

const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";

#[test]
fn headers_of_traces_go_before_the_general_ones_unless_they_are_empty() {
    let general = (HEADERS, "authorization=Bearer%20general==, b=1,");
    let authorization = |variables: &[(&str, &str)]| {
        let settings = with_endpoint(&[&[general], variables].concat());
        assert_eq!(settings.notes, Vec::<String>::new());
        settings.headers.get("authorization").map(|value| value.to_str().unwrap().to_owned())
    };
    assert_eq!(authorization(&[]).as_deref(), Some("Bearer general=="));
    for empty in ["", " "] {
        let said = authorization(&[("OTEL_EXPORTER_OTLP_TRACES_HEADERS", empty)]);
        assert_eq!(said.as_deref(), Some("Bearer general=="), "{empty:?}");
    }
    assert_eq!(authorization(&[("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "b=2")]), None);
}

#[test]
fn an_entry_that_no_header_can_be_made_of_is_told_by_its_place_alone() {
    for wrong in ["authorization: hush", "authorization=hush%0A", "hush key=hush", "=hush", "hush"] {
        let settings = with_endpoint(&[(HEADERS, &format!("a=b,{wrong}"))]);
        let note = format!("{HEADERS}: entry 2 is not a NAME=VALUE that a header can be made of: it is left out");
        assert_eq!((settings.headers.len(), settings.notes), (1, vec![note]), "{wrong}");
    }
}

#[test]
fn an_entry_that_is_not_percent_encoded_is_told_and_taken_as_it_stands() {
    for raw in ["50%", "%zz", "%+9", "%ü", "%ff"] {
        let settings = with_endpoint(&[(HEADERS, &format!("a=%2C,b={raw}"))]);
        let note = format!("{HEADERS}: entry 2 is not percent-encoded: it is taken as it stands");
        assert_eq!((settings.headers["b"].as_bytes(), settings.notes), (raw.as_bytes(), vec![note]));
    }
}

#[test]
fn no_value_of_a_header_is_shown() {
    let settings = with_endpoint(&[(HEADERS, "authorization=hush")]);
    assert!(!format!("{settings:?}").contains("hush"), "{settings:?}");
}

#[test]
fn samplers_decide_by_the_trace_alone() {
    let sampler = |name, arg| with_endpoint(&[("OTEL_TRACES_SAMPLER", name), ("OTEL_TRACES_SAMPLER_ARG", arg)]).sampler;
    assert_eq!(sampler("parentbased_always_off", ""), Sampler::Nothing);
    assert_eq!(sampler("ALWAYS_OFF", ""), Sampler::Nothing);
    assert_eq!(sampler("always_on", ""), Sampler::All);
    assert_eq!(sampler("traceidratio", "0.25"), Sampler::Ratio(0.25));
    assert_eq!(sampler("parentbased_traceidratio", "2"), Sampler::All);
    let quarter = Sampler::Ratio(0.25);
    assert!(quarter.takes(0x3fff_ffff_ffff_ffff) && !quarter.takes(0x4000_0000_0000_0000));
    assert!(Sampler::Ratio(1.0).takes(u128::MAX) && !Sampler::Ratio(0.0).takes(1));
}

#[test]
fn resource_attributes_are_decoded_and_the_service_name_goes_before_them() {
    let settings = with_endpoint(&[
        ("OTEL_RESOURCE_ATTRIBUTES", "service.name=a, team = b%2Cc%3d,k%2Ca=v,"),
        ("OTEL_SERVICE_NAME", "billing"),
    ]);
    let expected = [("k,a", "v"), ("service.name", "billing"), ("team", "b,c=")];
    let expected: BTreeMap<_, _> = expected.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    assert_eq!(settings.resource, expected);
    assert_eq!(settings.notes, Vec::<String>::new());
}

#[test]
fn resource_attributes_of_which_one_is_malformed_are_all_discarded() {
    for wrong in ["nothing", "=x", "odd=%zz", "odd%=v", "odd=%ff"] {
        let attributes = format!("team=a,{wrong},k=v");
        let settings = with_endpoint(&[("OTEL_RESOURCE_ATTRIBUTES", &attributes), ("OTEL_SERVICE_NAME", "billing")]);
        assert_eq!(settings.resource, BTreeMap::from([("service.name".to_owned(), "billing".to_owned())]));
        let note = "OTEL_RESOURCE_ATTRIBUTES: entry 2 is not a percent-encoded KEY=VALUE: the whole value is discarded";
        assert_eq!(settings.notes, [note], "{wrong}");
    }
}

#[test]
fn an_attribute_that_is_empty_says_nothing() {
    let settings = with_endpoint(&[("OTEL_RESOURCE_ATTRIBUTES", "service.name=,team= ,k=v"), ("OTEL_SERVICE_NAME", " ")]);
    assert_eq!(settings.resource, BTreeMap::from([("k".to_owned(), "v".to_owned())]));
    assert_eq!(settings.notes, Vec::<String>::new());
}
