use std::{env, fs, net::Ipv4Addr, process};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket},
};

use super::*;

fn client(variables: &[(&str, &str)]) -> CollectorClient {
    let variable = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    CollectorClient::new(OtlpConfig::read(Signal::Traces, variable).unwrap().unwrap())
}

fn post(url: &str) -> Request<Bytes> {
    Request::post(url).body(Bytes::new()).unwrap()
}

/// A client of this server, and its URL.
fn client_of(server: &TcpListener, variables: &[(&str, &str)]) -> (CollectorClient, String) {
    let url = format!("http://{}", server.local_addr().unwrap());
    (client(&[&[("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str())], variables].concat()), url)
}

#[tokio::test]
async fn a_request_without_an_answer_says_why() {
    // Bound but not listening, so nobody else gets it.
    let port = TcpSocket::new_v4().unwrap();
    port.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let url = format!("http://{}", port.local_addr().unwrap());

    let failed = client(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &url)]).send(post(&url)).await.unwrap_err();

    assert!(one_line(failed.as_ref()).contains("onnection refused"), "{failed}");
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_is_told_with_the_variable_that_names_it() {
    let refused = async |name: &str, path: &str| {
        let url = "https://localhost";
        client(&[("OTEL_EXPORTER_OTLP_ENDPOINT", url), (name, path)]).send(post(url)).await.unwrap_err().to_string()
    };

    let missing = refused("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "/nonexistent").await;
    assert!(missing.starts_with("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE: /nonexistent cannot be read: "), "{missing}");
    let file = env::temp_dir().join(format!("tenure-certificate-{}", process::id()));
    fs::write(&file, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    let unusable = refused("OTEL_EXPORTER_OTLP_CERTIFICATE", file.to_str().unwrap()).await;
    fs::remove_file(&file).unwrap();
    let expected = format!("OTEL_EXPORTER_OTLP_CERTIFICATE: {} holds no PEM certificate that can be used", file.display());
    assert_eq!(unusable, expected);
}

#[tokio::test]
async fn a_certificate_that_is_there_later_is_used_then() {
    let file = env::temp_dir().join(format!("tenure-certificate-later-{}", process::id()));
    let port = TcpSocket::new_v4().unwrap();
    port.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let url = format!("https://{}", port.local_addr().unwrap());
    let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()), ("OTEL_EXPORTER_OTLP_CERTIFICATE", file.to_str().unwrap())];
    let client = client(&variables);
    let missing = client.send(post(&url)).await.unwrap_err();
    assert!(missing.to_string().contains(" cannot be read: "), "{missing}");

    fs::write(&file, rcgen::generate_simple_self_signed(["x".to_owned()]).unwrap().cert.pem()).unwrap();
    let refused = client.send(post(&url)).await.unwrap_err();

    fs::remove_file(&file).unwrap();
    assert!(one_line(refused.as_ref()).contains("onnection refused"), "{refused}");
}

#[tokio::test]
async fn a_connection_that_answers_no_more_is_given_up_in_time_and_not_used_again() {
    for (protocol, why) in [("http/protobuf", "no answer within 400ms"), ("grpc", "keep-alive timed out")] {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let variables = [("OTEL_EXPORTER_OTLP_PROTOCOL", protocol), ("OTEL_EXPORTER_OTLP_TIMEOUT", "400")];
        let (client, url) = client_of(&server, &variables);

        let mut connections = Vec::new();
        for _ in 0..2 {
            let (answer, accepted) = tokio::join!(client.send(post(&url)), timeout(Duration::from_secs(20), server.accept()));
            let told = one_line(answer.unwrap_err().as_ref());
            assert!(told.contains(why), "{told}");
            connections.push(accepted.expect("a connection of its own").unwrap());
        }
    }
}

/// The client's reading of this answer, after which the connection ends.
async fn answered(answer: String) -> (Response<Bytes>, Option<String>) {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (client, url) = client_of(&server, &[]);
    let answering = async {
        let (mut stream, _) = server.accept().await.unwrap();
        let _ = stream.read(&mut [0; 1024]).await.unwrap();
        // The client need not read to the end.
        let _ = stream.write_all(answer.as_bytes()).await;
    };
    tokio::join!(client.send(post(&url)), answering).0.unwrap()
}

#[tokio::test]
async fn an_answer_that_is_too_long_or_breaks_off_has_its_status_all_the_same() {
    for (status, refusal) in [(200, None), (401, Some("HTTP 401 Unauthorized")), (503, Some("HTTP 503 Service Unavailable"))] {
        for sent in [1, 2 * ANSWER] {
            let head = format!("HTTP/1.1 {status} x\r\nretry-after: 7\r\ncontent-length: {}\r\n\r\n", 2 * ANSWER);
            let (answer, why) = answered(head + &"x".repeat(sent)).await;
            assert_eq!((answer.status().as_u16(), &answer.headers()["retry-after"]), (status, &"7".parse().unwrap()));
            assert_eq!(why.as_deref(), refusal);
        }
    }
}
