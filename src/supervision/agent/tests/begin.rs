//! How a term begins: what init accepts of a Lead, and the first S.

use super::*;

/// When the term's write was sent.
const A: Instant = Instant::from_nanos(1_000_000_000);

fn lead(confirmed: Confirmed) -> ToInit {
    ToInit::Lead { term: Term(1), info: info(), confirmed }
}

#[test]
fn a_lead_whose_s_is_past_starts_nothing_before_it_is_renewed() {
    let mut world = World::new(config());
    world.sleep_until(deadlines(A).soft);
    world.told(lead(confirmed(A)));
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
    world.told(lead(confirmed(A)));
    assert_eq!(world.spawns(), Some((Some(Role::Leader), Some(Launch { info: Some(info()), not_after: soft }))));
}

#[test]
fn a_child_that_finds_s_past_leaves_nothing_running_and_is_started_again_once_renewed() {
    let mut world = World::new(config());
    world.lead(1);
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
fn a_term_has_deadlines_that_the_constants_of_this_init_allow() {
    let mut world = World::new(config());
    world.told(lead(confirmed(A + tick())));
    assert!(world.wants(&Action::KillElector));
    assert_eq!(world.spawns(), None);
}
