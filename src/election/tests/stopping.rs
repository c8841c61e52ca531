//! A stop, from its cause to the proof (law 4, 7, 8).

use serde_json::json;

use super::bench::{Bench, ME, seconds};
use crate::{
    election::{Event, writes::STEP_DOWN},
    link::{Reason, Stop, Term, Then, ToElector, ToInit},
};

fn extensions(bench: &Bench) -> usize {
    bench.told.iter().filter(|message| matches!(message, ToInit::Extend { .. })).count()
}

fn is_releasing(bench: &Bench) -> bool {
    bench.told.iter().any(|message| matches!(message, ToInit::Releasing { .. }))
}

/// Leading, with a renewal under way.
fn renewing() -> Bench {
    let mut bench = Bench::leading();
    bench.answers = false;
    bench.run(seconds(3));
    assert!(bench.awaits_a_write());
    bench
}

#[test]
fn a_renewal_on_its_way_at_the_proof_is_awaited_and_is_no_release() {
    let mut bench = renewing();
    bench.stop(Reason::Signal, Then::Exit);
    assert!(!is_releasing(&bench), "while a write may still land");
    let renewed = |bench: &Bench| bench.events.iter().filter(|event| matches!(event, Event::Renewed { .. })).count();
    let before = renewed(&bench);

    bench.serve();
    assert_eq!((extensions(&bench), is_releasing(&bench)), (0, true), "nothing runs whose deadline it could move");
    assert_eq!(renewed(&bench), before, "nor has it a margin");
    assert_eq!(bench.register.spec()["holderIdentity"], ME);
    bench.run_answered(seconds(1));

    assert_eq!(bench.register.spec()["holderIdentity"], "");
}

#[test]
fn a_renewal_that_is_answered_after_a_loss_extends_nothing() {
    let mut bench = renewing();
    let (_, renewal) = bench.awaited.clone().expect("a renewal");
    let answer = bench.register.apply(&renewal);
    bench.see(|object| object["spec"]["holderIdentity"] = "x".into());
    assert_eq!(bench.step_down_reason(), Some(Reason::LostToHolder));

    bench.answer(answer);

    assert_eq!(extensions(&bench), 0);
}

#[test]
fn a_proof_that_waits_in_the_link_behind_other_messages_disarms_s_and_h() {
    for late in [seconds(11), seconds(15)] {
        let mut bench = Bench::leading();
        bench.answers = false;
        bench.stopping(Reason::Signal);
        let (term, request) = bench.step_down().expect("a StepDown was told");
        let stop = Stop { began: None, killed: None, exited: None, exit: None, fused: None, proved: bench.now.boot };
        bench.pass(bench.now.boot + late);

        bench.tell_all([ToElector::Heartbeat, ToElector::Stopped { term, request, stop, then: Then::Exit }]);

        assert!(!bench.guarding() && is_releasing(&bench), "{late:?}: {:?}", bench.told);
        assert_eq!(bench.step_down_reason(), Some(Reason::Signal));
    }
}

#[test]
fn a_request_to_step_down_changes_nothing_about_a_stop_that_has_begun() {
    let mut bench = Bench::leading();
    bench.stopping(Reason::Signal);
    let first = bench.step_down();

    bench.see(|object| object["metadata"]["annotations"] = json!({(STEP_DOWN): ME}));

    assert_eq!((bench.step_down(), bench.step_down_reason()), (first, Some(Reason::Signal)));
}

#[test]
fn the_proof_of_another_term_is_none_although_it_answers_the_request() {
    let mut bench = Bench::leading();
    bench.stopping(Reason::Signal);
    let (_, request) = bench.step_down().expect("a StepDown");
    let stop = Stop { began: None, killed: None, exited: None, exit: None, fused: None, proved: bench.now.boot };

    bench.tell(ToElector::Stopped { term: Term(99), request, stop, then: Then::Exit });

    assert!(!is_releasing(&bench));
}

#[test]
fn that_a_proof_fails_is_said_of_the_own_term_only() {
    let mut bench = Bench::leading();
    bench.stopping(Reason::Signal);
    let said = |bench: &Bench| bench.events.iter().filter(|event| matches!(event, Event::Odd { .. })).count();

    bench.tell(ToElector::Unproved { term: Term(99) });
    assert_eq!(said(&bench), 0);
    bench.tell(ToElector::Unproved { term: Term(1) });

    assert_eq!(said(&bench), 1);
}
