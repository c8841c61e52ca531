//! Several slots, of which a replica holds one: their turns, and the observations of each.

use std::time::Duration;

use serde_json::{Value, json};

use self::bench::{Bench, forbidden, one_of, one_who_begins_at};
use super::bench::{START, TICK, held, lost, mark, plus, seconds};
use crate::{
    config::{Preset, WaitLimit},
    election::{
        Event, Request, Slots,
        writes::{PAUSED, SLOTS},
    },
    link::{InitialState, LastSeen, Reason, Term, Then, ToElector, ToInit},
    request::{Answer, Operation, WatchEnd, Watched},
    slot::Slot,
};

mod bench;

/// The longest wait before a write.
const SPREAD: Duration = Duration::from_millis(50);

/// The states of a slot, the best first.
const RANKS: [fn(&mut Value); 3] =
    [|object| object["spec"] = mark(), |object| object["spec"] = held("other_1", 15), |object| object["spec"] = json!({})];

fn others() -> Option<Value> {
    Some(held("other_1", 3600))
}

#[test]
fn what_was_given_back_is_taken_before_what_expired_and_that_before_what_nobody_had() {
    for (better, worse) in [(0, 1), (0, 2), (1, 2)] {
        let paused = |object: &mut Value| object["metadata"]["annotations"][PAUSED] = json!("true");
        let mut bench = Bench::start(one_who_begins_at(0, 3), &[others(), others(), Some(mark())]);
        (0..2).for_each(|slot| bench.edit(slot, paused));
        bench.run(seconds(1));
        assert_eq!(bench.terms(), [(Slot(2), Term(1))]);
        for (slot, rank) in [(0, worse), (1, better)] {
            bench.see(slot, |object| {
                object["metadata"]["annotations"] = json!({});
                RANKS[rank](object);
            });
        }
        bench.run(plus(15));
        let before = bench.writes();
        bench.see(2, |object| object["spec"] = held("other_1", 3600));
        bench.prove();
        bench.run_until_a_write();
        assert_eq!(bench.writes()[before.len()..], [Slot(1)], "{better} before {worse}");
    }
}

#[test]
fn ties_begin_at_another_slot_for_another_replica_and_go_round() {
    for first in 0..3 {
        let mut bench = Bench::start(one_who_begins_at(first, 3), &vec![Some(mark()); 3]);
        bench.answers = false;
        bench.run(SPREAD);
        for slot in [first, (first + 1) % 3, (first + 2) % 3] {
            while bench.writes().last() != Some(&Slot(slot)) {
                bench.serve();
                bench.run(SPREAD);
            }
            assert!(bench.writes().ends_with(&[Slot(slot)]), "{:?}", bench.writes());
            bench.put(slot, held("other_1", 3600));
        }
        bench.run(Duration::ZERO);
        let expected: Vec<Slot> = (0..3).map(|next| Slot((first + next) % 3)).collect();
        assert_eq!(bench.writes(), expected);
    }
}

#[test]
fn a_write_comes_within_a_moment_of_what_allows_it_and_not_where_the_slot_is_gone_by_then() {
    let mut delays = Vec::new();
    for number in 0..10 {
        let mut bench = Bench::start(one_of(2, &format!("me_{number}")), &[others(), others()]);
        bench.run(seconds(1));
        let seen = bench.now.boot;
        bench.see(0, |object| object["spec"] = mark());
        assert_eq!(bench.writes(), []);
        bench.answers = false;
        bench.run(SPREAD);
        assert_eq!(bench.writes(), [Slot(0)]);
        delays.push(bench.sent.last().expect("it was sent").0.since(seen));
    }
    delays.sort();
    assert!(delays[9] - delays[0] > SPREAD / 4, "{delays:?}");

    let mut bench = Bench::start(one_of(2, "me_0"), &[others(), others()]);
    bench.run(seconds(1));
    bench.see(0, |object| object["spec"] = mark());
    bench.see(0, |object| object["spec"] = held("other_2", 3600));
    bench.run(seconds(60));
    assert_eq!(bench.writes(), []);
}

#[test]
fn while_a_write_is_not_answered_nothing_else_is_asked() {
    for spec in [mark(), json!({})] {
        let mut bench = Bench::start(one_of(3, "me_0"), &vec![Some(spec); 3]);
        bench.run_until_a_write();
        bench.answers = false;
        let sent = bench.sent.len();
        bench.run(seconds(60));
        bench.see(1, |object| object["spec"] = mark());
        bench.run(seconds(60));
        assert_eq!(bench.sent.len(), sent);
    }
}

#[test]
fn what_became_of_a_write_is_read_from_that_slot_before_anything_else_is_written() {
    for is_stored in [false, true] {
        let mut bench = Bench::start(one_who_begins_at(1, 3), &vec![Some(mark()); 3]);
        bench.run_until_a_write();
        let (slot, _, write) = bench.awaited.clone().expect("it is awaited");
        if is_stored {
            bench.apply(slot, &write);
        }
        let sent = bench.sent.len();
        bench.answers = false;
        for _ in 0..20 {
            bench.answer(lost());
            while bench.awaited.is_none() {
                bench.run(SPREAD);
            }
        }
        assert!(bench.sent[sent..].iter().all(|(_, of, request)| (*of, request) == (Slot(1), &Request::Get)), "{:?}", bench.sent);

        bench.run_answered(seconds(1));
        // A write that was stored is proved after S, and is written again before it begins a term. A write that was not stored is
        // written again too.
        assert_eq!((bench.writes(), bench.gets()), (vec![Slot(1); 2], vec![Slot(1); 20]));
        assert_eq!(bench.terms(), [(Slot(1), Term(1))]);
    }
}

#[test]
fn whoever_comes_second_takes_the_next_slot() {
    let mut bench = Bench::start(one_who_begins_at(0, 2), &[Some(mark()), Some(mark())]);
    bench.run_until_a_write();
    bench.put(0, held("other_1", 3600));
    bench.run(SPREAD * 2);
    assert_eq!((bench.writes(), bench.gets()), (vec![Slot(0), Slot(1)], vec![Slot(0)]));
    assert_eq!(bench.terms(), [(Slot(1), Term(1))]);
}

#[test]
fn a_slot_that_is_missing_from_a_list_is_absent_only_where_a_read_of_it_says_so() {
    let mut bench = Bench::start(one_of(2, "me_0"), &[others(), others()]);
    bench.edit(1, |object| object["metadata"]["labels"] = json!({}));
    bench.run(seconds(60));
    assert!(bench.gets().len() > 1 && bench.gets().iter().all(|slot| *slot == Slot(1)), "{:?}", bench.sent);
    assert_eq!((bench.writes(), bench.terms()), (vec![], vec![]));

    let mut bench = Bench::start(one_of(2, "me_0"), &[others(), None]);
    bench.answers = false;
    bench.run(seconds(1));
    bench.serve();
    bench.run(seconds(1));
    assert_eq!((bench.writes(), bench.gets()), (vec![], vec![Slot(1)]));
    bench.serve();
    bench.run(SPREAD);
    let Some((Slot(1), _, Request::Create(object))) = &bench.awaited else { panic!("no creation: {:?}", bench.awaited) };
    assert_eq!((&object["metadata"]["name"], &object["metadata"]["labels"][SLOTS]), (&json!("lease-slot-1"), &json!("lease")));
}

#[test]
fn a_held_slot_whose_label_is_taken_away_is_not_lost_and_one_that_is_deleted_is() {
    let mut bench = Bench::start(one_who_begins_at(1, 2), &[others(), Some(mark())]);
    bench.run(seconds(1));
    assert_eq!(bench.terms(), [(Slot(1), Term(1))]);
    bench.unlabel(1);
    assert!(!bench.is_stopping() && matches!(bench.awaited, Some((Slot(1), _, Request::Get))), "{:?}", bench.awaited);
    bench.run(seconds(60));
    assert!(!bench.is_stopping() && bench.terms().len() == 1, "{:?}", bench.told);

    bench.delete(1);
    bench.run(TICK);
    assert!(bench.is_stopping());
}

#[test]
fn the_slot_of_another_whose_label_is_taken_away_is_not_free_and_has_not_changed() {
    let mut bench = Bench::start(one_of(2, "me_0"), &[others(), Some(held("other_2", 15))]);
    bench.run(seconds(5));
    let read = bench.gets().len();
    bench.unlabel(1);
    bench.run(TICK);
    assert_eq!(bench.gets()[read..], [Slot(1)]);
    bench.run(plus(15) - seconds(5) - TICK * 2);
    assert_eq!(bench.writes(), []);
    bench.run(SPREAD + TICK);
    assert_eq!(bench.terms(), [(Slot(1), Term(1))], "{:?}", bench.sent);
}

#[test]
fn while_a_term_is_held_or_its_end_not_proved_nothing_is_written_elsewhere() {
    let mut bench = Bench::start(one_who_begins_at(0, 3), &[Some(mark()), others(), None]);
    bench.run(SPREAD);
    assert_eq!(bench.terms(), [(Slot(0), Term(1))]);
    bench.see(1, |object| object["spec"] = mark());
    bench.run(seconds(60));
    bench.see(0, |object| object["spec"] = held("other_1", 3600));
    assert!(bench.is_stopping());
    bench.run(seconds(60));
    assert!(bench.writes().iter().all(|slot| *slot == Slot(0)), "{:?}", bench.writes());

    bench.prove();
    bench.run(seconds(1));
    assert_eq!(bench.terms(), [(Slot(0), Term(1)), (Slot(1), Term(2))], "terms rise over all slots");
}

#[test]
fn a_term_that_is_being_given_back_is_over_before_the_next_one() {
    let mut bench = Bench::start(one_who_begins_at(0, 2), &[Some(mark()), others()]);
    bench.run(SPREAD);
    bench.see(1, |object| object["spec"] = mark());
    bench.answers = false;
    bench.tell(ToElector::Stopping { term: Term(1), reason: Reason::Exited, at: bench.now.boot });
    bench.prove();
    let writes = bench.writes();
    assert_eq!(writes.last(), Some(&Slot(0)));
    for _ in 0..5 {
        bench.answer(lost());
        while bench.awaited.is_none() {
            bench.run(SPREAD);
        }
    }
    assert!(bench.sent.iter().rev().take(5).all(|(_, slot, _)| *slot == Slot(0)), "{:?}", bench.sent);
    assert!(bench.writes().iter().all(|slot| *slot == Slot(0)), "{writes:?}");
    bench.run_answered(SPREAD * 2);
    assert_eq!((bench.holder(0), bench.terms()), (String::new(), vec![(Slot(0), Term(1))]));
    bench.run_answered(plus(15));
    assert_eq!(bench.terms().last().map(|(_, term)| *term), Some(Term(2)));
}

#[test]
fn what_is_seen_of_one_slot_says_nothing_of_another() {
    // A holder that renews keeps no other slot from expiring.
    let mut bench = Bench::start(one_of(2, "me_0"), &[Some(held("other_1", 15)), Some(held("other_2", 15))]);
    let mut second = 0;
    while bench.now.boot.since(START) < plus(15) - SPREAD {
        second += 1;
        bench.run(Duration::from_millis(100));
        bench.see(0, |object| {
            object["spec"]["renewTime"] = json!(format!("2026-01-01T00:{:02}:{:02}.000000Z", second / 60, second % 60))
        });
        assert_eq!(bench.writes(), []);
    }
    bench.run(SPREAD * 3);
    assert_eq!(bench.terms(), [(Slot(1), Term(1))]);

    // A holder that dies lets no other slot be taken.
    let mut bench = Bench::start(one_of(2, "me_0"), &[Some(held("other_1", 15)), Some(held("other_2", 30))]);
    bench.answers = false;
    bench.run(Duration::ZERO);
    while bench.writes().is_empty() {
        if bench.awaited.is_some() {
            bench.serve();
        } else {
            bench.run(SPREAD);
        }
    }
    bench.put(0, held("other_3", 3600));
    bench.answers = true;
    bench.run(plus(30) - bench.now.boot.since(START) - TICK);
    assert_eq!(bench.writes(), [Slot(0)]);
    bench.run(SPREAD + TICK);
    assert_eq!(bench.writes()[..2], [Slot(0), Slot(1)]);
}

#[test]
fn what_was_seen_of_a_slot_is_handed_to_the_next_elector_for_that_slot() {
    let mut bench = Bench::start(one_of(2, "me_0"), &[others(), Some(held("other_2", 40))]);
    bench.run(seconds(1));
    let saw = |slot: u8| {
        bench.told.iter().rev().find_map(|message| match message {
            ToInit::Observed { slot: of, last_seen } if *of == Slot(slot) => Some(last_seen.clone()),
            _ => None,
        })
    };
    assert_eq!((saw(0).map(|seen| seen.duration), saw(1).map(|seen| seen.duration)), (Some(seconds(3600)), Some(seconds(40))));

    let waits = LastSeen { duration: seconds(15), held: None, named: false, not_before: START + seconds(100) };
    let initial = InitialState { last_seen: [(Slot(1), waits)].into(), ..one_who_begins_at(1, 2) };
    let mut bench = Bench::start(initial.clone(), &[Some(mark()), Some(mark())]);
    bench.run(SPREAD);
    assert_eq!(bench.terms(), [(Slot(0), Term(1))]);
    let mut bench = Bench::start(initial, &[others(), Some(mark())]);
    bench.run(seconds(100) - TICK);
    assert_eq!(bench.writes(), []);
    bench.run(SPREAD + TICK);
    assert_eq!(bench.terms(), [(Slot(1), Term(1))]);
}

/// A lock that waits for this many seconds.
fn waits(limit: u64, slots: u8) -> InitialState {
    let preset = Preset::Lock { wait_limit: Some(WaitLimit { limit: seconds(limit), code: 75 }) };
    InitialState { preset, began: START, ..one_of(slots, "me_0") }
}

fn given_up(bench: &Bench) -> Vec<u8> {
    let code = |message: &ToInit| match message {
        ToInit::GaveUp { code, .. } => Some(*code),
        _ => None,
    };
    bench.told.iter().filter_map(code).collect()
}

/// Every request of this span is lost.
fn lose(bench: &mut Bench, span: Duration) {
    let until = bench.now.boot + span;
    while bench.now.boot < until {
        bench.run(Duration::from_millis(100));
        if bench.awaited.is_some() {
            bench.answer(lost());
        }
    }
}

/// Held, and renewed at the bench's start by the wall clock.
fn live(holder: &str) -> Value {
    let mut spec = held(holder, 15);
    spec["renewTime"] = json!("2027-01-15T08:00:00.000000Z");
    spec
}

#[test]
fn a_bound_is_over_once_it_is_over_for_every_slot() {
    // Both holders are alive.
    let mut bench = Bench::start(waits(0, 2), &[Some(live("other_1")), Some(live("other_2"))]);
    bench.run(seconds(60));
    assert_eq!((given_up(&bench), bench.told.last()), (vec![75], Some(&ToInit::Done)));
    bench.see(0, |object| object["spec"] = mark());
    assert_eq!(bench.dones(), 1);

    // One slot looks abandoned: it is waited for, and taken.
    let mut bench = Bench::start(waits(0, 2), &[Some(live("other_1")), Some(held("other_2", 15))]);
    bench.run(plus(15) - TICK);
    assert_eq!((given_up(&bench), bench.writes()), (vec![], vec![]));
    bench.run(SPREAD + TICK);
    assert_eq!((given_up(&bench), bench.terms()), (vec![], vec![(Slot(1), Term(1))]));

    // Its holder renews it: there is nothing left to wait for.
    let mut bench = Bench::start(waits(0, 2), &[Some(live("other_1")), Some(held("other_2", 15))]);
    bench.run(seconds(5));
    bench.see(1, |object| object["spec"] = live("other_2"));
    bench.run(TICK);
    assert_eq!((given_up(&bench), bench.told.last()), (vec![75], Some(&ToInit::Done)));

    // One slot is free.
    let mut bench = Bench::start(waits(0, 2), &[Some(live("other_1")), Some(mark())]);
    bench.run(SPREAD);
    assert_eq!((given_up(&bench), bench.terms()), (vec![], vec![(Slot(1), Term(1))]));
}

#[test]
fn a_bound_is_over_for_every_slot_with_that_of_the_slot_whose_write_is_not_answered() {
    let mut bench = Bench::start(waits(10, 2), &[Some(mark()), Some(live("other_2"))]);
    bench.run_until_a_write();
    bench.answers = false;
    let (_, _, write) = bench.awaited.clone().unwrap();
    lose(&mut bench, seconds(24));
    assert!(given_up(&bench).is_empty());
    lose(&mut bench, seconds(4));
    assert_eq!(given_up(&bench), vec![69]);

    // Init ends, and the server comes back: the write was stored.
    bench.tell(ToElector::Shutdown);
    bench.apply(Slot(0), &write);
    bench.run_answered(seconds(4));

    assert!(bench.is_stopping(), "a term that ends as it begins: {:?}", bench.told);
    bench.prove_then(Then::Exit);
    bench.run(seconds(1));
    assert_eq!((bench.holder(0), bench.dones()), (String::new(), 1));
}

#[test]
fn nothing_is_written_beside_a_read() {
    let mut bench = Bench::start(one_of(3, "me_0"), &[]);
    bench.answers = false;
    // The list, and the read of the first slot that is not in it.
    bench.serve();
    bench.serve();
    let sent = bench.sent.len();
    bench.run(SPREAD);

    bench.tell(ToElector::Heartbeat);

    assert_eq!((bench.sent.len(), bench.writes()), (sent, vec![]), "the second one is still read");
    bench.serve();
    assert_eq!(bench.writes().len(), 1);
}

#[test]
fn what_is_free_is_taken_although_the_reads_of_many_slots_never_end() {
    let mut bench = Bench::start(one_of(32, "me_0"), &[]);
    bench.answers = false;
    let until = START + seconds(3) + 32 * Duration::from_millis(100);
    while bench.writes().is_empty() && bench.now.boot < until {
        bench.run(Duration::from_millis(100));
        if bench.awaited.is_some() {
            bench.serve();
        }
    }
    assert_eq!(bench.writes().len(), 1, "{:?}", bench.sent.len());
}

#[test]
fn a_slot_beyond_those_of_this_replica_is_left_alone_and_spoken_of_once() {
    let mut bench = Bench::start(one_of(2, "me_0"), &[others(), others(), Some(mark())]);
    let spoken = |bench: &Bench| {
        bench.events.iter().filter(|event| matches!(event, Event::Odd { message } if message.contains("beyond the 2"))).count()
    };
    bench.run(seconds(60));
    assert_eq!(spoken(&bench), 0);
    bench.see(2, |object| object["spec"] = held("other_3", 15));
    bench.run(seconds(300));
    bench.see(2, |object| object["spec"] = mark());
    bench.run(seconds(300));
    assert_eq!((spoken(&bench), bench.writes(), bench.gets()), (1, vec![], vec![]));
}

#[test]
fn a_list_that_is_forbidden_is_made_up_for_by_reads_of_each_slot_in_turn() {
    let mut bench = Bench::start(one_of(3, "me_0"), &[others(), others(), others()]);
    bench.answer(forbidden());
    bench.run(seconds(30));
    let gets = bench.gets();
    assert!((5..=11).contains(&gets.len()), "{gets:?}");
    assert!(gets.windows(3).all(|three| (0..3).all(|slot| three.contains(&Slot(slot)))), "{gets:?}");
    bench.see(2, |object| object["spec"] = mark());
    bench.run(SPREAD);
    assert_eq!(bench.terms(), [(Slot(2), Term(1))]);
}

#[test]
fn slots_that_are_absent_and_may_not_be_created_cost_no_more_reads_than_one() {
    let mut bench = Bench::start(one_of(64, "me_0"), &vec![None; 64]);
    let run = |bench: &mut Bench, span: Duration| {
        let until = bench.now.boot + span;
        bench.answers = false;
        while bench.now.boot < until {
            match &bench.awaited {
                Some((_, _, Request::Create(_))) => bench.answer(forbidden()),
                Some(_) => bench.serve(),
                None => bench.run(Duration::from_millis(10)),
            }
        }
    };
    run(&mut bench, seconds(300));
    assert!((0..64).all(|slot| bench.gets().contains(&Slot(slot))), "each is looked for once");
    let before = (bench.gets().len(), bench.sent.len());
    run(&mut bench, seconds(60));
    let (gets, all) = (bench.gets().len() - before.0, bench.sent.len() - before.1);
    assert!(gets <= 25 && all <= 50, "{gets} reads by name, and {all} requests");

    // What is there is seen all the same: at once, or in its turn if it has no label.
    bench.put(63, others().expect("a spec"));
    bench.put(62, mark());
    bench.edit(62, |object| object["metadata"]["labels"] = json!({}));
    run(&mut bench, seconds(64 * 4));
    assert_eq!(bench.terms(), [(Slot(62), Term(1))]);
}

#[test]
fn a_slot_without_its_label_that_was_absent_is_read_once_a_creation_finds_it() {
    let mut bench = Bench::start(one_of(8, "me_0"), &vec![Some(held("other_1", 3600)); 8]);
    bench.run(seconds(1));
    bench.delete(5);
    bench.answers = false;
    for _ in 0..1000 {
        match &bench.awaited {
            Some((_, _, Request::Create(_))) => break,
            Some(_) => bench.serve(),
            None => bench.run(SPREAD / 10),
        }
    }
    bench.put(5, mark());
    bench.edit(5, |object| object["metadata"]["labels"] = json!({}));
    let before = bench.gets().len();
    bench.run_answered(seconds(1));
    assert_eq!(bench.gets()[before..], [Slot(5)]);
}

#[test]
fn a_list_that_fails_is_no_answer_about_any_slot() {
    let mut bench = Bench::start(one_of(2, "me_0"), &[None, None]);
    bench.answers = false;
    for _ in 0..10 {
        bench.answer(lost());
        while bench.awaited.is_none() {
            bench.run(SPREAD);
        }
        assert!(matches!(bench.awaited, Some((_, _, Request::List))), "{:?}", bench.awaited);
    }
    bench.answer(Answer::NotFound);
    bench.run(seconds(5));
    assert_eq!((bench.writes(), bench.gets()), (vec![], vec![]));
}

#[test]
fn one_list_and_one_watch_serve_all_slots() {
    let mut bench = Bench::start(one_of(3, "me_0"), &[others(), others(), others()]);
    bench.run(seconds(30));
    assert!((9..=11).contains(&bench.sent.len()) && bench.gets().is_empty(), "{:?}", bench.sent);
    // The watch starts at the version of the list, even if each Lease is older.
    assert_eq!(bench.watches, [Some(bench.register.version().to_string())]);
    assert_eq!(bench.events.iter().filter(|event| **event == Event::Ready).count(), 1);
}

#[test]
fn a_watch_whose_version_is_gone_begins_again_without_one_even_where_no_list_is() {
    let mut bench = Bench::start(one_of(2, "me_0"), &[others(), others()]);
    bench.answer(forbidden());
    bench.run(seconds(20));
    let longer = |object: &mut Value| object["spec"]["leaseDurationSeconds"] = json!(3601);
    bench.see(0, longer);
    (0..2).for_each(|slot| bench.edit(slot, longer));
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
    let mut bench = Bench::start(one_of(2, "me_0"), &[others(), others()]);
    bench.run(seconds(2));
    bench.watch(Watched::Bookmark("1012".into()));
    bench.watch(Watched::Bookmark("1009".into()));
    bench.run(seconds(60));
    bench.watch(Watched::Ended(WatchEnd::Closed));

    bench.run(seconds(1));

    assert_eq!(bench.watches.last(), Some(&Some("1012".into())));
}

#[test]
fn a_shutdown_ends_every_slot_and_is_done_once_the_one_that_is_held_is_given_back() {
    let mut bench = Bench::start(one_of(2, "me_0"), &[others(), others()]);
    bench.run(seconds(1));
    bench.tell(ToElector::Shutdown);
    assert_eq!((bench.dones(), bench.told.last()), (1, Some(&ToInit::Done)));

    let mut bench = Bench::start(one_of(2, "me_0"), &[others(), Some(mark())]);
    bench.run(seconds(1));
    bench.tell(ToElector::Shutdown);
    bench.tell(ToElector::Stopping { term: Term(1), reason: Reason::Signal, at: bench.now.boot });
    bench.run(seconds(1));
    assert_eq!(bench.dones(), 0);
    bench.prove_then(Then::Exit);
    bench.run(seconds(1));
    assert_eq!((bench.holder(1), bench.dones(), bench.told.last()), (String::new(), 1, Some(&ToInit::Done)));
}

#[test]
fn the_end_of_the_workload_ends_the_wait_for_the_other_slots_too() {
    let mut bench = Bench::start(one_of(2, "me_0"), &[others(), Some(mark())]);
    bench.run(seconds(1));
    bench.see(0, |object| object["spec"] = mark());
    bench.tell(ToElector::Stopping { term: Term(1), reason: Reason::Signal, at: bench.now.boot });

    bench.prove_then(Then::Exit);
    bench.run(seconds(1));

    assert_eq!((bench.terms().len(), bench.dones(), bench.told.last()), (1, 1, Some(&ToInit::Done)));
}

#[test]
fn who_gives_a_slot_up_leaves_the_others_to_the_others_for_one_duration_too() {
    let mut bench = Bench::start(one_who_begins_at(0, 2), &[Some(mark()), Some(mark())]);
    bench.run(SPREAD);
    let writes = |bench: &Bench| bench.writes().into_iter().filter(|slot| *slot == Slot(1)).count();
    bench.tell(ToElector::Stopping { term: Term(1), reason: Reason::Exited, at: bench.now.boot });

    bench.prove();
    let ended = bench.now.boot;
    bench.run(plus(15) - TICK);

    assert_eq!(writes(&bench), 0, "{:?}", bench.writes());
    bench.run(seconds(1));
    assert_eq!(bench.terms().len(), 2, "{:?} after", bench.now.boot.since(ended));
}

#[test]
fn who_fails_in_a_slot_leaves_the_others_alone_although_somebody_led_there_meanwhile() {
    let mut bench = Bench::start(one_who_begins_at(0, 2), &[Some(mark()), others()]);
    bench.run(seconds(1));
    bench.tell(ToElector::Stopping { term: Term(1), reason: Reason::NotLive, at: bench.now.boot });
    bench.prove();
    bench.run(Duration::ZERO);
    bench.put(0, held("other_2", 3600));
    bench.run(seconds(2));
    bench.see(1, |object| object["spec"] = mark());
    let given_up = bench.terms();
    bench.run(seconds(12));
    assert_eq!(bench.terms(), given_up, "within D");
    bench.run(seconds(2));
    assert_eq!(bench.terms().last(), Some(&(Slot(1), Term(2))));
}

#[test]
fn a_held_slot_that_is_gone_is_looked_at_although_a_renewal_was_stored_before() {
    let mut bench = Bench::start(one_who_begins_at(1, 2), &[others(), Some(mark())]);
    bench.run(seconds(1));
    bench.answers = false;
    bench.run(seconds(3));
    let (slot, _, request) = bench.awaited.clone().expect("a renewal");
    let answer = bench.apply(slot, &request);
    bench.delete(1);

    bench.answer(answer);

    assert!(matches!(bench.awaited, Some((Slot(1), _, Request::Get))), "{:?}", bench.awaited);
}

#[test]
fn lists_that_fail_are_paced_however_many_slots_there_are() {
    for slots in [2, 64] {
        let mut bench = Bench::start(one_of(slots, "me_0"), &vec![others(); slots.into()]);
        bench.run(seconds(10));
        bench.answers = false;
        let (until, before) = (bench.now.boot + seconds(60), bench.sent.len());
        while bench.now.boot < until {
            if bench.awaited.is_some() {
                bench.answer(lost());
            }
            let next = bench.slots.poll_timeout().unwrap_or(until).max(bench.now.boot);
            bench.run(next.since(bench.now.boot).min(seconds(1)));
        }
        let lists = bench.sent.iter().skip(before).filter(|(_, _, request)| *request == Request::List).count();
        assert!((10..40).contains(&lists), "{lists} for {slots} slots");
    }
}

#[test]
fn the_next_elector_goes_on_with_the_term_in_its_slot() {
    let initial = one_who_begins_at(0, 2);
    let mut bench = Bench::start(initial.clone(), &[others(), Some(mark())]);
    bench.run(SPREAD);
    assert_eq!(bench.terms(), [(Slot(1), Term(1))]);
    let resume = bench.resume();
    bench.slots = Slots::new(InitialState { generation: 2, resume, last_term: Term(1), ..initial }, 8, bench.now);
    (bench.awaited, bench.sent) = (None, Vec::new());
    bench.see(0, |object| object["spec"] = mark());
    bench.tell(ToElector::Acknowledged { term: Term(1), serial: 0 });
    bench.run(seconds(60));
    assert!(bench.writes().len() > 10 && bench.writes().iter().all(|slot| *slot == Slot(1)), "{:?}", bench.writes());
    assert!(!bench.is_stopping() && bench.slots.view().leading.is_some_and(|led| led.term == Term(1)));
}
