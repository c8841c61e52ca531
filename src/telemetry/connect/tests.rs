use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

fn settings(variables: &[(&str, &str)]) -> Settings {
    Settings::read(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())).unwrap()
}

#[tokio::test]
async fn a_request_without_an_answer_leaves_why() {
    // Bound but not listening, so nobody else gets it.
    let port = tokio::net::TcpSocket::new_v4().unwrap();
    port.bind((std::net::Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let url = format!("http://{}", port.local_addr().unwrap());
    let collector = Collector::new(&url.parse().unwrap(), &settings(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &url)])).await.unwrap();

    let answer = collector.send_bytes(Request::post(&url).body(Bytes::new()).unwrap()).await;

    assert!(answer.is_err());
    let why = collector.cause().take().unwrap();
    assert!(why.contains("onnection refused"), "{why}");
    assert_eq!(collector.cause().take(), None);
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_is_told_with_the_variable_that_names_it() {
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://localhost");
    let refused = async |name: &str, path: &str| {
        let refused = Collector::new(&endpoint.1.parse().unwrap(), &settings(&[endpoint, (name, path)])).await;
        one_line(&refused.err().unwrap())
    };

    let missing = refused("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "/nonexistent").await;
    assert!(missing.starts_with("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE: /nonexistent cannot be read"), "{missing}");
    let empty = refused("OTEL_EXPORTER_OTLP_CERTIFICATE", "/dev/null").await;
    assert_eq!(empty, "OTEL_EXPORTER_OTLP_CERTIFICATE: /dev/null holds no PEM certificate");
    let file = std::env::temp_dir().join(format!("tenure-certificate-{}", std::process::id()));
    std::fs::write(&file, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    let path = file.to_str().unwrap();
    let unusable = refused("OTEL_EXPORTER_OTLP_CERTIFICATE", path).await;
    std::fs::remove_file(&file).unwrap();
    let expected = format!("OTEL_EXPORTER_OTLP_CERTIFICATE: {path} holds a certificate that cannot be used: ");
    assert!(unusable.starts_with(&expected), "{unusable}");
}

#[tokio::test]
async fn a_connection_that_answers_no_more_is_not_used_again() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "400"),
    ];
    let collector = Collector::new(&url.parse().unwrap(), &settings(&variables)).await.unwrap();

    let mut connections = Vec::new();
    for _ in 0..2 {
        let send = collector.send_bytes(Request::post(&url).body(Bytes::new()).unwrap());
        let (answer, accepted) = tokio::join!(send, timeout(Duration::from_secs(20), listener.accept()));
        assert!(answer.is_err());
        connections.push(accepted.expect("a connection of its own").unwrap());
    }
}

/// Answers one request with this, and hangs up.
async fn answering(answer: impl Into<Vec<u8>>) -> Result<Response<Bytes>, HttpError> {
    told(answer, &[]).await.0
}

/// Also tells what is recorded of the answer to a request with these settings.
async fn told(answer: impl Into<Vec<u8>>, variables: &[(&str, &str)]) -> (Result<Response<Bytes>, HttpError>, Option<String>) {
    let answer = answer.into();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 1024]).await.unwrap();
        // The client need not read to the end.
        let _ = stream.write_all(&answer).await;
    });
    let url = format!("{url}?key=psst");
    let settings = settings(&[&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", url.as_str())], variables].concat());
    let collector = Collector::new(&url.parse().unwrap(), &settings).await.unwrap();
    let answer = collector.send_bytes(Request::post(&url).body(Bytes::new()).unwrap()).await;
    server.await.unwrap();
    (answer, collector.cause().take())
}

#[tokio::test]
async fn a_refusal_is_told_by_its_status_and_what_the_collector_says_of_it() {
    let why = async |status: &str, body: &[u8]| {
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len());
        let headers = ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20hush");
        let (answer, why) = told([head.as_bytes(), body].concat(), &[headers]).await;
        assert!(!answer.unwrap().status().is_success());
        why.unwrap()
    };
    let said = |message: &str| Refusal { message: message.to_owned() }.encode_to_vec();

    assert_eq!(why("403 x", &said("no\nquota")).await, "HTTP 403 Forbidden: no quota");
    assert_eq!(
        why("401 x", &said("unknown: Bearer hush, key=psst")).await,
        "HTTP 401 Unauthorized: unknown: Bearer ***, key=***"
    );
    for other in [&b""[..], b"<html>", b"404 page not found", b"{\"code\":7}"] {
        assert_eq!(why("404 x", other).await, "HTTP 404 Not Found");
    }
}

#[test]
fn every_word_of_a_header_is_secret_but_for_the_one_that_says_how_to_read_it() {
    let secrets = |header: &str| {
        let headers = HeaderMap::from_iter([(http::header::AUTHORIZATION, header.parse().unwrap())]);
        secrets(&"http://c/?k=asked".parse().unwrap(), &headers)
    };
    assert_eq!(secrets("Bearer hush"), ["hush", "asked"]);
    assert_eq!(secrets("Api-Token one.two"), ["one.two", "asked"]);
    assert_eq!(secrets("hush"), ["hush", "asked"]);
    assert_eq!(secrets("sid=hush; p=1, u=psst=="), ["hush", "psst", "asked"]);
}

#[tokio::test]
async fn a_refusal_that_never_ends_has_its_status_all_the_same() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let collector = Collector::new(&url.parse().unwrap(), &settings(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &url)])).await.unwrap();
    let endless = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 1024]).await.unwrap();
        stream.write_all(b"HTTP/1.1 503 x\r\ncontent-length: 9\r\n\r\nx").await.unwrap();
        stream
    };

    let send = timeout(10 * REFUSAL, collector.send_bytes(Request::post(&url).body(Bytes::new()).unwrap()));
    let (answer, _stream) = tokio::join!(send, endless);

    assert_eq!(answer.expect("in time").unwrap().status(), 503);
}

#[tokio::test]
async fn an_answer_that_is_too_long_has_its_status_all_the_same() {
    for status in [200, 401, 503] {
        let head = format!("HTTP/1.1 {status} x\r\nretry-after: 7\r\ncontent-length: {}\r\n\r\n", 2 * ANSWER);
        let answer = answering(head + &"x".repeat(2 * ANSWER)).await.unwrap();
        assert_eq!((answer.status().as_u16(), &answer.headers()["retry-after"]), (status, &"7".parse().unwrap()));
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_none() {
    assert!(answering("HTTP/1.1 200 x\r\ncontent-length: 2\r\n\r\nx".to_owned()).await.is_err());
}

#[test]
fn a_complaint_is_one_line_with_the_number_of_spans_that_it_is_about() {
    let said = |rejected_spans, message: &str| {
        let partial_success = Some(ExportTracePartialSuccess { rejected_spans, error_message: message.to_owned() });
        let complaint = partial(&ExportTraceServiceResponse { partial_success }.encode_to_vec().into());
        complaint.map(|complaint| complaint.told(&["hush".to_owned()]))
    };
    assert_eq!(said(0, ""), None);
    assert_eq!(said(0, "soon\nfull").as_deref(), Some("0 spans rejected: soon full"));
    assert_eq!(said(3, "full of hush").as_deref(), Some("3 spans rejected: full of ***"));
    assert!(said(3, &"x".repeat(5_000)).unwrap().len() < 1_100);
    assert!(partial(&Bytes::new()).is_none() && partial(&Bytes::from_static(b"{}")).is_none());
}
