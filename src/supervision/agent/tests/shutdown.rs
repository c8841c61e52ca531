//! Signals to init and its end.

use super::*;

const TERM: Input = Input::Signal(libc::SIGTERM);

#[test]
fn term_while_following_tells_the_elector_and_ends_with_0_when_it_is_done() {
    let mut world = World::new(config());
    world.feed(TERM);
    assert_eq!(world.take(), [Action::Tell(ToElector::Shutdown)]);
    world.done_ends_with(0);
}

#[test]
fn term_before_the_elector_said_hello_ends_at_once() {
    let mut world = World::of(config(), true, false);
    world.due();
    world.feed(Input::ElectorStarted);
    world.take();
    world.feed(TERM);
    assert_eq!(world.take(), [Action::KillElector, Action::Exit(0)]);
}

#[test]
fn the_wait_for_an_elector_that_is_never_done_is_bounded() {
    let mut world = World::new(config());
    world.feed(TERM);
    world.take();
    world.wake_until(ms(7000).before(tick()));
    assert_eq!(world.take(), []);
    world.wake_until(ms(7000));
    assert!(world.wants(&Action::Exit(0)));
}

#[test]
fn term_while_leading_is_a_planned_stop_then_a_release_then_the_workloads_code() {
    let mut world = World::leading(config());
    world.feed(TERM);
    let stopping = ToElector::Stopping { term: Term(1), reason: Reason::Signal, at: world.now };
    assert_eq!(world.take(), [to_main(libc::SIGTERM), to_main(libc::SIGCONT), Action::Tell(stopping)]);
    world.step_down_proved(Reason::Signal, Exit::Signal(libc::SIGTERM));
    assert_eq!(world.stopped(), Some((9, Then::Exit)));
    world.released_ends_with(143);
}

#[test]
fn int_is_passed_on_rewritten_once_and_counts_as_the_stop_although_another_one_was_under_way() {
    for stops in [false, true] {
        let mut config = config();
        config.signals.rewrite.leader.insert(Signal(libc::SIGINT), Some(Signal(libc::SIGUSR1)));
        config.signals.rewrite.leader.insert(Signal(libc::SIGUSR1), None);
        let mut world = World::leading(config);
        if stops {
            world.step_down(9, Reason::StepDown);
        }
        world.take();
        world.feed(Input::Signal(libc::SIGINT));
        assert!(world.wants(&to_main(libc::SIGUSR1)) && !world.wants(&to_main(libc::SIGTERM)));
        let stopping = ToElector::Stopping { term: Term(1), reason: Reason::Signal, at: world.now };
        assert_eq!(world.wants(&Action::Tell(stopping)), !stops);
    }
}

#[test]
fn a_key_ends_a_replica_that_follows_whatever_its_workload_would_get() {
    for key in [libc::SIGINT, libc::SIGQUIT] {
        let mut config = config();
        config.signals.rewrite.leader.insert(Signal(key), None);
        let mut world = World::new(config);
        world.feed(Input::Signal(key));
        assert_eq!(world.take(), [Action::Tell(ToElector::Shutdown)]);
    }
}

#[test]
fn init_ends_although_the_proof_that_a_fresh_elector_asks_for_cannot_be_given_again() {
    let mut world = World::leading(config());
    world.feed(Input::Signal(libc::SIGTERM));
    world.step_down_proved(Reason::Signal, Exit::Code(0));
    world.replace_elector();
    world.greet();
    world.step_down(1, Reason::Signal);
    world.never_proved(ms(60_000));
    assert_eq!(world.actions.last(), Some(&Action::Exit(0)));
}

#[test]
fn a_second_term_leaves_the_grace_of_a_loss_and_a_third_none() {
    let mut world = World::leading(config());
    world.feed(TERM);
    world.feed(TERM);
    world.take();
    let kill_at = world.now + Duration::from_secs(4);
    let mut third = world.clone();
    world.only_at(kill_at, &Action::Sweep);
    third.feed(TERM);
    third.due();
    assert!(third.wants(&Action::Sweep));
}

#[test]
fn int_and_quit_hasten_no_stop_and_the_first_term_after_them_is_passed_on() {
    let mut world = World::leading(config());
    world.feed(Input::Signal(libc::SIGQUIT));
    world.feed(Input::Signal(libc::SIGINT));
    world.feed(Input::Signal(libc::SIGINT));
    world.take();

    world.feed(TERM);
    assert_eq!(world.take(), [to_main(libc::SIGTERM), to_main(libc::SIGCONT)]);
    world.wake_until((world.now + config().workload.stop.loss_grace).before(tick()));
    assert!(!world.wants(&Action::Sweep), "the whole grace runs");

    world.feed(TERM);
    assert_eq!(world.take(), [], "the stop signal is sent once");
    world.wake_until(world.now + config().workload.stop.loss_grace);
    assert!(world.wants(&Action::Sweep), "a second TERM leaves the grace of a loss");
}

#[test]
fn a_third_term_waits_for_the_release_and_a_fourth_does_not() {
    let mut world = World::leading(config());
    world.step_down(9, Reason::Signal);
    for _ in 0..3 {
        world.feed(TERM);
    }
    world.exit_proved(Exit::Signal(libc::SIGKILL));
    assert!(!world.wants(&Action::Exit(137)), "{:?}", world.actions);
    assert_eq!(world.stopped(), Some((9, Then::Exit)));
    let mut fourth = world.clone();

    world.released_ends_with(137);

    fourth.feed(TERM);
    assert_eq!(fourth.actions.last(), Some(&Action::Exit(137)));
}

#[test]
fn other_signals_are_passed_on_rewritten_while_leading_and_dropped_while_following() {
    let mut config = config();
    config.signals.rewrite.leader.insert(Signal(libc::SIGHUP), Some(Signal(libc::SIGUSR1)));
    config.signals.rewrite.leader.insert(Signal(libc::SIGWINCH), None);
    let mut world = World::new(config);
    let signals = [libc::SIGWINCH, libc::SIGHUP, libc::SIGUSR2];
    signals.into_iter().for_each(|signal| world.feed(Input::Signal(signal)));
    assert_eq!(world.take(), []);
    world.leads();
    signals.into_iter().for_each(|signal| world.feed(Input::Signal(signal)));
    assert_eq!(world.take(), [to_main(libc::SIGUSR1), to_main(libc::SIGUSR2)]);
}

#[test]
fn a_group_that_is_to_be_stopped_gets_the_configured_signal_and_what_is_forwarded() {
    let mut config = config();
    config.workload.stop.kill_mode = config::KillMode::Group;
    config.workload.stop.signal = Signal(libc::SIGUSR2);
    let mut world = World::leading(config);
    for (signal, sent) in [(libc::SIGHUP, libc::SIGHUP), (libc::SIGTERM, libc::SIGUSR2)] {
        world.feed(Input::Signal(signal));
        assert!(world.wants(&Action::Signal { target: Target::Group(MAIN), signal: Signal(sent) }));
    }
}

#[test]
fn a_term_won_while_ending_starts_nothing_and_is_given_back() {
    let mut world = World::new(config());
    world.feed(TERM);
    world.take();
    world.lead(1);
    let stopping = ToElector::Stopping { term: Term(1), reason: Reason::Signal, at: world.now };
    assert_eq!(world.tells(), [acknowledged(1, 0), stopping]);
    world.step_down(9, Reason::Signal);
    world.prove();
    assert_eq!(world.stopped(), Some((9, Then::Exit)));
}

#[test]
fn with_the_api_dead_the_release_is_waited_for_within_a_bound() {
    let mut world = World::leading(config());
    world.feed(TERM);
    world.step_down_proved(Reason::Signal, Exit::Code(0));
    world.take();
    world.wake_until(ms(7000).before(tick()));
    assert_eq!(world.take(), []);
    world.wake_until(ms(7000));
    assert!(world.wants(&Action::Exit(0)));
    let says_so = |action: &Action| matches!(action, Action::Warn(line) if line.contains("what became of the Lease"));
    assert!(world.actions.iter().any(says_so), "{:?}", world.actions);
}

#[test]
fn an_elector_that_dies_before_the_release_is_replaced_for_it_and_told_of_the_end() {
    let mut world = World::leading(config());
    world.feed(TERM);
    world.step_down_proved(Reason::Signal, Exit::Code(0));
    let initial = world.replace_elector();
    assert!(initial.shutdown);
    assert_eq!(initial.resume.unwrap().stopping, Some(Reason::Signal));
}

#[test]
fn no_elector_is_started_for_a_release_when_e_is_past() {
    let mut world = World::leading(config());
    world.feed(TERM);
    world.wake_until(deadlines(ms(1000)).hard);
    world.take();
    world.feed(Input::ElectorEnded);
    world.exit(Exit::Signal(libc::SIGKILL));
    world.sleep_until(deadlines(ms(1000)).end);
    world.feed(Input::Scanned(Scan { clean: true, ..Scan::default() }));
    assert_eq!(world.actions.last(), Some(&Action::Exit(137)));
}

#[test]
fn term_during_the_release_of_a_step_down_ends_init_after_it() {
    let mut world = World::leading(config());
    world.step_down_proved(Reason::StepDown, Exit::Code(0));
    world.told(ToInit::Releasing { term: Term(1), serial: 1 });
    world.take();
    world.feed(TERM);
    assert_eq!(world.take(), []);
    world.told(ToInit::Ended { term: Term(1), backoff: None });
    assert_eq!(world.take(), [Action::Tell(ToElector::Shutdown)]);
}

#[test]
fn term_with_a_restart_pending_starts_nothing() {
    let mut config = config();
    config.workload.on_exit = OnExit::Restart;
    let mut world = World::leading(config);
    world.exit_proved(Exit::Code(3));
    world.take();
    world.feed(TERM);
    world.sleep_until(ms(3000));
    world.due();
    assert!(world.spawns().is_none());
}

#[test]
fn term_after_a_term_was_lost_ends_with_0() {
    let mut world = World::leading(config());
    world.step_down_proved(Reason::LostToHolder, Exit::Signal(libc::SIGTERM));
    world.told(ToInit::Ended { term: Term(1), backoff: None });
    world.feed(TERM);
    world.done_ends_with(0);
}

#[test]
fn ctrl_c_on_a_terminal_that_was_handed_over_is_a_stop_and_no_restart() {
    let mut config = config();
    config.workload.on_exit = OnExit::Restart;
    let mut world = World::leading(config.clone());
    world.exit(Exit::Signal(libc::SIGINT));
    assert!(matches!(world.tells().first(), Some(ToElector::Restarting { .. })), "init itself has no terminal here");
    let mut world = World::of(config, true, true);
    world.due();
    world.greet();
    world.leads();
    let mut crashed = world.clone();
    crashed.exit(Exit::Code(3));
    assert!(matches!(crashed.tells().first(), Some(ToElector::Restarting { .. })), "no key ended it");
    world.exit(Exit::Signal(libc::SIGINT));
    assert_eq!(world.tells(), [ToElector::Stopping { term: Term(1), reason: Reason::Signal, at: world.now }]);
}

#[test]
fn the_last_line_names_the_end_of_the_program_only_if_the_exit_code_is_of_it() {
    let mut world = World::leading(config());

    world.exit_proved(Exit::Code(3));

    assert_eq!(world.agent.describe_end(3).unwrap(), "exiting with 3: the program ended with exit code 3");
    assert_eq!(world.agent.describe_end(127).unwrap(), "exiting with 127");
}
