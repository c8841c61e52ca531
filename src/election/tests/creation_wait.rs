//! A free Lease that nobody released: taken at once, run on later (law 14).

use std::time::Duration;

use serde_json::{Value, json};

use super::bench::{Bench, Register, START, TICK, held, lost, mark, plus, seconds, welcome};
use crate::{
    election::{Answer, Event, Given, Refusal, Request, Watched, writes::PAUSED},
    link::{LastSeen, Reason, Then, ToElector, ToInit, Welcome},
    time::Instant,
};

pub(super) fn not_before(bench: &Bench) -> Option<Instant> {
    bench.told.iter().rev().find_map(|message| match message {
        ToInit::Lead { not_before, .. } => *not_before,
        _ => None,
    })
}

/// Somebody was seen to hold the Lease for so many seconds, before it was free.
fn held_for(duration: u64) -> LastSeen {
    LastSeen { duration: seconds(duration), held: None, displaced_until: None }
}

fn free() -> Value {
    json!({"holderIdentity": "", "leaseDurationSeconds": 60})
}

#[test]
fn a_free_lease_without_the_mark_is_taken_at_once_and_run_on_after_the_wait() {
    for spec in
        [json!({}), Value::Null, json!({"holderIdentity": null}), json!({"holderIdentity": "", "leaseDurationSeconds": 1})]
    {
        let mut bench = Bench::with(spec);
        bench.run(TICK);
        assert_eq!(not_before(&bench), Some(START + plus(15)));
        assert_eq!(bench.body()["spec"]["leaseTransitions"], 1);
    }
}

#[test]
fn a_view_of_the_term_says_from_when_on_it_is_led() {
    let mut bench = Bench::with(json!({}));
    bench.run(TICK);
    assert_eq!(bench.elector.view().leading.unwrap().from, START + plus(15));

    let mut bench = Bench::with(mark());
    bench.run(TICK);
    assert_eq!(bench.elector.view().leading.unwrap().from, Instant::BOOT);
}

#[test]
fn the_wait_of_a_created_lease_counts_from_the_reply() {
    let mut bench = Bench::new();
    bench.answers = false;
    bench.serve();
    bench.run(seconds(1));
    bench.serve();

    assert_eq!(not_before(&bench), Some(START + seconds(1) + plus(15)));
}

#[test]
fn the_wait_of_a_free_lease_and_of_none_is_the_one_last_seen_and_counts_from_the_reply_too() {
    let last_seen = Some(held_for(60));
    for register in [Register::holding(json!({})), Register::default()] {
        let mut bench = Bench::start(Welcome { last_seen: last_seen.clone(), ..welcome() }, register);
        bench.answers = false;
        bench.serve();
        bench.run(seconds(1));
        assert!(bench.awaits_a_write());
        bench.serve();

        assert_eq!(not_before(&bench), Some(START + seconds(1) + plus(60)));
    }
}

#[test]
fn the_wait_is_the_largest_of_own_last_seen_and_the_free_records() {
    let mut bench = Bench::with(free());
    bench.run(TICK);
    assert_eq!(not_before(&bench), Some(START + plus(60)));
    assert_eq!(bench.body()["spec"]["leaseDurationSeconds"], 60, "the record carries the wait");

    let mut bench = Bench::with(held("x", 40));
    bench.run(TICK);
    let deleted = bench.register.delete();
    bench.watch(deleted);
    bench.run(TICK);
    assert_eq!(not_before(&bench).map(|at| at.since(START).as_secs()), Some(40));

    let mut bench = Bench::with(held("x", 40));
    bench.run(TICK);
    bench.register.edit(|object| object["spec"] = json!({}));
    bench.watch_register();
    bench.run(TICK);
    assert_eq!(not_before(&bench).map(|at| at.since(START).as_secs()), Some(40));
}

#[test]
fn a_duration_that_only_a_free_record_told_is_waited_out_although_the_record_is_gone() {
    for (before, duration) in [(json!({}), 60), (held("x", 40), 60), (held("x", 90), 90)] {
        let mut bench = Bench::with(before);
        bench.register.edit(|object| object["metadata"]["annotations"] = json!({(PAUSED): "true"}));
        bench.run(TICK);
        bench.register.edit(|object| object["spec"] = free());
        bench.watch_register();
        let told = bench.saw.last().cloned();

        let deleted = bench.register.delete();
        bench.watch(deleted);
        bench.run(TICK);

        assert_eq!(told.map(|seen| seen.duration), Some(seconds(duration)), "the next elector must know it too");
        assert_eq!(not_before(&bench).map(|at| at.since(START)), Some(plus(duration) + TICK));
    }
}

#[test]
fn a_watch_event_from_before_a_deletion_shortens_no_wait() {
    for told in [false, true] {
        let mut bench = Bench::with(held("y", 15));
        let old = bench.register.object.clone().unwrap();
        bench.register.edit(|object| object["spec"] = held("x", 60));
        bench.run(seconds(5));
        bench.answers = false;
        let deleted = bench.register.delete();
        if told {
            bench.watch(deleted);
        } else {
            bench.run(seconds(5));
            bench.serve();
        }
        assert!(bench.awaits_a_write());
        bench.watch(Watched::Changed(old.into()));
        bench.answer(lost());
        bench.answers = true;
        bench.run(seconds(5));

        assert!(not_before(&bench).is_some());
        assert_eq!(bench.body()["spec"]["leaseDurationSeconds"], 60, "x may run for so long, whatever the watch is late with");
    }
}

#[test]
fn a_mark_after_a_holder_of_one_second_is_not_trusted() {
    let mut bench = Bench::with(held("x", 1));
    bench.run(TICK);
    bench.register.edit(|object| object["spec"]["holderIdentity"] = "".into());
    bench.watch_register();
    bench.run(TICK);

    assert!(not_before(&bench).is_some());
}

#[test]
fn a_mark_that_its_holder_did_not_write_is_not_trusted() {
    let mut other = Bench::leading_with(Welcome { identity: "other_4567".into(), ..welcome() });
    // Like client-go's late release, which does not check the holder and keeps the annotations.
    other.register.edit(|object| object["spec"] = mark());

    let mut next = Bench::start(welcome(), other.register);
    next.run(TICK);

    assert_eq!((next.leads().is_some(), not_before(&next)), (true, Some(START + plus(15))));
}

#[test]
fn a_mark_beside_my_own_name_is_trusted_for_my_workload_is_dead() {
    let mut bench = Bench::leading();
    bench.register.edit(|object| object["spec"] = mark());
    bench.watch_register();
    bench.prove(Then::Follow);
    bench.told.clear();
    bench.run(seconds(1));

    assert_eq!((bench.leads().is_some(), not_before(&bench)), (true, None));
}

#[test]
fn a_mark_that_its_holder_wrote_is_trusted_by_the_next() {
    let mut holder = Bench::leading();
    holder.run(seconds(4));
    holder.tell(ToElector::Shutdown);
    holder.prove(Then::Exit);
    holder.run(seconds(1));
    assert_eq!(holder.register.spec()["holderIdentity"], "");

    let mut next = Bench::start(welcome(), holder.register);
    next.run(TICK);

    assert_eq!((next.leads().is_some(), not_before(&next)), (true, None));
}

#[test]
fn a_wait_that_the_user_sets_replaces_the_default() {
    for (set, end) in [(Duration::ZERO, None), (seconds(5), Some(plus(5))), (seconds(90), Some(plus(90)))] {
        let mut welcome = welcome();
        welcome.config.lease.creation_wait = Some(set);
        let mut bench = Bench::start(welcome, Register::holding(free()));
        bench.run(TICK);
        assert_eq!(not_before(&bench), end.map(|end| START + end));
        assert_eq!(bench.body()["spec"]["leaseDurationSeconds"], set.as_secs().max(15));
    }
}

#[test]
fn an_acquisition_says_how_long_the_workload_waits_if_it_does() {
    for (found, wait) in [(mark(), None), (free(), Some(seconds(60)))] {
        let mut bench = Bench::with(found);
        bench.run(TICK);
        let said = bench.events.iter().find_map(|event| match event {
            Event::Acquired { creation_wait, .. } => Some(*creation_wait),
            _ => None,
        });
        assert_eq!(said, Some(wait));
    }
}

#[test]
fn a_wait_of_no_whole_seconds_is_rounded_up_in_the_record_and_not_in_the_deadlines() {
    let mut welcome = welcome();
    welcome.config.lease.creation_wait = Some(Duration::from_millis(20_500));
    let mut bench = Bench::start(welcome, Register::holding(free()));

    bench.run(TICK);

    assert_eq!(bench.body()["spec"]["leaseDurationSeconds"], 21);
    assert_eq!(not_before(&bench), Some(START + Duration::from_millis(20_705)));
    let end = bench.elector.view().leading.unwrap().deadlines.end;
    assert_eq!(end, START + Duration::from_millis(20_295));
}

#[test]
fn the_end_of_the_wait_is_agreed_with_init_before_the_first_write_with_the_shorter_duration() {
    let mut bench = Bench::with(free());
    bench.run(plus(60) - TICK);
    assert!(!bench.told.iter().any(|message| matches!(message, ToInit::Shorten { .. })));
    bench.acknowledges = false;
    let writes = bench.writes().len();

    bench.run(seconds(4));

    let Some(ToInit::Shorten { term, serial, deadlines, timing }) = bench.told.last().cloned() else {
        panic!("{:?}", bench.told.last())
    };
    assert_eq!(timing.duration, seconds(15));
    let extended = bench.told.iter().filter(|message| matches!(message, ToInit::Extend { .. })).count() as u64;
    for earlier in 0..=extended {
        bench.tell(ToElector::Acknowledged { term, serial: earlier });
    }
    assert_eq!(bench.writes().len(), writes, "nothing is written before init agrees");
    bench.tell(ToElector::Acknowledged { term, serial });
    assert_eq!(bench.body()["spec"]["leaseDurationSeconds"], 15);
    assert!(deadlines.end <= bench.now.boot + Duration::from_millis(14_850));
}

#[test]
fn a_pause_that_the_server_asks_for_does_not_put_off_the_end_of_the_wait() {
    let mut bench = Bench::with(free());
    bench.run(seconds(58));
    bench.answers = false;
    while !bench.awaits_a_write() {
        bench.run(Duration::from_millis(100));
    }
    let refusal = Refusal::TooManyRequests { retry_after: Some(seconds(30)) };
    bench.answer(Answer::Refused { refusal, message: "slow down".into() });
    let writes = bench.writes().len();

    bench.run((START + plus(60)).since(bench.now.boot));

    assert!(matches!(bench.told.last(), Some(ToInit::Shorten { .. })), "{:?}", bench.told.last());
    assert_eq!(bench.writes().len(), writes, "the pause goes on");
    bench.run(seconds(8));
    assert_eq!(bench.writes().len(), writes + 1, "but no longer than the shorter term has room for");
}

#[test]
fn a_write_of_the_wait_that_proves_out_later_does_not_move_the_end_on_again() {
    let mut bench = Bench::with(free());
    bench.run(seconds(59));
    bench.answers = false;
    bench.run(seconds(2));
    let sent = bench.last_sent();
    bench.serve_silently();
    bench.run(seconds(2));
    bench.answers = true;
    bench.run(seconds(2));

    let end = bench.elector.view().leading.unwrap().deadlines.end;
    assert!(end < sent + seconds(30), "not the wait's {:?}", sent + seconds(59));
}

#[test]
fn a_first_short_write_into_a_black_hole_leaves_the_deadlines_of_the_short_duration() {
    let mut bench = Bench::with(free());
    bench.run(plus(60));
    bench.answers = false;
    for _ in 0..40 {
        bench.run(Duration::from_millis(500));
        if bench.awaited.is_some() {
            bench.answer(lost());
        }
    }

    assert_eq!(bench.step_down_reason(), Some(Reason::Expired));
    assert!(bench.guarding());
}

#[test]
fn a_waiter_that_ends_writes_nothing() {
    let mut bench = Bench::with(free());
    bench.run(seconds(10));
    bench.stopping(Reason::Signal);
    let writes = bench.writes().len();

    bench.prove(Then::Exit);
    bench.run(seconds(10));

    assert!(bench.is_done());
    assert_eq!(bench.writes().len(), writes);
    assert!(bench.events.contains(&Event::Released { how: Given::Keep }));
}

#[test]
fn who_gives_up_within_a_wait_lets_the_others_go_first_when_the_record_that_carries_it_has_expired() {
    let mut bench = Bench::with(free());
    bench.run(seconds(10));
    bench.stopping(Reason::StepDown);
    let expired = START + seconds(9) + plus(60);
    bench.prove(Then::Follow);
    let given_up = bench.now.boot;

    bench.run((given_up + plus(60)).since(bench.now.boot) - TICK);
    assert!(bench.now.boot > expired);
    assert_eq!(bench.leads().map(|term| term.0), Some(1));

    bench.run(TICK);
    assert_eq!(bench.leads().map(|term| term.0), Some(2));
}

#[test]
fn who_ends_when_the_wait_is_just_over_gives_the_lease_back() {
    let mut bench = Bench::with(free());
    bench.run(plus(60));
    assert_eq!(not_before(&bench), Some(bench.now.boot));

    bench.stopping(Reason::Signal);
    bench.prove(Then::Exit);
    bench.run(seconds(1));

    assert!(bench.events.contains(&Event::Released { how: Given::Clear }), "{:?}", bench.events);
}

#[test]
fn a_lost_wait_still_holds_in_the_next_term() {
    let mut bench = Bench::with(free());
    bench.run(seconds(10));
    let end = not_before(&bench);
    bench.register.edit(|object| object["spec"] = mark());
    bench.watch_register();
    bench.prove(Then::Follow);

    bench.run(seconds(1));

    assert_eq!(bench.leads().map(|term| term.0), Some(2));
    assert_eq!(not_before(&bench), end);
    assert_eq!(bench.body()["spec"]["leaseDurationSeconds"], 51, "and the record carries what is left of it");
    assert!(matches!(bench.writes().last(), Some(Request::Replace(_))));
}

#[test]
fn a_wait_that_is_lost_again_and_again_grows_no_longer() {
    let mut bench = Bench::with(free());
    bench.run(seconds(1));
    let carried = bench.body()["spec"]["leaseDurationSeconds"].clone();

    for _ in 0..20 {
        bench.register.edit(|object| object["spec"] = serde_json::json!({ "holderIdentity": "" }));
        bench.watch_register();
        bench.prove(Then::Follow);
        bench.run(Duration::from_millis(100));
    }

    assert_eq!(bench.leads().map(|term| term.0), Some(21));
    assert_eq!(bench.body()["spec"]["leaseDurationSeconds"], carried);
}

#[test]
fn a_wait_that_is_over_before_init_was_told_of_the_term_ends_in_a_renewal() {
    let mut bench = Bench::with(free());
    bench.answers = false;
    bench.serve();
    bench.serve_silently();
    lose_everything_until(&mut bench, START + seconds(60));
    // S of the acquiring write has passed when a read proves it, and the wait, counted from there, when a renewal succeeds.
    while !matches!(bench.awaited, Some((_, Request::Get))) {
        bench.run(TICK * 1_000_000);
    }
    bench.serve();
    lose_everything_until(&mut bench, START + seconds(140));
    assert_eq!(bench.leads(), None);
    bench.answers = true;
    bench.run(seconds(5));

    assert!(bench.leads().is_some());
    assert_eq!(bench.body()["spec"]["leaseDurationSeconds"], 15);
}

fn lose_everything_until(bench: &mut Bench, at: Instant) {
    while bench.now.boot < at {
        bench.run(seconds(1));
        if bench.awaited.is_some() {
            bench.answer(lost());
        }
    }
}

#[test]
fn a_shorter_wait_does_not_lower_a_longer_one_of_another_elector() {
    let longer = START + seconds(60);
    let mut bench = Bench::start(Welcome { not_before: Some(longer), ..welcome() }, Register::default());

    bench.run(TICK);

    assert_eq!(not_before(&bench), Some(longer));
    assert_eq!(bench.body()["spec"]["leaseDurationSeconds"], 60, "whoever takes it from here must wait for the same leader");
}

#[test]
fn a_lease_that_is_taken_by_its_mark_carries_the_wait_of_another_elector_until_that_is_over() {
    let longer = START + seconds(60);
    let mut bench = Bench::start(Welcome { not_before: Some(longer), ..welcome() }, Register::holding(mark()));

    bench.run(seconds(59));
    assert_eq!(bench.body()["spec"]["leaseDurationSeconds"], 60);
    bench.run(seconds(5));

    assert_eq!(bench.body()["spec"]["leaseDurationSeconds"], 15);
    assert_eq!(bench.step_down(), None);
}

#[test]
fn a_fresh_elector_waits_as_long_as_the_lease_was_held_for_when_another_one_saw_it() {
    let mut old = Bench::with(held("x", 60));
    old.run(TICK);
    let last_seen = old.saw.last().cloned();
    assert_eq!(last_seen, Some(LastSeen { held: Some("uid-1".into()), ..held_for(60) }));

    for gone in [Register::default(), Register::holding(json!({}))] {
        let mut new = Bench::start(Welcome { generation: 2, last_seen: last_seen.clone(), ..welcome() }, gone);
        new.run(TICK);
        assert_eq!((not_before(&new), &new.body()["spec"]["leaseDurationSeconds"]), (Some(START + plus(60)), &json!(60)));
    }
}

#[test]
fn init_hears_of_what_was_seen_only_where_it_is_another_than_it_knows() {
    let mut bench = Bench::with(held("x", 15));
    bench.run(TICK);
    for duration in [15, 60, 60, 15] {
        bench.register.edit(|object| object["spec"]["leaseDurationSeconds"] = duration.into());
        bench.watch_register();
    }

    let saw = |duration| LastSeen { held: Some("uid-1".into()), ..held_for(duration) };
    assert_eq!(bench.saw, [saw(15), saw(60), saw(15)]);
}

#[test]
fn a_mark_after_a_holder_of_one_second_is_not_trusted_by_a_fresh_elector_either() {
    let last_seen = Some(held_for(1));
    let mut bench = Bench::start(Welcome { last_seen, ..welcome() }, Register::holding(mark()));

    bench.run(TICK);

    assert!(not_before(&bench).is_some());
}
