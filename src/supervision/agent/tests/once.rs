//! What runs once, under a lock.

use super::*;

/// Its elector is greeted.
fn waiting() -> World {
    let mut world = for_at_most(None);
    world.due();
    world.take();
    world.greet();
    world
}

/// At the start of init.
fn for_at_most(limit: Option<Duration>) -> World {
    let mut config = config();
    config.workload.on_loss = config::OnLoss::Exit;
    let identity = "me".into();
    World::at(AgentConfig {
        config: config.into(),
        preset: Preset::Lock { wait_limit: limit.map(|limit| config::WaitLimit { limit, code: 75 }) },
        began: Instant::BOOT,
        identity,
        context: None,
        pid1: true,
        terminal: false,
    })
}

#[test]
fn a_signal_before_it_ran_is_never_taken_for_a_success() {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
        let code = u8::try_from(128 + signal).unwrap();
        let mut world = waiting();
        world.feed(Input::Signal(signal));
        assert_eq!(world.take(), [Action::Tell(ToElector::Shutdown)]);
        world.done_ends_with(code);

        let mut world = waiting();
        world.feed(Input::Signal(signal));
        world.take();
        world.lead(1);
        assert!(!world.agent.leads(), "the Lease came too late");
        world.step_down(9, Reason::Signal);
        world.prove();
        assert_eq!(world.stopped(), Some((9, Then::Exit)));
        world.ended_ends_with(code);
    }
}

#[test]
fn whoever_asks_it_to_step_down_it_does_not_run_again() {
    for (reason, code) in [(Reason::StepDown, 76), (Reason::PreferredHolder, 76), (Reason::LostToHolder, 76), (Reason::Exited, 7)]
    {
        let mut world = waiting();
        world.lead(1);
        world.run();
        if reason == Reason::Exited {
            world.exit(Exit::Code(7));
            world.step_down(9, reason);
            world.prove();
        } else {
            world.step_down_proved(reason, Exit::Code(0));
        }
        assert_eq!(world.stopped(), Some((9, Then::Exit)), "{reason:?}");
        world.ended_ends_with(code);
    }
}

#[test]
fn what_is_given_up_ends_init_with_the_code_and_the_words_and_nothing_runs() {
    let given_up = || ToInit::GaveUp { code: 75, message: "held by another".into() };
    let mut world = waiting();
    world.told(given_up());
    assert_eq!(world.take(), [Action::Tell(ToElector::Shutdown)]);
    let mut settling = world.clone();
    world.told(ToInit::Done);
    let ends =
        |world: &mut World| world.take().ends_with(&[Action::TerminationMessage("held by another".into(), 75), Action::Exit(75)]);
    assert!(ends(&mut world));

    settling.lead(1);
    assert!(!settling.agent.leads(), "an unanswered write had acquired the Lease");
    settling.step_down(9, Reason::Signal);
    settling.prove();
    settling.told(ToInit::Ended { term: Term(1), backoff: None });
    settling.told(ToInit::Done);
    assert!(ends(&mut settling));

    let mut leading = waiting();
    leading.lead(1);
    leading.told(given_up());
    assert!(leading.wants(&Action::KillElector), "it has the Lease");
}

#[test]
fn a_loss_is_told_with_what_was_lost_and_since_when_it_was_held() {
    let mut world = waiting();
    let info = TermInfo { slot: Slot(1), ..info() };
    world.told(ToInit::Lead { term: Term(1), info, confirmed: confirmed(world.now) });
    world.run();
    world.step_down_proved(Reason::LostToHolder, Exit::Code(0));
    world.ended_ends_with(76);
    let words = "the Lease -slot-1 was lost (lost-to-holder), held since 2026-01-01T00:00:00.000000Z";
    assert!(world.wants(&Action::TerminationMessage(words.into(), 76)), "{:?}", world.take());
}

#[test]
fn a_hang_up_ends_a_wait_and_reaches_a_command_that_runs() {
    let mut world = waiting();
    world.leads();
    world.feed(Input::Signal(libc::SIGHUP));
    assert_eq!(world.take(), [to_main(libc::SIGHUP)]);

    let mut replica = World::new(config());
    replica.feed(Input::Signal(libc::SIGHUP));
    assert_eq!(replica.take(), [], "a replica goes on");
}

#[test]
fn a_bound_holds_where_no_elector_works_and_without_one_they_are_tried_for_ever() {
    let fail: [fn(&mut World); 2] = [
        |world| world.feed(Input::ElectorEnded),
        |world| {
            world.greet();
            world.feed(Input::ElectorEnded);
        },
    ];
    for fail in fail {
        for (limit, ended) in [(Some(0), 2_000..3_000), (Some(60), 61_000..63_000), (None, 600_000..601_000)] {
            let (mut world, mut is_over) = (for_at_most(limit.map(Duration::from_secs)), false);
            while world.now < ms(600_000) && !is_over {
                world.due();
                let actions = world.take();
                is_over = actions.contains(&Action::Exit(70));
                if actions.contains(&Action::StartElector) {
                    fail(&mut world);
                }
                world.now = world.agent.poll_timeout().unwrap_or(world.now).max(world.now + Duration::from_millis(1));
            }
            let at = u64::try_from(world.now.since(Instant::BOOT).as_millis()).unwrap();
            assert!(ended.contains(&at), "{limit:?}: {at} ms");
        }
    }
}

#[test]
fn an_elector_that_is_replaced_after_the_bound_gives_up_or_goes_on_by_itself() {
    let mut world = for_at_most(Some(Duration::ZERO));
    world.due();
    world.greet();
    world.take();
    world.feed(Input::ElectorEnded);
    world.due();
    assert!(world.started_elector().is_some());
    world.greet();
    world.lead(1);
    world.run();
    world.feed(Input::ElectorEnded);
    world.wake_until(ms(4_000));
    assert!(world.started_elector().is_some(), "the term goes on");
}
