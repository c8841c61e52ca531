//! The meaning of a reply: the one place where a status becomes an answer.
//!
//! A request was either certainly not done, or its outcome is open (law 5, 6). Which refusals may pass is said in
//! [`crate::request`]. Each case is decided for the safe side:
//!
//! | reply | answer |
//! |---|---|
//! | none, or one that broke off | open: the request may have been carried out |
//! | 2xx with what was asked for | done |
//! | 2xx with anything else | open: a proxy may have answered |
//! | 404 that names this very object | absent |
//! | 404 that names another object, such as the namespace | refused: there is no such place |
//! | 404 that names no object | refused: this is no API server that serves the kind. It is no absence |
//! | 409 | conflict: not done, because the object is another than the request says |
//! | 401, 403, 400, 422, any other 4xx | refused: certainly not done |
//! | 429 | refused: certainly not done, because the server sheds load before it acts. May be sent again |
//! | 408 | open: the server, or a proxy before it, gave up waiting |
//! | 5xx, 3xx | open, but for a patch that the server could not read: it calls that an internal error of its own |

use std::sync::Arc;

use http::StatusCode;
use serde_json::Value;

use super::{
    exchange::{ExchangeError, Reply},
    request::{Request, Verb},
};
use crate::{
    request::{Answer, Refusal, RequestError},
    words::one_line,
};

/// What became of a request.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    /// For who decides.
    pub(crate) answer: Answer,
    /// The status, and the words of the server about anything but success.
    pub(crate) said: RequestError,
    /// What the server warns of.
    pub(crate) warnings: Vec<String>,
}

impl Answered {
    /// Nothing was sent.
    pub(super) fn not_sent(refusal: Refusal, why: impl Into<RequestError>) -> Self {
        let said = why.into();
        Self { answer: Answer::Refused { refusal, message: said.clone() }, said, warnings: Vec::new() }
    }

    /// Returns the object, or why there is none.
    ///
    /// # Errors
    /// The answer is anything else.
    pub(crate) fn object(self) -> Result<Value, RequestError> {
        match self.answer {
            Answer::Object(object) => Ok(Arc::unwrap_or_clone(object)),
            Answer::Deleted => Ok(Value::Null),
            Answer::NotFound | Answer::Conflict | Answer::Listed { .. } | Answer::Refused { .. } | Answer::Unknown { .. } => {
                Err(self.said)
            }
        }
    }
}

/// Returns what became of `request`.
pub(super) fn classify(request: &Request, reply: Result<Reply, ExchangeError>) -> Answered {
    let reply = match reply {
        Ok(reply) => reply,
        Err(error) => return open(one_line(&error)),
    };
    let place = &request.place;
    let words = if place.is_secret() && !request.verb.has_no_value() { reply.reason() } else { reply.message() };
    let said = RequestError { status: Some(reply.status.as_u16()), words };
    let refused = |refusal| Answer::Refused { refusal, message: said.clone() };
    let unknown = || Answer::Unknown { message: said.clone(), retry_after: reply.retry_after };
    let answer = match reply.status {
        status if status.is_success() => return Answered { warnings: reply.warnings.clone(), ..succeeded(request, &reply) },
        StatusCode::NOT_FOUND if reply.is_absence_of(&place.resource, &place.name) => Answer::NotFound,
        StatusCode::NOT_FOUND if reply.names_an_object() => refused(Refusal::NoSuchPlace),
        StatusCode::NOT_FOUND => refused(Refusal::NotServed),
        StatusCode::CONFLICT => Answer::Conflict,
        StatusCode::UNAUTHORIZED => refused(Refusal::Unauthorized),
        StatusCode::FORBIDDEN => refused(Refusal::Forbidden),
        StatusCode::TOO_MANY_REQUESTS => refused(Refusal::TooManyRequests { retry_after: reply.retry_after }),
        StatusCode::REQUEST_TIMEOUT => unknown(),
        status if status.is_client_error() => refused(Refusal::Invalid),
        _ if request.verb.is_patch() && reply.message().starts_with("failed to create typed patch object") => {
            refused(Refusal::Invalid)
        }
        _ => unknown(),
    };
    Answered { answer, said, warnings: reply.warnings }
}

fn succeeded(request: &Request, reply: &Reply) -> Answered {
    let (place, status) = (&request.place, reply.status.as_u16());
    let said = RequestError { status: Some(status), words: String::new() };
    if matches!(request.verb, Verb::Delete(_)) {
        return Answered { answer: Answer::Deleted, said, warnings: Vec::new() };
    }
    let (answer, why) = match serde_json::from_slice::<Value>(&reply.body) {
        Ok(list) if request.verb == Verb::List => (listed(list), String::new()),
        Ok(object) if place.has(&object) => (Some(Answer::Object(object.into())), String::new()),
        Ok(_) => (None, format!("the API server's answer is not a {} of this name", place.kind)),
        Err(error) => (None, format!("the API server's reply is not JSON: {error}")),
    };
    if let Some(answer) = answer {
        return Answered { answer, said, warnings: Vec::new() };
    }
    let expected = if request.verb == Verb::List { "a list".into() } else { format!("this {}", place.kind) };
    let message = format!("the API server answered {status} with what is not {expected}");
    Answered { answer: Answer::Unknown { message: message.into(), retry_after: None }, said: why.into(), warnings: Vec::new() }
}

fn listed(mut list: Value) -> Option<Answer> {
    let resource_version = list.pointer("/metadata/resourceVersion")?.as_str()?.to_owned();
    let Value::Array(items) = list.get_mut("items")?.take() else { return None };
    Some(Answer::Listed { objects: items.into_iter().map(Arc::new).collect(), resource_version })
}

fn open(why: String) -> Answered {
    Answered {
        answer: Answer::Unknown { message: why.as_str().into(), retry_after: None },
        said: why.into(),
        warnings: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::api::Place;

    fn asked(verb: Verb) -> Request {
        Request::of(Place::clone(&Place::lease("billing", "writer")), verb)
    }

    fn reply(status: u16, body: &str) -> Result<Reply, ExchangeError> {
        let status = StatusCode::from_u16(status).unwrap();
        Ok(Reply { status, retry_after: Some(Duration::from_secs(3)), warnings: Vec::new(), body: body.to_owned().into() })
    }

    fn get(status: u16, body: &str) -> Answer {
        classify(&asked(Verb::Get), reply(status, body)).answer
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
            let answer = classify(&asked(Verb::Get), Err(error)).answer;
            assert!(matches!(answer, Answer::Unknown { retry_after: None, .. }));
        }
    }

    #[test]
    fn a_2xx_of_a_delete_needs_no_body() {
        let delete = asked(Verb::Delete(json!({}).into()));

        assert_eq!(classify(&delete, reply(200, "")).answer, Answer::Deleted);
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
        for body in [other, namespace] {
            assert_eq!(refusal(get(404, body)), Refusal::NoSuchPlace, "{body}");
        }
        for body in ["404 page not found", ""] {
            assert_eq!(refusal(get(404, body)), Refusal::NotServed, "{body}");
        }
    }

    #[test]
    fn a_patch_that_the_server_could_not_read_is_refused_although_it_calls_that_an_error_of_its_own() {
        let typed = r#"{"kind":"Status","message":"failed to create typed patch object: .data.a: expected string"}"#;
        for verb in [Verb::Apply(json!({}).into()), Verb::Merge(json!({}).into())] {
            assert_eq!(refusal(classify(&asked(verb), reply(500, typed)).answer), Refusal::Invalid);
        }
        assert!(matches!(get(500, typed), Answer::Unknown { .. }));
    }

    #[test]
    fn of_a_refused_secret_only_status_and_reason_are_told() {
        let body = r#"{"message":"Secret \"x\" is invalid: data: c2VudGluZWw=","reason":"Invalid"}"#;
        let told = |place: &Place| classify(&Request::get(place), reply(422, body)).object().unwrap_err();
        assert_eq!(told(&Place::secret("shop", "x")), RequestError { status: Some(422), words: "Invalid".into() });
        let causes = r#"{"message":"c2VudA==","reason":"Invalid","details":{"causes":[{"reason":"FieldValueRequired","message":"c2VudA==","field":"data[tls.crt]"}]}}"#;
        let told_of =
            |verb| classify(&Request::of(Place::secret("shop", "x"), verb), reply(422, causes)).object().unwrap_err().words;
        assert_eq!(told_of(Verb::Create(json!({ "data": {} }).into())), "Invalid: data[tls.crt] FieldValueRequired");
        assert_eq!(told_of(Verb::Create(json!({ "type": "x" }).into())), "c2VudA==", "what holds no value is told in full");
        assert!(told(&Place::lease("shop", "x")).words.contains("is invalid"));
    }

    #[test]
    fn a_number_is_read_as_it_was_written() {
        for number in ["0.9452706955539223", "0.38120423768821243", "9007199254740993", "18446744073709551615"] {
            let Answer::Object(object) = get(200, &format!(r#"{{"metadata":{{"name":"writer","ratio":{number}}}}}"#)) else {
                panic!("an object")
            };
            assert_eq!(object["metadata"]["ratio"].to_string(), number);
        }
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
