//! Promotion: the signal, the notification, the hook, and a promotion that is called off or given up.

use super::*;

#[test]
fn a_promotion_signals_with_s_as_its_limit_and_counts_once_acknowledged_after_that() {
    let mut world = standby(always(Acknowledge::Notify));
    world.lead(1, None);
    assert_eq!(world.take(), [Action::Tell(acknowledged(1, 0)), promotion(&world)]);
    world.feed(Input::Role(RoleInput::Notified(Role::Leader)));
    assert_eq!(world.take(), [], "a word of before the signal acknowledges nothing");
    world.feed(Input::Role(RoleInput::Promoted));
    assert_eq!(world.take(), []);
    world.feed(Input::Role(RoleInput::Notified(Role::Standby)));
    assert_eq!(world.take(), [], "the other role's word acknowledges nothing");
    world.feed(Input::Role(RoleInput::Notified(Role::Leader)));
    assert_eq!(world.take(), [started(&world)]);
}

#[test]
fn nothing_is_promoted_at_s() {
    let mut world = standby(always(Acknowledge::None));
    let confirmed = confirmed(world.now);
    world.sleep_until(confirmed.deadlines.soft);
    let (facts, timing) = (facts(), config().timing());
    world.told(ToInit::Lead { term: Term(1), facts, timing, confirmed, not_before: None });
    assert_eq!(world.take(), [Action::Tell(acknowledged(1, 0))]);
    assert!(!world.agent.leads());
}

#[test]
fn with_acknowledge_none_the_sent_signal_is_enough() {
    let mut world = standby(always(Acknowledge::None));
    world.lead(1, None);
    world.take();
    world.feed(Input::Role(RoleInput::Promoted));
    assert_eq!(world.take(), [started(&world)]);
    world.step_down(9, Reason::StepDown);
    assert!(world.wants(&demotion()));
    assert_eq!(world.stopped(), None, "not sent yet");
    world.feed(Input::Role(RoleInput::Demoted));
    assert_eq!(world.stopped(), Some((9, Then::Follow)));
}

#[test]
fn no_word_counts_from_a_socket_that_could_not_be_emptied() {
    let mut world = leader();
    world.step_down(9, Reason::StepDown);
    world.feed(Input::Role(RoleInput::NotDrained));
    world.feed(Input::Role(RoleInput::Notified(Role::Standby)));
    assert_eq!(world.stopped(), None);
    world.due();
    assert!(world.wants(&Action::Walk));
}

#[test]
fn a_promotion_without_a_signal_drains_the_socket() {
    let mut config = always(Acknowledge::Notify);
    config.signals.on_lead = None;
    let mut world = standby(config);
    world.lead(1, None);
    assert_eq!(world.take(), [Action::Tell(acknowledged(1, 0)), Action::DrainNotify]);
    world.feed(Input::Role(RoleInput::NotDrained));
    world.feed(Input::Role(RoleInput::Notified(Role::Leader)));
    assert!(gives_up(&world));
}

#[test]
fn a_loss_before_the_promotion_is_acknowledged_stops_the_workload() {
    let mut world = standby(always(Acknowledge::Notify));
    world.lead(1, None);
    world.feed(Input::Role(RoleInput::Promoted));
    world.take();
    world.step_down(9, Reason::LostToHolder);
    assert!(world.wants(&to_main(libc::SIGTERM)));
    assert!(!world.wants(&demotion()), "no role signal before the last one is acknowledged");
    world.feed(Input::Role(RoleInput::Notified(Role::Standby)));
    assert_eq!(world.stopped(), None);
}

#[test]
fn a_promotion_whose_signal_is_not_sent_yet_is_not_taken_back_by_a_signal() {
    let mut world = standby(always(Acknowledge::None));
    world.lead(1, None);
    world.take();
    world.step_down(9, Reason::StepDown);
    assert!(world.wants(&to_main(libc::SIGTERM)));
    assert_eq!(world.stopped(), None);
}

/// Whether the term is stopped for want of an acknowledgement.
fn gives_up(world: &World) -> bool {
    world.wants(&Action::Tell(ToElector::Stopping { term: Term(1), reason: Reason::NotAcknowledged, at: world.now }))
}

#[test]
fn a_standby_that_is_slow_to_handle_its_promotion_has_until_the_s_in_force() {
    let mut world = standby(hooked(Acknowledge::Hook));
    world.lead(1, None);
    renew(&mut world, 9);
    world.wake_until(deadlines(ms(1000)).soft);
    world.take();
    world.feed(Input::Role(RoleInput::PromotionLate));
    let again = Action::Promote { pid: MAIN, signal: Signal(libc::SIGUSR1), not_after: ms(16_000) };
    assert_eq!(world.take(), [again], "S is 18.85 s now, and one D is over at 16 s");
    renew(&mut world, 12);
    world.feed(Input::Role(RoleInput::Promoted));
    let hook = |action: &Action| if let Action::Hook { not_after, .. } = action { Some(*not_after) } else { None };
    assert_eq!(world.actions.iter().find_map(hook), Some(deadlines(ms(12_000)).soft));
}

#[test]
fn a_standby_that_does_not_handle_its_promotion_for_one_duration_lives_on_and_the_term_is_given_up() {
    let mut world = standby(always(Acknowledge::Notify));
    world.lead(1, None);
    renew(&mut world, 9);
    world.wake_until(deadlines(ms(1000)).soft);
    world.feed(Input::Role(RoleInput::PromotionLate));
    let until =
        |world: &World, until| world.wants(&Action::Promote { pid: MAIN, signal: Signal(libc::SIGUSR1), not_after: until });
    assert!(until(&world, ms(16_000)), "{:?}", world.actions);
    renew(&mut world, 15);
    world.wake_until(ms(16_000));
    world.feed(Input::Role(RoleInput::PromotionLate));
    assert!(gives_up(&world));
    world.step_down(9, Reason::NotAcknowledged);
    assert!(!world.wants(&to_main(libc::SIGTERM)));
    assert_eq!(world.stopped(), Some((9, Then::Follow)));
}

#[test]
fn a_standby_that_could_not_be_told_lives_on_and_the_term_is_given_up() {
    let mut world = standby(always(Acknowledge::Notify));
    world.lead(1, None);
    world.feed(Input::Role(RoleInput::NotPromoted));
    assert!(gives_up(&world));
    world.step_down(9, Reason::NotAcknowledged);
    assert!(!world.wants(&to_main(libc::SIGTERM)));
    assert_eq!(world.stopped(), Some((9, Then::Follow)));
    assert!(!world.agent.leads());
}

#[test]
fn a_promotion_whose_hook_does_not_even_die_ends_the_term() {
    let mut world = standby(hooked(Acknowledge::Hook));
    world.lead(1, None);
    world.feed(Input::Role(RoleInput::Promoted));
    world.feed(Input::Role(RoleInput::HookForked { pid: HOOK }));
    world.wake_until(ms(4000));
    assert!(world.wants(&Action::KillHook { pid: HOOK }));
    world.wake_until(ms(5000).before(tick()));
    assert!(!gives_up(&world));
    world.wake_until(ms(5000));
    assert!(gives_up(&world));
}

#[test]
fn a_standby_that_only_starts_yields_at_once_and_lives() {
    let agent = Agent::new(Settings {
        config: always(Acknowledge::Notify),
        identity: "me".into(),
        context: None,
        pid1: true,
        terminal: false,
    });
    let mut world = World { agent, now: ms(1000), actions: Vec::new(), pid: MAIN };
    world.due();
    world.feed(Input::Forked { pid: MAIN });
    world.feed(Input::ElectorStarted);
    world.told(ToInit::Hello { version: VERSION });
    world.lead(1, Some(ms(60_000)));
    world.step_down(1, Reason::LostDeleted);
    assert_eq!(world.stopped(), Some((1, Then::Follow)));
    world.feed(Input::Spawned);
    assert!(!world.wants(&to_main(libc::SIGTERM)));
}

#[test]
fn the_hook_of_what_starts_as_a_leader_has_until_the_s_of_when_it_runs() {
    let mut config = hooked(Acknowledge::Hook);
    config.workload.on_exit = OnExit::Restart;
    let mut world = standby(config);
    world.exit(Exit::Code(1));
    world.prove();
    world.lead(1, None);
    assert!(world.spawns().is_some_and(|(role, _)| role == Some(Role::Leader)));
    world.feed(Input::Forked { pid: MAIN });
    world.take();

    world.sleep_until(ms(2000));
    world.extend(1, 1, world.now);
    world.feed(Input::Spawned);

    let soft = deadlines(ms(2000)).soft;
    let is_hook = |action: &Action| matches!(action, Action::Hook { not_after, .. } if *not_after == soft);
    assert!(world.actions.iter().any(is_hook), "{:?}", world.actions);
}

#[test]
fn a_promotion_without_its_word_for_one_duration_ends_the_term_and_the_workload() {
    let mut world = standby(always(Acknowledge::Notify));
    world.lead(1, None);
    world.wake_until(ms(2000));
    world.feed(Input::Role(RoleInput::Promoted));
    renew(&mut world, 9);
    world.wake_until(ms(17_000).before(tick()));
    assert_eq!(world.take(), []);
    world.wake_until(ms(17_000));
    assert!(gives_up(&world));
    assert!(world.wants(&to_main(libc::SIGTERM)));
    assert!(!world.wants(&demotion()), "no role signal before the last one is acknowledged");
}

#[test]
fn a_promotion_of_which_nothing_is_heard_ends_the_same() {
    let mut world = standby(always(Acknowledge::None));
    world.lead(1, None);
    renew(&mut world, 9);
    world.wake_until(ms(17_000).before(tick()));
    assert_eq!(world.take(), [], "who sends the signal has a killMargin to end");
    world.wake_until(ms(17_000));
    assert!(gives_up(&world));
    assert!(world.wants(&to_main(libc::SIGTERM)), "the signal may have been sent");
}

#[test]
fn a_hook_with_more_time_gives_the_word_as_much() {
    let mut config = hooked(Acknowledge::Notify);
    config.hooks.after_lead.as_mut().unwrap().timeout = Duration::from_secs(18);
    let mut world = standby(config);
    world.lead(1, None);
    world.feed(Input::Role(RoleInput::Promoted));
    world.feed(Input::Role(RoleInput::HookForked { pid: HOOK }));
    world.feed(Input::Reaped { pid: HOOK, exit: Exit::Code(0) });
    renew(&mut world, 10);
    world.wake_until(ms(19_000).before(tick()));
    assert_eq!(world.take(), []);
    world.wake_until(ms(19_000));
    assert!(gives_up(&world));
}

#[test]
fn a_promotion_that_was_acknowledged_is_not_given_up() {
    let mut world = leader();
    for second in [9, 18] {
        renew(&mut world, second);
    }
    world.wake_until(ms(20_000));
    assert_eq!(world.take(), []);
    assert!(world.agent.leads());
}

#[test]
fn a_promotion_that_is_on_its_way_is_called_off_before_the_stop_signal() {
    let mut world = standby(always(Acknowledge::Notify));
    world.lead(1, None);
    world.take();
    world.step_down(9, Reason::LostToHolder);
    let actions = world.take();
    let position = |wanted: &Action| actions.iter().position(|action| action == wanted);
    assert!(position(&Action::CallOff).is_some());
    assert!(position(&Action::CallOff) < position(&to_main(libc::SIGTERM)), "{actions:?}");
}

#[test]
fn a_promotion_that_is_on_its_way_is_called_off_where_the_workload_is_killed_at_once() {
    let mut world = standby(always(Acknowledge::Notify));
    world.lead(1, None);
    world.take();
    world.wake_until(deadlines(ms(1000)).hard);
    assert!(world.wants(&Action::CallOff));
}

#[test]
fn a_stop_kills_the_hook_of_the_promotion_before_the_stop_signal() {
    let mut world = standby(hooked(Acknowledge::None));
    world.lead(1, None);
    world.feed(Input::Role(RoleInput::Promoted));
    world.feed(Input::Role(RoleInput::HookForked { pid: HOOK }));
    world.take();

    world.feed(Input::Signal(libc::SIGTERM));

    let position = |wanted: &Action| world.actions.iter().position(|action| action == wanted);
    assert!(position(&Action::KillHook { pid: HOOK }).is_some(), "{:?}", world.actions);
    assert!(position(&Action::KillHook { pid: HOOK }) < position(&to_main(libc::SIGTERM)));
}

#[test]
fn a_hook_that_starts_into_a_stop_is_killed() {
    let mut world = standby(hooked(Acknowledge::None));
    world.lead(1, None);
    world.feed(Input::Role(RoleInput::Promoted));
    world.feed(Input::Signal(libc::SIGTERM));
    world.take();

    world.feed(Input::Role(RoleInput::HookForked { pid: HOOK }));

    assert_eq!(world.take(), [Action::KillHook { pid: HOOK }]);
}

#[test]
fn what_is_told_at_the_end_of_a_creation_wait_goes_by_the_s_and_h_that_this_end_leaves_at_least() {
    let mut world = standby(hooked(Acknowledge::None));
    let own = config().timing();
    let (end, waiting) = (world.now, own.with_duration(Duration::from_secs(60)));
    let long = Confirmed { deadlines: waiting.deadlines(end), ..confirmed(end) };
    let begins = |world: &World| {
        let begins = |action: &Action| {
            let (Action::Promote { not_after, .. } | Action::Hook { not_after, .. }) = action else { return None };
            Some(*not_after)
        };
        world.actions.iter().find_map(begins)
    };
    world.told(ToInit::Lead { term: Term(1), facts: facts(), timing: waiting, confirmed: long, not_before: Some(end) });
    assert_eq!(begins(&world), Some(own.deadlines(end).soft));
    world.take();

    world.feed(Input::Role(RoleInput::Promoted));
    assert_eq!(begins(&world), Some(own.deadlines(end).soft));
    world.feed(Input::Role(RoleInput::HookForked { pid: HOOK }));
    world.feed(Input::Reaped { pid: HOOK, exit: Exit::Code(0) });
    world.take();

    world.step_down(9, Reason::PreferredHolder);
    world.feed(Input::Role(RoleInput::Demoted));
    assert_eq!(begins(&world), Some(own.deadlines(end).hard));
}

#[test]
fn a_workload_that_may_have_been_told_that_it_leads_is_no_standby_until_it_has_died() {
    let mut world = standby(always(Acknowledge::None));
    world.lead(1, None);
    world.take();
    world.now = deadlines(ms(1000)).soft;
    world.feed(Input::Role(RoleInput::PromotionKilled));
    world.step_down(9, Reason::Expired);
    assert!(world.wants(&to_main(libc::SIGTERM)));
    assert_eq!(world.stopped(), None);
}

#[test]
fn what_may_have_been_told_by_an_attempt_that_was_killed_is_not_untold_by_the_next() {
    let soft = deadlines(ms(1000)).soft;
    for next in [RoleInput::NotPromoted, RoleInput::PromotionLate] {
        let mut world = standby(always(Acknowledge::None));
        world.lead(1, None);
        world.take();
        world.feed(Input::Role(RoleInput::PromotionKilled));
        assert!(world.wants(&Action::Promote { pid: MAIN, signal: Signal(libc::SIGUSR1), not_after: soft }));
        world.now = soft;
        world.feed(Input::Role(next));
        world.step_down(9, Reason::Expired);
        assert!(world.wants(&to_main(libc::SIGTERM)), "{next:?}");
        assert_eq!(world.stopped(), None, "{next:?}");
    }
}

#[test]
fn a_promotion_that_was_told_is_not_called_off() {
    let mut world = leader();
    world.step_down(9, Reason::LostToHolder);
    assert!(!world.wants(&Action::CallOff));
}

#[test]
fn a_promotion_hook_that_fails_ends_the_term_and_the_workload() {
    let mut world = standby(hooked(Acknowledge::Hook));
    world.lead(1, None);
    world.feed(Input::Role(RoleInput::Promoted));
    world.feed(Input::Role(RoleInput::HookForked { pid: HOOK }));
    world.take();
    world.feed(Input::Reaped { pid: HOOK, exit: Exit::Code(1) });
    assert!(world.wants(&Action::Tell(ToElector::Stopping { term: Term(1), reason: Reason::HookFailed, at: world.now })));
    assert!(world.wants(&to_main(libc::SIGTERM)));
    assert!(world.wants(&Action::Warn("hook afterLead failed: exit code 1".into())), "{:?}", world.actions);
}
