//! From the stop to the Lease that is given back.

use super::*;

#[test]
fn a_planned_stop_is_told_with_its_parts_and_the_margin_that_was_left() {
    let mut observer = leading();
    let began = ToElector::Stopping { term: TERM, reason: Reason::Signal, at: ms(1_000) };
    let stop = Stop {
        began: Some(ms(1_000)),
        killed: Some(ms(1_300)),
        exited: Some(ms(1_302)),
        exit: Some(Exit::Signal(9)),
        proved: ms(1_305),
    };
    let over = feed(
        &mut observer,
        &[
            (1_001, Fact::Received(&began)),
            (1_001, Fact::Reported(&stopping(Reason::Signal))),
            (1_306, Fact::Reported(&Event::Proved(stop))),
            (1_309, Fact::Reported(&Event::Released { how: Given::Clear })),
            (1_309, Fact::Reported(&Event::Following)),
        ],
    );

    let told = only(over);

    assert_eq!((told.to, told.reason.as_str(), told.term), (Role::Standby, "signal", Some(7)));
    assert_eq!((told.context, told.origin), (STOP_CONTEXT, Origin::After(Earlier { context: CONTEXT, remote: false })));
    assert_eq!((told.from, told.until), (ms(1_000), ms(1_309)));
    let parts = [
        ("workload.stop", ms(1_000), ms(1_302)),
        ("workload.kill", ms(1_300), ms(1_302)),
        ("workload.proof", ms(1_302), ms(1_305)),
        ("release", ms(1_306), ms(1_309)),
    ];
    assert_eq!(spans(&told), parts);
    assert_eq!(told.margin, Some(Margin(13.695)));
    assert_eq!(told.exit, Some(Exit::Signal(9)));
    assert_eq!(told.facts, [KeyValue::new("tenure.release", "clear")]);
}

#[test]
fn a_lease_that_is_kept_has_no_span_of_a_release() {
    let mut observer = leading();
    let stop = Stop { began: None, killed: None, exited: None, exit: None, proved: ms(150) };
    reported(&mut observer, 100, stopping(Reason::StepDown));
    reported(&mut observer, 151, Event::Proved(stop));
    reported(&mut observer, 152, Event::Released { how: Given::Keep });

    let told = only(reported(&mut observer, 152, Event::Following));

    assert_eq!(spans(&told).iter().filter(|(name, ..)| *name == "release").count(), 0);
    assert_eq!(told.facts, [KeyValue::new("tenure.release", "keep")]);
}

#[test]
fn a_release_that_nobody_confirmed_is_an_error() {
    for (how, error) in [(Given::Clear, None), (Given::NotOurs, None), (Given::Unknown, Some("the release is unconfirmed"))] {
        let mut observer = leading();
        let stop = Stop { began: None, killed: None, exited: None, exit: None, proved: ms(150) };
        reported(&mut observer, 100, stopping(Reason::StepDown));
        reported(&mut observer, 151, Event::Proved(stop));
        reported(&mut observer, 152, Event::Released { how });

        let told = only(reported(&mut observer, 152, Event::Following));

        let release = told.phases.iter().find(|phase| phase.name == Name::Release).unwrap();
        assert_eq!(release.error.as_deref(), error, "{how:?}");
    }
}

#[test]
fn processes_that_outlive_the_main_one_are_killed_until_the_proof() {
    let mut observer = leading();
    let stop =
        Stop { began: Some(ms(100)), killed: Some(ms(140)), exited: Some(ms(130)), exit: Some(Exit::Code(0)), proved: ms(150) };
    reported(&mut observer, 100, stopping(Reason::StepDown));
    reported(&mut observer, 151, Event::Proved(stop));

    let told = only(reported(&mut observer, 160, Event::Following));

    let parts = [("workload.stop", ms(100), ms(130)), ("workload.kill", ms(140), ms(150)), ("workload.proof", ms(130), ms(150))];
    assert_eq!(spans(&told), parts);
}

#[test]
fn a_demotion_that_was_acknowledged_has_no_proof_of_death() {
    let mut observer = leading();
    let stop = Stop { began: Some(ms(100)), killed: None, exited: None, exit: None, proved: ms(110) };
    reported(&mut observer, 100, stopping(Reason::StepDown));
    reported(&mut observer, 111, Event::Proved(stop));
    let told = only(reported(&mut observer, 111, Event::Following));
    assert_eq!(spans(&told), [("workload.stop", ms(100), ms(110))]);
}

#[test]
fn a_planned_stop_that_becomes_a_loss_is_told_as_the_loss_it_is() {
    let mut observer = leading();
    reported(&mut observer, 100, stopping(Reason::StepDown));
    reported(&mut observer, 200, stopping(Reason::LostToHolder));
    let told = only(reported(&mut observer, 300, Event::Following));
    assert_eq!((told.reason.as_str(), told.from), ("lost-to-holder", ms(100)));
}

#[test]
fn a_margin_is_negative_where_the_proof_came_too_late() {
    let mut observer = leading();
    let stop = Stop { began: Some(ms(14_000)), killed: None, exited: None, exit: None, proved: ms(15_500) };
    reported(&mut observer, 14_000, stopping(Reason::Expired));
    reported(&mut observer, 15_500, Event::Proved(stop));
    let told = only(reported(&mut observer, 15_500, Event::Following));
    assert_eq!(told.margin, Some(Margin(-0.5)));
}

#[test]
fn the_margin_counts_from_the_last_extension_and_from_a_shortened_wait() {
    let mut observer = leading();
    let extend = ToInit::Extend { term: TERM, serial: 1, confirmed: confirmed(timing().deadlines(ms(3_000))) };
    let shorten = ToInit::Shorten { term: TERM, serial: 2, timing: timing(), deadlines: timing().deadlines(ms(1_000)) };
    let stop = Stop { began: None, killed: None, exited: None, exit: None, proved: ms(4_000) };
    feed(&mut observer, &[(3_000, Fact::Sent(&extend)), (3_500, Fact::Sent(&shorten))]);
    reported(&mut observer, 4_000, stopping(Reason::Signal));
    reported(&mut observer, 4_000, Event::Proved(stop));
    let told = only(reported(&mut observer, 4_000, Event::Following));
    assert_eq!(told.margin, Some(Margin(12.0)));
}

#[test]
fn a_term_that_ends_before_its_workload_ran_says_so() {
    let mut observer = Observer::default();
    let over = feed(
        &mut observer,
        &[
            (0, Fact::Reported(&campaigning(Vacancy::Released, None))),
            (5, Fact::Reported(&acquired())),
            (6, Fact::Sent(&lead(ms(0), None))),
            (8, Fact::Reported(&stopping(Reason::Signal))),
        ],
    );
    let rise = only(over);
    assert_eq!((rise.to, rise.error, rise.margin), (Role::Leader, Some("the term ended before the workload led"), None));
    let fall = only(reported(&mut observer, 9, Event::Following));
    assert_eq!((fall.to, fall.error), (Role::Standby, None));
}

#[test]
fn a_term_that_init_was_never_told_of_ends_at_once() {
    let mut observer = Observer::default();
    reported(&mut observer, 0, campaigning(Vacancy::Released, None));
    reported(&mut observer, 5, acquired());
    let over = reported(&mut observer, 6, stopping(Reason::LostDeleted));
    let roles: Vec<_> = over.into_iter().map(|outcome| transition(outcome).to).collect();
    assert_eq!(roles, [Role::Leader, Role::Standby]);
    assert_eq!(observer.finish(at(9)), []);
}

#[test]
fn a_stop_that_both_sides_began_leaves_nothing_to_the_next_one() {
    let mut observer = leading();
    reported(&mut observer, 9000, stopping(Reason::Expired));
    let by_init = ToElector::Stopping { term: TERM, reason: Reason::Expired, at: ms(8990) };
    observer.record(Fact::Received(&by_init), at(9001));
    reported(&mut observer, 9100, Event::Proved(Stop { began: None, killed: None, exited: None, exit: None, proved: ms(9099) }));
    assert_eq!(only(reported(&mut observer, 9101, Event::Following)).from, ms(8990));
    lead_from(&mut observer, campaigning(Vacancy::Expired, None));

    reported(&mut observer, 100_000, stopping(Reason::Signal));

    assert_eq!(only(reported(&mut observer, 100_001, Event::Following)).from, ms(100_000));
}

#[test]
fn a_stop_while_a_restart_is_awaited_tells_of_no_earlier_end() {
    let mut observer = leading();
    let restarting = ToElector::Restarting { term: TERM, exit: Exit::Code(1), at: ms(1000) };
    observer.record(Fact::Received(&restarting), at(1001));
    let extend = ToInit::Extend { term: TERM, serial: 1, confirmed: confirmed(timing().deadlines(ms(60_000))) };
    observer.record(Fact::Sent(&extend), at(60_000));
    reported(&mut observer, 61_000, stopping(Reason::StepDown));
    let crashed =
        Stop { began: Some(ms(1000)), killed: None, exited: Some(ms(1000)), exit: Some(Exit::Code(1)), proved: ms(1000) };

    reported(&mut observer, 61_001, Event::Proved(crashed));

    let told = only(reported(&mut observer, 61_002, Event::Following));
    assert_eq!((told.from, told.margin), (ms(61_000), Some(Margin(14.0))));
}
