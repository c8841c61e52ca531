//! Requests: how they are told apart, and how their failures are reported.

use std::time::Duration;

use super::bench::{Bench, START, TICK, held, lost, mark, plus, seconds, written};
use crate::{
    election::{Event, writes::Sent},
    request::{Answer, Operation, Refusal},
};

#[test]
fn a_first_read_makes_it_ready_and_nothing_before_does() {
    let mut bench = Bench::with(held("x", 15));
    bench.answers = false;
    bench.answer(lost());
    assert!(!bench.elector.view().ready);

    bench.run_answered(seconds(1));

    assert!(bench.elector.view().ready);
    assert!(bench.events.contains(&Event::Ready));
}

#[test]
fn no_two_requests_have_the_same_name() {
    let mut bench = Bench::with(held("x", 15));
    bench.answers = false;
    let (first, _) = bench.awaited.clone().expect("a first read");
    bench.answer(lost());
    bench.run(seconds(1));

    assert_ne!(bench.awaited.expect("another one").0, first);
}

#[test]
fn a_take_that_was_forbidden_hinders_no_creation() {
    for deleted_before_the_answer in [false, true] {
        let mut bench = Bench::with(held("x", 15));
        bench.run(plus(15) - TICK);
        bench.answers = false;
        bench.run(TICK);
        assert!(bench.awaits_a_write());
        let forbidden = Answer::Refused { refusal: Refusal::Forbidden, message: "no update".into() };
        if deleted_before_the_answer {
            let deleted = bench.register.delete();
            bench.watch(deleted);
            bench.answer(forbidden);
        } else {
            bench.answer(forbidden);
            let deleted = bench.register.delete();
            bench.watch(deleted);
        }

        bench.run_answered(seconds(1));

        assert!(matches!(bench.writes().last(), Some(Sent::Create(_))), "{deleted_before_the_answer}");
    }
}

#[test]
fn no_outage_fills_the_memory_with_creations_that_nobody_answered() {
    let mut bench = Bench::new();
    bench.answers = false;
    let mut creations = 0;
    while creations < 500 {
        bench.run(seconds(10));
        match bench.awaited.as_ref().map(|(_, request)| written(request)) {
            Some(Some(Sent::Create(_))) => {
                creations += 1;
                bench.answer(lost());
            }
            Some(_) => bench.serve(),
            None => {}
        }
        bench.sent.clear();
        bench.events.clear();
    }

    assert!(format!("{:?}", bench.elector).len() < 200_000);
}

#[test]
fn without_permission_to_create_the_object_is_waited_for() {
    let mut bench = Bench::new();
    bench.answers = false;
    bench.serve();
    bench.answer(Answer::Refused { refusal: Refusal::Forbidden, message: "no create".into() });
    bench.run_answered(seconds(2));
    assert_eq!(bench.writes().len(), 1, "not repeated at once");
    bench.register.put(mark());

    bench.run(plus(15));

    assert!(bench.leads().is_some());
}

#[test]
fn a_creation_that_is_forbidden_is_repeated_after_r_and_then_more_and_more_rarely() {
    let mut bench = Bench::new();
    bench.answers = false;
    let mut asked = Vec::new();
    while bench.now.boot < START + seconds(600) {
        match bench.awaited.as_ref().map(|(_, request)| written(request)) {
            Some(Some(Sent::Create(_))) => {
                asked.push(bench.now.boot);
                bench.answer(Answer::Refused { refusal: Refusal::Forbidden, message: "no create".into() });
            }
            Some(_) => bench.serve(),
            None => bench.run(Duration::from_millis(100)),
        }
    }

    let pauses: Vec<_> = asked.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    assert!(pauses[0] < seconds(4), "{pauses:?}");
    assert!(pauses.iter().all(|pause| *pause < seconds(76)), "{pauses:?}");
    assert!((10..=18).contains(&asked.len()), "{pauses:?}");
}

#[test]
fn a_lease_that_came_and_went_may_be_created_by_whoever_was_forbidden_to_before() {
    let mut bench = Bench::new();
    bench.answers = false;
    bench.serve();
    bench.answer(Answer::Refused { refusal: Refusal::Forbidden, message: "no create".into() });
    bench.register.put(held("x", 15));
    bench.watch_register();
    let deleted = bench.register.delete();
    bench.watch(deleted);

    bench.run_answered(seconds(1));

    assert_eq!(bench.writes().len(), 2);
}

/// The operations that have recovered, in order.
fn recovered(bench: &Bench) -> Vec<Operation> {
    let of = |event: &Event| match event {
        Event::Recovered { operation } => Some(*operation),
        _ => None,
    };
    bench.events.iter().filter_map(of).collect()
}

#[test]
fn what_failed_has_recovered_when_it_is_answered_and_nothing_else_has() {
    let forbidden = || Answer::Refused { refusal: Refusal::Forbidden, message: "no create".into() };
    let mut bench = Bench::new();
    bench.answers = false;
    bench.serve();
    bench.answer(forbidden());
    bench.run(seconds(1));
    bench.answer(lost());
    bench.run_answered(seconds(1));
    assert_eq!(recovered(&bench), [Operation::Get], "it still may not create");

    bench.run(seconds(60));

    assert_eq!(recovered(&bench), [Operation::Get, Operation::Create]);
}

#[test]
fn an_answer_that_is_no_lease_ends_no_failure() {
    let mut bench = Bench::with(held("x", 15));
    bench.answers = false;
    bench.answer(lost());
    bench.run(seconds(5));
    bench.answer(Answer::Object(serde_json::Value::Null.into()));
    assert_eq!(recovered(&bench), []);

    bench.run_answered(seconds(5));

    assert_eq!(recovered(&bench), [Operation::Get]);
}

#[test]
fn a_leaders_renewal_that_failed_has_recovered_with_the_next() {
    let mut bench = Bench::leading();
    bench.answers = false;
    bench.run(seconds(4));
    bench.answer(lost());

    bench.run_answered(plus(3));

    assert_eq!(recovered(&bench), [Operation::Update]);
}

/// A snapshot of its memory that is restored beside it has its identity, its times and its random numbers.
#[test]
fn the_acquisition_of_a_copy_that_woke_in_the_same_millisecond_confirms_nothing() {
    let campaigning = |later| {
        let mut bench = Bench::with(mark());
        bench.answers = false;
        bench.run(later);
        bench.serve();
        bench
    };
    let (original, mut copy) = (campaigning(Duration::ZERO), campaigning(TICK));
    assert_eq!(original.body()["spec"], copy.body()["spec"]);
    let (_, stored) = original.awaited.unwrap();
    copy.register.apply(&stored);

    copy.answer(lost());
    copy.answers = true;
    copy.run(seconds(10));

    assert_eq!(copy.leads(), None);
}
