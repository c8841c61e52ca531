//! A holder whose Lease is deleted or emptied, and taken by somebody who does not know how long it may still run (law 14).

use std::time::Duration;

use serde_json::json;

use super::{
    bench::{Bench, Register, START, TICK, held, lost, mark, plus, seconds, welcome},
    creation_wait::not_before,
};
use crate::{
    election::{Answer, Request, Watched},
    link::{LastSeen, Reason, Then, Welcome},
    time::Instant,
};

/// Until when the leader still waits.
fn waits_until(bench: &Bench) -> Option<Instant> {
    assert!(bench.leads().is_some());
    not_before(bench).filter(|end| *end > bench.now.boot)
}

/// "x" holds the Lease for 60 s.
fn seen() -> Bench {
    seen_with(None)
}

/// The same where the user has set how long to wait.
fn seen_with(creation_wait: Option<Duration>) -> Bench {
    let mut welcome = welcome();
    welcome.config.lease.creation_wait = creation_wait;
    let mut bench = Bench::start(welcome, Register::holding(held("x", 60)));
    bench.run(TICK);
    bench
}

/// The Lease of "x" is deleted, and "y" creates it anew, for 20 s.
fn recreated(mut bench: Bench) -> Bench {
    let deleted = bench.register.delete();
    bench.register.put(held("y", 20));
    bench.register.edit(|_| {});
    bench.watch(deleted);
    bench.watch_register();
    bench
}

/// The same where the watch tells of neither, and a read only of the outcome.
fn replaced(mut bench: Bench) -> Bench {
    bench.register.put(held("y", 20));
    bench.register.edit(|_| {});
    bench.watch_register();
    bench
}

/// Somebody empties the Lease of "x", and "y" takes it, for 20 s.
fn emptied(mut bench: Bench) -> Bench {
    bench.answers = false;
    bench.register.edit(|object| object["spec"] = json!({}));
    bench.watch_register();
    bench.register.edit(|object| object["spec"] = held("y", 20));
    bench.answer(Answer::Conflict);
    bench.answers = true;
    bench.run(TICK);
    bench
}

fn renewed(mut bench: Bench) -> Bench {
    bench.hear_renewals(13, seconds(5));
    bench
}

#[test]
fn who_lost_the_lease_unreleased_is_waited_for_when_its_successor_has_expired() {
    for displace in [recreated, replaced, emptied] {
        let mut bench = displace(seen());
        let displaced = START + TICK;
        bench.run(plus(20));
        assert_eq!(waits_until(&bench), Some(displaced + plus(60)));
        assert_eq!(bench.body()["spec"]["leaseDurationSeconds"], 40, "the record carries what is left of it");

        let mut bench = renewed(displace(seen()));
        bench.run(plus(20));
        assert_eq!(waits_until(&bench), None, "it has run out");
    }
}

#[test]
fn who_lost_the_lease_unreleased_is_waited_for_when_its_successor_has_released() {
    for displace in [recreated, replaced, emptied] {
        let mut bench = displace(seen());
        bench.register.edit(|object| object["spec"] = mark());
        bench.watch_register();
        bench.run(seconds(2));
        assert_eq!(waits_until(&bench), Some(START + TICK + plus(60)));

        let mut bench = renewed(displace(seen()));
        bench.register.edit(|object| object["spec"] = mark());
        bench.watch_register();
        bench.run(seconds(2));
        assert_eq!(waits_until(&bench), None, "it has run out");
    }
}

#[test]
fn a_mark_is_trusted_from_the_very_instant_at_which_who_lost_the_lease_must_be_dead() {
    let set = Some(seconds(30));
    for (wait, early, trusted) in
        [(None, TICK, false), (None, Duration::ZERO, true), (set, TICK, false), (set, Duration::ZERO, true)]
    {
        let mut bench = recreated(seen_with(wait));
        let displaced = bench.now.boot;
        bench.hear_renewals(12, seconds(5));
        bench.run((displaced + plus(60)).since(bench.now.boot) - early);
        bench.register.edit(|object| object["spec"] = mark());
        bench.watch_register();

        bench.run(Duration::ZERO);

        assert_eq!(waits_until(&bench).is_none(), trusted, "{wait:?}, {early:?}");
    }
}

#[test]
fn a_release_displaces_nobody_whatever_becomes_of_the_lease() {
    let mut bench = seen();
    bench.answers = false;
    bench.register.edit(|object| object["spec"] = mark());
    bench.watch_register();
    bench.register.put(held("y", 20));
    bench.register.edit(|_| {});
    bench.answer(Answer::Conflict);
    bench.answers = true;
    bench.run(TICK);

    bench.run(plus(20));

    assert_eq!(waits_until(&bench), None);
}

#[test]
fn of_two_that_lost_the_lease_one_after_the_other_the_one_that_may_run_longer_is_waited_for() {
    let mut bench = recreated(seen());
    bench.run(seconds(10));
    let since = bench.now.boot;
    bench.register.put(held("z", 80));
    bench.register.edit(|_| {});
    bench.watch_register();
    assert_eq!(bench.saw.last().unwrap().displaced_until, Some(START + TICK + plus(60)));
    bench.register.put(held("y", 20));
    bench.register.edit(|_| {});
    bench.watch_register();

    assert_eq!(bench.saw.last().unwrap().displaced_until, Some(since + plus(80)));
}

#[test]
fn a_fresh_elector_waits_for_who_lost_the_lease_before_it() {
    let old = recreated(seen());
    let displaced_until = Some(old.now.boot + plus(60));
    assert_eq!(old.saw.last(), Some(&LastSeen { duration: seconds(20), held: Some("uid-2".into()), displaced_until }));

    let welcome = Welcome { generation: 2, last_seen: old.saw.last().cloned(), ..welcome() };
    let mut new = Bench::start(welcome, old.register);
    new.run(plus(20));

    assert_eq!(waits_until(&new), displaced_until);
}

#[test]
fn who_was_seen_by_an_elector_before_the_lease_was_gone_is_waited_for_whoever_led_since() {
    let last_seen = Some(LastSeen { duration: seconds(60), held: None, displaced_until: None });
    let mut new = Bench::start(Welcome { generation: 2, last_seen, ..welcome() }, Register::default());
    new.answers = false;
    new.serve();
    new.run(TICK);
    new.register.put(held("y", 20));
    new.register.edit(|_| {});
    new.serve();
    new.answers = true;

    new.run(plus(20) + TICK);

    assert_eq!(waits_until(&new), Some(START + plus(60)));
}

#[test]
fn a_fresh_elector_that_finds_another_lease_waits_for_the_holder_of_the_one_that_was_seen() {
    for (successor, until) in [(held("y", 20), plus(20)), (mark(), TICK)] {
        let mut old = seen();
        let last_seen = old.saw.last().cloned();
        old.register.delete();
        old.register.put(successor);
        let mut new = Bench::start(Welcome { generation: 2, last_seen, ..welcome() }, old.register);

        new.run(until + TICK);

        assert_eq!(waits_until(&new), Some(START + plus(60)));
    }
}

#[test]
fn init_hears_of_a_deletion_before_anything_is_created() {
    let mut bench = seen();
    bench.answers = false;
    let deleted = bench.register.delete();
    bench.saw.clear();
    bench.watch(deleted);
    assert!(matches!(bench.saw[..], [LastSeen { displaced_until: Some(_), .. }]), "{:?}", bench.saw);
    assert_eq!(bench.told, []);

    let mut bench = seen();
    bench.answers = false;
    bench.register.delete();
    bench.saw.clear();
    bench.run(seconds(5));
    bench.serve();
    assert!(matches!(bench.saw[..], [LastSeen { displaced_until: Some(_), .. }]), "{:?}", bench.saw);
    assert_eq!(bench.told, []);
}

#[test]
fn a_reply_that_the_watch_has_overtaken_does_not_shorten_what_is_waited() {
    let mut bench = Bench::start(welcome(), Register::holding(held("z", 5)));
    bench.answers = false;
    let Answer::Object(early) = bench.register.apply(&Request::Get) else { panic!("there is a Lease") };
    bench.register.edit(|object| object["spec"] = held("x", 60));
    bench.watch_register();
    bench.answer(Answer::Object(early));
    bench.register.delete();
    bench.answers = true;

    bench.run(seconds(1));

    assert!(not_before(&bench) >= Some(START + plus(60)), "{:?}", not_before(&bench));
}

/// Somebody with D = 60 s takes the Lease, and it is deleted a second later, while a creation of this replica is on its way.
fn overtaken_creation(welcome: Welcome) -> (Bench, Instant) {
    let mut bench = Bench::start(welcome, Register::default());
    bench.serve();
    bench.answers = false;
    bench.run(TICK);
    assert!(bench.awaits_a_write());
    bench.register.put(held("x", 60));
    bench.watch_register();
    bench.run(seconds(1));
    let deleted = bench.register.delete();
    bench.watch(deleted);
    (bench, START + TICK + seconds(1))
}

#[test]
fn a_creation_that_is_committed_late_waits_for_who_led_meanwhile_and_then_says_so_in_the_record() {
    for seen_first in [false, true] {
        let (mut bench, deleted) = overtaken_creation(welcome());
        bench.run(seconds(1));
        if seen_first {
            let (_, request) = bench.awaited.clone().unwrap();
            let Answer::Object(created) = bench.register.apply(&request) else { panic!("it is created") };
            bench.watch(Watched::Changed(created.clone()));
            bench.answer(Answer::Object(created));
        } else {
            bench.serve();
        }
        assert_eq!(not_before(&bench), Some(deleted + plus(60)));
        assert_eq!(bench.elector.view().leading.unwrap().deadlines.end, START + Duration::from_millis(14_850));

        bench.answers = true;
        bench.run(TICK);
        assert_eq!(bench.body()["spec"]["leaseDurationSeconds"], 60, "whoever takes it from here waits for as long");
        bench.run((deleted + plus(60)).since(bench.now.boot) + seconds(3));
        assert_eq!(bench.body()["spec"]["leaseDurationSeconds"], 15);
        assert_eq!(bench.step_down(), None);
    }

    let (mut bench, deleted) = overtaken_creation(welcome());
    bench.run(Duration::from_millis(1));
    bench.answer(lost());
    bench.answers = true;
    bench.run(seconds(1));
    assert!(not_before(&bench) > Some(deleted + plus(60)), "created anew, and the wait counts from there");
}

#[test]
fn a_wait_that_the_user_sets_is_no_longer_for_a_creation_that_is_committed_late() {
    let mut config = welcome();
    config.config.lease.creation_wait = Some(seconds(5));
    let (mut bench, _) = overtaken_creation(config);

    bench.serve();

    assert_eq!(not_before(&bench), Some(bench.now.boot + plus(5)));
}

#[test]
fn a_loss_that_is_found_after_the_proof_guards_nothing() {
    let mut bench = Bench::leading();
    bench.run(seconds(2));
    bench.stopping(Reason::Signal);
    bench.answers = false;
    while !bench.awaits_a_write() {
        bench.run(Duration::from_millis(100));
        if matches!(bench.awaited, Some((_, Request::Get))) {
            bench.serve();
        }
    }
    bench.prove(Then::Exit);
    let hard = bench.elector.view().leading.unwrap().deadlines.hard;
    bench.run(hard.since(bench.now.boot));

    bench.answer(Answer::NotFound);
    bench.run(seconds(1));

    assert!(!bench.guarding());
}
