//! How a term begins: what init accepts of a Lead, the first S, the creation wait.

use super::*;
use crate::law::Timing;

/// When the term's write was sent.
const A: Instant = Instant::from_nanos(1_000_000_000);

fn lead(timing: Timing, confirmed: Confirmed, not_before: Option<Instant>) -> ToInit {
    ToInit::Lead { term: Term(1), facts: facts(), timing, confirmed, not_before }
}

#[test]
fn a_shortening_moves_the_deadlines_back_and_is_acknowledged() {
    let mut world = World::new(config());
    let timing = config().timing().with_duration(Duration::from_secs(60));
    let long = Confirmed { deadlines: timing.deadlines(A), ..confirmed(A) };
    world.told(lead(timing, long, Some(world.now)));
    world.run();
    world.take();
    world.sleep_until(ms(3000));
    let deadlines = deadlines(ms(3000));
    world.told(ToInit::Shorten { term: Term(1), serial: 1, timing: config().timing(), deadlines });
    assert_eq!(world.tells(), [acknowledged(1, 1)]);
    assert_eq!(world.agent.poll_timeout(), Some(deadlines.soft));
}

#[test]
fn a_lead_whose_s_is_past_starts_nothing_before_it_is_renewed() {
    let mut world = World::new(config());
    world.sleep_until(deadlines(A).soft);
    world.told(lead(config().timing(), confirmed(A), None));
    assert_eq!(world.take(), [Action::Tell(acknowledged(1, 0))]);
    world.due();
    assert_eq!(world.take(), []);
    world.extend(1, 1, world.now);
    assert!(world.spawns().is_some());
}

#[test]
fn one_tick_before_s_a_lead_starts_the_workload_with_s_as_its_limit() {
    let mut world = World::new(config());
    let soft = deadlines(A).soft;
    world.sleep_until(soft.before(tick()));
    world.told(lead(config().timing(), confirmed(A), None));
    assert_eq!(world.spawns(), Some((Some(Role::Leader), Some(Launch { facts: Some(facts()), not_after: soft }))));
}

#[test]
fn a_child_that_finds_s_past_leaves_nothing_running_and_is_started_again_once_renewed() {
    let mut world = World::new(config());
    world.lead(1, None);
    world.feed(Input::Forked { pid: MAIN });
    world.take();
    world.sleep_until(deadlines(A).soft);
    world.feed(Input::NotSpawned(NotSpawned::Late));
    world.exit(Exit::Code(1));
    assert!(!world.agent.leads());
    assert_eq!(world.take(), []);
    world.extend(1, 1, world.now);
    assert!(world.spawns().is_some());
}

#[test]
fn a_lead_beyond_its_own_duration_starts_nothing_and_costs_the_elector() {
    let mut world = World::new(config());
    let confirmed = confirmed(world.now + tick());
    world.told(lead(config().timing(), confirmed, None));
    assert!(world.wants(&Action::KillElector));
    assert!(world.spawns().is_none());
}

#[test]
fn a_term_has_the_constants_of_this_init_and_a_longer_duration_only_with_a_wait() {
    let own = config().timing();
    let longer = own.with_duration(own.duration + tick());
    let others = [
        (longer, None),
        (Timing { drift: own.drift - 1, ..own }, None),
        (Timing { loss_grace: own.loss_grace - tick(), ..own }, None),
        (Timing { kill_margin: own.kill_margin - tick(), ..longer }, Some(ms(6000))),
    ];
    for (timing, not_before) in others {
        let mut world = World::new(config());
        let confirmed = confirmed(world.now);
        world.told(lead(timing, confirmed, not_before));
        assert!(world.wants(&Action::KillElector), "{timing:?}");
        assert_eq!(world.spawns(), None, "{timing:?}");
        assert_eq!(world.agent.welcome().not_before, not_before, "a wait counts whoever tells of it");
    }
}

#[test]
fn what_starts_at_the_end_of_a_creation_wait_goes_by_the_s_that_this_end_leaves_at_least() {
    let own = config().timing();
    let waiting = own.with_duration(Duration::from_secs(60));
    let long = Confirmed { deadlines: waiting.deadlines(A), ..confirmed(A) };
    let mut world = World::new(config());
    let end = world.now;
    world.told(lead(waiting, long, Some(end)));
    let not_after = world.spawns().and_then(|(_, launch)| launch).map(|launch| launch.not_after);
    assert_eq!(not_after, Some(own.deadlines(end).soft), "the S of the wait is {:?}", waiting.deadlines(A).soft);

    world.wake_until(own.deadlines(end).soft);
    world.feed(Input::NotSpawned(NotSpawned::Late));
    world.take();
    let shortened = own.deadlines(world.now);
    world.told(ToInit::Shorten { term: Term(1), serial: 1, timing: own, deadlines: shortened });

    let again = world.spawns().and_then(|(_, launch)| launch).map(|launch| launch.not_after);
    assert_eq!(again, Some(shortened.soft));
}

#[test]
fn a_wait_that_is_not_longer_than_the_duration_takes_nothing_off_s() {
    let mut world = World::new(config());
    world.lead(1, Some(world.now.before(tick())));
    let not_after = world.spawns().and_then(|(_, launch)| launch).map(|launch| launch.not_after);
    assert_eq!(not_after, Some(deadlines(world.now).soft));
}

#[test]
fn a_creation_wait_is_not_ended_before_it_is_over() {
    let own = config().timing();
    let waiting = own.with_duration(Duration::from_secs(60));
    for (early, refused) in [(tick(), true), (Duration::ZERO, false)] {
        let mut world = World::new(config());
        let long = Confirmed { deadlines: waiting.deadlines(A), ..confirmed(A) };
        world.told(lead(waiting, long, Some(ms(6000))));
        world.sleep_until(ms(6000).before(early));
        world.told(ToInit::Shorten { term: Term(1), serial: 1, timing: own, deadlines: own.deadlines(world.now) });
        assert_eq!(world.wants(&Action::KillElector), refused);
        assert_eq!(world.wants(&Action::Tell(ToElector::Acknowledged { term: Term(1), serial: 1 })), !refused);
    }
}

#[test]
fn a_creation_wait_ends_with_the_constants_of_this_init() {
    let mut world = World::new(config());
    let waiting = config().timing().with_duration(Duration::from_secs(60));
    let long = Confirmed { deadlines: waiting.deadlines(A), ..confirmed(A) };
    world.told(lead(waiting, long, Some(ms(6000))));
    world.take();
    world.sleep_until(ms(6000));
    world.told(ToInit::Shorten { term: Term(1), serial: 1, timing: waiting, deadlines: deadlines(ms(3000)) });
    assert!(world.wants(&Action::KillElector));
}

#[test]
fn nothing_starts_a_tick_before_the_creation_wait_is_over() {
    let mut world = World::new(config());
    let end = ms(6000);
    world.lead(1, Some(end));
    assert!(world.spawns().is_none());
    assert_eq!(world.agent.poll_timeout(), Some(end));
    world.sleep_until(end.before(tick()));
    world.due();
    assert!(world.spawns().is_none());
    world.sleep_until(end);
    world.due();
    assert!(world.spawns().is_some());
}

#[test]
fn the_longest_creation_wait_ever_told_holds_over_a_loss_and_another_term() {
    let mut world = World::new(config());
    let end = ms(9000);
    world.lead(1, Some(end));
    world.step_down(1, Reason::LostDeleted);
    world.prove();
    world.told(ToInit::Ended { term: Term(1) });
    world.take();
    world.lead(2, Some(ms(5000)));
    world.sleep_until(end.before(tick()));
    world.due();
    assert!(world.spawns().is_none());
    world.sleep_until(end);
    world.due();
    assert!(world.spawns().is_some());
}
