//! A standby that ends: by itself, or with init, whose elector has nothing to give back.

use super::*;

#[test]
fn a_standby_that_ends_with_on_exit_follow_is_started_again_after_its_delay() {
    let mut config = always(Acknowledge::Notify);
    config.workload.on_exit = OnExit::Follow;
    let mut world = standby(config);

    world.exit_proved(Exit::Code(5));

    assert_eq!(world.agent.poll_timeout(), Some(ms(2000)));
    world.wake_until(ms(2000));
    assert_eq!(world.spawns(), Some((Some(Role::Standby), None)));
}

#[test]
fn a_standby_has_its_whole_grace_although_no_release_would_be_waited_for_that_long() {
    let mut world = standby(always(Acknowledge::Notify));
    world.feed(Input::Signal(libc::SIGTERM));
    let kill_at = world.now + config().workload.stop.grace;

    world.wake_until(kill_at.before(tick()));
    assert!(!world.actions.iter().any(|action| matches!(action, Action::Sweep | Action::Exit(_))), "{:?}", world.actions);

    world.wake_until(kill_at);
    assert!(world.wants(&Action::Sweep));
}

#[test]
fn no_elector_is_started_while_a_standby_stops_for_the_end_of_init() {
    let mut world = standby(always(Acknowledge::Notify));
    world.feed(Input::Signal(libc::SIGTERM));

    world.feed(Input::ElectorEnded);
    world.due();

    assert!(!world.wants(&Action::StartElector));
}

#[test]
fn a_standby_is_stopped_where_no_elector_can_work() {
    let mut world = standby(always(Acknowledge::Notify));

    world.told(ToInit::Failed { code: 78, message: "no kubeconfig".into() });
    world.feed(Input::ElectorEnded);

    assert!(world.wants(&to_main(libc::SIGTERM)), "{:?}", world.actions);
    world.exit_proved(Exit::Code(0));
    assert_eq!(world.actions.last(), Some(&Action::Exit(78)));
}
