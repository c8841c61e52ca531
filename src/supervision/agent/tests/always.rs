//! `runs: always`: the workload is told its role, and believed.

use super::*;
use crate::{
    config::{Hook, HookKind},
    link,
    supervision::ProgramEnv,
};

mod demotion;
mod promotion;
mod standby;

const HOOK: i32 = 200;

fn always(acknowledge: Acknowledge) -> Config {
    told_by_signals(config(), acknowledge)
}

fn hooked(acknowledge: Acknowledge) -> Config {
    let hook = || Hook { command: vec!["tell".into()], timeout: Duration::from_secs(3), ..Hook::default() };
    let mut config = always(acknowledge);
    config.hooks.after_lead = hook();
    config.hooks.before_follow = hook();
    config
}

/// A crash is followed by another run.
fn restarting() -> Config {
    let mut config = always(Acknowledge::None);
    config.workload.on_exit = OnExit::Restart;
    config
}

/// Runs as a standby.
fn standby(config: Config) -> World {
    let mut world = World::standby(config);
    world.take();
    world
}

#[test]
fn a_standby_that_is_told_to_end_tells_its_elector_before_its_workload_has_stopped_and_ends_with_its_code() {
    let mut world = standby(always(Acknowledge::Notify));

    world.feed(Input::Signal(libc::SIGTERM));

    assert!(world.wants(&to_main(libc::SIGTERM)));
    assert!(world.wants(&Action::Tell(ToElector::Shutdown)), "{:?}", world.actions);
    world.told(ToInit::Done);
    assert!(!world.actions.iter().any(|action| matches!(action, Action::Exit(_))), "the standby has its grace");
    world.exit_proved(Exit::Code(7));
    assert_eq!(world.actions.last(), Some(&Action::Exit(7)));
}

#[test]
fn a_lease_that_came_while_a_standby_stops_is_given_back_before_it_has() {
    let mut world = standby(always(Acknowledge::Notify));
    world.feed(Input::Signal(libc::SIGTERM));
    world.take();

    world.lead(1);
    world.step_down(9, Reason::Signal);

    assert_eq!(world.stopped(), Some((9, Then::Exit)));
    assert!(world.agent.hard().is_none(), "nothing leads");
    world.told(ToInit::Ended { term: Term(1), backoff: None });
    world.exit_proved(Exit::Code(0));
    world.done_ends_with(0);
}

#[test]
fn a_standby_that_never_led_answers_a_step_down_as_it_is_and_that_is_no_death() {
    let mut world = standby(always(Acknowledge::None));
    world.lead_too_late(1);

    world.step_down(9, Reason::StepDown);

    let lives_on = |stop: &link::Stop| stop.began.is_some() && stop.exited.is_none();
    let demoted = |action: &Action| matches!(action, Action::Tell(ToElector::Stopped { stop, .. }) if lives_on(stop));
    assert!(world.actions.iter().any(demoted), "{:?}", world.actions);
}

/// Leads, acknowledged by a notification.
fn leader() -> World {
    let mut world = standby(always(Acknowledge::Notify));
    world.promoted();
    world.take();
    world
}

/// Leads, acknowledged as is asked for and by its hook.
fn hooked_leader(acknowledge: Acknowledge) -> World {
    leader_of(hooked(acknowledge))
}

fn leader_of(config: Config) -> World {
    let mut world = standby(config);
    world.lead(1);
    world.feed(Input::Role(RoleInput::Signalled));
    world.feed(Input::Role(RoleInput::HookForked { pid: HOOK }));
    world.feed(Input::Role(RoleInput::Notified(Role::Leader)));
    world.feed(Input::Reaped { pid: HOOK, exit: Exit::Code(0) });
    world.take();
    world
}

fn promotion(world: &World) -> Action {
    tells(Role::Leader, libc::SIGUSR1, Some(deadlines(world.now).soft))
}

fn demotion() -> Action {
    tells(Role::Standby, libc::SIGUSR2, None)
}

fn tells(role: Role, signal: i32, not_after: Option<Instant>) -> Action {
    Action::TellRole { pid: MAIN, role, signal: Signal(signal), not_after }
}

fn started(world: &World) -> Action {
    Action::Tell(ToElector::Started { term: Term(1), pid: MAIN, at: world.now })
}

fn renew(world: &mut World, second: u64) {
    world.wake_until(ms(second * 1000));
    world.extend(1, second, ms(second * 1000));
    world.take();
}

#[test]
fn a_signal_that_tells_a_role_is_not_passed_on_from_outside() {
    for (role, mut world) in [(libc::SIGUSR1, standby(always(Acknowledge::Notify))), (libc::SIGUSR2, leader())] {
        world.feed(Input::Signal(role));
        assert!(!world.wants(&to_main(role)));
        world.feed(Input::Signal(libc::SIGHUP));
        assert!(world.wants(&to_main(libc::SIGHUP)));
    }
}

#[test]
fn a_key_that_tells_a_role_is_a_stop_all_the_same() {
    let mut config = always(Acknowledge::None);
    config.signals.on_lead = Some(Signal(libc::SIGINT));
    let mut world = standby(config);
    world.feed(Input::Signal(libc::SIGINT));
    assert!(!world.wants(&to_main(libc::SIGINT)));
    assert!(world.wants(&to_main(libc::SIGTERM)));
}

#[test]
fn a_lease_is_given_back_where_the_remains_of_a_standby_let_nothing_start() {
    for held_before in [false, true] {
        let mut world = standby(restarting());
        world.exit(Exit::Code(1));
        if held_before {
            world.lead(1);
        }
        world.never_proved(ms(2000).before(tick()));
        assert_eq!(world.stops(), None);
        world.never_proved(ms(2500));
        if !held_before {
            world.lead(1);
        }
        assert_eq!(world.stops(), Some(Reason::SpawnFailed), "{:?}", world.actions);
        world.step_down(9, Reason::SpawnFailed);
        assert_eq!(world.stopped(), Some((9, Then::Follow)));
    }
}

#[test]
fn nothing_is_started_in_a_term_that_was_given_up_even_if_the_remains_of_the_standby_die_after_all() {
    let mut world = standby(restarting());
    world.exit(Exit::Code(1));
    world.lead(1);
    world.never_proved(ms(2050));
    world.take();

    world.wake_until(ms(3000));
    world.feed(Input::Scanned(Scan { clean: true, ..Scan::default() }));

    assert_eq!(world.spawns(), None);
    assert!(!world.agent.leads());
}

#[test]
fn a_standby_that_waits_to_be_started_again_is_started_at_once_to_lead() {
    let mut config = restarting();
    config.workload.restart.delay = Duration::from_secs(30);
    let mut world = standby(config);
    world.exit_proved(Exit::Code(1));
    world.take();
    world.lead(1);
    assert!(matches!(world.spawns(), Some((Some(Role::Leader), Some(_)))));
}

#[test]
fn term_ends_init_although_a_standby_leaves_what_does_not_die() {
    for leaves in [true, false] {
        let mut world = standby(always(Acknowledge::None));
        world.feed(Input::Signal(libc::SIGTERM));
        if leaves {
            world.exit(Exit::Code(0));
        }
        world.never_proved(ms(40_000));
        assert!(matches!(world.actions.last(), Some(Action::Exit(_))), "{:?}", world.actions);
    }
}

#[test]
fn a_restart_while_leading_is_told_so_at_its_start() {
    let mut config = always(Acknowledge::Notify);
    config.workload.on_exit = OnExit::Restart;
    let mut world = standby(config);
    world.promoted();
    world.exit_proved(Exit::Code(1));
    world.take();
    world.sleep_until(ms(2000));
    world.due();
    assert_eq!(
        world.spawns(),
        Some((Some(Role::Leader), Some(Launch { info: Some(info()), not_after: deadlines(ms(1000)).soft })))
    );
    world.run();
    assert!(world.wants(&started(&world)));
    assert_eq!(world.agent.hard(), Some(deadlines(ms(1000)).hard));
}

#[test]
fn signals_reach_the_workload_rewritten_for_its_role_while_it_ends_too() {
    let mut config = always(Acknowledge::None);
    config.signals.rewrite.standby.insert(Signal(libc::SIGHUP), Some(Signal(libc::SIGWINCH)));
    config.signals.rewrite.leader.insert(Signal(libc::SIGHUP), Some(Signal(libc::SIGURG)));
    let standby = standby(config);
    let mut leader = standby.clone();
    leader.lead(1);
    leader.feed(Input::Role(RoleInput::Signalled));
    for (mut world, signal) in [(standby, libc::SIGWINCH), (leader, libc::SIGURG)] {
        for ends in [false, true] {
            if ends {
                world.feed(Input::Signal(libc::SIGTERM));
            }
            world.take();
            world.feed(Input::Signal(libc::SIGHUP));
            assert_eq!(world.take(), [to_main(signal)]);
        }
    }
}

#[test]
fn term_while_a_standby_waits_to_be_started_again_ends_with_0() {
    let mut config = always(Acknowledge::Notify);
    config.workload.on_exit = OnExit::Restart;
    let mut world = standby(config);
    world.exit_proved(Exit::Code(3));

    world.feed(Input::Signal(libc::SIGTERM));
    world.done_ends_with(0);
}

#[test]
fn a_standby_that_ends_with_on_exit_exit_ends_init() {
    let mut world = standby(always(Acknowledge::None));
    world.exit_proved(Exit::Code(5));
    assert!(world.wants(&Action::Tell(ToElector::Shutdown)));
    world.done_ends_with(5);
}

#[test]
fn term_stops_a_leader_as_a_whole() {
    let mut world = leader();
    world.feed(Input::Signal(libc::SIGTERM));
    assert!(world.wants(&to_main(libc::SIGTERM)));
    world.step_down_proved(Reason::Signal, Exit::Code(0));
    assert_eq!(world.stopped(), Some((9, Then::Exit)));
    assert!(world.spawns().is_none());
}
