//! Giving the Lease back, after the proof only (law 8).

use std::time::Duration;

use serde_json::Value;

use super::bench::{Bench, ME, TICK, held, initial_state, lost, mark, plus, seconds};
use crate::{
    config::Release,
    election::{
        Event, Request,
        writes::{JOURNAL, PAUSED, STEP_DOWN_TO, Sent},
    },
    link::{LeaseBackoff, Reason, Term, Then, ToElector, ToInit},
    request::{Answer, Refusal},
};

/// A released Lease is left to others for so long before it is deleted: 1.1 R and a pause.
const LEFT: Duration = Duration::from_millis(3_500);

pub(super) fn released(bench: &Bench) -> Option<&'static str> {
    bench.events.iter().rev().find_map(|event| match event {
        Event::Released(how) => Some(how.as_str()),
        _ => None,
    })
}

/// Leading, asked to stop, the workload proved gone, init silent so far.
pub(super) fn proved(then: Then) -> Bench {
    let mut bench = Bench::leading();
    bench.answers = false;
    bench.stopping(Reason::Signal);
    bench.acknowledges = false;
    bench.prove(then);
    bench
}

pub(super) fn acknowledge_release(bench: &mut Bench) {
    let Some(ToInit::Releasing { term, serial }) = bench.told.last().cloned() else { panic!("{:?}", bench.told.last()) };
    bench.tell(ToElector::Acknowledged { term, serial });
}

/// The same, and init has acknowledged: the release is on its way.
pub(super) fn releasing(then: Then) -> Bench {
    let mut bench = proved(then);
    acknowledge_release(&mut bench);
    bench
}

#[test]
fn a_release_leaves_the_mark_and_everything_else_as_it_was() {
    let mut bench = Bench::leading();
    let before = bench.register.object().unwrap();
    bench.stop(Reason::Signal, Then::Exit);
    bench.run(seconds(1));

    let spec = bench.register.spec();
    assert_eq!(spec["holderIdentity"], "");
    assert_eq!(spec["leaseDurationSeconds"], 1);
    assert_eq!(spec["acquireTime"], spec["renewTime"]);
    assert_eq!(spec["leaseTransitions"], before["spec"]["leaseTransitions"]);
    assert_eq!(bench.register.object().as_ref().unwrap()["metadata"]["labels"], before["metadata"]["labels"]);
    assert!(bench.is_done());
    assert_eq!(released(&bench), Some("clear"));
}

#[test]
fn once_the_program_is_proved_dead_no_deadline_is_shown_while_a_renewal_is_under_way() {
    let mut bench = Bench::leading();
    bench.answers = false;
    bench.run(seconds(4));
    assert!(bench.awaited.is_some());
    bench.stopping(Reason::Signal);

    bench.prove(Then::Exit);

    let led = bench.elector.view().leading.expect("the renewal is awaited");
    assert_eq!((led.ending, led.deadlines), (true, None));
}

#[test]
fn between_the_proof_and_the_free_lease_there_is_one_write_and_init_has_voided_the_deadlines_before_it() {
    let mut bench = proved(Then::Exit);
    assert_eq!(bench.awaited, None);
    let sent = bench.sent.len();

    acknowledge_release(&mut bench);
    bench.serve();

    assert_eq!(bench.sent.len(), sent + 1);
    assert_eq!((released(&bench), bench.is_done()), (Some("clear"), true));
}

#[test]
fn a_release_is_based_on_the_version_that_was_last_seen_as_the_terms_own() {
    let mut bench = Bench::leading();
    bench.see(|object| object["metadata"]["labels"]["theirs"] = "x".into());
    bench.stopping(Reason::Signal);
    let sent = bench.sent.len();

    bench.prove(Then::Exit);
    bench.run(seconds(1));

    assert_eq!((released(&bench), bench.sent.len()), (Some("clear"), sent + 1));
    assert_eq!(bench.register.object().as_ref().unwrap()["metadata"]["labels"]["theirs"], "x");
}

#[test]
fn what_the_read_after_a_conflict_shows_of_another_term_is_left_alone() {
    let edits: [fn(&mut Value); 4] = [
        |spec| spec["holderIdentity"] = "".into(),
        |spec| spec["holderIdentity"] = "x".into(),
        |spec| spec["acquireTime"] = "2030-01-01T00:00:00Z".into(),
        |spec| spec["leaseTransitions"] = 9.into(),
    ];
    for edit in edits {
        let mut bench = proved(Then::Exit);
        bench.register.edit(|object| edit(&mut object["spec"]));
        acknowledge_release(&mut bench);
        bench.serve();
        let writes = bench.writes().len();

        bench.serve();

        assert_eq!((bench.writes().len(), released(&bench), bench.is_done()), (writes, Some("not-ours"), true));
    }
}

#[test]
fn nothing_is_released_without_a_proof_of_this_request() {
    let mut bench = Bench::leading();
    bench.stopping(Reason::Signal);
    let (term, request) = bench.step_down().unwrap();
    let stop = crate::link::Stop { began: None, killed: None, exited: None, exit: None, fused: None, proved: bench.now.boot };

    bench.tell(ToElector::Stopped { term, request: request + 1, stop, then: Then::Exit });

    assert!(!bench.told.iter().any(|message| matches!(message, ToInit::Releasing { .. })));
}

#[test]
fn a_deleted_lease_is_not_made_again() {
    let mut bench = proved(Then::Exit);
    bench.register.delete();
    acknowledge_release(&mut bench);

    bench.serve();
    bench.serve();

    assert_eq!((bench.register.object().as_ref(), released(&bench), bench.is_done()), (None, Some("not-ours"), true));
}

#[test]
fn a_release_whose_reply_was_lost_is_recognised() {
    let mut bench = releasing(Then::Exit);
    bench.serve_silently();
    let writes = bench.writes().len();

    bench.run_answered(seconds(1));

    assert_eq!(released(&bench), Some("clear"));
    assert_eq!(bench.writes().len(), writes);
}

#[test]
fn a_dead_api_bounds_the_release_by_two_attempts() {
    for renews in [false, true] {
        let mut bench = Bench::leading();
        bench.answers = false;
        bench.run(if renews { seconds(3) } else { seconds(1) });
        assert_eq!(bench.awaits_a_write(), renews);
        bench.stop(Reason::Signal, Then::Exit);
        let began = bench.now.boot;
        while !bench.is_done() {
            bench.run(Duration::from_millis(100));
            if bench.awaited.is_some() && bench.now.boot.since(bench.last_sent()) >= seconds(2) {
                bench.answer(lost());
            }
        }

        assert_eq!(bench.now.boot.since(began), seconds(4));
        assert_eq!(released(&bench), Some("unknown"));
    }
}

#[test]
fn the_others_go_first_for_one_duration_from_when_they_may_take_it() {
    for (release, span) in [(Release::Clear, plus(15)), (Release::Keep, plus(30))] {
        let mut initial = initial_state();
        initial.config.lease.release = release;
        let mut bench = Bench::leading_with(initial);
        bench.stop(Reason::StepDown, Then::Follow);
        let backoff = Some(LeaseBackoff { until: bench.now.boot + span, failures: 0 });
        bench.run(span - Duration::from_millis(1));
        assert!(bench.told.contains(&ToInit::Ended { term: Term(1), backoff }), "{release:?}: the next elector waits as well");
        assert_eq!(bench.leads().map(|term| term.0), Some(1), "{release:?}");

        bench.run(seconds(1));

        assert_eq!(bench.leads().map(|term| term.0), Some(2), "{release:?}");
    }
}

#[test]
fn the_others_go_first_only_until_one_of_them_has_led() {
    let mut bench = Bench::leading();
    bench.stop(Reason::StepDown, Then::Follow);
    bench.run(seconds(1));
    bench.see(|object| object["spec"] = held("x", 15));
    bench.see(|object| object["spec"] = mark());

    bench.run(seconds(1));

    assert_eq!(bench.leads().map(|term| term.0), Some(2));
}

#[test]
fn delete_clears_first_and_deletes_with_both_preconditions() {
    let mut initial = initial_state();
    initial.config.lease.release = Release::Delete;
    let mut bench = Bench::leading_with(initial);
    bench.stop(Reason::Signal, Then::Exit);
    bench.run(LEFT - TICK);
    assert_eq!((released(&bench), bench.register.spec()["holderIdentity"].as_str()), (None, Some("")), "whoever waits takes it");
    bench.run(TICK);

    let writes = bench.writes();
    let [.., Sent::Replace(clear), Sent::Delete { uid, resource_version }] = &writes[..] else { panic!("{writes:?}") };
    assert_eq!(clear["spec"]["holderIdentity"], "");
    assert_eq!((uid.as_str(), resource_version.as_str()), (clear["metadata"]["uid"].as_str().unwrap(), "5"));
    assert_eq!(bench.register.object(), None);
}

#[test]
fn a_lease_that_somebody_has_taken_is_not_waited_for_and_one_that_somebody_waits_for_is_not_deleted() {
    let deletes = || {
        let mut initial = initial_state();
        initial.config.lease.release = Release::Delete;
        initial
    };
    let mut bench = Bench::leading_with(deletes());
    bench.stop(Reason::Signal, Then::Exit);
    bench.run(TICK);
    bench.see(|object| object["spec"] = held("next_1", 15));
    bench.run(TICK);
    assert_eq!((released(&bench), bench.is_done()), (Some("clear"), true));
    assert_eq!(bench.register.spec()["holderIdentity"], "next_1");

    let mut bench = Bench::leading_with(deletes());
    bench.stop(Reason::StepDown, Then::Follow);
    bench.run(LEFT);
    assert_eq!((released(&bench), bench.register.spec()["holderIdentity"].as_str()), (Some("clear"), Some("")));

    let mut bench = Bench::leading_with(deletes());
    bench.see(|object| object["metadata"]["annotations"][STEP_DOWN_TO] = "next_1".into());
    bench.stop(Reason::StepDown, Then::Exit);
    bench.run(TICK);
    assert_eq!((released(&bench), bench.is_done()), (Some("clear"), true));

    let mut initial = deletes();
    initial.config.lease.creation_wait = Some(seconds(0));
    let mut bench = Bench::leading_with(initial);
    bench.stop(Reason::Signal, Then::Exit);
    bench.run(TICK);
    assert_eq!((bench.register.object(), bench.is_done()), (None, true), "nobody waits for one that is gone");
}

#[test]
fn what_people_have_written_into_a_lease_is_not_deleted_with_it() {
    let edits: [fn(&mut Value); 3] = [
        |object| object["metadata"]["annotations"][PAUSED] = "true".into(),
        |object| object["metadata"]["annotations"][JOURNAL] = "x me_1".into(),
        |object| object["spec"]["strategy"] = "OldestEmulationVersion".into(),
    ];
    for edit in edits {
        let mut initial = initial_state();
        initial.config.lease.release = Release::Delete;
        let mut bench = Bench::leading_with(initial);
        bench.see(edit);
        bench.stop(Reason::Signal, Then::Exit);
        bench.run(LEFT);
        assert_eq!((released(&bench), bench.is_done()), (Some("clear"), true));
        assert!(bench.register.object().is_some());
    }
}

#[test]
fn a_delete_that_is_not_permitted_leaves_a_released_lease_and_is_not_repeated() {
    let mut initial = initial_state();
    initial.config.lease.release = Release::Delete;
    let mut bench = Bench::leading_with(initial);
    bench.answers = false;
    bench.stop(Reason::Signal, Then::Exit);
    bench.serve();
    bench.run(LEFT);
    assert!(matches!(bench.writes().last(), Some(Sent::Delete { .. })));
    bench.answer(Answer::Refused { refusal: Refusal::Forbidden, message: "no delete".into() });

    assert!(bench.is_done());
    assert_eq!(released(&bench), Some("clear"));
    assert_eq!(bench.register.spec()["holderIdentity"], "");
}

#[test]
fn keep_writes_nothing() {
    let mut initial = initial_state();
    initial.config.lease.release = Release::Keep;
    let mut bench = Bench::leading_with(initial);
    bench.stopping(Reason::Signal);
    let writes = bench.writes().len();

    bench.prove(Then::Exit);
    bench.run(seconds(1));

    assert_eq!(bench.writes().len(), writes);
    assert_eq!(bench.register.spec()["holderIdentity"], ME);
    assert!(bench.is_done());
}

#[test]
fn a_loss_releases_nothing() {
    let mut bench = Bench::leading();
    bench.see(|object| object["spec"]["holderIdentity"] = "x".into());
    let writes = bench.writes().len();

    bench.prove(Then::Exit);
    bench.run(seconds(1));

    assert_eq!(bench.writes().len(), writes);
    assert!(bench.is_done());
    assert!(bench.told.contains(&ToInit::Ended { term: Term(1), backoff: None }), "nobody needs to go first");
}

#[test]
fn a_release_that_was_sent_starts_nothing_on_the_old_validity() {
    let mut bench = releasing(Then::Follow);
    bench.answer(lost());
    bench.run_answered(Duration::from_millis(100));

    assert_eq!(bench.elector.view().leading, None);
    bench.run(seconds(1));
    assert_eq!(released(&bench), Some("clear"), "it is sent again until it is known");
    assert!(!matches!(bench.writes().last(), Some(Sent::Create(_))));
}

#[test]
fn a_release_that_never_succeeds_is_repeated_without_a_storm() {
    let refused = |refusal| Answer::Refused { refusal, message: "no".into() };
    let busy = refused(Refusal::TooManyRequests { retry_after: None });
    for answer in [Answer::Conflict, busy, refused(Refusal::Forbidden), lost()] {
        let mut bench = proved(Then::Exit);
        let writes = bench.writes().len();
        acknowledge_release(&mut bench);
        for _ in 0..1_000 {
            match bench.awaited.as_ref().map(|(_, request)| request) {
                Some(Request::Get) => bench.serve(),
                Some(_) => bench.answer(answer.clone()),
                None => bench.run(Duration::from_millis(10)),
            }
        }

        assert!(bench.is_done());
        let writes = bench.writes().len() - writes;
        assert!((3..=9).contains(&writes), "{writes} writes in 4 s for {answer:?}");
    }
}

#[test]
fn a_retry_after_is_honoured_in_a_release_but_leaves_room_for_an_attempt() {
    for (retry_after, expected) in [(1, 1_000), (30, 2_000)] {
        let mut bench = releasing(Then::Exit);
        let (writes, began) = (bench.writes().len(), bench.now.boot);
        let refusal = Refusal::TooManyRequests { retry_after: Some(seconds(retry_after)) };
        bench.answer(Answer::Refused { refusal, message: "slow down".into() });

        bench.run(Duration::from_millis(expected - 1));
        assert_eq!((bench.writes().len(), bench.awaited.is_none()), (writes, true));
        bench.run_answered(seconds(1));

        assert_eq!(released(&bench), Some("clear"));
        assert!(bench.now.boot.since(began) <= seconds(4));
    }
}
