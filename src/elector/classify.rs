//! The meaning of a reply for the Lease.
//!
//! A request was either certainly not done, or its outcome is unknown (law 5, 6). A 404 is about the Lease only if it says so,
//! and a 2xx counts only if it can be read.

use std::sync::Arc;

use http::StatusCode;
use serde_json::Value;

use crate::{
    api::{ExchangeError, Reply, key::LeaseKey},
    election::Request,
    request::{Answer, Refusal, RequestError},
    words::one_line,
};

/// Returns the answer to `request` about this Lease.
pub(super) fn classify(request: &Request, key: &LeaseKey, reply: Result<Reply, ExchangeError>) -> Answer {
    let reply = match reply {
        Ok(reply) => reply,
        Err(error) => return Answer::Unknown { message: one_line(&error).into(), retry_after: None },
    };
    let refused = |refusal| Answer::Refused { refusal, message: said(&reply) };
    match reply.status {
        status if status.is_success() => succeeded(request, key, &reply),
        StatusCode::NOT_FOUND if reply.is_absence_of("leases", &key.name) => Answer::NotFound,
        StatusCode::NOT_FOUND if reply.names_an_object() => refused(Refusal::NoSuchPlace),
        StatusCode::NOT_FOUND => {
            let mut message = said(&reply);
            message.words.push_str(" (is this the API server? it serves no coordination.k8s.io/v1 at this address)");
            Answer::Refused { refusal: Refusal::NoSuchPlace, message }
        }
        StatusCode::CONFLICT => Answer::Conflict,
        StatusCode::UNAUTHORIZED => refused(Refusal::Unauthorized),
        StatusCode::FORBIDDEN => refused(Refusal::Forbidden),
        StatusCode::TOO_MANY_REQUESTS => refused(Refusal::TooManyRequests { retry_after: reply.retry_after }),
        // The server, or a proxy before it, gave up waiting: the request may have been carried out.
        StatusCode::REQUEST_TIMEOUT => unknown(&reply),
        status if status.is_client_error() => refused(Refusal::Invalid),
        _ => unknown(&reply),
    }
}

/// Returns the answer to a LIST of the Leases of all slots.
pub(super) fn classify_list(reply: Result<Reply, ExchangeError>) -> Answer {
    // No Lease has this name.
    let nameless = LeaseKey { namespace: String::new(), name: String::new() };
    let listed = |reply: &Reply| {
        let mut list: Value = serde_json::from_slice(&reply.body).ok()?;
        let resource_version = list.pointer("/metadata/resourceVersion")?.as_str()?.to_owned();
        let Value::Array(items) = list.get_mut("items")?.take() else { return None };
        Some(Answer::Listed { objects: items.into_iter().map(Arc::new).collect(), resource_version })
    };
    match reply {
        Ok(reply) if reply.status.is_success() => listed(&reply).unwrap_or_else(|| {
            let message = format!("the API server answered {} with what is not a list", reply.status.as_u16());
            Answer::Unknown { message: message.into(), retry_after: None }
        }),
        reply => classify(&Request::List, &nameless, reply),
    }
}

fn succeeded(request: &Request, key: &LeaseKey, reply: &Reply) -> Answer {
    if matches!(request, Request::Delete { .. }) {
        return Answer::Deleted;
    }
    match serde_json::from_slice::<Value>(&reply.body) {
        Ok(object) if key.names(&object) => Answer::Object(object.into()),
        Ok(_) | Err(_) => {
            let message = format!("the API server answered {} with what is not this Lease", reply.status.as_u16());
            Answer::Unknown { message: message.into(), retry_after: None }
        }
    }
}

fn unknown(reply: &Reply) -> Answer {
    Answer::Unknown { message: said(reply), retry_after: reply.retry_after }
}

fn said(reply: &Reply) -> RequestError {
    RequestError { status: Some(reply.status.as_u16()), words: reply.message() }
}

/// A status and a body: only a 2xx that can be read is an object, and only a 404 that says so is about the Lease.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(bytes: &[u8]) {
    let Some(([high, low], body)) = bytes.split_first_chunk() else { return };
    let Ok(status) = StatusCode::from_u16(u16::from_be_bytes([*high, *low])) else { return };
    let reply = Reply { status, retry_after: None, body: body.to_vec().into() };
    let key = LeaseKey { namespace: "default".into(), name: "lease".into() };
    let is_absence = reply.is_absence_of("leases", "lease");
    match classify(&Request::Get, &key, Ok(reply)) {
        Answer::Object(object) => assert!(status.is_success() && object.is_object()),
        Answer::NotFound => assert!(is_absence),
        Answer::Conflict => assert_eq!(status, StatusCode::CONFLICT),
        Answer::Refused { .. } => assert!(status.is_client_error()),
        Answer::Unknown { .. } => {}
        Answer::Deleted | Answer::Listed { .. } => panic!("that was not asked for"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn here() -> LeaseKey {
        LeaseKey { namespace: "billing".into(), name: "writer".into() }
    }

    fn reply(status: u16, body: &str) -> Result<Reply, ExchangeError> {
        let status = StatusCode::from_u16(status).unwrap();
        Ok(Reply { status, retry_after: Some(Duration::from_secs(3)), body: body.to_owned().into() })
    }

    fn get(status: u16, body: &str) -> Answer {
        classify(&Request::Get, &here(), reply(status, body))
    }

    fn refusal(answer: Answer) -> Refusal {
        let Answer::Refused { refusal, .. } = answer else { panic!("{answer:?}") };
        refusal
    }

    #[test]
    fn an_object_is_kept_whole() {
        let body = r#"{"metadata":{"name":"writer"},"spec":{"futureField":[1]}}"#;

        assert_eq!(get(200, body), Answer::Object(serde_json::from_str::<Value>(body).unwrap().into()));
        assert_eq!(get(201, body), Answer::Object(serde_json::from_str::<Value>(body).unwrap().into()));
    }

    #[test]
    fn a_2xx_that_cannot_be_read_is_unknown() {
        for body in [
            "",
            "{",
            "[]",
            "<html>",
            r#"{"metadata":{"name":"another"}}"#,
            r#"{"metadata":{"name":"writer","namespace":"another"}}"#,
            r#"{"kind":"Status","metadata":{}}"#,
            r#"{"kind":"ConfigMap","metadata":{"name":"writer"}}"#,
            r#"{"apiVersion":"v1","metadata":{"name":"writer"}}"#,
        ] {
            assert!(matches!(get(200, body), Answer::Unknown { .. }), "{body}");
        }
    }

    #[test]
    fn without_a_reply_nobody_knows_what_was_done() {
        use ExchangeError::{Body, Timeout, Transport};
        for error in [Transport("reset".into()), Body("broken off".into()), Timeout(Duration::from_secs(1))] {
            let answer = classify(&Request::Get, &here(), Err(error));
            assert!(matches!(answer, Answer::Unknown { retry_after: None, .. }));
        }
    }

    #[test]
    fn a_2xx_of_a_delete_needs_no_body() {
        let delete = Request::Delete { uid: "u".into(), resource_version: "1".into() };

        assert_eq!(classify(&delete, &here(), reply(200, "")), Answer::Deleted);
    }

    #[test]
    fn not_found_is_said_of_this_very_lease() {
        let body = r#"{"kind":"Status","details":{"name":"writer","group":"coordination.k8s.io","kind":"leases"}}"#;

        assert_eq!(get(404, body), Answer::NotFound);
    }

    #[test]
    fn not_found_of_anything_else_is_no_such_place() {
        let other = r#"{"kind":"Status","details":{"name":"other","kind":"leases"}}"#;
        let namespace = r#"{"kind":"Status","details":{"name":"writer","kind":"namespaces"}}"#;
        for body in [other, namespace, "404 page not found", ""] {
            assert_eq!(refusal(get(404, body)), Refusal::NoSuchPlace, "{body}");
        }
        let said = |body| if let Answer::Refused { message, .. } = get(404, body) { message.to_string() } else { String::new() };
        assert!(said("404 page not found").contains("it serves no coordination.k8s.io/v1"), "{}", said("404 page not found"));
        assert!(!said(namespace).contains("serves"));
    }

    #[test]
    fn a_refusal_is_told_by_its_kind() {
        assert_eq!(get(409, ""), Answer::Conflict);
        assert_eq!(refusal(get(401, "")), Refusal::Unauthorized);
        assert_eq!(refusal(get(403, "")), Refusal::Forbidden);
        assert_eq!(refusal(get(400, "")), Refusal::Invalid);
        assert_eq!(refusal(get(422, "")), Refusal::Invalid);
        assert_eq!(refusal(get(429, "")), Refusal::TooManyRequests { retry_after: Some(Duration::from_secs(3)) });
    }

    #[test]
    fn nobody_knows_what_became_of_a_server_error() {
        for status in [302, 408, 500, 502, 503, 504] {
            let Answer::Unknown { message, retry_after } = get(status, r#"{"message":"etcd is gone"}"#) else {
                panic!("{status}")
            };
            assert_eq!(message.to_string(), format!("the API server answered {status}: etcd is gone"));
            assert_eq!(retry_after, Some(Duration::from_secs(3)));
        }
    }
}
