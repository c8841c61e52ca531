//! The words that logs, metrics and traces use: closed sets, on which other people's queries rely.

use crate::{
    election::AcquireReason,
    request::{Operation, RequestError},
};

#[test]
fn an_operation_is_named_by_its_verb_in_rbac() {
    let all = [Operation::Get, Operation::Create, Operation::Update, Operation::Delete, Operation::Watch];

    assert_eq!(all.map(Operation::as_str), ["get", "create", "update", "delete", "watch"]);
}

#[test]
fn a_lease_is_released_its_holder_dead_expired_nobodys_due_or_cleared_when_it_is_free() {
    assert_eq!(AcquireReason::ALL.map(AcquireReason::as_str), ["released", "died", "expired", "nobody", "due", "cleared"]);
}

#[test]
fn only_a_403_means_that_a_permission_is_missing() {
    let is_forbidden = |status| RequestError { status, words: "no".into() }.is_forbidden();

    assert_eq!([Some(403), Some(401), Some(404), None].map(is_forbidden), [true, false, false, false]);
}
