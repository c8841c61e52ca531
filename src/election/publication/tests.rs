use serde_json::json;

use super::*;
use crate::{config::Config, request::RequestError};

const START: Instant = Instant::from_nanos(1_000_000_000_000);
/// S - T.
const UNTIL: Duration = Duration::from_millis(7_850);

fn after(seconds: u64) -> Instant {
    START + Duration::from_secs(seconds)
}

fn config() -> Config {
    Config::default()
}

fn wanted(token: &str, serves: bool) -> Wanted {
    Wanted { term: Term(1), slot: Slot(0), token: token.into(), serves, ends: !serves, until: START + UNTIL }
}

fn slice(version: &str, token: Option<&str>, endpoints: Value) -> Value {
    let mut slice = json!({
        "metadata": { "name": "s", "uid": "u", "resourceVersion": version, "labels": { "of": "others" } },
        "addressType": "IPv4", "endpoints": endpoints, "ports": [{ "port": 80 }], "futureField": 1,
    });
    if let Some(token) = token {
        slice["metadata"]["annotations"] = json!({ TOKEN: token });
    }
    slice
}

fn mine() -> Value {
    json!({ "addresses": ["10.0.0.1"] })
}

fn publisher() -> Publisher {
    let of = [("IPv4".to_owned(), mine())].into_iter().collect();
    Publisher::new(Endpoints { of, ports: vec![json!({ "port": 80 })] }, config().timing())
}

/// Returns the write that follows the read of `seen`.
fn written(seen: &Value, wanted: &Wanted) -> SliceAction {
    let mut publisher = publisher();
    assert_eq!(publisher.step(wanted, START), SliceAction::Get);
    publisher.answered(read(seen.clone()), START);
    publisher.step(wanted, START)
}

fn read(slice: Value) -> Answer {
    Answer::Object(slice.into())
}

fn refused(status: u16, refusal: Refusal) -> Answer {
    Answer::Refused { refusal, message: RequestError { status: Some(status), words: "no".into() } }
}

fn lost(status: Option<u16>) -> Answer {
    Answer::Unknown { message: RequestError { status, words: "no".into() }, retry_after: None }
}

#[test]
fn a_retry_after_is_heeded_for_a_minute_at_most_and_holds_up_no_withdrawal() {
    for (said, waited) in [(Some(1), 3), (Some(20), 20), (Some(3600), 60), (None, 3)] {
        let mut publisher = publisher();
        publisher.step(&wanted("9", true), START);
        let refusal = Refusal::TooManyRequests { retry_after: said.map(Duration::from_secs) };
        publisher.answered(refused(429, refusal), START);
        assert_eq!(publisher.step(&wanted("9", true), START), SliceAction::Wait(after(waited)), "{said:?}");
        assert_eq!(publisher.step(&wanted("9", false), START), SliceAction::Get);
    }
}

#[test]
fn the_slice_of_one_slot_is_not_written_to_that_of_another() {
    let mut publisher = publisher();
    let first = Wanted { slot: Slot(1), ..wanted("9", false) };
    assert_eq!(publisher.step(&first, START), SliceAction::Get);
    publisher.answered(read(slice("7", Some("9"), json!([]))), START);
    assert!(matches!(publisher.step(&first, START), SliceAction::Wait(_)));

    assert_eq!(publisher.step(&wanted("12", false), START), SliceAction::Get);
}

#[test]
fn a_write_carries_uid_version_and_token_and_keeps_what_is_others() {
    let read = slice("7", Some("8"), json!([{ "addresses": ["10.0.0.2"] }]));

    let SliceAction::Replace(write) = written(&read, &wanted("9", true)) else { panic!("no write") };

    assert_eq!(write, slice("7", Some("9"), json!([mine()])));
    assert_eq!(written(&slice("7", None, json!(null)), &wanted("9", true)), SliceAction::Replace(write));
}

#[test]
fn who_wrote_which_field_is_dropped_unless_somebody_applies_the_slice_on_the_servers_side() {
    for (operation, after) in [("Update", json!([{}])), ("Apply", json!([{ "operation": "Apply" }]))] {
        let mut read = slice("7", None, json!(null));
        read["metadata"]["managedFields"] = json!([{ "operation": operation }]);

        let SliceAction::Replace(write) = written(&read, &wanted("9", true)) else { panic!("no write") };

        assert_eq!(write["metadata"]["managedFields"], after);
    }
}

#[test]
fn a_lower_token_never_replaces_a_higher_one_and_tokens_are_numbers_of_any_length() {
    for (stored, own, may) in [
        ("9", "10", true),
        ("10", "9", false),
        ("9", "9", true),
        ("99999999999999999999998", "99999999999999999999999", true),
        ("99999999999999999999999", "99999999999999999999998", false),
        ("010", "9", false),
        ("x", "9", true),
    ] {
        let step = written(&slice("7", Some(stored), json!([])), &wanted(own, true));
        assert_eq!(matches!(step, SliceAction::Replace(_)), may, "{own} onto {stored}: {step:?}");
    }
}

#[test]
fn a_term_begins_by_emptying_the_slice_whoever_stands_in_it() {
    let read = slice("7", Some("8"), json!([mine()]));
    assert_eq!(written(&read, &wanted("9", false)), SliceAction::Replace(slice("7", Some("9"), json!([]))));
}

#[test]
fn nothing_is_sent_from_s_minus_t_on_until_a_renewal_moves_that() {
    let mut publisher = publisher();
    let mut wanted = wanted("9", true);
    assert_eq!(publisher.step(&wanted, wanted.until), SliceAction::Wait(Instant::NEVER));
    let late = wanted.until;
    wanted.until = after(60);
    assert_eq!(publisher.step(&wanted, late), SliceAction::Get);
    publisher.answered(read(slice("7", None, json!([]))), late);
    assert_eq!(publisher.step(&wanted, after(60)), SliceAction::Wait(Instant::NEVER));
}

#[test]
fn what_is_as_wanted_is_looked_at_again_once_per_duration_and_withdrawn_without_another_read() {
    let mut publisher = publisher();
    let mut wanted = Wanted { until: after(1000), ..wanted("9", true) };
    publisher.step(&wanted, START);
    publisher.answered(read(slice("7", Some("9"), json!([mine()]))), START);
    assert_eq!(publisher.step(&wanted, START), SliceAction::Wait(after(15)));
    assert_eq!(publisher.step(&wanted, after(14)), SliceAction::Wait(after(15)));
    assert_eq!(publisher.step(&wanted, after(15)), SliceAction::Get);
    publisher.answered(read(slice("8", Some("9"), json!([mine()]))), after(15));
    assert_eq!(publisher.step(&wanted, after(15)), SliceAction::Wait(after(30)));

    wanted.serves = false;
    assert_eq!(publisher.step(&wanted, after(16)), SliceAction::Replace(slice("8", Some("9"), json!([]))));
    publisher.answered(read(slice("9", Some("9"), json!(null))), after(16));
    assert_eq!(publisher.step(&wanted, after(16)), SliceAction::Wait(after(31)));
}

#[test]
fn after_a_conflict_it_reads_anew_and_other_failures_wait_for_the_renew_period_and_are_said_once() {
    let mut publisher = publisher();
    let wanted = wanted("9", true);
    publisher.step(&wanted, START);
    publisher.answered(read(slice("7", None, json!([]))), START);
    assert!(matches!(publisher.step(&wanted, START), SliceAction::Replace(_)));
    publisher.answered(Answer::Conflict, START);
    assert_eq!(publisher.step(&wanted, START), SliceAction::Wait(START + PAUSE));
    assert_eq!(publisher.step(&wanted, START + PAUSE), SliceAction::Get);
    assert_eq!(publisher.take_news(), None);

    publisher.answered(Answer::NotFound, START);
    assert_eq!(publisher.take_news(), Some(&SliceState::Failed("there is none: create it".into())));
    assert_eq!(publisher.step(&wanted, START), SliceAction::Wait(after(3)));
    assert_eq!(publisher.step(&wanted, after(3)), SliceAction::Get);
    publisher.answered(Answer::NotFound, after(3));
    assert_eq!(publisher.take_news(), None);
    publisher.step(&wanted, after(6));
    publisher.answered(read(slice("7", Some("9"), json!([mine()]))), after(6));
    publisher.step(&wanted, after(6));
    assert_eq!(publisher.take_news(), Some(&SliceState::Published));
    assert_eq!(publisher.take_news(), None);
}

#[test]
fn what_is_no_slice_is_not_written_and_said() {
    let mut nobodys = slice("7", None, json!([]));
    nobodys["metadata"]["uid"] = "".into();
    let mut publisher = publisher();
    publisher.step(&wanted("9", true), START);
    publisher.answered(read(nobodys), START);
    assert_eq!(publisher.step(&wanted("9", true), START), SliceAction::Wait(after(15)));
    let Some(SliceState::Failed(why)) = publisher.take_news() else { panic!("nothing was said") };
    assert!(why.contains("not an EndpointSlice"), "{why}");

    let mut odd = slice("7", None, json!([]));
    odd["metadata"]["annotations"] = "no map".into();
    let SliceAction::Replace(next) = written(&odd, &wanted("9", true)) else { panic!("it is not written") };
    assert_eq!(next["metadata"]["annotations"][TOKEN], "9");
}

#[test]
fn where_its_own_address_cannot_stand_the_slice_is_emptied_of_the_predecessor_and_its_token_raised() {
    let theirs = json!([{ "addresses": ["fd00::2"] }]);
    let mut other_family = slice("7", Some("8"), theirs);
    other_family["addressType"] = "IPv6".into();
    let predecessors = slice("7", Some("8"), json!([{ "addresses": ["10.0.0.2"] }]));
    for (seen, is_refused, words) in [(other_family, false, "addressType is \"IPv6\""), (predecessors, true, "answered 422: no")]
    {
        let (mut publisher, wanted) = (publisher(), wanted("9", true));
        publisher.step(&wanted, START);
        publisher.answered(read(seen.clone()), START);
        if is_refused {
            assert!(matches!(publisher.step(&wanted, START), SliceAction::Replace(_)));
            publisher.answered(refused(422, Refusal::Invalid), START);
            assert_eq!(publisher.step(&wanted, START), SliceAction::Get);
            publisher.answered(read(seen.clone()), START);
        }
        let SliceAction::Replace(write) = publisher.step(&wanted, START) else { panic!("it stays: {seen}") };
        assert_eq!((&write["endpoints"], &write["metadata"]["annotations"][TOKEN]), (&json!([]), &json!("9")));
        publisher.answered(read(write), START);

        assert!(matches!(publisher.step(&wanted, START), SliceAction::Wait(_)));
        let Some(SliceState::Failed(why)) = publisher.take_news() else { panic!("nothing was said") };
        assert!(why.contains(words), "{why}");
    }
}

#[test]
fn conflicts_in_a_row_are_answered_more_and_more_slowly() {
    let (mut publisher, wanted) = (publisher(), wanted("9", true));
    let mut now = START;
    let mut pauses = Vec::new();
    for _ in 0..6 {
        publisher.step(&wanted, now);
        publisher.answered(read(slice("7", None, json!([]))), now);
        publisher.step(&wanted, now);
        publisher.answered(Answer::Conflict, now);
        let SliceAction::Wait(until) = publisher.step(&wanted, now) else { panic!("at once") };
        pauses.push(until.since(now).as_millis());
        now = until;
    }
    assert_eq!(pauses, [200, 400, 800, 1600, 3000, 3000]);
}

#[test]
fn a_withdrawal_that_fails_is_tried_again_within_the_wait_for_it_where_that_may_help() {
    let busy = refused(429, Refusal::TooManyRequests { retry_after: None });
    for (answer, pauses) in [
        (lost(None), [200, 400]),
        (busy, [200, 400]),
        (lost(Some(500)), [200, 400]),
        (refused(403, Refusal::Forbidden), [3000, 3000]),
    ] {
        let (mut publisher, serving) = (publisher(), wanted("9", true));
        publisher.step(&serving, START);
        publisher.answered(read(slice("7", Some("9"), json!([mine()]))), START);
        publisher.step(&serving, START);
        let (ends, mut now) = (wanted("9", false), START);
        for pause in pauses {
            assert!(!matches!(publisher.step(&ends, now), SliceAction::Wait(_)), "{answer:?}");
            publisher.answered(answer.clone(), now);
            now += Duration::from_millis(pause);
            assert_eq!(publisher.step(&ends, now.before(Duration::from_millis(1))), SliceAction::Wait(now), "{answer:?}");
        }
    }
}

#[test]
fn whom_a_successor_has_replaced_at_its_end_has_nothing_to_say() {
    let (mut publisher, ends) = (publisher(), wanted("9", false));
    publisher.step(&ends, START);
    publisher.answered(read(slice("7", Some("10"), json!([{ "addresses": ["10.0.0.2"] }]))), START);

    assert_eq!(publisher.step(&ends, START), SliceAction::Wait(after(15)));
    assert_eq!(publisher.take_news(), None);
}
