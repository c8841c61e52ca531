//! How several slots are read: by one list and one watch, and each by its name where no list is.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    super::bench::{Bench, Register, START, held, lost, mark, seconds, written},
    SPREAD, forbidden, one_of, others,
};
use crate::{
    election::{
        Event, Request,
        writes::{HOLDER, Sent},
    },
    link::{InitialState, LastSeen, Term},
    request::{Answer, Operation, WatchEnd, Watched},
    slot::Slot,
};

#[test]
fn a_list_that_is_forbidden_is_made_up_for_by_reads_of_each_slot_in_turn() {
    let mut bench = Bench::start(one_of(3, "me_0"), Register::of(&[others(), others(), others()]));
    bench.answer(forbidden());
    bench.run(seconds(30));
    let gets = bench.read();
    let first = 3;
    assert!((5..=11).contains(&(gets.len() - first)), "{gets:?}");
    assert!(gets.windows(3).all(|three| (0..3).all(|slot| three.contains(&Slot(slot)))), "{gets:?}");
    bench.see_in(2, |object| object["spec"] = mark());
    bench.run(SPREAD);
    assert_eq!(bench.terms(), [(Slot(2), Term(1))]);
}

#[test]
fn where_lists_are_forbidden_each_slot_is_read_for_the_first_time_at_once() {
    let mut bench = Bench::start(one_of(5, "me_0"), Register::of(&[(); 5].map(|()| others())));
    bench.answer(forbidden());
    bench.run(seconds(1));
    assert_eq!(bench.read(), [0, 1, 2, 3, 4].map(Slot));
}

#[test]
fn a_slot_that_may_not_be_read_delays_the_first_read_of_no_other_where_lists_are_forbidden() {
    let mut bench = Bench::start(one_of(3, "me_0"), Register::of(&[others(), others(), others()]));
    bench.answers = false;
    let end = bench.now.boot + seconds(1);
    while bench.now.boot < end {
        match &bench.awaited {
            Some((_, Request::List)) => bench.answer(forbidden()),
            Some(_) if bench.slot() == Slot(0) => bench.answer(forbidden()),
            Some(_) => bench.serve(),
            None => bench.run(Duration::from_millis(10)),
        }
    }
    assert_eq!(bench.read(), [0, 1, 2].map(Slot));
}

#[test]
fn a_slot_that_may_not_be_read_makes_the_others_be_read_no_more_often() {
    let mut bench = Bench::start(one_of(3, "me_0"), Register::of(&[others(), others(), others()]));
    bench.answers = false;
    let end = bench.now.boot + seconds(60);
    while bench.now.boot < end {
        match &bench.awaited {
            Some((_, Request::List)) => bench.answer(forbidden()),
            Some(_) if bench.slot() == Slot(2) => bench.answer(forbidden()),
            Some(_) => bench.serve(),
            None => bench.run(Duration::from_millis(10)),
        }
    }
    let gets = bench.read().len();
    assert!((20..=40).contains(&gets), "{gets}");
}

#[test]
fn a_slot_that_no_list_shows_and_may_not_be_read_is_read_once_a_period() {
    for slots in [[others(), others(), None], [None, others(), others()]] {
        let mut bench = Bench::start(one_of(3, "me_0"), Register::of(&slots));
        bench.answers = false;
        let (end, mut lists) = (bench.now.boot + seconds(60), 0);
        while bench.now.boot < end {
            match &bench.awaited {
                Some((_, Request::List)) => {
                    lists += 1;
                    bench.serve();
                }
                Some(_) => bench.answer(forbidden()),
                None => bench.run(Duration::from_millis(10)),
            }
        }
        let gets = bench.read().len();
        assert!((15..=25).contains(&gets) && (15..=25).contains(&lists), "{gets} {lists}: {slots:?}");
    }
}

/// Permits no list, so that each slot is read by its name.
fn serve_until_slot_1_is_read(bench: &mut Bench) {
    while bench.slot() == Slot(0) {
        match &bench.awaited {
            Some((_, Request::List)) => bench.answer(forbidden()),
            Some(_) => bench.serve(),
            None => bench.run(Duration::from_millis(10)),
        }
    }
}

#[test]
fn what_the_watch_brings_of_a_slot_that_was_not_read_yet_makes_no_elector_forget_what_its_predecessor_saw() {
    let mut register = Register::of(&[others(), Some(mark())]);
    let old = register.object_of(Slot(1)).expect("a Lease");
    let uid = old["metadata"]["uid"].as_str().expect("a uid").to_owned();
    // The predecessor saw a term of a minute, with the holder's name; then a stranger took the Lease and dropped the name.
    register.edit_in(Slot(1), |object| object["spec"] = held("stranger_1", 15));
    let last_seen = LastSeen { duration: seconds(60), held: Some(uid), named: true, not_before: START };
    let initial = InitialState { last_seen: [(Slot(1), last_seen)].into(), ..one_of(2, "me_0") };
    let mut bench = Bench::start(initial, register);
    bench.answers = false;
    serve_until_slot_1_is_read(&mut bench);
    bench.watch(Watched::Changed(old.into()));
    bench.serve();
    bench.answers = true;
    bench.run(seconds(60));
    assert_eq!(bench.written(), []);
    bench.run(seconds(1));
    assert_eq!(bench.written(), [Slot(1)]);
}

#[test]
fn whoever_the_watch_shows_to_hold_a_slot_that_was_not_read_yet_may_still_run_unless_it_has_given_it_back() {
    let stranger: fn(&mut Value) = |object| {
        object["spec"] = held("stranger_1", 3);
        object["metadata"]["annotations"] = json!({});
    };
    let released: fn(&mut Value) = |object| {
        object["spec"] = mark();
        object["metadata"]["annotations"] = json!({});
    };
    for (next, wait) in [(stranger, 60), (released, 0)] {
        let mut register = Register::of(&[others(), Some(held("other_1", 60))]);
        register.edit_in(Slot(1), |object| object["metadata"]["annotations"] = json!({ HOLDER: "other_1" }));
        let old = register.object_of(Slot(1)).expect("a Lease");
        register.edit_in(Slot(1), next);
        let mut bench = Bench::start(one_of(2, "me_0"), register);
        bench.answers = false;
        serve_until_slot_1_is_read(&mut bench);
        bench.watch(Watched::Changed(old.into()));
        bench.serve();
        bench.answers = true;
        bench.run(seconds(wait).saturating_sub(seconds(1)));
        assert_eq!(bench.written(), []);
        bench.run(seconds(3));
        assert_eq!(bench.written(), [Slot(1)]);
    }
}

#[test]
fn slots_that_are_absent_and_may_not_be_created_cost_no_more_reads_than_one() {
    let mut bench = Bench::start(one_of(64, "me_0"), Register::of(&vec![None; 64]));
    let run = |bench: &mut Bench, span: Duration| {
        let until = bench.now.boot + span;
        bench.answers = false;
        while bench.now.boot < until {
            match bench.awaited.as_ref().map(|(_, request)| written(request)) {
                Some(Some(Sent::Create(_))) => bench.answer(forbidden()),
                Some(_) => bench.serve(),
                None => bench.run(Duration::from_millis(10)),
            }
        }
    };
    run(&mut bench, seconds(300));
    assert!((0..64).all(|slot| bench.read().contains(&Slot(slot))), "each is looked for once");
    let before = (bench.read().len(), bench.sent.len());
    run(&mut bench, seconds(60));
    let (gets, all) = (bench.read().len() - before.0, bench.sent.len() - before.1);
    assert!(gets <= 25 && all <= 50, "{gets} reads by name, and {all} requests");

    // What is there is seen all the same: at once, or in its turn if it has no label.
    bench.put(63, others().expect("a spec"));
    bench.put(62, mark());
    bench.edit_in(62, |object| object["metadata"]["labels"] = json!({}));
    run(&mut bench, seconds(64 * 4));
    assert_eq!(bench.terms(), [(Slot(62), Term(1))]);
}

#[test]
fn a_slot_without_its_label_that_was_absent_is_read_once_a_creation_finds_it() {
    let mut bench = Bench::start(one_of(8, "me_0"), Register::of(&vec![Some(held("other_1", 3600)); 8]));
    bench.run(seconds(1));
    bench.delete(5);
    bench.answers = false;
    for _ in 0..1000 {
        match &bench.awaited {
            Some((_, Request::Write(_))) => break,
            Some(_) => bench.serve(),
            None => bench.run(SPREAD / 10),
        }
    }
    bench.put(5, mark());
    bench.edit_in(5, |object| object["metadata"]["labels"] = json!({}));
    let before = bench.read().len();
    bench.run_answered(seconds(1));
    assert_eq!(bench.read()[before..], [Slot(5)]);
}

#[test]
fn a_list_that_fails_is_no_answer_about_any_slot() {
    let mut bench = Bench::start(one_of(2, "me_0"), Register::of(&[None, None]));
    bench.answers = false;
    for _ in 0..10 {
        bench.answer(lost());
        while bench.awaited.is_none() {
            bench.run(SPREAD);
        }
        assert!(matches!(bench.awaited, Some((_, Request::List))), "{:?}", bench.awaited);
    }
    bench.answer(Answer::NotFound);
    bench.run(seconds(5));
    assert_eq!((bench.written(), bench.read()), (vec![], vec![]));
}

#[test]
fn one_list_and_one_watch_serve_all_slots() {
    let mut bench = Bench::start(one_of(3, "me_0"), Register::of(&[others(), others(), others()]));
    bench.run(seconds(30));
    assert!((9..=11).contains(&bench.sent.len()) && bench.read().is_empty(), "{:?}", bench.sent);
    // The watch starts at the version of the list, even if each Lease is older.
    assert_eq!(bench.watches, [Some(bench.register.version().to_string())]);
    assert_eq!(bench.events.iter().filter(|event| **event == Event::Ready).count(), 1);
}

#[test]
fn a_watch_whose_version_is_gone_begins_again_without_one_even_where_no_list_is() {
    let mut bench = Bench::start(one_of(2, "me_0"), Register::of(&[others(), others()]));
    bench.answer(forbidden());
    bench.run(seconds(20));
    let longer = |object: &mut Value| object["spec"]["leaseDurationSeconds"] = json!(3601);
    bench.see_in(0, longer);
    (0..2).for_each(|slot| bench.edit_in(slot, longer));
    bench.watch(Watched::Ended(WatchEnd::Failed("410".into())));
    bench.run(seconds(20));
    assert!(bench.watches.len() == 2 && bench.watches[1].is_none(), "{:?}", bench.watches);

    let failed = |event: &Event| matches!(event, Event::Failed { operation: Operation::List, .. });
    let recovered = |event: &Event| *event == Event::Recovered { operation: Operation::List };
    assert!(bench.events.iter().any(failed) && !bench.events.iter().any(recovered));
    bench.run(seconds(60));
    assert_eq!(bench.events.iter().filter(|event| recovered(event)).count(), 1);
}

#[test]
fn the_watch_of_all_slots_never_begins_again_at_an_older_version() {
    let mut bench = Bench::start(one_of(2, "me_0"), Register::of(&[others(), others()]));
    bench.run(seconds(2));
    bench.watch(Watched::Bookmark("1012".into()));
    bench.watch(Watched::Bookmark("1009".into()));
    bench.run(seconds(60));
    bench.watch(Watched::Ended(WatchEnd::Closed));

    bench.run(seconds(1));

    assert_eq!(bench.watches.last(), Some(&Some("1012".into())));
}

#[test]
fn lists_that_fail_are_paced_however_many_slots_there_are() {
    for slots in [2, 64] {
        let mut bench = Bench::start(one_of(slots, "me_0"), Register::of(&vec![others(); slots.into()]));
        bench.run(seconds(10));
        bench.answers = false;
        let (until, before) = (bench.now.boot + seconds(60), bench.sent.len());
        while bench.now.boot < until {
            if bench.awaited.is_some() {
                bench.answer(lost());
            }
            let next = bench.elector.poll_timeout().unwrap_or(until).max(bench.now.boot);
            bench.run(next.since(bench.now.boot).min(seconds(1)));
        }
        let lists = bench.sent.iter().skip(before).filter(|(_, request)| *request == Request::List).count();
        assert!((10..40).contains(&lists), "{lists} for {slots} slots");
    }
}
