//! A tenure that lost its Lease to somebody who did not wait for it, and may still run for its own duration (law 14).

use std::time::Duration;

use serde_json::Value;

use super::{
    bench::{Bench, START, TICK, held, mark, plus, seconds, welcome},
    creation_wait::not_before,
};
use crate::link::Welcome;

/// A tenure leads with D = 30 s, and client-go's late release gives its Lease to the next client-go, which holds it for `duration`
/// and crashes; seen from the start.
fn robbed(duration: i64) -> Bench {
    let mut config = welcome();
    config.config.lease.duration = seconds(30);
    let other = Bench::leading_with(Welcome { identity: "other_4567".into(), ..config });
    let mut next = Bench::start(welcome(), other.register);
    next.run(TICK);
    next.register.edit(|object| object["spec"] = mark());
    next.register.edit(|object| object["spec"] = held("client-go", duration));
    next.watch_register();
    next
}

#[test]
fn who_is_seen_first_when_it_was_robbed_already_is_waited_for_as_long_as_its_robber_holds() {
    let mut config = welcome();
    config.config.lease.duration = seconds(60);
    let other = Bench::leading_with(Welcome { identity: "other_4567".into(), ..config });
    let mut register = other.register;
    register.edit(|object| object["spec"] = held("client-go", 60));
    let mut next = Bench::start(welcome(), register);
    next.run(TICK);
    next.register.edit(|object| object["spec"] = mark());
    next.watch_register();

    next.run(seconds(1));

    assert_eq!((next.leads().is_some(), not_before(&next)), (true, Some(START + plus(60))));
}

#[test]
fn who_was_robbed_before_it_was_ever_seen_is_waited_for_as_long_as_the_user_says() {
    let mut config = welcome();
    config.config.lease.duration = seconds(60);
    let other = Bench::leading_with(Welcome { identity: "other_4567".into(), ..config });
    let mut register = other.register;
    register.edit(|object| object["spec"] = held("client-go", 5));
    let mut waiting = welcome();
    waiting.config.lease.creation_wait = Some(seconds(60));
    let mut next = Bench::start(waiting, register);
    next.run(TICK);

    next = renewed(next);
    next.run(plus(5));

    let taken_at = next.last_sent();
    assert_eq!((next.leads().is_some(), not_before(&next)), (true, Some(taken_at + plus(60))));
}

#[test]
fn a_wait_that_the_user_sets_is_not_for_who_was_seen_before_it_was_robbed() {
    let mut config = welcome();
    config.config.lease.duration = seconds(30);
    let other = Bench::leading_with(Welcome { identity: "other_4567".into(), ..config });
    let mut waiting = welcome();
    waiting.config.lease.creation_wait = Some(seconds(60));
    let mut next = Bench::start(waiting, other.register);
    next.run(TICK);
    next.register.edit(|object| object["spec"] = mark());
    next.register.edit(|object| object["spec"] = held("client-go", 5));
    next.watch_register();

    next = renewed(next);
    let mut again: Value = held("another client-go", 5);
    again["leaseTransitions"] = 9.into();
    next.register.edit(|object| object["spec"] = again);
    next.watch_register();
    next = renewed(next);
    next.run(plus(6));

    assert_eq!((next.leads().is_some(), not_before(&next)), (true, None));
}

/// The robber renews for 32 s.
fn renewed(mut next: Bench) -> Bench {
    next.hear_renewals(8, seconds(4));
    next
}

#[test]
fn who_was_robbed_of_the_lease_is_waited_for_although_the_robber_crashed() {
    let mut next = robbed(5);
    next.run(plus(5) + TICK);

    assert_eq!((next.leads().is_some(), not_before(&next)), (true, Some(START + TICK + plus(30))));
    assert_eq!(next.body()["spec"]["leaseDurationSeconds"], 25, "and the record carries what is left of it");
}

#[test]
fn who_was_robbed_longer_ago_than_it_could_run_is_not_waited_for() {
    let mut next = renewed(robbed(5));
    next.run(plus(6));

    assert_eq!((next.leads().is_some(), not_before(&next)), (true, None));
}

#[test]
fn who_was_robbed_and_could_run_just_as_long_as_the_robber_is_not_waited_for_longer() {
    let mut next = robbed(30);
    next.run(plus(30) + TICK);

    assert_eq!((next.leads().is_some(), not_before(&next)), (true, None));
}

#[test]
fn who_may_have_led_again_unseen_between_two_robbers_is_waited_for_anew() {
    let mut next = renewed(robbed(5));
    let mut again: Value = held("another client-go", 5);
    again["leaseTransitions"] = 9.into();
    next.register.edit(|object| object["spec"] = again);
    next.watch_register();
    let seen_at = next.now.boot;

    next.run(plus(5) + TICK);

    assert_eq!((next.leads().is_some(), not_before(&next)), (true, Some(seen_at + plus(30))));
}

#[test]
fn the_mark_of_a_robber_is_trusted_from_the_very_instant_at_which_the_robbed_must_be_dead() {
    for (early, trusted) in [(TICK, false), (Duration::ZERO, true)] {
        let mut next = robbed(5);
        next.hear_renewals(7, seconds(4));
        next.run(plus(30) - seconds(28) - early);
        next.register.edit(|object| object["spec"] = mark());
        next.watch_register();

        next.run(TICK);

        assert_eq!((next.leads().is_some(), not_before(&next).is_none()), (true, trusted), "{early:?}");
    }
}

#[test]
fn who_holds_again_what_the_robber_had_left_may_have_waited_for_nobody() {
    let mut next = renewed(robbed(5));
    let robber = next.register.object.clone().unwrap()["spec"].clone();
    next.register.edit(|object| object["spec"]["holderIdentity"] = "".into());
    next.register.edit(|object| object["metadata"]["annotations"]["tenure.dev/paused"] = "true".into());
    next.watch_register();
    next.run(seconds(1));
    next.register.edit(|object| object["spec"] = robber);
    next.watch_register();
    let seen_at = next.now.boot;
    next.run(seconds(1));
    next.register.edit(|object| drop(object["metadata"]["annotations"].as_object_mut().unwrap().remove("tenure.dev/paused")));
    next.watch_register();

    next.run(plus(5));

    assert_eq!((next.leads().is_some(), not_before(&next)), (true, Some(seen_at + plus(30))));
}

#[test]
fn the_mark_of_a_robber_is_trusted_once_the_robbed_can_run_no_longer() {
    let mut led_again = mark();
    led_again["leaseTransitions"] = 9.into();
    for (mut next, left, trusted) in
        [(robbed(5), mark(), false), (renewed(robbed(5)), mark(), true), (renewed(robbed(5)), led_again, false)]
    {
        next.register.edit(|object| object["spec"] = left.clone());
        next.watch_register();

        next.run(TICK);

        assert_eq!((next.leads().is_some(), not_before(&next).is_none()), (true, trusted), "{left}");
    }
}
