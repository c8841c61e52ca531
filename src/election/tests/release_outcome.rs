//! Releases that do not go smoothly: late messages, wrong answers, and writes of others (law 8).

use std::time::Duration;

use serde_json::json;

use super::{
    bench::{Bench, ME, Register, held, lost, mark, seconds},
    release::{acknowledge_release, proved, released, releasing},
};
use crate::{
    election::Request,
    link::{Reason, Term, Then, ToElector},
    request::{Answer, Refusal},
};

#[test]
fn no_acknowledgement_of_an_earlier_message_lets_a_release_begin() {
    let mut bench = Bench::leading();
    bench.run(seconds(7));
    let term = bench.leads().expect("it leads");
    bench.stopping(Reason::Signal);
    bench.run(seconds(1));
    let writes = bench.writes().len();
    assert_eq!(writes, 3, "the takeover and two renewals");

    bench.acknowledges = false;
    bench.prove(Then::Exit);
    for serial in 0..writes as u64 {
        bench.tell(ToElector::Acknowledged { term, serial });
        bench.run(seconds(1));
    }
    assert_eq!(bench.writes().len(), writes);

    acknowledge_release(&mut bench);
    bench.run(seconds(1));
    assert_eq!(released(&bench), Some("clear"));
}

#[test]
fn a_release_that_is_answered_with_another_lease_is_none_yet() {
    let mut bench = proved(Then::Exit);
    let before = bench.register.object().expect("a Lease");
    acknowledge_release(&mut bench);

    bench.answer(Answer::Object(before.into()));
    assert_eq!(released(&bench), None);
    bench.run_answered(seconds(1));

    assert_eq!((released(&bench), bench.register.spec()["holderIdentity"].as_str()), (Some("clear"), Some("")));
}

#[test]
fn an_answer_that_comes_after_the_release_was_given_up_tells_who_may_run() {
    let mut bench = releasing(Then::Follow);
    bench.answer(lost());
    while bench.awaited.is_none() {
        bench.run(Duration::from_millis(1));
    }
    let (id, asked) = bench.awaited.take().expect("a read");
    assert_eq!(asked, Request::Get);
    bench.run(seconds(10));
    assert_eq!(released(&bench), Some("unknown"));
    bench.register.edit(|object| object["spec"] = held("other_1", 60));
    let other = bench.register.object().expect("a Lease");

    bench.reply(id, Answer::Object(other.into()));
    bench.see(|object| object["spec"] = json!({}));
    bench.run_answered(seconds(2));

    assert_eq!(bench.body()["spec"]["leaseDurationSeconds"], 60);
}

#[test]
fn a_conflict_is_read_and_released_again_and_the_first_one_costs_no_pause() {
    let mut bench = releasing(Then::Exit);
    bench.register.edit(|object| object["metadata"]["labels"] = json!({"theirs": "x"}));

    bench.serve();
    assert!(matches!(bench.awaited, Some((_, Request::Get))), "at once: {:?}", bench.awaited);
    bench.serve();
    bench.answer(Answer::Conflict);

    assert_eq!(bench.awaited, None, "the second one is paced");
    bench.run_answered(seconds(1));
    assert_eq!(released(&bench), Some("clear"));
    assert_eq!(bench.register.object().as_ref().unwrap()["metadata"]["labels"]["theirs"], "x");
}

/// Another replica may have led in between: its workload may run, and a mark would start the next one beside it.
#[test]
fn a_lease_that_was_handed_back_by_an_edit_is_not_released_however_often_it_was_renewed() {
    let mut bench = Bench::leading();
    bench.register.edit(|object| {
        object["spec"]["acquireTime"] = "2030-01-01T00:00:00.000000Z".into();
        object["spec"]["leaseTransitions"] = 9.into();
    });
    bench.run(seconds(10));
    bench.stop(Reason::Signal, Then::Follow);
    bench.run(seconds(1));

    assert_eq!(bench.register.spec()["holderIdentity"], ME);
    assert_eq!(released(&bench), Some("not-ours"));
}

#[test]
fn a_lease_that_another_has_released_or_made_anew_meanwhile_is_not_the_one_that_was_given_back() {
    let edits: [fn(&mut Register); 2] = [
        |register| register.put(mark()),
        |register| {
            register.edit(|object| {
                object["spec"] = mark();
                object["spec"]["leaseTransitions"] = 6.into();
            });
        },
    ];
    for edit in edits {
        let mut bench = releasing(Then::Exit);
        bench.answer(lost());
        edit(&mut bench.register);

        bench.run_answered(seconds(1));

        assert_eq!(released(&bench), Some("not-ours"));
    }
}

#[test]
fn credentials_that_are_refused_in_a_release_are_tried_again_once_at_once_then_with_a_pause() {
    let refused = || Answer::Refused { refusal: Refusal::Unauthorized, message: "token".into() };
    let mut bench = releasing(Then::Exit);
    let sent = bench.sent.len();

    bench.answer(refused());
    assert_eq!(bench.sent.len(), sent + 1, "at once");
    bench.answer(refused());

    assert_eq!((bench.sent.len(), bench.awaited.is_none()), (sent + 1, true));
}

#[test]
fn a_release_that_was_given_up_and_arrives_late_begins_no_term() {
    let mut bench = releasing(Then::Follow);
    let late = bench.awaited.take();
    bench.run(seconds(4));
    assert_eq!((released(&bench), bench.leads()), (Some("unknown"), Some(Term(1))));

    let read = std::mem::replace(&mut bench.awaited, late);
    bench.serve();
    bench.awaited = read;
    bench.run_answered(seconds(10));

    assert_eq!((bench.register.spec()["holderIdentity"].as_str(), bench.leads()), (Some(""), Some(Term(1))));
}
