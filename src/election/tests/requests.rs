//! Requests as such: how they are told apart, and what their answers make of the election as a whole.

use super::bench::{Bench, held, lost, seconds};
use crate::election::{Answer, Event, Refusal, Request};

#[test]
fn a_first_read_makes_it_ready_and_nothing_before_does() {
    let mut bench = Bench::with(held("x", 15));
    bench.answers = false;
    bench.answer(lost());
    assert!(!bench.elector.view().ready);

    bench.answers = true;
    bench.run(seconds(1));

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
    let mut bench = Bench::with(held("x", 15));
    bench.answers = false;
    while !bench.awaits_a_write() {
        if bench.awaited.is_some() { bench.serve() } else { bench.run(std::time::Duration::from_millis(100)) }
    }
    bench.answer(Answer::Refused { refusal: Refusal::Forbidden, message: String::new() });
    let deleted = bench.register.delete();
    bench.answers = true;
    bench.watch(deleted);
    bench.run(seconds(20));

    assert!(bench.writes().iter().any(|request| matches!(request, Request::Create(_))));
}
