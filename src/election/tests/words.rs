//! The words that logs, metrics and traces use: closed sets, on which other people's queries rely.

use crate::election::{Complaint, Operation, Vacancy};

#[test]
fn an_operation_is_named_by_its_verb_in_rbac() {
    let all = [Operation::Get, Operation::Create, Operation::Update, Operation::Delete, Operation::Watch];

    assert_eq!(all.map(Operation::as_str), ["get", "create", "update", "delete", "watch"]);
}

#[test]
fn a_lease_is_absent_released_cleared_or_expired_when_it_is_free() {
    let all = [Vacancy::Absent, Vacancy::Released, Vacancy::Cleared, Vacancy::Expired];

    assert_eq!(all.map(Vacancy::as_str), ["absent", "released", "cleared", "expired"]);
}

#[test]
fn a_complaint_says_what_the_server_said_or_what_happened() {
    let complaint = |status, words: &str| Complaint { status, words: words.into() };

    assert_eq!(complaint(None, "timed out").to_string(), "timed out");
    assert_eq!(complaint(Some(503), "").to_string(), "the API server answered 503");
    assert_eq!(complaint(Some(403), "no update").to_string(), "the API server answered 403: no update");
}

#[test]
fn only_a_403_means_that_a_permission_is_missing() {
    let is_forbidden = |status| Complaint { status, words: "no".into() }.is_forbidden();

    assert_eq!([Some(403), Some(401), Some(404), None].map(is_forbidden), [true, false, false, false]);
}
