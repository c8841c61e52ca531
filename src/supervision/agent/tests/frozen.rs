//! `runs: frozen`: started and stopped everywhere, and continued by a Lead alone.

use super::*;
use crate::{
    config::{Hook, HookKind},
    notification::Notification,
};

fn frozen() -> Config {
    let mut config = config();
    config.workload.runs = Runs::Frozen;
    config
}

fn ready_first() -> Config {
    let mut config = frozen();
    config.workload.readiness.notify = true;
    config
}

/// Frozen, and proved to be.
fn standby() -> World {
    let mut world = World::standby(frozen());
    assert!(world.wants(&Action::Freeze));
    world.looked(true);
    world.take();
    world
}

/// Continued, and leads.
fn leader() -> World {
    let mut world = standby();
    world.lead(1);
    world.feed(Input::Role(RoleInput::Signalled));
    world.take();
    world
}

fn resume(world: &World) -> Option<Instant> {
    world.actions.iter().find_map(|action| if let Action::Resume { not_after } = action { Some(*not_after) } else { None })
}

impl World {
    fn looked(&mut self, frozen: bool) {
        self.feed(Input::Role(RoleInput::Looked { frozen }));
    }

    fn signals(&self) -> bool {
        self.actions.iter().any(|action| matches!(action, Action::Signal { .. }))
    }
}

#[test]
fn a_standby_is_frozen_as_soon_as_it_is_ready() {
    let mut world = World::standby(ready_first());
    assert!(!world.wants(&Action::Freeze));
    world.feed(Input::Notified(Notification::Ready));
    assert!(world.wants(&Action::Freeze));
}

#[test]
fn one_that_has_to_lead_is_frozen_first_however_ready_it_is() {
    let mut world = World::standby(ready_first());
    world.lead(1);
    assert!(world.wants(&Action::Freeze) && resume(&world).is_none() && !world.agent.leads());
    world.looked(false);
    assert!(resume(&world).is_none(), "not all of it was stopped");
    world.wake_until(world.now + Duration::from_millis(1));
    world.looked(true);
    assert!(resume(&world).is_some());
}

#[test]
fn a_lead_continues_it_until_s_and_it_leads_once_it_was_continued() {
    let mut world = standby();
    world.lead(1);
    assert_eq!(resume(&world), Some(deadlines(world.now).soft));
    assert!(world.agent.leads() && world.agent.hard().is_some(), "S and H are armed before");
    let has_started =
        |world: &World| world.actions.iter().any(|action| matches!(action, Action::Tell(ToElector::Started { .. })));
    assert!(!has_started(&world));
    world.feed(Input::Role(RoleInput::Signalled));
    assert!(has_started(&world));
}

#[test]
fn nothing_is_continued_at_s() {
    let mut world = standby();
    world.lead_too_late(1);
    assert!(resume(&world).is_none() && !world.agent.leads());
    world.step_down(9, Reason::StepDown);
    assert_eq!(world.stopped(), Some((9, Then::Follow)), "it is as frozen as before");
    assert!(!world.wants(&Action::Sweep));
}

#[test]
fn one_that_was_not_continued_for_certain_is_killed_and_not_asked() {
    let mut world = standby();
    world.lead(1);
    world.take();
    world.feed(Input::Role(RoleInput::NotSignalled));
    assert!(!world.signals(), "{:?}", world.actions);
    world.step_down(9, Reason::NotAcknowledged);
    world.exit_proved(Exit::Signal(libc::SIGKILL));
    assert_eq!(world.spawns(), Some((Some(Role::Standby), None)), "a fresh one");
}

#[test]
fn a_frozen_standby_gets_sigkill_and_nothing_else() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut world = standby();
        world.feed(Input::Signal(signal));
        world.due();
        assert!(world.wants(&Action::Sweep) && !world.signals(), "{:?}", world.actions);
    }
    for signal in [libc::SIGHUP, libc::SIGCONT, libc::SIGUSR1] {
        let mut world = standby();
        world.feed(Input::Signal(signal));
        assert!(!world.signals(), "{:?}", world.actions);
    }
    let mut world = World::standby(ready_first());
    world.feed(Input::Signal(libc::SIGTERM));
    world.due();
    assert!(world.wants(&Action::Sweep) && !world.signals(), "one that is not frozen yet has no Lease either");
}

#[test]
fn one_that_is_about_to_be_killed_is_not_continued_by_another_signal_first() {
    let mut waiting = standby();
    waiting.feed(Input::Signal(libc::SIGINT));
    let mut promoted = standby();
    promoted.lead(1);
    promoted.take();
    promoted.step_down(9, Reason::LostCleared);
    for mut world in [waiting, promoted] {
        world.feed(Input::Signal(libc::SIGCONT));
        world.feed(Input::Signal(libc::SIGTERM));
        assert!(!world.signals(), "{:?}", world.actions);
        world.due();
        assert!(world.wants(&Action::Sweep));
    }
}

#[test]
fn a_frozen_standby_that_ends_with_init_leaves_no_exit_code() {
    let mut world = standby();
    world.feed(Input::Signal(libc::SIGTERM));
    world.exit_proved(Exit::Signal(libc::SIGKILL));
    world.done_ends_with(0);
}

#[test]
fn one_that_somebody_else_continues_is_killed_and_another_one_frozen_after_a_while() {
    for at_once in [true, false] {
        let mut world = standby();
        if at_once {
            world.feed(Input::Role(RoleInput::Continued));
        } else {
            world.wake_until(world.now + Duration::from_millis(200));
        }
        assert!(world.wants(&Action::LookFrozen) && !world.wants(&Action::Freeze), "to stop it again would hide it");
        world.looked(false);
        world.due();
        assert!(world.wants(&Action::Sweep) && !world.signals(), "{:?}", world.actions);
        world.exit_proved(Exit::Signal(libc::SIGKILL));
        assert!(world.spawns().is_none());
        world.wake_until(world.now + Duration::from_secs(1));
        assert_eq!(world.spawns(), Some((Some(Role::Standby), None)));
    }
}

#[test]
fn one_that_cannot_be_stopped_is_killed_after_a_kill_margin() {
    let mut world = World::standby(frozen());
    let began = world.now;
    while world.now < began + Duration::from_secs(1) {
        assert!(!world.wants(&Action::Sweep));
        world.take();
        world.looked(false);
        world.wake_until(world.now + Duration::from_millis(100));
    }
    world.looked(false);
    world.due();
    assert!(world.wants(&Action::Sweep));
}

#[test]
fn a_leader_is_stopped_like_any_other_and_another_standby_frozen_after_the_proof() {
    let mut world = leader();
    world.step_down(9, Reason::StepDown);
    assert!(world.wants(&to_main(libc::SIGTERM)) && world.wants(&to_main(libc::SIGCONT)));
    assert!(world.spawns().is_none());
    world.exit_proved(Exit::Code(0));
    assert_eq!(world.stopped_and_spawns(), (Some((9, Then::Follow)), true));
}

impl World {
    fn stopped_and_spawns(&mut self) -> (Option<(u64, Then)>, bool) {
        let spawns = self.spawns() == Some((Some(Role::Standby), None));
        (self.stopped(), spawns)
    }
}

#[test]
fn the_hook_before_a_lead_comes_before_it_is_continued() {
    let mut config = frozen();
    config.hooks.before_lead = Hook { command: vec!["hook".into()], ..Hook::default() };
    let mut world = World::standby(config);
    world.looked(true);
    world.lead(1);
    assert!(resume(&world).is_none() && world.agent.leads());
    assert!(world.actions.iter().any(|action| matches!(action, Action::Hook { hook: HookKind::BeforeLead, .. })));
    world.feed(Input::Role(RoleInput::HookForked { pid: 300 }));
    world.feed(Input::Reaped { pid: 300, exit: Exit::Code(0) });
    assert!(resume(&world).is_some());
}

#[test]
fn one_whose_hook_before_a_lead_fails_is_killed_and_not_asked() {
    let mut config = frozen();
    config.hooks.before_lead = Hook { command: vec!["hook".into()], ..Hook::default() };
    let mut world = World::standby(config);
    world.looked(true);
    world.lead(1);
    world.feed(Input::Role(RoleInput::HookForked { pid: 300 }));
    world.take();

    world.feed(Input::Reaped { pid: 300, exit: Exit::Code(1) });

    world.due();
    assert!(world.wants(&Action::Sweep) && !world.signals(), "{:?}", world.actions);
}

#[test]
fn a_frozen_standby_that_ends_is_followed_by_another_whatever_is_to_be_done_at_the_end_of_a_leader() {
    for on_exit in [OnExit::Exit, OnExit::Follow, OnExit::Restart] {
        let mut config = frozen();
        config.workload.on_exit = on_exit;
        config.workload.restart.burst = 1;
        let mut world = World::standby(config);
        world.looked(true);
        for _ in 0..3 {
            world.exit_proved(Exit::Signal(libc::SIGKILL));
            world.take();
            world.wake_until(world.now + Duration::from_secs(300));
            assert_eq!(world.spawns().map(|(role, _)| role), Some(Some(Role::Standby)), "{on_exit:?}: {:?}", world.actions);
            world.run();
            world.looked(true);
        }
    }
}

#[test]
fn one_that_ends_while_the_lease_waits_for_it_is_followed_by_another_at_once() {
    let mut world = World::standby(ready_first());
    world.lead(1);
    assert!(world.wants(&Action::Freeze));
    world.take();
    world.exit_proved(Exit::Signal(libc::SIGKILL));
    assert_eq!(world.spawns().map(|(role, _)| role), Some(Some(Role::Leader)), "{:?}", world.actions);
}

#[test]
fn one_that_says_that_it_stops_and_does_not_is_killed_after_its_grace() {
    let mut world = World::standby(ready_first());
    world.feed(Input::Notified(Notification::Stopping));
    assert!(!world.agent.workload.is_stopping());
    let grace = world.agent.config.config.workload.stop.grace;
    world.wake_until(world.now + grace);
    assert!(world.agent.workload.is_stopping(), "{:?}", world.actions);
}

#[test]
fn one_that_crashed_is_started_as_the_leader_if_the_lease_comes_meanwhile() {
    let mut config = frozen();
    config.workload.on_exit = OnExit::Follow;
    let mut world = World::standby(config);
    world.looked(true);
    world.exit_proved(Exit::Signal(libc::SIGSEGV));
    world.take();
    world.lead(1);
    assert_eq!(world.spawns().map(|(role, launch)| (role, launch.is_some())), Some((Some(Role::Leader), true)));
    world.run();
    assert!(!world.wants(&Action::Freeze) && world.agent.leads());
}

#[test]
fn one_that_ends_just_after_it_was_continued_has_led_and_is_not_run_again() {
    let mut world = standby();
    world.lead(1);
    assert!(resume(&world).is_some());
    world.take();
    // SIGCONT is out, and the child that sent it is not reaped yet.
    world.exit_proved(Exit::Code(3));
    assert!(world.spawns().is_none(), "{:?}", world.actions);
    assert_eq!(world.tells(), [ToElector::Stopping { term: Term(1), reason: Reason::Exited, at: world.now }]);
}

#[test]
fn one_that_ends_before_it_was_ever_stopped_ends_its_replica_like_any_standby() {
    let mut world = World::standby(ready_first());
    world.take();
    world.exit_proved(Exit::Code(4));
    world.wake_until(world.now + Duration::from_secs(300));
    assert!(world.wants(&Action::Exit(4)) && world.spawns().is_none(), "{:?}", world.actions);
}

#[test]
fn one_that_is_killed_while_the_hook_before_its_lead_runs_lends_nobody_its_exit_code() {
    let mut config = frozen();
    (config.hooks.before_lead.command, config.hooks.before_lead.timeout) = (vec!["hook".into()], Duration::from_secs(3));
    let mut world = World::standby(config);
    world.looked(true);
    world.lead(1);
    world.feed(Input::Role(RoleInput::HookForked { pid: 300 }));
    world.feed(Input::Signal(libc::SIGTERM));
    world.step_down(9, Reason::Signal);
    world.exit_proved(Exit::Signal(libc::SIGKILL));
    world.told(ToInit::Releasing { term: Term(1), serial: 1 });
    world.told(ToInit::Ended { term: Term(1), backoff: None });
    world.told(ToInit::Done);
    assert!(world.wants(&Action::Exit(0)), "{:?}", world.actions);
}
