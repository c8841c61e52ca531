//! Promotion: the signal, the hook, the notification; and that any doubt about it is a stop and a fresh standby.

use super::*;

/// The signal was sent, and the hook runs.
fn hooked_promotion(acknowledge: Acknowledge) -> World {
    let mut world = standby(hooked(acknowledge));
    world.lead(1);
    world.feed(Input::Role(RoleInput::Signalled));
    world.feed(Input::Role(RoleInput::HookForked { pid: HOOK }));
    world.take();
    world
}

/// Returns true if the term is given up for this reason, and the workload stopped.
fn gives_up(world: &World, reason: Reason) -> bool {
    world.wants(&Action::Tell(ToElector::Stopping { term: Term(1), reason, at: world.now }))
        && world.wants(&to_main(libc::SIGTERM))
        && !world.actions.contains(&demotion())
}

#[test]
fn a_promotion_signals_with_s_as_its_limit_and_counts_once_acknowledged_after_that() {
    let mut world = standby(always(Acknowledge::Notify));
    world.lead(1);
    assert_eq!(world.take(), [Action::Tell(acknowledged(1, 0)), promotion(&world)]);
    world.feed(Input::Role(RoleInput::Notified(Role::Leader)));
    assert_eq!(world.take(), [], "a word of before the signal acknowledges nothing");
    world.feed(Input::Role(RoleInput::Signalled));
    assert_eq!(world.take(), []);
    world.feed(Input::Role(RoleInput::Notified(Role::Standby)));
    assert_eq!(world.take(), [], "the other role's word acknowledges nothing");
    world.feed(Input::Role(RoleInput::Notified(Role::Leader)));
    assert_eq!(world.take(), [started(&world)]);
}

#[test]
fn a_promotion_whose_address_is_not_published_yet_is_called_off_at_once() {
    for ask in
        [|world: &mut World| world.feed(Input::Signal(libc::SIGTERM)), |world: &mut World| world.step_down(9, Reason::StepDown)]
    {
        let mut config = always(Acknowledge::Notify);
        config.service.endpoint_slice = Some("leader".into());
        let mut world = standby(config);
        world.lead(1);
        world.feed(Input::Role(RoleInput::Signalled));
        world.take();

        ask(&mut world);

        assert!(world.wants(&to_main(libc::SIGTERM)), "{:?}", world.actions);
    }
}

#[test]
fn nothing_is_promoted_at_s() {
    let mut world = standby(always(Acknowledge::None));
    world.lead_too_late(1);
    assert_eq!(world.take(), [Action::Tell(acknowledged(1, 0))]);
    assert!(!world.agent.leads());
}

#[test]
fn with_acknowledge_none_the_sent_signal_is_enough() {
    let mut world = standby(always(Acknowledge::None));
    world.lead(1);
    world.take();
    world.feed(Input::Role(RoleInput::Signalled));
    assert_eq!(world.take(), [started(&world)]);
    world.step_down(9, Reason::StepDown);
    assert!(world.wants(&demotion()));
    assert_eq!(world.stopped(), None, "not sent yet");
    world.feed(Input::Role(RoleInput::Signalled));
    assert_eq!(world.stopped(), Some((9, Then::Follow)));
}

#[test]
fn without_a_signal_the_socket_is_emptied_before_any_word_counts() {
    let mut config = always(Acknowledge::Notify);
    (config.signals.on_lead, config.signals.on_follow) = (None, None);
    let mut world = standby(config);
    world.lead(1);
    assert_eq!(world.take(), [Action::Tell(acknowledged(1, 0)), Action::MarkNotify]);
    let mut full = world.clone();
    full.feed(Input::Role(RoleInput::NotSignalled));
    assert!(gives_up(&full, Reason::NotAcknowledged));

    world.feed(Input::Role(RoleInput::Signalled));
    world.feed(Input::Role(RoleInput::Notified(Role::Leader)));
    assert_eq!(world.take(), [started(&world)]);
    world.step_down(9, Reason::StepDown);
    assert_eq!(world.take(), [Action::MarkNotify]);
    world.feed(Input::Role(RoleInput::NotSignalled));
    world.feed(Input::Role(RoleInput::Notified(Role::Standby)));
    assert_eq!(world.stopped(), None);
    world.due();
    assert!(world.wants(&Action::Sweep));
}

#[test]
fn whatever_is_asked_for_a_promotion_counts_once_its_hook_has_ended_well() {
    for acknowledge in [Acknowledge::None, Acknowledge::Notify, Acknowledge::Hook] {
        let mut world = hooked_promotion(acknowledge);
        world.feed(Input::Role(RoleInput::Notified(Role::Leader)));
        assert_eq!(world.take(), [], "{acknowledge:?}");
        world.feed(Input::Reaped { pid: HOOK, exit: Exit::Code(0) });
        assert_eq!(world.take(), [started(&world)], "{acknowledge:?}");
    }
}

#[test]
fn a_promotion_that_was_not_told_or_whose_hook_fails_is_a_stop_and_a_fresh_standby() {
    let fails = |exit| move |world: &mut World| world.feed(Input::Reaped { pid: HOOK, exit });
    let untold = |world: &mut World| world.feed(Input::Role(RoleInput::NotSignalled));
    let not_started = |world: &mut World| world.feed(Input::Role(RoleInput::HookNotForked));
    let in_flight = |world: &mut World| world.lead(1);
    let hook_starts = |world: &mut World| {
        world.lead(1);
        world.feed(Input::Role(RoleInput::Signalled));
    };
    let hook_runs = |world: &mut World| {
        world.lead(1);
        world.feed(Input::Role(RoleInput::Signalled));
        world.feed(Input::Role(RoleInput::HookForked { pid: HOOK }));
    };
    let late = "it was not over within hooks.afterLead.timeout, and was killed";
    type Way<'a> = (&'a dyn Fn(&mut World), &'a dyn Fn(&mut World), Reason, Option<&'a str>);
    let ways: [Way<'_>; 4] = [
        (&in_flight, &untold, Reason::NotAcknowledged, None),
        (&hook_starts, &not_started, Reason::HookFailed, Some("it could not be started")),
        (&hook_runs, &fails(Exit::Code(1)), Reason::HookFailed, Some("exit code 1")),
        (
            &hook_runs,
            &|world| {
                world.only_at(ms(4000), &Action::KillHook { pid: HOOK });
                fails(Exit::Signal(libc::SIGKILL))(world);
            },
            Reason::HookFailed,
            Some(late),
        ),
    ];
    for (begins, fails, reason, line) in ways {
        for acknowledge in [Acknowledge::Hook, Acknowledge::Notify] {
            let mut world = standby(hooked(acknowledge));
            begins(&mut world);

            fails(&mut world);

            assert!(gives_up(&world, reason), "{reason:?} {:?}", world.actions);
            let line = line.map(|line| Action::Warn(format!("hook afterLead failed: {line}")));
            assert!(line.is_none_or(|line| world.wants(&line)), "{:?}", world.actions);
            world.step_down_proved(reason, Exit::Code(0));
            assert!(world.wants(&Action::Spawn { role: Some(Role::Standby), launch: None }));
            assert_eq!(world.stopped(), Some((9, Then::Follow)));
        }
    }
}

#[test]
fn a_promotion_that_is_not_acknowledged_within_one_duration_is_given_up() {
    let told = |world: &mut World| {
        world.wake_until(ms(2000));
        world.feed(Input::Role(RoleInput::Signalled));
    };
    let undying_hook = |world: &mut World| {
        told(world);
        world.feed(Input::Role(RoleInput::HookForked { pid: HOOK }));
    };
    type Way<'a> = (Acknowledge, u64, &'a dyn Fn(&mut World), u64);
    let ways: [Way<'_>; 4] = [
        // Of who sends the signal nothing is heard.
        (Acknowledge::None, 0, &|_| {}, 16_000),
        (Acknowledge::Notify, 0, &told, 17_000),
        (Acknowledge::Hook, 3, &undying_hook, 17_000),
        // One that may take longer has as long, and a killMargin to die.
        (Acknowledge::Hook, 18, &undying_hook, 21_000),
    ];
    for (acknowledge, hook, begins, at) in ways {
        let mut config = if hook == 0 { always(acknowledge) } else { hooked(acknowledge) };
        if hook > 0 {
            config.hooks.after_lead.timeout = Duration::from_secs(hook);
        }
        let mut world = standby(config);
        world.lead(1);
        begins(&mut world);
        renew(&mut world, 9);
        renew(&mut world, 15);

        world.wake_until(ms(at).before(tick()));
        assert!(!gives_up(&world, Reason::NotAcknowledged), "{acknowledge:?} {hook}");
        world.wake_until(ms(at));
        assert!(gives_up(&world, Reason::NotAcknowledged), "{acknowledge:?} {hook} {:?}", world.actions);
        let line = "the workload did not acknowledge its promotion in time and is stopped";
        assert!(world.wants(&Action::Warn(line.into())), "{:?}", world.actions);
    }
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
fn a_stop_before_the_promotion_is_acknowledged_is_no_demotion_and_what_is_on_its_way_ends_before_it() {
    let in_flight = || {
        let mut world = standby(always(Acknowledge::Notify));
        world.lead(1);
        world
    };
    let told = || {
        let mut world = in_flight();
        world.feed(Input::Role(RoleInput::Signalled));
        world
    };
    let in_hook = || hooked_promotion(Acknowledge::None);
    let stops: [fn(&mut World); 3] = [
        |world| world.step_down(9, Reason::StepDown),
        |world| world.step_down(9, Reason::LostToHolder),
        |world| world.feed(Input::Signal(libc::SIGTERM)),
    ];
    let kill_hook = Action::KillHook { pid: HOOK };
    type Way<'a> = (&'a dyn Fn() -> World, Option<&'a Action>);
    let ways: [Way<'_>; 3] = [(&in_flight, Some(&Action::KillTeller)), (&told, None), (&in_hook, Some(&kill_hook))];
    for (begins, ends) in ways {
        for stop in stops {
            let mut world = begins();
            world.take();

            stop(&mut world);

            let at = |wanted: &Action| world.actions.iter().position(|action| action == wanted);
            assert!(at(&to_main(libc::SIGTERM)).is_some() && at(&demotion()).is_none(), "{:?}", world.actions);
            assert!(ends.is_none_or(|ends| at(ends).is_some() && at(ends) < at(&to_main(libc::SIGTERM))), "{:?}", world.actions);
            world.feed(Input::Role(RoleInput::Notified(Role::Standby)));
            assert_eq!(world.stopped(), None);
            assert!(world.agent.leads());
        }
    }
}

#[test]
fn a_promotion_that_is_on_its_way_at_h_is_called_off() {
    let mut world = standby(always(Acknowledge::Notify));
    world.lead(1);
    world.take();
    world.sleep_until(deadlines(ms(1000)).hard);
    world.due();
    assert!(world.wants(&Action::KillTeller) && world.wants(&Action::KillAll));
}

#[test]
fn a_hook_that_starts_into_a_stop_is_killed() {
    let mut world = standby(hooked(Acknowledge::None));
    world.lead(1);
    world.feed(Input::Role(RoleInput::Signalled));
    world.feed(Input::Signal(libc::SIGTERM));
    world.take();

    world.feed(Input::Role(RoleInput::HookForked { pid: HOOK }));

    assert_eq!(world.take(), [Action::KillHook { pid: HOOK }]);
}

#[test]
fn a_standby_that_only_starts_yields_at_once_and_lives() {
    let mut world = World::of(always(Acknowledge::Notify), true, false);
    world.due();
    world.feed(Input::Forked { pid: MAIN });
    world.greet();
    world.lead(1);
    world.step_down(1, Reason::LostDeleted);
    assert_eq!(world.stopped(), Some((1, Then::Follow)));
    world.feed(Input::Spawned);
    assert!(!world.wants(&to_main(libc::SIGTERM)));
}

#[test]
fn what_starts_as_a_leader_is_told_by_its_hook_alone() {
    let mut config = hooked(Acknowledge::Notify);
    config.workload.on_exit = OnExit::Restart;
    let mut world = standby(config);
    world.exit_proved(Exit::Code(1));
    world.lead(1);
    world.take();
    world.feed(Input::Forked { pid: MAIN });
    world.feed(Input::Spawned);
    let not_after = deadlines(world.now).soft;
    let told = ProgramEnv { info: Some(info()), ..ProgramEnv::default() };
    assert_eq!(world.take(), [Action::Hook { hook: HookKind::AfterLead, told, not_after }]);
    world.feed(Input::Role(RoleInput::HookForked { pid: HOOK }));
    world.feed(Input::Reaped { pid: HOOK, exit: Exit::Code(0) });
    assert_eq!(world.take(), [started(&world)]);
}
