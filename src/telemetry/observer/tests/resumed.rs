//! What an elector tells of the term that it took over.

use super::*;

fn resume(told: bool) -> Resume {
    Resume {
        term: TERM,
        facts: facts(),
        timing: timing(),
        confirmed: confirmed(timing().deadlines(ms(0))),
        stopping: None,
        traceparent: String::new(),
        released: false,
        main: Some(12),
        told,
    }
}

#[test]
fn a_restarted_elector_tells_the_end_of_the_term_that_it_took_over() {
    let mut observer = Observer::new(Some(&resume(true)), at(1_000));
    let stop = Stop { began: None, killed: None, exited: None, exit: None, proved: ms(5_000) };
    let stopped = ToElector::Stopped { term: TERM, request: 1, stop, then: Then::Follow };
    reported(&mut observer, 4_000, stopping(Reason::Signal));
    observer.record(Fact::Received(&stopped), at(5_000));
    reported(&mut observer, 5_000, Event::Proved(stop));
    let told = only(reported(&mut observer, 5_000, Event::Following));
    assert_eq!(
        (told.term, told.origin, told.margin),
        (Some(7), Origin::After(Earlier { context: CONTEXT, remote: false }), Some(Margin(10.0)))
    );
}

#[test]
fn a_restarted_elector_tells_the_start_that_the_one_before_it_did_not_see() {
    let mut observer = Observer::new(Some(&resume(false)), at(1_000));

    let over = only(observer.record(Fact::Received(&started(9_000)), at(9_001)));

    assert_eq!((over.to, over.reason.as_str(), over.term, over.context), (Role::Leader, "resumed", Some(7), CONTEXT));
    assert_eq!((over.from, over.until, over.margin), (ms(1_000), ms(9_000), Some(Margin(6.0))));
    let phases: Vec<_> = over.phases.iter().map(|phase| phase.name).collect();
    assert_eq!(phases, [Name::WorkloadStart]);
}

#[test]
fn a_restarted_elector_takes_a_crash_that_the_one_before_it_saw_for_no_transition() {
    let mut observer = Observer::new(Some(&Resume { main: None, ..resume(true) }), at(1_000));

    let over = observer.record(Fact::Received(&started(9_000)), at(9_001));

    assert!(over.is_empty(), "{over:?}");
}
