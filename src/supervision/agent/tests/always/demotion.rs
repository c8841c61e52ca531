//! Demotion: its acknowledgement is a proof, and without one the workload is killed.

use super::*;
use crate::notification::Notification;

#[test]
fn a_demotion_that_was_not_told_begins_no_hook_and_is_a_kill_and_not_a_proof() {
    for acknowledge in [Acknowledge::None, Acknowledge::Notify, Acknowledge::Hook] {
        let mut world = hooked_leader(acknowledge);
        world.step_down(9, Reason::StepDown);
        world.feed(Input::Role(RoleInput::NotSignalled));
        world.due();
        assert!(world.wants(&Action::Sweep));
        assert!(!world.actions.iter().any(|action| matches!(action, Action::Hook { .. })));
        assert_eq!(world.stopped(), None);
        assert!(world.agent.leads());
    }
}

#[test]
fn an_acknowledged_demotion_is_the_proof_and_the_workload_lives_on() {
    let mut world = leader();
    world.step_down(9, Reason::StepDown);
    assert_eq!(world.take(), [demotion()], "a promotion that was told is not called off");
    world.feed(Input::Role(RoleInput::Signalled));
    assert_eq!(world.stopped(), None, "sent, and not acknowledged");
    world.feed(Input::Role(RoleInput::Notified(Role::Standby)));
    assert_eq!(world.stopped(), Some((9, Then::Follow)));
    assert!(!world.agent.leads());
    world.wake_until(deadlines(ms(1000)).end);
    assert!(!world.wants(&Action::KillAll));
}

#[test]
fn a_demotion_that_is_not_acknowledged_in_time_is_a_kill_and_a_fresh_standby_after_the_answer() {
    let mut world = leader();
    world.step_down(9, Reason::LostToHolder);
    world.feed(Input::Role(RoleInput::Signalled));
    world.take();
    world.wake_until(ms(5000).before(tick()));
    assert_eq!(world.take(), []);
    world.wake_until(ms(5000));
    let line = Action::Warn("the workload did not acknowledge its demotion in time and is killed".into());
    let at = |wanted: &Action| world.actions.iter().position(|action| action == wanted).unwrap();
    assert!(at(&Action::Sweep) < at(&line));
    world.exit(Exit::Signal(libc::SIGKILL));
    assert!(world.spawns().is_none());
    world.feed(Input::Scanned(Scan { clean: true, ..Scan::default() }));
    let answer = world.actions.iter().position(|action| matches!(action, Action::Tell(ToElector::Stopped { request: 9, .. })));
    let fresh = world.actions.iter().position(|action| *action == Action::Spawn { role: Some(Role::Standby), launch: None });
    assert!(answer.unwrap() < fresh.unwrap());
}

#[test]
fn no_fresh_standby_starts_while_nobody_asked_for_the_proof() {
    let mut world = leader();
    world.feed(Input::ElectorEnded);
    world.wake_until(deadlines(ms(1000)).hard);
    world.exit(Exit::Signal(libc::SIGKILL));
    world.feed(Input::Scanned(Scan { clean: true, ..Scan::default() }));
    world.due();
    assert!(world.spawns().is_none());
    world.feed(Input::ElectorStarted);
    world.step_down(1, Reason::Expired);
    world.prove();
    assert!(world.stopped().is_some());
    assert!(world.spawns().is_none(), "the elector's guard may not have heard of the proof");
    world.told(ToInit::Ended { term: Term(1), backoff: None });
    assert!(world.spawns().is_some());
}

#[test]
fn s_demotes_and_h_kills() {
    let mut world = leader();
    world.wake_until(deadlines(ms(1000)).soft);
    assert!(world.wants(&demotion()));
    world.take();
    world.only_at(deadlines(ms(1000)).hard, &Action::KillAll);
}

#[test]
fn a_demotion_is_acknowledged_by_the_word_and_by_the_exit_0_of_a_hook_that_is_told_why() {
    for (acknowledge, word_first) in [(Acknowledge::Hook, false), (Acknowledge::Notify, true), (Acknowledge::Notify, false)] {
        let mut world = hooked_leader(acknowledge);
        renew(&mut world, 3);
        world.step_down(9, Reason::StepDown);
        world.feed(Input::Role(RoleInput::Signalled));
        let (reason, not_after) = (Some(Reason::StepDown), deadlines(ms(3000)).hard);
        let told = ProgramEnv { info: Some(info()), reason, exit: None };
        assert!(world.wants(&Action::Hook { hook: HookKind::BeforeFollow, told, not_after }));
        world.feed(Input::Role(RoleInput::HookForked { pid: HOOK }));
        let word = Input::Role(RoleInput::Notified(Role::Standby));
        let exit = Input::Reaped { pid: HOOK, exit: Exit::Code(0) };
        let (first, second) = if word_first { (word, exit) } else { (exit, word) };
        world.feed(first);
        if acknowledge == Acknowledge::Notify {
            assert_eq!(world.stopped(), None);
            world.feed(second);
        }
        assert_eq!(world.stopped(), Some((9, Then::Follow)), "{acknowledge:?}");
    }
}

#[test]
fn a_loss_runs_the_hook_of_a_demotion_within_its_grace() {
    let mut world = hooked_leader(Acknowledge::Hook);
    world.step_down(9, Reason::LostToHolder);
    let kill_at = world.now + config().workload.stop.loss_grace;

    world.feed(Input::Role(RoleInput::Signalled));

    let told = ProgramEnv { info: Some(info()), reason: Some(Reason::LostToHolder), exit: None };
    assert!(world.wants(&Action::Hook { hook: HookKind::BeforeFollow, told, not_after: deadlines(ms(1000)).hard }));
    world.feed(Input::Role(RoleInput::HookForked { pid: HOOK }));
    world.take();
    world.only_at(kill_at, &Action::Sweep);
}

#[test]
fn a_leader_that_hangs_is_stopped_without_the_hook_of_a_demotion() {
    let mut config = hooked(Acknowledge::Hook);
    config.workload.liveness.notify = true;
    let mut world = leader_of(config);

    world.feed(Input::Notified(Notification::WatchdogTrigger));

    assert_eq!(world.stops(), Some(Reason::NotLive));
    assert!(!world.actions.iter().any(|action| matches!(action, Action::Hook { .. })));
    assert!(world.wants(&to_main(libc::SIGTERM)));
}

#[test]
fn an_orphan_that_is_reaped_is_not_the_end_of_the_hook() {
    let mut world = hooked_leader(Acknowledge::Hook);
    world.step_down(9, Reason::StepDown);
    world.feed(Input::Role(RoleInput::Signalled));
    world.feed(Input::Role(RoleInput::HookForked { pid: HOOK }));
    world.feed(Input::Reaped { pid: HOOK + 1, exit: Exit::Code(0) });
    assert_eq!(world.stopped(), None);
    world.feed(Input::Reaped { pid: HOOK, exit: Exit::Code(0) });
    assert_eq!(world.stopped(), Some((9, Then::Follow)));
}

#[test]
fn term_during_a_demotion_leaves_no_more_time_than_the_demotion_had() {
    let mut world = leader();
    world.step_down(9, Reason::LostToHolder);
    let kill_at = world.now + config().workload.stop.loss_grace;
    world.sleep_until(ms(3000));

    world.feed(Input::Signal(libc::SIGTERM));

    world.only_at(kill_at, &Action::Sweep);
}

#[test]
fn a_demotion_hook_that_fails_is_a_kill_at_once() {
    let mut world = hooked_leader(Acknowledge::Hook);
    world.step_down(9, Reason::StepDown);
    world.feed(Input::Role(RoleInput::Signalled));
    world.feed(Input::Role(RoleInput::HookForked { pid: HOOK }));
    world.take();
    world.feed(Input::Reaped { pid: HOOK, exit: Exit::Code(1) });
    world.due();
    assert!(world.wants(&Action::Sweep));
}
