//! The limit of the wait for a live holder (`lock --try`, `lock --timeout`).

use std::time::Duration;

use serde_json::{Value, json};

use super::bench::{Bench, ME, Register, START, TICK, held, initial_state, lost, mark, plus, seconds, takes_exactly_after};
use crate::{
    config::{Preset, Task, Trigger, WaitLimit},
    election::{
        Event, Request,
        writes::{PAUSED, STEP_DOWN_TO},
    },
    link::{InitialState, ToElector, ToInit},
    request::{Answer, Refusal, RequestError},
};

/// The elector of a lock that waits this many seconds, and a Lease of this spec.
fn waits(limit: u64, spec: Value) -> Bench {
    waits_for(limit, Register::holding(spec))
}

fn waits_for(limit: u64, register: Register) -> Bench {
    let preset = Preset::Lock { wait_limit: Some(WaitLimit { limit: seconds(limit), code: 75 }) };
    Bench::start(InitialState { preset, began: START, ..initial_state() }, register)
}

/// Renewed at this second after the bench's start, by the wall clock.
fn renewed(second: i64) -> Value {
    let mut spec = held("other_1", 15);
    let minute = format!("{:02}", second.div_euclid(60).rem_euclid(60));
    let hour = if second < 0 { "07" } else { "08" };
    spec["renewTime"] = json!(format!("2027-01-15T{hour}:{minute}:{:02}.000000Z", second.rem_euclid(60)));
    spec
}

fn given_up(bench: &Bench) -> Option<(u8, &str)> {
    bench.told.iter().find_map(|message| match message {
        ToInit::GaveUp { code, message } => Some((*code, message.as_str())),
        _ => None,
    })
}

#[track_caller]
fn gave_up(bench: &Bench, code: u8, parts: &[&str]) {
    let Some((with, words)) = given_up(bench) else { panic!("it waits on: {:?}", bench.sent) };
    assert!(with == code && parts.iter().all(|part| words.contains(part)), "{with}: {words}");
    assert!(bench.is_done(), "{:?}", bench.told);
}

/// Returns how often the warning of an abandoned Lease was reported.
fn said(bench: &Bench) -> usize {
    warned(bench, "looks abandoned")
}

/// Returns how often a warning with these words was reported.
fn warned(bench: &Bench, words: &str) -> usize {
    bench.events.iter().filter(|event| matches!(event, Event::Odd { message } if message.contains(words))).count()
}

fn refused(refusal: Refusal, status: u16) -> Answer {
    Answer::Refused { refusal, message: RequestError { status: Some(status), words: "no".into() } }
}

/// Every request gets this answer until this long after the start.
fn lose(bench: &mut Bench, until: Duration, answer: &Answer) {
    bench.answers = false;
    while bench.now.boot + Duration::from_millis(100) < START + until {
        bench.run(Duration::from_millis(100));
        if bench.awaited.is_some() {
            bench.answer(answer.clone());
        }
    }
}

#[test]
fn a_holder_that_lives_is_not_waited_for_beyond_the_bound_and_is_named() {
    let mut bench = waits(0, renewed(-3));
    bench.run(TICK);
    gave_up(
        &bench,
        75,
        &["the Lease lease was not acquired: it is held by other_1 since 2026-01-01T00:00:00.000000Z, renewed 3s ago"],
    );
    assert!(bench.writes().is_empty());

    let mut bench = waits(30, renewed(-3));
    for second in (0..30).step_by(3) {
        assert_eq!(given_up(&bench), None, "before {second} s");
        bench.see(|object| object["spec"] = renewed(second));
        bench.run(seconds(3) - TICK);
    }
    bench.run(10 * TICK);
    gave_up(&bench, 75, &["other_1"]);
    assert!(bench.writes().is_empty() && said(&bench) == 0);
}

#[test]
fn without_a_bound_it_is_waited_for_for_ever() {
    let mut bench =
        Bench::start(InitialState { preset: Preset::Lock { wait_limit: None }, ..initial_state() }, Register::default());
    for second in (0..600).step_by(3) {
        bench.register.put(renewed(second));
        bench.run(seconds(3));
    }
    assert_eq!((given_up(&bench), bench.is_done()), (None, false));
}

#[test]
fn what_looks_expired_is_watched_for_its_duration_whatever_the_bound_and_then_taken() {
    for spec in [held("other_1", 15), renewed(-16), json!({"holderIdentity": "other_1", "leaseDurationSeconds": 15})] {
        let mut bench = waits(0, spec);
        takes_exactly_after(&mut bench, plus(15));
        assert!(bench.leads().is_some() && said(&bench) == 1);
    }
}

#[test]
fn a_holder_renewed_in_the_future_by_more_than_its_duration_is_watched_whatever_the_bound() {
    let mut bench = waits(0, renewed(16));
    takes_exactly_after(&mut bench, plus(15));
    assert!(bench.leads().is_some() && said(&bench) == 1);

    let mut bench = waits(0, renewed(600));
    bench.run(seconds(3));
    assert_eq!((given_up(&bench), said(&bench)), (None, 1));
    bench.see(|object| object["spec"] = renewed(603));
    gave_up(&bench, 75, &["other_1"]);

    // Clocks may differ by less than the duration.
    let mut bench = waits(0, renewed(15));
    bench.run(TICK);
    gave_up(&bench, 75, &["other_1"]);
}

#[test]
fn a_holder_that_dies_is_waited_for_as_long_as_it_looks_alive_and_then_taken_within_the_bound() {
    let mut bench = waits(60, renewed(0));
    takes_exactly_after(&mut bench, plus(15));
    assert_eq!((given_up(&bench), said(&bench)), (None, 0));
}

#[test]
fn a_renewal_of_what_looked_expired_ends_the_wait_once_the_bound_is_over() {
    // The holder's wall clock is wrong by a year.
    let mut late = held("other_1", 15);
    late["renewTime"] = json!("2026-01-01T00:00:03.000000Z");

    let mut bench = waits(0, held("other_1", 15));
    bench.run(seconds(14));
    assert_eq!((given_up(&bench), said(&bench)), (None, 1));
    bench.see(|object| object["spec"] = late.clone());
    gave_up(&bench, 75, &["other_1"]);
    assert!(bench.writes().is_empty());

    let mut bench = waits(20, held("other_1", 15));
    bench.run(seconds(14));
    bench.see(|object| object["spec"] = late.clone());
    bench.run(seconds(7) - TICK);
    assert_eq!(given_up(&bench), None);
    takes_exactly_after(&mut bench, plus(15) - seconds(7) + TICK);
    assert!(bench.leads().is_some());
}

#[test]
fn what_was_not_given_back_is_waited_for_whatever_the_bound_and_then_taken() {
    for register in [Register::default(), Register::holding(json!({}))] {
        let mut bench = waits_for(0, register);
        bench.run(plus(15));
        let warned = warned(&bench, "nobody holds the Lease: unless somebody takes it, it is taken in");
        assert!(bench.leads().is_some() && (warned, said(&bench)) == (1, 0), "{:?}", bench.told);
    }
    let mut bench = waits(0, json!({}));
    bench.run(seconds(5));
    bench.see(|object| object["spec"] = renewed(4));
    gave_up(&bench, 75, &["other_1"]);
}

#[test]
fn what_was_given_back_is_taken_at_once_and_whoever_is_faster_is_named() {
    let mut bench = waits(0, mark());
    bench.run(TICK);
    assert!(bench.leads().is_some());

    let mut bench = waits(0, mark());
    bench.serve();
    bench.register.put(renewed(0));
    bench.run(TICK);
    gave_up(&bench, 75, &["other_1"]);
}

#[test]
fn what_is_left_to_another_candidate_is_waited_for() {
    let mut register = Register::holding(mark());
    register.edit(|object| object["metadata"]["annotations"] = json!({STEP_DOWN_TO: "other_1"}));
    let mut bench = waits_for(0, register);
    takes_exactly_after(&mut bench, seconds(5));
}

#[test]
fn where_nothing_is_ever_read_it_is_unavailable_or_not_permitted_and_says_why() {
    for (answer, code, words) in [
        (lost(), 69, "timed out"),
        (refused(Refusal::TooManyRequests { retry_after: Some(seconds(60)) }, 429), 69, "429: no"),
        (refused(Refusal::Forbidden, 403), 77, "403: no"),
    ] {
        let mut bench = waits(0, mark());
        bench.answer(answer.clone());
        gave_up(&bench, code, &[words]);

        let mut bench = waits(10, mark());
        lose(&mut bench, seconds(10), &answer);
        assert_eq!(given_up(&bench), None);
        bench.run(Duration::from_millis(100));
        gave_up(&bench, code, &[words]);
    }
}

#[test]
fn a_single_run_of_a_task_waits_for_an_api_server_as_long_as_for_a_write() {
    let task = Task { trigger: Trigger::Every(seconds(60)), limit: None, once: Some(75) };
    let initial = || InitialState { preset: Preset::Task(task.clone()), began: START, ..initial_state() };
    for (answer, code, words) in [(lost(), 69, "timed out"), (refused(Refusal::Unauthorized, 401), 77, "401")] {
        let mut bench = Bench::start(initial(), Register::holding(mark()));
        lose(&mut bench, seconds(10), &answer);
        bench.answers = true;
        bench.run_answered(seconds(4));
        assert_eq!((given_up(&bench), bench.leads().is_some()), (None, true));

        let mut bench = Bench::start(initial(), Register::holding(mark()));
        lose(&mut bench, seconds(21), &answer);
        gave_up(&bench, code, &[words]);
    }

    let mut bench = Bench::start(initial(), Register::holding(mark()));
    bench.answer(refused(Refusal::Forbidden, 403));
    gave_up(&bench, 77, &["403"]);
}

#[test]
fn credentials_that_are_refused_are_read_again_before_it_gives_up() {
    let mut bench = waits(0, mark());
    bench.answer(refused(Refusal::Unauthorized, 401));
    assert_eq!(given_up(&bench), None);
    bench.answer(refused(Refusal::Unauthorized, 401));
    gave_up(&bench, 77, &["401"]);
}

#[test]
fn a_write_that_is_denied_is_not_permitted() {
    for (spec, writes) in [(mark(), 1), (json!({}), 1)] {
        let mut bench = waits(0, spec);
        bench.serve();
        bench.answer(refused(Refusal::Forbidden, 403));
        gave_up(&bench, 77, &["403: no"]);
        assert_eq!(bench.writes().len(), writes);
    }
}

#[test]
fn a_paused_lease_is_not_waited_for_beyond_the_bound_either() {
    let mut register = Register::holding(held("other_1", 15));
    register.edit(|object| object["metadata"]["annotations"] = json!({PAUSED: "true"}));
    let mut bench = waits_for(0, register);
    bench.run(TICK);
    gave_up(&bench, 75, &["other_1", "paused"]);
}

#[test]
fn an_unanswered_acquisition_is_settled_before_anything_is_given_up() {
    // The write was stored.
    let mut bench = waits(0, mark());
    bench.serve();
    bench.serve_silently();
    bench.run(seconds(1));
    assert!(bench.leads().is_some() && given_up(&bench).is_none());

    // The write was stored, and the watch shows it before the read.
    let mut bench = waits(0, mark());
    bench.serve();
    bench.serve_silently();
    bench.watch_register();
    bench.run(seconds(1));
    assert!(bench.leads().is_some() && given_up(&bench).is_none());

    // The write was not stored, and another replica was faster.
    let mut bench = waits(0, mark());
    bench.serve();
    bench.answer(lost());
    bench.register.put(renewed(0));
    bench.run(seconds(1));
    gave_up(&bench, 75, &["other_1"]);
}

#[test]
fn a_server_that_goes_away_for_a_whole_duration_is_given_up_and_nothing_is_left_if_it_comes_back() {
    let mut bench = waits(0, mark());
    bench.serve();
    bench.answers = false;
    let Some((_, write @ Request::Write(_))) = bench.awaited.clone() else { panic!("no acquisition") };
    lose(&mut bench, seconds(15), &lost());
    assert_eq!(given_up(&bench), None);
    lose(&mut bench, seconds(20), &lost());
    assert!(given_up(&bench).is_some_and(|(code, words)| code == 69 && words.contains("timed out")) && !bench.is_done());

    bench.register.apply(&write);
    bench.run_answered(seconds(4));

    assert!(bench.leads().is_some(), "a term that ends as it begins: init is told to end, and gives the Lease back");
    assert_eq!(bench.register.spec()["holderIdentity"], ME);
}

#[test]
fn a_bound_that_is_over_wakes_nobody_once_the_end_waits_for_an_answer() {
    let mut bench = waits(1, mark());
    bench.serve();
    bench.answers = false;
    bench.tell(ToElector::Shutdown);
    lose(&mut bench, seconds(2), &lost());
    bench.run_answered(seconds(2));
    assert!(bench.is_done() && given_up(&bench).is_none(), "{:?}", bench.told);
}

#[test]
fn a_denial_that_is_long_over_is_not_why_a_lease_is_not_had_that_another_holds() {
    for register in [Register::default(), Register::holding(mark()), Register::holding(json!({}))] {
        let mut bench = waits_for(20, register);
        bench.serve();
        assert!(bench.awaits_a_write());
        bench.answer(refused(Refusal::Forbidden, 403));
        bench.register.put(renewed(0));
        for second in (0..=21).step_by(3) {
            bench.see(|object| object["spec"] = renewed(second));
            bench.run(seconds(3));
        }
        gave_up(&bench, 75, &["other_1"]);
    }
}
