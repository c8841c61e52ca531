//! Turns an HTTP request into a gRPC call, and its answer back. No IO.
//!
//! OTLP sends the same message either way, so gRPC is a frame around it and a status after it; a library for more would add half
//! a megabyte to the binary.

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version, header};
use percent_encoding::percent_decode;

use super::connect::Complaint;

/// One byte, 0 for "not compressed", and the length in four.
const PREFIX: usize = 5;

/// The gRPC call with the message of `request`.
pub(crate) fn call(request: Request<Bytes>) -> Request<Bytes> {
    let (mut head, message) = request.into_parts();
    head.version = Version::HTTP_2;
    head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    head.headers.insert(header::TE, HeaderValue::from_static("trailers"));
    let mut frame = BytesMut::with_capacity(PREFIX + message.len());
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.put(message);
    Request::from_parts(head, frame.freeze())
}

/// The HTTP response that says what the call's answer says, so that the exporter can tell what is retryable, and why the call
/// failed, if it did.
pub(crate) fn answer(response: Response<Bytes>, trailers: Option<&HeaderMap>) -> (Response<Bytes>, Option<Complaint>) {
    // A Trailers-Only response has its status in the headers.
    let said = |name: &str| trailers.and_then(|trailers| trailers.get(name)).or_else(|| response.headers().get(name));
    let code = said("grpc-status").and_then(|code| code.to_str().ok()).and_then(|code| code.parse::<u32>().ok());
    let message = said("grpc-message").map(|message| percent_decode(message.as_bytes()).decode_utf8_lossy().into_owned());
    let failure = (code != Some(0)).then(|| Complaint { ours: failure(code), theirs: message.unwrap_or_default() });
    let (mut head, mut frame) = response.into_parts();
    head.status = code.map_or(StatusCode::INTERNAL_SERVER_ERROR, status);
    let message = if frame.len() >= PREFIX { frame.split_off(PREFIX) } else { Bytes::new() };
    (Response::from_parts(head, message), failure)
}

/// What gRPC calls it.
fn failure(code: Option<u32>) -> String {
    let Some(code) = code else { return "an answer without a gRPC status".to_owned() };
    let name = usize::try_from(code).ok().and_then(|place| CODES.get(place));
    name.map_or_else(|| format!("gRPC status {code}"), |name| format!("gRPC status {code} ({name})"))
}

/// The names of gRPC's status codes.
const CODES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// As the OTLP/gRPC specification says; RESOURCE_EXHAUSTED is retryable only with a RetryInfo detail, which is not looked for
/// here.
const fn status(code: u32) -> StatusCode {
    match code {
        0 => StatusCode::OK,
        // CANCELLED, DEADLINE_EXCEEDED, ABORTED, OUT_OF_RANGE, UNAVAILABLE, DATA_LOSS.
        1 | 4 | 10 | 11 | 14 | 15 => StatusCode::SERVICE_UNAVAILABLE,
        7 => StatusCode::FORBIDDEN,
        12 => StatusCode::NOT_FOUND,
        16 => StatusCode::UNAUTHORIZED,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trailers(code: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(header::HeaderName::from_static("grpc-status"), HeaderValue::from_static(code))])
    }

    fn answered(body: &'static [u8], trailers: Option<&HeaderMap>) -> (u16, Bytes) {
        let (answer, _) = answer(Response::new(Bytes::from_static(body)), trailers);
        (answer.status().as_u16(), answer.into_body())
    }

    #[test]
    fn what_may_pass_is_tried_again_and_nothing_else_is() {
        let passing: Vec<u32> = (0..=16).filter(|code| status(*code) == StatusCode::SERVICE_UNAVAILABLE).collect();
        assert_eq!(passing, [1, 4, 10, 11, 14, 15]);
        assert_eq!([0, 7, 12, 16, 8].map(|code| status(code).as_u16()), [200, 403, 404, 401, 500]);
    }

    #[test]
    fn a_call_is_the_message_in_a_frame_with_its_length() {
        let request = Request::post("http://collector/x").header("authorization", "t").body(Bytes::from_static(b"abc")).unwrap();
        let call = call(request);
        assert_eq!(&call.body()[..], b"\0\0\0\0\x03abc");
        assert_eq!(
            (&call.headers()["content-type"], &call.headers()["te"]),
            (&"application/grpc".parse().unwrap(), &"trailers".parse().unwrap())
        );
        assert_eq!(call.headers()["authorization"], "t");
    }

    #[test]
    fn the_status_of_the_call_becomes_that_of_the_response() {
        assert_eq!(answered(b"\0\0\0\0\x01m", Some(&trailers("0"))), (200, Bytes::from_static(b"m")));
        let codes = ["14", "7", "16", "12", "3", "x"].map(|code| answered(b"", Some(&trailers(code))).0);
        assert_eq!(codes, [503, 403, 401, 404, 500, 500]);
        assert_eq!(answered(b"", None), (500, Bytes::new()));
    }

    #[test]
    fn a_failure_is_told_by_its_code_and_message() {
        let failure = |code: &'static str, message: &'static str| {
            let mut trailers = trailers(code);
            trailers.insert("grpc-message", HeaderValue::from_static(message));
            let (_, failure) = answer(Response::new(Bytes::new()), Some(&trailers));
            failure.map(|Complaint { ours, theirs }| (ours, theirs))
        };
        let told = |ours: &str, theirs: &str| Some((ours.to_owned(), theirs.to_owned()));
        assert_eq!(failure("0", "fine"), None);
        assert_eq!(failure("16", "no%20token%3a %C3%BC%"), told("gRPC status 16 (UNAUTHENTICATED)", "no token: ü%"));
        assert_eq!(failure("17", ""), told("gRPC status 17", ""));
        assert_eq!(failure("x", ""), told("an answer without a gRPC status", ""));
    }

    #[test]
    fn an_answer_without_a_message_has_its_status_in_the_headers() {
        let mut response = Response::new(Bytes::new());
        *response.headers_mut() = trailers("14");
        let (answer, failure) = answer(response, None);
        assert_eq!((answer.status().as_u16(), failure.unwrap().ours.as_str()), (503, "gRPC status 14 (UNAVAILABLE)"));
    }
}
