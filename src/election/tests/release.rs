//! Giving the Lease back, after the proof only (law 8).

use super::bench::{Bench, ME, lost, plus, seconds, welcome};
use crate::{
    config::Release,
    election::{Answer, Event, Given, Refusal, Request},
    link::{Reason, Then, ToElector, ToInit},
};

pub(super) fn released(bench: &Bench) -> Option<&'static str> {
    bench.events.iter().rev().find_map(|event| match event {
        Event::Released { how } => Some(how.as_str()),
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

#[test]
fn a_release_leaves_the_mark_and_everything_else_as_it_was() {
    let mut bench = Bench::leading();
    let before = bench.register.object.clone().unwrap();
    bench.stopping(Reason::Signal);

    bench.prove(Then::Exit);
    bench.run(seconds(1));

    let spec = bench.register.spec();
    assert_eq!(spec["holderIdentity"], "");
    assert_eq!(spec["leaseDurationSeconds"], 1);
    assert_eq!(spec["acquireTime"], spec["renewTime"]);
    assert_eq!(spec["leaseTransitions"], before["spec"]["leaseTransitions"]);
    assert_eq!(bench.register.object.as_ref().unwrap()["metadata"]["labels"], before["metadata"]["labels"]);
    assert!(bench.is_done());
    assert_eq!(released(&bench), Some("clear"));
}

#[test]
fn nothing_of_a_release_is_written_before_init_has_voided_the_deadlines() {
    let mut bench = proved(Then::Exit);
    let writes = bench.writes().len();
    bench.serve();
    assert_eq!((bench.awaited.as_ref(), bench.writes().len()), (None, writes), "the read was answered, and nothing follows it");

    acknowledge_release(&mut bench);

    assert!(bench.awaits_a_write());
}

#[test]
fn the_fresh_read_overlaps_with_the_end_of_the_workload() {
    let mut bench = Bench::leading();
    bench.answers = false;
    bench.stopping(Reason::Signal);
    assert_eq!(bench.awaited.as_ref().map(|(_, request)| request), Some(&Request::Get));
    bench.serve();
    assert_eq!(bench.awaited, None, "and the renewals keep their pace");
    let gets = bench.gets();

    bench.prove(Then::Exit);

    assert!(bench.awaits_a_write());
    assert_eq!(bench.gets(), gets);
}

/// Stopping for three seconds: a renewal was answered after the fresh read, and the request after it awaits its answer.
fn renewed_through_the_stop() -> Bench {
    let mut bench = Bench::leading();
    bench.stopping(Reason::Signal);
    bench.serve();
    bench.answers = false;
    bench.run(seconds(3));
    assert!(bench.awaits_a_write());
    bench.serve();
    bench
}

#[test]
fn a_read_that_a_renewal_followed_is_not_fresh() {
    let mut bench = renewed_through_the_stop();

    bench.prove(Then::Exit);

    assert_eq!(bench.awaited.as_ref().map(|(_, request)| request), Some(&Request::Get));
}

#[test]
fn a_renewal_during_the_stop_is_followed_by_a_fresh_read() {
    let mut bench = renewed_through_the_stop();
    assert_eq!(bench.awaited.as_ref().map(|(_, request)| request), Some(&Request::Get));
    bench.serve();
    assert_eq!(bench.awaited, None, "and the renewals keep their pace");

    bench.prove(Then::Exit);

    assert!(bench.awaits_a_write());
}

#[test]
fn a_read_that_a_change_followed_is_not_fresh() {
    for after_the_proof in [false, true] {
        let mut bench = Bench::leading();
        bench.answers = false;
        bench.stopping(Reason::Signal);
        bench.serve();
        bench.acknowledges = !after_the_proof;
        if after_the_proof {
            bench.prove(Then::Exit);
        }
        bench.register.edit(|object| object["metadata"]["labels"] = serde_json::json!({"theirs": "x"}));
        bench.watch_register();

        if after_the_proof {
            acknowledge_release(&mut bench)
        } else {
            bench.prove(Then::Exit)
        }

        assert_eq!(bench.awaited.as_ref().map(|(_, request)| request), Some(&Request::Get), "{after_the_proof}");
    }
}

#[test]
fn a_stop_while_the_renewals_fail_sends_no_read_of_its_own() {
    let mut bench = Bench::leading();
    bench.answers = false;
    bench.run(seconds(5));
    let gets = bench.gets();

    bench.answer(lost());
    bench.stopping(Reason::Signal);

    assert_eq!(bench.gets(), gets);
}

#[test]
fn nothing_is_released_without_a_proof_of_this_request() {
    let mut bench = Bench::leading();
    bench.stopping(Reason::Signal);
    let (term, request) = bench.step_down().unwrap();
    let stop = crate::link::Stop { began: None, killed: None, exited: None, exit: None, proved: bench.now.boot };

    bench.tell(ToElector::Stopped { term, request: request + 1, stop, then: Then::Exit });

    assert!(!bench.told.iter().any(|message| matches!(message, ToInit::Releasing { .. })));
}

#[test]
fn another_holder_in_the_fresh_read_is_left_alone() {
    let mut bench = proved(Then::Exit);
    bench.register.edit(|object| object["spec"]["holderIdentity"] = "x".into());
    let writes = bench.writes().len();
    acknowledge_release(&mut bench);

    bench.serve();

    assert_eq!(bench.writes().len(), writes);
    assert_eq!(released(&bench), Some("not-ours"));
    assert!(bench.is_done());
}

#[test]
fn a_later_term_under_my_own_name_is_left_alone() {
    for edit in ["acquireTime", "leaseTransitions"] {
        let mut bench = proved(Then::Exit);
        bench
            .register
            .edit(|object| object["spec"][edit] = if edit == "acquireTime" { "2030-01-01T00:00:00Z".into() } else { 9.into() });
        let writes = bench.writes().len();
        acknowledge_release(&mut bench);
        bench.serve();
        assert_eq!(bench.writes().len(), writes, "{edit}");
    }
}

#[test]
fn a_deleted_lease_is_not_made_again() {
    let mut bench = proved(Then::Exit);
    bench.register.delete();
    let writes = bench.writes().len();
    acknowledge_release(&mut bench);

    bench.serve();

    assert_eq!(bench.writes().len(), writes);
    assert!(bench.is_done());
}

#[test]
fn a_conflict_is_read_and_released_again() {
    let mut bench = proved(Then::Exit);
    acknowledge_release(&mut bench);
    bench.serve();
    bench.register.edit(|object| object["metadata"]["labels"] = serde_json::json!({"theirs": "x"}));
    bench.answers = true;

    bench.run(seconds(1));

    assert_eq!(released(&bench), Some("clear"));
    assert_eq!(bench.register.object.as_ref().unwrap()["metadata"]["labels"]["theirs"], "x");
}

#[test]
fn a_release_whose_reply_was_lost_is_recognised() {
    let mut bench = proved(Then::Exit);
    acknowledge_release(&mut bench);
    bench.serve();
    bench.serve_silently();
    let writes = bench.writes().len();
    bench.answers = true;

    bench.run(seconds(1));

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
        bench.stopping(Reason::Signal);
        bench.prove(Then::Exit);
        let began = bench.now.boot;
        while !bench.is_done() {
            bench.run(std::time::Duration::from_millis(100));
            if bench.awaited.is_some() && bench.now.boot.since(bench.last_sent()) >= seconds(2) {
                bench.answer(lost());
            }
        }

        assert_eq!(bench.now.boot.since(began), seconds(4));
        assert_eq!(released(&bench), Some("unknown"));
    }
}

#[test]
fn after_a_release_the_others_go_first_for_one_duration() {
    let mut bench = Bench::leading();
    bench.stopping(Reason::StepDown);
    bench.prove(Then::Follow);
    bench.run(plus(15) - std::time::Duration::from_millis(1));
    assert_eq!(bench.leads().map(|term| term.0), Some(1));

    bench.run(seconds(1));

    assert_eq!(bench.leads().map(|term| term.0), Some(2));
}

#[test]
fn delete_clears_first_and_deletes_with_both_preconditions() {
    let mut welcome = welcome();
    welcome.config.lease.release = Release::Delete;
    let mut bench = Bench::leading_with(welcome);
    bench.stopping(Reason::Signal);

    bench.prove(Then::Exit);
    bench.run(seconds(1));

    let writes = bench.writes();
    let [.., Request::Replace(clear), Request::Delete { uid, resource_version }] = &writes[..] else { panic!("{writes:?}") };
    assert_eq!(clear["spec"]["holderIdentity"], "");
    assert_eq!(uid, "uid-1");
    assert_eq!(resource_version, "30");
    assert_eq!(bench.register.object, None);
}

#[test]
fn a_delete_that_is_not_permitted_leaves_a_released_lease_and_is_not_repeated() {
    let mut welcome = welcome();
    welcome.config.lease.release = Release::Delete;
    let mut bench = Bench::leading_with(welcome);
    bench.answers = false;
    bench.stopping(Reason::Signal);
    bench.serve();

    bench.prove(Then::Exit);
    bench.serve();
    assert!(matches!(bench.sent.last(), Some((_, Request::Delete { .. }))));
    bench.answer(Answer::Refused { refusal: Refusal::Forbidden, message: "no delete".into() });

    assert!(bench.is_done());
    assert!(bench.events.iter().any(|event| matches!(event, Event::Released { how: Given::Clear })), "{:?}", bench.events);
    assert_eq!(bench.register.spec()["holderIdentity"], "");
}

#[test]
fn keep_writes_nothing() {
    let mut welcome = welcome();
    welcome.config.lease.release = Release::Keep;
    let mut bench = Bench::leading_with(welcome);
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
    bench.register.edit(|object| object["spec"]["holderIdentity"] = "x".into());
    bench.watch_register();
    let writes = bench.writes().len();

    bench.prove(Then::Exit);
    bench.run(seconds(1));

    assert_eq!(bench.writes().len(), writes);
    assert!(bench.is_done());
}

#[test]
fn a_release_that_was_sent_starts_nothing_on_the_old_validity() {
    let mut bench = proved(Then::Follow);
    acknowledge_release(&mut bench);
    bench.serve();
    bench.answer(lost());
    bench.answers = true;
    bench.run(std::time::Duration::from_millis(100));

    assert_eq!(bench.elector.view().leading, None);
    bench.run(seconds(1));
    assert_eq!(released(&bench), Some("clear"), "it is sent again until it is known");
    assert!(!matches!(bench.sent.last(), Some((_, Request::Create(_)))));
}

#[test]
fn a_refused_release_is_tried_again() {
    let mut bench = proved(Then::Exit);
    acknowledge_release(&mut bench);
    bench.serve();
    bench.answer(Answer::Refused { refusal: Refusal::Forbidden, message: "no".into() });
    bench.answers = true;

    bench.run(seconds(1));

    assert_eq!(released(&bench), Some("clear"));
}

#[test]
fn a_release_that_never_succeeds_is_repeated_without_a_storm() {
    let busy = Refusal::TooManyRequests { retry_after: None };
    let refused = Answer::Refused { refusal: busy, message: "busy".into() };
    for answer in [Answer::Conflict, refused, lost()] {
        let mut bench = proved(Then::Exit);
        let writes = bench.writes().len();
        acknowledge_release(&mut bench);
        for _ in 0..1_000 {
            match bench.awaited.as_ref().map(|(_, request)| request) {
                Some(Request::Get) => bench.serve(),
                Some(_) => bench.answer(answer.clone()),
                None => bench.run(std::time::Duration::from_millis(10)),
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
        let mut bench = proved(Then::Exit);
        acknowledge_release(&mut bench);
        bench.serve();
        let (writes, began) = (bench.writes().len(), bench.now.boot);
        let refusal = Refusal::TooManyRequests { retry_after: Some(seconds(retry_after)) };
        bench.answer(Answer::Refused { refusal, message: "slow down".into() });

        bench.run(std::time::Duration::from_millis(expected - 1));
        assert_eq!((bench.writes().len(), bench.awaited.is_none()), (writes, true));
        bench.answers = true;
        bench.run(seconds(1));

        assert_eq!(released(&bench), Some("clear"));
        assert!(bench.now.boot.since(began) <= seconds(4));
    }
}
