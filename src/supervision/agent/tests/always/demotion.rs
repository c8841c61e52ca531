//! Demotion: its acknowledgement is a proof, and without one the workload is killed.

use super::*;

#[test]
fn a_demotion_whose_signal_may_not_be_sent_is_a_kill_and_not_a_proof() {
    for acknowledge in [Acknowledge::None, Acknowledge::Notify] {
        let mut world = standby(always(acknowledge));
        world.lead(1, None);
        world.feed(Input::Role(RoleInput::Promoted));
        world.feed(Input::Role(RoleInput::Notified(Role::Leader)));
        world.step_down(9, Reason::StepDown);
        world.take();
        world.feed(Input::Role(RoleInput::NotDemoted));
        world.due();
        assert!(world.wants(&Action::Walk));
        assert_eq!(world.stopped(), None);
        assert!(world.agent.leads());
    }
}

#[test]
fn an_acknowledged_demotion_is_the_proof_and_the_workload_lives_on() {
    let mut world = leader();
    world.step_down(9, Reason::StepDown);
    assert_eq!(world.take(), [Action::DrainNotify, demotion()]);
    world.feed(Input::Role(RoleInput::Demoted));
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
    world.feed(Input::Role(RoleInput::Demoted));
    world.take();
    world.wake_until(ms(5000).before(tick()));
    assert_eq!(world.take(), []);
    world.wake_until(ms(5000));
    assert!(world.wants(&Action::Walk));
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
    world.told(ToInit::Ended { term: Term(1) });
    assert!(world.spawns().is_some());
}

#[test]
fn the_kill_of_one_that_does_not_acknowledge_goes_before_the_line_about_it() {
    let mut world = leader();
    world.step_down(9, Reason::LostToHolder);
    world.wake_until(ms(5000));
    let at = |wanted: fn(&Action) -> bool| world.actions.iter().position(wanted).unwrap();
    assert!(at(|action| *action == Action::Walk) < at(|action| matches!(action, Action::Warn(_))));
}

#[test]
fn a_hook_that_starts_after_its_term_was_ended_is_killed() {
    let mut world = standby(hooked(Acknowledge::Notify));
    world.lead(1, None);
    world.feed(Input::Role(RoleInput::Promoted));
    world.feed(Input::Role(RoleInput::Notified(Role::Leader)));
    world.step_down(9, Reason::StepDown);
    world.take();
    world.feed(Input::Role(RoleInput::HookForked { pid: HOOK }));
    assert_eq!(world.take(), [Action::KillHook { pid: HOOK }]);
}

#[test]
fn s_demotes_and_h_kills() {
    let mut world = leader();
    world.wake_until(deadlines(ms(1000)).soft);
    assert!(world.wants(&demotion()));
    world.take();
    world.wake_until(deadlines(ms(1000)).hard.before(tick()));
    assert!(!world.wants(&Action::KillAll));
    world.wake_until(deadlines(ms(1000)).hard);
    assert!(world.wants(&Action::KillAll));
}

#[test]
fn the_hooks_acknowledge_by_exit_0() {
    let mut world = standby(hooked(Acknowledge::Hook));
    world.lead(1, None);
    world.take();
    world.feed(Input::Role(RoleInput::Promoted));
    let not_after = deadlines(world.now).soft;
    let hook = Action::Hook { hook: HookKind::AfterLead, facts: Some(facts()), reason: None, not_after };
    assert_eq!(world.take(), [hook]);
    world.feed(Input::Role(RoleInput::HookForked { pid: HOOK }));
    world.feed(Input::Reaped { pid: HOOK, exit: Exit::Code(0) });
    assert_eq!(world.take(), [started(&world)]);
    world.step_down(9, Reason::StepDown);
    let (reason, not_after) = (Some(Reason::StepDown), deadlines(world.now).hard);
    let hook = Action::Hook { hook: HookKind::BeforeFollow, facts: Some(facts()), reason, not_after };
    world.feed(Input::Role(RoleInput::Demoted));
    assert!(world.wants(&hook));
    world.feed(Input::Role(RoleInput::HookForked { pid: HOOK }));
    assert_eq!(world.stopped(), None);
    world.feed(Input::Reaped { pid: HOOK, exit: Exit::Code(0) });
    assert_eq!(world.stopped(), Some((9, Then::Follow)));
}

#[test]
fn a_demotions_hook_does_not_begin_after_the_h_of_the_last_renewal() {
    let mut world = hooked_leader();
    renew(&mut world, 3);
    world.step_down(9, Reason::StepDown);
    let (reason, not_after) = (Some(Reason::StepDown), deadlines(ms(3000)).hard);
    world.feed(Input::Role(RoleInput::Demoted));
    assert!(world.wants(&Action::Hook { hook: HookKind::BeforeFollow, facts: Some(facts()), reason, not_after }));
}

#[test]
fn the_hook_of_a_demotion_that_could_not_be_told_is_not_begun() {
    let mut world = hooked_leader();
    world.step_down(9, Reason::StepDown);
    world.feed(Input::Role(RoleInput::NotDemoted));
    world.due();
    assert!(world.wants(&Action::Walk));
    assert!(!world.actions.iter().any(|action| matches!(action, Action::Hook { .. })));
}

#[test]
fn an_orphan_that_is_reaped_is_not_the_end_of_the_hook() {
    let mut world = hooked_leader();
    world.step_down(9, Reason::StepDown);
    world.feed(Input::Role(RoleInput::Demoted));
    world.feed(Input::Role(RoleInput::HookForked { pid: HOOK }));
    world.feed(Input::Reaped { pid: HOOK + 1, exit: Exit::Code(0) });
    assert_eq!(world.stopped(), None);
    world.feed(Input::Reaped { pid: HOOK, exit: Exit::Code(0) });
    assert_eq!(world.stopped(), Some((9, Then::Follow)));
}

#[test]
fn a_socket_that_could_not_be_emptied_is_no_matter_where_no_word_is_waited_for() {
    let mut world = hooked_leader();
    world.step_down(9, Reason::StepDown);
    world.feed(Input::Role(RoleInput::NotDrained));
    world.feed(Input::Role(RoleInput::Demoted));
    world.feed(Input::Role(RoleInput::HookForked { pid: HOOK }));
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

    world.wake_until(kill_at.before(tick()));
    assert!(!world.wants(&Action::Walk));
    world.wake_until(kill_at);
    assert!(world.wants(&Action::Walk));
}

#[test]
fn a_demotion_hook_that_fails_is_a_kill_at_once() {
    let mut world = hooked_leader();
    world.step_down(9, Reason::StepDown);
    world.feed(Input::Role(RoleInput::Demoted));
    world.feed(Input::Role(RoleInput::HookForked { pid: HOOK }));
    world.take();
    world.feed(Input::Reaped { pid: HOOK, exit: Exit::Code(1) });
    world.due();
    assert!(world.wants(&Action::Walk));
}

#[test]
fn a_hook_that_takes_too_long_is_killed_and_has_failed() {
    let mut world = standby(hooked(Acknowledge::Hook));
    world.lead(1, None);
    world.feed(Input::Role(RoleInput::Promoted));
    world.feed(Input::Role(RoleInput::HookForked { pid: HOOK }));
    world.take();
    world.wake_until(ms(4000).before(tick()));
    assert_eq!(world.take(), []);
    world.wake_until(ms(4000));
    assert_eq!(world.take(), [Action::KillHook { pid: HOOK }]);
    world.feed(Input::Reaped { pid: HOOK, exit: Exit::Signal(libc::SIGKILL) });
    assert!(world.wants(&to_main(libc::SIGTERM)));
    let line = "hook afterLead failed: it was not over within hooks.afterLead.timeout, and was killed";
    assert!(world.wants(&Action::Warn(line.into())), "{:?}", world.actions);
}

#[test]
fn a_demotion_waits_until_the_hook_of_the_promotion_is_dead() {
    let mut world = standby(hooked(Acknowledge::Notify));
    world.lead(1, None);
    world.feed(Input::Role(RoleInput::Promoted));
    world.feed(Input::Role(RoleInput::HookForked { pid: HOOK }));
    world.feed(Input::Role(RoleInput::Notified(Role::Leader)));
    world.take();
    world.step_down(9, Reason::StepDown);
    assert_eq!(world.take(), [Action::KillHook { pid: HOOK }]);
    world.feed(Input::Role(RoleInput::Notified(Role::Standby)));
    assert_eq!(world.take(), [], "a word from before the question");
    world.feed(Input::Reaped { pid: HOOK, exit: Exit::Signal(libc::SIGKILL) });
    assert_eq!(world.actions.get(..2), Some(&[Action::DrainNotify, demotion()][..]));
    world.feed(Input::Role(RoleInput::Demoted));
    world.feed(Input::Role(RoleInput::HookForked { pid: HOOK + 1 }));
    world.feed(Input::Role(RoleInput::Notified(Role::Standby)));
    assert_eq!(world.stopped(), None, "its own hook still runs");
    world.feed(Input::Reaped { pid: HOOK + 1, exit: Exit::Code(0) });
    assert_eq!(world.stopped(), Some((9, Then::Follow)));
}
