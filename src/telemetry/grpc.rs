//! Turns an HTTP request into a gRPC call, and the call's status back into one of HTTP. No IO.
//!
//! OTLP sends the same message either way, so gRPC is a frame around it and a status after it; a library for more would add half
//! a megabyte to the binary.

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{
    HeaderMap, HeaderValue, Request, StatusCode, Uri, header,
    uri::{Authority, PathAndQuery},
};

use super::export::Signal;

/// The methods that take traces and metrics.
const TRACES: PathAndQuery = PathAndQuery::from_static("/opentelemetry.proto.collector.trace.v1.TraceService/Export");
const METRICS: PathAndQuery = PathAndQuery::from_static("/opentelemetry.proto.collector.metrics.v1.MetricsService/Export");

/// Length of the prefix: one byte, 0 for "not compressed", and four with the length.
const PREFIX: usize = 5;

/// The gRPC call with the message of `request`, to its server: without a user, which HTTP/2 forbids there.
pub(super) fn call(signal: Signal, request: Request<Bytes>) -> Result<Request<Bytes>, http::Error> {
    let (mut head, message) = request.into_parts();
    let mut uri = head.uri.into_parts();
    uri.path_and_query = Some(match signal {
        Signal::Traces => TRACES,
        Signal::Metrics => METRICS,
    });
    let server = uri.authority.as_ref().and_then(|authority| authority.as_str().rsplit_once('@'));
    uri.authority = server.map(|(_, server)| Authority::try_from(server)).transpose()?.or(uri.authority);
    head.uri = Uri::from_parts(uri)?;
    head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    head.headers.insert(header::TE, HeaderValue::from_static("trailers"));
    let mut frame = BytesMut::with_capacity(PREFIX + message.len());
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.put(message);
    Ok(Request::from_parts(head, frame.freeze()))
}

/// The status of the call. A Trailers-Only response has it in the headers.
pub(super) fn code(headers: &HeaderMap, trailers: Option<&HeaderMap>) -> Option<u32> {
    let said = trailers.and_then(|trailers| trailers.get("grpc-status")).or_else(|| headers.get("grpc-status"));
    said?.to_str().ok()?.parse().ok()
}

/// Why the spans were not taken, if they were not.
pub(super) fn refusal(code: Option<u32>) -> Option<String> {
    match code {
        Some(0) => None,
        Some(code) => Some(format!("gRPC status {code}")),
        None => Some("an answer without a gRPC status".to_owned()),
    }
}

/// The status that tells the exporter what is retryable, as the OTLP/GRPC specification says. RESOURCE_EXHAUSTED is retryable only
/// with a RetryInfo detail, which is not looked for here.
pub(super) const fn http_status(code: Option<u32>) -> StatusCode {
    match code {
        Some(0) => StatusCode::OK,
        // CANCELLED, DEADLINE_EXCEEDED, ABORTED, OUT_OF_RANGE, UNAVAILABLE, DATA_LOSS.
        Some(1 | 4 | 10 | 11 | 14 | 15) => StatusCode::SERVICE_UNAVAILABLE,
        Some(_) | None => StatusCode::BAD_REQUEST,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(header::HeaderName::from_static("grpc-status"), HeaderValue::from_static(code))])
    }

    #[test]
    fn what_may_pass_is_tried_again_and_nothing_else_is() {
        let of = |status| (0..=16).filter(|code| http_status(Some(*code)) == status).collect::<Vec<u32>>();
        assert_eq!((of(StatusCode::OK), of(StatusCode::SERVICE_UNAVAILABLE)), (vec![0], vec![1, 4, 10, 11, 14, 15]));
        assert_eq!(http_status(None), StatusCode::BAD_REQUEST);
    }

    #[test]
    fn a_call_is_the_message_in_a_frame_with_its_length() {
        let request =
            Request::post("http://u:hush@collector:1/v1/traces?x").header("authorization", "t").body("abc".into()).unwrap();
        let call = call(Signal::Traces, request).unwrap();
        assert_eq!(&call.body()[..], b"\0\0\0\0\x03abc");
        assert_eq!(call.uri().to_string(), format!("http://collector:1{TRACES}"));
        assert_eq!(
            ["content-type", "te", "authorization"].map(|name| &call.headers()[name]),
            ["application/grpc", "trailers", "t"]
        );
    }

    #[test]
    fn the_status_of_a_call_is_in_the_trailers_or_in_the_headers_of_an_answer_without_a_message() {
        assert_eq!(code(&HeaderMap::new(), Some(&status("0"))), Some(0));
        assert_eq!(code(&status("14"), None), Some(14));
        assert_eq!([code(&HeaderMap::new(), None), code(&status("x"), None)], [None; 2]);
        assert_eq!((refusal(Some(0)), refusal(Some(7)).as_deref()), (None, Some("gRPC status 7")));
        assert!(refusal(None).is_some());
    }
}
