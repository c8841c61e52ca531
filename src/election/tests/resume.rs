//! A fresh elector in the middle of a term (law 1, 6, 8; cases 78 to 84).

use std::time::Duration;

use super::bench::{Bench, ME, Register, START, initial_state, mark, plus, seconds, takes_exactly_after};
use crate::{
    election::{Event, Request, writes::RESTS},
    link::{InitialState, LeaseBackoff, Reason, Resume, Term, Then, ToInit},
    request::Watched,
    time::{Instant, Now},
};

/// Takes the place of the elector of `old`, which is gone.
fn successor(old: Bench, change: impl FnOnce(&mut Resume)) -> Bench {
    let mut resume = old.resume();
    change(&mut resume);
    let initial = InitialState { generation: 2, last_term: resume.term, resume: Some(resume), ..initial_state() };
    let mut bench = Bench::start(initial, old.register);
    let span = old.now.boot.since(START);
    bench.now = Now { boot: START + span, wall: old.now.wall };
    bench
}

#[test]
fn a_successor_reads_then_renews_and_the_term_goes_on() {
    let mut old = Bench::leading();
    old.run(seconds(4));

    let mut new = successor(old, |_| {});
    assert!(new.elector.view().ready, "its predecessor was");
    new.run(Duration::from_millis(1));

    assert!(matches!(&new.sent[..], [(_, Request::Get), (_, Request::Write(_))]));
    let Some(ToInit::Extend { term, .. }) = new.told.last() else { panic!("{:?}", new.told) };
    assert_eq!(*term, Term(1));
    assert_eq!(new.step_down(), None);
}

#[test]
fn a_successor_knows_the_preferred_holder_that_its_predecessor_took_the_lease_in_place_of() {
    let mut old = Bench::leading();
    old.register.edit(|object| {
        object["spec"]["strategy"] = "OldestEmulationVersion".into();
        object["spec"]["preferredHolder"] = "x".into();
    });

    let mut new = successor(old, |resume| resume.confirmed.preferred_holder = Some("x".into()));
    new.run(seconds(10));
    assert_eq!(new.step_down(), None);

    new.register.edit(|object| object["spec"]["preferredHolder"] = "y".into());
    new.run(seconds(4));
    assert_eq!(new.step_down_reason(), Some(Reason::PreferredHolder));
}

#[test]
fn the_end_of_a_term_that_was_planned_and_proved_is_no_loss_although_s_passes_before_its_release() {
    let mut old = Bench::leading();
    old.run(seconds(1));
    let soft = old.elector.view().leading.unwrap().deadlines.unwrap().soft;
    old.pass(soft);

    let mut new = successor(old, |resume| {
        resume.stopping = Some(Reason::StepDown);
        resume.confirmed.deadlines.hard = Instant::NEVER;
    });
    new.run(seconds(1));
    assert_eq!(new.step_down_reason(), Some(Reason::StepDown));
    assert!(new.sent.is_empty(), "it renews what was proved dead: {:?}", new.sent);
    new.prove(Then::Follow);
    new.run(seconds(1));

    assert_eq!(new.register.spec()["holderIdentity"], "", "it is given back");
    assert!(!new.guarding());
}

#[test]
fn a_renewal_of_the_predecessor_that_nobody_confirmed_moves_nothing_and_is_written_over() {
    let mut old = Bench::leading();
    old.answers = false;
    old.run(seconds(3));
    old.serve_silently();
    let unknown = old.register.object().unwrap();
    let end = old.resume().confirmed.deadlines.end;

    let mut new = successor(old, |_| {});
    new.answers = false;
    new.serve();
    assert_eq!(new.elector.view().leading.unwrap().deadlines.unwrap().end, end, "E stays");

    let body = new.body();
    assert_eq!(body["metadata"]["resourceVersion"], unknown["metadata"]["resourceVersion"]);
    assert_ne!(body["spec"], unknown["spec"]);
    new.serve();
    assert!(matches!(new.told.last(), Some(ToInit::Extend { .. })));
}

#[test]
fn the_bytes_of_a_successor_differ_even_if_the_wall_clock_is_behind() {
    let mut old = Bench::leading();
    old.answers = false;
    old.run(seconds(3));
    let first = old.body();
    let wall = old.now.wall;

    let mut new = successor(old, |_| {});
    new.now.wall = wall;
    new.answers = false;
    new.serve();

    assert_ne!(new.body()["spec"]["renewTime"], first["spec"]["renewTime"]);
}

#[test]
fn a_read_that_a_successor_awaits_at_the_proof_lets_no_release_out_before_init_knows() {
    let mut new = successor(Bench::leading(), |resume| resume.stopping = Some(Reason::Signal));
    (new.answers, new.acknowledges) = (false, false);
    let (_, read) = new.awaited.clone().expect("its first read");

    new.prove(Then::Exit);
    let answer = new.register.apply(&read);
    new.answer(answer);
    new.run(seconds(1));

    assert_eq!(new.writes().len(), 0);
}

#[test]
fn a_successor_in_a_stop_goes_on_in_its_span() {
    let span = "00-000000000000000000000000000000a1-00000000000000b2-01";

    let new = successor(Bench::leading(), |resume| {
        (resume.stopping, resume.traceparent) = (Some(Reason::Expired), span.into());
    });

    let told = new.told.iter().find_map(|message| match message {
        ToInit::StepDown { traceparent, .. } => Some(traceparent.as_str()),
        _ => None,
    });
    assert_eq!(told, Some(span), "and the next one may go on in it too");
    let stop = |event: &Event| matches!(event, Event::Stopping { context, .. } if context.to_string() == span);
    assert!(new.events.iter().any(stop), "{:?}", new.events);
}

#[test]
fn a_successor_after_an_announced_release_never_leads_on() {
    let mut old = Bench::leading();
    old.run(seconds(4));

    let mut new = successor(old, |resume| resume.released = true);

    assert!(new.step_down().is_some());
    new.prove(Then::Follow);
    new.run(seconds(1));
    assert_eq!(new.register.spec()["holderIdentity"], "");
}

#[test]
fn a_successor_of_a_release_that_was_committed_finds_no_loss_in_it() {
    let mut old = Bench::leading();
    old.run(seconds(4));
    old.stop(Reason::StepDown, Then::Follow);
    old.run(seconds(1));
    assert_eq!(old.register.spec()["holderIdentity"], "");
    let soft = old.resume().confirmed.deadlines.soft;

    let mut new = successor(old, |resume| (resume.stopping, resume.released) = (Some(Reason::StepDown), true));
    new.watch_register();
    new.pass(soft + seconds(1));
    assert_eq!((new.step_down().map(|(_, request)| request), new.step_down_reason()), (Some(1), Some(Reason::StepDown)));
    assert_eq!(new.gets(), 0, "before the proof there is nothing to ask");
    new.prove(Then::Follow);
    new.run(seconds(14));

    assert_eq!(new.writes().len(), 0);
    assert_eq!(new.leads(), None, "it sits out one duration");
    new.run(seconds(2));
    assert!(new.leads().is_some());
}

#[test]
fn a_successor_finds_a_loss_in_its_first_read() {
    let mut old = Bench::leading();
    old.register.edit(|object| object["spec"]["holderIdentity"] = "x".into());

    let mut new = successor(old, |_| {});
    new.run(Duration::from_millis(1));

    assert_eq!(new.step_down_reason(), Some(Reason::LostToHolder));
}

#[test]
fn a_successor_whose_term_is_at_rest_has_a_copy() {
    let mut old = Bench::leading();
    old.register.edit(|object| {
        let rests = format!("{} {ME}", object["spec"]["renewTime"].as_str().unwrap());
        object["metadata"]["annotations"][RESTS] = rests.into();
    });

    let mut new = successor(old, |_| {});
    new.run(Duration::from_millis(1));

    assert_eq!(new.step_down_reason(), Some(Reason::LostToCopy));
}

#[test]
fn an_event_from_before_the_term_is_no_loss_although_a_successor_has_read_nothing_yet() {
    let mut old = Bench::leading();
    let mut before = old.register.object().unwrap();
    before["metadata"]["resourceVersion"] = "3".into();
    before["spec"]["holderIdentity"] = "x".into();
    old.run(seconds(4));

    let mut new = successor(old, |_| {});
    new.watch(Watched::Changed(before.into()));
    new.run(seconds(1));

    assert_eq!((new.step_down(), new.register.spec()["holderIdentity"].as_str()), (None, Some(ME)));
}

#[test]
fn an_acquiring_write_of_a_dead_elector_is_foreign_to_the_next() {
    let mut old = Bench::leading();
    old.run(seconds(1));
    let initial = InitialState { generation: 2, ..initial_state() };

    let mut new = Bench::start(initial, old.register);
    new.run(seconds(15));

    assert_eq!(new.writes().len(), 0);
    assert_eq!(new.register.spec()["holderIdentity"], ME);
}

#[test]
fn the_duration_in_which_the_others_go_first_is_handed_on() {
    let backoff = Some(LeaseBackoff { until: START + plus(15), failures: 0 });

    takes_exactly_after(&mut Bench::start(InitialState { backoff, ..initial_state() }, Register::holding(mark())), plus(15));
}
