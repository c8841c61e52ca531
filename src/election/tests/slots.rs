//! Several slots, of which a replica holds one: their turns, and the observations of each.

use std::time::Duration;

use serde_json::{Value, json};

use super::bench::{Bench, Register, START, TICK, held, initial_state, lost, mark, plus, seconds};
use crate::{
    config::{Preset, WaitLimit},
    election::{
        Elector, Event, Request,
        writes::{PAUSED, SLOTS, Sent},
    },
    link::{InitialState, LastSeen, Reason, Term, Then, ToElector, ToInit},
    request::{Answer, Refusal, Watched},
    slot::Slot,
};

mod reads;

/// The longest wait before a write.
const SPREAD: Duration = Duration::from_millis(50);

/// The states of a slot, the best first.
const RANKS: [fn(&mut Value); 3] =
    [|object| object["spec"] = mark(), |object| object["spec"] = held("other_1", 15), |object| object["spec"] = json!({})];

fn others() -> Option<Value> {
    Some(held("other_1", 3600))
}

/// A replica of this name with so many slots.
fn one_of(slots: u8, identity: &str) -> InitialState {
    let mut initial = InitialState { identity: identity.into(), ..initial_state() };
    initial.config.lease.slots = slots;
    initial
}

/// A replica for which this slot wins ties.
fn one_who_begins_at(slot: u8, slots: u8) -> InitialState {
    let begins = |identity: &String| {
        let mut bench = Bench::start(one_of(slots, identity), Register::of(&vec![Some(mark()); slots.into()]));
        bench.run_until_a_write();
        bench.written() == [Slot(slot)]
    };
    let identity = (0..100).map(|number| format!("me_{number}")).find(begins).expect("somebody begins there");
    one_of(slots, &identity)
}

fn forbidden() -> Answer {
    Answer::Refused { refusal: Refusal::Forbidden, message: "403".into() }
}

impl Bench {
    /// Stores a new Lease with this spec in place of any other.
    fn put(&mut self, slot: u8, spec: Value) {
        self.register.put_in(Slot(slot), spec);
    }

    fn edit_in(&mut self, slot: u8, edit: impl FnOnce(&mut Value)) {
        self.register.edit_in(Slot(slot), edit);
    }

    /// The same, and lets the watch deliver that.
    fn see_in(&mut self, slot: u8, edit: impl FnOnce(&mut Value)) {
        self.edit_in(slot, edit);
        self.watch(Watched::Changed(self.register.object_of(Slot(slot)).expect("there is a Lease").into()));
    }

    fn holder(&self, slot: u8) -> String {
        let object = self.register.object_of(Slot(slot)).expect("there is a Lease");
        object["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }

    /// Takes the label of the Lease away. The watch calls it deleted.
    fn unlabel(&mut self, slot: u8) {
        let unlabel = |object: &mut Value| object["metadata"]["labels"] = json!({});
        let gone = self.register.vanish(Slot(slot), |register| register.edit_in(Slot(slot), unlabel));
        self.watch(gone);
    }

    /// Deletes the Lease as another client.
    fn delete(&mut self, slot: u8) {
        let gone = self.register.vanish(Slot(slot), |register| register.remove(Slot(slot)));
        self.watch(gone);
    }

    /// Returns the request that is awaited, and its Lease.
    fn awaits(&self) -> Option<(Slot, Request)> {
        self.awaited.as_ref().map(|(_, request)| (self.slot(), request.clone()))
    }

    /// Returns the slots that were written, in order.
    fn written(&self) -> Vec<Slot> {
        let is_write = |request: &Request| !matches!(request, Request::Get | Request::List);
        self.sent.iter().zip(&self.slots).filter(|((_, request), _)| is_write(request)).map(|(_, slot)| *slot).collect()
    }

    /// Returns the slots that were read by name, in order.
    fn read(&self) -> Vec<Slot> {
        self.sent.iter().zip(&self.slots).filter(|((_, request), _)| *request == Request::Get).map(|(_, slot)| *slot).collect()
    }

    /// Returns the slot and the number of each term that init was told of.
    fn terms(&self) -> Vec<(Slot, Term)> {
        let lead = |message: &ToInit| match message {
            ToInit::Lead { term, info, .. } => Some((info.slot, *term)),
            _ => None,
        };
        self.told.iter().filter_map(lead).collect()
    }

    fn dones(&self) -> usize {
        self.told.iter().filter(|message| **message == ToInit::Done).count()
    }

    fn is_stopping(&self) -> bool {
        self.step_down().is_some()
    }
}

#[test]
fn what_was_given_back_is_taken_before_what_expired_and_that_before_what_nobody_had() {
    for (better, worse) in [(0, 1), (0, 2), (1, 2)] {
        let paused = |object: &mut Value| object["metadata"]["annotations"][PAUSED] = json!("true");
        let mut bench = Bench::start(one_who_begins_at(0, 3), Register::of(&[others(), others(), Some(mark())]));
        (0..2).for_each(|slot| bench.edit_in(slot, paused));
        bench.run(seconds(1));
        assert_eq!(bench.terms(), [(Slot(2), Term(1))]);
        for (slot, rank) in [(0, worse), (1, better)] {
            bench.see_in(slot, |object| {
                object["metadata"]["annotations"] = json!({});
                RANKS[rank](object);
            });
        }
        bench.run(plus(15));
        let before = bench.written();
        bench.see_in(2, |object| object["spec"] = held("other_1", 3600));
        bench.prove(Then::Follow);
        bench.run_until_a_write();
        assert_eq!(bench.written()[before.len()..], [Slot(1)], "{better} before {worse}");
    }
}

#[test]
fn ties_begin_at_another_slot_for_another_replica_and_go_round() {
    for first in 0..3 {
        let mut bench = Bench::start(one_who_begins_at(first, 3), Register::of(&vec![Some(mark()); 3]));
        bench.answers = false;
        bench.run(SPREAD);
        for slot in [first, (first + 1) % 3, (first + 2) % 3] {
            while bench.written().last() != Some(&Slot(slot)) {
                bench.serve();
                bench.run(SPREAD);
            }
            assert!(bench.written().ends_with(&[Slot(slot)]), "{:?}", bench.written());
            bench.put(slot, held("other_1", 3600));
        }
        bench.run(Duration::ZERO);
        let expected: Vec<Slot> = (0..3).map(|next| Slot((first + next) % 3)).collect();
        assert_eq!(bench.written(), expected);
    }
}

#[test]
fn a_write_comes_within_a_moment_of_what_allows_it_and_not_where_the_slot_is_gone_by_then() {
    let mut delays = Vec::new();
    for number in 0..10 {
        let mut bench = Bench::start(one_of(2, &format!("me_{number}")), Register::of(&[others(), others()]));
        bench.run(seconds(1));
        let seen = bench.now.boot;
        bench.see_in(0, |object| object["spec"] = mark());
        assert_eq!(bench.written(), []);
        bench.answers = false;
        bench.run(SPREAD);
        assert_eq!(bench.written(), [Slot(0)]);
        delays.push(bench.sent.last().expect("it was sent").0.since(seen));
    }
    delays.sort();
    assert!(delays[9] - delays[0] > SPREAD / 4, "{delays:?}");

    let mut bench = Bench::start(one_of(2, "me_0"), Register::of(&[others(), others()]));
    bench.run(seconds(1));
    bench.see_in(0, |object| object["spec"] = mark());
    bench.see_in(0, |object| object["spec"] = held("other_2", 3600));
    bench.run(seconds(60));
    assert_eq!(bench.written(), []);
}

#[test]
fn while_a_write_is_not_answered_nothing_else_is_asked() {
    for spec in [mark(), json!({})] {
        let mut bench = Bench::start(one_of(3, "me_0"), Register::of(&vec![Some(spec); 3]));
        bench.run_until_a_write();
        bench.answers = false;
        let sent = bench.sent.len();
        bench.run(seconds(60));
        bench.see_in(1, |object| object["spec"] = mark());
        bench.run(seconds(60));
        assert_eq!(bench.sent.len(), sent);
    }
}

#[test]
fn what_became_of_a_write_is_read_from_that_slot_before_anything_else_is_written() {
    for is_stored in [false, true] {
        let mut bench = Bench::start(one_who_begins_at(1, 3), Register::of(&vec![Some(mark()); 3]));
        bench.run_until_a_write();
        let (slot, write) = bench.awaits().expect("it is awaited");
        if is_stored {
            bench.register.apply_to(slot, &write);
        }
        let sent = bench.sent.len();
        bench.answers = false;
        for _ in 0..20 {
            bench.answer(lost());
            while bench.awaited.is_none() {
                bench.run(SPREAD);
            }
        }
        assert!(bench.slots[sent..].iter().all(|slot| *slot == Slot(1)), "{:?}", bench.slots);
        assert!(bench.sent[sent..].iter().all(|(_, request)| *request == Request::Get), "{:?}", bench.sent);

        bench.run_answered(seconds(1));
        // A write that was stored is proved after S, and is written again before it begins a term. A write that was not stored is
        // written again too.
        assert_eq!((bench.written(), bench.read()), (vec![Slot(1); 2], vec![Slot(1); 20]));
        assert_eq!(bench.terms(), [(Slot(1), Term(1))]);
    }
}

#[test]
fn whoever_comes_second_takes_the_next_slot() {
    let mut bench = Bench::start(one_who_begins_at(0, 2), Register::of(&[Some(mark()), Some(mark())]));
    bench.run_until_a_write();
    bench.put(0, held("other_1", 3600));
    bench.run(SPREAD * 2);
    assert_eq!((bench.written(), bench.read()), (vec![Slot(0), Slot(1)], vec![Slot(0)]));
    assert_eq!(bench.terms(), [(Slot(1), Term(1))]);
}

#[test]
fn a_slot_that_is_missing_from_a_list_is_absent_only_where_a_read_of_it_says_so() {
    let mut bench = Bench::start(one_of(2, "me_0"), Register::of(&[others(), others()]));
    bench.edit_in(1, |object| object["metadata"]["labels"] = json!({}));
    bench.run(seconds(60));
    assert!(bench.read().len() > 1 && bench.read().iter().all(|slot| *slot == Slot(1)), "{:?}", bench.sent);
    assert_eq!((bench.written(), bench.terms()), (vec![], vec![]));

    let mut bench = Bench::start(one_of(2, "me_0"), Register::of(&[others(), None]));
    bench.answers = false;
    bench.run(seconds(1));
    bench.serve();
    bench.run(seconds(1));
    assert_eq!((bench.written(), bench.read()), (vec![], vec![Slot(1)]));
    bench.serve();
    bench.run(SPREAD);
    let Some((Slot(1), Request::Write(write))) = &bench.awaits() else { panic!("no write: {:?}", bench.awaited) };
    let Sent::Create(object) = write.sent() else { panic!("no creation: {write:?}") };
    assert_eq!((&object["metadata"]["name"], &object["metadata"]["labels"][SLOTS]), (&json!("lease-slot-1"), &json!("lease")));
}

#[test]
fn a_held_slot_whose_label_is_taken_away_is_not_lost_and_one_that_is_deleted_is() {
    let mut bench = Bench::start(one_who_begins_at(1, 2), Register::of(&[others(), Some(mark())]));
    bench.run(seconds(1));
    assert_eq!(bench.terms(), [(Slot(1), Term(1))]);
    bench.unlabel(1);
    assert!(!bench.is_stopping() && bench.awaits() == Some((Slot(1), Request::Get)), "{:?}", bench.awaited);
    bench.run(seconds(60));
    assert!(!bench.is_stopping() && bench.terms().len() == 1, "{:?}", bench.told);

    bench.delete(1);
    bench.run(TICK);
    assert!(bench.is_stopping());
}

#[test]
fn the_slot_of_another_whose_label_is_taken_away_is_not_free_and_has_not_changed() {
    let mut bench = Bench::start(one_of(2, "me_0"), Register::of(&[others(), Some(held("other_2", 15))]));
    bench.run(seconds(5));
    let read = bench.read().len();
    bench.unlabel(1);
    bench.run(TICK);
    assert_eq!(bench.read()[read..], [Slot(1)]);
    bench.run(plus(15) - seconds(5) - TICK * 2);
    assert_eq!(bench.written(), []);
    bench.run(SPREAD + TICK);
    assert_eq!(bench.terms(), [(Slot(1), Term(1))], "{:?}", bench.sent);
}

#[test]
fn while_a_term_is_held_or_its_end_not_proved_nothing_is_written_elsewhere() {
    let mut bench = Bench::start(one_who_begins_at(0, 3), Register::of(&[Some(mark()), others(), None]));
    bench.run(SPREAD);
    assert_eq!(bench.terms(), [(Slot(0), Term(1))]);
    bench.see_in(1, |object| object["spec"] = mark());
    bench.run(seconds(60));
    bench.see_in(0, |object| object["spec"] = held("other_1", 3600));
    assert!(bench.is_stopping());
    bench.run(seconds(60));
    assert!(bench.written().iter().all(|slot| *slot == Slot(0)), "{:?}", bench.written());

    bench.prove(Then::Follow);
    bench.run(seconds(1));
    assert_eq!(bench.terms(), [(Slot(0), Term(1)), (Slot(1), Term(2))], "terms rise over all slots");
}

#[test]
fn a_term_that_is_being_given_back_is_over_before_the_next_one() {
    let mut bench = Bench::start(one_who_begins_at(0, 2), Register::of(&[Some(mark()), others()]));
    bench.run(SPREAD);
    bench.see_in(1, |object| object["spec"] = mark());
    bench.answers = false;
    bench.tell(ToElector::Stopping { term: Term(1), reason: Reason::Exited, at: bench.now.boot });
    bench.prove(Then::Follow);
    let writes = bench.written();
    assert_eq!(writes.last(), Some(&Slot(0)));
    for _ in 0..5 {
        bench.answer(lost());
        while bench.awaited.is_none() {
            bench.run(SPREAD);
        }
    }
    assert!(bench.slots.iter().rev().take(5).all(|slot| *slot == Slot(0)), "{:?}", bench.slots);
    assert!(bench.written().iter().all(|slot| *slot == Slot(0)), "{writes:?}");
    bench.run_answered(SPREAD * 2);
    assert_eq!((bench.holder(0), bench.terms()), (String::new(), vec![(Slot(0), Term(1))]));
    bench.run_answered(plus(15));
    assert_eq!(bench.terms().last().map(|(_, term)| *term), Some(Term(2)));
}

#[test]
fn what_is_seen_of_one_slot_says_nothing_of_another() {
    // A holder that renews keeps no other slot from expiring.
    let mut bench = Bench::start(one_of(2, "me_0"), Register::of(&[Some(held("other_1", 15)), Some(held("other_2", 15))]));
    let mut second = 0;
    while bench.now.boot.since(START) < plus(15) - SPREAD {
        second += 1;
        bench.run(Duration::from_millis(100));
        bench.see_in(0, |object| {
            object["spec"]["renewTime"] = json!(format!("2026-01-01T00:{:02}:{:02}.000000Z", second / 60, second % 60))
        });
        assert_eq!(bench.written(), []);
    }
    bench.run(SPREAD * 3);
    assert_eq!(bench.terms(), [(Slot(1), Term(1))]);

    // A holder that dies lets no other slot be taken.
    let mut bench = Bench::start(one_of(2, "me_0"), Register::of(&[Some(held("other_1", 15)), Some(held("other_2", 30))]));
    bench.answers = false;
    bench.run(Duration::ZERO);
    while bench.written().is_empty() {
        if bench.awaited.is_some() {
            bench.serve();
        } else {
            bench.run(SPREAD);
        }
    }
    bench.put(0, held("other_3", 3600));
    bench.answers = true;
    bench.run(plus(30) - bench.now.boot.since(START) - TICK);
    assert_eq!(bench.written(), [Slot(0)]);
    bench.run(SPREAD + TICK);
    assert_eq!(bench.written()[..2], [Slot(0), Slot(1)]);
}

#[test]
fn what_was_seen_of_a_slot_is_handed_to_the_next_elector_for_that_slot() {
    let mut bench = Bench::start(one_of(2, "me_0"), Register::of(&[others(), Some(held("other_2", 40))]));
    bench.run(seconds(1));
    let saw = |slot: u8| bench.saw.iter().rev().find(|(of, _)| *of == Slot(slot)).map(|(_, last_seen)| last_seen.clone());
    assert_eq!((saw(0).map(|seen| seen.duration), saw(1).map(|seen| seen.duration)), (Some(seconds(3600)), Some(seconds(40))));

    let waits = LastSeen { duration: seconds(15), held: None, named: false, not_before: START + seconds(100) };
    let initial = InitialState { last_seen: [(Slot(1), waits)].into(), ..one_who_begins_at(1, 2) };
    let mut bench = Bench::start(initial.clone(), Register::of(&[Some(mark()), Some(mark())]));
    bench.run(SPREAD);
    assert_eq!(bench.terms(), [(Slot(0), Term(1))]);
    let mut bench = Bench::start(initial, Register::of(&[others(), Some(mark())]));
    bench.run(seconds(100) - TICK);
    assert_eq!(bench.written(), []);
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
    let mut bench = Bench::start(waits(0, 2), Register::of(&[Some(live("other_1")), Some(live("other_2"))]));
    bench.run(seconds(60));
    assert_eq!((given_up(&bench), bench.told.last()), (vec![75], Some(&ToInit::Done)));
    bench.see_in(0, |object| object["spec"] = mark());
    assert_eq!(bench.dones(), 1);

    // One slot looks abandoned: it is waited for, and taken.
    let mut bench = Bench::start(waits(0, 2), Register::of(&[Some(live("other_1")), Some(held("other_2", 15))]));
    bench.run(plus(15) - TICK);
    assert_eq!((given_up(&bench), bench.written()), (vec![], vec![]));
    bench.run(SPREAD + TICK);
    assert_eq!((given_up(&bench), bench.terms()), (vec![], vec![(Slot(1), Term(1))]));

    // Its holder renews it: there is nothing left to wait for.
    let mut bench = Bench::start(waits(0, 2), Register::of(&[Some(live("other_1")), Some(held("other_2", 15))]));
    bench.run(seconds(5));
    bench.see_in(1, |object| object["spec"] = live("other_2"));
    bench.run(TICK);
    assert_eq!((given_up(&bench), bench.told.last()), (vec![75], Some(&ToInit::Done)));

    // One slot is free.
    let mut bench = Bench::start(waits(0, 2), Register::of(&[Some(live("other_1")), Some(mark())]));
    bench.run(SPREAD);
    assert_eq!((given_up(&bench), bench.terms()), (vec![], vec![(Slot(1), Term(1))]));
}

#[test]
fn a_bound_is_over_for_every_slot_with_that_of_the_slot_whose_write_is_not_answered() {
    let mut bench = Bench::start(waits(10, 2), Register::of(&[Some(mark()), Some(live("other_2"))]));
    bench.run_until_a_write();
    bench.answers = false;
    let (_, write) = bench.awaits().unwrap();
    lose(&mut bench, seconds(24));
    assert!(given_up(&bench).is_empty());
    lose(&mut bench, seconds(4));
    assert_eq!(given_up(&bench), vec![69]);

    // Init ends, and the server comes back: the write was stored.
    bench.tell(ToElector::Shutdown);
    bench.register.apply_to(Slot(0), &write);
    bench.run_answered(seconds(4));

    assert!(bench.is_stopping(), "a term that ends as it begins: {:?}", bench.told);
    bench.prove(Then::Exit);
    bench.run(seconds(1));
    assert_eq!((bench.holder(0), bench.dones()), (String::new(), 1));
}

#[test]
fn nothing_is_written_beside_a_read() {
    let mut bench = Bench::start(one_of(3, "me_0"), Register::of(&[]));
    bench.answers = false;
    // The list, and the read of the first slot that is not in it.
    bench.serve();
    bench.serve();
    let sent = bench.sent.len();
    bench.run(SPREAD);

    bench.tell(ToElector::Heartbeat);

    assert_eq!((bench.sent.len(), bench.written()), (sent, vec![]), "the second one is still read");
    bench.serve();
    assert_eq!(bench.written().len(), 1);
}

#[test]
fn what_is_free_is_taken_although_the_reads_of_many_slots_never_end() {
    let mut bench = Bench::start(one_of(32, "me_0"), Register::of(&[]));
    bench.answers = false;
    let until = START + seconds(3) + 32 * Duration::from_millis(100);
    while bench.written().is_empty() && bench.now.boot < until {
        bench.run(Duration::from_millis(100));
        if bench.awaited.is_some() {
            bench.serve();
        }
    }
    assert_eq!(bench.written().len(), 1, "{:?}", bench.sent.len());
}

#[test]
fn a_slot_beyond_those_of_this_replica_is_left_alone_and_spoken_of_once() {
    let mut bench = Bench::start(one_of(2, "me_0"), Register::of(&[others(), others(), Some(mark())]));
    let spoken = |bench: &Bench| {
        bench.events.iter().filter(|event| matches!(event, Event::Odd { message } if message.contains("beyond the 2"))).count()
    };
    bench.run(seconds(60));
    assert_eq!(spoken(&bench), 0);
    bench.see_in(2, |object| object["spec"] = held("other_3", 15));
    bench.run(seconds(300));
    bench.see_in(2, |object| object["spec"] = mark());
    bench.run(seconds(300));
    assert_eq!((spoken(&bench), bench.written(), bench.read()), (1, vec![], vec![]));
}

#[test]
fn a_shutdown_ends_every_slot_and_is_done_once_the_one_that_is_held_is_given_back() {
    let mut bench = Bench::start(one_of(2, "me_0"), Register::of(&[others(), others()]));
    bench.run(seconds(1));
    bench.tell(ToElector::Shutdown);
    assert_eq!((bench.dones(), bench.told.last()), (1, Some(&ToInit::Done)));

    let mut bench = Bench::start(one_of(2, "me_0"), Register::of(&[others(), Some(mark())]));
    bench.run(seconds(1));
    bench.tell(ToElector::Shutdown);
    bench.tell(ToElector::Stopping { term: Term(1), reason: Reason::Signal, at: bench.now.boot });
    bench.run(seconds(1));
    assert_eq!(bench.dones(), 0);
    bench.prove(Then::Exit);
    bench.run(seconds(1));
    assert_eq!((bench.holder(1), bench.dones(), bench.told.last()), (String::new(), 1, Some(&ToInit::Done)));
}

#[test]
fn the_end_of_the_workload_ends_the_wait_for_the_other_slots_too() {
    let mut bench = Bench::start(one_of(2, "me_0"), Register::of(&[others(), Some(mark())]));
    bench.run(seconds(1));
    bench.see_in(0, |object| object["spec"] = mark());
    bench.tell(ToElector::Stopping { term: Term(1), reason: Reason::Signal, at: bench.now.boot });

    bench.prove(Then::Exit);
    bench.run(seconds(1));

    assert_eq!((bench.terms().len(), bench.dones(), bench.told.last()), (1, 1, Some(&ToInit::Done)));
}

#[test]
fn who_gives_a_slot_up_leaves_the_others_to_the_others_for_one_duration_too() {
    let mut bench = Bench::start(one_who_begins_at(0, 2), Register::of(&[Some(mark()), Some(mark())]));
    bench.run(SPREAD);
    let writes = |bench: &Bench| bench.written().into_iter().filter(|slot| *slot == Slot(1)).count();
    bench.tell(ToElector::Stopping { term: Term(1), reason: Reason::Exited, at: bench.now.boot });

    bench.prove(Then::Follow);
    let ended = bench.now.boot;
    bench.run(plus(15) - TICK);

    assert_eq!(writes(&bench), 0, "{:?}", bench.written());
    bench.run(seconds(1));
    assert_eq!(bench.terms().len(), 2, "{:?} after", bench.now.boot.since(ended));
}

#[test]
fn who_fails_in_a_slot_leaves_the_others_alone_although_somebody_led_there_meanwhile() {
    let mut bench = Bench::start(one_who_begins_at(0, 2), Register::of(&[Some(mark()), others()]));
    bench.run(seconds(1));
    bench.tell(ToElector::Stopping { term: Term(1), reason: Reason::NotLive, at: bench.now.boot });
    bench.prove(Then::Follow);
    bench.run(Duration::ZERO);
    bench.put(0, held("other_2", 3600));
    bench.run(seconds(2));
    bench.see_in(1, |object| object["spec"] = mark());
    let given_up = bench.terms();
    bench.run(seconds(12));
    assert_eq!(bench.terms(), given_up, "within D");
    bench.run(seconds(2));
    assert_eq!(bench.terms().last(), Some(&(Slot(1), Term(2))));
}

#[test]
fn a_held_slot_that_is_gone_is_looked_at_although_a_renewal_was_stored_before() {
    let mut bench = Bench::start(one_who_begins_at(1, 2), Register::of(&[others(), Some(mark())]));
    bench.run(seconds(1));
    bench.answers = false;
    bench.run(seconds(3));
    let (slot, request) = bench.awaits().expect("a renewal");
    let answer = bench.register.apply_to(slot, &request);
    bench.delete(1);

    bench.answer(answer);

    assert!(bench.awaits() == Some((Slot(1), Request::Get)), "{:?}", bench.awaited);
}

#[test]
fn the_next_elector_goes_on_with_the_term_in_its_slot() {
    let initial = one_who_begins_at(0, 2);
    let mut bench = Bench::start(initial.clone(), Register::of(&[others(), Some(mark())]));
    bench.run(SPREAD);
    assert_eq!(bench.terms(), [(Slot(1), Term(1))]);
    let resume = Some(bench.resume());
    bench.elector = Elector::new(InitialState { generation: 2, resume, last_term: Term(1), ..initial }, 8, bench.now);
    (bench.awaited, bench.sent) = (None, Vec::new());
    bench.see_in(0, |object| object["spec"] = mark());
    bench.tell(ToElector::Acknowledged { term: Term(1), serial: 0 });
    bench.run(seconds(60));
    assert!(bench.written().len() > 10 && bench.written().iter().all(|slot| *slot == Slot(1)), "{:?}", bench.written());
    assert!(!bench.is_stopping() && bench.elector.view().leading.is_some_and(|led| led.term == Term(1)));
}

#[test]
fn a_write_that_was_lost_before_a_term_in_another_slot_begins_no_term_after_it() {
    let mut bench = Bench::start(one_of(2, "me_0"), Register::of(&[Some(held("other_1", 15)), others()]));
    bench.answers = false;
    let write = loop {
        match bench.awaited.clone() {
            Some((_, write @ Request::Write(_))) => break write,
            Some(_) => bench.serve(),
            None => bench.run(SPREAD),
        }
    };
    bench.answer(lost());
    while bench.awaited.is_none() {
        bench.run(SPREAD);
    }
    assert!(matches!(bench.awaited, Some((_, Request::Get))), "{:?}", bench.awaited);
    bench.see_in(1, |object| object["spec"] = mark());
    bench.serve();
    bench.answers = true;
    bench.run_answered(seconds(1));
    assert_eq!(bench.terms(), [(Slot(1), Term(1))]);

    let stored = bench.register.apply_to(Slot(0), &write);
    assert!(matches!(stored, Answer::Object(_)), "{stored:?}");
    bench.stop(Reason::StepDown, Then::Follow);
    bench.run(seconds(5));
    assert_eq!(bench.terms(), [(Slot(1), Term(1))]);
}
