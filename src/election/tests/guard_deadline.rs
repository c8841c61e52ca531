//! The deadline of the second guard (law 3, 8).

use super::bench::{Bench, seconds};
use crate::{
    election::guard_deadline::GuardDeadline,
    link::{Reason, Stop, Term, Then, ToElector, ToInit},
    time::Instant,
};

/// Makes the guard's deadline from the messages to init.
fn armed(bench: &Bench) -> GuardDeadline {
    let mut armed = GuardDeadline::disarmed();
    bench.told.iter().for_each(|message| armed.telling(message));
    armed
}

fn hard(bench: &Bench) -> Instant {
    bench.elector.view().leading.expect("it leads").deadlines.expect("it runs").hard
}

fn stopped(term: Term) -> ToElector {
    let stop = Stop { began: None, killed: None, exited: None, exit: None, fused: None, proved: Instant::BOOT };
    ToElector::Stopped { term, request: 1, stop, then: Then::Follow }
}

#[test]
fn the_second_guard_kills_at_h_as_init_was_told_of_it_last() {
    let mut bench = Bench::leading();
    assert_eq!(armed(&bench).hard(), hard(&bench));

    bench.run(seconds(4));

    assert!(matches!(bench.told.last(), Some(ToInit::Extend { .. })));
    assert_eq!(armed(&bench).hard(), hard(&bench));
}

#[test]
fn a_proof_disarms_the_second_guard_for_its_own_term_only() {
    let bench = Bench::leading();
    let mut armed = armed(&bench);

    armed.told(&stopped(Term(7)));
    assert_eq!(armed.hard(), hard(&bench));
    armed.told(&ToElector::Stopping { term: Term(1), reason: Reason::Signal, at: bench.now.boot });
    assert_eq!(armed.hard(), hard(&bench), "a stop that has only begun is no proof");

    armed.told(&stopped(Term(1)));
    assert_eq!(armed.hard(), Instant::NEVER);
}

#[test]
fn the_end_of_a_term_disarms_the_second_guard() {
    let mut bench = Bench::leading();
    bench.stop(Reason::Signal, Then::Follow);
    bench.run(seconds(1));
    assert!(bench.told.iter().any(|told| matches!(told, ToInit::Ended { term: Term(1), .. })));

    assert_eq!(armed(&bench).hard(), Instant::NEVER);
}
