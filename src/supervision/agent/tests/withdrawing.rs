//! A planned stop begins once the leader's address is withdrawn (law 19).

use super::*;
use crate::law::WITHDRAWAL;

const TERM: Input = Input::Signal(libc::SIGTERM);

/// Leads, and is published.
fn published() -> World {
    let mut config = config();
    config.service.endpoint_slice = Some("leader".into());
    World::leading(config)
}

fn withdrawn(world: &mut World) {
    world.told(ToInit::Withdrawn { term: Term(1) });
}

#[test]
fn a_signal_to_init_stops_once_the_address_is_withdrawn() {
    let mut world = published();
    world.feed(TERM);
    let stopping = ToElector::Stopping { term: Term(1), reason: Reason::Signal, at: world.now };
    assert_eq!(world.take(), [Action::Tell(stopping)]);
    assert_eq!(world.agent.term_status().soft, Instant::BOOT, "nothing long is begun any more");
    world.step_down(9, Reason::Signal);
    assert_eq!(world.take(), []);

    withdrawn(&mut world);

    assert_eq!(world.take(), [to_main(libc::SIGTERM), to_main(libc::SIGCONT)]);
    withdrawn(&mut world);
    assert_eq!(world.take(), []);
    world.exit_proved(Exit::Signal(libc::SIGTERM));
    assert_eq!(world.stopped(), Some((9, Then::Exit)));
}

#[test]
fn an_interrupt_or_a_quit_is_passed_on_once_the_address_is_withdrawn_unless_it_asks_for_nothing() {
    for (signal, passed) in [(libc::SIGQUIT, libc::SIGQUIT), (libc::SIGINT, libc::SIGUSR1)] {
        let mut config = config();
        config.service.endpoint_slice = Some("leader".into());
        let rewrite = &mut config.signals.rewrite.leader;
        rewrite.insert(Signal(libc::SIGINT), Some(Signal(libc::SIGUSR1)));
        let mut world = World::leading(config);
        world.feed(Input::Signal(signal));
        let stopping = ToElector::Stopping { term: Term(1), reason: Reason::Signal, at: world.now };
        assert_eq!(world.take(), [Action::Tell(stopping)]);

        withdrawn(&mut world);

        assert_eq!(world.take(), [to_main(passed), to_main(libc::SIGCONT)]);
    }

    let mut config = config();
    config.service.endpoint_slice = Some("leader".into());
    config.signals.rewrite.leader.insert(Signal(libc::SIGQUIT), None);
    let mut world = World::leading(config);
    world.feed(Input::Signal(libc::SIGQUIT));
    assert_eq!(world.take(), []);
    world.feed(TERM);
    world.take();
    world.feed(Input::Signal(libc::SIGQUIT));
    assert_eq!(world.take(), [], "the wait goes on");
}

#[test]
fn a_signal_that_asks_for_no_stop_ends_no_wait() {
    let mut world = published();
    world.feed(TERM);
    world.take();

    world.feed(Input::Signal(libc::SIGHUP));

    assert_eq!(world.take(), [to_main(libc::SIGHUP)]);
    withdrawn(&mut world);
    assert_eq!(world.take()[0], to_main(libc::SIGTERM));
}

#[test]
fn a_step_down_stops_once_the_address_is_withdrawn() {
    let mut world = published();
    world.step_down(9, Reason::StepDown);
    assert_eq!(world.take(), []);

    withdrawn(&mut world);

    assert!(world.wants(&to_main(libc::SIGTERM)));
    world.exit_proved(Exit::Code(0));
    assert_eq!(world.stopped(), Some((9, Then::Follow)));
}

#[test]
fn the_wait_is_bounded() {
    for ask in [|world: &mut World| world.feed(TERM), |world: &mut World| world.step_down(9, Reason::StepDown)] {
        let mut world = published();
        ask(&mut world);
        let end = world.now + WITHDRAWAL;
        world.only_at(end, &to_main(libc::SIGTERM));
    }
}

#[test]
fn neither_a_loss_nor_s_nor_a_second_signal_waits_and_grace_counts_from_the_stop() {
    let mut lost = published();
    lost.step_down(9, Reason::LostToHolder);
    assert!(lost.wants(&to_main(libc::SIGTERM)));

    for meanwhile in [|world: &mut World| world.step_down(10, Reason::LostToHolder), |world: &mut World| world.feed(TERM)] {
        let mut world = published();
        world.feed(TERM);
        world.take();
        meanwhile(&mut world);
        assert!(world.wants(&to_main(libc::SIGTERM)));
        world.wake_until(world.now + config().workload.stop.loss_grace);
        assert!(world.wants(&Action::Sweep), "{:?}", world.actions);
    }

    let mut cut_off = published();
    cut_off.sleep_until(deadlines(ms(1000)).soft);
    cut_off.due();
    assert!(cut_off.wants(&to_main(libc::SIGTERM)));
}

#[test]
fn a_workload_that_ends_meanwhile_is_not_started_again() {
    for signal in [true, false] {
        let mut config = config();
        config.service.endpoint_slice = Some("leader".into());
        config.workload.on_exit = OnExit::Restart;
        config.workload.restart.delay = Duration::ZERO;
        let mut world = World::leading(config);
        if signal {
            world.feed(TERM);
        }
        world.step_down(9, Reason::StepDown);

        world.exit_proved(Exit::Code(1));

        assert_eq!(world.spawns(), None);
        let then = if signal { Then::Exit } else { Then::Follow };
        assert_eq!(world.stopped(), Some((9, then)));
    }
}

#[test]
fn a_workload_that_ends_meanwhile_has_ended_in_the_stop_that_was_asked_for() {
    let mut world = published();
    assert_eq!(world.agent.config.config.workload.on_exit, OnExit::Exit);
    world.step_down(9, Reason::StepDown);
    world.exit_proved(Exit::Code(0));
    assert_eq!(world.stopped(), Some((9, Then::Follow)));

    // Init stood still, and the second guard killed it.
    let mut late = published();
    late.step_down(9, Reason::StepDown);
    late.sleep_until(deadlines(ms(1000)).hard);
    late.exit(Exit::Signal(libc::SIGKILL));
    assert!(late.agent.shutdown.is_none());

    let mut world = published();
    world.feed(TERM);
    world.step_down(9, Reason::Signal);
    world.exit_proved(Exit::Code(3));
    assert_eq!(world.stopped(), Some((9, Then::Exit)));
    world.told(ToInit::Done);
    assert!(world.wants(&Action::Exit(3)), "{:?}", world.actions);
}

#[test]
fn a_workload_that_waits_to_be_started_again_is_proved_gone_and_stays_so() {
    let mut config = config();
    config.service.endpoint_slice = Some("leader".into());
    config.workload.on_exit = OnExit::Restart;
    let mut world = World::leading(config);
    world.exit(Exit::Code(1));
    world.take();

    world.step_down(9, Reason::StepDown);

    world.prove();
    assert_eq!(world.stopped(), Some((9, Then::Follow)));
    world.wake_until(world.now + Duration::from_secs(60));
    assert_eq!(world.spawns(), None);
}

#[test]
fn no_proof_answers_what_was_put_off_and_the_next_elector_asks_anew() {
    let mut world = published();
    world.step_down(9, Reason::StepDown);
    world.feed(Input::ElectorEnded);
    world.due();
    world.greet();

    world.wake_until(world.now + WITHDRAWAL);

    assert!(world.wants(&to_main(libc::SIGTERM)));
    world.take();
    world.exit_proved(Exit::Code(0));
    assert_eq!(world.stopped(), None);
    world.step_down(1, Reason::StepDown);
    world.prove();
    assert_eq!(world.stopped(), Some((1, Then::Follow)));
}

#[test]
fn the_wait_ends_at_s() {
    let mut world = published();
    let soft = deadlines(ms(1000)).soft;
    world.sleep_until(soft.before(Duration::from_millis(1)));
    world.feed(TERM);

    world.wake_until(soft);

    assert!(world.wants(&to_main(libc::SIGTERM)));
}

#[test]
fn where_nobody_can_withdraw_it_nothing_waits() {
    let mut deaf = published();
    deaf.feed(Input::ElectorEnded);
    deaf.feed(TERM);
    assert!(deaf.wants(&to_main(libc::SIGTERM)));

    let mut following = World::new(Config::clone(&published().agent.config.config));
    following.feed(TERM);
    assert_eq!(following.take(), [Action::Tell(ToElector::Shutdown)]);
}
