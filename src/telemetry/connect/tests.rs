use opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess;
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
async fn answering(answer: String) -> Result<Response<Bytes>, HttpError> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 1024]).await.unwrap();
        // The client need not read to the end.
        let _ = stream.write_all(answer.as_bytes()).await;
    });
    let collector = Collector::new(&url.parse().unwrap(), &settings(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &url)])).await.unwrap();
    let answer = collector.send_bytes(Request::post(&url).body(Bytes::new()).unwrap()).await;
    server.await.unwrap();
    answer
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
        complaint(&ExportTraceServiceResponse { partial_success }.encode_to_vec().into())
    };
    assert_eq!(said(0, ""), None);
    assert_eq!(said(0, "soon\nfull").as_deref(), Some("soon full"));
    assert_eq!(said(3, "full").as_deref(), Some("3 spans rejected: full"));
    assert!(said(3, &"x".repeat(5_000)).unwrap().len() < 1_100);
    assert_eq!((complaint(&Bytes::new()), complaint(&Bytes::from_static(b"{}"))), (None, None));
}
