//! Without a Lease: a plain init.

use super::*;

fn plain(pid1: bool) -> World {
    let mut config = config();
    config.lease.enabled = false;
    plain_of(config, pid1)
}

fn plain_of(config: Config, pid1: bool) -> World {
    let mut world = World::of(config, pid1, false);
    assert_eq!(world.agent.poll_timeout(), Some(Instant::BOOT));
    world.due();
    assert_eq!(world.spawns(), Some((None, Some(Launch { info: None, not_after: Instant::NEVER }))));
    world.run();
    assert_eq!(world.agent.poll_timeout(), None);
    world.take();
    world
}

#[test]
fn as_pid_1_it_ends_with_its_workload_and_leaves_the_rest_to_the_kernel() {
    let mut world = plain(true);
    world.exit(Exit::Code(3));
    assert_eq!(world.take(), [Action::Exit(3)]);
}

#[test]
fn not_pid_1_it_ends_once_no_child_is_left_and_kills_what_the_workload_left_behind() {
    let mut world = plain(false);
    world.exit(Exit::Code(3));
    assert_eq!(world.take(), []);
    let mut childless = world.clone();
    childless.feed(Input::Childless);
    assert_eq!(childless.take(), [Action::Exit(3)]);
    world.prove();
    assert_eq!(world.actions.last(), Some(&Action::Exit(3)));
}

#[test]
fn a_signal_stops_the_workload_and_its_code_is_init_s() {
    let mut world = plain(true);
    world.feed(Input::Signal(libc::SIGTERM));
    assert_eq!(world.take(), [to_main(libc::SIGTERM), Action::Continue { target: Target::Main(MAIN) }]);
    world.exit(Exit::Signal(libc::SIGTERM));
    assert_eq!(world.take(), [Action::Exit(143)]);
}

#[test]
fn int_and_quit_are_only_passed_on() {
    for on_exit in [OnExit::Exit, OnExit::Follow] {
        let mut config = config();
        config.lease.enabled = false;
        config.workload.on_exit = on_exit;
        let mut world = plain_of(config, true);
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGQUIT] {
            world.feed(Input::Signal(signal));
            assert_eq!(world.take(), [to_main(signal)], "{on_exit:?}");
            assert_eq!(world.agent.poll_timeout(), None);
        }
    }
}

#[test]
fn int_is_a_stop_where_the_workload_would_be_started_again() {
    let mut config = config();
    config.lease.enabled = false;
    config.workload.on_exit = OnExit::Restart;
    let mut world = plain_of(config, true);
    world.feed(Input::Signal(libc::SIGINT));
    world.exit(Exit::Signal(libc::SIGINT));
    assert_eq!(world.actions.last(), Some(&Action::Exit(130)));
}

#[test]
fn it_sleeps_until_its_workload_is_to_be_started_again() {
    let mut config = config();
    config.lease.enabled = false;
    config.workload.on_exit = OnExit::Restart;
    let mut world = plain_of(config, true);
    world.exit_proved(Exit::Code(3));
    assert_eq!(world.agent.poll_timeout(), Some(ms(2000)));
    world.wake_until(ms(2000));
    assert!(world.spawns().is_some());
}

#[test]
fn a_workload_that_runs_always_has_no_role_and_gets_every_signal() {
    let mut config = config();
    config.lease.enabled = false;
    config.workload.runs = Runs::Always;
    config.signals.on_lead = Some(Signal(libc::SIGUSR1));
    let mut world = plain_of(config, true);
    world.feed(Input::Signal(libc::SIGUSR1));
    assert_eq!(world.take(), [to_main(libc::SIGUSR1)]);
}

#[test]
fn it_does_not_wait_for_what_sigkill_does_not_remove() {
    let mut beside = plain(false);
    beside.exit(Exit::Code(3));
    let mut pid1 = plain(true);
    pid1.feed(Input::Signal(libc::SIGTERM));
    for (mut world, code) in [(beside, 3), (pid1, 137)] {
        world.never_proved(ms(60_000));
        assert_eq!(world.actions.last(), Some(&Action::Exit(code)));
    }
}

#[test]
fn not_pid_1_a_third_signal_ends_it_whatever_is_left() {
    let mut world = plain(false);
    world.exit(Exit::Code(3));
    for _ in 0..2 {
        world.feed(Input::Signal(libc::SIGTERM));
        assert!(!world.wants(&Action::Exit(3)));
    }
    world.feed(Input::Signal(libc::SIGTERM));
    assert!(world.wants(&Action::Exit(3)));
}

#[test]
fn no_length_of_an_attempt_is_too_long() {
    let mut config = config();
    (config.lease.enabled, config.lease.attempt_timeout) = (false, Duration::MAX);
    let mut world = plain_of(config, true);
    world.exit(Exit::Code(3));
    assert!(world.wants(&Action::Exit(3)));
}
