//! What runs once, under a lock.

use super::*;

/// Its elector is greeted.
fn waiting() -> World {
    let mut config = config();
    config.workload.on_loss = config::OnLoss::Exit;
    let identity = "me".into();
    let mut world = World::at(AgentConfig {
        config,
        preset: Preset::Lock { patience: None },
        began: Instant::BOOT,
        identity,
        context: None,
        pid1: true,
        terminal: false,
    });
    world.due();
    world.take();
    world.greet();
    world
}

#[test]
fn a_signal_before_it_ran_is_never_taken_for_a_success() {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGQUIT] {
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
        world.told(ToInit::Ended { term: Term(1), backoff: None });
        world.done_ends_with(code);
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
        world.told(ToInit::Ended { term: Term(1), backoff: None });
        world.done_ends_with(code);
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
        |world: &mut World| world.take().ends_with(&[Action::TerminationMessage("held by another".into()), Action::Exit(75)]);
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
    world.lead(1);
    world.run();
    world.step_down_proved(Reason::LostToHolder, Exit::Code(0));
    world.told(ToInit::Ended { term: Term(1), backoff: None });
    world.done_ends_with(76);
    let words = "the Lease  was lost (lost-to-holder), held since 2026-01-01T00:00:00.000000Z";
    assert!(world.wants(&Action::TerminationMessage(words.into())), "{:?}", world.take());
}
